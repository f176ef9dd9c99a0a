"""Plain products in a low precision, one rounding at a time, and the events they run into."""

from __future__ import annotations

import math

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
    return type(value)(0) if flush and abs(value) < np.finfo(value).smallest_normal else value


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
    info = np.finfo(dtype)
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
        size, finite = np.abs(P), bool(np.isfinite(P).all())
        largest = size.max()
        holds = {
            "eps": finite and np.linalg.norm(P.astype(float), 2) < float(info.eps) * first_norm,
            "subnormal_any": bool(((size > 0) & (size < info.smallest_normal)).any()),
            "subnormal_all": bool(0 < largest < info.smallest_normal),
            "zero": not size.any(),
            "overflow": bool(np.isinf(P).any()),
            "nan": bool(np.isnan(P).any()),
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
    info, values = np.finfo(dtype), np.asarray(log_norm, float)
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
