"""Forecasts, loss scales, ranks that can be trusted: closed forms, exact spectra, networks."""

from __future__ import annotations

import importlib.util
import math
import sys

import naive_precision as naive
import numpy as np
import pytest
from chains import random_chain
from helpers import ROOT, tolerance
from hypothesis import given
from hypothesis import strategies as st
from test_precision import driven_tanh, scalar

import gradprop as gp
from gradprop.precision.formats import FORMATS, Format

EVENTS = ("n_eps", "n_subnormal", "n_below_subnormal", "n_zero", "n_overflow")


def lags(forecast) -> list[int | None]:
    return [forecast.event(name) for name in EVENTS]


# --- forecasts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "fmt", "expected"),
    [
        (-math.log(3) / 2, "float32", [30, 159, 189, 190, None]),
        (math.log(0.9), "float32", [152, 829, 981, 987, None]),
        (math.log(0.5), "float32", [24, 127, 150, 150, None]),
        (math.log(0.5), "float64", [53, 1023, 1075, 1075, None]),
        (math.log(0.5), "float16", [11, 15, 25, 25, None]),
        (math.log(1.1), "float32", [None, None, None, None, 931]),
        (math.log(1.1), "float64", [None, None, None, None, 7448]),
        (math.log(1.1), "bfloat16", [None, None, None, None, 931]),
        (math.log(2.0), "float8_e4m3", [None, None, None, None, 9]),
        (0.0, "float32", [None] * 5),
        (math.nan, "float32", [None] * 5),
        (-math.inf, "float32", [1, 1, 1, 1, None]),
        (math.inf, "float32", [None, None, None, None, 1]),
        (-1e-300, "float32", [None] * 5),
        (-1e300, "float32", [1, 1, 1, 1, None]),
        (math.log(0.5), Format(11, 5, subnormals=False), [11, 15, 15, 15, None]),
    ],
)
def test_lags_of_a_rate(rate, fmt, expected):
    forecast = gp.precision_forecast(rate, fmt)
    assert lags(forecast) == expected
    assert [forecast.band(name) for name in EVENTS] == [(lag, lag) for lag in expected]


@pytest.mark.parametrize("w", [0.3, 0.5, 0.77, 0.9, 1.3])
@pytest.mark.parametrize("fmt", FORMATS)
def test_powers_pass_limits_where_the_forecast_says(w, fmt):
    n_steps = 1100 if fmt != "float64" else 7500
    exact = gp.precision_events(scalar(w, n_steps), fmt).exact
    forecast = gp.precision_forecast(math.log(w), fmt)
    assert [exact.event(name) for name in EVENTS] == lags(forecast)


@given(
    st.floats(-3, 3), st.floats(-20, 20), st.floats(0, 5),
    st.sampled_from(["float32", "float16", "float8_e4m3"]),
)  # fmt: skip
def test_a_forecast_is_the_first_lag_of_its_line(rate, constant, spread, fmt):
    """Twin: walk along the lines; where a lag is met only within rounding either side will do."""
    forecast = gp.precision_forecast(rate, fmt, log_constant=constant, spread=spread)
    known, steps = FORMATS[fmt], np.arange(1.0, 3001.0)
    walls = {
        "n_eps": (known.log_eps, -1),
        "n_subnormal": (known.log_min_normal, -1),
        "n_below_subnormal": (known.log_min_subnormal, -1),
        "n_zero": (known.log_min_subnormal - math.log(2), -1),
        "n_overflow": (known.log_max, 1),
    }
    for name, (wall, sign) in walls.items():
        low, high = forecast.band(name)
        for lag, shift in ((forecast.event(name), 0.0), (low, 1.0), (high, -1.0)):
            line = constant + sign * shift * 1.6448536269514722 * spread + rate * steps
            beyond = sign * (line - wall)
            slack = 1e-12 * (1 + abs(wall))
            if lag is None or lag > 3000:
                assert (beyond <= slack).all()
            else:
                assert (beyond[: lag - 1] <= slack).all()
                assert beyond[lag - 1] >= -slack


@pytest.mark.parametrize("rate", [-3e-15, -1e-15, -8e-16])
def test_the_flattest_lines_pass_too(rate):
    # steps of less than the rounding of the limit: 10 ln 2 / rate, to a few times that
    lag = gp.precision_forecast(rate, "float16").event("n_eps")
    assert lag == pytest.approx(-10 * math.log(2) / rate, rel=1e-14)


