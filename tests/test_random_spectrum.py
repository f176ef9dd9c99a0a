"""The spectrum of wide random networks: closed forms, many digits, a published table, networks."""

from __future__ import annotations

import math

import mpmath as mp
import naive
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradprop as gp
from gradprop.activations import RANGES, activation
from gradprop.quadrature import gaussian_mean, gaussian_rule
from gradprop.random_spectrum import random_network_spectrum
from gradprop.results import Status
from gradprop.slopes import log_abs_slope

EPS = float(np.finfo(np.float64).eps)


def near(value: float, rel: float):
    """Relative tolerance alone: approx would add an absolute one of 1e-12."""
    return pytest.approx(value, rel=rel, abs=0.0)


def flags(result) -> Status:
    return Status(int(result.status))


# --- nodes ------------------------------------------------------------------------------------


def test_nodes_hold_for_several_functions_at_once():
    """Moments, a kink and a jump where no panel ends, and a function between two given ones."""

    def functions(x):
        return np.stack([x**2, x**4, np.abs(x - 0.3), (x > math.pi / 3) + 0.0, *families(x)])

    def families(x):
        return [1 / (1 + np.exp(level - 4 * np.abs(x))) for level in (0.0, 2.0, 4.0)]

    for q in (1e-3, 1.0, 50.0):
        x, w = gaussian_rule(functions, q)
        assert (w > 0).all()
        assert math.fsum(w) == near(1.0, rel=8 * EPS)
        assert w @ x**2 == near(q, rel=20 * EPS)
        assert w @ x**4 == near(3 * q * q, rel=20 * EPS)
        above = 0.5 * math.erfc(math.pi / 3 / math.sqrt(2 * q))
        # 70 halvings of a panel of width 1: nothing is lost at a jump
        assert w @ (x > math.pi / 3) == pytest.approx(above, abs=40 * EPS)
        root = math.sqrt(q)
        folded = root * math.sqrt(2 / math.pi) * math.exp(-0.045 / q)
        folded += 0.3 * math.erf(0.3 / math.sqrt(2 * q))
        assert w @ np.abs(x - 0.3) == near(folded, rel=40 * EPS)
        for level in (0.0, 1.0, 3.3, 4.0):
            square_root = gaussian_mean(
                lambda x, level=level: 1 / np.sqrt(1 + np.exp(level - 4 * np.abs(x))), q
            )
            between = w @ (1 / (1 + np.exp(level - 4 * np.abs(x))))
            assert between == near(square_root, rel=1e-13)


# --- log slopes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(RANGES))
def test_log_slopes_are_those_of_the_derivative(name):
    """Where phi' is a normal number: relative error of phi' is a few eps (test_activations)."""
    own = activation(name)
    x = np.concatenate([np.linspace(-25, 25, 3001), [-1e-300, 0.0, 1e-300]])
    slope = np.abs(own.derivative(x))
    with np.errstate(divide="ignore"):
        expected = np.log(slope)
    normal = (slope == 0) | (slope > 1e-300)
    found = log_abs_slope(own, x)
    off_zero = np.abs(x + 0.7518) > 0.02 if name == "gelu" else True
    agree = np.isclose(found, expected, rtol=50 * EPS, atol=2e-13)
    assert (agree | ~normal | ~np.asarray(off_zero)).all()


def test_log_slopes_beyond_the_range_of_floats():
    tails = {
        "tanh": lambda x: mp.log(mp.sech(x) ** 2),
        "sigmoid": lambda x: -mp.log(2 + 2 * mp.cosh(x)),
        "softplus": lambda x: -mp.log1p(mp.exp(-x)),
        "erf": lambda x: mp.log(2 / mp.sqrt(mp.pi)) - x * x,
        "gelu": lambda x: mp.log(abs(mp.ncdf(x) + x * mp.npdf(x))),
        "selu": lambda x: mp.log(mp.mpf(activation("selu").gamma)) + x,
    }
    with mp.workdps(40):
        for name, exact in tails.items():
            for x in (-3000.0, -800.0, -100.0, -30.0, -5.5, -4.5, -0.1):
                found = float(log_abs_slope(activation(name), np.array(x)))
                # the log of a slope near 1 has an absolute error; gelu comes from a difference
                error = 1e-13 if name == "gelu" else 4 * EPS
                assert found == pytest.approx(float(exact(mp.mpf(x))), rel=4 * EPS, abs=error)
    ends = np.array([-1e140, 1e140])
    assert np.isneginf(log_abs_slope(activation("tanh"), ends)).all()
    assert log_abs_slope(activation("gelu"), ends).tolist() == [-np.inf, 0.0]
    assert log_abs_slope(activation("leaky_relu"), ends).tolist() == [math.log(0.01), 0.0]


