"""The file below a store: opened and locked, checked as a whole, saved from when damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = b"SQLite format 3\x00"
APPLICATION = 0x67726470  # "grdp": marks a file as a store of this package
FORMAT = 1
TABLE = (
    "CREATE TABLE record (sweep TEXT NOT NULL, settings TEXT NOT NULL, key TEXT NOT NULL, "
    "code TEXT NOT NULL, failed INTEGER NOT NULL, payload BLOB NOT NULL, checksum BLOB NOT NULL, "
    "PRIMARY KEY (sweep, settings, key))"
)
COLUMNS = "sweep, settings, key, code, failed, payload, checksum"
PUT = (
    f"INSERT INTO record ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (sweep, settings, key) DO UPDATE SET code = excluded.code, "
    "failed = excluded.failed, payload = excluded.payload, checksum = excluded.checksum"
)
_PAGE = 4096
_SMALLEST_ROW = 128
_NOT_DAMAGE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_NOMEM,
}


class StoreError(RuntimeError):
    """The store cannot be used; the text says why and what to do. Finished records are kept."""


class StoreBusyError(StoreError):
    """Another driver has the store open."""


@dataclass(frozen=True)
class Record:
    """One finished (or failed) point of a sweep.

    Attributes
    ----------
    sweep, settings, key : str
        Name of the sweep, hash of its settings, canonical JSON of the point.
    code : str
        Library version and hash of the code that computed it.
    payload : bytes
        Encoded values, or the text of the error of a failed point.
    failed : bool
    """

    sweep: str
    settings: str
    key: str
    code: str
    payload: bytes
    failed: bool = False

    def checksum(self) -> bytes:
        """Hash over every part, lengths included, so that no part can pass for another."""
        hashed = hashlib.sha256()
        texts = (self.sweep, self.settings, self.key, self.code, str(int(self.failed)))
        for part in (*(text.encode() for text in texts), self.payload):
            hashed.update(len(part).to_bytes(8, "little"))
            hashed.update(part)
        return hashed.digest()

    def row(self) -> tuple[str, str, str, str, int, bytes, bytes]:
        """The values of ``COLUMNS``."""
        texts = (self.sweep, self.settings, self.key, self.code)
        return (*texts, int(self.failed), self.payload, self.checksum())


def checked(row: tuple[Any, ...]) -> Record | None:
    """Return the record of a row, or None where a type or the checksum is wrong."""
    sweep, settings, key, code, failed, payload, checksum = row
    if not all(isinstance(text, str) for text in (sweep, settings, key, code)):
        return None
    if failed not in (0, 1) or not isinstance(payload, bytes) or not isinstance(checksum, bytes):
        return None
    record = Record(sweep, settings, key, code, payload, bool(failed))
    return record if record.checksum() == checksum else None


def busy_text(path: Path | str) -> str:
    """What to say when another driver has the file."""
    return (
        f"the store {path} is in use by another run: wait until it has ended, or give this one a "
        "folder of its own (--out)."
    )


def connect(path: Path | str) -> sqlite3.Connection:
    """Connect, lock the file for as long as the connection lives, make the table if it is new."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=0.5, isolation_level="IMMEDIATE")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute(TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.commit()
        return connection
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise StoreBusyError(busy_text(path)) from error
        if code in _NOT_DAMAGE or (code == sqlite3.SQLITE_READONLY and not _writable(Path(path))):
            raise StoreError(_unusable(path, str(error))) from error
        raise


def _unusable(path: Path | str, why: str) -> str:
    return (
        f"cannot use the store {path} ({why}): is its folder writable, on a local disk and not "
        "full? What it holds is kept."
    )