def test_bands_grow_with_the_spread_and_may_be_open():
    forecast = gp.precision_forecast(-0.5, "float32", spread=1.0)
    # 15.942 = 23 ln 2; (15.942 -+ 1.645) / 0.5 = 28.6, 35.2
    assert (forecast.event("n_eps"), forecast.band("n_eps")) == (32, (29, 36))
    still = gp.precision_forecast(0.0, "float32", log_constant=-15.0, spread=1.0)
    assert (still.event("n_eps"), still.band("n_eps")) == (None, (1, None))


def test_rates_of_many_networks(tmp_path):
    forecast = gp.precision_forecast([[-0.5, 0.1], [math.nan, 0.0]], "float32", spread=[0.5, 1.0])
    assert forecast.n_eps.tolist() == [[32, 0], [0, 0]]
    assert forecast.n_eps_band.shape == (2, 2, 2)
    frame = forecast.to_frame()
    assert len(frame) == 4
    assert frame["n_overflow"].tolist()[1] == 888
    assert frame["n_zero_band_low"].isna().tolist() == [False, True, True, True]
    forecast.save(tmp_path / "forecast.npz")
    again = gp.PrecisionForecast.load(tmp_path / "forecast.npz")
    np.testing.assert_array_equal(again.n_zero_band, forecast.n_zero_band)
    with pytest.raises(ValueError, match="2 replica axes"):
        forecast.band("n_eps")
    with pytest.raises(ValueError, match="`name` must be one of 'n_eps', 'n_subnormal', 'n_below"):
        forecast.event("n_eps_band")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"fmt": "half"},
            ValueError,
            "`fmt` must be one of 'float64', .*'float8_e5m2'; got 'half'",
        ),
        ({"rate": "fast"}, TypeError, "`rate` must hold numbers"),
        ({"rate": 1j}, TypeError, "`rate` must be real"),
        ({"log_constant": math.nan}, ValueError, "`log_constant` must be finite"),
        ({"spread": -1.0}, ValueError, "`spread` must not be negative; got -1.0"),
        (
            {"rate": [1, 2], "spread": [1, 2, 3]},
            ValueError,
            "leading .replica. axes must broadcast",
        ),
    ],
)
def test_bad_forecasts(options, error, text):
    given_options = {"rate": -0.1, "fmt": "float32", **options}
    rate, fmt = given_options.pop("rate"), given_options.pop("fmt")
    with pytest.raises(error, match=text):
        gp.precision_forecast(rate, fmt, **given_options)


def test_forecasts_of_random_networks(monkeypatch):
    """The aims of benchmarks/forecast_coverage.py, on 30 small networks of a fixed seed."""
    path = ROOT / "benchmarks" / "forecast_coverage.py"
    spec = importlib.util.spec_from_file_location("forecast_coverage", path)
    coverage = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, coverage)
    spec.loader.exec_module(coverage)
    outcomes = coverage.study(30, 12, 0.0, 1)
    for event in ("n_eps", "n_subnormal"):
        assert coverage.share(outcomes, "inside", event, *coverage.FAMILIES) >= 0.85
    for event in ("n_subnormal", "n_zero"):
        assert coverage.share(outcomes, "near", event, "gaussian", "orthogonal") >= 0.9


# --- loss scales ------------------------------------------------------------------------------


def test_loss_scales_of_a_halving_gradient():
    """float16 is normal from 2**-14 to 65504 < 2**16, and not zero from 2**-24."""
    half = math.log(0.5)
    window = gp.loss_scale_window(half, 20)
    assert window.powers_of_two == (6, 15)
    assert math.exp(float(window.log_low)) == pytest.approx(64.0, rel=1e-14)
    assert math.exp(float(window.log_high)) == pytest.approx(65504.0, rel=1e-14)
    assert gp.loss_scale_window(half, 29).powers_of_two == (15, 15)
    assert gp.loss_scale_window(half, 30).powers_of_two is None
    assert gp.loss_scale_window(half, 39, subnormals=True).powers_of_two == (15, 15)
    assert gp.loss_scale_window(-half, 20).powers_of_two == (-14, -5)
    assert gp.loss_scale_window(half, 0).powers_of_two == (-14, 15)
    assert gp.loss_scale_window(-1e308, 30).powers_of_two is None
    with pytest.raises(ValueError, match="`n_steps` must be at most"):
        gp.loss_scale_window(half, 10**400)
    assert gp.loss_scale_window(half, 40, "bfloat16").powers_of_two == (-86, 127)
    spread = gp.loss_scale_window(half, 20, spread=math.log(2) / 1.6448536269514722)
    assert spread.powers_of_two == (7, 14)
    assert gp.loss_scale_window(half, 20, log_constant=-10 * math.log(2)).powers_of_two == (16, 25)


