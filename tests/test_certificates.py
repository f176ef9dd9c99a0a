"""Certificates that need only W: exact truth never above them, and as low as they can be made."""

from __future__ import annotations

import itertools
import math

import mpmath
import naive
import numpy as np
import pytest
from certified import KINDS, log_norm_of, margin, random_case, random_weights
from chains import FAMILIES, random_chain, random_orthogonal
from exact import exact_log_norm
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop import _enclosures, _scalings, _splitfold, chain, transients
from gradprop._boundcurves import Scalings
from gradprop._enclosures import EPS, norm_above, upwards
from gradprop._kernels import scaling
from gradprop._normbounds import CERTIFICATES, TRAJECTORY, UPPER
from gradprop._scaledfold import scaling_lags
from gradprop.activations import activation
from gradprop.results import Status

SEEDS = st.integers(0, 2**32 - 1)


def objective(W, x, weight, leak=1.0, gamma=1.0):
    """weight ln cond(S) + ln(1 - leak + leak gamma ||S W S^-1||)."""
    S = np.diag(np.exp(x))
    norm = np.linalg.norm(S @ W @ np.linalg.inv(S), 2)
    return weight * np.ptp(x) + np.log(1 - leak + leak * gamma * norm)


# --- rounding outwards ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_never_below_the_truth(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for n in (1, 2, 3, 6):
        for _ in range(3):
            A = random_weights(rng, kind, n)
            above, truth = norm_above(A), log_norm_of([A], n)
            if mpmath.isinf(truth):
                assert above == 0
                continue
            excess = margin(np.log(above), 0.0, 1, truth) + 2 * EPS * abs(np.log(above))
            spread = np.linalg.norm(np.abs(A), 2) / np.linalg.norm(A, 2)
            assert mpmath.mpf(above) >= mpmath.exp(truth)
            # a dozen roundings of order n in the square, entry by entry
            assert excess <= 12 * (n + 4) * EPS * spread**2


def test_norms_hold_for_every_matrix_in_reach():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5):
        A = rng.standard_normal((n, n))
        U, _, Vt = np.linalg.svd(A)
        worst = A + 1e-6 * np.abs(A) * np.sign(np.outer(U[:, 0], Vt[0]))
        assert mpmath.mpf(norm_above(A, 1e-6)) >= mpmath.exp(log_norm_of([worst], n))
        assert norm_above(A, 1e-6) <= norm_above(A) * (1 + 1e-6 * np.sqrt(n) * 1.01)


def test_a_norm_is_proven_and_not_believed(monkeypatch):
    A = random_orthogonal(np.random.default_rng(1), 8)
    monkeypatch.setattr(_enclosures, "largest_singular_values", lambda A: 0.999)
    assert mpmath.mpf(norm_above(A)) >= mpmath.exp(log_norm_of([A], 8))


def test_upwards_moves_every_number_up_but_infinity():
    values = np.array([-1e300, -1.0, 0.0, 1e-300, 7.0])
    assert (upwards(values, values) > values).all()
    assert np.isneginf(upwards(-np.inf, -np.inf))


# --- the search ----------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 5), st.integers(0, 6), st.sampled_from([1.0, 0.25]))
def test_majorant_is_that_of_its_definition(seed, n, doublings, leak):
    rng = np.random.default_rng(seed)
    W, x, weight = rng.standard_normal((n, n)), rng.standard_normal(n), rng.uniform(0.01, 1)
    gain, keep = np.log(leak * 0.7), np.log(1 - leak) if leak < 1 else -np.inf
    p, work, gradient = 2**doublings + 1, np.empty((4, n, n)), np.empty(n)
    sharp = max(4 * 2**doublings * weight, 0.5)

    def twin(x):
        sigma = np.linalg.svd(np.exp(x)[:, None] * W * np.exp(-x), compute_uv=False)
        norm = np.exp(gain) * sigma[0] * ((sigma / sigma[0]) ** (2 * p)).sum() ** (1 / (2 * p))
        soft = sum(np.log(np.exp(sharp * s * x).sum()) / sharp for s in (1, -1))
        return weight * soft + np.log(np.exp(keep) + norm)

    value = scaling.certificate_above(W, x, doublings, weight, gain, keep, work, gradient)
    assert value == pytest.approx(twin(x), abs=1e3 * EPS * p * n)
    steps = 1e-5 * np.eye(n)
    slopes = [(twin(x + h) - twin(x - h)) / 2e-5 for h in steps]
    # truncation of the difference: third derivatives grow as the sharpness and p squared
    np.testing.assert_allclose(gradient, slopes, atol=1e-10 * (10 + sharp**2 + p**2))
    true = objective(W, x, weight, leak, 0.7)
    room = np.log(n) * (1 / (2 * p) + 2 * weight / sharp)
    assert true - 1e-12 <= value <= true + room + 1e-12