def _writable(path: Path) -> bool:
    """Whether the system lets us write; if so, a file that calls itself read-only is damaged."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def open_or_fault(path: Path) -> sqlite3.Connection | str:
    """Return an open, locked and wholly checked file, or say what is wrong with it."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(MAGIC))
    except FileNotFoundError:
        head = b""
    except OSError as error:
        raise StoreError(f"cannot read the store {path} ({error.strerror}).") from error
    if path.exists() and not _writable(path):
        raise StoreError(_unusable(path, "no permission to write"))
    if head not in (b"", MAGIC):
        return "its first bytes are not those of a SQLite file"
    connection = None
    try:
        connection = connect(path)
        fault = _fault(connection)
    except sqlite3.Error as error:
        fault = str(error)
    if connection is not None and not fault:
        return connection
    if connection is not None:
        connection.close()
    return fault


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a sound file without locking or changing it; StoreError if it is not there or faulty."""
    if not path.is_file():
        raise StoreError(f"there is no store {path}.")
    connection = None
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=0.5, uri=True)
        connection.execute("PRAGMA trusted_schema = OFF")
        fault = _fault(connection)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise StoreBusyError(busy_text(path)) from error
        fault = str(error)
    if fault:
        if connection is not None:
            connection.close()
        raise StoreError(f"cannot read the store {path}: {fault}.")
    assert connection is not None
    return connection


def _fault(connection: sqlite3.Connection) -> str:
    """Say what is wrong with an open file; empty if header, structure and checksums are right."""
    marks = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    ]
    tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master") if sql]
    if marks != [APPLICATION, FORMAT] or tables != [TABLE]:
        return "its header or tables are not those of this version's stores"
    state = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if state != "ok":
        return f"its structure is broken: {' '.join(str(state).split())}"
    rows = connection.execute(f"SELECT {COLUMNS} FROM record")
    n_bad = sum(checked(row) is None for row in rows)
    return f"{n_bad} of its checksums are wrong" if n_bad else ""


def set_aside(path: Path) -> Path:
    """Rename a file (and its journal) to the first free name beside it."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.set-aside-{number}{path.suffix}")).exists():
        number += 1
    try:
        path.rename(aside)
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists():
            journal.rename(aside.with_name(f"{aside.name}-journal"))
    except OSError as error:
        raise StoreError(
            f"the store {path} is damaged and cannot be renamed ({error.strerror})."
        ) from error
    return aside


def sound_records(path: Path) -> Iterator[Record]:
    """Every record of a damaged file that can still be read and whose checksum fits.

    The first page says the same in every store, so a fresh one stands in for it; the rest is
    looked up record by record, which loses only those on damaged pages.
    """
    n_pages = path.stat().st_size // _PAGE
    if n_pages < 3:
        return
    copy = path.with_name(f".{path.name}.copy")
    try:
        shutil.copyfile(path, copy)
        with open(copy, "r+b") as file:
            file.write(_first_page(n_pages))
        connection = sqlite3.connect(copy)
        try:
            yield from _readable(connection, n_pages * _PAGE // _SMALLEST_ROW)
        finally:
            connection.close()
    finally:
        copy.unlink(missing_ok=True)


def _first_page(n_pages: int) -> bytes:
    """First page of a store with that many pages: header and table, bytes 28-31 the page count."""
    fresh = connect(":memory:")
    try:
        page = bytes(fresh.serialize()[:_PAGE])
    finally:
        fresh.close()
    return page[:28] + n_pages.to_bytes(4, "big") + page[32:]


def _readable(connection: sqlite3.Connection, most: int) -> Iterator[Record]:
    try:
        query = "SELECT max(rowid) FROM record NOT INDEXED"
        last = min(connection.execute(query).fetchone()[0] or 0, most)
    except sqlite3.Error:
        last = most
    query = f"SELECT {COLUMNS} FROM record NOT INDEXED WHERE rowid = ?"
    for rowid in range(1, last + 1):
        try:
            row = connection.execute(query, (rowid,)).fetchone()
        except sqlite3.Error:
            continue
        if row and (record := checked(row)):
            yield record
