"""Series from files: plain arrays and columns of numbers, with what is wrong said in steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._files import read_table

Array = NDArray[Any]


def read_series(path: Path, key: str | None = None) -> tuple[Array, Array | None]:
    """Read the series of a file, and the lengths stored beside it.

    Parameters
    ----------
    path : Path
        ``.npy``; ``.npz`` (`key`, else "x", else its only array; "lengths" where it is there);
        ``.csv`` (a row per step, a column per input, a heading or none).
    key : str, optional
        Name of the array in an ``.npz``.

    Returns
    -------
    x : array, shape (B, T, d), (T, d) or (T,)
    lengths : array or None

    Raises
    ------
    ValueError, OSError
        Another ending, an array that is not there, text among the numbers, a gap (where it is).
    """
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"a series must be a .npy, .npz or .csv file; got {path.name!r}.")
    x, lengths = readers[path.suffix.lower()](path, key)
    if x.dtype.kind not in "biuf":
        raise ValueError(f"the series in {path.name!r} must hold real numbers; it is {x.dtype}.")
    if lengths is None:
        _refuse_gaps(x, path)
    return x, lengths


def _refuse_gaps(x: Array, path: Path) -> None:
    bad = ~np.isfinite(x)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    step = index[1] if x.ndim == 3 else index[0]
    where = f" of sequence {index[0]}" if x.ndim == 3 else ""
    column = f", column {index[-1] + 1}" if x.ndim > 1 else ""
    raise ValueError(
        f"the series in {path.name!r} has {int(bad.sum())} gaps (nan or inf), the first at step "
        f"{step + 1}{column}{where}: fill them as suits the data, or cut the series there."
    )


def _read_npy(path: Path, key: str | None) -> tuple[Array, None]:
    del key  # there is one array only
    try:
        return np.asarray(np.load(path, allow_pickle=False)), None
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path.name!r} is no .npy file of numbers: {error}") from error


def _read_npz(path: Path, key: str | None) -> tuple[Array, Array | None]:
    import zipfile

    try:
        stored = np.load(path, allow_pickle=False)
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{path.name!r} is no .npz file of numbers: {error}") from error
    if isinstance(stored, np.ndarray):
        return stored, None
    with stored:
        names = list(stored.files)
        wanted = key or ("x" if "x" in names else names[0] if len(names) == 1 else None)
        if wanted not in names:
            problem = f"has no array {wanted!r}" if wanted else "has several arrays"
            raise ValueError(f"{path.name!r} {problem}: say --key, one of {', '.join(names)}.")
        return stored[wanted], stored["lengths"] if "lengths" in names else None


def _read_csv(path: Path, key: str | None) -> tuple[Array, None]:
    del key  # all columns are read
    import pandas as pd

    try:
        first = read_table(path, header=None, nrows=1)
        heading = 0 if any(isinstance(cell, str) for cell in first.iloc[0]) else None
        table = read_table(path, header=heading)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name!r} is no table of numbers: {error}") from error
    texts = [str(name) for name, dtype in table.dtypes.items() if dtype.kind not in "biuf"]
    if texts:
        raise ValueError(
            f"{path.name!r} has text in column {', '.join(texts)}: keep the columns of numbers, "
            "parted by commas, with decimal points."
        )
    return table.to_numpy(dtype=np.float64), None
