"""Every result has a drawing, and a drawing never hides a zero, an infinity or a nan."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import gradprop as gp
from gradprop._drawing import draw_curve


@pytest.fixture
def ax():
    return Figure().subplots()


def drawn(ax):
    """Finite points of the first line, and the labels of all."""
    x, y = ax.lines[0].get_data()
    return x[np.isfinite(y)], y[np.isfinite(y)], ax.get_legend_handles_labels()[1]


def test_p083_zeros_are_shown_below_the_floor(ax):
    norms = np.array([1, 1e-30, 1e-45, 0, 0, 0])
    with np.errstate(divide="ignore"):
        draw_curve(ax, np.arange(1, 7), np.log(norms))
    x, y, labels = drawn(ax)
    assert x.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(y, np.log(norms[:3]))
    assert labels == ["below floor"]
    assert ax.lines[1].get_xdata().tolist() == [4, 5, 6]


def test_p085_nothing_finite_says_so(ax):
    draw_curve(ax, [1, 2, 3], [np.nan, np.inf, np.nan])
    ax.figure.canvas.draw()
    assert [t.get_text() for t in ax.texts] == ["no finite value"]
    assert drawn(ax)[2] == ["above range"]


def test_every_result_is_drawn_with_units():
    rng = np.random.default_rng(0)
    cell = gp.RNN(rng.standard_normal((3, 4, 4)) / 2)
    orbit = gp.rollout(cell, n_steps=40, rng=0)
    chain = gp.linearise(cell, n_steps=40, rng=0)
    exponents = gp.lyapunov_spectrum(chain)
    for result in (
        orbit,
        gp.log_norms(chain),
        gp.gradient_by_lag(chain, np.ones(4)),
        gp.singular_values(chain, lags=[10, 40]),
        exponents,
        gp.norm_bounds(chain),
        gp.horizon(chain, tol=0.1),
        gp.pool(exponents),
        gp.growth_moments(chain, 2),
        gp.effective_rank(gp.singular_values(chain, lags=[10, 40])),
        gp.local_exponents(chain, window=4),
        gp.random_network_spectrum("tanh", 2.0, 16),
        gp.precision_events(chain, "float16"),
    ):
        axes = gp.plot(result)
        axes.figure.canvas.draw()
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.has_data()


def test_plotted_data_are_the_results_own(ax):
    norms = gp.log_norms(gp.JacobianChain.dense([[[0.5]]] * 4), lags=[4, 0, 2])
    gp.plot(norms, ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.array([0, 2, 4]) * np.log(0.5))


def test_what_cannot_be_drawn_is_refused_with_the_list(ax):
    with pytest.raises(TypeError, match=r"LogNorms.*got int"):
        gp.plot(3, ax)
