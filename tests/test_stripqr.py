"""Panels in strips: products in register tiles and block Gram-Schmidt, against NumPy."""

from __future__ import annotations

import math

import mpmath
import naive
import numba
import numpy as np
import pytest
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels import stripqr, tiles
from gradprop.lyapunov.growth import in_strips

EPS = float(np.finfo(np.float64).eps)


@numba.njit
def eliminate(gram, rows, pivots):
    """rows (4, 8) <- rows U^-1 for gram = U^T U."""
    unit, scales = np.empty((8, 8)), np.empty(8)
    tiles.eliminate(gram, unit, pivots, scales)
    for i in range(0, rows.size, 32):
        tiles.tile_solve(unit, scales, rows, i)


def back(P, n, k):
    A = np.empty((n, k))
    stripqr.from_strips(P, A)
    return A


def packed(M):
    n = len(M)
    out = np.zeros((-(-n // tiles.ROWS), n, tiles.ROWS))
    stripqr.pack(M, out)
    return out


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 2), (4, 8), (5, 9), (13, 13), (33, 17)])
def test_there_and_back(n, k):
    A = np.random.default_rng(n).standard_normal((n, k))
    P = in_strips(A)
    assert P.shape == (-(-k // 8), -(-n // 4) * 4, 8)
    assert np.array_equal(back(P, n, k), A)
    # what is not there is zero
    assert np.square(P).sum() == pytest.approx(np.square(A).sum(), rel=4 * n * k * EPS)


@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), k=st.integers(1, 40))
def test_push(seed, n, k):
    rng = np.random.default_rng(seed)
    k = min(k, n)
    M, A, d = rng.standard_normal((n, n)), rng.standard_normal((n, k)), rng.uniform(-1, 1, n)
    keep = rng.choice([0.0, 0.3])
    P, out = in_strips(A), np.full_like(in_strips(A), np.nan)
    scale = np.zeros(P.shape[1])
    scale[:n] = d
    stripqr.push(packed(M), scale, keep, P, out)
    J = keep * np.eye(n) + d[:, None] * M
    size = np.abs(J) @ np.abs(A)
    assert (np.abs(back(out, n, k) - J @ A) <= (n + 3) * EPS * size).all()
    rest = out.copy()
    for s in range(len(rest)):
        rest[s, :n, : max(0, min(8, k - 8 * s))] = 0.0
    assert not rest.any()


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (7, 3), (16, 16), (40, 33), (70, 70)])
def test_orthonormalise(n, k):
    rng = np.random.default_rng(n)
    B = rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-1, 1, k)
    Q, r = naive.gram_schmidt(B)
    P, pivots = in_strips(B), np.empty(k)
    log_spread = stripqr.orthonormalise(P, k, np.empty((8 * len(P), 8)), pivots)
    spread = np.linalg.norm(B, axis=0).max() / r.min()
    assert log_spread == pytest.approx(math.log(spread), abs=1e-9)
    # Cholesky of the Gram matrix: condition squared
    atol = tolerance(np.float64, n, 1) * np.linalg.cond(B) ** 2
    np.testing.assert_allclose(pivots, r, rtol=atol)
    np.testing.assert_allclose(back(P, n, k), Q, atol=atol)
    # what matters: B = Q R to rounding, with the pivots on the diagonal
    upper = np.linalg.lstsq(back(P, n, k), B, rcond=None)[0]
    lower = np.abs(np.tril(upper, -1)).max(initial=0)
    assert lower <= tolerance(np.float64, n, 1) * np.linalg.cond(B) * np.abs(B).max()
    small = tolerance(np.float64, n, 1) * np.linalg.cond(B) * np.abs(B).max()
    np.testing.assert_allclose(np.diagonal(upper), pivots, rtol=0, atol=small)


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, 1e300])
@pytest.mark.parametrize("k", [3, 12])
def test_orthonormalise_refuses(value, k):
    B = np.random.default_rng(0).standard_normal((15, k))
    inside = np.empty((16, 8))
    B[:, k - 2] = value
    assert stripqr.orthonormalise(in_strips(B), k, inside, np.empty(k)) == np.inf
    B[:, k - 2] = B[:, 0]
    assert stripqr.orthonormalise(in_strips(B), k, inside, np.empty(k)) > math.log(1e7)


def test_eliminate_against_many_digits():
    rng = np.random.default_rng(5)
    for size in (0.0, 2.0, 4.0):
        A = rng.standard_normal((8, 8)) * 10.0 ** rng.uniform(-size, 0, 8)
        gram, inverse, pivots = A.T @ A, np.empty((8, 8)), np.empty(8)
        with mpmath.workdps(60):
            upper = mpmath.cholesky(mpmath.matrix(gram.tolist())).T
            exact = np.array((upper**-1).tolist(), dtype=float)
            diagonal = np.array([float(upper[i, i]) for i in range(8)])
        inverse[:] = np.eye(8)
        eliminate(gram, inverse, pivots)
        error = 64 * EPS * np.linalg.cond(gram)
        np.testing.assert_allclose(pivots, diagonal, rtol=error)
        assert np.linalg.norm(inverse - exact) <= error * np.linalg.norm(exact)
        assert not np.tril(inverse, -1).any()
    for gram in (np.diag([1.0, -1, 1, 1, 1, 1, 1, 1]), np.ones((8, 8)), np.full((8, 8), np.nan)):
        eliminate(gram, inverse, pivots)
        assert not (pivots > 0).all()
