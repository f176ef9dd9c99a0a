"""Ten kinds of small products, from harmless to those that no float64 method can settle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradprop.activations import activation

FAMILIES = (
    "gaussian",
    "tanh",
    "saturated",
    "relu",
    "orthogonal",
    "graded",
    "triangular",
    "jordan",
    "cancelling",
    "deficient",
)
HARD = ("triangular", "jordan", "cancelling", "deficient")
"""Strongly non-normal (three) or singular without a zero row: beyond float64 by their nature."""
LARGEST, LONGEST = 8, 60

Array = NDArray[np.float64]


def random_product(rng: np.random.Generator, family: str) -> Array:
    """Factors (T, n, n) of one of FAMILIES: n uniform in 2 .. 8, T even and uniform in 2 .. 60."""
    n, n_steps = int(rng.integers(2, LARGEST + 1)), 2 * int(rng.integers(1, LONGEST // 2 + 1))
    if family == "cancelling":
        W = _ginibre(rng, n)
        half = n_steps // 2
        return np.stack([np.linalg.inv(W)] * half + [W] * half)
    if family == "gaussian":
        return np.stack([_ginibre(rng, n) for _ in range(n_steps)])
    if family == "graded":
        return 10.0 ** rng.uniform(-8, 8, (n_steps, n, 1)) * rng.standard_normal((n_steps, n, n))
    if family in ("triangular", "jordan"):
        return np.stack([_triangular(rng, family, n)] * n_steps)
    if family == "deficient":
        return _deficient(rng, n, n_steps)
    return _recurrent(rng, family, n, n_steps)


def _ginibre(rng: np.random.Generator, n: int) -> Array:
    return np.asarray(rng.standard_normal((n, n)) / np.sqrt(n))


def _triangular(rng: np.random.Generator, family: str, n: int) -> Array:
    if family == "jordan":
        return rng.uniform(0.5, 1.2) * np.eye(n) + rng.uniform(0.5, 2.0) * np.eye(n, k=1)
    return np.triu(_ginibre(rng, n)) + rng.uniform(0, 5) * np.triu(np.ones((n, n)), 1)


def _deficient(rng: np.random.Generator, n: int, n_steps: int) -> Array:
    """D_t W of exact rank below n: short integers, so that no entry rounds."""
    rank = int(rng.integers(1, n))
    W = rng.integers(-4, 5, (n, rank)) @ rng.integers(-4, 5, (rank, n))
    return np.asarray(rng.integers(1, 256, (n_steps, n, 1)) / 256.0 * W)


def _recurrent(rng: np.random.Generator, family: str, n: int, n_steps: int) -> Array:
    """diag(phi'(z_t)) W with one W and Gaussian z."""
    z = rng.standard_normal((n_steps, n))
    W = _ginibre(rng, n)
    if family == "relu":
        return np.asarray(activation("relu").derivative(z + 1)[..., None] * np.sqrt(2.0) * W)
    if family == "orthogonal":
        W = np.linalg.qr(W)[0]
    spread = {"tanh": 1.0, "saturated": 8.0, "orthogonal": 0.5}[family]
    return np.asarray(activation("tanh").derivative(spread * z)[..., None] * W)
