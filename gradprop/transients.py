"""How far powers of a matrix grow before they decay, with a proof that nothing higher follows."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop._enclosures import EPS, UNDERFLOW, envelope_norm, gamma_of, norm_above
from gradprop.blocks import Float, Int
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values
from gradprop.results import LN2, REPLICAS, Result, Status

MOST_SQUARINGS = 60
MOST_POWERS = 20_000
"""Powers of one matrix that are looked at before the search is given up."""

SURE = 4.0
"""Largest singular values are computed to SURE n eps."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransientGrowth(Result):
    """The highest norm among all powers of W.

    Attributes
    ----------
    log_peak : float array, shape (...,)
        max over lag >= 0 of ln ||W^lag||_2, in nats: 0 where no power exceeds W^0 = I; inf where
        powers are not known to decay; nan where the search was given up.
    lag : int array, shape (...,)
        The first lag at which it is reached, -1 where there is none. Lags whose norms differ by
        less than ``error`` are not told apart.
    error : float array, shape (...,)
        Bound on the absolute error of ``log_peak``.
    contracting_lag : int array, shape (...,)
        A lag, a power of two, at which the norm is proven to be below 1; 0 where none was found.
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "log_peak": (REPLICAS,),
        "lag": (REPLICAS,),
        "error": (REPLICAS,),
        "contracting_lag": (REPLICAS,),
        "status": (REPLICAS,),
    }
    log_peak: Float
    lag: Int
    error: Float
    contracting_lag: Int
    status: Int


def transient_growth(W: ArrayLike) -> TransientGrowth:
    r"""Peak of :math:`\ln\lVert W^\ell\rVert_2` over all lags, and where it lies.

    Parameters
    ----------
    W : array_like, shape (..., n, n); leading axes are replicas

    Returns
    -------
    TransientGrowth
        ``log_peak``, ``lag``, ``error``, ``contracting_lag``, ``status``.

    Raises
    ------
    ValueError, TypeError
        A W that is not square, not finite or not real.

    Notes
    -----
    Squaring finds a lag N with :math:`\lVert W^N\rVert < 1`. Later powers are no higher than
    earlier ones, for :math:`\lVert W^{qN+r}\rVert \le \lVert W^N\rVert^q \lVert W^r\rVert`, so the
    peak lies below N. There, intervals of lags [a, a + 2^i) are halved until
    :math:`\lVert W^a\rVert \max_{r<2^i}\lVert W^r\rVert` is no higher than the peak so far.
    Every power carries a proven bound of its rounding, entry by entry and by norms, whichever is
    smaller, so that both the stop and the peak are certain; only the lower end of ``error`` trusts
    computed singular values (to 4 n eps).

    Where no N is found the radius is 1 or more, or below 1 by less than rounding: inf with a
    status. That includes orthogonal W, whose powers do not grow, but floats cannot tell. Cost:
    about 1 ms for each power looked at (n = 64), some 100 for a non-normal W, up to the width of
    the peak for a radius very close to 1; after 20 000 of them the value is nan with a status.

    References
    ----------
    .. [1] L. N. Trefethen, M. Embree, Spectra and Pseudospectra (2005), chapter 16.

    Examples
    --------
    >>> import gradprop as gp
    >>> growth = gp.transient_growth([[0.9, 50.0], [0.0, 0.9]])  # radius 0.9
    >>> int(growth.lag), round(float(np.exp(growth.log_peak)), 3)
    (9, 193.711)
    """
    array = _checks.real_array("W", W, shape=("n", "n"))
    shape, n = array.shape[:-2], array.shape[-1]
    with single_threaded_blas():
        found = [_PeakSearch(A).result() for A in array.reshape(-1, n, n)]
    fields = ("log_peak", "lag", "error", "contracting_lag", "status")
    columns = zip(fields, zip(*found, strict=True), strict=True)
    return TransientGrowth(
        roles=("weights",) * len(shape),
        **{name: np.array(values).reshape(shape) for name, values in columns},
    )


class _Power:
    """W^lag = 2**exponent (matrix + E), with |E| <= radius and ||E|| <= self.error."""

    def __init__(self, matrix: Float, exponent: int, error: float, radius: Float) -> None:
        shift = int(np.frexp(np.abs(matrix).max())[1])
        self.matrix, self.exponent = np.ldexp(matrix, -shift), exponent + shift
        self.envelope = envelope_norm(self.matrix)
        error = math.ldexp(error, -shift)
        self.radius = np.minimum(np.ldexp(radius, -shift), error)
        self.error = min(error, envelope_norm(self.radius))
        norm = norm_above(self.matrix)
        self.norm = norm + self.error
        self.log_above = self._log(self.norm)
        sigma = float(largest_singular_values(self.matrix))
        self.log_norm = self._log(sigma)
        self.log_below = self._log(sigma * (1 - SURE * len(matrix) * EPS) - self.error)

    def _log(self, size: float) -> float:
        return math.log(size) + self.exponent * LN2 if size > 0 else -math.inf

    @property
    def is_lost(self) -> bool:
        """Whether rounding is all that is left."""
        return self.error >= self.norm / 2

    def times(self, other: _Power) -> _Power:
        """The product, with the rounding of both factors and its own (twice, for the bound's)."""
        rounding = gamma_of(2 * len(self.matrix) + 16)
        size, others = np.abs(self.matrix), np.abs(other.matrix)
        error = self.norm * other.error + self.error * other.norm
        error += rounding * (self.envelope * other.envelope + error) + UNDERFLOW
        radius = size @ other.radius + self.radius @ (others + other.radius)
        radius += rounding * (size @ others + radius) + UNDERFLOW * (radius > 0)
        exponent = self.exponent + other.exponent
        return _Power(self.matrix @ other.matrix, exponent, error, radius)


class _PeakSearch:
    """Highest norm of the powers of one matrix, by branch and bound over dyadic intervals."""

    def __init__(self, W: Float) -> None:
        first = _Power(W, 0, 0.0, np.zeros_like(W))
        self._ladder, self._looked_at = [first], 0
        self._log_peak, self._lag, self._above, self._below = 0.0, 0, 0.0, 0.0

    def result(self) -> tuple[float, int, float, int, int]:
        """Peak, lag, error, contracting lag and status."""
        if not self._contracts():
            return math.inf, -1, 0.0, 0, int(Status.NOT_CONTRACTING)
        rungs = len(self._ladder) - 1
        highest = [0.0]  # upper bounds of the peak below lag 2^i
        for i in range(rungs):
            self._look_at(self._ladder[i], 2**i)
            if not self._explore(self._ladder[i], 2**i, i, highest):
                return math.nan, -1, self._gap(i, highest[-1]), 2**rungs, int(Status.NOT_CONVERGED)
            highest.append(self._above)
        error = max(self._above - self._log_peak, self._log_peak - self._below)
        return self._log_peak, self._lag, error, 2**rungs, int(Status.OK)

    def _gap(self, i: int, highest: float) -> float:
        """How far the peak may lie above the highest norm found, lags from 2^i on not searched."""
        for power in self._ladder[i:-1]:
            highest = max(highest, highest + power.log_above)
        return highest - self._below

    def _contracts(self) -> bool:
        """Square until a norm is proven to be below 1."""
        while self._ladder[-1].log_above >= 0.0:
            last = self._ladder[-1]
            if last.is_lost or len(self._ladder) > MOST_SQUARINGS:
                return False
            self._ladder.append(last.times(last))
        return True

    def _look_at(self, power: _Power, lag: int) -> None:
        self._looked_at += 1
        self._above = max(self._above, power.log_above)
        self._below = max(self._below, power.log_below)
        if power.log_norm > self._log_peak:
            self._log_peak, self._lag = power.log_norm, lag

    def _explore(self, power: _Power, lag: int, i: int, highest: list[float]) -> bool:
        """Look into [lag, lag + 2^i), given W^lag, as far as it may hold the peak."""
        if i == 0 or power.log_above + highest[i] <= self._below:
            return True
        if self._looked_at >= MOST_POWERS:
            return False
        middle, half = power.times(self._ladder[i - 1]), lag + 2 ** (i - 1)
        self._look_at(middle, half)
        parts = [(power, lag), (middle, half)]
        return all(self._explore(*part, i - 1, highest) for part in parts)
