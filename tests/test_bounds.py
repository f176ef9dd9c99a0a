"""Bounds of the product's norm: against the twin, against exact norms, and where claims fail."""

from __future__ import annotations

import math
import tracemalloc

import naive
import numpy as np
import pytest
from chains import FAMILIES, random_chain, random_orthogonal
from exact import exact_log_norm
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop import _boundfolds, perron
from gradprop.activations import activation
from gradprop.perron import perron_log_norms
from gradprop.results import Status

CORE = ("spectral_norm", "step_norms", "blocked", "perron")
UPPER = (*CORE, "scaled_norm", "scaled_steps", "blocked_2", "blocked_5", "blocked_adaptive")
ALL = (*UPPER, "lower")
SEEDS = st.integers(0, 2**32 - 1)
# per step after 200 steps: ln||W||, mean ln||J||, blocks of 20, Perron: figures of an earlier
# program to three decimals
KNOWN_RATES = {
    ("gaussian_g0.9", "tanh"): (0.547, 0.375, -0.267, 1.737),
    ("gaussian_g0.9", "linear"): (0.547, 0.547, -0.009, 1.737),
    ("orthogonal", "tanh"): (0.000, -0.000, -0.120, 1.861),
    ("trained_like", "tanh"): (0.273, 0.099, -0.710, 1.187),
    ("orthogonal_plus_rank1", "tanh"): (0.234, 0.044, -0.280, 1.370),
    ("triangular", "linear"): (1.878, 1.878, 0.726, 0.210),
    ("nonnegative", "linear"): (0.466, 0.466, 0.457, 0.456),
}


def slack(lags):
    """Nats by which a bound may miss the truth."""
    return 1e-12 * (1 + np.asarray(lags))


def assert_encloses(bounds, truth, names=UPPER):
    room = slack(bounds.lags)
    for name in names:
        short = getattr(bounds, name) < truth - room
        assert not short.any(), (name, bounds.lags[short.any(axis=tuple(range(short.ndim - 1)))])
    assert (bounds.lower <= truth + room).all()


def exact_norms(J, lags):
    return np.array([exact_log_norm(J[:lag]) if lag else 0.0 for lag in lags])


def few_bits(values, bits=20):
    """Values whose products with each other are exact in float64."""
    return np.round(np.asarray(values) * 2.0**bits) / 2.0**bits


def shared_weight_chain(rng, n, n_steps, leak, slopes):
    """(chain, W, phi', J), J without rounding; phi' lies in the interval `slopes`."""
    W = few_bits(rng.standard_normal((n, n)) * 1.2 / np.sqrt(n))
    dphi = few_bits(rng.uniform(*slopes, (n_steps, n)))
    chain = gp.JacobianChain.row_scaled(W, dphi, leak=leak)
    return chain, W, dphi, (1 - leak) * np.eye(n) + leak * dphi[:, :, None] * W


# --- against the twin ----------------------------------------------------------------------------


