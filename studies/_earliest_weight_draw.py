"""Figure of earliest_weight, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import _earliest_weight
import numpy as np
from _seeds import band

import gradprop as gp
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAIN = {
    "vanilla": ("#0072B2", "o", "tanh, torch default"),
    "orthogonal": ("#E69F00", "s", "tanh, orthogonal"),
    "identity": ("#009E73", "D", "relu, identity"),
    "diagonal": ("#D55E00", "^", "relu, diagonal U(0, 1)"),
}
GATED = {
    "lstm_0": ("#56B4E9", "P", "LSTM, forget bias 0"),
    "lstm_1": ("#000000", "X", "LSTM, 1"),
    "lstm_3": ("#7F7F7F", "h", "LSTM, 3"),
    "gru": ("#CC79A7", "v", "GRU"),
}
FLOORS = ((2.0**-23, "float32 eps"), (2.0**-149, "float32: 0 below"))


def draw(data: Data, width: float) -> Figure:
    """Norms by T of plain and of gated cells, and how far below the bound."""
    from matplotlib.figure import Figure

    points = data["first"]
    figure = Figure(figsize=(width, 0.6 * width))
    panels: Any = figure.subplots(1, 3)
    _norms(panels[0], points, PLAIN)
    _norms(panels[1], points, GATED)
    panels[0].set_title("(a) plain; thin: bound")
    panels[1].set_title("(b) gated; thin: gates")
    panels[0].set_ylabel(r"$\log_{10}\,\|\delta_1 x_1^\top\|\,/\,(\|g\|\,\|x_1\|)$")
    for axes in panels[:2]:
        axes.set_ylim(-140, 45)
    _distance(panels[2], points)
    for axes in panels:
        axes.set_xlabel("T [steps]")
    _legend(figure, panels[0], panels[1])
    return figure


def _legend(figure: Figure, *panels: Axes) -> None:
    """One row a panel; of the marks on the edge one, said in words."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    named = {t: h for handles, labels in found for h, t in zip(handles, labels, strict=True)}
    zero = named.pop("below floor", None)
    if zero is not None:
        named["median exactly 0"] = zero
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=3, fontsize=6
    )


def _norms(axes: Axes, points: SweepResult, styles: dict[str, tuple[str, str, str]]) -> None:
    for name, (colour, marker, label) in styles.items():
        p = points.select(network=name)
        T = p["lengths"][0]
        rows = np.moveaxis(p["log_norm"], 1, 2).reshape(-1, len(T)) / np.log(10)
        band(axes, T, rows, color=colour, marker=marker, ls="-", lw=0.9, ms=2.5, label=label)
        _, bias = _earliest_weight.NETWORKS[name]
        theory = np.median(p["bound"], axis=0) / np.log(10)
        if name.startswith("lstm"):
            theory = (T - 1) * float(gp.gate_rates(bias).lstm) / np.log(10)
        elif name == "gru":
            theory = (T - 1) * float(gp.gate_rates(0.0, 0.0).gru) / np.log(10)
        axes.plot(T, theory, color=colour, ls="--", lw=0.6)
    for level, text in FLOORS:
        axes.axhline(np.log10(level), color="0.5", lw=0.5, ls="-")
        if styles is PLAIN:
            axes.text(T[-1], np.log10(level) - 1, text, fontsize=5, va="top", ha="right")


def _distance(axes: Axes, points: SweepResult) -> None:
    for name, (colour, marker, _) in PLAIN.items():
        p = points.select(network=name)
        T = p["lengths"][0]
        gap = (p["bound"][..., None] - p["log_norm"]) / T[:, None]
        rows = np.moveaxis(gap, 1, 2).reshape(-1, len(T))
        band(axes, T, rows, color=colour, marker=marker, ls="-", lw=0.9, ms=2.5)
    axes.axhline(0, color="0.5", lw=0.6, ls="-")
    axes.text(4, 0.79, "▲: norm exactly 0", fontsize=5, color="0.35")
    axes.set_ylim(-0.03, 0.88)
    axes.set_xscale("log", base=2)
    axes.set_xticks([4, 16, 64, 256], ["4", "16", "64", "256"])
    axes.minorticks_off()
    axes.set_title("(c) below the bound")
    axes.set_ylabel("ln(bound / norm) / T [nats/step]")