@pytest.mark.parametrize("leak", [1.0, 0.5])
@pytest.mark.parametrize("n_steps", [3, 30, 300])
def test_scaling_is_the_best_there_is(leak, n_steps):
    rng = np.random.default_rng(n_steps)
    for _ in range(4):
        W = rng.standard_normal((2, 2)) * [[1, 5], [0.5, 1]]
        certificate = gp.growth_certificate(W, leak=leak, n_steps=n_steps)
        # one direction is left once the mean of x is taken out: a fine grid, the problem is convex
        grid = np.linspace(-6, 6, 4801)
        best = min(objective(W, np.array([t, -t]), 1 / n_steps, leak) for t in grid)
        reached = certificate.at([n_steps])[0] / n_steps
        # the majorant lies ln 2 / 2050 above, and the grid is coarse
        assert best - 2.6e-3 / n_steps - 1e-9 <= reached <= best + np.log(2) / 2050 + 1e-9


def test_balancing_gives_rows_and_columns_equal_norms():
    rng = np.random.default_rng(4)
    W = rng.standard_normal((6, 6)) * 10.0 ** rng.uniform(-3, 3, (6, 1))
    x = _scalings.balanced(W)
    B = np.exp(x)[:, None] * W * np.exp(-x)
    np.fill_diagonal(B, 0.0)
    rows, columns = np.linalg.norm(B, axis=1), np.linalg.norm(B, axis=0)
    # sweeps end when no x moves by more than 0.01, which is a quarter of ln(column^2 / row^2)
    np.testing.assert_allclose(np.log(rows / columns), 0, atol=0.06)


@pytest.mark.parametrize("name", ["positive", "reducible", "periodic"])
def test_perron_vectors_scale_magnitudes_down_to_their_root(name):
    rng = np.random.default_rng(5)
    W = {
        "positive": rng.standard_normal((7, 7)),
        "reducible": np.array([[0.5, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 1.0]]),
        "periodic": np.array([[0.0, 8.0], [2.0, 0.0]]),
    }[name]
    x = _scalings.perron_scaling(W)
    scaled = np.linalg.norm(np.exp(x)[:, None] * np.abs(W) * np.exp(-x), 2)
    assert scaled == pytest.approx(gp.spectral_radius(np.abs(W)), rel=1e-10)


# --- certificates --------------------------------------------------------------------------------