@pytest.mark.parametrize("leak", [1.0, 0.25])
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("block", [1, 5, 20])
def test_bounds_are_those_of_the_twin(n, leak, block):
    rng = np.random.default_rng([n, block])
    chain, W, _, J = shared_weight_chain(rng, n, 18, leak, (-0.2, 1.1))
    bounds = gp.norm_bounds(chain, block=block, gamma=1.5)
    twin = naive.norm_bounds(J, W, gamma=1.5, leak=leak, block=block)
    for name in ("spectral_norm", "step_norms", "perron"):
        gap = np.abs(getattr(bounds, name) - twin[name])
        assert (gap <= [tolerance(float, n, lag) for lag in range(19)]).all(), name
    # a thousandfold rounding is added: 18 products of n terms, amplified as the factors' norms are
    amplified = np.exp(twin["step_norms"] - twin["blocked"])
    added = 1000 * tolerance(float, n, 18) * amplified
    assert (bounds.blocked >= twin["blocked"] - tolerance(float, n, 18)).all()
    assert (bounds.blocked <= twin["blocked"] + added).all()
    assert (bounds.lower >= twin["determinant"] - 1e-9).all() or n == 1
    assert bounds.gamma == 1.5
    assert (bounds.kind, bounds.block, int(bounds.status)) == ("certificate", block, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_trajectory_bounds_of_every_family_are_those_of_the_twin(family):
    J = random_chain(np.random.default_rng(5), family, 12, 3)
    bounds = gp.norm_bounds(gp.JacobianChain.dense(J), block=5)
    twin = naive.norm_bounds(J, np.eye(3), block=5)
    np.testing.assert_allclose(bounds.step_norms, twin["step_norms"], atol=tolerance(float, 3, 12))
    amplified = np.exp(twin["step_norms"] - twin["blocked"])
    assert (bounds.blocked >= twin["blocked"] - tolerance(float, 3, 12) * amplified).all()
    assert (bounds.blocked <= twin["blocked"] + 1000 * tolerance(float, 3, 12) * amplified).all()
    assert (bounds.blocked <= bounds.step_norms + tolerance(float, 3, 12)).all()


# --- against the truth ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "tanh"])
def test_no_bound_is_broken_on_the_oracle_networks(bounds_cases, kind):
    values, arrays = bounds_cases
    names = [name for name in values if f"W_{name}" in arrays]
    assert len(names) == 6
    for name in names:
        W, dphi = arrays[f"W_{name}"], arrays[f"dphi_{name}"]
        slopes = np.ones_like(dphi) if kind == "linear" else dphi
        chain = gp.JacobianChain.row_scaled(W, slopes)
        bounds = gp.norm_bounds(chain, gamma=1.0, scalings=0, splits=False)
        truth = gp.log_norms(chain).log_norm
        assert abs(truth[-1] / 200 - values[name][f"truth_{kind}_per_step"]) <= 1e-9
        assert_encloses(bounds, truth, CORE)
        rates = [getattr(bounds, bound)[-1] / 200 for bound in CORE]
        assert abs(rates[0] - values[name]["ln_spectral_norm"]) <= tolerance(float, 64, 1)
        if (name, kind) in KNOWN_RATES:
            np.testing.assert_allclose(rates, KNOWN_RATES[name, kind], atol=1.01e-3)
        # the lower bound was found within 0.04 nats a step of the truth on all of them
        assert truth[-1] / 200 - bounds.lower[-1] / 200 <= 0.04


@given(SEEDS, st.sampled_from(FAMILIES), st.integers(1, 4), st.integers(1, 7))
def test_exact_norms_lie_between_the_bounds(seed, family, n, block):
    J = random_chain(np.random.default_rng(seed), family, 10, n)
    bounds = gp.norm_bounds(gp.JacobianChain.dense(J), lags=[0, 1, 6, 10], block=block)
    assert_encloses(bounds, exact_norms(J, bounds.lags))
    assert bounds.kind == "none"
    assert np.isposinf(bounds.spectral_norm).all()
    assert np.isposinf(bounds.perron).all()
    assert bounds.status & Status.NO_BOUND


@given(
    SEEDS,
    st.integers(1, 4),
    st.sampled_from([1.0, 0.5, 0.125]),
    st.sampled_from([(0.0, 1.0), (-0.13, 1.13), (-2.0, -0.5), (0.0, 2.0**-10)]),
)
def test_exact_norms_lie_between_the_bounds_of_shared_weights(seed, n, leak, slopes):
    chain, _, dphi, J = shared_weight_chain(np.random.default_rng(seed), n, 12, leak, slopes)
    bounds = gp.norm_bounds(chain, lags=[1, 5, 12], block=4)
    assert_encloses(bounds, exact_norms(J, bounds.lags))
    assert bounds.kind == "trajectory"
    assert bounds.status & Status.NO_CERTIFICATE
    assert bounds.gamma == pytest.approx(np.abs(dphi).max(), rel=1e-15)


def test_cancelling_products_of_all_sizes_keep_the_law():
    for n in (2, 3, 5, 8):
        for seed in range(4):
            J = random_chain(np.random.default_rng([n, seed]), "cancelling", 60, n)
            bounds = gp.norm_bounds(gp.JacobianChain.dense(J), lags=[60], block=60)
            assert_encloses(bounds, exact_norms(J, [60]))


@pytest.mark.parametrize("leak", [1.0, 0.25])
@pytest.mark.parametrize("n", [5, 7])
def test_where_vectors_tell_nothing_the_determinant_does(n, leak, monkeypatch):
    monkeypatch.setattr(_boundfolds, "MARGIN", 1e30)
    chain, W, _, J = shared_weight_chain(np.random.default_rng(n), n, 18, leak, (-0.5, -0.1))
    determinant = naive.norm_bounds(J, W, leak=leak)["determinant"]
    for own in (chain, gp.JacobianChain.dense(J)):
        lower = gp.norm_bounds(own).lower
        # 4 n eps ||J|| are taken off every singular value, of J or of the scaled W
        condition = max(np.linalg.cond(J).max(), np.linalg.cond(W / np.abs(W).max(1)[:, None]))
        assert (lower <= determinant + tolerance(float, n, 18)).all()
        assert (lower >= determinant - tolerance(float, n, 18) * condition).all()


def test_a_singular_network_has_no_determinant_to_stand_on():
    # an integer basis of determinant 1 hides the triangular form, so that LAPACK sees no zero
    basis = np.tril(np.ones((8, 8))) @ np.triu(np.ones((8, 8)))
    inverse = np.round(np.linalg.inv(basis))
    nilpotent = basis @ np.triu(np.arange(64.0).reshape(8, 8) % 5 + 1, 1) @ inverse
    assert not np.linalg.matrix_power(nilpotent, 8).any()
    for chain in (
        gp.JacobianChain.row_scaled(nilpotent, np.ones((12, 8))),
        gp.JacobianChain.dense([nilpotent] * 12),
    ):
        assert np.isneginf(gp.norm_bounds(chain).lower[8:]).all()


def test_one_block_is_the_norm_itself(bounds_cases):
    _, arrays = bounds_cases
    chain = gp.JacobianChain.row_scaled(arrays["W_gaussian_g0.9"], arrays["dphi_gaussian_g0.9"])
    truth = gp.log_norms(chain).log_norm
    bounds = gp.norm_bounds(chain, block=200, scalings=0)
    # a thousand roundings of 200 products; the product of the norms is 1e60 times larger
    assert np.abs(bounds.blocked - truth).max() <= 1000 * tolerance(float, 64, 200, c=1)
    single = gp.norm_bounds(chain, block=1, scalings=0, splits=False).blocked
    np.testing.assert_allclose(single, bounds.step_norms, atol=tolerance(float, 64, 200, c=1))


@pytest.mark.parametrize("name", ["tanh", "gelu", "selu", "relu"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_orbits_keep_their_certificates(name, dtype):
    rng = np.random.default_rng(11)
    W = gp.initialise("gaussian", 24, gain=1.3, rng=rng)
    cell = gp.RNN(W, W_xh=np.eye(24), activation=name, leak=0.75)
    chain = gp.linearise(cell, 0.3 * rng.standard_normal((3, 60, 24)), dtype=dtype)
    bounds = gp.norm_bounds(chain)
    assert_encloses(bounds, gp.log_norms(chain).log_norm)
    assert bounds.kind == "certificate"
    assert not (bounds.status & ~np.int64(Status.ZERO)).any()
    np.testing.assert_allclose(bounds.gamma, cell.activation.gamma, rtol=1e-6)


def test_slopes_rounded_up_to_float32_do_not_break_the_bound():
    slopes = np.full((40, 2), np.float64(np.float32(0.1)))
    assert slopes[0, 0] > 0.1
    for leak in (1.0, 0.5):
        chain = gp.JacobianChain.row_scaled(np.eye(2), slopes, leak=leak)
        bounds = gp.norm_bounds(chain, gamma=0.1)
        assert_encloses(bounds, gp.log_norms(chain).log_norm)
        assert slopes[0, 0] <= bounds.gamma <= 0.1 * (1 + 1e-6)
        assert bounds.kind == "certificate"


def cell_with_range(name, low, high):
    """A cell of two uncoupled units whose activation states this range of slopes."""
    # built-ins are singletons, of which copy() gives the same one: fill a blank
    own = object.__new__(gp.Activation)
    for field in ("name", "phi", "dphi", "code"):
        object.__setattr__(own, field, getattr(activation(name), field))
    object.__setattr__(own, "dphi_range", (low, high))
    return gp.RNN(np.eye(2), activation=own)


def test_unbounded_slopes_give_a_trajectory_bound():
    cell = cell_with_range("tanh", 0.0, np.inf)
    bounds = gp.norm_bounds(gp.linearise(cell, h0=np.ones(2), n_steps=5))
    assert bounds.kind == "trajectory"
    assert bounds.gamma < 1
    assert np.isfinite([bounds.spectral_norm, bounds.perron]).all()


def test_a_wrong_range_of_slopes_is_found_out():
    chain = gp.linearise(cell_with_range("relu", 0.0, 0.5), h0=np.ones(2), n_steps=5)
    with pytest.raises(ValueError, match=r"of the chain, 1; the cell's activation says 0\.5"):
        gp.norm_bounds(chain)
    assert gp.norm_bounds(chain, gamma=1.0).kind == "certificate"


# --- claims that fail ----------------------------------------------------------------------------


def test_spectral_radius_below_one_is_no_bound():
    W = [[0.9, 50.0], [0.0, 0.9]]
    chain = gp.JacobianChain.dense(np.broadcast_to(W, (200, 2, 2)))
    linear = gp.JacobianChain.row_scaled(W, np.ones((200, 2)))
    bounds = gp.norm_bounds(linear, lags=[9, 50, 79, 80, 81, 200], gamma=1.0)
    truth = np.log([193.711, 14.316, np.nan, np.nan, np.nan, 7.839e-6])
    known = ~np.isnan(truth)
    # the figures have four to six digits
    np.testing.assert_allclose(bounds.perron[known], truth[known], atol=1e-4)
    np.testing.assert_allclose(bounds.lower[known], truth[known], atol=1e-4)
    assert (bounds.perron > bounds.lags * np.log(0.9)).all()
    assert (bounds.blocked >= bounds.perron - slack(bounds.lags)).all()
    assert (bounds.spectral_norm > bounds.lags * 3.9).all()
    assert (gp.norm_bounds(chain, lags=bounds.lags).blocked == bounds.blocked).all()


def test_nilpotent_weights_grow_under_a_mask():
    W = 1.5 * np.array([[1.0, -1.0], [1.0, -1.0]])
    assert gp.spectral_radius(W) == 0
    chain = gp.JacobianChain.row_scaled(W, np.tile([1.0, 0.0], (60, 1)))
    bounds = gp.norm_bounds(chain, gamma=1.0)
    truth = np.log(np.sqrt(2)) + bounds.lags * np.log(1.5)
    truth[0] = 0.0
    assert_encloses(bounds, truth)
    np.testing.assert_allclose(bounds.lower, truth, atol=1e-10)


def test_alternating_masks_grow_by_two_a_step():
    W = np.array([[0.0, 2.0], [2.0, 0.0]])
    dphi = np.tile([[1.0, 0.05], [0.05, 1.0]], (50, 1))
    assert gp.spectral_radius(dphi[0, :, None] * W) == pytest.approx(0.4472, abs=5e-5)
    bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi), gamma=1.0)
    growth = bounds.lags * np.log(2)
    assert_encloses(bounds, growth)
    for name in UPPER:
        np.testing.assert_allclose(getattr(bounds, name), growth, atol=1e-10)


def test_norm_above_one_does_not_mean_growth(bounds_cases):
    _, arrays = bounds_cases
    W, dphi = arrays["W_gaussian_g0.9"], arrays["dphi_gaussian_g0.9"]
    bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi), lags=[200], scalings=0)
    assert bounds.spectral_norm[0] > 0
    assert bounds.blocked[0] < 0