# --- closed forms -----------------------------------------------------------------------------


def test_linear_networks_have_the_triangle_law():
    for gain in (0.3, 1.0, 1.5, 3.0):
        spectrum = gp.random_network_spectrum("linear", gain, 7)
        u = (np.arange(7) + 0.5) / 7
        np.testing.assert_array_equal(spectrum.u, u)
        expected = np.log(gain) + 0.5 * np.log1p(-u)
        np.testing.assert_allclose(spectrum.exponents, expected, rtol=0, atol=20 * EPS)
        square = gain * gain
        unstable = max(1 - 1 / square, 0.0)
        positive = max((square * math.log(square) - square + 1) / (2 * square), 0.0)
        assert float(spectrum.lambda_1) == pytest.approx(math.log(gain), abs=4 * EPS)
        assert float(spectrum.mean_exponent) == pytest.approx(math.log(gain) - 0.5, abs=4 * EPS)
        assert float(spectrum.unstable_fraction) == pytest.approx(unstable, abs=1e-14)
        assert float(spectrum.positive_sum) == pytest.approx(positive if gain > 1 else 0, abs=1e-14)
        if gain == 3.0:  # the mean is positive: volumes grow
            assert float(spectrum.dimension) == 1.0
        elif gain == 1.5:
            # integral of ln(g^2 (1 - u)) / 2 up to D is zero
            left = 1 - float(spectrum.dimension)
            growth = (square * (math.log(square) - 1) - square * left * math.log(square * left)) / 2
            assert growth + square * left / 2 == pytest.approx(0, abs=1e-13)
        else:
            assert float(spectrum.dimension) == 0.0


def test_slopes_of_zero_cut_the_spectrum():
    """Slopes 1 with probability p, else 0: u = p s / (1 + s), lambda = ln(g^2 (p - u)) / 2."""
    for name, gain, noise in (("relu", 1.2, 0.3), ("relu", 2.0, 0.5), ("hard_tanh", 2.0, 0.1)):
        spectrum = gp.random_network_spectrum(name, gain, 100, noise)
        q = float(spectrum.q_star)
        share = 0.5 if name == "relu" else math.erf(1 / math.sqrt(2 * q))
        u = spectrum.u
        with np.errstate(invalid="ignore"):
            expected = np.where(u < share, 0.5 * np.log(gain**2 * (share - u)), -np.inf)
        np.testing.assert_allclose(spectrum.exponents, expected, rtol=0, atol=1e-12)
        assert float(spectrum.mean_exponent) == -np.inf
        assert Status.ZERO in flags(spectrum)
        unstable = max(share - gain**-2, 0.0)
        assert float(spectrum.unstable_fraction) == pytest.approx(unstable, abs=1e-13)
    assert float(gp.random_network_spectrum("relu", 3.0, 5).dimension) == 0.5  # all that are finite
    # the middle one of an odd number has u = 1/2 and no slope left
    assert np.isneginf(gp.random_network_spectrum("relu", 1.0, 5).exponents[2])


def test_two_slopes():
    """leaky_relu: s solves a quadratic; near u = 1/2 it crosses the gap between the slopes."""
    a = 0.01**2
    for gain, noise in ((1.3, 0.2), (3.0, 0.0)):
        spectrum = gp.random_network_spectrum("leaky_relu", gain, 1000, noise)
        with mp.workdps(30):
            for i in (0, 3, 250, 480, 499, 500, 520, 750, 999):
                u = mp.mpf(2 * i + 1) / 2000
                middle = (1 + a) * (1 - 2 * u)
                root = mp.sqrt(middle**2 + 16 * a * u * (1 - u))
                s = (root - middle) / (4 * a * (1 - u))
                exact = float(mp.log(gain * gain * u / s) / 2)
                assert spectrum.exponents[i] == pytest.approx(exact, abs=1e-12)


