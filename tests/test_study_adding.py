"""What the study adding_task measures, on its smallest points, and how it ranks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import ROOT

import gradprop as gp

SMALL = {"n": 4, "lengths": [4, 6], "n_updates": 30, "climb": False}


@pytest.fixture(autouse=True)
def studies(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))


@pytest.fixture
def adding():
    import _adding

    return _adding


@pytest.fixture
def predict():
    import _adding_predict

    return _adding_predict


@pytest.fixture
def configuration():
    from _adding_configurations import configuration

    return configuration


def test_target_is_the_sum_of_the_two_marked_values_one_in_each_half():
    from _tasks import CONSTANT_GUESS, adding

    batch = adding(4000, 9, np.random.default_rng(0))
    marks = batch.x[..., 1]
    assert (marks[:, :4].sum(axis=1) == 1).all()
    assert (marks[:, 4:].sum(axis=1) == 1).all()
    for x, target in zip(batch.x[:50], batch.target[:50], strict=True):
        assert target[0] == pytest.approx(sum(v for v, m in x if m == 1), rel=1e-6)
    # variance of a sum of two U(0, 1); its own standard deviation over 4000 samples is 0.0031
    assert np.var(batch.target) == pytest.approx(CONSTANT_GUESS, abs=4 * 0.0031)


def test_same_point_gives_the_same_bytes_and_another_seed_does_not(adding, configuration):
    point = {**configuration("gru"), **SMALL}
    first, again, other = (adding.measure(point, np.random.default_rng(s)) for s in (0, 0, 1))
    assert all(np.asarray(first[k]).tobytes() == np.asarray(again[k]).tobytes() for k in first)
    assert not np.array_equal(first["error"], other["error"])


def test_climbing_leaves_out_what_follows_the_first_failure(adding, configuration):
    point = {**configuration("vanilla", rate=0.0), **SMALL}
    every = adding.measure(point, np.random.default_rng(0))
    climbed = adding.measure({**point, "climb": True}, np.random.default_rng(0))
    assert every["updates"].tolist() == [30, 30]
    assert climbed["updates"].tolist() == [30, 0]
    assert climbed["error"][0] == every["error"][0] > adding.HALF
    assert np.isnan([climbed["error"][1], climbed["horizon_after"][1]]).all()
    # a rate of zero trains nothing
    assert every["horizon_after"].tolist() == [every["horizon"]] * 2


@pytest.mark.parametrize(("scale", "steps"), [(0.6, 10), (0.8, 24), (1.0, 60)])
def test_horizon_of_open_relu_units_is_that_of_a_power(adding, configuration, scale, steps):
    """Positive input keeps every unit open: the product is scale^lag, and N^-1/2 is 1/256.

    0.8^24 = 0.00472 and 0.6^10 = 0.00605 lie above it, 0.8^25 and 0.6^11 below.
    """
    model = adding.build(
        {**configuration("identity", scale=scale), "n": 3}, np.random.default_rng(0)
    )
    model.parameters["W_xh"][:] = np.abs(model.parameters["W_xh"])
    x = np.ones((2, 60, 2))
    assert adding.reach(model, x, 65536) == steps
    assert adding.reach(model, x, 65536, readout=True) == steps


def test_no_direction_reaches_further_than_the_worst(adding, configuration):
    x = np.random.default_rng(1).random((1, 40, 2))
    for kind in ("lstm", "gru", "orthogonal"):
        model = adding.build(configuration(kind), np.random.default_rng(0))
        worst = adding.reach(model, x, 100)
        assert 0 < adding.reach(model, x, 100, readout=True) <= worst < 40


def test_biases_and_ranges_land_where_they_belong(adding, configuration):
    def built(*args, **changes):
        return adding.build({**configuration(*args, **changes), "n": 4}, np.random.default_rng(0))

    x, h = np.full((1, 1, 2), 0.5), np.array([[0.5, -0.5, 0.25, 0.0]])
    kept = gp.rollout(built("gru", bias=50.0).cell, x, h0=h).h[0, -1]
    np.testing.assert_allclose(kept, h[0], rtol=1e-6, atol=1e-6)
    state = np.concatenate([np.zeros((1, 4)), 10 * h], axis=1)
    lstm = built("lstm", bias=50.0)
    J = gp.step_jacobian(lstm.cell, state[0], x[0, 0])
    np.testing.assert_allclose(J[4:, 4:], np.eye(4), atol=1e-6)
    assert (np.diag(built("diagonal", low=0.9).parameters["W_hh"]) >= 0.9).all()
    assert adding.recurrent_block(lstm).shape == (4, 4)
    np.testing.assert_array_equal(
        adding.recurrent_block(lstm), lstm.parameters["W_hh"][8:12].astype(float)
    )


def test_a_diverging_run_is_an_infinite_error(adding, configuration):
    point = {**configuration("identity", rate=1e38), **SMALL}
    found = adding.measure(point, np.random.default_rng(0))
    assert np.isinf(found["error"]).all()
    assert (found["updates"] < 30).all()


def test_learned_length_is_interpolated_and_cut_off(predict):
    lengths = np.array([10, 20, 40])
    known = predict.CONSTANT_GUESS / 2
    assert predict.learned_length(np.array([0.0, 0.0, 0.01]), lengths) == 40.0
    assert predict.learned_length(np.array([known, np.nan, np.nan]), lengths) == 5.0
    half_way = predict.learned_length(np.array([0.0, 0.0, 2 * known]), lengths)
    assert half_way == pytest.approx(20 * 2**0.5, rel=1e-14)
    assert predict.learned_length(np.array([0.0, 0.0, np.inf]), lengths) == half_way


def test_rank_correlation_is_scipys_and_nan_for_constants(predict):
    from scipy import stats

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, (2, 20, 15)).astype(float)
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(predict.spearman(x, y), expected, atol=1e-14)
    assert np.isnan(predict.spearman(np.ones(4), np.arange(4.0)))
    assert predict.spearman(np.arange(4.0), -(np.arange(4.0) ** 3)) == pytest.approx(
        -1.0, rel=1e-15
    )


def test_interval_covers_a_known_correlation(predict):
    """Bivariate normal, r = 0.6: Spearman's value is 6/pi asin(r/2) = 0.5823."""
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(30)
        y = 0.6 * x + 0.8 * rng.standard_normal(30)
        table = {**dict.fromkeys(predict.PREDICTORS, x), "learned": y}
        value, low, high = predict.correlations(table)["horizon"]
        assert low <= value <= high
        covered += low <= 0.5823 <= high
    # nominal 95 %, somewhat less for 30 points; at 90 % fewer than 13 of 20 has probability 4e-4
    assert covered >= 13