def test_certificates_hold_exactly():
    rng, kinds, least = np.random.default_rng(2024), set(), np.inf
    for i in range(300):
        case = random_case(rng, 7)
        n_steps = (None, 2, 40)[i % 3]
        certificate = gp.growth_certificate(
            case.W, gamma=case.gamma, leak=case.leak, n_steps=n_steps
        )
        kinds.add(str(certificate.kind))
        lag = (1, 2, 7)[i // 3 % 3]
        truth = case.log_norm(lag)
        pairs = zip(certificate.constants, certificate.rates, strict=True)
        margins = [margin(c, r, lag, truth) for c, r in pairs]
        margins.append(margin(certificate.at([lag])[0], 0.0, lag, truth))
        least = min(least, *margins)
        assert min(margins) >= 0, (i, case, certificate)
    assert kinds == {"plain", "scaled", "perron"}
    assert least < 1e-13  # some bounds are attained: there is nothing to spare


@pytest.mark.parametrize("leak", [1.0, 0.25])
def test_certificates_are_what_their_scaling_gives(leak):
    rng = np.random.default_rng(8)
    W = rng.standard_normal((3, 2, 5, 5)) * 10.0 ** rng.uniform(-2, 2, (3, 2, 5, 1))
    certificate = gp.growth_certificate(W, gamma=0.75, leak=leak, n_steps=20)
    assert certificate.log_rate.shape == certificate.kind.shape == (3, 2)
    assert certificate.scaling.shape == (3, 2, 5)
    for i, j in itertools.product(range(3), range(2)):
        x = certificate.scaling[i, j]
        assert certificate.log_constant[i, j] == pytest.approx(np.ptp(x), rel=1e-14)
        twin = objective(W[i, j], x, 0.0, leak, 0.75)
        spread = np.sqrt(5)  # || |A| || over ||A||, at most
        assert 0 <= certificate.log_rate[i, j] - twin + 9 * EPS <= 200 * EPS * spread**2 * 5
        alone = gp.growth_certificate(W[i, j], gamma=0.75, leak=leak, n_steps=20)
        for name in ("log_constant", "log_rate", "scaling", "kind", "constants", "rates"):
            np.testing.assert_array_equal(getattr(certificate, name)[i, j], getattr(alone, name))
    lags = [0, 1, 20, 400]
    curves = certificate.constants[..., None] + lags * certificate.rates[..., None]
    lowest = np.where(np.array(lags) == 0, 0.0, curves.min(axis=-2))
    np.testing.assert_allclose(certificate.at(lags), lowest, rtol=1e-13)
    assert (certificate.at(lags) >= lowest).all()


def test_certificates_reach_the_known_rates(bounds_cases):
    _, arrays = bounds_cases
    triangular = gp.growth_certificate(arrays["W_triangular"], n_steps=200)
    assert triangular.at([200])[0] / 200 <= 0.165
    assert str(triangular.kind) == "scaled"
    assert triangular.log_rate < 0 < triangular.log_constant  # the constant is part of the bound
    gaussian = gp.growth_certificate(arrays["W_gaussian_g0.9"], n_steps=200)
    assert gaussian.at([200])[0] / 200 <= 0.475
    orthogonal = gp.growth_certificate(arrays["W_orthogonal"])
    assert str(orthogonal.kind) == "plain"
    assert 0 <= orthogonal.log_rate <= 64**2 * EPS
    positive = gp.growth_certificate(arrays["W_nonnegative"])
    root = np.log(gp.spectral_radius(arrays["W_nonnegative"]))
    assert str(positive.kind) == "perron"
    assert root <= positive.log_rate <= root + 64**2 * EPS


def test_gamma_is_the_largest_magnitude_of_the_slopes():
    W = np.array([[1.0, 2.0], [-3.0, 1.0]])
    # slopes in [-2, -0.5]: their supremum, -0.5, bounds nothing
    case = margin(
        *(float(v) for v in certificate_of(W, gamma=2.0)), 5, log_norm_of([-2.0 * W] * 5, 2)
    )
    assert case >= 0
    assert activation("gelu").gamma > 1
    chain = gp.linearise(gp.RNN(3 * W, activation="gelu"), n_steps=30, rng=0)
    bounds = gp.norm_bounds(chain)
    truth = gp.log_norms(chain).log_norm
    assert (bounds.scaled_norm >= truth - 1e-12 * (1 + bounds.lags)).all()
    gamma = activation("gelu").gamma
    curve = gp.growth_certificate(3 * W, gamma=gamma, n_steps=30).at(bounds.lags)
    assert (curve >= truth - 1e-12 * (1 + bounds.lags)).all()


def certificate_of(W, **settings):
    certificate = gp.growth_certificate(W, **settings)
    return certificate.log_constant, certificate.log_rate


def test_what_vanishes_is_certified_to_vanish():
    zero = gp.growth_certificate(np.zeros((2, 3, 3)))
    np.testing.assert_array_equal(zero.at([0, 1, 5]), [[0, -np.inf, -np.inf]] * 2)
    assert (zero.status & Status.ZERO).all()
    assert np.isneginf(gp.growth_certificate([[2.0]], gamma=0.0).log_rate)
    leaky = gp.growth_certificate(np.ones((2, 2)), gamma=0.0, leak=0.5)
    assert np.log(0.5) <= leaky.log_rate <= np.log(0.5) + 20 * EPS
    nilpotent = gp.growth_certificate(np.eye(4, k=1), n_steps=1000)
    assert nilpotent.at([1000])[0] < -10_000  # within |x| <= 30, e^-20 a unit


def test_weights_of_any_size_are_certified():
    for size in (1e-310, 1e-160, 1e160, 1e307):
        certificate = gp.growth_certificate([[0.0, size], [size, 0.0]], n_steps=10)
        assert certificate.log_rate == pytest.approx(np.log(size), rel=1e-14)
        assert certificate.log_rate >= np.log(size)


def test_certificates_are_tables_and_files(tmp_path):
    certificate = gp.growth_certificate(np.random.default_rng(0).standard_normal((2, 3, 3)))
    assert {"weights", "scaling", "kind", "log_rate"} <= set(certificate.to_frame().columns)
    certificate.save(tmp_path / "c.npz")
    loaded = gp.GrowthCertificate.load(tmp_path / "c.npz")
    assert loaded.kind.tolist() == certificate.kind.tolist()
    np.testing.assert_array_equal(loaded.at([3]), certificate.at([3]))


# --- bounds of a chain ---------------------------------------------------------------------------


def test_no_bound_is_broken_on_the_oracle_networks(bounds_cases):
    values, arrays = bounds_cases
    names = [name for name in values if f"W_{name}" in arrays]
    assert len(names) == 6
    for name in names:
        dphi = arrays[f"dphi_{name}"]
        slopes = np.stack([dphi, np.ones_like(dphi)])
        chain = gp.JacobianChain.row_scaled(arrays[f"W_{name}"], slopes)
        lags = np.arange(0, 201, 8)
        quantities = gp.Bounds(lags, gamma=1.0, scalings=3), gp.Norms(lags=lags)
        bounds, norms = gp.measure(chain, *quantities)
        room = 1e-12 * (1 + bounds.lags)
        for bound in UPPER:
            assert (getattr(bounds, bound) >= norms.log_norm - room).all(), (name, bound)
        assert (bounds.scaled_norm[:, -1] <= bounds.spectral_norm[:, -1] + 1e-9).all()
        rates = {bound: getattr(bounds, bound)[:, -1] / 200 for bound in UPPER}
        if name == "triangular":
            assert rates["scaled_norm"][1] <= 0.165
            assert bounds.tightest_certificate.tolist() == ["scaled_norm"] * 2
        if name == "gaussian_g0.9":
            assert rates["scaled_steps"][0] <= 0.355
            assert bounds.tightest_trajectory.tolist() == ["blocked_adaptive"] * 2
        if name == "nonnegative":
            assert bounds.tightest_certificate.tolist() == ["perron"] * 2


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "selu", "softplus", "hard_tanh"])
def test_no_bound_is_broken_on_random_networks(name):
    rng = np.random.default_rng(sum(map(ord, name)))
    for n in (2, 5):
        W = np.array([random_weights(rng, str(rng.choice(KINDS)), n) for _ in range(5)])
        leak = float(rng.choice([1.0, 0.5]))
        cell = gp.RNN(1.5 * W, W_xh=np.eye(n), activation=name, leak=leak)
        chain = gp.linearise(cell, 0.5 * rng.standard_normal((40, n)))
        lags = [1, 3, 10, 17, 40]
        bounds, norms = gp.measure(chain, gp.Bounds(lags, scalings=4), gp.Norms(lags=lags))
        room = 1e-12 * (1 + bounds.lags) + norms.error
        for bound in UPPER:
            assert (getattr(bounds, bound) >= norms.log_norm - room).all(), bound


