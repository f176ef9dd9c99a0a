"""Plain products in a low precision, one rounding at a time, and the events they run into."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from naive import Array, log_norms
from numpy.typing import ArrayLike, DTypeLike, NDArray


def rounded_product(
    A: NDArray, B: NDArray, *, accumulate: DTypeLike | None = None, flush: bool = False
) -> NDArray:
    """A·B in the dtype of A: products and sums rounded one by one in `accumulate`, j ascending.

    `flush` sets every result below the smallest normal number to zero.
    """
    inner = np.dtype(accumulate or A.dtype).type
    out = np.zeros((A.shape[0], B.shape[1]), A.dtype)
    with np.errstate(all="ignore"):
        for i in range(A.shape[0]):
            for c in range(B.shape[1]):
                total = inner(0)
                for j in range(A.shape[1]):
                    term = _flushed(inner(A[i, j]) * inner(B[j, c]), flush)
                    total = _flushed(total + term, flush)
                out[i, c] = _flushed(A.dtype.type(total), flush)
    return out


def _flushed(value: np.floating, flush: bool) -> np.floating:
    tiny = ml_dtypes.finfo(type(value)).smallest_normal
    return type(value)(0) if flush and abs(value) < tiny else value


def exactly_rounded(x: float | Fraction, fmt: Any) -> float:
    """Nearest number of a format by rational arithmetic, ties to even; a zero has no sign."""
    value = abs(Fraction(x))
    exponent = fmt.min_exponent
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - fmt.precision + 1)
    if value < Fraction(2) ** fmt.min_exponent and not fmt.subnormals:
        step = Fraction(2) ** fmt.min_exponent
    nearest = round(value / step) * step
    if nearest > Fraction(fmt.max):
        nearest = math.inf if fmt.infinities else fmt.max
    return math.copysign(float(nearest), x)


def rational_product(A: Array, B: Array, fmt: Any, accumulator: Any) -> Array:
    """A·B in any two formats, each operation exact and then rounded; nothing may be infinite."""
    out = np.zeros((A.shape[0], B.shape[1]))
    for i in range(A.shape[0]):
        for c in range(B.shape[1]):
            total = 0.0
            for a, b in zip(A[i], B[:, c], strict=True):
                term = exactly_rounded(Fraction(a) * Fraction(b), accumulator)
                total = exactly_rounded(Fraction(total) + Fraction(term), accumulator)
            out[i, c] = exactly_rounded(total, fmt)
    return out


def precision_events(
    J: Array,
    dtype: DTypeLike,
    *,
    start: Array | None = None,
    accumulate: DTypeLike | None = None,
    flush: bool = False,
) -> dict[str, int | None]:
    """First lag (from 1) of each event of the plain product J_ℓ ⋯ J_1 · start in `dtype`.

    `start` is I, or (n, p); for a vector carried backwards give the transposed factors, last first.
    """
    info = ml_dtypes.finfo(dtype)
    exact = log_norms(J)
    P = np.array(np.eye(J.shape[-1]) if start is None else start, dtype)
    first_norm = np.linalg.norm(P.astype(float), 2)
    names = ("eps", "subnormal_any", "subnormal_all", "zero", "overflow", "nan", "stuck")
    events: dict[str, int | None] = dict.fromkeys(names)
    for lag in range(1, len(J) + 1):
        before, P = (
            P,
            rounded_product(J[lag - 1].astype(dtype), P, accumulate=accumulate, flush=flush),
        )
        size, finite = np.abs(P.astype(float)), bool(np.isfinite(P.astype(float)).all())
        largest = size.max()
        holds = {
            "eps": finite and np.linalg.norm(P.astype(float), 2) < float(info.eps) * first_norm,
            "subnormal_any": bool(((size > 0) & (size < float(info.smallest_normal))).any()),
            "subnormal_all": bool(0 < largest < float(info.smallest_normal)),
            "zero": not size.any(),
            "overflow": bool(np.isinf(size).any()),
            "nan": bool(np.isnan(size).any()),
            "stuck": finite
            and bool(largest > 0)
            and P.tobytes() == before.tobytes()
            and exact[lag] != exact[lag - 1],
        }
        for name, happened in holds.items():
            if happened and events[name] is None:
                events[name] = lag
    return events


def exact_events(log_norm: ArrayLike, dtype: DTypeLike) -> dict[str, int | None]:
    """First lag at which the exact product (log norms from lag 0) passes each limit of `dtype`."""
    info, values = ml_dtypes.finfo(dtype), np.asarray(log_norm, float)
    lowest = math.log(float(info.smallest_subnormal))
    limits = {
        "eps": values < values[0] + math.log(float(info.eps)),
        "subnormal": values < math.log(float(info.smallest_normal)),
        "below_subnormal": values < lowest,
        "zero": values < lowest - math.log(2),
        "overflow": values > math.log(float(info.max)),
    }
    return {
        name: next((lag for lag in range(1, len(values)) if passed[lag]), None)
        for name, passed in limits.items()
    }
