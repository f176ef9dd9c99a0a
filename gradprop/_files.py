"""Canonical JSON, and files that are whole or absent and hold the same bytes for the same data."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

_LARGEST_EXACT = 2.0**53
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip entry can bear
_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)
_ROWS = 2**13  # lines of a table that are text at a time
_PIECE = 2**20  # bytes of an array that are compressed at a time


def plain(value: Any) -> Any:
    """Return `value` made of dict, list, str, bool, int, float and None only.

    Floats that are whole numbers become integers, as in RFC 8785, so that 1 and 1.0 are one key.
    An array stands as its dtype, shape and hash. Raises ValueError for nan and infinities,
    TypeError for other objects.
    """
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": array_digest(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"nan and infinities have no canonical form; got {value}.")
        return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    raise TypeError(f"a {type(value).__name__} has no canonical form.")


def canonical_json(value: Any) -> str:
    """One text for equal values: keys sorted, no spaces, ASCII, shortest floats."""
    return _CANONICAL.encode(plain(value))


def digest(text: str) -> str:
    """Return the sha256 of a text in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def array_digest(array: NDArray[Any]) -> str:
    """Return the sha256 of an array's dtype, shape and values (not of a file that holds it)."""
    if array.dtype.hasobject:
        raise TypeError("an array of objects has no canonical form.")
    hashed = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    if array.nbytes:
        # The bytes as they lie, for a copy would double the memory of a large array.
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def data_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the sha256 of named arrays, whatever their order and the file format."""
    return digest(canonical_json({name: array_digest(value) for name, value in arrays.items()}))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that is, at any moment, the old one or the new one, never a part of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a file of known content, whole or not at all."""
    with replacing(path) as file:
        file.write(content)
    return path


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Write arrays as ``.npz``: sorted by name, no times, no pickle, atomically.

    Beside the arrays it needs a few MB, whatever their size.
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as member:
                _write_npy(member, np.asanyarray(arrays[name]))
    return path


def _write_npy(file: IO[bytes], array: NDArray[Any]) -> None:
    """What numpy's ``write_array`` writes, without its buffers of 16 MiB."""
    if array.dtype.hasobject:
        raise ValueError("Object arrays cannot be saved.")
    about = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, about)
    flat = (array.T if about["fortran_order"] else array).reshape(-1)
    step = max(_PIECE // max(array.itemsize, 1), 1)
    for start in range(0, flat.size, step):
        file.write(flat[start : start + step].tobytes())


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read every array of an ``.npz`` file; ValueError if it is damaged or no such file."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged or not an npz file ({error}).") from error


def write_json(path: Path, value: Any) -> Path:
    """Write a value as indented JSON with sorted keys, atomically."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return write_atomically(path, (text + "\n").encode())


def write_csv(path: Path, columns: Mapping[str, NDArray[Any]]) -> Path:
    """Write one-dimensional columns of equal length, exactly and atomically.

    Floats are the shortest digits that read back to the same number of their own dtype; lines end
    with a line feed on every system.
    """
    n_rows = max(map(len, columns.values()), default=0)
    with replacing(path) as file:
        file.write(_lines([columns]))
        for start in range(0, n_rows, _ROWS):
            cells = [_cells(column[start : start + _ROWS]) for column in columns.values()]
            file.write(_lines(zip(*cells, strict=True)))
    return path


def _lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind == "f" and column.dtype.itemsize < 8:
        return [str(value) for value in column]
    return list(column.tolist())


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    r"""Read a csv file of this package with every float exactly as it was written.

    The default of pandas before 3.1 changes the last bits of a third of all numbers; from 3.1 on
    it is exact, and the option that made it so is deprecated. No other place reads csv.

    Parameters
    ----------
    path : str or path-like
        A file written by a study.

    Returns
    -------
    pandas.DataFrame
        ``nan``, ``inf`` and ``-inf`` are the floats; any other text is kept as text.

    Examples
    --------
    >>> import io
    >>> float(read_csv(io.StringIO("rho\n0.1\n"))["rho"][0])
    0.1
    """
    return read_table(path, keep_default_na=False, na_values=["nan"], encoding="utf-8")


def read_table(path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Call pandas.read_csv so that every float is read exactly, whatever the version of pandas."""
    import pandas as pd

    release = tuple(int(part) for part in pd.__version__.split(".")[:2])
    exact: dict[str, Any] = {} if release >= (3, 1) else {"float_precision": "round_trip"}
    frame: pd.DataFrame = pd.read_csv(path, **options, **exact)
    return frame