@given(SEEDS, st.sampled_from(FAMILIES), st.integers(1, 3))
def test_adaptive_blocks_hold_exactly(seed, family, n):
    J = random_chain(np.random.default_rng(seed), family, 10, n)
    lags = [1, 6, 10]
    bounds = gp.norm_bounds(gp.JacobianChain.dense(J), lags=lags)
    truth = np.array([exact_log_norm(J[:lag]) for lag in lags])
    for bound in ("blocked_2", "blocked_5", "blocked_adaptive"):
        assert (getattr(bounds, bound) >= truth - 1e-12 * (1 + bounds.lags)).all()


def test_cancelling_windows_count_with_their_rounding():
    for n, seed in itertools.product((2, 3, 4), range(20)):
        J = random_chain(np.random.default_rng([n, seed]), "cancelling", 32, n)
        bounds = gp.norm_bounds(gp.JacobianChain.dense(J), lags=[32], block=1)
        assert bounds.blocked_adaptive[0] >= float(log_norm_of(list(J), n)) - 33e-12
        assert bounds.blocked_adaptive[0] < bounds.step_norms[0] - 1


def best_cut(J, longest):
    """Least sum of ln norms over all cuts into blocks m = 2^k that begin at multiples of m / 2."""
    best = [0.0]
    for lag in range(1, len(J) + 1):
        options = []
        for m in (2**k for k in range(6) if 2**k <= min(lag, longest)):
            if (lag - m) % max(m // 2, 1) == 0:
                options.append(best[lag - m] + naive.log_norms(J[lag - m : lag])[-1])
        best.append(min(options))
    return np.array(best)


@pytest.mark.parametrize("structure", ["dense", "row_scaled", "diagonal"])
def test_adaptive_blocks_are_the_best_cut(structure, monkeypatch):
    rng = np.random.default_rng(6)
    W, dphi = rng.standard_normal((3, 3)), rng.uniform(0.1, 1, (75, 3))
    J = dphi[:, :, None] * (np.eye(3) if structure == "diagonal" else W)
    make = {
        "dense": lambda: gp.JacobianChain.dense(J),
        "row_scaled": lambda: gp.JacobianChain.row_scaled(W, dphi),
        "diagonal": lambda: gp.JacobianChain.diagonal(dphi),
    }[structure]
    # blocks so long that they are the product itself would hide the cuts
    bounds = gp.norm_bounds(make(), block=1)
    twin = best_cut(J, 32)
    ours = np.minimum(twin, np.minimum(bounds.blocked_2, bounds.blocked_5))
    np.testing.assert_allclose(bounds.blocked_adaptive, ours, atol=1e-9)
    assert (bounds.blocked_adaptive <= twin + 1e-9).all()
    assert (twin[33:] < best_cut(J, 16)[33:]).any()
    for floats in (3 * 7, 3 * 64):  # steps arrive in pieces of 7 or fewer, and of 64
        monkeypatch.setattr(chain, "BLOCK_FLOATS", floats)
        pieces = gp.norm_bounds(make(), block=1)
        np.testing.assert_array_equal(pieces.blocked_adaptive, bounds.blocked_adaptive)


def test_short_blocks_are_blocks_of_that_length():
    J = random_chain(np.random.default_rng(7), "gaussian", 33, 4)
    bounds = gp.norm_bounds(gp.JacobianChain.dense(J))
    for length, name in ((2, "blocked_2"), (5, "blocked_5")):
        own = gp.norm_bounds(gp.JacobianChain.dense(J), block=length)
        np.testing.assert_array_equal(getattr(bounds, name), own.blocked)
    for name in ("blocked", "blocked_2", "blocked_5"):
        assert (bounds.blocked_adaptive <= getattr(bounds, name)).all()


@pytest.mark.parametrize("leak", [1.0, 0.5])
def test_scaled_steps_are_those_of_their_definition(leak):
    rng = np.random.default_rng(9)
    W, dphi = rng.standard_normal((4, 4)) * [[1], [3], [1], [9]], rng.uniform(-0.5, 1, (30, 4))
    chain = gp.JacobianChain.row_scaled(W, dphi, leak=leak)
    bounds = gp.norm_bounds(chain, gamma=1.0, scalings=5)
    x = Scalings.of(chain.recurrence, scaling_lags(30, 5), 1.0).x[0]
    assert len(x) == 5
    assert not x[0].any()  # at lag 1 no scaling helps
    J = chain.to_dense()
    norms, steps = [], []
    for own in x:
        S, inverse = np.diag(np.exp(own)), np.diag(np.exp(-own))
        sums = np.cumsum([np.log(np.linalg.norm(S @ J_k @ inverse, 2)) for J_k in J])
        steps.append(np.ptp(own) + sums)
        norms.append(np.ptp(own) + bounds.lags * objective(W, own, 0.0, leak))
    np.testing.assert_allclose(bounds.scaled_steps[1:], np.min(steps, axis=0), atol=1e-11)
    np.testing.assert_allclose(bounds.scaled_norm[1:], np.min(norms, axis=0)[1:], atol=1e-11)
    assert bounds.scaled_steps[30] < bounds.step_norms[30] - 1
    assert (bounds.scaled_steps <= bounds.scaled_norm + 1e-11).all()


def test_scalings_are_spaced_and_shared(monkeypatch):
    assert scaling_lags(200, 12).tolist() == [1, 2, 3, 4, 7, 11, 18, 29, 47, 76, 124, 200]
    assert scaling_lags(200, 1).tolist() == [1, 200]
    assert scaling_lags(0, 12).tolist() == [1]
    calls = []
    search = _scalings._Search
    monkeypatch.setattr(_scalings, "_Search", lambda *a: calls.append(a) or search(*a))
    W = np.random.default_rng(0).standard_normal((2, 1, 3, 3))
    gp.norm_bounds(gp.JacobianChain.row_scaled(W, np.ones((5, 6, 3))))
    assert len(calls) == 2


def test_what_is_switched_off_is_infinite():
    chain = gp.JacobianChain.row_scaled([[0.5, 3.0], [0.0, 0.5]], np.ones((40, 2)))
    plain = gp.norm_bounds(chain, scalings=0, splits=False, gamma=1.0)
    for name in ("scaled_norm", "scaled_steps", "blocked_2", "blocked_5", "blocked_adaptive"):
        assert np.isposinf(getattr(plain, name)).all()
    assert (plain.tightest_certificate, plain.tightest_trajectory) == ("perron", "blocked")
    (orbit,) = gp.measure(chain, gp.Bounds(certificates=False, gamma=1.0))
    for name in (*CERTIFICATES, "scaled_steps"):
        assert np.isposinf(getattr(orbit, name)).all()
    assert orbit.tightest_certificate == "none"
    np.testing.assert_array_equal(orbit.blocked_adaptive, gp.norm_bounds(chain).blocked_adaptive)


def test_the_tightest_bounds_are_named():
    # of equals the simplest, whatever their rounding is
    cycles = np.linspace(0.1, 1.5, 20)[:, None, None] * np.eye(3)[[1, 2, 0]]
    bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(cycles, np.ones((37, 3))), gamma=1.0)
    assert (bounds.tightest_certificate == "spectral_norm").all()
    assert (bounds.tightest_trajectory == "step_norms").all()
    guessed = gp.norm_bounds(gp.JacobianChain.row_scaled(np.ones((2, 2)), np.ones((40, 2))))
    assert (guessed.kind, guessed.tightest_certificate) == ("trajectory", "none")
    dense = gp.norm_bounds(gp.JacobianChain.dense(np.ones((40, 2, 2))))
    assert (dense.kind, dense.tightest_certificate) == ("none", "none")
    assert dense.tightest_trajectory in TRAJECTORY
    assert dense.status & Status.NO_BOUND


