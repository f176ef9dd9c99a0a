"""Mean field and Newman exponents against stored, closed and high-precision values."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import naive
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import polygamma

import gradprop as gp
from gradprop.activations import RANGES, activation
from gradprop.quadrature import gaussian_mean
from gradprop.results import Status

EPS = float(np.finfo(np.float64).eps)
SMOOTH = ("tanh", "sigmoid", "softplus", "erf", "gelu")


def near(value: float, rel: float):
    """Relative tolerance alone: approx would add an absolute one of 1e-12."""
    return pytest.approx(value, rel=rel, abs=0.0)


def naive_recursion(name: str, sigma_w: float, sigma_b: float, n_iterations: int = 1000) -> float:
    """Iterate the variance from sigma_w^2 + sigma_b^2, trapezoidal means on 4001 points."""
    z = np.linspace(-12, 12, 4001)
    weight = np.exp(-z * z / 2)
    weight /= weight.sum()
    q = sigma_w**2 + sigma_b**2
    for _ in range(n_iterations):
        before, q = q, sigma_w**2 * weight @ naive.phi(name, math.sqrt(q) * z) ** 2 + sigma_b**2
        if abs(before - q) <= EPS * q or q > 1e10:
            break
    return q


# --- Gaussian means ---------------------------------------------------------------------------


def test_means_of_powers_steps_and_kinks():
    for q in (1e-200, 1e-3, 1.0, 7.0, 1e5, 1e200):
        assert gaussian_mean(np.ones_like, q) == near(1.0, rel=4 * EPS)
        assert gaussian_mean(np.asarray, q) == near(q, rel=8 * EPS)
        assert gaussian_mean(np.abs, q) == near(q, rel=8 * EPS)
    assert gaussian_mean(np.square, 2.0) == near(3 * 4.0, rel=8 * EPS)
    assert gaussian_mean(lambda z: np.abs(z) ** 1.5, 1.0) == near(
        4 / math.sqrt(2 * math.pi), rel=8 * EPS
    )
    for at in (0.3, -1.7, math.pi / 3):  # a jump, and a kink, where no panel ends
        above = 0.5 * math.erfc(at / math.sqrt(2))
        assert gaussian_mean(lambda z, at=at: z > at, 1.0) == near(above, rel=1e-14)
        pdf = math.exp(-at * at / 2) / math.sqrt(2 * math.pi)
        kink = (1 + at * at) * above - at * pdf
        mean = gaussian_mean(lambda z, at=at: np.maximum(z - at, 0), 1.0)
        assert mean == near(kink, rel=1e-14)
    assert gaussian_mean(lambda z: np.full_like(z, np.inf), 1.0) == np.inf


@pytest.mark.parametrize("name", sorted(RANGES))
def test_means_of_every_activation_in_thirty_digits(name):
    """Both means of the built-ins, split at their kinks, for narrow and wide pre-activations."""
    kinks = {"hard_tanh": 1.0, "hard_sigmoid": 2.5}
    for q in (0.04, 3.0, 90.0):
        root = mp.sqrt(q)
        edges = sorted(
            {0.0, *(s * c for s in (1, -1) for c in (kinks.get(name, 1.0), 4.0, 20.0, 36.0))}
        )
        ends = [mp.mpf(edge) / root for edge in edges]
        own = activation(name)
        for function, exact in ((own.evaluate, mp_phi(name)), (own.derivative, mp_dphi(name))):
            with mp.workdps(30):
                total = mp.quad(
                    lambda z, f=exact, r=root: f(r * z) ** 2 * mp.npdf(z),
                    [-mp.mpf(14), *(e for e in ends if -14 < e < 14), mp.mpf(14)],
                )
            assert gaussian_mean(function, q) == near(float(total), rel=1e-14)


SELU_SCALE, SELU_ALPHA = mp.mpf("1.0507009873554804934"), mp.mpf("1.6732632423543772848")


def mp_phi(name):
    return {
        "tanh": mp.tanh,
        "relu": lambda x: max(x, mp.mpf(0)),
        "leaky_relu": lambda x: x if x > 0 else mp.mpf(0.01) * x,
        "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
        "hard_tanh": lambda x: min(max(x, -mp.mpf(1)), mp.mpf(1)),
        "softplus": lambda x: mp.log1p(mp.exp(-abs(x))) + max(x, mp.mpf(0)),
        "erf": mp.erf,
        "gelu": lambda x: x * mp.ncdf(x),
        "selu": lambda x: SELU_SCALE * (x if x > 0 else SELU_ALPHA * mp.expm1(x)),
        "linear": lambda x: x,
        "hard_sigmoid": lambda x: min(max(x / 5 + mp.mpf(1) / 2, mp.mpf(0)), mp.mpf(1)),
    }[name]


def mp_dphi(name):
    return {
        "tanh": lambda x: mp.sech(x) ** 2,
        "relu": lambda x: mp.mpf(x > 0),
        "leaky_relu": lambda x: mp.mpf(1) if x > 0 else mp.mpf(0.01),
        "sigmoid": lambda x: 1 / (2 + 2 * mp.cosh(x)),
        "hard_tanh": lambda x: mp.mpf(abs(x) < 1),
        "softplus": lambda x: 1 / (1 + mp.exp(-x)),
        "erf": lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x),
        "gelu": lambda x: mp.ncdf(x) + x * mp.npdf(x),
        "selu": lambda x: SELU_SCALE * (1 if x > 0 else SELU_ALPHA * mp.exp(x)),
        "linear": lambda x: mp.mpf(1),
        "hard_sigmoid": lambda x: mp.mpf(abs(x) < 2.5) / 5,
    }[name]


# --- mean field -------------------------------------------------------------------------------


def test_tanh_against_thirty_digits(oracles):
    points = oracles["meanfield_tanh"]["points"]
    assert len(points) == 13
    for point in points:
        field = gp.mean_field("tanh", float(point["sw"]), float(point["sb"]))
        assert float(field.q_star) == pytest.approx(float(point["qstar"]), rel=1e-12, abs=1e-300)
        assert float(field.chi) == near(float(point["chi"]), rel=1e-12)
        assert float(field.rate) == pytest.approx(float(point["half_ln_chi"]), rel=1e-12, abs=1e-15)
        assert field.messages() == []


def test_critical_line_of_tanh(oracles):
    for point in oracles["meanfield_tanh"]["critical_line"]:
        field = gp.mean_field("tanh", float(point["sw"]), float(point["sb"]))
        assert float(field.q_star) == near(float(point["q"]), rel=1e-12)
        assert float(field.chi) == near(1.0, rel=1e-12)


def test_published_values():
    field = gp.mean_field("tanh", [1.5, 2.0, 3.0, 5.0, 10.0])
    rates = [0.0652172, 0.1547242, 0.3102493, 0.5324279, 0.8564351892]
    np.testing.assert_allclose(field.rate, rates, atol=6e-8)
    assert float(field.q_star[4]) == pytest.approx(91.7051311953, abs=6e-11)
    driven = gp.mean_field("tanh", [1.5, 2.0, 3.0], np.sqrt([0.5, 0.5, 1.0]))
    np.testing.assert_allclose(driven.rate, [-0.069042, 0.091985, 0.268516], atol=6e-7)
    noise, edge = [0.01, 0.05, 0.1, 0.5, 1.0], [1.193401, 1.327010, 1.409281, 1.686169, 1.855589]
    np.testing.assert_allclose(gp.mean_field("tanh", edge, np.sqrt(noise)).chi, 1.0, atol=3e-6)
    assert float(gp.mean_field("sigmoid", math.sqrt(103.0076)).chi) == pytest.approx(1, abs=1e-6)
    # selu keeps unit variance, which is what its two constants are for
    assert float(gp.mean_field("selu", 1.0).q_star) == near(1.0, rel=1e-14)


def test_p065_gain_five_thirds_is_not_neutral():
    field = gp.mean_field("tanh", 5 / 3)
    assert round(float(field.q_star), 5) == 1.17848
    assert round(float(field.chi), 5) == 1.20983
    assert round(float(field.rate), 4) == 0.0952


@given(st.floats(0.1, 8.0), st.floats(0.0, 2.0))
def test_erf_equals_its_closed_form(sigma_w, sigma_b):
    """E erf^2 = (2/pi) asin(2q/(1+2q)), E erf'^2 = (4/pi)/sqrt(1+4q) (Williams 1998)."""
    field = gp.mean_field("erf", sigma_w, sigma_b)
    q = float(field.q_star)
    image = sigma_w**2 * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) + sigma_b**2
    slope = sigma_w**2 * 4 / math.pi / ((1 + 2 * q) * math.sqrt(1 + 4 * q))
    # a rounding of the recursion moves its fixed point by 1/|1 - slope|
    assert abs(image - q) <= 50 * EPS * (q + sigma_w**2 * q) + 3e-14 * q * abs(1 - slope)
    assert slope <= 1 + 1e-9
    expected = sigma_w**2 * 4 / math.pi / math.sqrt(1 + 4 * q)
    assert float(field.chi) == near(expected, rel=20 * EPS)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_equals_the_plain_recursion(name):
    """The fixed point that the iteration itself reaches, where there is a choice of several."""
    for sigma_w, sigma_b in itertools.product((0.4, 1.2, 1.7, 3.0), (0.0, 0.3)):
        q = naive_recursion(name, sigma_w, sigma_b)
        field = gp.mean_field(name, sigma_w, sigma_b)
        if Status.UNBOUNDED in Status(int(field.status)):
            assert q > 1e9
            assert float(field.q_star) == np.inf
        else:
            # smooth: the trapezoidal rule is exact to rounding; kinks: h^2/12 of the jump in slope
            error = 1e-12 if name in SMOOTH else 1e-4
            assert float(field.q_star) == pytest.approx(q, rel=error, abs=1e-12)


