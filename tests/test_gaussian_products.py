"""Exact laws of Gaussian products, and gates without recurrent weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop.results import Status

EPS = float(np.finfo(np.float64).eps)

# --- the largest singular value ---------------------------------------------------------------


@given(st.integers(1, 400), st.floats(0.1, 4.0))
def test_edge_against_whole_numbers(lag, gain):
    exact = Fraction((lag + 1) ** (lag + 1), lag**lag)
    log = math.log(exact.numerator) - math.log(exact.denominator)  # exact integers of any size
    edge = gp.product_edge(lag, gain)
    size = abs(lag * math.log(gain)) + (lag + 1) * math.log(lag + 1)
    assert float(edge.log_sigma[0]) == pytest.approx(
        log / 2 + lag * math.log(gain), abs=4 * EPS * size
    )


def test_edge_to_published_digits():
    squares = np.exp(2 * gp.product_edge([0, 1, 2, 10, 100, 1000]).log_sigma)
    expected = [1.0, 4.0, 6.75, 28.5312, 273.186, 2719.64]
    np.testing.assert_allclose(squares, expected, rtol=2e-6)
    assert float(gp.product_edge(10**12).log_sigma[0]) == pytest.approx(
        0.5 * (1 + math.log(1e12)), abs=1e-11
    )


@given(st.integers(0, 12), st.integers(1, 12))
def test_moments_are_fuss_catalan_numbers(lag, k):
    exact = Fraction(math.comb((lag + 1) * k, k), lag * k + 1)
    assert exact.denominator == 1
    found = gp.product_edge([lag], 1.5).log_moment(k)[0]
    assert found == pytest.approx(math.log(exact) + 2 * k * lag * math.log(1.5), abs=1e-12)


def test_moments_approach_the_edge():
    """The k-th root of the k-th moment tends to the largest sigma^2; the variance is the lag."""
    edge = gp.product_edge([1, 5, 50], 0.8)
    k = 10**6
    np.testing.assert_allclose(edge.log_moment(k) / (2 * k), edge.log_sigma, atol=3e-5)
    first, second = np.exp(edge.log_moment(1)), np.exp(edge.log_moment(2))
    np.testing.assert_allclose(second / first**2 - 1, [1, 5, 50], rtol=1e-12)


@pytest.mark.parametrize("tied", [True, False])
def test_large_products_have_this_edge_and_variance(tied):
    """n = 400: the edge fluctuates by n^(-2/3), moments by 1/n."""
    n, lag = 400, 4
    rng = np.random.default_rng(3)
    P = np.eye(n)
    W = rng.standard_normal((n, n)) / math.sqrt(n)
    for _ in range(lag):
        P = (W if tied else rng.standard_normal((n, n)) / math.sqrt(n)) @ P
    sigma = np.linalg.svd(P, compute_uv=False)
    edge = gp.product_edge([lag])
    assert math.log(sigma[0]) == pytest.approx(float(edge.log_sigma[0]), abs=4 * n ** (-2 / 3))
    assert np.mean(sigma**2) == pytest.approx(1.0, abs=0.1)
    assert np.var(sigma**2) == pytest.approx(lag, rel=0.2)


def test_edge_says_when_it_applies_and_refuses(tmp_path):
    edge = gp.product_edge([1, 3], 2.0)
    assert len(edge.to_frame()) == 2
    for word in ("fixed lag", "sqrt(n)", "power of one W", "typical"):
        assert word in edge.conditions
    edge.save(tmp_path / "edge.npz")
    assert gp.ProductEdge.load(tmp_path / "edge.npz").gain == 2.0
    for arguments, error, text in (
        (([-1],), ValueError, "`lags` must lie in 0"),
        (([1.5],), TypeError, "`lags` must hold integers"),
        (([1], 0.0), ValueError, "`gain` must be greater than 0"),
        (([1], np.inf), ValueError, "`gain` must be finite"),
    ):
        with pytest.raises(error, match=text):
            gp.product_edge(*arguments)
    with pytest.raises(ValueError, match="`k` must be at least 1"):
        edge.log_moment(0)


# --- errors of estimated exponents ------------------------------------------------------------


def test_newman_errors():
    exact = gp.newman_exponents(4, 1.0)
    assert exact.std_error(4000).round(5).tolist() == [0.00635, 0.00764, 0.01014, 0.01756]
    np.testing.assert_allclose(exact.std_error(1) ** 2, exact.variance_per_step, rtol=4 * EPS)
    for word in ("Typical", "every n", "lag"):
        assert word in exact.conditions
    with pytest.raises(ValueError, match="`n_steps` must be at least 1"):
        exact.std_error(0)


def test_estimates_spread_as_newman_says():
    """200 chains of 50 steps: variances of the package's own estimates, within four errors."""
    n, n_steps, n_chains = 3, 50, 200
    J = np.random.default_rng(1).standard_normal((n_chains, n_steps, n, n))
    found = gp.lyapunov_spectrum(gp.JacobianChain.dense(J)).exponents
    exact = gp.newman_exponents(n, 1.0)
    error = exact.std_error(n_steps)
    gap = found.mean(axis=0) - exact.exponents
    # sorting within a chain and the first basis move the mean by less than 1/n_steps
    assert (np.abs(gap) <= 4 * error / math.sqrt(n_chains) + 0.2 / n_steps).all()
    ratio = found.var(axis=0, ddof=1) / error**2
    assert (np.abs(ratio - 1) <= 4 * math.sqrt(2 / n_chains)).all()


