"""Local exponents: exact laws of Gaussian products, correlated chains, and the windows' sums."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from chains import random_chain
from helpers import same
from scipy import stats

import gradprop as gp
from gradprop.lyapunov.local import _integrated_time

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


# --- exact laws -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5])
def test_increments_of_gaussian_products_are_chi_squared(n):
    sigma, steps = 0.7, 6000
    J = sigma * np.random.default_rng(n).standard_normal((steps, n, n))
    local = gp.local_exponents(dense(J), window=1)
    assert local.exponents.shape == (steps, n)
    for i in range(n):
        squares = np.exp(2 * local.exponents[:, i]) / sigma**2
        # 8 tests in all at a fixed seed: p below 1e-3 in none of them
        assert stats.kstest(squares, stats.chi2(n - i).cdf).pvalue > 1e-3
        # neighbouring laws are told apart
        assert stats.kstest(squares, stats.chi2(n - i + 1).cdf).pvalue < 1e-6
    correlation = np.corrcoef(local.exponents.T) - np.eye(n)
    assert np.abs(correlation).max() <= 4.5 / math.sqrt(steps)


def test_moments_of_longer_windows():
    n, steps, window = 4, 20_000, 5
    J = np.random.default_rng(1).standard_normal((steps, n, n))
    local = gp.local_exponents(dense(J), window=window)
    exact = gp.newman_exponents(n, 1.0)
    error = np.sqrt(exact.variance_per_step / steps)
    assert np.abs((local.mean - exact.exponents) / error).max() <= 4
    K = steps // window
    variance = np.diagonal(local.covariance) * window / exact.variance_per_step
    # a sample variance of K nearly normal values has relative error sqrt(2/K)
    assert np.abs(variance - 1).max() <= 5 * math.sqrt(2 / K)
    off = local.covariance - np.diag(np.diagonal(local.covariance))
    assert np.abs(off).max() <= 5 * np.diagonal(local.covariance).max() / math.sqrt(K)
    # independent windows: no growth with the width, no correlation beyond one window
    growth = local.variance_growth / exact.variance_per_step
    assert local.widths.tolist() == [window * 2**j for j in range(len(growth))]
    assert K // 2 ** (len(growth) - 1) >= 8 > K // 2 ** len(growth)
    for j, row in enumerate(growth):
        assert np.abs(row - 1).max() <= 5 * math.sqrt(2 / (K // 2**j))
    np.testing.assert_allclose(local.variance_growth[0], np.diagonal(local.covariance) * window)
    assert local.autocorrelation_time == pytest.approx(np.full(n, window), rel=0.3)
    assert local.status == gp.Status.OK


def test_quantiles():
    n, steps = 3, 20_000
    J = np.random.default_rng(2).standard_normal((steps, n, n))
    local = gp.local_exponents(dense(J), window=1)
    assert local.levels.tolist() == [0.05, 0.25, 0.5, 0.75, 0.95]
    for i in range(n):
        law = stats.chi2(n - i)
        exact = 0.5 * np.log(law.ppf(local.levels))
        density = law.pdf(law.ppf(local.levels)) * 2 * law.ppf(local.levels)
        error = np.sqrt(local.levels * (1 - local.levels) / steps) / density
        assert np.abs((local.quantiles[:, i] - exact) / error).max() <= 4.5


def autoregressive(rng, phi, steps):
    """AR(1) of unit innovations, started in its stationary law."""
    level = rng.standard_normal() / math.sqrt(1 - phi**2)
    out = np.empty(steps)
    for t, e in enumerate(rng.standard_normal(steps)):
        level = phi * level + e
        out[t] = level
    return out


def test_correlated_growth():
    phi, steps = 0.9, 100_000
    growth = 0.05 * autoregressive(np.random.default_rng(3), phi, steps)
    local = gp.local_exponents(gp.JacobianChain.diagonal(np.exp(growth)[:, None]), window=1)
    # tau = (1 + phi)/(1 - phi) = 19; its estimate with lags up to 5 tau has relative error
    # sqrt(2 (2 * 95 + 1)/K) = 6 %
    assert local.autocorrelation_time[0] == pytest.approx(19, rel=0.18)
    single, long_run = 0.05**2 / (1 - phi**2), (0.05 / (1 - phi)) ** 2
    assert local.variance_growth[0, 0] == pytest.approx(single, rel=0.1)
    # that of w steps is 2 % below its limit at w = 512
    at = int(np.flatnonzero(local.widths == 512)[0])
    assert local.variance_growth[at, 0] == pytest.approx(long_run, rel=5 * math.sqrt(2 / 195))
    growing = local.variance_growth[:6, 0]
    assert (np.diff(growing) > 0).all()
    wider = gp.local_exponents(gp.JacobianChain.diagonal(np.exp(growth)[:, None]), window=10)
    # means of 10 steps have variance D (1 - 2 phi (1 - phi^w)/(w (1 - phi^2)))/w, w = 10
    inside = 1 - 2 * phi * (1 - phi**10) / (10 * (1 - phi**2))
    assert wider.autocorrelation_time[0] == pytest.approx(10 / inside, rel=0.18)


def test_integrated_time_against_sums():
    x = autoregressive(np.random.default_rng(4), 0.6, 400)
    centred = x - x.mean()
    rho = [centred[: 400 - lag] @ centred[lag:] / (centred @ centred) for lag in range(400)]
    total, lag = 1.0, 0
    while lag < 5 * total:
        lag += 1
        total += 2 * rho[lag]
    got = _integrated_time(np.stack([centred, np.zeros(400)], axis=1))
    assert got == pytest.approx([total, 1.0], rel=1e-10)


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 7, 40])
def test_windows_against_the_twin(window):
    J = random_chain(np.random.default_rng(5), "orthogonal_tanh", 143, 4)
    local = gp.local_exponents(dense(J), window=window, burn_in=20)
    K = 123 // window
    assert local.exponents.shape == (K, 4)
    assert local.n_windows == K
    sums = naive.qr_increments(J)[20 : 20 + K * window].reshape(K, window, 4).mean(axis=1)
    order = np.argsort(-sums.mean(axis=0))
    np.testing.assert_allclose(local.exponents, sums[:, order], atol=1e-12)
    np.testing.assert_allclose(local.mean, sums[:, order].mean(axis=0), atol=1e-12)
    if K > 1:
        np.testing.assert_allclose(local.covariance, np.cov(sums[:, order].T), atol=1e-12)
    else:
        assert np.isnan(local.covariance).all()
    expected = np.quantile(sums[:, order], local.levels, axis=0)
    np.testing.assert_allclose(local.quantiles, expected, atol=1e-12)


def test_windows_add_up_to_the_spectrum():
    J = random_chain(np.random.default_rng(6), "tanh", 330, 6)
    for k in (None, 1, 3):
        spectrum = gp.lyapunov_spectrum(dense(J), k, burn_in=30)
        local = gp.local_exponents(dense(J), k, window=10, burn_in=30)
        np.testing.assert_allclose(local.mean, spectrum.exponents, atol=1e-12)


def test_diagonal_chains_are_exact():
    a = np.random.default_rng(7).uniform(0.5, 2, (2, 60, 3))
    local = gp.local_exponents(gp.JacobianChain.diagonal(a), window=6)
    logs = np.log(a).reshape(2, 10, 6, 3).mean(axis=2)
    for r in range(2):
        order = np.argsort(-logs[r].mean(axis=0))
        np.testing.assert_allclose(local.exponents[r], logs[r][:, order], atol=1e-14)
    two = gp.local_exponents(gp.JacobianChain.diagonal(a), 2, window=6)
    assert same(two.exponents, local.exponents[..., :2])


def test_replicas_of_different_lengths():
    rng = np.random.default_rng(8)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((3, 90, 3))
    lengths = [90, 47, 4]
    together = gp.local_exponents(gp.linearise(cell, x, lengths=lengths), window=10, burn_in=5)
    assert together.n_windows.tolist() == [8, 4, 0]
    for r in range(2):
        alone = gp.local_exponents(gp.linearise(cell, x[r, : lengths[r]]), window=10, burn_in=5)
        count = int(alone.n_windows)
        assert same(together.exponents[r, :count], alone.exponents)
        assert np.isnan(together.exponents[r, count:]).all()
        for name in ("mean", "covariance", "quantiles", "autocorrelation_time"):
            assert same(getattr(together, name)[r], getattr(alone, name))
    assert np.isnan(together.mean[2]).all()


# --- zeros, statuses, bad input -------------------------------------------------------------------


def test_lost_directions():
    dead = gp.local_exponents(dense([np.diag([0.5, 0.0])] * 20), window=2)
    np.testing.assert_allclose(dead.exponents[:, 0], math.log(0.5), rtol=4 * EPS)
    assert (dead.exponents[:, 1] == -np.inf).all()
    assert dead.mean[1] == -np.inf
    assert (dead.quantiles[:, 1] == -np.inf).all()
    assert np.isnan(dead.covariance[1]).all()
    assert np.isnan(dead.variance_growth[:, 1]).all()
    assert np.isnan(dead.autocorrelation_time[1])
    assert dead.autocorrelation_time[0] == 2
    assert dead.status & gp.Status.ZERO
    zero = gp.local_exponents(gp.JacobianChain.diagonal(np.zeros((20, 1))), window=2)
    assert (zero.exponents == -np.inf).all()
    far = gp.local_exponents(dense([np.diag([1.0, 1e-200]) @ [[1, 1], [1, -1]]] * 20), window=2)
    hidden = gp.local_exponents(dense([np.ones((3, 3)) / 3] * 20), window=2)
    assert not np.isfinite(hidden.exponents[:, 1:]).any()
    assert hidden.status & (gp.Status.NOT_RESOLVED | gp.Status.ZERO)
    assert far.exponents.shape == (10, 2)


def test_few_windows_are_said_to_be_few():
    J = np.random.default_rng(9).standard_normal((490, 2, 2))
    few = gp.local_exponents(dense(J), window=10)
    assert few.status == gp.Status.FEW_WINDOWS
    assert "more steps" in few.messages()[0]
    assert gp.local_exponents(dense(J), window=2).status == gp.Status.OK
    overflow = gp.linearise(gp.RNN([[2.0]], activation="linear"), n_steps=1200, h0=[1.0])
    assert gp.local_exponents(overflow, window=10).status & gp.Status.OVERFLOWED


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"window": 0}, ValueError, r"`window` must be at least 1; got 0"),
        ({"window": 2.0}, TypeError, r"`window` must be an integer"),
        ({"window": 5}, ValueError, r"`burn_in` and one `window` must fit into the 4 steps"),
        ({"window": 2, "burn_in": 3}, ValueError, r"got 3 and 2"),
        ({"window": 1, "burn_in": -1}, ValueError, r"`burn_in` must be at least 0"),
        ({"window": 1, "k": 3}, ValueError, r"`k` must be at most n = 2; got 3"),
        ({"window": 1, "k": 1, "rng": "x"}, (TypeError, ValueError), r"`rng` must be None"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.local_exponents(dense(np.ones((4, 2, 2))), **arguments)
    with pytest.raises(TypeError, match="`chain` must be a JacobianChain"):
        gp.local_exponents(np.ones((4, 2, 2)), window=1)
