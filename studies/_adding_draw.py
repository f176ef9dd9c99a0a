"""Figure of adding_task, from its stored data alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import _adding_predict
import numpy as np
from _seeds import quantiles
from _tasks import CONSTANT_GUESS
from _training import Array

from gradprop._drawing import draw_curve
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "vanilla": "#0072B2",
    "orthogonal": "#E69F00",
    "identity": "#009E73",
    "diagonal": "#CC79A7",
    "lstm": "#D55E00",
    "gru": "0.2",
}
MARKERS = dict(zip(COLOURS, "osD^vP", strict=True))
LABELS = {"lstm": "LSTM", "gru": "GRU"}
BARS = {
    "horizon": "horizon",
    "horizon_readout": "horizon of\nthe readout",
    "radius": r"$\rho(W)$",
    "norm": r"$\|W\|_2$",
}
SHADES = {"all": "#0072B2", "without gates": "#E69F00", "without gates, full W": "#009E73"}
TOP = float(np.log10(0.4))


def draw(data: Data, width: float) -> Figure:
    """Draw errors by length, learned length against three predictors, and the correlations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.92 * width))
    rows = figure.add_gridspec(2, 1)
    top: Any = rows[0].subgridspec(1, 2).subplots()
    low: Any = rows[1].subgridspec(1, 2).subplots()
    table = _adding_predict.configurations(data)
    lengths = data["cells"]["lengths"][0]
    _errors(top[0], data["cells"], lengths)
    _against(top[1], table, "horizon", lengths)
    _against(low[0], table, "radius", lengths)
    _bars(low[1], table)
    return figure


def _errors(axes: Axes, cells: SweepResult, lengths: Array) -> None:
    """Test error against length: medians and 5-95 % of seeds, set apart; inf on the upper edge."""
    for i, (kind, colour) in enumerate(COLOURS.items()):
        low, middle, high = np.log10(quantiles(cells.select(name=kind)["error"]))
        x = lengths * 1.035 ** (i - 2.5)
        draw_curve(
            axes, x, middle, color=colour, marker=MARKERS[kind], ms=3, lw=0.9,
            label=LABELS.get(kind, kind),
        )  # fmt: skip
        axes.vlines(x, low, np.minimum(high, TOP), color=colour, lw=0.8)
    for value, text in ((CONSTANT_GUESS, "1/6"), (CONSTANT_GUESS / 2, "1/12"), (0.01, "solved")):
        axes.axhline(np.log10(value), color="0.5", lw=0.6, ls=":", zorder=0)
        axes.annotate(
            text, (1.01, np.log10(value)), xycoords=("axes fraction", "data"),
            ha="left", va="center", fontsize=6,
        )  # fmt: skip
    _length_axis(axes, lengths, "x")
    axes.set_yticks([-3, -2, -1], ["0.001", "0.01", "0.1"])
    axes.set_ylim(-3, TOP)
    axes.set_xlabel("length T [steps]")
    axes.set_ylabel("test error (mean square)")
    axes.set_title(f"(a) six cells, {len(np.unique(cells['seed']))} seeds")
    axes.legend(fontsize=5.5, loc="lower center", ncols=3, columnspacing=0.8, handlelength=1.8)


def _against(axes: Axes, table: Mapping[str, Array], predictor: str, lengths: Array) -> None:
    """Longest learned length against a predictor; bars span the seeds."""
    for kind, colour in COLOURS.items():
        part = _adding_predict.subset(table, table["kind"] == kind)
        middle = part["learned"]
        spread = np.abs([middle - part["learned_low"], part["learned_high"] - middle])
        axes.errorbar(
            part[predictor], middle, spread, color=colour, marker=MARKERS[kind], ms=3.4, ls="",
            mew=0, alpha=0.85, elinewidth=0.6, label=LABELS.get(kind, kind),
        )  # fmt: skip
    _length_axis(axes, lengths, "y")
    value, low, high = _adding_predict.correlations(table)[predictor]
    axes.set_ylabel("longest learned length")
    title = {"horizon": "(b) horizon", "radius": r"(c) $\rho(W_{hh})$"}[predictor]
    axes.set_title(f"{title}: {value:.2f} [{low:.2f}, {high:.2f}]")
    if predictor == "horizon":
        axes.set_xscale("symlog", linthresh=1)
        longest = lengths[-1]
        axes.plot([2, longest], [2, longest], color="0.6", lw=0.6, ls="--", zorder=0)
        axes.set_xticks(
            [2, 5, 10, 20, 50, 100, longest], ["2", "5", "10", "20", "50", "100", "≥ T"]
        )
        axes.minorticks_off()
        axes.set_xlim(1.8, 1.25 * longest)
        axes.set_xlabel("horizon, untrained [steps]")
    else:
        axes.set_xlabel(r"$\rho(W_{hh})$ (gated: of the candidate)")


def _length_axis(axes: Axes, lengths: Array, which: str) -> None:
    """Lengths on a log axis; on y below the first one, where no length is learned."""
    if which == "x":
        axes.set_xscale("log")
        axes.set_xticks(lengths, [f"{t}" for t in lengths])
    else:
        axes.set_yscale("log")
        ticks = [lengths[0] / 2, *lengths]
        axes.set_yticks(ticks, [f"< {lengths[0]}", *(f"{t}" for t in lengths[:-1]), "all"])
        axes.set_ylim(0.85 * ticks[0], 1.18 * ticks[-1])
    axes.minorticks_off()


def _bars(axes: Axes, table: Mapping[str, Array]) -> None:
    """Correlations of the predictors in all configurations and in the groups."""
    parts = _adding_predict.groups(table)
    width = 0.8 / len(parts)
    for k, (name, part) in enumerate(parts.items()):
        found = _adding_predict.correlations(part)
        value, low, high = np.array([found[key] for key in BARS]).T
        x = np.arange(len(BARS)) + (k - (len(parts) - 1) / 2) * width
        axes.bar(x, value, width, color=SHADES[name], label=f"{name} ({len(part['name'])})")
        axes.errorbar(x, value, [value - low, high - value], color="0.15", ls="", elinewidth=0.7)
    axes.axhline(0.0, color="0.3", lw=0.6)
    axes.set_xticks(range(len(BARS)), list(BARS.values()), fontsize=6.5)
    axes.set_ylim(-1.0, 1.75)
    axes.set_yticks([-1, -0.5, 0, 0.5, 1])
    axes.set_ylabel("rank correlation, 95 % interval")
    axes.set_title("(d) which number foretells it")
    axes.legend(fontsize=5.5, loc="upper left")
