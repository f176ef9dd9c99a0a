"""Largest singular values: enclosed by exact arithmetic, on families made to mislead."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from chains import FAMILIES, random_chain, random_orthogonal
from exact import integer_matrix
from helpers import layouts, same, tolerance
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import gradprop.largest
from gradprop._kernels import largest as kernels
from gradprop._kernels.products import renormalise
from gradprop.largest import largest_singular_values

EPS = float(np.finfo(np.float64).eps)


def bound(A, c=4.0):
    """What is promised: 4 max(n, p) eps."""
    return tolerance(np.float64, max(A.shape[-2:]), 1, c=c)


def exceeds(A, value):
    """Whether ||A||_2 > value: whether value^2 - A A^T has a pivot <= 0, in 60 digits."""
    integers, exponent = integer_matrix(A)
    N = np.array(integers, dtype=object)
    with mpmath.workdps(60):
        M = np.vectorize(mpmath.mpf, otypes=[object])(-(N @ N.T))
        shift = (mpmath.mpf(float(value)) * mpmath.mpf(2) ** -exponent) ** 2
        M[np.diag_indices(len(M))] += shift
        while len(M):
            if M[0, 0] <= 0:
                return True
            M = M[1:, 1:] - np.multiply.outer(M[1:, 0] / M[0, 0], M[0, 1:])
    return False


def assert_enclosed(A, sigma=None):
    """The value lies within the promise of the truth, on both sides."""
    sigma = largest_singular_values(A) if sigma is None else sigma
    assert exceeds(A, sigma * (1 - bound(A)))
    assert not exceeds(A, sigma * (1 + bound(A)))


def with_values(s, seed, first=None):
    """U diag(s) V^T with random U, V; the first column of U is `first` if given."""
    rng = np.random.default_rng(seed)
    n = len(s)
    U, V = random_orthogonal(rng, n), random_orthogonal(rng, n)
    if first is not None:
        U = np.linalg.qr(np.column_stack([first, U[:, 1:]]))[0]
    return U * s @ V.T


def spread_values(n, gap):
    """1, then two values within the relative gap, then a spectrum below 1/2."""
    s = np.linspace(0.5, 0.01, n)
    s[:3] = 1, 1 - gap / 2, 1 - gap
    return s


def misleading(n):
    rng = np.random.default_rng(n)
    Q = random_orthogonal(rng, n)
    ones = np.zeros((n, n))
    half = n // 2
    ones[:half, :half] = ones[half : 2 * half, half : 2 * half] = 1 / half
    return {
        "orthogonal": Q,
        "permutation": np.eye(n)[rng.permutation(n)],
        "reflection": np.eye(n) - 2 / n,
        "all within 1e-12": with_values(1 - 1e-12 * rng.random(n), n),
        "all within 1e-6": with_values(1 - 1e-6 * rng.random(n), n),
        "two equal blocks": ones,
        "two values": with_values(np.r_[1, 1 - 1e-13, np.zeros(n - 2)], n),
        "diagonal": np.diag(np.r_[1, 1 - 1e-13, np.linspace(0, 0.9, n - 2)])[::-1],
        "graded rows": 10.0 ** -np.linspace(0, 300, n)[:, None] * Q,
        "graded columns": 10.0 ** -np.linspace(0, 300, n) * Q,
        "second difference": 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1),
        "jordan": 0.9 * np.eye(n) + np.eye(n, k=1),
        "hilbert": 1 / (1.0 + np.arange(n)[:, None] + np.arange(n)),
        "signs": np.sign(rng.standard_normal((n, n))),
    }


@pytest.mark.parametrize("n", [5, 14])
@pytest.mark.parametrize("name", misleading(5))
def test_misleading_matrices_are_enclosed(name, n):
    A = misleading(n)[name]
    assert_enclosed(A)
    assert_enclosed(A.T)


@pytest.mark.parametrize("n", [5, 16])
@pytest.mark.parametrize("digits", range(1, 16))
def test_clusters_are_enclosed(digits, n):
    assert_enclosed(with_values(spread_values(n, 10.0**-digits), digits))


@pytest.mark.parametrize("digits", [2, 10, 14])
def test_clusters_of_larger_matrices_are_enclosed(digits):
    assert_enclosed(with_values(spread_values(40, 10.0**-digits), digits))


@pytest.mark.parametrize(
    "shape",
    [
        *((1, 1), (5, 1), (1, 5), (3, 2), (2, 3, 7, 7), (2, 2, 12, 12), (3, 16, 30), (3, 30, 16)),
        *((4, 64, 64), (2, 65, 65), (1, 70, 90)),
    ],
)
@pytest.mark.parametrize("lag", [0, 30])
def test_equals_svd_for_any_shape(shape, lag):
    rng = np.random.default_rng(shape[-1] + lag)
    A = rng.standard_normal(shape) * np.exp(rng.standard_normal((*shape[:-1], 1)))
    for _ in range(lag):
        A = rng.standard_normal((*shape[:-1], shape[-2])) @ A / np.sqrt(shape[-2])
    sigma = largest_singular_values(A)
    assert sigma.shape == shape[:-2]
    if shape[-2] != shape[-1]:
        assert same(largest_singular_values(A.swapaxes(-2, -1)), sigma)
    # their error and ours, both 4 max(n, p) eps
    assert_allclose(sigma, np.linalg.svd(A, compute_uv=False)[..., 0], rtol=bound(A, 8.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_products_of_chains_at_every_lag(family):
    n, T = 16, 200
    J = random_chain(np.random.default_rng(3), family, T, n)
    P, products = np.eye(n), []
    for J_k in J:
        P = J_k @ P
        renormalise(P)
        products.append(P)
    stack = np.array(products)
    sigma = largest_singular_values(stack)
    assert_allclose(sigma, np.linalg.svd(stack, compute_uv=False)[:, 0], rtol=bound(stack, 8.0))
    for lag in (1, 3, 20, 200):
        assert_enclosed(stack[lag - 1], sigma[lag - 1])


@pytest.mark.parametrize("n", [12, 28])
@pytest.mark.parametrize(
    "others",
    [
        lambda n: np.full(n - 1, 0.999),
        lambda n: np.linspace(0.99, 0, n - 1),
        lambda n: 0.9 * 0.01 ** np.arange(n - 1.0),  # the second value dominates what Lanczos sees
        lambda n: np.r_[1 - 1e-6, np.linspace(0.5, 0, n - 2)],
        lambda n: np.r_[1 - 1e-13, np.zeros(n - 2)],
    ],
    ids=["flat", "linear", "dominated", "close", "closest"],
)
def test_a_start_vector_that_misses_the_value_costs_the_proof_but_not_the_value(n, others):
    start = np.empty(n)
    kernels.start_vector(start)
    top = np.random.default_rng(n).standard_normal(n)
    top -= start * (start @ top)
    top /= np.linalg.norm(top)
    assert abs(start @ top) < 4 * EPS
    for seed in range(3):
        A = with_values(np.r_[1.0, others(n)], seed, first=top)
        sigma = np.full(1, np.nan)
        kernels.largest_by_lanczos(A[None], sigma)
        # nan is right too: the wrapper then asks LAPACK
        assert np.isnan(sigma[0]) or abs(sigma[0] - 1) <= bound(A)
        assert_enclosed(A)


def test_the_same_when_nothing_at_all_of_the_value_is_seen():
    # the start vector has exact zeros where the largest values live: G leaves them zero
    n, seen = 24, 14
    G, M = np.empty((n, n)), np.empty((n, n))
    for values in (np.linspace(0.9, 0.1, seen), 0.9 * 0.01 ** np.arange(seen), np.full(seen, 0.9)):
        A = np.zeros((n, n))
        A[:seen, :seen] = with_values(values, seed=1)
        V = np.zeros((2 * n + 1, n))
        kernels.start_vector(V[0, :seen])
        assert kernels._largest(A, V, G, M) == pytest.approx(0.9, rel=bound(A))
        A[seen:, seen:] = np.eye(n - seen)
        assert np.isnan(kernels._largest(A, V, G, M))
        assert largest_singular_values(A) == pytest.approx(1.0, rel=bound(A))


def test_the_kernel_proves_what_it_is_there_for():
    rng = np.random.default_rng(0)
    gaussian = rng.standard_normal((20, 64, 64)) / 8
    scaled = gaussian * np.cosh(rng.standard_normal((20, 64, 1))) ** -2
    product = scaled.copy()
    for k in range(20):
        product = scaled[(np.arange(20) + k) % 20] @ product
    close = np.array([with_values(spread_values(64, gap), 1) for gap in (1e-2, 1e-6, 1e-10, 1e-13)])
    large = rng.standard_normal((2, 130, 140)) / 12
    product /= np.abs(product).max()
    for stack in (gaussian, scaled, product, close, large, np.eye(64)[None]):
        sigma = np.full(len(stack), np.nan)
        kernels.largest_by_lanczos(np.ascontiguousarray(stack), sigma)
        assert not np.isnan(sigma).any()


def test_matrices_whose_value_is_known():
    zero = np.zeros((3, 20, 20))
    assert same(largest_singular_values(zero), np.zeros(3))
    assert same(largest_singular_values(zero[:, :2, :3]), np.zeros(3))
    assert largest_singular_values(np.array([[-3.5]])) == 3.5
    assert largest_singular_values(np.zeros((0, 20, 20))).shape == (0,)
    assert same(largest_singular_values(np.zeros((2, 0, 4))), np.zeros(2))
    for n in (2, 12, 20, 70):
        assert largest_singular_values(np.eye(n)) == pytest.approx(1, rel=bound(np.eye(n)))
        u, v = np.arange(1.0, n + 1), np.arange(2.0, n + 2)
        exact = mpmath.sqrt(int(u @ u) * int(v @ v))
        rank_one = np.outer(u, v)
        assert largest_singular_values(rank_one) == pytest.approx(float(exact), rel=bound(rank_one))


@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("exponent", [-1060, -1000, -300, -150, 150, 300, 1000])
def test_entries_of_any_size(n, exponent):
    A = np.random.default_rng(n).integers(-99, 100, (n, n)).astype(float)
    scaled = np.ldexp(A, exponent)
    assert_allclose(
        np.ldexp(largest_singular_values(scaled), -exponent),
        largest_singular_values(A),
        # subnormal values carry fewer digits
        rtol=bound(A, 8.0) + 2.0 ** (-1074 - exponent),
    )


@pytest.mark.parametrize("n", [3, 20])
def test_bits_do_not_depend_on_stack_layout_or_chunks(n, monkeypatch):
    A = np.random.default_rng(n).standard_normal((2, 3, n, n))
    A[1, 1] = with_values(spread_values(n, 1e-9), n)
    expected = largest_singular_values(A)
    for name, value in layouts(A).items():
        before = value.copy()
        assert same(largest_singular_values(value), expected), name
        assert same(value, before)
    alone = [[largest_singular_values(M) for M in row] for row in A]
    assert same(alone, expected)
    monkeypatch.setattr(gradprop.largest, "WORK", 2.5 * (n + 16) ** 3)
    assert same(largest_singular_values(A), expected)


@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_named(n, bad):
    A = np.ones((4, n + 1, n))
    A[2, 1, 0] = bad
    with pytest.raises(ValueError, match=rf"`A` must be finite; got {bad} at index \(2, 1, 0\)"):
        largest_singular_values(A)


# --- the parts of the proof -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (64, 64), (65, 70), (200, 200)])
def test_gram_matrix_and_its_norm(shape):
    A = np.random.default_rng(1).standard_normal(shape)
    G = np.full((shape[0], shape[0]), np.nan)
    norm = kernels._gram(A, G)
    assert_allclose(G, A @ A.T, rtol=0, atol=tolerance(np.float64, shape[1], 1) * np.max(A @ A.T))
    assert norm == pytest.approx(np.linalg.norm(G), rel=tolerance(np.float64, shape[0], 1))


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 8))
def test_excess_bounds_every_unit_vector(seed, n, closeness):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n + 1, n + 1))
    G = B @ B.T
    values, Q = np.linalg.eigh(G)
    y = Q[:, -1] + 10.0**-closeness * rng.standard_normal(n + 1)
    basis = np.linalg.qr(np.column_stack([y, Q[:, :-1]]))[0]
    inside = basis.T @ G @ basis
    theta, r = inside[0, 0], np.linalg.norm(inside[1:, 0])
    rest = np.linalg.eigvalsh(inside[1:, 1:])[-1]
    rounding = tolerance(np.float64, n + 1, 1) * np.trace(G)
    assert theta + kernels.excess(theta, r, rest) >= values[-1] - rounding
    assert kernels._rest(theta, np.trace(G), False) >= rest - rounding
    # near rank one the square root doubles the exponent of rounding
    square = np.linalg.norm(G)
    assert kernels._rest(theta, square, True) >= rest - np.sqrt(rounding * square)


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 20))
def test_excess_is_the_root(theta, r, h):
    e = kernels.excess(theta, r, h)
    assert e >= max(0.0, (h - theta) * (1 - 4 * EPS))
    assert e * (e + theta - h) == pytest.approx(r * r, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", [12, 20, 70])
def test_a_wrong_singular_vector_is_proved_only_within_half_the_promise(n):
    for units in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 1e3, 1e9):
        delta = units * n * EPS
        A = np.diag(np.r_[1 - delta, 1.0, np.full(n - 2, 1 - delta)])
        G, M, x, y, z = np.empty((n, n)), np.empty((n, n)), np.empty(n), np.eye(n)[0], np.empty(n)
        mass = kernels._gram(A, G)
        value = kernels._proved(A, G, M, True, mass, y, x, z)
        if units < 2:
            assert value == pytest.approx(1 - delta, rel=4 * EPS)
        else:
            assert np.isnan(value)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 96, 129])
def test_pivots_tell_definite_from_indefinite(n):
    rng = np.random.default_rng(n)
    S = rng.standard_normal((n, n))
    S = S + S.T
    least = np.linalg.eigvalsh(S)[0]
    for shift, expected in ((1e-11, True), (-1e-11, False), (5.0, True), (-0.4, False)):
        M = S - (least - shift * np.abs(S).sum(axis=0).max()) * np.eye(n)
        assert kernels.is_positive_definite(M) is expected
    assert not kernels.is_positive_definite(np.full((n, n), np.nan))


@pytest.mark.parametrize("k", [1, 2, 3, 20])
@pytest.mark.parametrize("decay", [0.0, 1.0, 12.0])
def test_top_ritz_value_is_the_largest_eigenvalue(k, decay):
    rng = np.random.default_rng(k)
    alpha, beta = 1 + rng.random(k), rng.random(k) * np.exp(-decay * np.arange(k))
    T = np.diag(alpha) + np.diag(beta[: k - 1], 1) + np.diag(beta[: k - 1], -1)
    expected = np.linalg.eigvalsh(T)[-1]
    for guess in (np.inf, 0.0, expected * (1 + 1e-9), expected * (1 - 1e-9)):
        value = kernels.top_ritz_value(alpha, beta, k, guess)
        assert value == pytest.approx(expected, rel=tolerance(np.float64, k, 1))
    assert kernels._number_above(alpha, beta, k, expected * (1 - 1e-9)) == 1
    assert kernels._number_above(alpha, beta, k, expected * (1 + 1e-9)) == 0
