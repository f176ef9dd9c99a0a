"""Edge of chaos: exact critical gains of Gaussian products, mean-field ones of driven networks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)


def rotation(gain, rng):
    """Linear, every exponent ln g."""
    return gp.RNN(gain * np.array([[0.6, -0.8], [0.8, 0.6]]), activation="linear")


def test_exact_root_of_a_linear_network():
    edge = gp.edge_of_chaos(rotation, bracket=(0.5, 3.0), n_steps=60, burn_in=10, xtol=1e-12)
    assert edge.gain == pytest.approx(1.0, abs=1e-12 + 20 * EPS)
    # the secant of ln g over a fraction 1e-3 of the bracket on either side
    assert edge.slope == pytest.approx(1.0, abs=2.5e-3**2)
    assert edge.exponent == pytest.approx(0.0, abs=2e-12)
    np.testing.assert_allclose(edge.interval, [edge.gain] * 2, atol=1e-12)
    assert (np.diff(edge.gains) > 0).all()
    np.testing.assert_allclose(edge.exponents, np.log(edge.gains), atol=1e-13)
    assert {0.5, 3.0, float(edge.gain)} <= set(edge.gains.tolist())
    assert edge.status == gp.Status.OK
    assert (edge.n_steps, edge.burn_in, edge.confidence) == (60, 10, 0.95)
    assert len(edge.to_frame()) == len(edge.gains)


@pytest.mark.parametrize(("n", "published"), [(2, 1.3346), (8, 1.0673)])
def test_critical_gain_of_gaussian_products(n, published):
    exact = math.exp(-gp.newman_exponents(n, 1 / math.sqrt(n)).exponents[0])
    assert exact == pytest.approx(published, abs=5e-5)
    covered, steps = 0, 1000

    def make(gain, rng):
        return gp.JacobianChain.dense(gain / math.sqrt(n) * rng.standard_normal((steps, n, n)))

    for seed in range(20):
        edge = gp.edge_of_chaos(make, bracket=(0.5, 2.0), n_steps=steps, burn_in=0, rng=seed)
        covered += bool(edge.interval[0] <= exact <= edge.interval[1])
        # d lambda / d g = 1/g, and the interval is that of the exponent over it
        assert edge.slope == pytest.approx(1 / edge.gain, rel=0.01)
        error = math.sqrt(float(gp.newman_exponents(n, 1.0).variance_per_step[0]) / steps)
        assert abs(edge.gain - exact) <= 4.5 * error * exact
        assert edge.interval[1] - edge.interval[0] == pytest.approx(
            2 * 2.262 * error * exact, rel=0.8
        )
    assert covered >= 15  # nominal 19 of 20


@pytest.mark.parametrize(("variance", "theory"), [(0.1, 1.409281), (0.5, 1.686169)])
def test_critical_gain_of_driven_networks(variance, theory):
    n, steps = 200, 450

    def make(gain, rng):
        W = rng.standard_normal((4, n, n)) / math.sqrt(n)
        return gp.RNN(gain * W), math.sqrt(variance) * rng.standard_normal((steps, n))

    edge = gp.edge_of_chaos(make, bracket=(1.0, 2.5), n_steps=steps, burn_in=50, rng=3, xtol=1e-4)
    # at n = 1500 exponents lie 1 to 3e-3 below the limit; that shift goes like 1/n
    shift = 3e-3 * (1500 / n) / float(edge.slope)
    width = float(edge.interval[1] - edge.interval[0])
    assert theory - width <= edge.gain <= theory + shift + width
    assert width < 0.15
    # replicas: the interval is that of their mean
    assert edge.interval[0] < edge.gain < edge.interval[1]


def test_interval_of_one_network_is_that_of_its_exponent_over_the_slope():
    rng = np.random.default_rng(4)
    n, steps = 40, 800
    W, x = rng.standard_normal((n, n)) / math.sqrt(n), rng.standard_normal((steps, n))

    def make(gain, rng):
        return gp.RNN(gain * W), x

    edge = gp.edge_of_chaos(
        make, bracket=(1.0, 4.0), n_steps=steps, burn_in=100, confidence=0.9, xtol=1e-3
    )
    chain = gp.linearise(gp.RNN(edge.gain * W), x)
    spectrum = gp.lyapunov_spectrum(chain, 1, burn_in=100, confidence=0.9)
    assert spectrum.exponents[0] == edge.exponent
    expected = edge.gain - spectrum.interval[0, ::-1] / edge.slope
    np.testing.assert_allclose(edge.interval, expected, rtol=1e-12)
    assert 0.15 < edge.slope < 0.5  # d lambda_1 / d g of mean field is 0.3 at g = 1.9


def test_the_same_random_numbers_at_every_gain():
    seen = []

    def make(gain, rng):
        seen.append(rng.standard_normal())
        return rotation(gain, rng)

    gp.edge_of_chaos(make, bracket=(0.5, 3.0), n_steps=40, burn_in=0, rng=5)
    assert len(set(seen)) == 1
    first = seen[0]
    seen.clear()
    gp.edge_of_chaos(make, bracket=(0.5, 3.0), n_steps=40, burn_in=0, rng=np.random.default_rng(5))
    assert set(seen) == {first}
    gp.edge_of_chaos(make, bracket=(0.5, 3.0), n_steps=40, burn_in=0, rng=6)
    assert len(set(seen)) == 2


def test_minus_infinity_counts_as_negative():
    def make(gain, rng):
        return gp.JacobianChain.dense([max(gain - 1, 0) * np.eye(2)] * 40)

    edge = gp.edge_of_chaos(make, bracket=(0.5, 4.0), n_steps=40, burn_in=0)
    assert edge.gain == pytest.approx(2.0, abs=1e-6)
    assert edge.exponents[0] == -np.inf
    assert edge.slope == pytest.approx(1.0, abs=1e-4)


def test_too_few_steps_for_an_interval():
    edge = gp.edge_of_chaos(rotation, bracket=(0.5, 3.0), n_steps=15, burn_in=0)
    assert edge.gain == pytest.approx(1.0, abs=1e-6)
    assert np.isnan(edge.interval).all()
    assert edge.status == gp.Status.TOO_SHORT


def test_bracket_without_a_change_of_sign_names_both_ends():
    message = r"`bracket` must enclose .*; got 0.4055 at gain 1.5 and 0.6931 at gain 2\."
    with pytest.raises(ValueError, match=message):
        gp.edge_of_chaos(rotation, bracket=(2.0, 1.5), n_steps=40, burn_in=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"make": 3}, TypeError, r"`make` must be callable as make\(gain, rng\); got int"),
        ({"make": lambda g, rng: g}, TypeError, r"`make` must return a cell.*; got float"),
        ({"make": lambda g, rng: (g, 1, 2)}, TypeError, r"`make` must return .*; got tuple"),
        (
            {"make": lambda g, rng: gp.JacobianChain.dense([[[g]]] * 3)},
            ValueError,
            r"`make` must give chains of `n_steps` = 40 steps; got 3",
        ),
        ({"bracket": 1.0}, ValueError, r"`bracket` must be two different gains; got 1.0"),
        ({"bracket": (1.0, 1.0)}, ValueError, r"`bracket` must be two different gains"),
        ({"bracket": (0.5, np.nan)}, ValueError, r"`bracket` must be finite"),
        ({"n_steps": 0}, ValueError, r"`n_steps` must be at least 1"),
        ({"burn_in": 40}, ValueError, r"`burn_in` must be at most 39; got 40"),
        ({"confidence": 1.0}, ValueError, r"`confidence` must be less than 1"),
        ({"xtol": 0.0}, ValueError, r"`xtol` must be greater than 0"),
        ({"rng": "x"}, (TypeError, ValueError), r"`rng` must be None"),
    ],
)
def test_bad_arguments(arguments, error, message):
    good = {"make": rotation, "bracket": (0.5, 0.9), "n_steps": 40, "burn_in": 0}
    if "xtol" in arguments:
        good["bracket"] = (0.5, 2.0)
    with pytest.raises(error, match=message):
        gp.edge_of_chaos(**{**good, **arguments})


def test_an_exponent_that_is_nan_says_where():
    def make(gain, rng):
        # an orbit that overflows before the burn-in ends has no exponent
        return gp.RNN([[1e200 * gain]], activation="linear")

    with pytest.raises(ValueError, match=r"`make` must give chains .* at gain 0.5 it is nan: .*"):
        gp.edge_of_chaos(make, bracket=(0.5, 2.0), n_steps=40, burn_in=20)
