"""Householder QR in strips against NumPy, in many digits, and on rows of very different size."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels import householder, stripqr
from gradprop.lyapunov.growth import in_strips

EPS = float(np.finfo(np.float64).eps)


def qr(A):
    """Q (n, k) and R (k, k) by the kernels."""
    n, k = A.shape
    P = in_strips(A)
    V, T = np.full_like(P, np.nan), np.full((len(P), 8, 8), np.nan)
    householder.factorise(P, k, V, T)
    rows = np.empty((n, k))
    stripqr.from_strips(P, rows)
    upper = np.triu(rows[:k])
    householder.form(V, T, k, P)
    Q = np.empty((n, k))
    stripqr.from_strips(P, Q)
    return Q, upper


@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), k=st.integers(1, 40))
def test_against_numpy(seed, n, k):
    rng = np.random.default_rng(seed)
    k = min(n, k)
    A = rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-3, 3, k)
    A[rng.random((n, k)) < rng.choice([0.0, 0.5])] = 0.0
    Q, upper = qr(A)
    size = tolerance(np.float64, n, 1) * np.linalg.norm(A, axis=0)
    assert (np.linalg.norm(Q @ upper - A, axis=0) <= size).all()
    np.testing.assert_allclose(Q.T @ Q, np.eye(k), atol=tolerance(np.float64, n, 1))
    expected = np.linalg.qr(A)[1]
    if np.linalg.matrix_rank(A) == k:
        error = np.linalg.cond(A / np.linalg.norm(A, axis=0)) * size.max()
        assert (np.abs(np.abs(np.diagonal(upper)) - np.abs(np.diagonal(expected))) <= error).all()


@pytest.mark.parametrize("size", [1e-200, 1e-300, 1e150, 1.0])
def test_sizes_whose_squares_leave_the_range_of_floats(size):
    A = np.random.default_rng(1).standard_normal((11, 10))
    A[:, 3:] *= 2.0**-1000 if size == 1e-300 else 1.0
    Q, upper = qr(A * size if size != 1e-300 else A)
    expected = np.abs(np.diagonal(np.linalg.qr(A[:, :3])[1]))
    scale = size if size != 1e-300 else 1.0
    np.testing.assert_allclose(np.abs(np.diagonal(upper))[:3], expected * scale, rtol=1e-13)
    np.testing.assert_allclose(Q.T @ Q, np.eye(10), atol=tolerance(np.float64, 11, 1))


def test_sorted_rows_are_right_row_by_row():
    """Rows from 1 to 1e-120: each is kept to rounding of its own size (Cox, Higham 1998)."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((20, 20)) * 10.0 ** -np.linspace(0, 120, 20)[:, None]
    Q, upper = qr(A)
    with mpmath.workdps(300):
        exact = mpmath.qr(mpmath.matrix(A.tolist()))[1]
        expected = np.array([float(mpmath.log(abs(exact[i, i]))) for i in range(20)])
    found = np.log(np.abs(np.diagonal(upper)))
    # condition of the rows without their sizes, times the growth of entries
    assert np.abs(found - expected).max() <= 1e4 * tolerance(np.float64, 20, 1)
    assert np.abs(Q.T @ Q - np.eye(20)).max() <= tolerance(np.float64, 20, 1)


def test_triangles_and_zero_columns_stay_exact():
    A = np.triu(np.random.default_rng(3).standard_normal((12, 12)))
    Q, upper = qr(A)
    assert np.array_equal(Q, np.eye(12))
    assert np.array_equal(upper, A)
    A[:, 5] = 0.0
    assert qr(A)[1][5, 5] == 0.0