# --- gates ------------------------------------------------------------------------------------


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def lstm_step(state, n, b):
    """Plain LSTM, no recurrent weights: gates i, f, g, o from their biases alone."""
    i, f, g, o = b.reshape(4, n)
    c = sigmoid(f) * state[n:] + sigmoid(i) * np.tanh(g)
    return np.concatenate([sigmoid(o) * np.tanh(c), c])


def gru_step(h, b_z, b_n):
    z = sigmoid(b_z)
    return (1 - z) * np.tanh(b_n) + z * h


def test_gates_against_published_values():
    rates = gp.gate_rates(forget_bias=[0, 1, 2, 3], update_bias=0.0)
    expected = [-0.6931472, -0.3132617, -0.1269280, -0.0485874]
    np.testing.assert_allclose(rates.lstm, expected, atol=5.01e-8)
    np.testing.assert_allclose(rates.gru, -math.log(2), rtol=4 * EPS)
    # 100 steps of the cell path in decades: bias 0, 1, and 1 in both bias vectors
    decades = 100 * gp.gate_rates([0, 1, 2]).lstm / math.log(10)
    np.testing.assert_allclose(decades, [-30.103, -13.605, -5.512], atol=5.01e-4)


def test_gates_against_cells_without_recurrent_weights():
    """Central differences of the plain steps: exact up to h^2, as both are linear in the state."""
    n = 3
    rng = np.random.default_rng(0)
    b, state = rng.standard_normal(4 * n), rng.standard_normal(2 * n)
    b_z = rng.standard_normal(n)
    lstm, gru = np.empty((2 * n, 2 * n)), np.empty((n, n))
    for j, e in enumerate(np.eye(2 * n)):
        ahead, behind = (lstm_step(state + s * 1e-3 * e, n, b) for s in (1, -1))
        lstm[:, j] = (ahead - behind) / 2e-3
    for j, e in enumerate(np.eye(n)):
        ahead, behind = (gru_step(state[:n] + s * 1e-3 * e, b_z, b[:n]) for s in (1, -1))
        gru[:, j] = (ahead - behind) / 2e-3
    rates = gp.gate_rates(b[n : 2 * n], b_z)
    np.testing.assert_allclose(lstm[n:, n:], np.diag(np.exp(rates.lstm)), atol=1e-12)
    np.testing.assert_array_equal(lstm[:, :n], 0.0)
    np.testing.assert_allclose(gru, np.diag(np.exp(rates.gru)), atol=1e-12)


def test_gates_in_their_tails_and_hard_ones():
    far = gp.gate_rates([-800.0, 40.0, 800.0])
    assert far.lstm.tolist() == [-800.0, pytest.approx(-math.exp(-40), rel=1e-14), 0.0]
    hard = gp.gate_rates([-3.0, 0.0, 3.0], gate_activation="hard_sigmoid")
    assert hard.lstm.tolist() == [-np.inf, math.log(0.5), 0.0]
    assert hard.status.tolist() == [int(Status.ZERO), 0, 0]


def test_gates_say_when_they_apply_and_refuse(tmp_path):
    rates = gp.gate_rates([[0.0], [1.0]], [0.0, 1.0, 2.0])
    assert rates.lstm.shape == rates.gru.shape == (2, 3)
    assert len(rates.to_frame()) == 6
    for word in ("every n and lag", "typical", "Recurrent weights zero"):
        assert word in rates.conditions
    rates.save(tmp_path / "gates.npz")
    assert gp.GateRates.load(tmp_path / "gates.npz").gate_activation == "sigmoid"
    for arguments, error, text in (
        ((np.inf,), ValueError, "`forget_bias` must be finite"),
        ((0.0, "x"), TypeError, "`update_bias` must hold numbers"),
        (([0.0, 1.0], [0.0, 1.0, 2.0]), ValueError, "leading"),
    ):
        with pytest.raises(error, match=text):
            gp.gate_rates(*arguments)
    with pytest.raises(ValueError, match="`gate_activation` must be one of 'sigmoid'"):
        gp.gate_rates(gate_activation="tanh")
