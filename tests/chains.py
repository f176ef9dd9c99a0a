"""Random directions, orthogonal matrices and chains of known kinds, all drawn from a given rng."""

from __future__ import annotations

import numpy as np
from naive import Array, dphi, gram_schmidt

FAMILIES = (
    "gaussian",
    "tanh",
    "saturated",
    "relu",
    "orthogonal",
    "orthogonal_tanh",
    "diagonal",
    "triangular",
    "jordan",
    "graded",
    "cancelling",
)


def unit_vector(rng: np.random.Generator, n: int) -> Array:
    """Uniform on the unit sphere of R^n."""
    v = rng.standard_normal(n)
    return v / np.linalg.norm(v)


def random_orthogonal(rng: np.random.Generator, n: int) -> Array:
    """Haar distributed: Gram-Schmidt of a Gaussian matrix, whose diagonal of R is positive."""
    return gram_schmidt(rng.standard_normal((n, n)))[0]


def random_chain(rng: np.random.Generator, family: str, n_steps: int, n: int) -> Array:
    """Factors (T, n, n) of one of FAMILIES; "cancelling" is A^{T/2} A^{-T/2}, T even."""
    gaussian = rng.standard_normal((n_steps, n, n)) / np.sqrt(n)
    W = gaussian[0] if n_steps else np.eye(n)
    z = rng.standard_normal((n_steps, n))
    Q = random_orthogonal(rng, n)
    if family == "cancelling":
        inverse = np.linalg.inv(W)
        return np.array([inverse] * (n_steps // 2) + [W] * (n_steps // 2)).reshape(-1, n, n)
    return {
        "gaussian": gaussian,
        "tanh": dphi("tanh", z)[:, :, None] * W,
        "saturated": dphi("tanh", 8 * z)[:, :, None] * W,
        "relu": dphi("relu", z + 1)[:, :, None] * W * np.sqrt(2),
        "orthogonal": np.broadcast_to(Q, gaussian.shape).copy(),
        "orthogonal_tanh": dphi("tanh", z / 2)[:, :, None] * Q,
        "diagonal": z[:, :, None] * np.eye(n),
        "triangular": np.broadcast_to(
            np.triu(W) + 2 * np.triu(np.ones((n, n)), 1), gaussian.shape
        ).copy(),
        "jordan": np.broadcast_to(0.9 * np.eye(n) + np.eye(n, k=1), gaussian.shape).copy(),
        "graded": 10.0 ** rng.uniform(-8, 8, (n_steps, n, 1)) * gaussian,
    }[family]


def nearly_singular(rng: np.random.Generator, n: int) -> Array:
    """An integer matrix of rank n - 1 with one entry moved by one float: regular, if barely."""
    while True:
        A = rng.integers(-8, 9, (n, n)).astype(float)
        A[-1] = A[:-1].T @ rng.integers(-2, 3, n - 1)
        i, j = rng.integers(n, size=2)
        cofactor = np.linalg.det(np.delete(np.delete(A, i, 0), j, 1)) if n > 1 else 1.0
        if A[i, j] != 0 and abs(cofactor) > 0.5:
            A[i, j] = np.nextafter(A[i, j], np.inf)
            return A