# --- many digits ------------------------------------------------------------------------------


def test_tanh_in_twenty_digits(oracles):
    """lambda(u) from the two equations, by quadrature and root finding in 30 digits."""
    q = next(p["qstar"] for p in oracles["meanfield_tanh"]["points"] if p["sw"] == "2")
    spectrum = gp.random_network_spectrum("tanh", 2.0, 50)
    with mp.workdps(25):
        root = mp.sqrt(mp.mpf(q))

        def share(log_s):
            s = mp.exp(log_s)

            def integrand(z):
                square = mp.sech(root * z) ** 4
                return 2 * mp.npdf(z) * s * square / (1 + s * square)

            return mp.quad(integrand, [0, 1, 2, 3, 4, 6, 12])

        for i in (0, 12, 49):
            u = (mp.mpf(i) + 0.5) / 50
            start = mp.log(4 * u) - 2 * spectrum.exponents[i]
            log_s = mp.findroot(lambda y, u=u: share(y) - u, (start, start + 0.01), tol=1e-20)
            exact = (mp.log(4 * u) - log_s) / 2
            assert spectrum.exponents[i] == pytest.approx(float(exact), abs=1e-13)


TABLE = {
    1.5: ("0.0652172", ".084319", ".0027952", ".165812", "-.714346"),
    2.0: ("0.1547242", ".133426", ".0106831", ".257555", "-1.149023"),
    3.0: ("0.3102493", ".152893", ".0251964", ".287721", "-2.272805"),
    5.0: ("0.5324279", ".134075", ".0390821", ".246482", "-4.906771"),
}
SIMULATED = {
    1.5: (0.0649472, 0.083984, 0.0027729, 0.165113, -0.715300),
    2.0: (0.1542486, 0.132568, 0.0106076, 0.256594, -1.150547),
    3.0: (0.3095828, 0.152588, 0.0251060, 0.287168, -2.273896),
    5.0: (0.5311801, 0.133789, 0.0389117, 0.245943, -4.909417),
}
NAMES = ("lambda_1", "unstable_fraction", "positive_sum", "dimension", "mean_exponent")


@pytest.mark.parametrize("gain", sorted(TABLE))
def test_tanh_to_all_digits_of_the_table(gain):
    spectrum = gp.random_network_spectrum("tanh", gain, 2)
    for name, digits, simulated in zip(NAMES, TABLE[gain], SIMULATED[gain], strict=True):
        last = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        assert abs(float(getattr(spectrum, name)) - float(digits)) <= last * (1 + 1e-6)
        # one network of 4096 units, Clark's data: finite-size shifts of order 1/n^(1/2) at most
        assert float(getattr(spectrum, name)) == pytest.approx(simulated, rel=0.01)
    field = gp.mean_field("tanh", gain)
    assert float(spectrum.q_star) == float(field.q_star)
    assert float(spectrum.lambda_1) == pytest.approx(float(field.rate), abs=1e-14)


def test_tanh_at_two_shares():
    for gain, quarter, half in ((2.0, -0.166697, -0.689294), (3.0, -0.271570, -1.416033)):
        found = gp.random_network_spectrum("tanh", gain, 2).exponents[0]
        assert found == pytest.approx(quarter, abs=5.01e-7)
        assert gp.random_network_spectrum("tanh", gain, 1).exponents[0] == pytest.approx(
            half, abs=5.01e-7
        )


