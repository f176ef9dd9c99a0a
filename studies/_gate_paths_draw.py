"""Figure of gates_vs_vanilla, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from _seeds import band, quantiles

import gradprop as gp
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BIAS_COLOURS = {0.0: "#0072B2", 1.0: "#E69F00", 2.0: "#009E73", 3.0: "#CC79A7"}
PATH_STYLES = {"cc": "-", "hc": "--", "ch": "-.", "hh": ":"}
DEPTH_STYLES = {"vanilla": ("#0072B2", "o", "tanh"), "lstm": ("#E69F00", "s", "LSTM")}


def draw(data: Data, width: float) -> Figure:
    """Exact paths, random paths by bias, all paths beside other cells, and depth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.85 * width))
    panels: Any = figure.subplots(2, 2)
    (a, b), (c, d) = panels
    _exact(a, data["exact"])
    _biases(b, data["paths"])
    _paths(c, data["paths"])
    _depth(d, data["depth"])
    for axes in (a, b, c):
        axes.set_xlabel(r"lag $\ell$ [steps]")
        axes.set_ylabel(r"$\log_{10}$ of the block's norm")
    return figure


def _exact(axes: Axes, points: SweepResult) -> None:
    lstm = points.select(kind="lstm")
    for bias, twice, logs in zip(lstm["bias"], lstm["twice"], lstm["log10_cc"], strict=True):
        lags = np.arange(1, len(logs) + 1)
        if twice:
            axes.plot(
                lags[::10], logs[::10], "k+", ms=5, label=f"bias {bias:g} in both vectors"
            )  # fmt: skip
            continue
        axes.plot(lags, logs, "-", color=BIAS_COLOURS[bias], label=f"bias {bias:g}")
        rate = float(gp.gate_rates(bias).lstm) / np.log(10)
        axes.plot(lags[4::10], rate * lags[4::10], ".", color="k", ms=2.5)
    axes.set_ylim(-42, 2)
    axes.text(
        2, -37, r"dots: $\ell\,\log_{10} s(b)$; hh and ch are exactly 0", fontsize=5.5, color="0.3"
    )
    axes.legend(loc="lower left", fontsize=5.5, ncols=2, bbox_to_anchor=(0, 0.14))
    axes.set_title("(a) LSTM c-path, no recurrent weights")


def _biases(axes: Axes, points: SweepResult) -> None:
    for bias, colour in BIAS_COLOURS.items():
        p = points.select(kind="lstm", bias=bias)
        lags = np.arange(1, p["log10_cc"].shape[1] + 1)
        band(axes, lags, p["log10_cc"], color=colour, ls="-", label=f"cc, bias {bias:g}")
        axes.plot(
            lags, quantiles(p["log10_hh"])[1], color=colour, ls=":", lw=0.9,
            label="hh" if bias == 0 else None,
        )  # fmt: skip
        rate = float(gp.gate_rates(bias).lstm) / np.log(10)
        label = "gates alone" if bias == 0 else None
        axes.plot(lags, rate * lags, color=colour, ls="-", lw=0.4, label=label)
    axes.legend(loc="lower left", fontsize=5.5)
    axes.set_title("(b) random weights and input")


def _paths(axes: Axes, points: SweepResult) -> None:
    p = points.select(kind="lstm", bias=1.0)
    lags = np.arange(1, p["log10_cc"].shape[1] + 1)
    for path, style in PATH_STYLES.items():
        band(
            axes, lags, p[f"log10_{path}"], color=BIAS_COLOURS[1.0], ls=style, lw=1.0,
            alpha=0.1, label=f"LSTM, bias 1: {path}",
        )  # fmt: skip
    for kind, colour, name in (("gru", "#D55E00", "GRU"), ("vanilla", "0.0", "tanh")):
        q = points.select(kind=kind)
        band(axes, lags, q["log10_hh"], color=colour, ls="-", lw=1.0, label=name)
    axes.legend(loc="lower left", fontsize=5.5)
    axes.set_title("(c) the four paths, and other cells")


def _depth(axes: Axes, points: SweepResult) -> None:
    depths = np.unique(points["depth"])
    for kind, (colour, marker, name) in DEPTH_STYLES.items():
        for shift, field, full, label in (
            (-0.12, "rate_stack", True, "stack"),
            (0.0, "rate_slowest", False, "slowest layer"),
            (0.12, "rate_wide", None, "one wide layer"),
        ):
            rows = [points.select(kind=kind, depth=d)[field] for d in depths]
            low, middle, high = quantiles(np.stack(rows, axis=1))
            axes.errorbar(
                depths + shift, middle, [middle - low, high - middle], color=colour,
                marker="x" if full is None else marker, mfc=colour if full else "none", ls="",
                ms=4, elinewidth=0.7, label=f"{name}: {label}",
            )  # fmt: skip
    axes.set_xticks(depths)
    axes.set_xlabel("layers (wide layer: as many units)")
    axes.set_ylabel("rate over the late lags [nats/step]")
    axes.set_ylim(top=0.35)
    axes.set_yticks([-0.6, -0.4, -0.2, 0.0])
    axes.legend(loc="upper left", fontsize=5, ncols=2, columnspacing=0.8).set_in_layout(False)
    axes.set_title("(d) depth (LSTM: bias 1)")