def test_onset_and_slow_convergence():
    """At sigma_w = 1 plain iteration would creep as 1/steps."""
    for sigma_w in (0.0, 0.5, 0.999999, 1.0):
        field = gp.mean_field("tanh", sigma_w)
        assert float(field.q_star) == 0.0
        assert float(field.chi) == near(sigma_w**2, rel=4 * EPS)
    for excess in (1e-3, 1e-6, 1e-9):
        # E tanh^2 = q - 2 q^2 + 17/3 q^3 ...: q = (s - 1)/(2 s) (1 + O(s - 1)), s = sigma_w^2
        square = (1 + excess) ** 2
        leading = (square - 1) / (2 * square)
        found = float(gp.mean_field("tanh", 1 + excess).q_star)
        assert found == near(leading, rel=10 * excess + 1e-14 / excess)
    biased = float(gp.mean_field("tanh", 1.0, 1e-5).q_star)
    assert biased == near(1e-5 / math.sqrt(2), rel=1e-4)


def test_rectifiers_are_solved_marginal_or_unbounded():
    field = gp.mean_field(
        "relu", [1.0, 1.4, math.sqrt(2), math.sqrt(2), 2.0], [0.5, 0.5, 0, 0.5, 0.5]
    )
    expected = [0.25 / 0.5, 0.25 / (1 - 0.98), np.nan, np.inf, np.inf]
    np.testing.assert_allclose(field.q_star, expected, rtol=1e-12)
    np.testing.assert_allclose(field.chi, np.array([1, 1.96, 2, 2, 4]) / 2, rtol=8 * EPS)
    assert field.status.tolist() == [
        *(0, 0, int(Status.MARGINAL)),
        *(int(Status.UNBOUNDED), int(Status.UNBOUNDED)),
    ]
    assert float(gp.mean_field("relu", 1.0).q_star) == 0.0
    assert float(gp.mean_field("linear", 0.5, 3.0).q_star) == near(12.0, rel=1e-14)
    assert gp.mean_field("linear", 1.0).messages() == [Status.MARGINAL.text]
    leaky = gp.mean_field("leaky_relu", 1.0, 0.5)
    assert float(leaky.chi) == near((1 + 1e-4) / 2, rel=8 * EPS)