# --- exact cases ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_scaled_orthogonal_weights_are_bounded_exactly(n):
    Q = random_orthogonal(np.random.default_rng(n), n)
    chain = gp.JacobianChain.row_scaled(0.875 * Q, np.ones((50, n)))
    bounds = gp.norm_bounds(chain, gamma=1.0)
    truth = bounds.lags * np.log(0.875)
    for name in ("spectral_norm", "step_norms", "blocked"):
        np.testing.assert_allclose(getattr(bounds, name), truth, atol=tolerance(float, n, 50))
    # 4 n eps of every singular value are taken off, and rounding a thousandfold from vectors
    np.testing.assert_allclose(bounds.lower, truth, atol=tolerance(float, n, 50))


def test_products_that_vanish_are_bounded_by_zero():
    nilpotent = np.diag([1.0, 2.0, 0.5], k=1)
    bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(nilpotent, np.ones((9, 4))), block=5)
    assert np.isneginf(bounds.blocked[4:]).all()
    assert np.isneginf(bounds.perron[4:]).all()
    assert np.isneginf(bounds.lower[4:]).all()
    assert np.isfinite(bounds.perron[:4]).all()
    dead = gp.norm_bounds(gp.JacobianChain.row_scaled(np.ones((2, 2)), [[1.0, 1.0], [0.0, 0.0]]))
    assert np.isneginf([dead.step_norms[2], dead.blocked[2], dead.lower[2]]).all()
    assert dead.status & Status.ZERO
    silent = gp.norm_bounds(gp.JacobianChain.row_scaled([[3.0]], [[0.0], [0.0]]))
    np.testing.assert_array_equal(silent.spectral_norm, [0.0, -np.inf, -np.inf])
    np.testing.assert_array_equal(silent.perron, [0.0, -np.inf, -np.inf])