def test_padded_and_overflowed_orbits_keep_their_bounds():
    rng = np.random.default_rng(3)
    cell = gp.RNN(2 * rng.standard_normal((4, 4)), activation="linear")
    x = rng.standard_normal((3, 45, 4))
    chain = gp.linearise(cell, x, lengths=[45, 37, 0])
    bounds, norms = gp.measure(chain, gp.Bounds(scalings=4), gp.Norms())
    for bound in UPPER:
        values = getattr(bounds, bound)
        assert (values >= norms.log_norm - 1e-12 * (1 + bounds.lags)).all(), bound
        assert (values[1, 37:] == values[1, 37]).all(), bound
        assert (values[2] == 0).all(), bound
    lost = gp.RNN(np.array([[[2.0]], [[0.5]]]), activation="linear")
    bounds = gp.norm_bounds(gp.linearise(lost, h0=[1.0], n_steps=1100), lags=[1100])
    assert bounds.tightest_certificate.tolist() == ["none", "spectral_norm"]
    assert np.isnan(bounds.blocked_adaptive[:, 0]).tolist() == [True, False]


# --- transient growth ----------------------------------------------------------------------------


def jordan(n):
    return 0.9 * np.eye(n) + np.eye(n, k=1)


def test_jordan_blocks_peak_where_exact_arithmetic_says():
    growth = gp.transient_growth(jordan(8))
    assert growth.lag == 69
    truths = {lag: float(log_norm_of([jordan(8)] * lag, 8)) for lag in (68, 69, 70)}
    assert max(truths, key=truths.get) == 69
    assert np.exp(truths[69]) == pytest.approx(1.59e6, abs=5e3)
    assert abs(growth.log_peak - truths[69]) <= growth.error <= 1e-11
    lag = int(growth.contracting_lag)
    band = [(8 - k) * (math.comb(lag, k) * 0.9 ** (lag - k)) ** 2 for k in range(8)]
    assert sum(band) < 1  # the Frobenius norm, squared


