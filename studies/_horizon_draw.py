"""Figure of horizon_during_training, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from _seeds import band
from _tasks import CONSTANT_GUESS

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {
    "vanilla": ("#0072B2", "o", "tanh, torch default"),
    "orthogonal": ("#E69F00", "s", "tanh, orthogonal"),
    "lstm": ("#009E73", "D", "LSTM"),
    "gru": ("#CC79A7", "v", "GRU"),
}


def draw(data: Data, width: float) -> Figure:
    """Loss, exponent, horizon and gradient norm by update."""
    from matplotlib.figure import Figure

    points = data["training"]
    figure = Figure(figsize=(width, 0.8 * width))
    panels: Any = figure.subplots(2, 2, sharex=True)
    _losses(panels[0, 0], points)
    _exponents(panels[0, 1], points)
    _horizons(panels[1, 0], points)
    _norms(panels[1, 1], points)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=6)
    for axes in panels[1]:
        axes.set_xlabel("update")
    return figure


def _losses(axes: Axes, points: SweepResult) -> None:
    for kind, (colour, marker, label) in STYLES.items():
        p = points.select(kind=kind)
        band(
            axes, p["checkpoints"][0], p["held_out"], color=colour, marker=marker, ls="-",
            ms=2.5, lw=0.9, label=label,
        )  # fmt: skip
    axes.axhline(CONSTANT_GUESS, color="0.5", lw=0.6, ls=":", label="constant guess")
    axes.set_yscale("log")
    axes.set_yticks([1, 0.1, 0.01, 0.001, 0.0001])
    axes.minorticks_off()
    axes.set_ylabel("held-out squared error")
    axes.set_title("(a) loss")


def _exponents(axes: Axes, points: SweepResult) -> None:
    for kind, (colour, marker, _) in STYLES.items():
        p = points.select(kind=kind)
        for at, middle, low, high in zip(
            *(p[k] for k in ("checkpoints", "lambda_1", "low", "high")), strict=True
        ):
            bars = [middle - low, high - middle]
            axes.errorbar(
                at, middle, bars, color=colour, marker=marker, ms=1.8, lw=0.6, elinewidth=0.6,
                ls="-",
            )  # fmt: skip
    axes.axhline(0, color="0.5", lw=0.6, ls="-")
    axes.set_ylabel(r"$\lambda_1$ [nats/step]")
    axes.set_title("(b) exponent, each network")


def _horizons(axes: Axes, points: SweepResult) -> None:
    length = int(points["length"][0])
    for kind, (colour, marker, _) in STYLES.items():
        p = points.select(kind=kind)
        # beyond the sequence nothing can be seen: drawn on a line of its own above it
        rows = np.where(np.isposinf(p["horizon"][:, :, 1]), 1.1 * length, p["horizon"][:, :, 1])
        band(
            axes, p["checkpoints"][0], rows, color=colour, marker=marker, ls="-", ms=2.5, lw=0.9
        )  # fmt: skip
    axes.axhline(length, color="0.5", lw=0.6, ls="-")
    axes.set_ylim(0, 1.25 * length)
    axes.set_yticks([0, length // 3, 2 * length // 3, 1.1 * length])
    axes.set_yticklabels(["0", str(length // 3), str(2 * length // 3), f"> {length}"])
    axes.set_ylabel("horizon [steps]")
    axes.set_title(r"(c) horizon at $N^{-1/2}$")


def _norms(axes: Axes, points: SweepResult) -> None:
    for kind, (colour, marker, _) in STYLES.items():
        p = points.select(kind=kind)
        at = p["checkpoints"][0]
        low, middle, high = (np.median(p["norm_quantiles"][:, :, k], axis=0) for k in range(3))
        axes.plot(at, middle, color=colour, marker=marker, ls="-", ms=2.5, lw=0.9)
        axes.fill_between(at, low, high, color=colour, alpha=0.18, lw=0)
    axes.axhline(1, color="0.5", lw=0.6, ls=":")
    axes.set_yscale("log")
    axes.set_ylabel("global norm")
    axes.set_title("(d) gradient, 5–50–95 %")
