"""Joining stores: sound records of some files into one, without ever choosing between values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from gradprop._storefile import Record, StoreBusyError, StoreError, sound_records
from gradprop.store import Store


class StoresDifferError(StoreError):
    """Two stores hold different values of one point."""


def merge_store(into: Store, path: Path, codes: Collection[str] | None = None) -> tuple[int, str]:
    """Take over the records of a file, of some codes alone or of all.

    A finished record replaces a failed one, and one of another code. Two values of the same point,
    settings and code that differ are refused: nothing of the file is taken over then.

    Returns how many records were taken, and what is wrong with the file ("" if nothing is; its
    sound records are taken).
    """
    try:
        with Store(path, read_only=True) as other, closing(other.records()) as records:
            return _merged(into, path, records, codes), ""
    except (StoreBusyError, StoresDifferError):
        raise
    except StoreError as error:
        if not path.is_file():
            raise
        return _merged(into, path, sound_records(path), codes), str(error)


def _merged(
    into: Store, path: Path, records: Iterator[Record], codes: Collection[str] | None
) -> int:
    """One transaction: an error takes everything back."""
    wanted = (record for record in records if codes is None or record.code in codes)
    return into.put(record for record in wanted if _is_new(into, path, record))


def _is_new(into: Store, path: Path, record: Record) -> bool:
    known = into.record(record.sweep, record.settings, record.key)
    if known is None or known.code != record.code:
        return known is None or known.failed or not record.failed
    if known.failed or record.failed:
        return known.failed and not record.failed
    if known.payload != record.payload:
        raise StoresDifferError(
            f"values of {record.sweep} at {record.key} differ between {path} and {into.path}, "
            "though the same code computed them: find out which machine is wrong, delete its file "
            "and compute it again. Nothing was taken from this file."
        )
    return False