@pytest.mark.parametrize("dtype", [float, complex])
def test_diagonal_chains_are_bounded_elementwise(dtype):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((2, 45, 6)).astype(dtype)
    if dtype is complex:
        a += 1j * rng.standard_normal(a.shape)
    a[0, 17, 2] = 0
    chain = gp.JacobianChain.diagonal(a)
    bounds = gp.norm_bounds(chain, block=10)
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(a))
    room = tolerance(float, 1, 45)
    for r in range(2):
        for lag in range(46):
            parts = [logs[r, i : min(i + 10, lag)].sum(axis=0).max() for i in range(0, lag, 10)]
            assert abs(bounds.blocked[r, lag] - sum(parts)) <= room
            assert abs(bounds.step_norms[r, lag] - logs[r, :lag].max(axis=1).sum()) <= room
    np.testing.assert_allclose(bounds.lower, gp.log_norms(chain).log_norm, atol=room)
    assert (bounds.status & Status.NO_BOUND).all()
    assert np.isposinf(bounds.perron).all()
    assert np.isnan(bounds.gamma).all()


def test_sums_do_not_lose_digits_over_a_hundred_thousand_steps():
    steps = np.exp(np.random.default_rng(0).uniform(-1, -0.9, (100_000, 1)))
    swings = np.tile([[0.9], [1e300], [1e-300]], (20_000, 1))
    swings[::6] = 1.1
    for factors in (steps, swings):
        lag = len(factors)
        bounds = gp.norm_bounds(gp.JacobianChain.diagonal(factors), lags=[lag], block=lag + 1)
        truth = math.fsum(np.log(factors[:, 0]))
        for name in ("step_norms", "blocked", "lower"):
            # one rounding of the logarithm each, which is common, and one of the total
            assert abs(getattr(bounds, name)[0] - truth) <= 4 * np.spacing(abs(truth))