def test_of_two_stable_states_the_one_reached_from_unit_variance():
    """Gelu at sigma_w = 1.42: 0 and infinity attract, as E gelu^2 / q rises from 1/4 to 1/2."""
    assert float(gp.mean_field("gelu", 1.42).q_star) == 0.0
    assert float(gp.mean_field("gelu", 1.42, 1.2).q_star) == np.inf


def test_own_activation():
    cube = gp.Activation(
        "cube", numba.njit(lambda z: z * z * z), numba.njit(lambda z: 3 * z * z), (0.0, np.inf)
    )
    # E (sqrt(q) z)^6 = 15 q^3: below q = 1/sqrt(15) it dies out, above it explodes
    assert float(gp.mean_field(cube, 0.5).q_star) == 0.0
    assert float(gp.mean_field(cube, 1.0).q_star) == np.inf


def test_chi_is_the_growth_of_gradients_in_wide_networks():
    """Fresh weights at each step, mean over networks of the squared gradient, ten steps."""
    rng = np.random.default_rng(0)
    n, n_networks, n_steps = 400, 12, 10
    field = gp.mean_field("tanh", 1.8, 0.2)
    logs = []
    for _ in range(n_networks):
        h = np.tanh(math.sqrt(float(field.q_star)) * rng.standard_normal(n))
        v = rng.standard_normal(n) / math.sqrt(n)
        for _ in range(n_steps):
            W = 1.8 * rng.standard_normal((n, n)) / math.sqrt(n)
            z = W @ h + 0.2 * rng.standard_normal(n)
            v = naive.dphi("tanh", z) * (W @ v)
            h = np.tanh(z)
        logs.append(v @ v)
    # variance of ln of the mean: (n_steps / n) E phi'^4 / (E phi'^2)^2 * 2 over 12 networks
    error = 4 * math.sqrt(n_steps / n * 6 / n_networks) / 2 / n_steps
    assert math.log(np.mean(logs)) / (2 * n_steps) == pytest.approx(float(field.rate), abs=error)


