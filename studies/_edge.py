"""Measuring and drawing of edge_of_chaos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
COLOURS = ("#0072B2", "#009E73", "#E69F00", "#D55E00")
MARKERS = "osD^"


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Critical gain of one network under white noise of one strength; gains share all draws."""
    n, std = int(point["n"]), float(np.sqrt(point["variance"]))
    n_steps = int(point["n_steps"])

    def make(gain: float, own: np.random.Generator) -> tuple[gp.RNN, Array]:
        W = gp.initialise("gaussian", n, rng=own, gain=gain)
        return gp.RNN(W), std * own.standard_normal((n_steps, n))

    theory = float(gp.critical_line("tanh", std).sigma_w)
    edge = gp.edge_of_chaos(
        make,
        bracket=(0.6 * theory, 1.7 * theory),
        n_steps=n_steps,
        burn_in=n_steps // 4,
        rng=rng,
        xtol=1e-4,
    )
    low, high = edge.interval
    return {"gain": float(edge.gain), "low": float(low), "high": float(high), "theory": theory}


def draw(data: Data, width: float) -> Figure:
    """Critical gain against input strength, and its distance from theory against n."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.5 * width))
    left, right = figure.subplots(1, 2)
    _against_strength(left, data["edge"])
    _against_size(right, data["edge"])
    return figure


def _against_strength(axes: Axes, points: SweepResult) -> None:
    variance = np.unique(points["variance"])
    grid = np.geomspace(variance[0] / 2, variance[-1] * 1.5, 60)
    theory = [float(gp.critical_line("tanh", np.sqrt(v)).sigma_w) for v in grid]
    axes.plot(grid, theory, "k-", lw=1.0, label=r"theory, $n\to\infty$")
    for n, colour, marker in zip(np.unique(points["n"]), COLOURS, MARKERS, strict=False):
        mean, error = _statistics([points.select(n=n, variance=v)["gain"] for v in variance])
        axes.errorbar(
            variance, mean, error, color=colour, marker=marker, ls="", ms=3, label=f"n = {n}"
        )
    axes.set_xscale("log")
    axes.set_xlabel("variance of the input per unit")
    axes.set_ylabel(r"critical gain $g_c$")
    axes.set_title(r"(a) where $\lambda_1 = 0$")
    axes.legend(loc="upper left").set_in_layout(False)


def _against_size(axes: Axes, points: SweepResult) -> None:
    sizes = np.unique(points["n"])
    for v, colour, marker in zip(np.unique(points["variance"]), COLOURS, MARKERS, strict=False):
        groups = [points.select(n=n, variance=v) for n in sizes]
        mean, error = _statistics([group["gain"] / group["theory"] - 1 for group in groups])
        axes.errorbar(
            sizes, mean, error, color=colour, marker=marker, ls="-", lw=0.8, ms=3,
            label=f"variance {v:g}",
        )  # fmt: skip
    iid = [np.exp(-gp.newman_exponents(int(n), n**-0.5).exponents[0]) - 1 for n in sizes]
    axes.plot(sizes, iid, "k:", label="iid product, exact")
    axes.axhline(0, color="0.6", lw=0.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("units n")
    axes.set_ylabel(r"$g_c$ / theory − 1")
    axes.set_title("(b) finite-size shift")
    axes.legend(loc="upper right", fontsize=6).set_in_layout(False)


def _statistics(groups: list[Array]) -> tuple[Array, Array]:
    """Mean over networks and its standard error."""
    mean = np.array([np.mean(g) for g in groups])
    return mean, np.array([np.std(g, ddof=1) / np.sqrt(len(g)) for g in groups])
