"""Drawing of trained_networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"RNN": "#000000", "LSTM": "#0072B2", "GRU": "#D55E00"}
LETTERS = {"RNN": "W", "LSTM": "ifgo", "GRU": "rzn"}


def draw(data: Data, width: float) -> Figure:
    """Decay on top; below, row by row, exponents beside radii, and horizons."""
    from matplotlib.figure import Figure

    points = data["layers"]
    rows = len(points["layer"])
    figure = Figure(figsize=(width, 2.3 + 0.27 * rows))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.8, 0.27 * rows), width_ratios=(1.5, 1))
    _decay(figure.add_subplot(grid[0, :]), points)
    left = figure.add_subplot(grid[1, 0])
    _radii(left, points)
    _horizons(figure.add_subplot(grid[1, 1], sharey=left), points)
    return figure


def _decay(ax: Axes, points: SweepResult) -> None:
    for i, kind in enumerate(points["kind"]):
        curve = points["log10_norm"][i]
        style = "-" if points["trained"][i] else "--"
        ax.plot(np.arange(len(curve)), curve, ls=style, lw=0.9, color=COLOURS[str(kind)])
    ax.set_xlim(0, 300)
    ax.set_ylim(-40, 4)
    ax.set_xlabel(r"lag $\ell$ back from the end [steps]")
    ax.set_ylabel(r"$\log_{10} \|P_\ell\|_2$")
    ax.set_title("(a) decay; dashed: not trained")
    shown = [kind for kind in COLOURS if kind in points["kind"]]
    handles: list[Any] = [ax.plot([], [], color=COLOURS[k], ls="-")[0] for k in shown]
    ax.legend(handles, shown, loc="lower left").set_in_layout(False)


def _radii(ax: Axes, points: SweepResult) -> None:
    """A letter per block at ln rho, a diamond at lambda_1; letters in a row stand on steps."""
    names = [str(name) for name in points["layer"]]
    ax.axvline(0, color="0.7", lw=0.6)
    for row, kind in enumerate(map(str, points["kind"])):
        colour = COLOURS[kind]
        height = np.linspace(-0.3, 0.3, len(LETTERS[kind])) if len(LETTERS[kind]) > 1 else [0.0]
        for value, letter, up in zip(points["log_radii"][row], LETTERS[kind], height, strict=False):
            ax.text(value, row + up, letter, color=colour, fontsize=5.5, ha="center", va="center")
        value = points["exponents"][row][0]
        low, high = points["interval"][row]
        ax.plot([low, high], [row, row], color="k", lw=1.0, ls="-")
        ax.plot(value, row, "D", color="k", ms=3, mfc="w", mew=0.8)
    ax.set_yticks(range(len(names)), [name.replace("rtneural_", "") for name in names], fontsize=5)
    ax.set_ylim(len(names) - 0.4, -0.6)
    finite = points["log_radii"][np.isfinite(points["log_radii"])]
    ax.set_xlim(right=1.08 * max(float(finite.max()), 0.5))
    ax.set_xlabel(r"ln $\rho$ (letters), $\lambda_1$ (diamonds) [nats/step]")
    ax.set_title(r"(b) $\rho(W_{hh})$ beside $\lambda_1$")


def _horizons(ax: Axes, points: SweepResult) -> None:
    for row, kind in enumerate(map(str, points["kind"])):
        colour, steps = COLOURS[kind], float(points["n_steps"][row])
        known = np.minimum(points["horizons"][row], steps)
        low, middle, high = np.quantile(known, (0.05, 0.5, 0.95), method="nearest")
        ax.plot([low, high], [row, row], color=colour, lw=1.0, ls="-")
        reached = np.isfinite(np.median(points["horizons"][row]))
        ax.plot(middle, row, "o" if reached else ">", color=colour, ms=3.5)
        worst = float(points["horizon_worst"][row])
        inside = np.isfinite(worst)
        ax.plot(worst if inside else steps, row, "|" if inside else ">", color=colour, ms=6)
    ax.set_xscale("log")
    ax.set_xlabel(r"first lag below $2^{-23}$ [steps]")
    ax.tick_params(labelleft=False)
    ax.set_title(r"(c) horizon; $\triangleright$: beyond input")