@given(st.floats(0.2, 5.0), st.floats(0.0, 1.0), st.floats(0.01, 1.0))
def test_variance_grows_with_bias_and_chi_falls(sigma_w, sigma_b, more):
    """True of tanh: E phi^2 increases with q and phi'^2 is largest at 0."""
    field = gp.mean_field("tanh", sigma_w, [sigma_b, sigma_b + more])
    assert field.q_star[1] > field.q_star[0]
    assert field.chi[1] < field.chi[0] <= sigma_w**2 * (1 + 4 * EPS)


def test_shapes_table_and_conditions():
    field = gp.mean_field("tanh", [[0.5], [1.5]], [0.0, 0.1, 0.2])
    assert field.q_star.shape == field.rate.shape == field.sigma_w.shape == (2, 3)
    assert len(field.to_frame()) == 6
    single = gp.mean_field("tanh", 1.5, 0.1)
    assert single.rate.shape == ()
    assert float(single.rate) == field.rate[1, 1]
    assert "annealed" in field.conditions
    assert gp.mean_field("tanh", []).chi.shape == (0,)
    silent = gp.mean_field("tanh", 0.0, 0.3)
    assert (float(silent.q_star), float(silent.rate)) == (pytest.approx(0.09), -np.inf)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("step", 1.0), ValueError, "`activation` must be one of 'tanh'"),
        ((np.tanh, 1.0), TypeError, "`activation` must be a name or an Activation"),
        (("tanh", -1.0), ValueError, r"`sigma_w` must lie in 0 .. 1e100; got -1.0"),
        (("tanh", 1e101), ValueError, r"`sigma_w` must lie in 0 .. 1e100"),
        (("tanh", 1.0, -0.1), ValueError, r"`sigma_b` must lie in 0 .. 1e100; got -0.1"),
        (("tanh", np.nan), ValueError, "`sigma_w` must be finite"),
        (("tanh", 1j), TypeError, "`sigma_w` must be real"),
        (("tanh", "1"), TypeError, "`sigma_w` must hold numbers"),
        (("tanh", [1.0, 2.0], [1.0, 2.0, 3.0]), ValueError, "leading"),
    ],
)
def test_bad_input_of_mean_field(arguments, error, text):
    with pytest.raises(error, match=text):
        gp.mean_field(*arguments)


