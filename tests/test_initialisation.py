"""Weight ensembles: distributions with derived bounds, radius, gain, reproducibility, options."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gradprop import _ensembles
from gradprop._ensembles import SAMPLERS
from gradprop.initialisation import initialise
from gradprop.spectral import spectral_norm, spectral_radius

NAMES = [
    "gaussian",
    "glorot_uniform",
    "glorot_normal",
    "he_normal",
    "lecun_normal",
    "torch_default",
    "orthogonal",
    "identity",
    "scaled_identity",
    "antisymmetric",
    "sparse",
    "low_rank",
    "nonnormal",
    "cyclic_shift",
    "diagonal",
]
RING = {"inner": 1.0, "rotate": True}


def test_the_fifteen_names():
    assert list(SAMPLERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_types(name):
    for size, axes in ((None, ()), (2, (2,)), ((2, 3), (2, 3)), ((), ()), (np.int64(2), (2,))):
        for n in (1, 2, 5):
            W = initialise(name, n, size=size, rng=0)
            assert W.shape == (*axes, n, n)
            assert W.dtype == np.float64
            assert W.flags.writeable
            assert np.isfinite(W).all()


@pytest.mark.parametrize("name", NAMES)
def test_reproducible_and_a_batch_is_single_calls_in_turn(name):
    batch = initialise(name, 6, size=(2, 3), rng=7, gain=0.8)
    assert_array_equal(batch, initialise(name, 6, size=(2, 3), rng=7, gain=0.8))
    generator = np.random.default_rng(7)
    for index in np.ndindex(2, 3):
        assert_array_equal(batch[index], initialise(name, 6, rng=generator, gain=0.8))
    random = name not in ("identity", "scaled_identity", "cyclic_shift")
    assert (batch != initialise(name, 6, size=(2, 3), rng=8, gain=0.8)).any() == random
    same = np.random.SeedSequence(7)
    assert_array_equal(batch, initialise(name, 6, size=(2, 3), rng=same, gain=0.8))
    initialise(name, 6)


@pytest.mark.parametrize("name", NAMES)
def test_the_draw_does_not_depend_on_radius_or_gain(name):
    options = {"density": 0.5} if name == "sparse" else {}
    bare = initialise(name, 8, size=4, rng=3, **options)
    for target in ({"spectral_radius": 0.5}, {"spectral_radius": 1.5}, {"gain": 0.3}):
        scaled = initialise(name, 8, size=4, rng=3, **target, **options)
        at = np.unravel_index(np.abs(bare).reshape(4, -1).argmax(axis=1), (8, 8))
        factor = scaled[range(4), *at] / bare[range(4), *at]
        assert_allclose(scaled, bare * factor[:, None, None], rtol=4e-16, atol=1e-300)
        after = np.random.default_rng(3)
        initialise(name, 8, size=4, rng=after, **target, **options)
        before = np.random.default_rng(3)
        initialise(name, 8, size=4, rng=before, **options)
        assert after.random() == before.random()


@pytest.mark.parametrize("radius", [1e-3, 0.9, 1.0, 1.1])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nonnormal"])
def test_radius_is_reached(name, radius):
    for n in (7, 64):
        options = {"density": 0.5} if name == "sparse" else {}
        W = initialise(name, n, size=3, rng=n, spectral_radius=radius, **options)
        assert_allclose(spectral_radius(W), radius, rtol=1e-12)
    assert not initialise("orthogonal", 3, rng=0, spectral_radius=0.0).any()


@pytest.mark.parametrize("name", NAMES)
def test_gain_sets_the_mean_squared_row_norm(name):
    # sum of squares / (n g²): for iid entries of kurtosis <= 3/density its std over the 40 x n²
    # entries is below sqrt(30/(40 n²)); for rank one u vᵀ it is about sqrt(4/(40 n))
    n, g = 40, 0.7
    W = initialise(name, n, size=40, rng=11, gain=g)
    ratio = (W**2).sum(axis=(1, 2)).mean() / (n * g * g)
    if name == "antisymmetric":
        ratio *= n / (n - 1)
    bound = {"low_rank": np.sqrt(4 / (40 * n)), "antisymmetric": np.sqrt(4 / (40 * n * n))}.get(
        name, np.sqrt(30 / (40 * n * n))
    )
    assert abs(ratio - 1) <= 5 * bound
    assert not initialise(name, 3, rng=0, gain=0.0).any()


@pytest.mark.parametrize(
    ("name", "variance", "kurtosis"),
    [
        ("gaussian", 1.0, 3.0),
        ("glorot_uniform", 1.0, 1.8),
        ("glorot_normal", 1.0, 3.0),
        ("he_normal", 2.0, 3.0),
        ("lecun_normal", 1.0, 3.0),
        ("torch_default", 1 / 3, 1.8),
    ],
)
def test_moments_of_independent_entries(name, variance, kurtosis):
    n, replicas = 20, 100
    x = initialise(name, n, size=replicas, rng=21).ravel() * np.sqrt(n / variance)
    count = x.size
    # standard errors of the mean and of the mean square; for the fourth moment var x⁴ <= 96
    assert abs(x.mean()) <= 5 / np.sqrt(count)
    assert abs((x**2).mean() - 1) <= 5 * np.sqrt((kurtosis - 1) / count)
    assert abs((x**4).mean() - kurtosis) <= 5 * np.sqrt(96 / count)
    if kurtosis < 2:
        assert 0.99 * np.sqrt(3) < np.abs(x).max() <= np.sqrt(3) * (1 + 1e-15)


def test_the_limits_of_the_uniform_ensembles():
    assert np.abs(initialise("torch_default", 50, size=20, rng=0)).max() <= 1 / np.sqrt(50)
    largest = np.abs(initialise("glorot_uniform", 50, size=20, rng=0)).max()
    assert 0.999 * np.sqrt(6 / 100) < largest <= np.sqrt(6 / 100)


def test_p060_orthogonal_is_haar():
    Q = initialise("orthogonal", 3, size=4000, rng=60)
    error = np.abs(Q @ np.swapaxes(Q, 1, 2) - np.eye(3)).max()
    assert error <= tolerance(np.float64, 3, 1)
    # every entry is symmetric with E q² = 1/3, E q⁴ = 1/5; trace: mean 0, mean square 1
    assert np.abs((Q > 0).mean(axis=0) - 0.5).max() <= 0.03
    assert np.abs((Q**2).mean(axis=0) - 1 / 3).max() <= 5 * np.sqrt((1 / 5 - 1 / 9) / 4000)
    trace = np.einsum("kii->k", Q)
    assert abs(trace.mean()) <= 5 / np.sqrt(4000)
    assert abs((trace**2).mean() - 1) <= 5 * np.sqrt(3 / 4000)
    assert abs((np.linalg.det(Q) > 0).mean() - 0.5) <= 5 * 0.5 / np.sqrt(4000)
    ones = initialise("orthogonal", 1, size=400, rng=1).ravel()
    assert set(ones) == {-1.0, 1.0}
    assert abs((ones > 0).mean() - 0.5) <= 5 * 0.5 / np.sqrt(400)


def test_p063_torch_default_is_subcritical():
    W = initialise("torch_default", 1024, rng=63)
    assert 0.57 <= spectral_radius(W) <= 0.61
    assert spectral_norm(W) == pytest.approx(2 / np.sqrt(3), abs=0.02)
    assert np.log(spectral_radius(W)) == pytest.approx(-0.55, abs=0.03)


def test_identities_and_shift():
    assert_array_equal(initialise("identity", 3), np.eye(3))
    assert_array_equal(initialise("scaled_identity", 3), np.eye(3))
    assert_array_equal(initialise("scaled_identity", 2, size=2, scale=-0.5), [-0.5 * np.eye(2)] * 2)
    assert_array_equal(initialise("scaled_identity", 2, spectral_radius=0.9), 0.9 * np.eye(2))
    assert_array_equal(initialise("identity", 2, gain=0.9), 0.9 * np.eye(2))
    shift = initialise("cyclic_shift", 5)
    assert_array_equal(shift @ np.arange(5), [4, 0, 1, 2, 3])
    assert_array_equal(np.linalg.matrix_power(shift, 5), np.eye(5))
    assert_array_equal(initialise("cyclic_shift", 1), [[1.0]])


def test_antisymmetric():
    W = initialise("antisymmetric", 30, size=50, rng=5)
    assert_array_equal(W, -np.swapaxes(W, 1, 2))
    upper = W[:, *np.triu_indices(30, 1)].ravel() * np.sqrt(30)
    assert abs((upper**2).mean() - 1) <= 5 * np.sqrt(2 / upper.size)
    assert np.abs(np.linalg.eigvals(W).real).max() <= tolerance(np.float64, 30, 1)
    with pytest.raises(ValueError, match="spectral radius is zero"):
        initialise("antisymmetric", 1, spectral_radius=0.9)


@pytest.mark.parametrize("density", [0.05, 0.5, 1.0])
def test_sparse_keeps_its_share_of_entries(density):
    W = initialise("sparse", 50, size=8, rng=6, density=density)
    assert abs((W != 0).mean() - density) <= 5 * np.sqrt(density * (1 - density) / W.size)
    kept = W[W != 0] * np.sqrt(50 * density)
    assert abs((kept**2).mean() - 1) <= 5 * np.sqrt(2 / kept.size)


def test_sparse_patterns_are_nested_and_may_have_no_cycle():
    thin, thick = (initialise("sparse", 20, rng=6, density=d) != 0 for d in (0.1, 0.4))
    assert (thick | ~thin).all()
    with pytest.raises(ValueError, match=r"spectral radius is zero \(matrix \(\d+,\)\)"):
        initialise("sparse", 3, size=50, rng=0, density=0.05, spectral_radius=0.9)


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank(rank):
    W = initialise("low_rank", 30, size=400, rng=7, rank=rank)
    sigma = np.linalg.svd(W[:20], compute_uv=False)
    assert (sigma[:, rank - 1] > 1e-3).all()
    assert (sigma[:, rank:] <= tolerance(np.float64, 30, 1) * sigma[:, :1]).all()
    # ‖U Vᵀ‖_F² has a relative variance of about 4/(n rank)
    assert abs((W**2).mean() * 30 - 1) <= 5 * np.sqrt(4 / (30 * rank * 400))
    assert initialise("low_rank", 3, rank=3).shape == (3, 3)


def test_nonnormal_takes_its_radius_and_departure_from_the_triangle(monkeypatch):
    monkeypatch.setattr(_ensembles, "haar", lambda G: np.broadcast_to(np.eye(len(G[0])), G.shape))
    for departure in (0.0, 0.5, 0.95):
        T = initialise("nonnormal", 40, size=6, rng=8, spectral_radius=0.9, departure=departure)
        assert not np.tril(T, -1).any()
        eigenvalues = np.abs(np.einsum("kii->ki", T))
        assert_array_equal(eigenvalues.max(axis=1), 0.9)
        share = np.linalg.norm(np.triu(T, 1), axis=(1, 2)) / np.linalg.norm(T, axis=(1, 2))
        assert_allclose(share, departure, rtol=0, atol=tolerance(np.float64, 40, 1))
    # signs are fair, |λ|² uniform but for the scaling of the largest to 1
    T = initialise("nonnormal", 50, size=200, rng=9)
    eigenvalues = np.einsum("kii->ki", T).ravel()
    assert abs((eigenvalues > 0).mean() - 0.5) <= 5 * 0.5 / np.sqrt(eigenvalues.size)
    # E of the others over the largest of 50 uniform numbers is 1/2: (49/2 + 1)/50
    error = np.sqrt(1 / 12 / eigenvalues.size)
    assert abs((eigenvalues**2).mean() - 0.51) <= 5 * error


def test_nonnormal_is_a_rotated_triangle():
    for departure, rtol in ((0.3, 1e-12), (0.8, 1e-9)):
        W = initialise("nonnormal", 8, rng=10, spectral_radius=0.9, departure=departure)
        with mp.workdps(40):
            eigenvalues = mp.eig(mp.matrix(W.tolist()), left=False, right=False)
            radius = float(max(abs(value) for value in eigenvalues))
            squares = float(sum(abs(value) ** 2 for value in eigenvalues))
        # W is stored to eps ‖W‖; its eigenvalues move by that times a condition
        assert radius == pytest.approx(0.9, rel=rtol)
        whole = np.linalg.norm(W) ** 2
        assert np.sqrt((whole - squares) / whole) == pytest.approx(departure, rel=1e-8)
        assert np.abs(np.tril(W, -1)).max() > 0.01
    assert_allclose(np.abs(initialise("nonnormal", 1, spectral_radius=0.9)), [[0.9]], rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_diagonal_ring(n):
    W = initialise("diagonal", n, size=3, rng=12, spectral_radius=0.8, **RING)
    assert_allclose(np.abs(np.linalg.eigvals(W)), 0.8, rtol=tolerance(np.float64, n, 1))
    assert_allclose(np.linalg.svd(W, compute_uv=False), 0.8, rtol=tolerance(np.float64, n, 1))
    outside = np.abs(np.subtract.outer(np.arange(n) // 2, np.arange(n) // 2)) > 0
    assert not W[:, outside].any()


def test_diagonal_magnitudes_are_uniform_in_area():
    for rotate in (False, True):
        W = initialise("diagonal", 200, size=50, rng=13, inner=0.6, rotate=rotate)
        # singular values of a normal matrix are its eigenvalues' magnitudes
        size = np.sqrt(np.einsum("kij,kij->ki", W, W))
        assert 0.6 <= size.min() < 0.605
        assert 0.998 < size.max() <= 1 + 1e-15
        area = (size**2 - 0.36) / 0.64
        assert abs(area.mean() - 0.5) <= 5 * np.sqrt(1 / 12 / (area.size / 2))
    signs = initialise("diagonal", 200, size=50, rng=13)
    assert_array_equal(signs, signs * np.eye(200))
    share = (np.einsum("kii->ki", signs) > 0).mean()
    assert abs(share - 0.5) <= 5 * 0.5 / np.sqrt(200 * 50)


def test_diagonal_angles_are_uniform():
    W = initialise("diagonal", 2, size=4000, rng=14, **RING)
    angle = np.arctan2(W[:, 1, 0], W[:, 0, 0])
    assert ((angle > 0) & (angle < np.pi)).all()
    assert abs(angle.mean() - np.pi / 2) <= 5 * np.pi / np.sqrt(12 * 4000)
    assert_array_equal(W[:, 0, 1], -W[:, 1, 0])


def test_large_matrices_of_known_radius_need_no_eigenvalues(monkeypatch):
    monkeypatch.setattr("gradprop.initialisation.LARGEST_N", 4)
    with pytest.raises(ValueError, match=r"`n` must be at most 4; got 5"):
        initialise("gaussian", 5, spectral_radius=0.9)
    initialise("gaussian", 5, gain=0.9)
    for name in ("orthogonal", "antisymmetric", "low_rank", "nonnormal", "diagonal"):
        initialise(name, 5, spectral_radius=0.9)


@given(st.sampled_from(NAMES), st.integers(1, 12), st.integers(0, 10**6), st.floats(0.01, 10))
def test_radius_and_gain_are_only_factors(name, n, seed, gain):
    W = initialise(name, n, rng=seed, gain=gain)
    twice = initialise(name, n, rng=seed, gain=2 * gain)
    assert_allclose(twice, 2 * W, rtol=4e-16, atol=1e-300)
    assert W.shape == (n, n)


@pytest.mark.parametrize(
    ("name", "n", "options", "error", "message"),
    [
        ("gauss", 3, {}, ValueError, "`name` must be one of 'gaussian', .*'diagonal'; got 'gauss'"),
        (3, 3, {}, ValueError, "`name` must be one of"),
        ("gaussian", 0, {}, ValueError, "`n` must be at least 1; got 0"),
        ("gaussian", 2.0, {}, TypeError, r"`n` must be an integer; got 2.0 \(float\)"),
        ("gaussian", True, {}, TypeError, "`n` must be an integer"),
        ("gaussian", 2, {"size": 1.5}, TypeError, "`size` must be an integer; got 1.5"),
        ("gaussian", 2, {"size": (2, 0)}, ValueError, "`size` must be at least 1; got 0"),
        ("gaussian", 2, {"size": "2"}, TypeError, "`size` must be an integer"),
        ("gaussian", 2, {"rng": "seed"}, TypeError, "`rng` must be None, a seed or"),
        ("gaussian", 2, {"rng": -1}, ValueError, "`rng` must be None, a seed or"),
        ("gaussian", 2, {"gain": -1.0}, ValueError, "`gain` must be at least 0.0; got -1.0"),
        ("gaussian", 2, {"gain": 1j}, TypeError, "`gain` must be a real number"),
        ("gaussian", 2, {"spectral_radius": np.inf}, ValueError, "`spectral_radius` must be fin"),
        ("gaussian", 2, {"spectral_radius": -0.9}, ValueError, "`spectral_radius` must be at le"),
        (
            "gaussian",
            2,
            {"gain": 1.0, "spectral_radius": 0.9},
            ValueError,
            "at most one of gain, spectral_radius, scale .* got `gain` and `spectral_radius`",
        ),
        (
            "scaled_identity",
            2,
            {"scale": 2.0, "spectral_radius": 0.9},
            ValueError,
            "got `spectral_radius` and `scale`",
        ),
        ("gaussian", 2, {"density": 0.1}, TypeError, "'gaussian' takes no shape options; got dens"),
        ("diagonal", 2, {"ring": 1}, TypeError, "'diagonal' takes inner, rotate; got ring"),
        ("sparse", 2, {"density": 0.0}, ValueError, "`density` must be greater than 0.0"),
        ("sparse", 2, {"density": 1.1}, ValueError, "`density` must be at most 1.0"),
        ("low_rank", 2, {"rank": 3}, ValueError, "`rank` must be at most 2; got 3"),
        ("low_rank", 2, {"rank": 1.0}, TypeError, "`rank` must be an integer"),
        ("nonnormal", 2, {"departure": 0.96}, ValueError, "`departure` must be at most 0.95"),
        ("nonnormal", 2, {"departure": -0.1}, ValueError, "`departure` must be at least 0.0"),
        ("diagonal", 2, {"inner": 2.0}, ValueError, "`inner` must be at most 1.0"),
        ("diagonal", 2, {"rotate": 1}, ValueError, "`rotate` must be one of True, False; got 1"),
        ("scaled_identity", 2, {"scale": 0.0}, ValueError, "`scale` must not be zero"),
        ("scaled_identity", 2, {"scale": "1"}, TypeError, "`scale` must be a real number"),
    ],
)
def test_bad_input_is_named(name, n, options, error, message):
    with pytest.raises(error, match=message):
        initialise(name, n, **options)