@pytest.mark.parametrize("seed", range(8))
def test_peaks_are_those_of_all_powers(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    W = rng.standard_normal((3, n, n)) + np.triu(2 * np.ones((n, n)), 1) * (seed % 2)
    W = np.asarray(gp.rescale(W, spectral_radius=[0.3, 0.8, 0.97]))
    growth = gp.transient_growth(W)
    for i in range(3):
        truth = naive.log_norms(np.broadcast_to(W[i], (600, n, n)))
        assert growth.lag[i] == np.argmax(truth)
        assert abs(growth.log_peak[i] - truth.max()) <= growth.error[i] + tolerance(float, n, 100)
    assert (growth.status == Status.OK).all()


@given(SEEDS, st.integers(1, 3))
def test_peaks_are_enclosed_exactly(seed, n):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.standard_normal((n, n)) * 3, 1) + np.diag(rng.uniform(-0.7, 0.7, n))
    growth = gp.transient_growth(W)
    truths = [log_norm_of([W] * lag, n) if lag else 0.0 for lag in range(9)]
    assert float(max(truths)) <= growth.log_peak + growth.error
    if growth.lag < 9:
        assert abs(float(truths[int(growth.lag)]) - growth.log_peak) <= growth.error
    contracting = int(growth.contracting_lag)
    assert contracting > 8 or truths[contracting] < 0