def test_many_steps_need_little_memory():
    W = np.random.default_rng(1).standard_normal((16, 16)) / 4
    chain = gp.linearise(gp.RNN(W, activation="linear"), n_steps=100_000, h0=np.zeros(16))
    gp.norm_bounds(chain, lags=[1])
    tracemalloc.start()
    bounds = gp.norm_bounds(chain, lags=[100, 100_000], scalings=0, splits=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 160 * 2**20  # two blocks of 64 MiB; all factors would be 205 MB each time
    assert_encloses(bounds, gp.log_norms(chain, lags=bounds.lags).log_norm)


# --- populations, padding, order -----------------------------------------------------------------


def test_replicas_are_bounded_as_if_alone():
    rng = np.random.default_rng(8)
    W, dphi = rng.standard_normal((3, 1, 4, 4)) / 2, rng.uniform(0, 1, (2, 30, 4))
    for leak in (1.0, 0.5):
        bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi, leak=leak), block=7)
        assert bounds.blocked.shape == (3, 2, 31)
        for i in range(3):
            for j in range(2):
                alone = gp.JacobianChain.row_scaled(W[i, 0], dphi[j], leak=leak)
                single = gp.norm_bounds(alone, block=7)
                for name in (*ALL, "gamma"):
                    np.testing.assert_array_equal(
                        getattr(bounds, name)[i, j], getattr(single, name)
                    )


