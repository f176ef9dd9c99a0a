"""Critical weights against stored, closed and published values."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_theory import naive_recursion

import gradprop as gp
from gradprop.results import Status


def near(value: float, rel: float):
    """Relative tolerance alone: approx would add an absolute one of 1e-12."""
    return pytest.approx(value, rel=rel, abs=0.0)


def test_tanh_against_thirty_digits(oracles):
    points = oracles["meanfield_tanh"]["critical_line"]
    line = gp.critical_line("tanh", [float(p["sb"]) for p in points])
    assert line.sigma_w.shape == (5,)
    for i, point in enumerate(points):
        q = float(point["q"])
        # sigma_b^2 = 4/3 q^3 - ... comes from a difference of terms q
        assert line.sigma_w[i] == near(float(point["sw"]), rel=1e-14 + 1e-15 / q)
        assert line.q_star[i] == near(q, rel=1e-13 + 1e-15 / q**2)
    assert (line.status == 0).all()


def test_published_values():
    noise = np.array([0.01, 0.05, 0.1, 0.5, 1.0])
    line = gp.critical_line("tanh", np.sqrt(noise))
    squares = [1.424205, 1.760955, 1.986073, 2.843167, 3.443211]
    np.testing.assert_allclose(line.sigma_w**2, squares, atol=5.01e-7)
    gains = [1.193401, 1.327010, 1.409281, 1.686169, 1.855589]
    np.testing.assert_allclose(line.sigma_w, gains, atol=5.01e-7)
    assert float(gp.critical_line("sigmoid").sigma_w) ** 2 == pytest.approx(103.0076, abs=5.01e-5)
    assert float(gp.critical_line("relu").sigma_w) ** 2 == near(2.0, rel=1e-15)


@given(st.floats(0.02, 3.0))
def test_erf_solves_its_closed_form(sigma_b):
    """chi = sigma_w^2 (4/pi) / sqrt(1 + 4q) = 1 and the arcsine kernel (Williams 1998)."""
    line = gp.critical_line("erf", sigma_b)
    q, square = float(line.q_star), float(line.sigma_w) ** 2
    assert square * 4 / math.pi / math.sqrt(1 + 4 * q) == near(1.0, rel=1e-13)
    image = square * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) + sigma_b**2
    assert image == near(q, rel=1e-13)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "hard_tanh", "selu", "hard_sigmoid"])
def test_mean_field_agrees_and_passes_one_there(name):
    line = gp.critical_line(name, [0.2, 0.7])
    for i, sigma_b in enumerate((0.2, 0.7)):
        sides = line.sigma_w[i] * np.array([0.999, 1.0, 1.001])
        chi = gp.mean_field(name, sides, sigma_b).chi
        assert chi[0] < 1 < chi[2]
        assert chi[1] == pytest.approx(1.0, abs=1e-12)
        # the recursion itself, from its own start, is at that variance (kinks: h^2/12 of a step)
        q = naive_recursion(name, float(line.sigma_w[i]), sigma_b)
        assert float(line.q_star[i]) == near(q, rel=1e-3)


def test_states_at_rest_marginal_unbounded_and_jumps():
    for name, slope in (("tanh", 1.0), ("erf", 2 / math.sqrt(math.pi)), ("hard_tanh", 1.0)):
        line = gp.critical_line(name)
        assert float(line.sigma_w) == near(1 / slope, rel=4e-16)
        assert (float(line.q_star), int(line.status)) == (0.0, 0)
    for name, square in (("relu", 2.0), ("leaky_relu", 2 / (1 + 1e-4)), ("linear", 1.0)):
        line = gp.critical_line(name, [0.0, 0.5])
        np.testing.assert_allclose(line.sigma_w**2, square, rtol=1e-15)
        assert np.isnan(line.q_star[0])
        assert line.q_star[1] == np.inf
        assert line.status.tolist() == [int(Status.MARGINAL), int(Status.UNBOUNDED)]
    softplus = gp.critical_line("softplus", 0.1)
    assert (float(softplus.q_star), int(softplus.status)) == (np.inf, int(Status.UNBOUNDED))
    # gelu rests at 0 up to some sigma_w and explodes from there: chi jumps
    jump = gp.critical_line("gelu")
    assert np.isnan(jump.sigma_w)
    assert int(jump.status) == int(Status.NOT_APPLICABLE)
    below, above = gp.mean_field("gelu", [1.45, 1.5]).chi
    assert below < 0.6 < 1 < above


def test_only_states_that_networks_end_in_count():
    """tanh^3 + z/10: chi jumps past 1 to the upper of two states, and stays there to sigma_w = 10.

    Variances at which chi = 1 exist, but they are unstable; from 10 on the variance is unbounded.
    """
    own = gp.Activation(
        "bistable",
        numba.njit(lambda z: np.tanh(z) ** 3 + 0.1 * z),
        numba.njit(lambda z: 3 * (np.tanh(z) / np.cosh(min(abs(z), 300.0))) ** 2 + 0.1),
        (0.1, 0.9),
    )
    line = gp.critical_line(own, [0.05, 0.3])
    assert np.isnan(line.sigma_w).all()
    assert (line.status == int(Status.NOT_APPLICABLE)).all()
    for sigma_b, below, above in ((0.05, 1.8, 2.0), (0.3, 1.6, 1.8)):
        assert gp.mean_field(own, below, sigma_b).chi < 0.5
        assert (gp.mean_field(own, [above, 5.0, 9.0, 9.9], sigma_b).chi > 1.05).all()


def test_tiny_biases_cost_digits_but_not_the_limit():
    """Near q = 0 sigma_w = 1 + q + ..., sigma_b^2 = 4/3 q^3 for tanh."""
    for sigma_b in (1e-3, 1e-6, 1e-9, 1e-12, 1e-15):
        q = (0.75 * sigma_b**2) ** (1 / 3)
        line = gp.critical_line("tanh", sigma_b)
        assert float(line.sigma_w) - 1 == pytest.approx(q, abs=5 * q**2 + 1e-15 / q + 3e-8)


def test_shapes_conditions_and_refusals(tmp_path):
    line = gp.critical_line("tanh", [[0.1, 0.2]])
    assert line.sigma_w.shape == (1, 2)
    assert len(line.to_frame()) == 2
    assert "edge_of_chaos" in line.conditions
    assert "finite n" in line.conditions
    line.save(tmp_path / "line.npz")
    assert gp.CriticalLine.load(tmp_path / "line.npz").activation == "tanh"
    for arguments, error, text in (
        (("step",), ValueError, "`activation` must be one of"),
        (("tanh", -1.0), ValueError, r"`sigma_b` must lie in 0 .. 1e100; got -1.0"),
        (("tanh", np.nan), ValueError, "`sigma_b` must be finite"),
        (("tanh", "a"), TypeError, "`sigma_b` must hold numbers"),
    ):
        with pytest.raises(error, match=text):
            gp.critical_line(*arguments)
