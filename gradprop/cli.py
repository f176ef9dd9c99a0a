"""The command ``gradprop``: diagnose a file of weights, list its layers, tell of the machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradprop._storecli import add_store_commands
from gradprop.environment import PACKAGE, describe, library_version

DONE, MISTAKE, INTERRUPTED = 0, 2, 130
STUDIES = PACKAGE.parent / "studies"

EXAMPLES = """examples:
  gradprop list net.safetensors
  gradprop diagnose net.npz --input series.npy --samples 10000 --html report.html
  gradprop diagnose model.keras --prefix lstm_1 --fmt bfloat16
  gradprop study edge_of_chaos --quick

exit codes: 0 done, 1 failure, 2 a mistake in what was asked for, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, default: the process's arguments

    Returns
    -------
    int
        0 done, 1 failure (of a study; others raise), 2 a mistake of the user's, which is said in
        one line, 130 after Ctrl-C.
    """
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"gradprop: {_said(error)}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        print("gradprop: interrupted.", file=sys.stderr)
        return INTERRUPTED


def _said(error: Exception) -> str:
    """What to tell the user: of a file the system's own word, of a convention how to say it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    text = str(error)
    return f"{text} (--convention C)" if text.startswith("`convention` must be told") else text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradprop",
        description="How far back can a recurrent network learn, and what sets the limit?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradprop {library_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_diagnose(commands)
    _add(commands, "list", _list, "the recurrent layers in a file of weights").add_argument(
        "file", type=Path, metavar="FILE"
    )
    _add(commands, "info", _info, "versions, BLAS, threads, floats, cache folder of this machine")
    _add(commands, "warmup", _warmup, "compile the common kernels into the cache")
    add_store_commands(commands)
    study = _add(commands, "study", _study, "run one of the studies of the source tree")
    study.add_argument("name", metavar="NAME")
    study.add_argument("flags", nargs=argparse.REMAINDER, help="passed on, as --quick")
    return parser


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_diagnose(commands: Any) -> None:
    parser = _add(commands, "diagnose", _diagnose, "how far back a network learns")
    parser.epilog = "\n".join(line for line in EXAMPLES.splitlines()[:4] if " list " not in line)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help=".npz, .safetensors, .pt, .keras, .h5, .onnx")
    add("--input", type=Path, metavar="SERIES", help=".npy, .npz or .csv; default: white noise")
    add("--key", metavar="NAME", help="array of an .npz SERIES (default: x)")
    add("--prefix", metavar="P", help="of the layer, where there are several (see: list)")
    add("--convention", metavar="C", help="torch, keras, onnx or cudnn, where names do not tell")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the file does not say, as reset_after=true or kind=GRU; may be repeated",
    )
    add("--fmt", default="float32", metavar="F", help="float32 (default), bfloat16, float16, ...")
    add("--samples", type=int, metavar="N", help="training sequences: sets the statistical limit")
    add("--html", type=Path, metavar="OUT", help="write a page that opens offline")
    add("--json", type=Path, metavar="OUT", help="write all numbers and curves")


def _diagnose(options: argparse.Namespace) -> int:
    from gradprop._series import read_series
    from gradprop.diagnosis.run import diagnose
    from gradprop.weights.files import load_cell

    for out in (options.html, options.json):
        if out is not None and not out.parent.is_dir():
            raise ValueError(f"there is no folder {str(out.parent)!r} to write {out.name!r} to.")
    told = dict(map(_setting, options.option))
    cell = load_cell(
        options.file,
        convention=options.convention,
        prefix=options.prefix,
        **({"options": told} if told else {}),
    )
    x, lengths = (None, None) if options.input is None else read_series(options.input, options.key)
    found = diagnose(cell, x, lengths=lengths, fmt=options.fmt, samples=options.samples)
    print(found.summary())
    written = []
    if options.html is not None:
        written.append(found.to_html(options.html))
    if options.json is not None:
        written.append(found.to_json(options.json))
    if written:
        print("\nwritten:", *(f"  {path}" for path in written), sep="\n")
    return DONE


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value read as true, false, a number or text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"--option must be NAME=VALUE; got {text!r}.")
    words: dict[str, Any] = {"true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    return name, int(value) if value.lstrip("-").isdigit() else value


def _list(options: argparse.Namespace) -> int:
    from gradprop.weights.files import list_cells

    found = list_cells(options.file)
    if not len(found.prefix):
        others = ", ".join(found.others[:8])
        raise ValueError(f"no recurrent layer was found in {options.file.name!r}; it has {others}.")
    print(found.to_frame().to_string(index=False))
    if found.others:
        print("\nother arrays:", ", ".join(found.others))
    return DONE


def _info(options: argparse.Namespace) -> int:
    from gradprop._kernels.jit import cache_folder

    del options  # there are none
    facts = describe()
    packages = facts.pop("packages")
    for name, value in {**facts, **packages}.items():
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            text = (
                ", ".join(f"{k} {v}" for k, v in part.items()) if isinstance(part, dict) else part
            )
            print(f"{name:20} {text}")
    folder = cache_folder("products")
    where = "none can be written: every process compiles anew" if folder is None else folder
    print(f"{'compiled code in':20} {Path(where).parent if folder else where}")
    return DONE


def _warmup(options: argparse.Namespace) -> int:
    import numpy as np

    from gradprop.cells.gru import GRU
    from gradprop.cells.lstm import LSTM
    from gradprop.cells.rnn import RNN
    from gradprop.diagnosis.run import diagnose
    from gradprop.linearise import linearise
    from gradprop.lyapunov.spectrum import lyapunov_spectrum
    from gradprop.norms import log_norms
    from gradprop.singular import singular_values

    del options  # there are none
    start = time.monotonic()
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        small = {rows: rng.standard_normal((rows * 2, 2)).astype(dtype) for rows in (1, 3, 4)}
        zero = np.zeros(6, dtype=dtype)
        cells = (
            RNN(small[1], small[1]),
            LSTM(small[4], small[4], np.zeros(8, dtype=dtype)),
            GRU(small[3], small[3], zero, zero),
        )
        for cell in cells:
            print(f"{type(cell).__name__}, {np.dtype(dtype).name} ...", flush=True)
            x = rng.standard_normal((80, 2))
            diagnose(cell, x)
            chain = linearise(cell, x)
            log_norms(chain, ord="fro", dtype=np.dtype(dtype).name)
            singular_values(chain, lags=[20])
            lyapunov_spectrum(chain)
    print(f"ready after {time.monotonic() - start:.0f} s; later processes read the cache.")
    return DONE


def _study(options: argparse.Namespace) -> int:
    known = sorted(path.stem for path in STUDIES.glob("*.py") if not path.stem.startswith("_"))
    if not known:
        raise ValueError("the studies come with the source tree, not with the installed package.")
    if options.name not in known:
        raise ValueError(f"unknown study {options.name!r}; known: {', '.join(known)}.")
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(STUDIES / f"{options.name}.py"), *options.flags]
    return subprocess.run(command, env=environment).returncode
