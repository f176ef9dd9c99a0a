"""Gaussian elimination in strips: against a twin, in integers, on rows of very different size."""

from __future__ import annotations

import math
from fractions import Fraction

import naive
import numba
import numpy as np
import pytest
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels import pivoting, striplu, stripqr, tiles
from gradprop.lyapunov.growth import in_strips

EPS = float(np.finfo(np.float64).eps)
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def factors(A, limit=np.inf):
    """ln of the spread, L (n, k), all rows in order, and |U_ii| by the kernel."""
    (n, k), P = A.shape, in_strips(A)
    S, N, _ = P.shape
    L, order, pivots = np.full_like(P, np.nan), np.full(N, -1), np.full(S * 8, np.nan)
    before = P.copy()
    space = striplu.space(S, N)
    spread = striplu.eliminate_panel(P, k, limit, L, order, pivots, *space)
    assert np.array_equal(P, before, equal_nan=True)
    rows = np.empty((n, k))
    stripqr.from_strips(L, rows)
    if spread < np.inf:
        assert sorted(order[:n]) == list(range(n))
    return spread, rows, order[:n], pivots[:k]


SHAPES = [(1, 1), (5, 3), (8, 8), (9, 9), (13, 2), (16, 16), (33, 17), (40, 33), (64, 64), (70, 70)]


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_against_its_twin(n, k):
    A = np.random.default_rng(n).standard_normal((n, k))
    spread, L, order, pivots = factors(A)
    twin, rows, expected = naive.eliminate(A)
    assert order[:k].tolist() == rows
    error = tolerance(np.float64, n, 1) * np.linalg.cond(A)
    np.testing.assert_allclose(pivots, expected, rtol=error)
    np.testing.assert_allclose(L, twin, atol=error)
    assert spread == pytest.approx(math.log(np.abs(A).max() / pivots.min()), abs=1e-12)


@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), k=st.integers(1, 40))
def test_the_panel_is_its_factors(seed, n, k):
    """L is a unit triangle with entries of at most 1, and L U is A row by row."""
    rng = np.random.default_rng(seed)
    k = min(n, k)
    A = rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-6, 6, (n, 1))
    spread, L, order, pivots = factors(A)
    if not spread < np.inf:
        return
    assert np.array_equal(L[order[:k]], np.tril(L[order[:k]], -1) + np.eye(k))
    assert np.abs(L).max() <= 1.0 + 2.0**-30
    U = np.linalg.solve(L[order[:k]], A[order[:k]])
    np.testing.assert_allclose(np.abs(np.diagonal(U)), pivots, rtol=1e-6)
    size = np.abs(L) @ np.abs(np.triu(U)) + np.abs(A)
    assert (np.abs(L @ np.triu(U) - A) <= tolerance(np.float64, n, 1) * size).all()


def test_against_fractions():
    A = np.random.default_rng(3).integers(-9, 10, (12, 12)).astype(float)
    _, _, order, pivots = factors(A)
    left = [[Fraction(int(v)) for v in A[i]] for i in order]
    for i in range(12):
        assert pivots[i] == pytest.approx(float(abs(left[i][i])), rel=1e-12)
        for j in range(i + 1, 12):
            factor = left[j][i] / left[i][i]
            assert abs(factor) <= 1
            left[j] = [a - factor * b for a, b in zip(left[j], left[i], strict=True)]


def test_small_rows_keep_their_digits():
    """Rows from 1 to 1e-120: pivots are right to the rounding of rows without their sizes."""
    rng = np.random.default_rng(2)
    rows, sizes = rng.standard_normal((20, 20)), 2.0 ** -np.round(np.linspace(0, 400, 20))
    spread, _, order, pivots = factors(rows * sizes[:, None])
    assert spread > 400 * math.log(2.0) - 10
    exact = [[Fraction(float(v)) for v in rows[i] * sizes[i]] for i in order]
    for i in range(20):
        expected = float(abs(exact[i][i]) / Fraction(float(sizes[order[i]])))
        found = pivots[i] / sizes[order[i]]
        assert found == pytest.approx(expected, rel=1e3 * tolerance(np.float64, 20, 1))
        for j in range(i + 1, 20):
            factor = exact[j][i] / exact[i][i]
            exact[j] = [a - factor * b for a, b in zip(exact[j], exact[i], strict=True)]


