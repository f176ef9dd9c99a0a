"""What the studies of gradients through time measure, on small points with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import ROOT

import gradprop as gp


@pytest.fixture(autouse=True)
def _studies(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_same_bytes(measure, point) -> dict:
    """Two runs of one point give the same bytes; the first of them."""
    first, second = measure(point, rng()), measure(point, rng())
    assert first.keys() == second.keys()
    for name in first:
        assert np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes(), name
    return first


# gradient_check ----------------------------------------------------------------------------------

CHECK = {"n": 3, "n_steps": 4, "steps": np.array([1e-3, 1e-6, 1e-12])}


@pytest.mark.parametrize("kind", ["vanilla", "lstm", "gru"])
def test_difference_quotients_agree_with_backward(kind):
    import _gradient_check

    found = assert_same_bytes(_gradient_check.measure, {**CHECK, "kind": kind})
    assert found["central_entry_float64"][1] < 1e-6
    # eps times the steps and sums of a loss of 36 terms
    assert found["complex_float64"][2] < 1e-13
    assert found["float32_backward"] < 1e-5
    # cancellation: eps |L| / h of a loss near 1, at least a tenth of it
    assert found["central_float64"][2] > 1e-6
    assert found["last_only"][1] > 0.1
    assert (found["slope_at_state"][1] > 0.01) if kind == "vanilla" else True


def test_the_faults_are_none_on_one_step():
    import _gradient_check
    import _training

    model = _training.make("vanilla", 3, 2, 1, rng(), dtype=np.float32)
    x, y = rng(1).standard_normal((2, 1, 2)), rng(2).standard_normal((2, 1, 3))
    right = _gradient_check._reference(model, x, y)[0]
    # of one step the last is all of it; with phi' at h_0 = 0 it is not phi' = 1 that is right
    np.testing.assert_allclose(
        _gradient_check.last_step_only(model, x, y), right, rtol=1e-12, atol=1e-14
    )
    assert np.linalg.norm(_gradient_check.slope_at_state(model, x, y) - right) > 1e-3


# earliest_weight ---------------------------------------------------------------------------------


def test_first_contribution_of_a_scalar_linear_network():
    import _earliest_weight

    cell = gp.RNN([[0.5]], [[1.0]], [0.0], activation="linear")
    found = _earliest_weight.first_contribution(cell, np.ones((2, 8, 1)), np.array([[2.0], [-1.0]]))
    np.testing.assert_allclose(found, 7 * math.log(0.5), rtol=1e-13)
    assert _earliest_weight.bound_of(cell, np.ones((1, 8, 1))) == pytest.approx(7 * math.log(0.5))


@pytest.mark.parametrize("network", ["vanilla", "diagonal", "lstm_1"])
def test_bounds_hold_and_float32_agrees(network):
    import _earliest_weight

    point = {"network": network, "n": 6, "size": 3, "lengths": [2, 16]}
    found = assert_same_bytes(_earliest_weight.measure, point)
    assert found["margin"] >= -1e-12 * 16
    assert np.isinf(found["margin"]) == (network == "lstm_1")
    assert found["zero_float32"][0] == found["zero"][0]
    assert not found["gap_float32"][0] > 1e-5


# gates_vs_vanilla --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "bias", "twice", "log10"),
    [
        ("lstm", 0.0, False, -30.102999566),
        ("lstm", 1.0, False, -13.604782228),
        ("lstm", 1.0, True, -5.5124134795),
        ("gru", 0.0, False, -30.102999566),
    ],
)
def test_gates_alone_forget_as_they_must(kind, bias, twice, log10):
    import _gate_paths

    point = {"kind": kind, "bias": bias, "twice": twice, "n_steps": 100}
    found = assert_same_bytes(_gate_paths.measure_exact, point)
    assert found["at_end"] == pytest.approx(log10, abs=6e-10)
    assert found["theory"] == pytest.approx(log10, abs=6e-10)
    if kind == "lstm":
        assert np.isneginf(found["log10_hh"]).all()
        assert np.isneginf(found["log10_ch"]).all()
        # dh/dc = s(b_o) phi'(0) dc/dc: half of it at every lag
        np.testing.assert_allclose(found["log10_hc"] - found["log10_cc"], math.log10(0.5))


def test_blocks_of_a_product():
    import _gate_paths

    J = np.array([[[1.0, 2.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 3.0]]])
    everything = slice(None)
    parts = {"all": (everything, everything), "corner": (slice(0, 1), slice(1, 2))}
    found = _gate_paths.product_blocks(J, parts)
    # J_2 J_1 has norm 3.6502815, the wrong order 6.7678289
    assert math.exp(found["all"][1]) == pytest.approx(3.6502815, abs=5e-8)
    assert math.exp(found["corner"][1]) == pytest.approx(2.0)
    far = _gate_paths.product_blocks(np.full((800, 1, 1), 0.1), {"all": (everything, everything)})
    assert far["all"][-1] == pytest.approx(800 * math.log(0.1), rel=1e-12)


def test_a_stack_decays_like_its_slowest_layer():
    import _gate_paths

    point = {"kind": "vanilla", "depth": 2, "n": 4, "n_steps": 200, "tol": 1e-3}
    found = assert_same_bytes(_gate_paths.measure_depth, point)
    assert found["rate_stack"] == pytest.approx(found["rate_slowest"], abs=0.05)
    assert _gate_paths.first_below(np.log([0.5, 0.1, 0.01]), 0.05) == 3
    assert _gate_paths.first_below(np.log([0.5, 0.1]), 0.05) == math.inf


# clipping ----------------------------------------------------------------------------------------


def test_clipping_each_array_turns_and_joint_clipping_does_not():
    import _clipping

    grads = {"W": np.array([3.0, 0.0]), "b": np.array([0.0, 0.5])}
    turned = _clipping.each_array(grads, 1.0)
    np.testing.assert_allclose(turned["W"], [1.0, 0.0])
    np.testing.assert_array_equal(turned["b"], grads["b"])
    expected = (3.0 + 0.25) / math.sqrt(9.25 * 1.25)
    assert _clipping.cosine(grads, turned) == pytest.approx(expected)
    assert _clipping.cosine(grads, gp.clip_by_global_norm(grads, 1.0)[0]) == pytest.approx(1.0)


def test_a_run_that_diverges_keeps_its_record():
    import _clipping

    point = {"network": "identity", "rate": 1.0, "rule": "none", "n": 32, "length": 30}
    found = assert_same_bytes(_clipping.measure, {**point, "n_updates": 40})
    made = int(np.isfinite(found["loss"]).sum())
    assert found["diverged_at"] == made + 1 < 40
    assert found["diverged"].startswith(f"update {made + 1}: ")
    assert found["final_loss"] == math.inf
    held = _clipping.measure({**point, "rule": "global 1", "n_updates": 40}, rng())
    assert held["diverged_at"] == -1
    assert held["loss"][0] == found["loss"][0]


def test_clipping_changes_no_bit_of_a_vanished_run():
    import _clipping

    point = {"n": 4, "length": 40, "n_updates": 6, "rate": 0.03, "every": 2}
    found = assert_same_bytes(_clipping.measure_vanished, {**point, "limit": 5.0})
    assert found["bit_equal"]
    assert found["largest_norm"] < 5.0
    assert found["log10_far"][1] < -1
    clipped = _clipping.measure_vanished({**point, "limit": 0.01}, rng())
    assert not clipped["bit_equal"]


# horizon_during_training -------------------------------------------------------------------------


def test_checkpoints_of_a_training_run():
    import _horizon_training

    point = {"kind": "gru", "rate": 0.01, "n": 4, "length": 6, "samples": 64, "stream": 200}
    found = assert_same_bytes(_horizon_training.measure, {**point, "checkpoints": [0, 2, 5]})
    assert (len(found["loss"]), found["horizon"].shape) == (5, (3, 3))
    assert (found["low"] <= found["lambda_1"]).all()
    assert (found["lambda_1"] <= found["high"]).all()


def test_exponent_and_horizon_of_gates_that_nothing_moves():
    import _horizon_training
    import _tasks
    import _training

    model = _training.make("gru", 1, 2, 1, rng())
    for name in ("W_hh", "W_xh", "b_x", "b_h"):
        model.parameters[name][:] = 0.0
    probes = _tasks.adding(4, 10, rng())
    found = _horizon_training.checkpoint(
        model, probes, _horizon_training.long_input(10, 200, rng()), samples=300
    )
    assert found["lambda_1"] == pytest.approx(-math.log(2), rel=1e-12)
    # the gradient halves at every step: 1/16 at lag 4 is above 300^-1/2 = 0.058, 1/32 below
    np.testing.assert_array_equal(found["horizon"], 5.0)


# parallel_newton ---------------------------------------------------------------------------------


def test_newton_finds_the_orbit():
    import _parallel_newton

    point = {"n": 5, "gain": 0.9, "input_std": 0.5, "n_steps": 200, "cap": 40}
    found = assert_same_bytes(_parallel_newton.measure, point)
    assert 2 <= found["iterations"] < 20
    # residual times the sum of all later products, a few at this gain
    assert found["error"] < 1e-8
    assert found["low"] <= found["lambda_1"] <= found["high"] < 0
    without = {"gain": 0.0, "n": 5, "input_std": 0.5, "n_steps": 50, "cap": 40}
    assert _parallel_newton.measure({**without, "gain": 1e-9}, rng())["iterations"] <= 2


def test_newton_never_needs_more_iterations_than_steps():
    import _parallel_newton

    W, field, start = _parallel_newton.network(
        {"n": 8, "gain": 3.0, "input_std": 0.5, "n_steps": 30}, rng()
    )
    iterations, residuals, states = _parallel_newton.newton(W, field, start)
    assert 0 < iterations <= 30
    h = start
    for t, f in enumerate(field):
        h = np.tanh(W @ h + f)
        if t < 10:
            np.testing.assert_allclose(states[t + 1], h, atol=1e-6)
    assert residuals[iterations] <= _parallel_newton.TOLERANCE
    assert np.isnan(residuals[iterations + 1 :]).all()
    assert _parallel_newton.newton(W, field, start, cap=3)[0] == -1
