"""Speed against peers: every row of the README's table by one command, about 12 minutes.

Norms of products against NumPy, PyTorch and JAX; Lyapunov spectra against QR at every step and
against packages; gradients through time; singular values in matrix products; import, first calls
and the first study. Candidates of a case run interleaved in shuffled order, several rounds; medians
and quartiles of CPU time on one thread (wall time where said) and the differences of their numbers
are kept. Compilation is not timed. Rows run in processes of their own, whose libraries all have the
same number of threads. What is asked stands in _asked.py.

Needs ``pip install -e ".[bench]"``; lyapynov and clvlib are measured where installed. Nothing else
should run on the machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import _processes
import _speed_table
from _cases import OURS, Case, faster, from_dict, line, missing

README = _processes.ROOT / "README.md"
ROWS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "norms": ("_rows_products", "norms", (16, 32, 64, 128, 256, 512)),
    "probe": ("_rows_products", "probe", (64, 128, 256)),
    "relu": ("_rows_products", "relu", (64, 128, 256)),
    "threads": ("_rows_products", "alone", (16, 64, 128, 256)),
    "spectrum": ("_rows_exponents", "spectrum", (16, 32, 64, 128, 256)),
    "packaged": ("_rows_exponents", "packaged", (16, 64, 128, 256)),
    "backward": ("_rows_others", "backward", (64, 128, 256)),
    "singular": ("_rows_others", "singular", (64, 128, 256)),
    "import": ("_rows_first_use", "imports", ()),
    "first": ("_rows_first_use", "first_calls", ()),
    "study": ("_rows_first_use", "study", ()),
}
"""Module, function and sizes."""
FRAMEWORKS = (OURS, "numpy", "torch", "jax")
PASSES, N_THREADS = 2, 2


def measured(row: str, chosen: Sequence[int]) -> Iterator[Case]:
    """Cases of a row; rows without sizes start their own processes with the user's threads."""
    module, function, all_sizes = ROWS[row]
    if not all_sizes:
        yield from getattr(importlib.import_module(module), function)()
        return
    sizes = [n for n in all_sizes if not chosen or n in chosen]
    if not sizes:
        return
    if row == "threads":
        yield from two_threads(sizes)
    else:
        yield from _processes.cases(row, sizes)


def two_threads(sizes: Sequence[int]) -> Iterator[Case]:
    """Wall times, one framework to a process, in shuffled order, each of them twice."""
    found: dict[tuple[str, int], dict[str, list[dict[str, float]]]] = {}
    names = [name for name in FRAMEWORKS if name == OURS or _processes.present(name)]
    for _ in range(PASSES):
        random.shuffle(names)
        for name in names:
            for case in _processes.cases("threads", sizes, n_threads=N_THREADS, only=name):
                own = found.setdefault((case.group, case.n), {})
                for candidate, times in case.times.items():
                    own.setdefault(candidate, []).append(times)
    for (group, n), times in sorted(found.items()):
        medians = {name: [one["median"] for one in passes] for name, passes in times.items()}
        details = {"medians of the passes": medians, "threads": N_THREADS}
        if OURS not in times:
            yield missing(group, n, "log_norms has no float32")
        else:
            yield faster(
                group, n, medians, scale=1, unit="ms", clock="wall", details=details
            )  # fmt: skip


def machine() -> dict[str, Any]:
    sys.path.insert(0, str(_processes.ROOT))
    from gradprop.environment import describe

    found = describe()
    for name in _speed_table.PEERS:
        try:
            found["packages"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found["packages"][name] = _speed_table.ABSENT
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    return {**found, "date": now, "load": os.getloadavg()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {','.join(ROWS)}")
    parser.add_argument("--sizes", default="", help="some of the sizes, such as 16,64")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    parser.add_argument("--read", type=Path, help="measure nothing, take the figures of a --json")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    parser.add_argument("--child", choices=list(ROWS), help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.rows = given.rows.split(",")
    given.sizes = [int(n) for n in given.sizes.split(",") if n]
    unknown = [row for row in given.rows if row not in ROWS]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}")
    if given.readme and not given.read and (set(given.rows) != set(ROWS) or given.sizes):
        parser.error("--readme needs all rows and sizes: a table never mixes runs")
    return given


def child(row: str, sizes: Sequence[int], only: str) -> None:
    """Measure in this process and print a case a line."""
    module, function, _ = ROWS[row]
    measure = getattr(importlib.import_module(module), function)
    for case in measure(sizes, only) if only else measure(sizes):
        print(json.dumps(case.as_dict()), flush=True)


def run(rows: Sequence[str], sizes: Sequence[int], path: Path | None) -> dict[str, Any]:
    """Measure, printing as it goes and saving after each row; one that fails is named, left out."""
    found: dict[str, Any] = {"machine": machine(), "cases": [], "failed": {}}
    for row in rows:
        try:
            for case in measured(row, sizes):
                print(line(case), flush=True)
                found["cases"].append(case.as_dict())
        except (RuntimeError, OSError) as error:
            found["failed"][row] = str(error)
            print(f"{row} FAILED: {error}", flush=True)
        if path:
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def main() -> None:
    given = arguments()
    if given.child:
        child(given.child, given.sizes, given.only)
        return
    if given.read:
        found = json.loads(given.read.read_text("utf-8"))
    else:
        found = run(given.rows, given.sizes, given.json)
    cases = [from_dict(case) for case in found["cases"]]
    text = _speed_table.table(cases, found["machine"])
    print(f"\n{text}")
    if given.readme:
        absent = _speed_table.absent(cases)
        if absent:
            raise SystemExit(f"README.md left as it is; not in this run: {', '.join(absent)}.")
        _speed_table.write(README, text)


if __name__ == "__main__":
    main()