@pytest.mark.parametrize("n_steps", [0, 7, 20, 29, 30, 45])
def test_the_window_is_that_of_the_events(n_steps):
    """A gradient of powers of two is neither subnormal nor infinite at exactly these scales."""
    chain = scalar(0.5, max(n_steps, 1)).tail(n_steps)
    fine = []
    for k in range(-20, 16):
        result = gp.precision_events(chain, "float16", of="vector", loss_scale=2.0**k)
        if result.event("n_subnormal_any") is None and result.event("n_zero") is None and k >= -14:
            fine.append(k)
    window = gp.loss_scale_window(math.log(0.5), n_steps).powers_of_two
    assert window == ((fine[0], fine[-1]) if fine else None)


def test_loss_scales_of_unknown_and_of_many_rates():
    window = gp.loss_scale_window([math.nan, -0.1, -math.inf, -1.0], 100)
    assert window.exists.tolist() == [False, True, False, False]
    # what is missing is said: 100 nats against ln 65504 + 14 ln 2
    short = float(window.log_low[3] - window.log_high[3])
    assert short == pytest.approx(100 - math.log(65504) - 14 * math.log(2), rel=1e-14)
    with pytest.raises(ValueError, match="`powers_of_two` is for single rates"):
        _ = window.powers_of_two
    assert len(window.to_frame()) == 4
    for options, text in (
        ({"n_steps": -1}, "`n_steps` must be at least 0"),
        ({"fmt": "single"}, "`fmt` must be one of"),
        ({"subnormals": None}, "`subnormals` must be one of True, False"),
    ):
        with pytest.raises(ValueError, match=text):
            gp.loss_scale_window(-0.1, **{"n_steps": 3, **options})


# --- ranks ------------------------------------------------------------------------------------


def test_trustworthy_ranks_of_a_tanh_network():
    """16 units, radius 1.1: 8, 4, 2 in float32 and 15, 9, 3 in float64 at lags 20, 50, 200."""
    chain = driven_tanh(16, 1.1, 4, 200)
    for fmt, ranks in (("float32", [8, 4, 2]), ("float64", [15, 9, 3])):
        assert gp.trustworthy_rank(chain, fmt, lags=[20, 50, 200]).rank.tolist() == ranks
    values = gp.singular_values(chain, lags=[20, 50, 200]).log_sigma
    shown = (values - values[:, :1])[:, [3, 7, 15]].round(2)
    assert shown.tolist() == [
        [-3.51, -10.13, -52.27], [-9.40, -26.80, -124.98], [-39.36, -103.52, -483.24],
    ]  # fmt: skip
    # 16 units times an eps of a quarter: nothing is left
    assert gp.trustworthy_rank(chain, "float8_e5m2").rank.tolist() == [0]


def test_the_floor_of_a_plain_spectrum_does_not_move():
    """What can be trusted is right; the rest stays near ln eps while the truth goes to -483."""
    chain = driven_tanh(16, 1.1, 4, 200)
    at = [20, 50, 200]
    for fmt in ("float32", "float64"):
        result = gp.plain_singular_values(chain, fmt, lags=at)
        ranks = gp.trustworthy_rank(chain, fmt, lags=at).rank
        floor = FORMATS[fmt].log_eps
        for i, rank in enumerate(ranks):
            # an error of n eps a step leaves 1 part in 10 of a value 10 n eps lag above it
            logs = result.exact_log_sigma[i]
            clear = logs > logs[0] + math.log(10 * 16 * at[i]) + floor
            assert (np.abs(result.log_ratio[i][clear]) < 0.11).all()
            tail = result.log_sigma[i, rank + 1 :] - result.log_sigma[i, 0]
            # of noise of an eighth of eps the smallest value is 20 nats lower in 1 of 10**7 draws
            assert (tail > floor - math.log(8) - 20).all()
            assert (tail < floor + math.log(16 * at[i])).all()
        assert result.log_ratio[2, -1] > 400
        assert result.status == 0


