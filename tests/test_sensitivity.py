"""Derivatives of states by parameters: all units, random probes, and a law known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tape
import untied
from helpers import same, tolerance

import gradprop as gp


def forward_sensitivity(cell, x):
    """dh_t / d(W_hh, W_xh, b) of a vanilla cell, pushed forward with the state, (T + 1, n, P)."""
    n, d_x = cell.n, cell.d_x
    P = n * n + n * d_x + n
    h, S, out = np.zeros(n), np.zeros((n, P)), [np.zeros((n, P))]
    for x_t in x:
        z = cell.W_hh @ h + cell.W_xh @ x_t + cell.b
        slope = 1 / np.cosh(z) ** 2
        direct = np.zeros((n, P))
        for i in range(n):
            direct[i, i * n : (i + 1) * n] = h
            direct[i, n * n + i * d_x : n * n + (i + 1) * d_x] = x_t
            direct[i, n * n + n * d_x + i] = 1.0
        S = (1 - cell.leak) * S + cell.leak * slope[:, None] * (cell.W_hh @ S + direct)
        h = (1 - cell.leak) * h + cell.leak * np.tanh(z)
        out.append(S)
    return np.array(out)


def norms(cell, S):
    """Frobenius norm of derivatives (n, P), all of it and by array."""
    return [np.linalg.norm(part) for part in untied.parts(cell, S)]


def test_forward_recursion_gives_the_same_norms():
    rng = np.random.default_rng(1)
    cell, x = untied.random_cell(rng, "rnn", n=4), rng.standard_normal((50, 2))
    S = forward_sensitivity(cell, x)
    grown = gp.parameter_sensitivity(cell, x, steps=np.arange(51))
    assert grown.names == ("all", "W_hh", "W_xh", "b")
    assert (grown.log_norm[0] == -np.inf).all()
    assert grown.status == gp.Status.ZERO
    for t in range(1, 51):
        assert np.exp(grown.log_norm[t]) == pytest.approx(norms(cell, S[t]), rel=1e-12)
    assert (grown.error == 0).all()


@pytest.mark.parametrize("kind", untied.KINDS)
def test_every_cell_against_a_tape(kind):
    rng = np.random.default_rng(2)
    cell, x = untied.random_cell(rng, kind), rng.standard_normal((5, 2))
    p = {name: tape.Var(a) for name, a in cell.arrays().items()}
    state, outputs = untied.zero_state(cell), []
    for x_t in x:
        state, h = untied.step(cell, p, state, tape.Var(x_t))
        outputs.append(h)
    grown = gp.parameter_sensitivity(cell, x)
    assert grown.steps.tolist() == [1, 2, 3, 4, 5]
    for t, h in enumerate(outputs):
        rows = []
        for unit in np.eye(cell.n):
            tape.backward(h, unit)
            rows.append(np.concatenate([v.grad.ravel() for v in p.values()]))
        assert np.exp(grown.log_norm[t]) == pytest.approx(norms(cell, np.array(rows)), rel=1e-12)


@pytest.mark.parametrize("decay", [0.5, 0.9, -0.9])
def test_curse_of_memory_in_closed_form(decay):
    # dh_T/da is linear in x: its variance is the sum of squares over unit impulses. What T cuts
    # off is T^2 decay^(2T) of it, below 1e-30
    T = 400
    cell = gp.RNN([[decay]], activation="linear")
    impulses = gp.parameter_sensitivity(cell, np.eye(T)[..., None], steps=[T])
    variance = np.exp(2 * impulses.log_norm[:, 0, 1]).sum()
    exact = (1 + decay**2) / (1 - decay**2) ** 3
    # an impulse at distance d gives d a^(d-1), each of T factors and d terms
    assert variance == pytest.approx(exact, rel=2 * tolerance(float, 1, T))


def test_curse_of_memory_in_samples():
    N, T = 20_000, 200
    x = np.random.default_rng(3).standard_normal((N, T, 1))
    grown = gp.parameter_sensitivity(gp.RNN([[0.9]], activation="linear"), x, steps=[T])
    squares = np.exp(2 * grown.log_norm[:, 0, 1])
    # a Gaussian's square has relative standard deviation sqrt 2; five of its errors
    assert squares.mean() == pytest.approx(263.9, rel=5 * math.sqrt(2 / N))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sensitivity_leaves_the_range_of_floats(dtype):
    # h = 0 for ever, dh_t/db = 1 + 2 + ... = 2^t - 1
    T = 1200
    cell = gp.RNN(np.array([[2.0]], dtype), b=np.zeros(1, dtype), activation="linear")
    grown = gp.parameter_sensitivity(cell, np.zeros((T, 1), dtype), steps=[1, 10, T])
    exact = [0.0, math.log(1023), T * math.log(2)]
    assert grown.log_norm[:, 2] == pytest.approx(exact, rel=tolerance(dtype, 1, 1))
    assert (grown.log_norm[:, 1] == -np.inf).all()


def test_sensitivity_that_decays_out_of_range():
    # saturated from step 2 on: dh_T/dW_xh = 0.5^(T-1) of the 0.5 x_1 that step 1 left behind
    T = 1100
    x = np.full((T, 1), 1e4)
    x[0] = 0.5
    cell = gp.RNN([[0.0]], [[1.0]], activation="hard_tanh", leak=0.5)
    grown = gp.parameter_sensitivity(cell, x, steps=[1, T])
    exact = [math.log(0.25), math.log(0.25) + (T - 1) * math.log(0.5)]
    assert grown.log_norm[:, 2] == pytest.approx(exact, rel=1e-14)


def test_padded_sequences_stay_and_batches_are_their_sequences():
    rng = np.random.default_rng(4)
    for kind in ("lstm", "gru_before", "stack"):
        cell, x = untied.random_cell(rng, kind), rng.standard_normal((3, 40, 2))
        batch = gp.parameter_sensitivity(cell, x, lengths=[40, 35, 0], steps=[0, 3, 33, 40])
        for r, length in enumerate([40, 35]):
            own = gp.parameter_sensitivity(
                cell, x[r, :length], steps=np.minimum([0, 3, 33, 40], length)
            )
            finite = np.isfinite(own.log_norm)
            assert batch.log_norm[r][finite] == pytest.approx(own.log_norm[finite], abs=1e-12)
            assert (batch.log_norm[r][~finite] == -np.inf).all()
        assert (batch.log_norm[2] == -np.inf).all()
        padded = gp.Status.ZERO | gp.Status.PADDED
        assert batch.status.tolist() == [gp.Status.ZERO, padded, padded]


def test_networks_and_memory_make_no_difference(monkeypatch):
    rng = np.random.default_rng(5)
    W, x = rng.standard_normal((2, 3, 3)) / 2, rng.standard_normal((4, 1, 20, 3))
    both = gp.parameter_sensitivity(gp.RNN(W), x, steps=[7, 20])
    assert both.log_norm.shape == (4, 2, 2, 2)
    for r in range(2):
        own = gp.parameter_sensitivity(gp.RNN(W[r]), x[:, 0], steps=[7, 20])
        assert both.log_norm[:, r] == pytest.approx(own.log_norm, abs=1e-13)
    monkeypatch.setattr("gradprop.gradients.sensitivity.KEPT_FLOATS", 1)
    piecewise = gp.parameter_sensitivity(gp.RNN(W), x, steps=[7, 20])
    assert piecewise.log_norm == pytest.approx(both.log_norm, abs=1e-13)


def test_probes_estimate_the_norm_within_their_error():
    rng = np.random.default_rng(6)
    cell, x = untied.random_cell(rng, "gru", n=8), rng.standard_normal((30, 2))
    exact = gp.parameter_sensitivity(cell, x, steps=[5, 30])
    for k in (16, 4000):
        probed = gp.parameter_sensitivity(cell, x, steps=[5, 30], probes=k, rng=7)
        # the relative variance of the square is at most 2/k; its own estimate scatters for small k
        assert (probed.error <= (2.0 if k == 16 else 1.1) * math.sqrt(0.5 / k)).all()
        assert (probed.error > 0).all()
        assert (np.abs(probed.log_norm - exact.log_norm) <= 5 * math.sqrt(0.5 / k)).all()
    again = gp.parameter_sensitivity(cell, x, steps=[5, 30], probes=4000, rng=7)
    assert same(again.log_norm, probed.log_norm)
    assert (np.abs(probed.log_norm - exact.log_norm) <= 5 * probed.error).all()


def test_autonomous_networks_and_default_steps():
    cell = gp.RNN([[0.5]], activation="linear")
    grown = gp.parameter_sensitivity(cell, h0=[1.0], n_steps=100)
    # dh_t/da = t a^(t-1)
    steps = grown.steps
    assert len(steps) == 64
    assert steps[0] == 1
    assert steps[-1] == 100
    exact = np.log(steps) + (steps - 1) * math.log(0.5)
    assert grown.log_norm[:, 1] == pytest.approx(exact, abs=tolerance(float, 1, 100))
    none = gp.parameter_sensitivity(cell, np.zeros((0, 1)))
    assert none.steps.tolist() == [0]
    assert (none.log_norm == -np.inf).all()
    frame = grown.to_frame()
    assert frame["array"].tolist()[:2] == ["all", "W_hh"]
    assert same(frame.steps[::2], steps)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": [5]}, ValueError, r"`steps` must lie in 0..4; got 5"),
        ({"steps": [0.5]}, TypeError, r"`steps` must hold integers"),
        ({"probes": 1}, ValueError, r"`probes` must be at least 2"),
        ({"n_steps": 4}, ValueError, r"`n_steps` must be given where `x` is None, and only there"),
        ({"x": None}, ValueError, r"`n_steps` must be given where `x` is None"),
        ({"x": None, "n_steps": 4}, ValueError, r"`h0` must be given when `x` is None"),
        ({"cell": "RNN"}, TypeError, r"`cell`"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    given = {"cell": gp.RNN([[0.5]]), "x": np.zeros((4, 1)), **arguments}
    with pytest.raises(error, match=message):
        gp.parameter_sensitivity(**given)


@pytest.mark.parametrize(("dtype", "n_steps"), [("float64", 400), ("float32", 90)])
def test_an_impulse_is_not_lost_below_the_gradients_of_later_steps(dtype, n_steps):
    # h_t = w^(t-1) u v: of W_xh w^(t-1) v, of W_hh (t-1) w^(t-2) u v; of the bias 1 / (1 - w)
    w, one = 0.125, np.ones((1, 1), dtype)
    cell = gp.RNN(w * one, one, np.zeros(1, dtype), activation="linear")
    x = np.zeros((n_steps, 1), dtype)
    x[0] = 1.0
    found = gp.parameter_sensitivity(cell, x, steps=[n_steps]).log_norm[0]
    by_name = dict(zip(("all", "W_hh", "W_xh", "b"), found, strict=True))
    assert by_name["W_xh"] == pytest.approx((n_steps - 1) * np.log(w), rel=1e-6)
    assert by_name["b"] == pytest.approx(-np.log(1 - w), rel=1e-6)