def test_sums_are_integrals_of_the_spectrum():
    """Midpoint sums: error (|jump of slope at the crossing| / 8 + mean |lambda''| / 24) / n^2."""
    n = 4000
    for name, gain, noise in (("tanh", 3.0, 0.0), ("erf", 1.5, 0.1), ("selu", 1.3, 0.0)):
        spectrum = gp.random_network_spectrum(name, gain, n, noise)
        values = spectrum.exponents
        unstable = np.count_nonzero(values > 0) / n
        assert float(spectrum.unstable_fraction) == pytest.approx(unstable, abs=0.5001 / n)
        slope = n * np.abs(np.diff(values))[: n // 2]
        bend = n * np.abs(np.diff(slope))
        error = (slope.max() / 8 + bend.max() / 24) / n**2
        positive = values[values > 0].sum() / n
        assert float(spectrum.positive_sum) == pytest.approx(positive, abs=error)
        crossing = np.flatnonzero(np.cumsum(values) < 0)[0]
        assert crossing / n - 1 / n <= float(spectrum.dimension) <= (crossing + 1) / n


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(RANGES)),
    st.floats(0.2, 5.0),
    st.one_of(st.just(0.0), st.floats(1e-3, 2.0)),
    st.integers(1, 60),
)
def test_laws(name, gain, noise, n):
    spectrum = gp.random_network_spectrum(name, gain, n, noise)
    values, top = spectrum.exponents, float(spectrum.lambda_1)
    field = gp.mean_field(name, gain, math.sqrt(noise))
    assert top == pytest.approx(float(field.rate), abs=1e-12)
    with np.errstate(invalid="ignore"):
        assert not (np.diff(values) > 1e-12).any()
    assert values[0] <= top
    unstable, dimension = float(spectrum.unstable_fraction), float(spectrum.dimension)
    assert 0 <= unstable <= dimension <= 1
    assert (top > 0) == (unstable > 0)
    assert 0 <= float(spectrum.positive_sum) <= max(top, 0.0) * unstable + 1e-13
    assert float(spectrum.mean_exponent) <= top


def test_wide_spectra_and_long_ones():
    """Gain 10: slopes down to e^-800, which have no float; the sum of exponents still holds."""
    spectrum = gp.random_network_spectrum("erf", 10.0, 200)
    assert np.isfinite(spectrum.exponents).all()
    q = float(spectrum.q_star)
    # E ln erf' = ln(2 / sqrt(pi)) - q
    mean = math.log(10.0) - 0.5 + math.log(2 / math.sqrt(math.pi)) - q
    assert float(spectrum.mean_exponent) == near(mean, rel=1e-13)
    longer = gp.random_network_spectrum("tanh", 2.0, 20001)
    assert longer.exponents[10000] == pytest.approx(
        gp.random_network_spectrum("tanh", 2.0, 1).exponents[0], abs=1e-13
    )


# --- networks ---------------------------------------------------------------------------------


def test_networks_have_this_spectrum():
    """Three autonomous tanh networks of 256 units at gain 3, 150 steps each."""
    n, n_networks, n_steps = 256, 3, 150
    W = gp.initialise("gaussian", n, size=n_networks, rng=0, gain=3.0)
    chain = gp.linearise(gp.RNN(W), n_steps=n_steps + 100, rng=1).tail(n_steps)
    measured = gp.lyapunov_spectrum(chain, burn_in=30).exponents.mean(axis=0)
    spectrum = gp.random_network_spectrum("tanh", 3.0, n)
    inner = (spectrum.u > 0.05) & (spectrum.u < 0.95)
    gap = (measured - spectrum.exponents)[inner]
    assert math.sqrt(np.mean(gap**2)) <= 0.05
    assert abs(measured[0] - spectrum.exponents[0]) <= 0.03


def test_fresh_weights_have_this_spectrum():
    """Products of diag(phi') W, all fresh: freeness is no assumption there."""
    n, n_steps = 128, 200
    rng = np.random.default_rng(0)
    for name, gain, noise in (("tanh", 2.0, 0.5), ("selu", 1.0, 0.2)):
        spectrum = gp.random_network_spectrum(name, gain, n, noise)
        z = math.sqrt(float(spectrum.q_star)) * rng.standard_normal((n_steps, n, 1))
        J = naive.dphi(name, z) * rng.standard_normal((n_steps, n, n)) * (gain / math.sqrt(n))
        measured = gp.lyapunov_spectrum(gp.JacobianChain.dense(J), burn_in=100).exponents
        inner = (spectrum.u > 0.02) & (spectrum.u < 0.9)
        gap = (measured - spectrum.exponents)[inner]
        # ln r_ii of a step varies by 1/sqrt(2 n (1 - u)), here over 100 steps; bias of order 1/n
        assert math.sqrt(np.mean(gap**2)) <= 0.05


