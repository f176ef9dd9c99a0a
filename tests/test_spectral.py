"""Spectral radius, spectral norm and rescaling against exact and 40-digit values."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import threadpoolctl
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from gradprop import spectral
from gradprop.spectral import rescale, spectral_norm, spectral_radius

EPS = float(np.finfo(np.float64).eps)


def naive_norm(W):
    """Square root of the largest eigenvalue of WᵀW in 40 digits."""
    with mp.workdps(40):
        A = mp.matrix(np.asarray(W, float).tolist())
        return float(mp.sqrt(max(mp.eigsy(A.T * A, eigvals_only=True))))


def naive_radius(W):
    """Largest magnitude of the eigenvalues in 40 digits."""
    if len(W) == 1:  # mpmath 1.3 returns another kind of list for a single eigenvalue
        return float(abs(W[0, 0]))
    with mp.workdps(40):
        values = mp.eig(mp.matrix(np.asarray(W, float).tolist()), left=False, right=False)
        return float(max(abs(value) for value in values))


def ginibre(n, seed=0, size=()):
    return np.random.default_rng(seed).standard_normal((*size, n, n)) / np.sqrt(n)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_equals_forty_digits_for_any_layout(n):
    batch = ginibre(n, seed=n, size=(2, 3))
    strided = np.zeros((2, 3, 2 * n, 3 * n))[..., ::2, ::3]
    strided[...] = batch
    for W in (batch, np.asfortranarray(batch), strided):
        radius, norm = spectral_radius(W), spectral_norm(W)
        assert radius.shape == norm.shape == W.shape[:-2]
        for index in np.ndindex(radius.shape):
            # eigenvalues of such small matrices have conditions of at most some tens
            assert radius[index] == pytest.approx(naive_radius(W[index]), rel=50 * n * EPS)
            assert norm[index] == pytest.approx(
                naive_norm(W[index]), rel=tolerance(np.float64, n, 1)
            )
    assert_array_equal(spectral_radius(strided), spectral_radius(batch))
    assert_array_equal(spectral_norm(np.asfortranarray(batch)), spectral_norm(batch))


def test_p026_norm_and_radius_of_a_defective_matrix_are_different_numbers():
    W = [[3, 3], [0, 3]]
    assert spectral_radius(W) == 3.0
    assert spectral_norm(W) == pytest.approx(4.854101966249685, rel=4 * EPS)


def test_p033_the_matrix_on_which_arnoldi_fails_at_random():
    W = [
        (-0.33321168, -0.42988738, 1.04294134, -0.95111649),
        (0.26497105, -1.17402227, 0.64698876, 0.69501389),
        (-0.61462702, -0.78338991, -0.69106617, 0.47770545),
        (-1.35006014, -0.25615259, -0.69010069, -0.82230465),
    ]
    values = {float(spectral_radius(W)) for _ in range(20)}
    assert len(values) == 1
    assert values.pop() == pytest.approx(1.47104094, abs=5e-9)
    assert spectral_norm(W) == pytest.approx(2.0, abs=1e-8)


def test_p036_radius_is_a_real_float_whatever_the_eigenvalues():
    rotation = 0.9 * np.array([[0, -1], [1, 0]])
    mixed = np.stack([rotation, np.diag([0.5, -0.9]), np.zeros((2, 2))])
    assert isinstance(spectral_radius(rotation), float)
    assert spectral_radius(rotation) == pytest.approx(0.9, rel=4 * EPS)
    for W in (mixed, mixed[:1], mixed[1:]):
        assert spectral_radius(W).dtype == np.float64
    np.testing.assert_allclose(spectral_radius(mixed), [0.9, 0.9, 0.0], rtol=4 * EPS)


def test_p053_a_radius_of_zero_cannot_be_rescaled():
    with pytest.raises(ValueError, match="spectral radius is zero"):
        rescale([[0, 1], [0, 0]], spectral_radius=0.9)
    with pytest.raises(ValueError, match=r"spectral radius is zero \(matrix \(1, 0\)\)"):
        rescale([[np.eye(2)], [np.zeros((2, 2))]], spectral_radius=0.9)
    with pytest.raises(ValueError, match="spectral norm is zero"):
        rescale(np.zeros((3, 3)), spectral_norm=1.0)


def test_p056_same_input_gives_the_same_bits():
    rng = np.random.default_rng(56)
    W = rng.standard_normal((500, 500)) * (rng.random((500, 500)) < 0.1)
    with threadpoolctl.threadpool_limits(1):
        first = spectral_radius(W), spectral_norm(W)
    with threadpoolctl.threadpool_limits(2):
        assert (spectral_radius(np.asfortranarray(W)), spectral_norm(W.copy())) == first


def test_p057_rescaling_to_another_radius_changes_the_matrix():
    W = np.array([[0.0, 2.0], [3.0, 0.0]])
    assert spectral_radius(W) == pytest.approx(2.449489743, abs=5e-10)
    after = rescale(W, spectral_radius=0.9)
    np.testing.assert_allclose(after, [[0, 0.73484692], [1.10227038, 0]], atol=5e-9)
    assert spectral_radius(after) == pytest.approx(0.9, rel=1e-15)
    assert_array_equal(W, [[0.0, 2.0], [3.0, 0.0]])


def test_p059_radius_below_one_is_no_guarantee_of_decay():
    J = np.array([[0.9, 50.0], [0.0, 0.9]])
    assert spectral_radius(J) == 0.9

    def norm(lag):
        return spectral_norm(np.linalg.matrix_power(J, lag))

    assert norm(9) == pytest.approx(193.711, abs=5e-4)
    assert norm(50) == pytest.approx(14.316, abs=5e-4)
    assert norm(200) == pytest.approx(7.839e-6, abs=5e-10)
    below = next(lag for lag in range(1, 200) if norm(lag) < 1)
    assert 78 <= below <= 84


def test_p016_norms_of_huge_and_tiny_entries():
    for size in (1e200, 1e-200, 1e300, 1e-300):
        W = np.full((2, 2), size)
        assert spectral_norm(W) == pytest.approx(2 * size, rel=4 * EPS)
        assert spectral_radius(W) == pytest.approx(2 * size, rel=4 * EPS)
    assert spectral_norm([[1e200, 0], [1e200, 0]]) == pytest.approx(np.sqrt(2) * 1e200, rel=1e-15)
    smallest = 5e-324
    assert spectral_norm([[smallest]]) == spectral_radius([[-smallest]]) == smallest


def test_values_beyond_the_largest_float_are_inf_and_still_rescale():
    W = np.full((3, 3), 1e308)
    assert spectral_norm(W) == spectral_radius(W) == np.inf
    np.testing.assert_allclose(rescale(W, spectral_radius=0.9), 0.3, rtol=8 * EPS)
    np.testing.assert_allclose(rescale(W * 1e-308 * 1e-320, spectral_norm=0.9), 0.3, rtol=1e-3)


@pytest.mark.parametrize("spread", [300, 900])
def test_radius_survives_similarities_out_of_range(spread):
    # D W D⁻¹ has the eigenvalues of W; plain LAPACK scales by the largest entry and loses the rest
    W = ginibre(12, seed=3)
    D = np.random.default_rng(1).integers(-spread // 2, spread // 2, 12)
    with np.errstate(over="raise", under="raise"):
        hidden = np.ldexp(W, D[:, None] - D)
    assert spectral_radius(hidden) == pytest.approx(spectral_radius(W), rel=1e-13)


def test_radius_of_matrices_with_extreme_entries():
    assert spectral_radius([[0, 1e300], [1e-300, 0]]) == pytest.approx(1.0, rel=4 * EPS)
    assert spectral_radius([[1e-300, 1e300], [0, 1e-300]]) == 1e-300
    assert spectral_radius([[0, 1e300], [0, 0]]) == 0
    # a 2-cycle of radius 3, a tail into it, and an entry that only feeds it
    W = np.zeros((4, 4))
    W[0, 1], W[1, 0], W[2, 0], W[1, 3], W[3, 3] = 9e250, 1e-250, 1e300, 1e-300, 2.0
    assert spectral_radius(W) == pytest.approx(3.0, rel=4 * EPS)


def test_nilpotent_matrices_of_small_integers_have_radius_zero():
    assert spectral_radius(1.5 * np.array([[1, -1], [1, -1]])) == 0
    assert spectral_radius(np.outer([1, 2, 3], [1, 1, -1])) == 0
    hidden = np.array([[2, 2, -2], [5, 1, -3], [1, 5, -3]])
    assert not np.linalg.matrix_power(hidden, 3).any()
    assert spectral_radius(hidden) == 0
    with pytest.raises(ValueError, match="spectral radius is zero"):
        rescale(hidden, spectral_radius=1.0)
    # small but not zero, and not to be taken for it
    assert spectral_radius([[1e-9, 1], [0, 1e-9]]) == 1e-9
    tiny = spectral_radius([[1, 1e3], [-1e-3 * (1 - 1e-9), -1]])
    assert tiny == pytest.approx(np.sqrt(1e-9), rel=1e-6)
    # here the square underflows, which proves nothing
    W = np.zeros((3, 3))
    W[0, 0] = W[1, 1] = 2.0**-390
    W[0, 1] = 2.0**390
    assert spectral_radius(W) == 2.0**-390


def test_computed_radius_of_a_strongly_nonnormal_matrix_is_inaccurate_as_documented():
    # Jordan block of size 8, eigenvalue 0.9, hidden by a rotation: off by up to (eps ‖W‖)^(1/8)
    jordan = 0.9 * np.eye(8) + np.eye(8, k=1)
    assert spectral_radius(jordan) == 0.9
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    error = abs(spectral_radius(Q @ jordan @ Q.T) - 0.9)
    assert 1e-4 < error < 3 * EPS ** (1 / 8)


def test_exact_cases():
    assert spectral_radius([[-5.0]]) == spectral_norm([[-5.0]]) == 5.0
    assert spectral_radius(np.eye(4)) == spectral_norm(np.eye(4)) == 1.0
    assert spectral_radius(np.zeros((4, 4))) == spectral_norm(np.zeros((4, 4))) == 0.0
    assert spectral_norm([[0, 2], [0, 0]]) == 2.0
    assert spectral_radius([[2, 1], [1, 1]]) == pytest.approx((3 + 5**0.5) / 2, rel=4 * EPS)
    assert spectral_radius(np.array([[1, 2], [3, 4]], np.int8)) == pytest.approx(
        (5 + 33**0.5) / 2, rel=4 * EPS
    )
    single = ginibre(5).astype(np.float32)
    assert spectral_radius(single) == spectral_radius(single.astype(np.float64))


def test_batch_equals_loop():
    batch = ginibre(6, seed=2, size=(2, 3))
    batch[1, 2] *= 1e-200
    for function in (spectral_radius, spectral_norm):
        loop = [[function(W) for W in row] for row in batch]
        assert_array_equal(function(batch), loop)
    loop = [[rescale(W, spectral_norm=0.5) for W in row] for row in batch]
    assert_array_equal(rescale(batch, spectral_norm=0.5), loop)


def test_rescale_broadcasts_over_targets():
    targets = np.linspace(0.5, 1.5, 21)
    many = rescale(ginibre(9), spectral_radius=targets)
    assert many.shape == (21, 9, 9)
    np.testing.assert_allclose(spectral_radius(many), targets, rtol=1e-13)
    pairs = rescale(ginibre(9, size=(2,)), spectral_norm=targets[:, None])
    assert pairs.shape == (21, 2, 9, 9)
    np.testing.assert_allclose(
        spectral_norm(pairs), np.broadcast_to(targets[:, None], (21, 2)), rtol=1e-13
    )
    assert not rescale(np.eye(3), spectral_radius=0.0).any()


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(-500, 500))
def test_laws(seed, n, power):
    W = ginibre(n, seed)
    radius, norm = spectral_radius(W), spectral_norm(W)
    assert radius <= norm * (1 + tolerance(np.float64, n, 1))
    # powers of two only move exponents
    assert spectral_norm(np.ldexp(W, power)) == np.ldexp(norm, power)
    Q = np.linalg.qr(ginibre(n, seed + 1))[0]
    assert spectral_norm(Q @ W) == pytest.approx(norm, rel=tolerance(np.float64, n, 2))
    symmetric = W + W.T
    assert spectral_radius(symmetric) == pytest.approx(
        spectral_norm(symmetric), rel=tolerance(np.float64, n, 2)
    )
    assert spectral_norm(rescale(W, spectral_norm=0.7)) == pytest.approx(
        0.7, rel=tolerance(np.float64, n, 2)
    )


NAN = np.eye(3)
NAN[1, 2] = np.nan


@pytest.mark.parametrize("function", [spectral_radius, spectral_norm])
@pytest.mark.parametrize(
    ("W", "error", "message"),
    [
        (NAN, ValueError, r"`W` must be finite; got nan at index \(1, 2\)"),
        (
            [[[1.0, np.inf], [0, 1]]],
            ValueError,
            r"`W` must be finite; got inf at index \(0, 0, 1\)",
        ),
        (np.zeros((3, 4)), ValueError, r"`W` must be square; got shape \(3, 4\)"),
        (np.zeros(3), ValueError, r"`W` must have shape .*; got shape \(3,\)"),
        (1.0, ValueError, r"`W` must have shape .*; got shape \(\)"),
        (np.zeros((0, 0)), ValueError, r"`W` must not be empty"),
        ([[1, 2], [3]], ValueError, r"`W` must be a regular array"),
        (np.eye(2) * 1j, TypeError, r"`W` must be real; got dtype complex128"),
        (np.eye(2).astype(object), TypeError, r"`W` must hold numbers; got dtype object"),
        ([["1,5"]], TypeError, r"`W` must hold numbers; got dtype <U3"),
        (np.eye(2, dtype=np.longdouble), TypeError, r"at most double precision"),
    ],
)
def test_bad_matrices_are_named(function, W, error, message):
    with pytest.raises(error, match=message):
        function(W)
    with pytest.raises(error, match=message):
        rescale(W, **{function.__name__: 1.0})


def test_too_large_for_dense_eigenvalues(monkeypatch):
    with pytest.raises(ValueError, match=r"at most 2048 units.*got n = 2049.*spectral_norm"):
        spectral_radius(np.eye(2049))
    monkeypatch.setattr(spectral, "LARGEST_N", 3)
    assert spectral_radius(np.eye(3)) == 1.0
    with pytest.raises(ValueError, match=r"at most 3 units"):
        rescale(np.eye(4), spectral_radius=1.0)
    assert spectral_norm(np.eye(4)) == 1.0


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        ({}, ValueError, "exactly one of .* must be given; got neither"),
        (
            {"spectral_radius": 1.0, "spectral_norm": 1.0},
            ValueError,
            "exactly one .* got spectral_radius and spectral_norm",
        ),
        ({"spectral_radius": -0.5}, ValueError, "`spectral_radius` must not be negative; got -0.5"),
        ({"spectral_norm": np.nan}, ValueError, "`spectral_norm` must be finite"),
        ({"spectral_norm": "1"}, TypeError, "`spectral_norm` must hold numbers"),
        ({"spectral_norm": np.ones(3)}, ValueError, r"must broadcast; got `W` \(2,\)"),
    ],
)
def test_bad_targets_are_named(targets, error, message):
    with pytest.raises(error, match=message):
        rescale(np.stack([np.eye(2), [[1.0, 1.0], [1.0, -1.0]]]), **targets)


def test_a_result_that_would_overflow_is_refused():
    # radius 1 beside an entry of 1e300
    with pytest.raises(ValueError, match="an entry would overflow"):
        rescale([[0.0, 1e300], [1e-300, 0.0]], spectral_radius=1e10)
