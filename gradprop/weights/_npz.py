"""A strict reader of ``.npz``: nothing unpickled, nothing larger than the file can hold."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEBI = 2**20
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def unpacked_limit(size: int) -> int:
    """Bytes that a file of `size` bytes may unpack to: trained weights compress by far less."""
    return 2 * size + 16 * MEBI


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read every array; ValueError for a damaged file, objects, or one that unpacks to too much."""
    limit = unpacked_limit(os.path.getsize(path))
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            _check_size(sum(entry.file_size for entry in entries), limit)
            return {e.filename.removesuffix(".npy"): _array(e, archive) for e in entries}
    except _RefusedError as refused:
        raise ValueError(f"`path` {os.fspath(path)!r}: {refused}") from None
    except Exception as error:  # a damaged archive makes zipfile and zlib raise nearly anything
        raise ValueError(f"`path` {os.fspath(path)!r} is damaged: {error}.") from error


class _RefusedError(Exception):
    """A file that can be read, but must not."""


def _check_size(unpacked: int, limit: int) -> None:
    if unpacked > limit:
        raise _RefusedError(
            f"it would unpack to {unpacked} bytes, more than the {limit} that its size allows; if "
            "that is meant, re-save it uncompressed with np.savez."
        )


def _array(entry: zipfile.ZipInfo, archive: zipfile.ZipFile) -> NDArray[Any]:
    """One member, whose shape must account for every byte."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _RefusedError(f"{entry.filename!r} is compressed in a way that NumPy never writes.")
    with archive.open(entry) as member:
        # to the declared size and no further; the end is where the checksum is compared
        content = member.read(entry.file_size + 1)
    header = io.BytesIO(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ancient or odd headers, which are checked here
        version = np.lib.format.read_magic(header)
        if version not in _HEADERS:
            raise _RefusedError(
                f"{entry.filename!r} has a format version {version} of named fields."
            )
        shape, fortran, dtype = _HEADERS[version](header)
    if dtype.hasobject:
        raise _RefusedError(
            f"{entry.filename!r} holds Python objects, which this package never unpickles. "
            "Re-save each array by itself: np.savez(path, name=array, ...)."
        )
    data = memoryview(content)[header.tell() :]
    if dtype.kind not in "biufcUS" or dtype.itemsize == 0:
        raise _RefusedError(f"{entry.filename!r} holds no numbers; got dtype {dtype}.")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise _RefusedError(
            f"{entry.filename!r} of shape {shape} and dtype {dtype} needs "
            f"{math.prod(shape) * dtype.itemsize} bytes; got {len(data)}."
        )
    array = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    array.flags.writeable = False
    return array