def test_perron_curves_are_computed_once_per_network(monkeypatch):
    calls = []
    curve = perron._perron_curve
    monkeypatch.setattr(perron, "_perron_curve", lambda *a: calls.append(a) or curve(*a))
    W = np.random.default_rng(0).standard_normal((2, 1, 3, 3))
    dphi = np.random.default_rng(1).uniform(0, 1, (5, 6, 3))
    gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi))
    assert len(calls) == 2


def test_padded_sequences_keep_their_bounds():
    rng = np.random.default_rng(4)
    cell = gp.RNN(rng.standard_normal((5, 5)) / 2, leak=0.5)
    x = rng.standard_normal((3, 40, 5))
    lengths = [40, 13, 0]
    bounds = gp.norm_bounds(gp.linearise(cell, x, lengths=lengths), block=5)
    assert_encloses(bounds, gp.log_norms(gp.linearise(cell, x, lengths=lengths)).log_norm)
    for r, length in enumerate(lengths):
        short = gp.norm_bounds(gp.linearise(cell, x[r, :length].reshape(length, 5)), block=5)
        for name in ALL:
            values = getattr(bounds, name)[r]
            if not name.startswith("scaled"):  # whose scalings depend on the largest lag
                np.testing.assert_array_equal(values[: length + 1], getattr(short, name))
            assert (values[length:] == values[length]).all()


def test_nothing_is_claimed_past_an_overflow():
    cell = gp.RNN(np.array([[[2.0]], [[0.5]]]), activation="linear")
    chain = gp.linearise(cell, h0=[1.0], n_steps=1100)
    bounds = gp.norm_bounds(chain, lags=[1000, 1100])
    for name in ALL:
        values = getattr(bounds, name)
        assert np.isfinite(values[:, 0]).all()
        assert np.isnan(values[:, 1]).tolist() == [True, False]
    assert (bounds.status & Status.OVERFLOWED).astype(bool).tolist() == [True, False]
    np.testing.assert_allclose(bounds.blocked[:, 0], 1000 * np.log([2.0, 0.5]), rtol=1e-14)


