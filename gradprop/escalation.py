"""Arbitrary precision behind the float64 analyses: balls, so that the answer carries its proof.

The product is formed in ball arithmetic (python-flint), then factored by pivoted Gram-Schmidt,
whose balls enclose the exact factors. A float64 Jacobi finish on the graded factor is accurate to
its own rounding, so that precision is needed only where it was lost. It doubles until every pivot
is known; exact zeros never show themselves that way: the modular rank finds them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float
from gradprop.chain import JacobianChain
from gradprop.graded import finished
from gradprop.measure import LagGrid
from gradprop.modular import Steps, modular_ranks
from gradprop.results import LN2

EPS = float(np.finfo(np.float64).eps)
FIRST_BITS, LAST_BITS = 256, 2**15
ENOUGH = 2.0**-60
"""Largest relative radius of a pivot that counts as known."""


def available() -> bool:
    """Whether python-flint (the extra ``exact``) is installed."""
    return importlib.util.find_spec("flint") is not None


def doubtful_lags(
    chain: JacobianChain, grid: LagGrid, doubtful: NDArray[np.bool_]
) -> Iterator[tuple[int, Steps, dict[int, NDArray[np.intp]]]]:
    """Replicas with doubtful columns (R, L): their factors, and the columns of each true lag.

    Nothing where python-flint is missing. A lag past a sequence's length stands for that length.
    """
    if not available():
        return
    lengths = chain.lengths.ravel()
    for r in np.flatnonzero(doubtful.any(axis=1)):
        lags = np.minimum(grid.unique, lengths[r])
        columns = {
            int(lag): np.flatnonzero((lags == lag) & doubtful[r])
            for lag in np.unique(lags[doubtful[r]])
        }
        yield int(r), Steps(chain, int(r), grid.reverse), columns


class _Ball:
    """A running product in ball arithmetic; matrices that recur are converted once."""

    def __init__(self, n: int, reverse: bool) -> None:
        from flint import arb_mat

        self._n, self._reverse = n, reverse
        self.P = arb_mat(n, n, np.eye(n).ravel().tolist())
        self.exponent = 0
        self._last: Float | None = None
        self._converted: Any = None

    def absorb(self, M: Float, d: Float, a: float, e: int) -> None:
        """P <- J P, or J^T P backwards (J without its power of two, which is kept apart)."""
        from flint import arb, arb_mat

        if self._last is None or not np.may_share_memory(M, self._last):
            rows = M.T if self._reverse else M
            self._converted = arb_mat(self._n, self._n, rows.ravel().tolist())
            self._last = M
        scales = [arb(float(x)) for x in d]
        product = self._converted * self.P if not self._reverse else self.P
        entries = product.entries()
        n = self._n
        scaled = arb_mat(n, n, [scales[k // n] * x for k, x in enumerate(entries)])
        if self._reverse:
            scaled = self._converted * scaled
        self.P = scaled + a * self.P if a else scaled
        self.exponent += e


def exact_log_singular_values(
    steps: Steps, lags: list[int], n: int, bits: int = FIRST_BITS
) -> dict[int, tuple[Float, Float] | None]:
    """Log singular values and their errors at each lag; None where the cap of bits was reached.

    `bits` is the working precision tried first; the spread of the values in bits is a good guess.
    Cost a step and precision: one product of n x n matrices, 2 ms at n = 64 while its entries are
    of one size, 130 ms once they spread over 1300 bits; about n such products at each lag.
    """
    found: dict[int, tuple[Float, Float] | None] = dict.fromkeys(lags)
    ranks = dict.fromkeys(lags, n)
    open_lags, bits, first = sorted(lags), min(max(bits, FIRST_BITS), LAST_BITS), True
    while open_lags and bits <= LAST_BITS:
        for lag, ball in _products(steps, open_lags, n, bits):
            found[lag] = _spectrum_of(ball, n, ranks[lag])
        open_lags = [lag for lag in open_lags if found[lag] is None]
        if first and open_lags:
            ranks.update(modular_ranks(steps, open_lags, n))
        # once more at the first precision: to know the rank may be all that was missing
        bits, first = bits if first else 2 * bits, False
    return found


def exact_log_norm(steps: Steps, lags: list[int], n: int, ord: str) -> dict[int, Float | None]:
    """Ln norm and its error (2,) at each lag, from the product in ball arithmetic."""
    found: dict[int, Float | None] = dict.fromkeys(lags)
    bits, open_lags = FIRST_BITS, sorted(lags)
    while open_lags and bits <= LAST_BITS:
        for lag, ball in _products(steps, open_lags, n, bits):
            found[lag] = _norm_of(ball, n, ord)
        open_lags = [lag for lag in open_lags if found[lag] is None]
        bits *= 2
    if open_lags:
        for lag, rank in modular_ranks(steps, open_lags, n).items():
            found[lag] = np.array([-np.inf, 0.0]) if rank == 0 else None
    return found


def _products(steps: Steps, lags: list[int], n: int, bits: int) -> Iterator[tuple[int, _Ball]]:
    """The product at each lag, in increasing order, at a working precision."""
    from flint import ctx

    wanted = set(lags)
    ball = _Ball(n, steps.reverse)
    with ctx.workprec(bits):
        if 0 in wanted:
            yield 0, ball
        for lag, factor in enumerate(steps, start=1):
            ball.absorb(*factor)
            if lag in wanted:
                yield lag, ball
            if lag == lags[-1]:
                return


def _split(x: Any) -> tuple[float, int]:
    """Midpoint of a ball as mantissa in [1/2, 1) and exponent; (0, 0) for zero and for nan."""
    if not x.is_finite():
        return 0.0, 0
    mantissa, exponent = x.mid().man_exp()
    mantissa = int(mantissa)
    if mantissa == 0:
        return 0.0, 0
    shift = abs(mantissa).bit_length()
    # round to 64 bits first: an integer of any length converts to float only below 2**1024
    drop = max(shift - 64, 0)
    value, extra = math.frexp((abs(mantissa) >> drop) * (1 if mantissa > 0 else -1))
    return value, int(exponent) + drop + extra


def _relative_radius(x: Any) -> float:
    """Radius over the magnitude of the midpoint; inf if the ball holds zero."""
    if not x.is_finite() or x.contains(0):
        return math.inf
    radius, size = _split(x.rad()), _split(x)
    return abs(radius[0] / size[0]) * 2.0 ** min(max(radius[1] - size[1], -1100), 1000)


def _spectrum_of(ball: _Ball, n: int, known: int) -> tuple[Float, Float] | None:
    """Values and errors from a pivoted QR in balls, or None if a pivot is not known."""
    rows, pivots = [], []
    A = ball.P
    order = list(range(n))
    for k in range(known):
        sizes = [_column_norm(A, j, n) for j in order[k:]]
        best = max(range(len(sizes)), key=lambda i: _as_log(sizes[i]))
        if _relative_radius(sizes[best]) > ENOUGH:
            return None
        order[k], order[k + best] = order[k + best], order[k]
        pivots.append(sizes[best])
        row, A = _eliminate(A, order[k], sizes[best], n)
        rows.append(row)
    U, mantissa, exponent, radius = _graded_rows(rows, pivots, order, n)
    if radius > ENOUGH * 2.0**20:
        return None
    log_sigma = finished(U, mantissa, exponent + ball.exponent, known, n)
    condition = np.linalg.cond(U[:known]) if known else 1.0
    size = np.abs(log_sigma[:known]).max(initial=0.0)
    error = np.full(n, n * condition * (8 * EPS + radius) + 4 * EPS * size)
    error[known:] = 0.0
    return log_sigma, error


def _column_norm(A: Any, j: int, n: int) -> Any:
    from flint import arb

    return sum((A[i, j] ** 2 for i in range(n)), arb(0)).sqrt()


def _as_log(x: Any) -> float:
    mantissa, exponent = _split(x)
    return math.log2(mantissa) + exponent if mantissa > 0 else -math.inf


def _eliminate(A: Any, j: int, norm: Any, n: int) -> tuple[list[Any], Any]:
    """One Gram-Schmidt step: row of R, and A without its part along column j."""
    from flint import arb_mat

    q = arb_mat(n, 1, [A[i, j] / norm for i in range(n)])
    row = q.transpose() * A
    return row.entries(), A - q * row


def _graded_rows(
    rows: list[list[Any]], pivots: list[Any], order: list[int], n: int
) -> tuple[Float, Float, Any, float]:
    """Unit rows in float64, their scales, and the largest radius relative to a row's pivot."""
    U = np.zeros((n, n))
    mantissa, exponent = np.full(n, 0.5), np.zeros(n, dtype=np.int64)
    worst = 0.0
    for k, (row, pivot) in enumerate(zip(rows, pivots, strict=True)):
        U[k, k] = 1.0
        for i, j in enumerate(order[k + 1 :], start=k + 1):
            ratio = row[j] / pivot
            U[k, i] = float(ratio.mid())
            worst = max(worst, float(ratio.rad()))
        norm = float(np.linalg.norm(U[k]))
        U[k] /= norm
        value, shift = _split(pivot)
        mantissa[k], extra = math.frexp(value * norm)
        exponent[k] = shift + extra
        worst = max(worst, _relative_radius(pivot))
    return U, mantissa, exponent, worst


def _norm_of(ball: _Ball, n: int, ord: str) -> Float | None:
    """Ln norm and error of a product whose entries are known relative to the largest."""
    entries = ball.P.entries()
    split = [_split(x) for x in entries]
    top = max((e for m, e in split if m), default=None)
    if top is None:
        return None
    P = np.array([math.ldexp(m, max(e - top, -1100)) for m, e in split]).reshape(n, n)
    radius = max(_radius_against(x, top) for x in entries) * n
    if radius > ENOUGH:
        return None
    norm = float(np.linalg.norm(P, "fro" if ord == "fro" else 2))
    value = math.log(norm) + (top + ball.exponent) * LN2
    return np.array([value, 4 * n * EPS + 2 * EPS * abs(value) + radius])


def _radius_against(x: Any, exponent: int) -> float:
    mantissa, own = _split(x.rad())
    return abs(mantissa) * 2.0 ** min(max(own - exponent, -1100), 1000)
