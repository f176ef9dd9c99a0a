"""Lags at which the exact product passes the limits of a format."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import measure
from gradprop.norms import LogNorms, Norms
from gradprop.precision.formats import Format
from gradprop.pullback import VectorNorms
from gradprop.results import LN2

EPS = float(np.finfo(np.float64).eps)
BELOW, AT_MOST, ABOVE = range(3)

Mask = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit of the format, as a log: one per replica, or one for all."""

    name: str
    value: Float
    kind: int

    @property
    def slack(self) -> Float:
        """Distance within which a log counts as equal, shape (R, 1)."""
        return np.asarray(4 * EPS * (1 + np.abs(self.value.reshape(-1, 1))))

    def side(self, log_norm: Float) -> Float:
        """Negative, 0 or positive: below, at or above the limit, which logs meet only roughly.

        One row per replica; rows of any length if the limit is the same for all.
        """
        difference = log_norm - self.value.reshape(-1, 1)
        return np.asarray(np.where(np.abs(difference) <= self.slack, 0.0, difference))

    def passed(self, log_norm: Float) -> Mask:
        """Where the norm is beyond the limit; False for nan."""
        side = self.side(log_norm)
        return np.asarray((side < 0, side <= 0, side > 0)[self.kind])


def limits_of(fmt: Format, log_start: Float) -> list[Limit]:
    """The limits of `.exact`, for products that start at the norms exp(log_start), shape (R,).

    Half the smallest number rounds to zero itself (ties to even): that limit counts as passed when
    it is met.
    """
    everywhere = [
        ("n_subnormal", fmt.log_min_normal, BELOW),
        ("n_below_subnormal", fmt.log_min_subnormal, BELOW),
        ("n_zero", fmt.log_min_subnormal - LN2, AT_MOST),
        ("n_overflow", fmt.log_max, ABOVE),
    ]
    rest = [Limit(name, np.array([value]), kind) for name, value, kind in everywhere]
    return [Limit("n_eps", log_start + fmt.log_eps, BELOW), *rest]


def first_lag(happened: Mask) -> Int:
    """First column from 1 on that is True, by row; 0 where there is none."""
    later = happened.copy()
    later[:, 0] = False
    return np.asarray(later.argmax(axis=1), dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class ExactNorms:
    """Log of the exact norm at lags 0 .. T, its error, and which lags exist: (R, T + 1) each."""

    log_norm: Float
    error: Float
    exists: Mask

    @classmethod
    def of(cls, chain: JacobianChain, norms: LogNorms | VectorNorms, shift: float) -> ExactNorms:
        """From a result at all lags, in order; `shift` is the log of a scale."""
        shape = (chain.n_replicas, chain.n_steps + 1)
        log_norm = norms.log_norm.reshape(shape) + shift
        error = norms.error.reshape(shape) if isinstance(norms, LogNorms) else np.zeros(shape)
        exists = np.arange(shape[1]) <= chain.lengths.reshape(-1, 1)
        return cls(log_norm, error, exists)

    def refined(self, chain: JacobianChain, limits: list[Limit], shift: float) -> ExactNorms:
        """From Frobenius norms F: 2-norms at the lags where F / sqrt(n) and F do not decide."""
        low = self.log_norm - 0.5 * np.log(chain.n) - self.error
        high = self.log_norm + self.error
        open_lags = np.zeros(chain.n_steps + 1, dtype=bool)
        for limit in limits:
            above, below = limit.side(low) > 0, limit.side(high) < 0
            sure = first_lag(above if limit.kind == ABOVE else below)
            before = np.arange(chain.n_steps + 1) < np.where(sure, sure, chain.n_steps + 1)[:, None]
            open_lags |= (~(above | below) & before & self.exists).any(axis=0)
        lags = np.flatnonzero(open_lags)
        if not lags.size:
            return self
        norms = measure(chain, Norms(2, lags))[0]
        log_norm, error = self.log_norm.copy(), self.error.copy()
        log_norm[:, lags] = norms.log_norm.reshape(-1, lags.size) + shift
        error[:, lags] = norms.error.reshape(-1, lags.size)
        return dataclasses.replace(self, log_norm=log_norm, error=error)

    def crossings(self, limits: list[Limit]) -> tuple[dict[str, Int], Mask]:
        """First lag beyond each limit (0: none), and whether a verdict lies within its error."""
        found: dict[str, Int] = {}
        doubtful = np.zeros(len(self.log_norm), dtype=bool)
        lags = np.arange(self.log_norm.shape[1])
        for limit in limits:
            first = first_lag(limit.passed(self.log_norm) & self.exists)
            found[limit.name] = first
            side = np.abs(limit.side(self.log_norm))
            unsure = np.isnan(side) | ((side > 0) & (side <= self.error))
            asked = (lags > 0) & (lags <= np.where(first, first, lags[-1])[:, None]) & self.exists
            doubtful |= (unsure & asked).any(axis=1)
        return found, doubtful

    def changes(self, n: int) -> Mask:
        """Where the norm differs from that of the lag before by more than one step's rounding."""
        changed = np.zeros(self.log_norm.shape, dtype=bool)
        with np.errstate(invalid="ignore"):
            step = np.abs(np.diff(self.log_norm, axis=1))
            rounding = 2 * EPS * (n + 1 + np.abs(self.log_norm[:, 1:]))
        changed[:, 1:] = np.isfinite(self.log_norm[:, 1:]) & (step > rounding)
        return changed