@pytest.mark.parametrize("fmt", ["float32", "float16"])
def test_plain_values_are_those_of_the_stored_product(fmt):
    J = 0.9 * random_chain(np.random.default_rng(2), "gaussian", 12, 4)
    J = J.astype(np.float16).astype(float)
    result = gp.plain_singular_values(gp.JacobianChain.dense(J), fmt, lags=[7, 0, 12, 1])
    P, expected = np.eye(4).astype(fmt), {0: np.zeros(4)}
    for lag, J_k in enumerate(J.astype(fmt), start=1):
        P = naive.rounded_product(J_k, P)
        expected[lag] = np.log(np.linalg.svd(P.astype(float), compute_uv=False))
    for i, lag in enumerate((7, 0, 12, 1)):
        bound = tolerance(float, 4, 1) * np.exp(expected[lag][0] - expected[lag][-1])
        np.testing.assert_allclose(result.log_sigma[i], expected[lag], atol=bound)
    np.testing.assert_array_equal(result.log_ratio, result.log_sigma - result.exact_log_sigma)


def test_replicas_diagonals_blocks_and_padding():
    rng = np.random.default_rng(3)
    a = rng.uniform(-1, 1, (2, 30, 3))
    diagonal, dense = (
        gp.JacobianChain.diagonal(a), gp.JacobianChain.dense(a[..., None] * np.eye(3)),
    )  # fmt: skip
    lags_asked = [30, 4]
    own, full = (
        gp.plain_singular_values(c, "bfloat16", lags=lags_asked) for c in (diagonal, dense)
    )
    np.testing.assert_allclose(own.log_sigma, full.log_sigma, rtol=1e-12)
    assert own.log_sigma.shape == (2, 2, 3)
    cell = gp.RNN(rng.standard_normal((4, 4)))
    h0 = rng.standard_normal((2, 4))
    padded = gp.linearise(cell, h0=h0, n_steps=20, lengths=[20, 9])
    result = gp.plain_singular_values(padded, "float32", lags=[5, 9, 20])
    alone = gp.plain_singular_values(
        gp.linearise(cell, h0=h0[1], n_steps=9), "float32", lags=[5, 9]
    )
    np.testing.assert_array_equal(result.log_sigma[1, :2], alone.log_sigma)
    np.testing.assert_array_equal(result.log_sigma[1, 2], alone.log_sigma[1])
    assert gp.Status(int(result.status[1])) == gp.Status.PADDED
    assert gp.trustworthy_rank(padded, "float32", lags=[5, 9]).rank.shape == (2, 2)
    both = gp.measure(dense, gp.PlainSpectrum("bfloat16", lags_asked))[0]
    np.testing.assert_array_equal(both.log_sigma, full.log_sigma)


def test_zero_and_overflowed_products():
    nilpotent = gp.JacobianChain.dense(np.tile([[0.0, 1.0], [0.0, 0.0]], (3, 1, 1)))
    result = gp.plain_singular_values(nilpotent, "float16", lags=[1, 3])
    assert result.log_ratio.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert gp.trustworthy_rank(nilpotent, "float16", lags=[1, 3]).rank.tolist() == [1, 0]
    growing = gp.JacobianChain.dense([4.0 * np.eye(2)] * 20)
    result = gp.plain_singular_values(growing, "float16", lags=[7, 20])
    assert np.isnan(result.log_sigma).tolist() == [[False, False], [True, True]]
    assert result.messages() == [gp.Status.LEFT_RANGE.text]
    vanishing = gp.plain_singular_values(scalar(0.5, 40), "float16")
    assert np.isneginf(vanishing.log_ratio).all()


def test_ranks_that_are_not_resolved_are_lower_bounds(monkeypatch):
    """Without arbitrary precision the small values of A**40 A**-40 stay unknown."""
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    J = random_chain(np.random.default_rng(0), "cancelling", 80, 6)
    result = gp.trustworthy_rank(gp.JacobianChain.dense(J), "float32")
    assert result.rank < 6
    assert gp.Status(int(result.status)) == gp.Status.NOT_RESOLVED


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("float128",), {}, ValueError, "`fmt` must be one of"),
        (("float32",), {"lags": [9]}, ValueError, "`lags` must lie in 0..3; got 9"),
        (("float32",), {"lags": []}, ValueError, "`lags` must not be empty"),
    ],
)
def test_bad_ranks(arguments, options, error, text):
    for function in (gp.trustworthy_rank, gp.plain_singular_values):
        with pytest.raises(error, match=text):
            function(scalar(0.5, 3), *arguments, **options)
        with pytest.raises(TypeError, match="`chain` must be a JacobianChain"):
            function(np.eye(2), "float32")


def test_complex_diagonals_have_ranks_but_no_plain_product():
    chain = gp.JacobianChain.diagonal([[0.5j, 1.0]] * 30)
    assert gp.trustworthy_rank(chain, "float32").rank.tolist() == [1]
    with pytest.raises(TypeError, match="`chain` must be real to be rounded"):
        gp.plain_singular_values(chain, "float32")
