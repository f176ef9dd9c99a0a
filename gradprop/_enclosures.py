"""Numbers that lie above the truth whatever was rounded: norms, logarithms, sums."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from gradprop.blocks import Float
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values

EPS = float(np.finfo(np.float64).eps)
UNIT = EPS / 2
UNDERFLOW = 1e-300
"""More than what all underflows inside one norm add up to, for a largest entry of order one."""


def gamma_of(k: int) -> float:
    """Return k u / (1 - k u), rounded up: k roundings in a row (Higham, section 3.1)."""
    return k * UNIT / (1 - k * UNIT) * (1 + 4 * EPS)


def upwards(value: ArrayLike, *magnitudes: ArrayLike) -> Float:
    """Raise a number by 6 eps times the magnitudes that went into it, and to the next float.

    That covers logarithms and exponentials right to 4 ulp, and an addition or two. -inf stays.
    """
    slack = 6 * EPS * sum(np.abs(m) for m in magnitudes)
    number = np.asarray(value, dtype=np.float64)
    raised = np.nextafter(number + np.where(np.isfinite(slack), slack, 0.0), np.inf)
    return np.where(np.isneginf(number), -np.inf, raised)


def envelope_norm(A: Float) -> float:
    """An upper bound of || |A| ||_2, for finite A of order one: Frobenius, or by row sums."""
    size = np.abs(A)
    bound = min(float((size**2).sum()), float(size.sum(axis=0).max() * size.sum(axis=1).max()))
    return math.sqrt(bound) * (1 + gamma_of(A.size + 4)) + UNDERFLOW


def norm_above(A: Float, relative: float = 0.0) -> float:
    """An upper bound of ||A + E||_2 over all |E| <= relative |A|, proven in floating point.

    Parameters
    ----------
    A : float array, shape (n, n)
        Its largest magnitude lies between 1e-60 and 1e60, or all is 0.
    relative : float, default: 0

    Returns
    -------
    float
        Above the norm by about n eps times || |A| ||^2 / ||A||^2, relative.

    Notes
    -----
    With G the computed A^T A and tau a little above its largest eigenvalue, tau I - G is positive
    definite if its Cholesky factorisation ends without a negative pivot, up to
    gamma_(n+1) trace(tau I - G) [1]_; and G is A^T A up to gamma_n || |A| ||^2. Both hold for any
    order of the sums [2]_; twice the number of roundings is allowed for, since BLAS multiplies by
    reciprocals of pivots. The guess is a computed singular value, of which nothing is assumed.

    References
    ----------
    .. [1] S. M. Rump, Verification of positive definiteness, BIT 46 (2006), section 2.
    .. [2] N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed. (2002),
       section 3.5 and theorem 10.3.
    """
    if not A.any():
        return 0.0
    n, envelope = len(A), envelope_norm(A)
    with single_threaded_blas():
        gram = A.T @ A
        squared = float(largest_singular_values(A)) ** 2
        proven = _eigenvalue_above(gram, squared)
    rounding = gamma_of(n + 2) * envelope**2
    norm = min(math.sqrt((proven + rounding) * (1 + 8 * EPS)), envelope)
    return (norm + relative * envelope) * (1 + 8 * EPS) + UNDERFLOW


def _eigenvalue_above(G: Float, guess: float) -> float:
    """An upper bound of the largest eigenvalue of a symmetric matrix, found near a guess."""
    n = len(G)
    diagonal = np.diag(G)
    for power in range(1, 40):
        tau = guess * (1 + n * EPS * 2.0**power) + UNDERFLOW
        shifted = -G
        np.einsum("ii->i", shifted)[:] = tau - diagonal
        try:
            np.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            continue
        trace = float(np.abs(tau - diagonal).sum()) * (1 + gamma_of(n))
        return (tau * (1 + 2 * EPS) + gamma_of(2 * n + 8) * trace) * (1 + 4 * EPS)
    return math.inf