def test_known_peaks(bounds_cases):
    _, arrays = bounds_cases
    shear = gp.transient_growth([[0.9, 50.0], [0.0, 0.9]])
    assert (int(shear.lag), round(float(np.exp(shear.log_peak)), 3)) == (9, 193.711)
    # 1.97 and 3 steps: figures of an earlier program
    gaussian = gp.transient_growth(arrays["W_gaussian_g0.9"])
    assert (int(gaussian.lag), round(float(np.exp(gaussian.log_peak)), 2)) == (3, 1.97)
    large = gp.transient_growth(jordan(48))
    assert (int(large.status), float(large.error) < 1e-9) == (0, True)
    lags = int(large.lag) + np.arange(-1, 2)
    binomials = [naive.log_norms(np.broadcast_to(jordan(48), (lag, 48, 48)))[-1] for lag in lags]
    assert np.argmax(binomials) == 1
    assert large.log_peak == pytest.approx(binomials[1], abs=tolerance(float, 48, lags[1]))


def test_powers_that_never_grow_peak_at_the_start():
    for W in (np.eye(3) / 2, np.zeros((2, 2)), 0.999 * np.eye(4)[[1, 2, 3, 0]]):
        growth = gp.transient_growth(W)
        assert (growth.log_peak, growth.lag, growth.status) == (0.0, 0, Status.OK)
    shift = gp.transient_growth(np.eye(4, k=1))  # norm 1 at lags 0 to 3: the first counts
    assert (shift.log_peak, shift.lag) == (0.0, 0)
    nilpotent = gp.transient_growth(3 * np.eye(4, k=1))
    assert nilpotent.lag == 3
    assert nilpotent.log_peak == pytest.approx(3 * np.log(3), rel=1e-15)


