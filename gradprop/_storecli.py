"""The commands ``gradprop store check|list|merge|export``: what is in the working records."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from gradprop._gather import Columns
from gradprop._points import CHUNK
from gradprop._records import Schema, schema, schema_difference
from gradprop._storefile import sound_records
from gradprop._storemerge import merge_store
from gradprop._sweepresult import SweepResult
from gradprop.store import Record, Store, StoreBusyError, StoreError

_DONE, _FAILED = 0, 1
_SHORT = 12  # digits of a settings hash that are shown


def add_store_commands(commands: Any) -> None:
    """Add ``store`` and its commands to the subparsers of a command line."""
    text = "check, list, merge and export the working records of studies"
    parser = commands.add_parser("store", help=text, description=f"{text.capitalize()}.")
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    check = _add(inner, "check", _check, "say whether every record can be trusted; change nothing")
    check.add_argument("files", type=Path, nargs="+", metavar="FILE")
    listing = _add(inner, "list", _list, "count records by sweep, settings and code")
    listing.add_argument("file", type=Path, metavar="FILE")
    listing.add_argument("--failed", action="store_true", help="show the points that failed")
    merge = _add(inner, "merge", _merge, "take the sound records of other files over into one")
    merge.add_argument("into", type=Path, metavar="INTO", help="created if absent")
    merge.add_argument("files", type=Path, nargs="+", metavar="FILE")
    export = _add(inner, "export", _export, "write the finished points of one sweep as a table")
    export.add_argument("file", type=Path, metavar="FILE")
    export.add_argument("out", type=Path, metavar="OUT", help=".csv (numbers) or .npz (all)")
    export.add_argument("--sweep", metavar="NAME", help="default: the only one")
    export.add_argument("--settings", default="", metavar="HASH", help="or its first digits")
    export.add_argument("--code", default="", metavar="CODE", help="or its first characters")


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    parser.set_defaults(run=lambda options: _said(run, options))
    return parser


def _said(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    try:
        return run(options)
    except StoreError as error:
        print(f"gradprop: {error}", file=sys.stderr)
        return _FAILED


def _check(options: argparse.Namespace) -> int:
    n_faulty = 0
    for path in options.files:
        try:
            with Store(path, read_only=True) as store:
                n_failed = sum(record.failed for record in store.records())
                n_all = sum(1 for _ in store.records())
            print(f"{path}: sound, {n_all - n_failed} finished points, {n_failed} failed")
        except StoreBusyError:
            raise
        except StoreError as error:
            if not path.is_file():
                raise
            n_faulty += 1
            n_sound = sum(1 for _ in sound_records(path))
            print(f"{path}: {error} {n_sound} records are sound.")
    if n_faulty:
        print("The next run of the study keeps the sound records and computes the others again.")
    return _FAILED if n_faulty else _DONE


def _list(options: argparse.Namespace) -> int:
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    with Store(options.file, read_only=True) as store:
        for record in store.records():
            kind = (record.sweep, record.settings[:_SHORT], record.code)
            count = counts.setdefault(kind, Counter())
            count["failed" if record.failed else "finished"] += 1
            count["bytes"] += len(record.payload)
        for kind, count in sorted(counts.items()):
            numbers = ", ".join(f"{count[what]} {what}" for what in ("finished", "failed", "bytes"))
            print(f"{kind[0]}  settings {kind[1]}  code {kind[2]}: {numbers}")
        for record in store.records() if options.failed else ():
            if record.failed:
                text = record.payload.decode(errors="replace")
                print(f"{record.sweep} {record.key}: {text}")
    return _DONE


def _merge(options: argparse.Namespace) -> int:
    faults = []
    with Store(options.into) as store:
        for path in options.files:
            n_taken, fault = merge_store(store, path)
            print(f"{path}: {n_taken} records taken over")
            faults += [fault] if fault else []
    for fault in faults:
        print(f"gradprop: {fault} Its sound records were taken.", file=sys.stderr)
    return _FAILED if faults else _DONE


def _export(options: argparse.Namespace) -> int:
    from gradprop._files import write_csv, write_npz

    if options.out.suffix not in (".csv", ".npz"):
        raise ValueError(f"OUT must end in .csv or .npz; got {options.out.name!r}.")
    with Store(options.file, read_only=True) as store:
        n_points = _checked_count(_asked_for(store, options))
        points, values = Columns(n_points), Columns(n_points)
        with closing(_asked_for(store, options)) as records:
            name = _filled(points, values, records)
    fields = [*sorted(points.arrays.keys() - {"seed"}), "seed"]
    order = np.lexsort([points.arrays[field] for field in reversed(fields)])
    for arrays in (points.arrays, values.arrays):
        for field in arrays:
            arrays[field] = arrays[field][order]
    ordered = {field: points.arrays[field] for field in fields}
    result = SweepResult(name, ordered, dict(sorted(values.arrays.items())))
    if options.out.suffix == ".csv":
        write_csv(options.out, result.scalars())
    else:
        write_npz(options.out, {**result.points, **result.values})
    print(f"{options.out}: {len(result)} points of {result.name}")
    return _DONE


def _asked_for(store: Store, options: argparse.Namespace) -> Generator[Record, None, None]:
    for record in store.records(options.sweep):
        if (
            not record.failed
            and record.settings.startswith(options.settings)
            and record.code.startswith(options.code)
        ):
            yield record


def _checked_count(records: Iterable[Record]) -> int:
    """How many there are; ValueError if there are none, or they are not of one kind."""
    number, found, difference = 0, [set[str](), set[str](), set[str]()], ""
    first: Schema | None = None
    for record in records:
        number += 1
        for seen, text in zip(found, (record.sweep, record.settings, record.code), strict=True):
            seen.add(text)
        own = schema(record.payload)
        first = first or own
        difference = difference or schema_difference(first, own)
    if not number:
        raise ValueError("no finished points are like that; see: gradprop store list.")
    for flag, seen in zip(("sweep", "settings", "code"), found, strict=True):
        if len(seen) > 1:
            shown = ", ".join(text[:40] for text in sorted(seen))
            raise ValueError(f"there are several; choose with --{flag}: {shown}.")
    if difference:
        raise ValueError(f"the records cannot be one table: {difference}.")
    return number


def _filled(points: Columns, values: Columns, records: Iterator[Record]) -> str:
    """Put the points and values of records of one kind into rows, some at a time."""
    start, name = 0, ""
    while some := list(islice(records, CHUNK)):
        name, rows = some[0].sweep, range(start, start + len(some))
        own = [json.loads(record.key) for record in some]
        for field in own[0]:
            points.put(field, rows, np.array([point[field] for point in own]))
        values.put_payloads(rows, [record.payload for record in some])
        start += len(some)
    return name
