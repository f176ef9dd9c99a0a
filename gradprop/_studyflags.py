"""The flags that every study has."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradprop._shards import Shard
from gradprop.cluster import checked_address
from gradprop.environment import available_cores, library_version
from gradprop.figures import WIDTHS


def study_parser(
    name: str, claim: str, width: str, draw: Callable[..., Any]
) -> argparse.ArgumentParser:
    """The command line of a study whose figure `draw` draws."""
    parser = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=claim,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a small grid, written to the folder quick")
    add("--seed", type=_at_least(0), default=0, metavar="N", help="the first seed (default: 0)")
    add("--seeds", type=_at_least(1), metavar="K", help="how many seeds: N, ..., N + K - 1")
    add(
        "--retry-failed",
        action="store_true",
        help="measure those points again that failed in an earlier run",
    )
    add(
        "--width",
        choices=list(WIDTHS),
        default=width,
        metavar="VENUE",
        help=f"width of the figure: {', '.join(WIDTHS)} (default: {width})",
    )
    add("--out", type=Path, default=_default_folder(draw), metavar="DIR", help="folder")
    add("--version", action="version", version=f"gradprop {library_version()}")
    steps = parser.add_mutually_exclusive_group()
    add = steps.add_argument
    add("--redraw", action="store_true", help="draw the data at hand, compute nothing")
    add("--shard", type=_shard, metavar="i/k", help="compute the i-th of k parts, draw nothing")
    add("--merge", action="store_true", help="take over the parts that --shard computed, and draw")
    _add_where(parser)
    return parser


def _add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where to compute; the results do not depend on it")
    group.add_argument(
        "--jobs",
        type=_at_least(1),
        default=available_cores(),
        metavar="N",
        help="worker processes on this machine (default: all cores)",
    )
    group.add_argument(
        "--scheduler",
        type=_scheduler,
        metavar="ADDRESS",
        help="tcp://HOST:PORT of a running dask scheduler; 'local' starts one here with N workers",
    )


def _at_least(minimum: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if (number := int(text)) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}; got {number}")
        return number

    return integer


def _scheduler(text: str) -> str:
    try:
        return checked_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def script_folder(function: Callable[..., Any]) -> Path:
    """Folder of the file that defines a function."""
    return Path(inspect.getfile(function)).resolve().parent


def _default_folder(function: Callable[..., Any]) -> Path:
    """``figures`` beside the folder ``studies`` of a script, else in the current folder."""
    folder = script_folder(function)
    return (folder.parent if folder.name == "studies" else Path()) / "figures"