def test_lags_come_back_in_the_order_asked_for():
    chain, *_ = shared_weight_chain(np.random.default_rng(2), 4, 50, 1.0, (0, 1))
    full = gp.norm_bounds(chain)
    some = gp.norm_bounds(chain, lags=[33, 0, 50, 33, 7])
    beside, norms = gp.measure(chain, gp.Bounds([33, 0, 50, 33, 7]), gp.Norms())
    assert some.lags.tolist() == [33, 0, 50, 33, 7]
    for name in ("spectral_norm", "step_norms", "blocked", "lower"):
        np.testing.assert_array_equal(getattr(some, name), getattr(full, name)[some.lags])
        np.testing.assert_array_equal(getattr(some, name), getattr(beside, name))
    np.testing.assert_allclose(some.perron, full.perron[some.lags], atol=tolerance(float, 4, 50))
    assert_encloses(full, norms.log_norm)


def test_gamma_belongs_to_the_whole_chain_whatever_the_lags():
    dphi = np.full((30, 2), 0.5)
    dphi[29, 1] = 0.75
    bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(np.eye(2), dphi), lags=[3])
    assert bounds.gamma == 0.75
    np.testing.assert_allclose(bounds.spectral_norm, 3 * np.log(0.75), rtol=1e-14)
    np.testing.assert_allclose(bounds.step_norms, 3 * np.log(0.5), rtol=1e-14)


def test_no_steps_are_the_identity():
    bounds = gp.norm_bounds(gp.linearise(gp.RNN(np.ones((3, 3))), n_steps=0))
    for name in ALL:
        assert getattr(bounds, name).tolist() == [0.0]


def test_results_are_tables_and_files(tmp_path):
    chain, *_ = shared_weight_chain(np.random.default_rng(2), 3, 6, 1.0, (0, 1))
    bounds = gp.norm_bounds(chain)
    frame = bounds.to_frame()
    assert len(frame) == 7
    assert {"lags", *ALL, "gamma", "status"} <= set(frame.columns)
    bounds.save(tmp_path / "bounds.npz")
    loaded = gp.NormBounds.load(tmp_path / "bounds.npz")
    np.testing.assert_array_equal(loaded.blocked, bounds.blocked)
    assert (loaded.kind, loaded.block) == (bounds.kind, bounds.block)


def test_other_chains_have_trajectory_bounds_only():
    J = random_chain(np.random.default_rng(6), "gaussian", 8, 3)
    acted = gp.JacobianChain.from_products(
        lambda k, V: J[k - 1] @ V, lambda k, V: J[k - 1].T @ V, 3, 8
    )
    bounds, dense = gp.norm_bounds(acted), gp.norm_bounds(gp.JacobianChain.dense(J), gamma=1.0)
    for name in ALL:
        np.testing.assert_array_equal(getattr(bounds, name), getattr(dense, name))
    assert "neither" in " ".join(bounds.messages())


# --- Perron --------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 4), st.sampled_from([1.0, 0.25]), st.sampled_from([0.0, 0.5, 1.5]))
def test_perron_norms_are_exact(seed, n, leak, gamma):
    rng = np.random.default_rng(seed)
    W = few_bits(rng.standard_normal((n, n))) * (rng.uniform(size=(n, n)) < 0.7)
    A = (1 - leak) * np.eye(n) + leak * gamma * np.abs(W)
    lags = [11, 0, 1, 3]
    values = perron_log_norms(W, lags, gamma=gamma, leak=leak)
    truth = exact_norms(np.broadcast_to(A, (11, n, n)), lags)
    np.testing.assert_allclose(values, truth, rtol=0, atol=tolerance(float, n, 11))


def test_perron_norms_of_dense_and_sparse_lags_agree():
    W = np.random.default_rng(0).standard_normal((2, 5, 5))
    dense = perron_log_norms(W, np.arange(300))
    for lags in ([299], [0, 299], [7, 128, 255, 256, 299], [299, 1]):
        some = perron_log_norms(W, lags)
        np.testing.assert_allclose(some, dense[:, lags], atol=tolerance(float, 5, 299))


def test_perron_norms_far_away_grow_by_the_radius_of_the_magnitudes():
    W = np.random.default_rng(0).standard_normal((6, 6))
    million, billion = perron_log_norms(W, [10**6, 10**9])
    assert billion - million == pytest.approx(
        (10**9 - 10**6) * np.log(gp.spectral_radius(np.abs(W))), rel=tolerance(float, 6, 1)
    )