def test_growth_without_end_is_infinite_and_says_so():
    orthogonal = random_orthogonal(np.random.default_rng(0), 5)
    growth = gp.transient_growth([1.01 * np.eye(5), orthogonal, np.eye(5), 0.9 * orthogonal])
    assert np.isposinf(growth.log_peak).tolist() == [True, True, True, False]
    assert growth.lag.tolist() == [-1, -1, -1, 0]
    assert growth.contracting_lag.tolist() == [0, 0, 0, 1]
    assert (growth.status == [Status.NOT_CONTRACTING] * 3 + [Status.OK]).all()
    assert "rescale" in growth.messages()[0]


def test_a_search_given_up_says_how_far_it_got(monkeypatch):
    full = gp.transient_growth(jordan(8))
    monkeypatch.setattr(transients, "MOST_POWERS", 20)
    growth = gp.transient_growth(jordan(8))
    assert np.isnan(growth.log_peak)
    assert growth.status == Status.NOT_CONVERGED
    assert growth.contracting_lag == full.contracting_lag
    assert growth.error > 0


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"gamma": -1.0}, ValueError, r"`gamma` must be at least 0\.0; got -1\.0"),
        ({"gamma": np.inf}, ValueError, "`gamma` must be finite"),
        ({"leak": 0.0}, ValueError, r"`leak` must be greater than 0\.0; got 0\.0"),
        ({"leak": 1.5}, ValueError, r"`leak` must be at most 1\.0; got 1\.5"),
        ({"n_steps": 0}, ValueError, "`n_steps` must be at least 1; got 0"),
        ({"n_steps": 2.5}, TypeError, "`n_steps` must be an integer"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        gp.growth_certificate(np.eye(2), **settings)


@pytest.mark.parametrize("verb", [gp.growth_certificate, gp.transient_growth])
def test_bad_weights_are_named(verb):
    with pytest.raises(ValueError, match=r"`W` must be square; got shape \(3, 4\)"):
        verb(np.ones((3, 4)))
    with pytest.raises(ValueError, match="`W` must be finite; got nan at index"):
        verb([[np.nan]])
    with pytest.raises(TypeError, match="`W` must be real"):
        verb([[1j]])


def test_bad_lags_and_switches_are_named():
    with pytest.raises(ValueError, match="`lags` must lie in"):
        gp.growth_certificate(np.eye(2)).at([-1])
    with pytest.raises(ValueError, match="`scalings` must be at least 0; got -1"):
        gp.norm_bounds(gp.JacobianChain.dense(np.ones((2, 1, 1))), scalings=-1)
    assert _splitfold.N_LENGTHS == 6
