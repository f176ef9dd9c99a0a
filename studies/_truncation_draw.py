"""Figure of truncation, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from _seeds import band, quantiles
from numpy.typing import NDArray

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
STYLES = (("#D55E00", "-"), ("#E69F00", "--"), ("#009E73", "-."), ("#0072B2", "-"))
QUALITIES = {
    "recall": ("accuracy", "test accuracy"),
    "text": ("loss", "test loss [nats]"),
}
BLOCK = 10
"""Updates over which gradient norms are averaged."""


def draw(data: Data, width: float) -> Figure:
    """Quality, gradient norms and bias of each window, on both tasks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.68 * width))
    panels: Any = figure.subplots(2, 3)
    for row, letters, task in zip(panels, ("abc", "def"), QUALITIES, strict=True):
        points = data[task]
        _quality(row[0], points, task)
        _norms(row[1], points)
        _bias(row[2], points)
        titles = (task, "norm of the gradient", "truncated gradient")
        for axes, letter, title in zip(row, letters, titles, strict=True):
            axes.set_title(f"({letter}) {title}")
    panels[1, 1].sharey(panels[0, 1])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    more = panels[0, 2].get_legend_handles_labels()
    figure.legend(
        [*handles, *more[0]], [*labels, *more[1]], loc="outside upper center", ncols=4, fontsize=6
    )
    return figure


def label(points: SweepResult, window: int) -> str:
    """Name of a window; the longest is the whole sequence."""
    return f"K = {window} (full)" if window == points["window"].max() else f"K = {window}"


def windows(points: SweepResult) -> Array:
    """Windows, ascending."""
    return np.unique(points["window"])


def _quality(axes: Axes, points: SweepResult, task: str) -> None:
    field, text = QUALITIES[task]
    n_updates = points["norm"].shape[1]
    for window, (colour, style) in zip(windows(points), STYLES, strict=True):
        rows = points.select(window=window)[field]
        x = np.linspace(n_updates / rows.shape[1], n_updates, rows.shape[1])
        band(axes, x, rows, color=colour, ls=style, label=label(points, window))
    axes.set_xlabel("updates")
    axes.set_ylabel(text)


def _norms(axes: Axes, points: SweepResult) -> None:
    for window, (colour, style) in zip(windows(points), STYLES, strict=True):
        norm = points.select(window=window)["norm"]
        n = norm.shape[1] // BLOCK
        rows = norm[:, : n * BLOCK].reshape(len(norm), n, BLOCK).mean(axis=2)
        band(axes, BLOCK * (np.arange(n) + 0.5), rows, alpha=0.12, color=colour, ls=style, lw=0.9)
    axes.set_yscale("log")
    axes.set_xlabel("updates")
    axes.set_ylabel(f"mean of {BLOCK} updates")


def _bias(axes: Axes, points: SweepResult) -> None:
    whole = points.select(window=int(points["window"].max()))
    x = windows(points)
    for i, (name, colour) in enumerate((("relative error", "#0072B2"), ("cosine", "#CC79A7"))):
        for shift, when, style, marker in ((-1, "before", "--", "o"), (1, "after", "-", "s")):
            low, middle, high = quantiles(whole[f"bias_{when}"][:, i])
            axes.errorbar(
                x * 1.02**shift, middle, [middle - low, high - middle], color=colour, ls=style,
                marker=marker, ms=2.5, lw=0.9, elinewidth=0.6, label=f"{name}, {when} training",
            )  # fmt: skip
    axes.axhline(0, color="0.6", lw=0.5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(x, [str(w) for w in x])
    axes.minorticks_off()
    axes.set_xlabel("window K")
    axes.set_ylabel("against the full one")
