"""One SQLite file per study: every finished point, checked on writing and on reading.

The process that drives a study is the file's only writer and holds it locked until it closes it;
results of workers travel to the driver. Each record bears a checksum over everything it says, so
that a damaged file can cost time but never give a wrong value. Files on network disks are not
supported: locks do not hold there.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gradprop._files import read_csv as read_csv
from gradprop._storefile import (
    COLUMNS,
    PUT,
    Record,
    StoreBusyError,
    StoreError,
    busy_text,
    checked,
    connect,
    open_or_fault,
    open_read_only,
    set_aside,
    sound_records,
)

__all__ = ["Record", "Store", "StoreBusyError", "StoreError", "read_csv"]

_LOG = logging.getLogger("gradprop")
_SAME_RUN = "sweep = ? AND settings = ? AND code = ?"
_MOST_KEYS = 900  # in one look-up: SQLite before 3.32 takes 999 arguments
_OPEN: set[Path] = set()


class Store:
    """The records of one study, in one SQLite file that this process alone may use.

    A point has one record for each settings hash; computing it again with newer code replaces it.
    Opening checks the whole file: its header, structure and every checksum. A file that fails is
    renamed, what is sound in it is copied to a new one, and the log
    (``logging.getLogger("gradprop")``, on stderr by default) says so.

    Parameters
    ----------
    path : str or path-like, default: in memory
        Created if absent, but not its folder.
    read_only : bool, default: False
        Change nothing: the file must be there and sound, and several processes may read it.

    Raises
    ------
    StoreBusyError
        Another driver has the file open.
    StoreError
        The file cannot be read or written; for reading only, it is absent or damaged.

    Notes
    -----
    Opening reads everything once, about 1 s per 200 MB. A write is on disk when :meth:`put`
    returns: a kill or a power cut loses at most the records of the call in hand.

    Examples
    --------
    >>> with Store() as store:
    ...     stored = store.put([Record("main", "settings", '{"rho":1}', "1.0", b"payload")])
    ...     store.finished("main", "settings", "1.0")
    {'{"rho":1}'}
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, read_only: bool = False
    ) -> None:
        self.path = None if path is None else Path(path).resolve()
        if self.path is None:
            self._connection = connect(":memory:")
            return
        if self.path in _OPEN:
            raise StoreBusyError(busy_text(self.path))
        # Noted before opening: closing a second handle of a file drops the lock of the first.
        _OPEN.add(self.path)
        try:
            opened = open_read_only(self.path) if read_only else open_or_fault(self.path)
            self._connection = self._replaced(opened) if isinstance(opened, str) else opened
        except BaseException:
            _OPEN.discard(self.path)
            raise

    def _replaced(self, fault: str) -> sqlite3.Connection:
        """Set a faulty file aside and start a new one with its sound records."""
        assert self.path is not None
        aside = set_aside(self.path)
        self._connection = connect(self.path)
        n_kept = self.put(sound_records(aside))
        _LOG.warning(
            "The store %s was damaged or no store of this version (%s). It is kept as %s; %d sound "
            "records were taken over, the others are computed again.",
            self.path,
            fault,
            aside.name,
            n_kept,
        )
        return self._connection

    def put(self, records: Iterable[Record]) -> int:
        """Write records in one transaction: all of them are kept, or none.

        Parameters
        ----------
        records : iterable of Record
            A record replaces the one of the same sweep, settings and key.

        Returns
        -------
        int
            How many were written.

        Raises
        ------
        StoreError
            The disk is full or the file lost its permission; earlier records are intact.
        """
        before = self._connection.total_changes
        try:
            with self._connection:
                self._connection.executemany(PUT, (record.row() for record in records))
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot write to {self._name} ({error}): free some space or mend its permissions "
                "and run the same command again. Everything finished before is kept."
            ) from error
        return self._connection.total_changes - before

    def finished(self, sweep: str, settings: str, code: str) -> set[str]:
        """Keys of the points that were computed with these settings by this code.

        Parameters
        ----------
        sweep, settings, code : str
            As in :class:`Record`.

        Returns
        -------
        set of str
            All at once: for millions, ask :meth:`states` about some at a time.
        """
        query = f"SELECT key FROM record WHERE {_SAME_RUN} AND failed = 0"
        return {key for (key,) in self._rows(query, sweep, settings, code)}

    def holds(self, sweep: str, settings: str, code: str) -> bool:
        """Whether there is any record of these settings and this code.

        Parameters
        ----------
        sweep, settings, code : str
            As in :class:`Record`.
        """
        query = f"SELECT 1 FROM record WHERE {_SAME_RUN} LIMIT 1"
        return any(True for _ in self._rows(query, sweep, settings, code))

    def states(self, sweep: str, settings: str, code: str, keys: Sequence[str]) -> dict[str, bool]:
        """Which of some points have a record of these settings and this code, and which failed.

        Parameters
        ----------
        sweep, settings, code : str
            As in :class:`Record`.
        keys : sequence of str

        Returns
        -------
        dict of str to bool
            Key to whether the point failed; those without a record are left out.
        """
        return dict(self._some("key, failed", (sweep, settings, code), keys))

    def find(
        self, sweep: str, settings: str, code: str, keys: Sequence[str]
    ) -> Generator[Record, None, None]:
        """The records of some points, each after its checksum was compared, in any order.

        Parameters
        ----------
        sweep, settings, code : str
            As in :class:`Record`.
        keys : sequence of str

        Yields
        ------
        Record

        Raises
        ------
        StoreError
            A record is absent or damaged.
        """
        wanted = set(keys)
        for row in self._some(COLUMNS, (sweep, settings, code), keys):
            if (record := checked(row)) is None or record.key not in wanted:
                raise self._lost(row[2])
            wanted.discard(record.key)
            yield record
        if wanted:
            raise self._lost(min(wanted))

    def _lost(self, key: str) -> StoreError:
        return StoreError(
            f"{self._name} was damaged while in use: the record of {key} is lost. Run the same "
            "command again; what is sound is kept."
        )

    def _some(
        self, columns: str, run: tuple[str, str, str], keys: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(keys), _MOST_KEYS):
            some = keys[start : start + _MOST_KEYS]
            marks = ", ".join("?" * len(some))
            query = f"SELECT {columns} FROM record WHERE {_SAME_RUN} AND key IN ({marks})"
            yield from self._rows(query, *run, *some)

    def records(self, sweep: str | None = None) -> Generator[Record, None, None]:
        """All records, checked again, in the order in which they were first written.

        Parameters
        ----------
        sweep : str, default: all
            Of this sweep alone.

        Yields
        ------
        Record

        Raises
        ------
        StoreError
            A record was damaged after the file was opened.
        """
        query = f"SELECT {COLUMNS} FROM record WHERE ?1 = '' OR sweep = ?1 ORDER BY rowid"
        for row in self._rows(query, sweep or ""):
            if (record := checked(row)) is None:
                raise StoreError(f"{self._name} was damaged while in use; open it again.")
            yield record

    def record(self, sweep: str, settings: str, key: str) -> Record | None:
        """One record, finished or failed; None if there is none or it is damaged.

        Parameters
        ----------
        sweep, settings, key : str
            As in :class:`Record`.

        Returns
        -------
        Record or None
        """
        query = f"SELECT {COLUMNS} FROM record WHERE sweep = ? AND settings = ? AND key = ?"
        found = next(map(checked, self._rows(query, sweep, settings, key)), None)
        if found is None or (found.sweep, found.settings, found.key) != (sweep, settings, key):
            return None
        return found

    def _rows(self, query: str, *arguments: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, arguments)
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot read {self._name} ({error}): run the same command again, which checks the "
                "file and keeps what is sound."
            ) from error

    @property
    def _name(self) -> str:
        return "the store in memory" if self.path is None else f"the store {self.path}"

    def close(self) -> None:
        """Unlock the file and let it go."""
        self._connection.close()
        if self.path is not None:
            _OPEN.discard(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
