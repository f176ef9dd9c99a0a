"""The law of squared slopes phi'^2 at Gaussian pre-activations, and its means over s."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gradprop.activations import Activation
from gradprop.quadrature import gaussian_rule
from gradprop.slopes import log_abs_slope

Float = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)

AT_ZERO, AT_INFINITY = 1e-140, 1e140
"""Pre-activations that stand for those of variance 0 and of unbounded variance."""

ROWS = 400
"""Most values of ln s at which the nodes are made to hold."""

FEWEST = 1000
"""Units for whose spectrum the nodes hold at least: dimensions need the law's tail too."""

WHOLE = 1e-13
"""Share of slopes that are 0, below which there are none."""

BLOCK = 2**18
"""Entries of one pass over units and nodes: 2 MB an array."""

MARGIN = 1e-6
"""By how much brackets are widened, for sums that are rounded."""

TINY = 1e-300
"""Least share and slope of it, where logarithms and quotients of 0 would come."""


class SlopeLaw:
    """E f(phi'(sqrt(q) z)^2) for the f of the S-transform (see :func:`random_network_spectrum`).

    Parameters
    ----------
    own : Activation
    q : float
        Variance; 0, inf and nan (where the law is the same at every variance) stand for limits.
    n : int
        Units for whose spectrum it has to hold.

    Attributes
    ----------
    mass : float
        P(phi' != 0), 1 if that is within 1e-13.
    log_mean, mean_log : float
        ln E phi'^2; E ln phi'^2 over slopes other than 0.
    lowest : float
        ln s at which the share of every slope is still below 1e-17.

    Notes
    -----
    One set of nodes for all s: some 1000, and 40 per kink and halving.

    Examples
    --------
    >>> from gradprop.activations import activation
    >>> law = SlopeLaw(activation("relu"), 1.0, 10)
    >>> round(law.mass, 12), round(law.share(0.0), 12)
    (0.5, 0.25)
    """

    def __init__(self, own: Activation, q: float, n: int) -> None:
        x, weights = _nodes(own, q, max(n, FEWEST))
        log_squares = 2.0 * log_abs_slope(own, x)
        there = np.isfinite(log_squares)
        # slopes are even for odd phi: half the nodes do
        self._t, index = np.unique(log_squares[there], return_inverse=True)
        self._w = np.bincount(index, weights[there], len(self._t))
        mass = math.fsum(self._w)
        self.mass = 1.0 if abs(mass - 1.0) < WHOLE else mass
        top = float(self._t.max(initial=-math.inf))
        self.lowest = -40.0 - top
        total = math.fsum(self._w * np.exp(self._t - top)) if self.mass > 0 else 0.0
        self.log_mean = top + math.log(total) if total > 0 else -math.inf
        self.mean_log = math.fsum(self._w * self._t)

    def share(self, log_s: float) -> float:
        """E [s phi'^2 / (1 + s phi'^2)], which is u, at ln s."""
        from scipy.special import expit

        return float(self._w @ expit(log_s + self._t))

    def mean_softplus(self, log_s: float) -> float:
        """E ln(1 + s phi'^2) at ln s."""
        return float(self._w @ np.logaddexp(0.0, log_s + self._t))

    def solve(self, u: Float) -> Float:
        """Values ln s at which the share is u; inf from u = mass on."""
        log_s = np.full(u.shape, np.inf)
        inside = u < self.mass * (1.0 - WHOLE)
        if inside.any():
            log_s[inside] = self._solve(u[inside])
        return log_s

    def _solve(self, u: Float) -> Float:
        """Newton steps for the log odds of the share, which rise nearly linearly, in brackets."""
        target = np.log(u) - np.log(self.mass - u)
        low, high = self._brackets(u)
        log_s = self._start(target, low, high)
        moving = np.arange(len(u))
        for _ in range(200):
            at, wanted = log_s[moving], target[moving]
            odds, slope = self._log_odds(at, np.where(wanted < 0, 1.0, -1.0))
            low[moving] = np.where(odds < wanted, at, low[moving])
            high[moving] = np.where(odds > wanted, at, high[moving])
            new = at + (wanted - odds) / slope
            middle = 0.5 * (low[moving] + high[moving])
            new = np.where((new >= low[moving]) & (new <= high[moving]), new, middle)
            log_s[moving] = new
            moving = moving[np.abs(new - at) > 8 * EPS * np.maximum(np.abs(new), 1.0)]
            if not len(moving):
                break
        return log_s

    def _brackets(self, u: Float) -> tuple[Float, Float]:
        """Bounds of ln s from quantiles of the law.

        Let a mass of at most u/2 lie above t; all below gives mass e^(ln s + t) at most: the share
        is at most u where that is u/2. Alike from above, with the rest mass - u.
        """
        below = np.concatenate([[0.0], np.cumsum(self._w)])
        above = np.concatenate([np.cumsum(self._w[::-1])[::-1], [0.0]])
        rest = self.mass - u
        last = len(self._t) - 1
        top = np.searchsorted(-above[1:], -0.5 * u)
        bottom = np.searchsorted(below[:-1], 0.5 * rest, side="right") - 1
        low = np.log(0.5 * u / self.mass) - self._t[np.minimum(top, last)]
        high = -np.log(0.5 * rest / self.mass) - self._t[np.maximum(bottom, 0)]
        return low - MARGIN, high + MARGIN

    def _start(self, target: Float, low: Float, high: Float) -> Float:
        """Guesses by Hermite interpolation between values of ln s 2 apart, at most ROWS of them."""
        from scipy.interpolate import CubicHermiteSpline

        ends = float(low.min()), float(high.max())
        grid = np.linspace(*ends, min(ROWS, int((ends[1] - ends[0]) / 2) + 2))
        odds, slope = self._log_odds(grid, np.where(grid < grid.mean(), 1.0, -1.0))
        steep = (slope > 1e-3) & (np.abs(odds) < 100.0)
        rising = np.flatnonzero(
            steep & (np.diff(np.maximum.accumulate(odds), prepend=-np.inf) > 0.01)
        )
        if len(rising) < 2:
            return 0.5 * (low + high)
        known = CubicHermiteSpline(odds[rising], grid[rising], 1.0 / slope[rising])
        return np.clip(known(target), low, high)

    def _log_odds(self, log_s: Float, side: Float) -> tuple[Float, Float]:
        """ln(share / (mass - share)) and its derivative at each ln s.

        `side` is 1 where the share is summed and -1 where the rest is: the smaller one should be.
        """
        from scipy.special import expit

        summed, slope = np.empty_like(log_s), np.empty_like(log_s)
        step = max(1, BLOCK // len(self._t))
        for i in range(0, len(log_s), step):
            part = slice(i, i + step)
            a = expit(side[part, None] * (log_s[part, None] + self._t))
            summed[part] = a @ self._w
            a *= 1.0 - a
            slope[part] = a @ self._w
        summed, slope = np.maximum(summed, TINY), np.maximum(slope, TINY)
        other = np.maximum(self.mass - summed, TINY)
        return side * (np.log(summed) - np.log(other)), slope * (1.0 / summed + 1.0 / other)


def _nodes(own: Activation, q: float, n: int) -> tuple[Float, Float]:
    """Pre-activations and weights."""
    from scipy.special import expit

    if not 0.0 < q < math.inf:
        end = AT_INFINITY if math.isinf(q) else AT_ZERO
        return np.array([-end, end]), np.array([0.5, 0.5])
    floor, grid = _grid(own, q, n)

    def functions(x: Float) -> Float:
        t = 2.0 * log_abs_slope(own, x)
        finite = np.maximum(t, floor)
        rows = expit(grid.reshape(-1, *[1] * t.ndim) + finite)
        return np.concatenate([rows, [finite, np.exp(np.minimum(t, 700.0))]])

    return gaussian_rule(functions, q)


def _grid(own: Activation, q: float, n: int) -> tuple[float, Float]:
    """A log square that stands for 0 in sums, and values ln s that reach the n-th exponent."""
    z = np.linspace(-9.0, 9.0, 4001)
    t = 2.0 * log_abs_slope(own, math.sqrt(q) * z)
    t, z = t[np.isfinite(t)], z[np.isfinite(t)]
    if not len(t):
        return 0.0, np.zeros(1)
    order = np.argsort(t)
    below = np.cumsum(np.exp(-0.5 * z[order] ** 2))
    last = t[order][np.searchsorted(below, below[-1] / (2 * n))]
    ends = -t.max() - 10.0, 4.0 - last
    return float(2 * t.min() - 10.0), np.linspace(*ends, min(ROWS, int(ends[1] - ends[0]) // 2 + 2))