# --- Newman -----------------------------------------------------------------------------------


def test_newman_against_thirty_digits(oracles):
    """With r active rows the product is that of r x r matrices of the same entries."""
    cases = oracles["newman"]["cases"]
    assert max(int(case["d"]) for case in cases) >= 8
    for case in cases:
        d, r, s2 = int(case["d"]), int(case["r"]), float(case["s2"])
        exact = gp.newman_exponents(r, math.sqrt(s2 / d))
        lam = np.array(case["lam"], float)[: len(case["var_times_n"])]
        stored = slice(0, min(r, len(lam)))
        np.testing.assert_allclose(exact.exponents[stored], lam[stored], rtol=0, atol=2e-14)
        variances = np.array(case["var_times_n"], float)[stored]
        np.testing.assert_allclose(exact.variance_per_step[stored], variances, rtol=1e-13)


def test_newman_against_published_values():
    assert gp.newman_exponents(4, 1.0).exponents.round(10).tolist() == [
        0.5579657578, 0.3648185773, 0.0579657578, -0.6351814227,
    ]  # fmt: skip
    scaled = [gp.newman_exponents(n, n**-0.5).exponents[0] for n in (2, 4, 8, 64, 256)]
    np.testing.assert_allclose(
        scaled,
        [-0.2886078325, -0.1351814227, -0.0650883463, -0.0078531861, -0.0019556681],
        atol=1e-10,
    )
    errors = np.sqrt(gp.newman_exponents(4, 1.0).variance_per_step / 4000)
    assert errors.round(5).tolist() == [0.00635, 0.00764, 0.01014, 0.01756]


def test_newman_against_sampled_products():
    """Mean and variance of ln r_ii within four of their exact standard errors."""
    n, n_steps = 3, 3000
    rng = np.random.default_rng(0)
    J = 0.7 * rng.standard_normal((n_steps, n, n))
    increments = naive.qr_increments(J)
    exact = gp.newman_exponents(n, 0.7)
    error = np.sqrt(exact.variance_per_step / n_steps)
    assert (np.abs(increments.mean(axis=0) - exact.exponents) <= 4 * error).all()
    fourth = polygamma(3, 0.5 * np.arange(n, 0, -1)) / 16 + 2 * exact.variance_per_step**2
    gap = np.abs(increments.var(axis=0) - exact.variance_per_step)
    assert (gap <= 4 * np.sqrt(fourth / n_steps)).all()


def test_newman_saves_and_refuses(tmp_path):
    exact = gp.newman_exponents(3, 2.0)
    exact.save(tmp_path / "newman.npz")
    assert gp.NewmanExponents.load(tmp_path / "newman.npz").sigma == 2.0
    assert len(exact.to_frame()) == 3
    for arguments, error, text in (
        ((0, 1.0), ValueError, "`n` must be at least 1"),
        ((2.0, 1.0), TypeError, "`n` must be an integer"),
        ((2, 0.0), ValueError, "`sigma` must be greater than 0"),
        ((2, np.inf), ValueError, "`sigma` must be finite"),
    ):
        with pytest.raises(error, match=text):
            gp.newman_exponents(*arguments)