# --- what it says -----------------------------------------------------------------------------


def test_status_says_where_it_does_not_hold():
    assert flags(gp.random_network_spectrum("tanh", 1.2, 4096)) == Status.NEAR_ONSET
    assert flags(gp.random_network_spectrum("tanh", 1.5, 4096)) == Status.OK
    assert flags(gp.random_network_spectrum("tanh", 1.2, 4096, 0.1)) == Status.OK
    assert flags(gp.random_network_spectrum("tanh", 0.9, 4096)) == Status.OK
    assert "Near onset" in gp.random_network_spectrum("tanh", 1.2, 64).messages()[0]
    assert flags(gp.random_network_spectrum("relu", 2.0, 1)) == Status.UNBOUNDED | Status.ZERO
    marginal = gp.random_network_spectrum("linear", 1.0, 3)
    assert Status.MARGINAL in flags(marginal)
    assert math.isnan(float(marginal.q_star))
    np.testing.assert_allclose(marginal.exponents, np.log(1 - marginal.u) / 2, atol=1e-14)
    text = marginal.conditions
    for word in ("Typical", "number of steps goes to infinity", "finite n", "product_edge"):
        assert word in text


def test_own_activations():
    halved = gp.Activation(
        "halved",
        numba.njit(lambda z: 0.5 * z),
        numba.njit(lambda z: 0.5 + 0.0 * z),
        (0.5, 0.5),
    )
    found = random_network_spectrum(halved, 3.0, 5).exponents
    expected = random_network_spectrum("linear", 1.5, 5).exponents
    np.testing.assert_allclose(found, expected, atol=1e-14)
    flat = gp.Activation(
        "flat", numba.njit(lambda z: 1.0 + 0.0 * z), numba.njit(lambda z: 0.0 * z), (0.0, 0.0)
    )
    nothing = random_network_spectrum(flat, 3.0, 2)
    assert np.isneginf(nothing.exponents).all()
    assert float(nothing.lambda_1) == float(nothing.mean_exponent) == -np.inf
    assert float(nothing.dimension) == float(nothing.positive_sum) == 0.0


def test_table_and_file(tmp_path):
    spectrum = gp.random_network_spectrum("tanh", 2.0, 6, 0.5)
    assert len(spectrum.to_frame()) == 6
    assert {"exponents", "u", "lambda_1"} <= set(spectrum.to_frame().columns)
    spectrum.save(tmp_path / "spectrum.npz")
    loaded = gp.RandomNetworkSpectrum.load(tmp_path / "spectrum.npz")
    assert loaded.exponents.tobytes() == spectrum.exponents.tobytes()
    assert (loaded.gain, loaded.noise_variance, loaded.activation) == (2.0, 0.5, "tanh")
    assert float(loaded.dimension) == float(spectrum.dimension)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("step", 1.0, 2), ValueError, "`activation` must be one of 'tanh'"),
        (("tanh", 0.0, 2), ValueError, "`gain` must be greater than 0"),
        (("tanh", 1e101, 2), ValueError, r"`gain` must be at most 1e\+100"),
        (("tanh", np.inf, 2), ValueError, "`gain` must be finite"),
        (("tanh", 1.0, 0), ValueError, "`n` must be at least 1"),
        (("tanh", 1.0, 2.0), TypeError, "`n` must be an integer"),
        (("tanh", 1.0, 10**8), ValueError, "`n` must be at most 10000000"),
        (("tanh", 1.0, 2, -0.1), ValueError, "`noise_variance` must be at least 0"),
    ],
)
def test_bad_input(arguments, error, text):
    with pytest.raises(error, match=text):
        gp.random_network_spectrum(*arguments)