@pytest.mark.parametrize("k", [3, 12])
def test_refusals(k):
    B = np.random.default_rng(0).standard_normal((15, k))
    assert factors(B)[0] < np.inf
    assert factors(B, limit=math.exp(factors(B)[0]) * 0.9)[0] == np.inf
    for value in (0.0, np.nan, np.inf):
        bad = B.copy()
        bad[:, k - 2] = value
        assert factors(bad)[0] == np.inf
    bad = B.copy()
    bad[:, k - 1] = bad[:, 0] * (1 + 4 * EPS)  # a pivot lost in rounding
    assert factors(bad)[0] == np.inf
    bad = B[:k].copy()
    bad[k // 2] *= 2.0**-1000  # products of the row may underflow
    assert factors(bad)[0] == np.inf


def test_growth_is_refused():
    """Wilkinson's matrix: its last column doubles at every step."""
    for n, taken in ((10, True), (40, False)):
        A = np.eye(n) - np.tril(np.ones((n, n)), -1)
        A[:, -1] = 1.0
        spread, _, _, pivots = factors(A)
        assert (spread < np.inf) == taken
        assert not taken or pivots[-1] == 2.0 ** (n - 1)


def test_a_zero_pivot_found_late_and_ties():
    assert factors(np.ones((9, 9)))[0] == np.inf
    _, L, order, pivots = factors(np.eye(11)[::-1].copy())
    assert order.tolist() == list(range(11))[::-1]
    assert np.array_equal(L, np.eye(11)[::-1])
    assert (pivots == 1.0).all()
    # of equal entries the upper one
    assert factors(np.array([[1.0, 0.0], [-1.0, 1.0], [1.0, 5.0]]))[2].tolist()[0] == 0


# --- each word of vectors beside its twin in NumPy -----------------------------------------------


def arrays(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((3, 24, 8)), rng.permutation(24), rng.standard_normal((24, 8))


@numba.njit
def left(L, order, P, U, rows, columns):
    for i in range(0, 24, tiles.ROWS):
        pivoting.left_rows(L, 192, 2, order, i, P, 384, U, rows)
        pivoting.left_columns(L, 192, 2, order, i, P, 384, U, columns, 24, i)


@numba.njit
def pivot(columns, alive, chosen, pivots):
    pivoting.pivot_columns(columns, 24, 24, alive, chosen, pivots, 3)


@numba.njit
def to_rows(columns, order, P):
    pivoting.to_rows(columns, 24, 16, order, 8, P, 192)


@numba.njit
def row_sizes(P, sizes):
    pivoting.row_sizes(P, 3, 24, sizes)


@needs_jit
def test_rows_less_what_came_before():
    (L, order, U), P = arrays(0), arrays(1)[0]
    rows, columns, plain, across = (np.zeros(shape) for shape in [(24, 8), (8, 24)] * 2)
    left(L, order, P, U, rows, columns)
    for i in range(0, 24, tiles.ROWS):
        pivoting._plain_left_rows(L, 192, 2, order, i, P, 384, U, plain)
        pivoting._plain_left_columns(L, 192, 2, order, i, P, 384, U, across, 24, i)
    assert np.array_equal(columns, rows.T)
    assert np.array_equal(across, plain.T)
    np.testing.assert_allclose(rows, plain, atol=100 * EPS)


@needs_jit
def test_pivots_of_columns():
    for seed in range(20):
        columns = np.random.default_rng(seed).standard_normal((8, 24))
        if seed % 2:
            columns = np.round(columns)  # ties and zeros
        twin = columns.copy()
        results = [(np.zeros(24, int), np.zeros(8, int), np.zeros(11)) for _ in range(2)]
        pivot(columns, *results[0])
        pivoting._plain_pivot_columns(twin, 24, 24, *results[1], 3)
        np.testing.assert_allclose(columns, twin, atol=1e4 * EPS)
        np.testing.assert_allclose(results[0][2], results[1][2], atol=1e4 * EPS)
        for i in range(2):
            assert np.array_equal(results[0][i], results[1][i])


@needs_jit
def test_rows_put_back_and_their_sizes():
    (P, order, U), twin, sizes = arrays(2), arrays(2)[0], np.zeros((2, 24))
    to_rows(np.ascontiguousarray(U.T), order, P)
    pivoting._plain_to_rows(np.ascontiguousarray(U.T), 24, 16, order, 8, twin, 192)
    assert np.array_equal(P, twin)
    row_sizes(P, sizes[0])
    pivoting._plain_row_sizes(twin, 3, 24, sizes[1])
    assert np.array_equal(sizes[0], sizes[1])
