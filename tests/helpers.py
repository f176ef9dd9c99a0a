"""Where test data lives, and the one law by which tests set tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

ROOT = Path(__file__).resolve().parents[1]
ORACLES = ROOT / "tests" / "oracles"
FLIPFLOP = ROOT / "studies" / "data" / "weights" / "flipflop_rnn8.npz"


def tolerance(dtype: DTypeLike, n: int, lag: int, c: float = 10.0) -> float:
    """Return c·n·lag·eps: relative error of a product of `lag` n × n factors, in nats for its log.

    Each of the `lag` products adds at most about n·eps relative to the norms at hand. The constant
    is stated by the test and never exceeds 10, so that it cannot be fitted to what came out.
    """
    if not 0 < c <= 10:
        raise ValueError(f"`c` must lie in (0, 10]; got {c}.")
    return c * max(n, 1) * max(lag, 1) * float(np.finfo(np.dtype(dtype)).eps)


def layouts(value: ArrayLike) -> dict[str, NDArray[Any]]:
    """The same numbers in every memory layout that an array can come in."""
    plain = np.array(value)
    spread = np.full([3 * size for size in plain.shape], 7, dtype=plain.dtype)
    every_third = spread[tuple(slice(1, None, 3) for _ in plain.shape)]
    every_third[...] = plain
    backwards = tuple(slice(None, None, -1) for _ in plain.shape)
    read_only = plain.copy()
    read_only.flags.writeable = False
    return {
        "C": plain,
        "Fortran": np.asfortranarray(plain),
        "strided": every_third,
        "backwards": plain[backwards].copy()[backwards],
        "read-only": read_only,
        "byte-swapped": plain.astype(plain.dtype.newbyteorder()),
    }


def same(a: ArrayLike, b: ArrayLike) -> bool:
    """Bit by bit, nan equal to nan."""
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")
