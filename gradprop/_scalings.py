"""Diagonal scalings x of a matrix under which the norm of e^x W e^-x is small."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gradprop.blocks import Float
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values

LIMIT = 30.0
"""Largest |x|: e^60 between the units of S is what float64 can tell apart in S W S^-1."""

STAGES = (1, 4, 7, 10)
"""Schatten norms 2p with p = 2^k + 1 that a search from scratch passes through; a search from a
good start takes the last alone. That one lies above the norm by at most ln n / 2050."""

MOST_ITERATIONS = 300
SWEEPS = 50
FAINT = 1e-30
"""Share of the largest weight that keeps the Perron vectors of a reducible matrix positive."""


def optimised_scalings(
    W: Float, weights: Sequence[float], log_gain: float = 0.0, log_keep: float = -math.inf
) -> Float:
    r"""For each weight w the x that minimises w range(x) + ln(keep + gain ||e^x W e^-x||_2).

    Parameters
    ----------
    W : float array, shape (n, n), largest magnitude of order one
    weights : sequence of float, shape (K,)
        1 / lag, best in descending order: each search starts where the last one ended.
    log_gain, log_keep : float
        Of leak gamma times the scale of W, and of 1 - leak.

    Returns
    -------
    float array, shape (K, n)
        Centred, so that the largest and the smallest x add up to 0. Where nothing better was
        found than x = 0, that.

    Notes
    -----
    The problem is convex [1]_ but not smooth. L-BFGS-B minimises a smooth majorant, Schatten norms
    for the spectral norm and sums of exponentials for the range, from 0 and from Osborne's
    balancing; of everything met, the x with the lowest true value is kept. 0.1 s for the first
    weight and 0.04 s for each further one at n = 64.

    References
    ----------
    .. [1] R. Sezginer, M. Overton, The largest singular value of e^X A_0 e^-X is convex on convex
       sets of commuting matrices, IEEE Trans. Automat. Control 35 (1990), p. 229.
    """
    n = len(W)
    found = np.zeros((len(weights), n))
    if n == 1 or not W.any() or math.isinf(log_gain):
        return found
    with single_threaded_blas():
        search = _Search(W, log_gain, log_keep)
        best: list[Float] = []
        for k, weight in enumerate(weights):
            if search.is_best_unscaled(weight):
                continue
            starts = best or [np.zeros(n), balanced(W)]
            best = [search.minimised(weight, starts, STAGES[-1:] if best else STAGES)]
            found[k] = best[0]
    return found


class _Search:
    """Minimisation of the majorants of one matrix."""

    def __init__(self, W: Float, log_gain: float, log_keep: float) -> None:
        self._W, self._gain, self._keep = np.ascontiguousarray(W), log_gain, log_keep
        self._work = np.empty((4, *W.shape))
        U, sigma, Vt = np.linalg.svd(W)
        self._pull = float(np.abs(U[:, 0] ** 2 - Vt[0] ** 2).sum() / 2)
        log_norm = log_gain + math.log(sigma[0])
        self._pull *= math.exp(log_norm - np.logaddexp(log_norm, log_keep))

    def is_best_unscaled(self, weight: float) -> bool:
        """Whether x = 0 is optimal: the norm's derivative along any x is at most w range(x)."""
        return self._pull <= weight

    def value(self, x: Float, weight: float) -> float:
        """What is to be minimised."""
        norm = largest_singular_values(self._W * np.exp(x[:, None] - x))
        return float(weight * np.ptp(x) + np.logaddexp(self._keep, self._gain + np.log(norm)))

    def minimised(self, weight: float, starts: list[Float], stages: Sequence[int]) -> Float:
        """The best x met on the way from the starts, 0 among them."""
        met = [np.zeros(len(self._W))]
        for x in starts:
            met.append(x)
            for doublings in stages:
                x = self._descended(x, weight, doublings)
                met.append(x)
        return min(met, key=lambda x: self.value(x, weight))

    def _descended(self, start: Float, weight: float, doublings: int) -> Float:
        from scipy.optimize import minimize

        from gradprop._kernels.scaling import certificate_above

        def objective(x: Float) -> tuple[float, Float]:
            gradient = np.empty_like(x)
            value = certificate_above(
                self._W, x, doublings, weight, self._gain, self._keep, self._work, gradient
            )
            return value, gradient

        x = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(-LIMIT, LIMIT)] * len(start),
            options={"maxiter": MOST_ITERATIONS},
        ).x
        return np.asarray(x - (x.max() + x.min()) / 2)


def balanced(W: Float) -> Float:
    """The x of Osborne's balancing: rows and columns of each unit have equal norms."""
    from gradprop._kernels.scaling import balance

    x = np.zeros(len(W))
    balance(np.ascontiguousarray(W), LIMIT, SWEEPS, x)
    return np.asarray(x - (x.max() + x.min()) / 2)


def perron_scaling(W: Float) -> Float:
    """The x for which ||e^x |W| e^-x||_2 is the Perron root of |W| (within LIMIT).

    With Perron vectors A v = rho v, A^T u = rho u of A = |W|: x = ln(u / v) / 2, for then v e^x is
    a singular vector on both sides (Stoer and Witzgall, Numer. Math. 4 (1962), p. 158). They come
    from powers of A by squaring, in which nothing cancels. 30 n^3 flops.
    """
    size = np.abs(W)
    largest = size.max()
    if len(W) == 1 or largest == 0:
        return np.zeros(len(W))
    # the diagonal makes the root the only eigenvalue of its size
    A = size / largest + FAINT + np.eye(len(W))
    with single_threaded_blas():
        for _ in range(20):
            A /= A.max()
            A = np.maximum(A @ A, 1e-300)
    x = np.log(A.sum(axis=0) / A.sum(axis=1)) / 2
    return np.asarray(np.clip(x - (x.max() + x.min()) / 2, -LIMIT, LIMIT))
