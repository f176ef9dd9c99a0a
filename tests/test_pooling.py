"""Populations: intervals that cover, attractors counted, typical against mean."""

from __future__ import annotations

import numpy as np
import pytest

import gradprop as gp


def ar1(rng, shape, phi=0.95):
    """Stationary unit-variance AR(1) series along the last axis."""
    noise = rng.standard_normal(shape) * np.sqrt(1 - phi**2)
    series = np.empty(shape)
    series[..., 0] = rng.standard_normal(shape[:-1])
    for t in range(1, shape[-1]):
        series[..., t] = phi * series[..., t - 1] + noise[..., t]
    return series


@pytest.fixture(scope="module")
def driven():
    """A contracting net of 64 units driven along one direction: exponents of 60 inputs."""
    rng = np.random.default_rng(2)
    W = gp.initialise("gaussian", 64, rng=rng, gain=0.9)
    direction = rng.standard_normal(64)

    def exponents(n_inputs, starts=None):
        x = ar1(rng, (n_inputs, 600))[:, :, None] * direction
        if starts is not None:
            x = x[:, None]
        chain = gp.linearise(gp.RNN(W), x, h0=starts)
        return gp.lyapunov_spectrum(chain, k=1, burn_in=100)

    truth = exponents(240).exponents.mean()
    return exponents, truth


def test_interval_of_one_driven_trajectory_covers_the_mean_over_inputs(driven):
    exponents, truth = driven
    low, high = exponents(60).interval[:, 0].T
    assert ((low <= truth) & (truth <= high)).sum() >= 51


def test_ten_starts_on_one_input_are_no_ten_samples(driven):
    """What a user must not do, and what `pool` does instead: starts are averaged, inputs count."""
    exponents, truth = driven
    starts = np.random.default_rng(5).standard_normal((10, 64))
    result = exponents(30, starts)
    assert result.roles == ("inputs", "starts")
    values = result.exponents[..., 0]
    half = 2.262 * values.std(axis=1, ddof=1) / np.sqrt(10)
    assert (np.abs(values.mean(axis=1) - truth) <= half).sum() <= 5
    pooled = gp.pool(result)
    assert pooled.n_units == 30
    assert pooled.interval[0, 0] <= truth <= pooled.interval[0, 1]
    assert pooled.variance_starts[0] < 0.01 * pooled.variance_inputs[0]


def test_two_attractors_are_counted_not_averaged():
    W = gp.initialise("gaussian", 32, rng=6, gain=2.0)
    h0 = np.random.default_rng(6).standard_normal((20, 32))
    result = gp.lyapunov_spectrum(gp.linearise(gp.RNN(W), h0=h0, n_steps=3000), 1, burn_in=1000)
    pooled = gp.pool(result)
    assert pooled.n_attractors == 2
    assert np.isnan(pooled.interval).all()
    assert pooled.status & gp.Status.SEVERAL_ATTRACTORS
    one = gp.pool(gp.lyapunov_spectrum(gp.linearise(gp.RNN(0.4 * W), h0=h0, n_steps=300), 1))
    assert one.n_attractors == 1
    # starts of one network are no independent units either
    assert one.n_units == 1
    assert np.isnan(one.interval).all()


def test_variance_parts_are_those_of_nested_sampling():
    """Normal effects of known size: weights 4, inputs 1, starts 0.25."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s) for s in ((400, 1, 1), (400, 8, 1), (400, 8, 6)))
    logs = 2.0 * a + 1.0 * b + 0.5 * c
    norms = gp.VectorNorms(
        roles=("weights", "inputs", "starts"),
        lags=np.array([1]),
        log_norm=logs[..., None],
        status=np.zeros(logs.shape, dtype=np.int64),
        anchor="end",
    )
    pooled = gp.pool(norms)
    parts = [pooled.variance_weights, pooled.variance_inputs, pooled.variance_starts]
    # relative standard error of a variance from 400 networks: sqrt(2/399) = 0.07
    np.testing.assert_allclose(np.ravel(parts), [4.0, 1.0, 0.25], rtol=4 * 0.071)
    assert pooled.n_units == 400
    np.testing.assert_allclose(pooled.mean, logs.mean(), rtol=1e-12)
    np.testing.assert_allclose(pooled.median, np.median(logs), rtol=1e-12)
    annealed = 0.5 * np.log(np.mean(np.exp(2 * logs)))
    np.testing.assert_allclose(pooled.annealed, annealed, rtol=1e-12)


def test_moments_bracket_typical_and_mean():
    """Two scalar networks, 1 and 3: geometric mean sqrt 3, quadratic mean sqrt 5."""
    chain = gp.JacobianChain.dense([[[[1.0]]], [[[3.0]]]])
    for q, mean in ((0, np.sqrt(3)), (1, 2.0), (2, np.sqrt(5)), (-1, 1.5)):
        moments = gp.growth_moments(chain, q)
        np.testing.assert_allclose(np.exp(moments.log_mean[0]), mean, rtol=1e-14)
        np.testing.assert_allclose(moments.rate[0], q * np.log(mean), rtol=1e-13, atol=1e-15)


def test_bad_input_is_named():
    single = gp.lyapunov_spectrum(gp.JacobianChain.dense([[[0.5]]] * 30))
    with pytest.raises(ValueError, match=r"`result` must have replica axes"):
        gp.pool(single)
    with pytest.raises(TypeError, match=r"`result` must hold exponents or log norms; got int"):
        gp.pool(3)
    many = gp.lyapunov_spectrum(gp.JacobianChain.dense([[[[0.5]]] * 30] * 2))
    with pytest.raises(ValueError, match=r"`over` must be one of 'weights', 'inputs', 'starts'"):
        gp.pool(many, over=("seeds",))
    with pytest.raises(ValueError, match=r"left out: weights"):
        gp.pool(many, over=("inputs",))
    with pytest.raises(ValueError, match=r"`chain` must have at least 2 replicas; got 1"):
        gp.growth_moments(gp.JacobianChain.dense([[[0.5]]]), 2)
    with pytest.raises(ValueError, match=r"`q` must be finite"):
        gp.growth_moments(gp.JacobianChain.dense([[[[1.0]]], [[[3.0]]]]), np.inf)
