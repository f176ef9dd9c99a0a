"""Run studies: ``python -m studies [--quick] [--at-once K] [--out DIR] [names...]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from gradprop.environment import available_cores

HERE = Path(__file__).resolve().parent
INTERRUPTED = 130


class Run(NamedTuple):
    """What came of a study; its text where it was not shown as it came."""

    name: str
    code: int
    seconds: float
    text: str = ""


def main(argv: list[str] | None = None) -> int:
    """Run the named studies, or all, each in its own process; 1 if any of them failed."""
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    options = _options(known, argv)
    names, flags = options.names or known, _flags(options)
    beside = options.at_once > 1
    runs = _beside(names, flags, options.at_once) if beside else _each(names, flags)
    summary = []
    try:
        for run in runs:
            if run.code == INTERRUPTED:
                return INTERRUPTED
            summary.append(run)
    except KeyboardInterrupt:
        return INTERRUPTED
    print()
    for name, code, seconds, _ in summary:
        print(f"{name:30} {'done' if code == 0 else f'FAILED ({code})'} in {seconds:.1f} s")
    return int(any(run.code for run in summary))


def _options(known: Sequence[str], argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="name", help=f"of {', '.join(known)}")
    add("--quick", action="store_true", help="small grids")
    add("--redraw", action="store_true", help="draw the data at hand")
    add("--jobs", metavar="N", help="worker processes of each (default: its share of the cores)")
    add("--at-once", type=int, default=1, metavar="K", help="studies side by side (default: 1)")
    add("--out", metavar="DIR", help="folder")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown study {unknown[0]!r}; known: {', '.join(known)}")
    if options.at_once < 1:
        parser.error(f"--at-once must be at least 1; got {options.at_once}")
    return options


def _flags(options: argparse.Namespace) -> list[str]:
    """What each study is told."""
    flags = [f"--{flag}" for flag in ("quick", "redraw") if getattr(options, flag)]
    jobs = options.jobs
    if jobs is None and options.at_once > 1:
        jobs = str(max(1, available_cores() // options.at_once))
    for flag, value in (("jobs", jobs), ("out", options.out)):
        if value is not None:
            flags += [f"--{flag}", value]
    return flags


def _each(names: Sequence[str], flags: Sequence[str]) -> Iterator[Run]:
    """One after the other, their output as it comes."""
    for name in names:
        print(f"== {name}", flush=True)
        yield _run(name, flags, None)


def _beside(names: Sequence[str], flags: Sequence[str], at_once: int) -> Iterator[Run]:
    """Several at once, the output of each in one piece when it is done."""
    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(_run, name, flags, subprocess.PIPE) for name in names]
        try:
            for done in as_completed(waiting):
                run = done.result()
                print(f"== {run.name}\n{run.text}", end="", flush=True)
                yield run
        finally:
            # after Ctrl-C, which reaches the studies under way too
            pool.shutdown(wait=False, cancel_futures=True)


def _run(name: str, flags: Sequence[str], output: int | None) -> Run:
    start = time.monotonic()
    command = [sys.executable, str(HERE / f"{name}.py"), *flags]
    joined = None if output is None else subprocess.STDOUT
    done = subprocess.run(command, stdout=output, stderr=joined, text=True)
    return Run(name, done.returncode, time.monotonic() - start, done.stdout or "")


if __name__ == "__main__":
    raise SystemExit(main())
