"""Random weights with slopes, and exact checks of what is claimed about their products."""

from __future__ import annotations

import dataclasses

import mpmath
import numpy as np
from chains import random_orthogonal
from exact import exact_product
from numpy.typing import NDArray

Array = NDArray[np.float64]
KINDS = (
    "gaussian",
    "orthogonal",
    "nonnegative",
    "triangular",
    "nilpotent",
    "rank_one",
    "sparse",
    "graded",
    "jordan",
    "permutation",
)
SLOPES = ("largest", "signs", "masks", "uniform")
DIGITS = 60


def few_bits(values: Array, bits: int = 20) -> Array:
    """Values whose products with each other are exact in float64."""
    return np.asarray(np.round(values * 2.0**bits) / 2.0**bits)


def random_weights(rng: np.random.Generator, kind: str, n: int) -> Array:
    """Weights (n, n) of one of KINDS, norms around 1."""
    G = rng.standard_normal((n, n)) / np.sqrt(n)
    return {
        "gaussian": G,
        "orthogonal": random_orthogonal(rng, n),
        "nonnegative": np.abs(G),
        "triangular": np.triu(G) + 3 * np.triu(np.ones((n, n)), 1),
        "nilpotent": 2 * np.triu(G, 1),
        "rank_one": np.outer(G[0], G[:, 0]),
        "sparse": G * (rng.uniform(size=(n, n)) < 0.5),
        "graded": G * 10.0 ** rng.uniform(-4, 4, (n, 1)) * 10.0 ** rng.uniform(-4, 4, n),
        "jordan": 0.9 * np.eye(n) + np.eye(n, k=1),
        "permutation": rng.uniform(0.5, 1.5) * np.eye(n)[rng.permutation(n)],
    }[kind]


@dataclasses.dataclass(frozen=True)
class Case:
    """Weights, the largest slope, slopes (T, n) within it, and the leak."""

    W: Array
    gamma: float
    slopes: Array
    leak: float

    def factors(self) -> list[Array]:
        """Matrices whose product J_T ... J_1 is, in the order of application, without rounding."""
        diagonals = [np.diag(d) for d in self.slopes]
        if self.leak == 1.0:
            return [factor for D in diagonals for factor in (self.W, D)]
        return [(1 - self.leak) * np.eye(len(self.W)) + self.leak * D @ self.W for D in diagonals]

    def log_norm(self, lag: int) -> mpmath.mpf:
        """ln ||P_lag||, to some 60 digits."""
        per_step = 2 if self.leak == 1.0 else 1
        return log_norm_of(self.factors()[: per_step * lag], len(self.W))


def random_case(rng: np.random.Generator, n_steps: int, largest_n: int = 4) -> Case:
    """A case of any kind; with a leak the entries have few bits, so that factors are exact."""
    n, leak = int(rng.integers(1, largest_n + 1)), float(rng.choice([1.0, 1.0, 0.5, 0.125]))
    W = random_weights(rng, str(rng.choice(KINDS)), n)
    gamma = float(rng.choice([1.0, 0.25, 1.129]))
    unit = {
        "largest": np.ones((n_steps, n)),
        "signs": rng.choice([-1.0, 1.0], (n_steps, n)),
        "masks": rng.choice([0.0, 1.0], (n_steps, n)),
        "uniform": rng.uniform(-1, 1, (n_steps, n)),
    }[str(rng.choice(SLOPES))]
    if leak < 1.0:
        W, gamma, unit = few_bits(W), float(few_bits(np.array(gamma), 10)), few_bits(unit, 10)
    return Case(W, gamma, gamma * unit, leak)


def log_norm_of(factors: list[Array], n: int) -> mpmath.mpf:
    """ln of the 2-norm of an exact product, to some 60 digits; -inf if it is zero."""
    M, exponent = exact_product(factors, n)
    if not any(any(row) for row in M):
        return mpmath.mpf("-inf")
    with mpmath.workdps(DIGITS):
        top = max(mpmath.svd_r(mpmath.matrix(M), compute_uv=False))
        return mpmath.log(top) + exponent * mpmath.log(2)


def margin(log_constant: float, log_rate: float, lag: int, truth: mpmath.mpf) -> float:
    """log_constant + lag log_rate - truth, of the exact values of these floats."""
    with mpmath.workdps(DIGITS):
        if mpmath.isinf(truth):
            return np.inf
        return float(mpmath.mpf(float(log_constant)) + lag * mpmath.mpf(float(log_rate)) - truth)
