"""Bounds that need only W and gamma, as curves over the lags of many replicas."""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np

from gradprop.blocks import Float, Int, Recurrence
from gradprop.certificates import curve_above, log_step_norm, proven_scalings, scalings_for
from gradprop.perron import perron_log_norms
from gradprop.results import log_of_scaled
from gradprop.spectral import scaled_norm


@dataclasses.dataclass(frozen=True)
class Scalings:
    """Diagonal scalings of each distinct W of a chain, with what is proven about them.

    x (N, K, n); constants and log_norms (N, K) lie above ln cond(S) and ln ||S W S^-1||. which (R,)
    names the W of each replica.
    """

    x: Float
    constants: Float
    log_norms: Float
    which: Int

    @classmethod
    def of(cls, recurrence: Recurrence, lags: Int, gamma: float) -> Self:
        """One scaling per lag and W; lags ascend from 1, whose scaling is always S = I."""
        weights = [1.0 / float(lag) for lag in lags]
        x = np.array([scalings_for(W, weights, gamma, recurrence.leak) for W in recurrence.W])
        return cls(x, *proven_scalings(recurrence.W, x), recurrence.which)

    def curves(self, recurrence: Recurrence, gamma: Float, lags: Int) -> Float:
        """The lowest ln cond(S) + lag ln(1 - leak + leak gamma ||S W S^-1||), (R, L)."""
        rates = log_step_norm(self.log_norms[self.which], gamma[:, None], recurrence.leak)
        constants = self.constants[self.which]
        lowest = np.full(lags.shape, np.inf)
        for k in range(rates.shape[1]):
            own = slice(k, k + 1)
            lowest = np.minimum(lowest, curve_above(constants[:, own], rates[:, own], lags))
        return lowest


def norm_powers(recurrence: Recurrence, gamma: Float, lags: Int) -> Float:
    """Lag times ln(1 - leak + leak gamma ||W||), (R, L), for lags (R, L)."""
    with np.errstate(divide="ignore"):
        log_norm = log_of_scaled(*scaled_norm(recurrence.W))[recurrence.which]
        moved = np.log(recurrence.leak) + np.log(gamma) + log_norm
        rate = np.logaddexp(np.log1p(-recurrence.leak), moved)
    return _times_lag(lags, rate)


def perron_curves(recurrence: Recurrence, gamma: Float, lags: Int) -> Float:
    """Ln of norms of powers of (1 - leak) I + leak gamma |W|, (R, L), each distinct one once."""
    leak, shared = recurrence.leak, np.ones_like(gamma)
    kinds = np.stack([recurrence.which, shared if leak == 1.0 else gamma], axis=-1)
    distinct, inverse = np.unique(kinds, axis=0, return_inverse=True)
    out = np.empty(lags.shape)
    for k, (which, factor) in enumerate(distinct):
        rows = np.flatnonzero(inverse.ravel() == k)
        needed, column = np.unique(lags[rows], return_inverse=True)
        curve = perron_log_norms(recurrence.W[int(which)], needed, gamma=factor, leak=leak)
        out[rows] = curve[column.reshape(len(rows), -1)]
    if leak == 1.0:
        with np.errstate(divide="ignore"):
            out += _times_lag(lags, np.log(gamma))
    return out


def _times_lag(lags: Int, rate: Float) -> Float:
    """Lag times rate, 0 at lag 0 whatever the rate is."""
    with np.errstate(invalid="ignore"):
        return np.where(lags == 0, 0.0, lags * rate[:, None])