def test_rescaled_weights_shift_the_perron_curve():
    W = np.random.default_rng(3).standard_normal((8, 8))
    lags = np.arange(100)
    shifted = perron_log_norms(W, lags) + lags * np.log(0.7)
    np.testing.assert_allclose(
        perron_log_norms(-0.7 * W, lags), shifted, atol=tolerance(float, 8, 99)
    )


def test_perron_norms_lose_no_thin_path():
    # the strong path dies at lag 3; what is left is 2^-1200 of it, below what floats can hold
    W = np.zeros((4, 4))
    W[0, 1] = W[1, 2] = 2.0**400
    W[3, 3] = 2.0**-200
    values = perron_log_norms(W, [2, 3, 4])
    assert values[0] == pytest.approx(800 * np.log(2))
    assert (values[1:] >= np.array([3, 4]) * -200 * np.log(2)).all()
    assert np.isneginf(perron_log_norms(W[:3, :3], [3])).all()


def test_weights_of_any_size_have_bounds():
    for size in (1e-310, 1e-200, 1e200, 1e307):
        chain = gp.JacobianChain.row_scaled([[0.0, size], [size, 0.0]], np.ones((40, 2)))
        bounds = gp.norm_bounds(chain, gamma=1.0)
        for name in ALL:
            # one logarithm of up to 714 is rounded at every step
            np.testing.assert_allclose(
                getattr(bounds, name), bounds.lags * np.log(size), rtol=1e-13
            )


# --- bad input -----------------------------------------------------------------------------------


def test_gamma_below_the_slopes_of_the_chain_is_refused():
    chain = gp.JacobianChain.row_scaled(np.eye(2), [[1.0, 0.5], [0.25, -1.25]], leak=0.3)
    with pytest.raises(ValueError, match=r"`gamma` must be at least .* 1\.25; got 1\.2"):
        gp.norm_bounds(chain, gamma=1.2)
    with pytest.raises(ValueError, match=r"1\.25; got 1\.2"):
        gp.norm_bounds(chain, lags=[1], gamma=1.2)
    assert gp.norm_bounds(chain, gamma=1.25).gamma == 1.25


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"lags": [3]}, ValueError, "`lags` must lie in 0..2; got 3"),
        ({"lags": [-1]}, ValueError, "`lags` must lie in 0..2; got -1"),
        ({"lags": [0.5]}, TypeError, "`lags` must hold integers"),
        ({"lags": []}, ValueError, "`lags` must not be empty"),
        ({"block": 0}, ValueError, "`block` must be at least 1; got 0"),
        ({"block": 2.0}, TypeError, "`block` must be an integer"),
        ({"gamma": -1.0}, ValueError, r"`gamma` must be at least 0\.0; got -1\.0"),
        ({"gamma": np.nan}, ValueError, "`gamma` must be finite"),
        ({"gamma": "tanh"}, TypeError, "`gamma` must be a real number"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    chain = gp.JacobianChain.row_scaled(np.eye(2) / 2, np.ones((2, 2)))
    with pytest.raises(error, match=message):
        gp.norm_bounds(chain, **settings)


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="`chain` must be a JacobianChain"):
        gp.norm_bounds(np.eye(2))
    with pytest.raises(ValueError, match="`W` must be square"):
        perron_log_norms(np.ones((2, 3)), [1])
    with pytest.raises(ValueError, match="`W` must be finite; got nan at index"):
        perron_log_norms([[np.nan]], [1])
    with pytest.raises(ValueError, match="`lags` must lie in"):
        perron_log_norms([[1.0]], [-1])
    with pytest.raises(ValueError, match="`leak` must be greater than 0"):
        perron_log_norms([[1.0]], [1], leak=0.0)
    with pytest.raises(ValueError, match="`gamma` must be at least 0"):
        perron_log_norms([[1.0]], [1], gamma=-0.1)
