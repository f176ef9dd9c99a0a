"""QR by LAPACK through pointers, against NumPy's and the definition."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from helpers import same, tolerance

from gradprop._kernels import factor, lapack

SHAPES = [(1, 1), (5, 5), (7, 3), (3, 7), (40, 40), (130, 130), (200, 33)]


def factors(B):
    """Q (n, r) and R (r, k) of B (n, k)."""
    n, k = B.shape
    A, upper, tau = B.T.copy(order="C"), np.empty((min(n, k), k)), np.empty(min(n, k))
    lapack.triangularise(A, upper, tau)
    lapack.form_basis(A, tau)
    return A[: min(n, k)].T, upper


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_factors(n, k):
    B = np.random.default_rng(n * k).standard_normal((n, k))
    Q, R = factors(B)
    atol = tolerance(np.float64, n, 1)
    np.testing.assert_allclose(Q @ R, B, rtol=0, atol=atol * np.linalg.norm(B))
    np.testing.assert_allclose(Q.T @ Q, np.eye(min(n, k)), rtol=0, atol=atol)
    assert not np.tril(R, -1).any()
    # NumPy calls the same routines, perhaps of another build
    R_numpy = np.linalg.qr(B, "r")
    np.testing.assert_allclose(np.abs(R), np.abs(R_numpy), atol=1e-10)
    if n >= k:
        twin, pivots = naive.gram_schmidt(B)
        atol *= np.linalg.cond(B) ** 2
        np.testing.assert_allclose(np.abs(np.diagonal(R)), pivots, rtol=atol)
        np.testing.assert_allclose(Q * np.sign(np.diagonal(R)), twin, atol=atol)


def test_dependent_columns_have_a_zero_pivot():
    Q, R = factors(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]]))
    assert R[1, 1] == 0.0
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-15)


def test_memory_around_the_arrays_is_left_alone():
    """Canaries before and behind, and no use of memory that has been freed: a thousand calls."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        n, k = rng.integers(1, 12, 2)
        whole = np.full(n * k + 16, 7.0)
        A = whole[8:-8].reshape(k, n)
        A[:] = B = rng.standard_normal((k, n))
        upper, tau = np.full((min(n, k) + 2, k), 7.0), np.full(min(n, k) + 2, 7.0)
        lapack.triangularise(A, upper[1:-1], tau[1:-1])
        lapack.form_basis(A, tau[1:-1])
        np.testing.assert_allclose(A[: min(n, k)].T @ upper[1:-1], B.T, atol=1e-13)
        for guard in (whole[:8], whole[-8:], upper[0], upper[-1], tau[[0, -1]]):
            assert (guard == 7).all()


def test_order_by_insertion_is_the_stable_one():
    rng = np.random.default_rng(1)
    for n in (1, 2, 9, 50):
        values = rng.integers(-3, 3, n).astype(float)
        values[rng.random(n) < 0.2] = -np.inf
        assert same(factor.descending(values), np.argsort(-values, kind="stable"))
