"""Panels in strips: products in register tiles and block Gram-Schmidt, against NumPy."""

from __future__ import annotations

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
def eliminate(gram, upper, pivots):
    """upper <- U of gram = U^T U, above its diagonal."""
    unit, scales = np.empty((8, 8)), np.empty(8)
    tiles.eliminate(gram, unit, 0, pivots, scales, 0)
    for i in range(8):
        for j in range(i, 8):
            upper[i, j] = unit[i, j] / scales[i]


@numba.njit
def solve(L, rows):
    """rows (8, 8) <- L^-1 rows."""
    tiles.solve_unit(L, 0, 8, 1, rows, 0)


def back(P, n, k):
    A = np.empty((n, k))
    stripqr.from_strips(P, A)
    return A


def packed(M):
    n = len(M)
    out = np.zeros((-(-n // 8) * 8 // tiles.ROWS, n, tiles.ROWS))
    stripqr.pack(M, out)
    return out


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 2), (4, 8), (5, 9), (13, 13), (33, 17)])
def test_there_and_back(n, k):
    A = np.random.default_rng(n).standard_normal((n, k))
    P = in_strips(A)
    assert P.shape == (-(-k // 8), -(-n // 8) * 8, 8)
    assert np.array_equal(back(P, n, k), A)
    # what is not there is zero
    assert np.square(P).sum() == pytest.approx(np.square(A).sum(), rel=4 * n * k * EPS)


@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), k=st.integers(1, 40))
def test_push(seed, n, k):
    rng = np.random.default_rng(seed)
    k = min(k, n)
    M, A, d = rng.standard_normal((n, n)), rng.standard_normal((n, k)), rng.uniform(-1, 1, n)
    keep, triangular = rng.choice([0.0, 0.3]), rng.random() < 0.5
    order = rng.permutation(n)
    if triangular:
        A[order] = np.tril(A[order])
    N = -(-n // 8) * 8
    lists = np.array([[*order, *range(n, N)], range(N)])
    panels = np.stack([in_strips(A), np.full_like(in_strips(A), np.nan)])
    scale = np.zeros(N)
    scale[:n] = d
    # what is triangular is not plain
    plain = 0 if triangular else rng.integers(2)
    stripqr.push(packed(M), scale, keep, lists, plain, triangular, panels, 0, 1)
    J = keep * np.eye(n) + d[:, None] * M
    size = np.abs(J) @ np.abs(A)
    assert (np.abs(back(panels[1], n, k) - J @ A) <= (n + 3) * EPS * size).all()
    rest = panels[1]
    for s in range(len(rest)):
        rest[s, :n, : max(0, min(8, k - 8 * s))] = 0.0
    assert not rest.any()


def lengths(A, order):
    """|R_ii| of A = Q R by the kernel, and its ratio of squares."""
    P, pivots = in_strips(A), np.full(-(-A.shape[1] // 8) * 8, np.nan)
    rows = np.array([*order, *range(len(order), P.shape[1])])
    worst = stripqr.lengths(P, A.shape[1], rows, np.full_like(P, np.nan), pivots)
    return pivots[: A.shape[1]], worst


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (7, 3), (16, 16), (40, 33), (70, 70)])
def test_lengths(n, k):
    rng = np.random.default_rng(n)
    B = rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-1, 1, k)
    L, order, _ = naive.eliminate(B)
    pivots, worst = lengths(L, order + [i for i in range(n) if i not in order])
    _, expected = naive.gram_schmidt(L)
    # Cholesky of the Gram matrix: condition squared
    rtol = tolerance(np.float64, n, 1) * np.linalg.cond(L) ** 2
    np.testing.assert_allclose(pivots, expected, rtol=rtol)
    ratio = np.max((np.linalg.norm(L, axis=0) / expected) ** 2)
    assert worst == pytest.approx(ratio, rel=1e-9)


def test_lengths_of_dependent_columns_are_not_believed():
    L = np.tril(np.random.default_rng(0).standard_normal((12, 12)), -1) + np.eye(12)
    assert lengths(L, range(12))[1] <= 1e3
    for i in (2, 7):
        for size in (1e-3, 1e-9):
            close = L.copy()
            close[i + 1 :, i], close[i, i] = L[i + 1 :, i + 1], size
            assert lengths(close, range(12))[1] >= 0.1 / size**2 or size == 1e-9
            assert not lengths(close, range(12))[1] <= 1e3
        for value in (0.0, np.nan):
            bad = L.copy()
            bad[:, i] *= value
            assert not lengths(bad, range(12))[1] <= 1e3


def test_eliminate_against_many_digits():
    rng = np.random.default_rng(5)
    for size in (0.0, 2.0, 4.0):
        A = rng.standard_normal((8, 8)) * 10.0 ** rng.uniform(-size, 0, 8)
        gram, upper, pivots = A.T @ A, np.zeros((8, 8)), np.empty(8)
        with mpmath.workdps(60):
            exact = np.array(mpmath.cholesky(mpmath.matrix(gram.tolist())).T.tolist(), dtype=float)
        eliminate(gram, upper, pivots)
        error = 64 * EPS * np.linalg.cond(gram)
        np.testing.assert_allclose(pivots, np.diagonal(exact), rtol=error)
        assert np.linalg.norm(upper - exact) <= error * np.linalg.norm(exact)
    for gram in (np.diag([1.0, -1, 1, 1, 1, 1, 1, 1]), np.ones((8, 8)), np.full((8, 8), np.nan)):
        eliminate(gram, upper, pivots)
        assert not (pivots > 0).all()


def test_solve_unit():
    rng = np.random.default_rng(6)
    L, rows = rng.uniform(-1, 1, (8, 8)), rng.standard_normal((8, 8))
    found = rows.copy()
    solve(L, found)
    triangle = np.tril(L, -1) + np.eye(8)
    np.testing.assert_allclose(triangle @ found, rows, atol=64 * EPS * np.abs(found).max())
