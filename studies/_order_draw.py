"""Figure of order_task, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import _order
import numpy as np
from _seeds import band, quantiles

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {
    "bag of words": ("0.45", "-"),
    "counts and ramps": ("#CC79A7", ":"),
    "every position": ("#E69F00", "--"),
    "RNN": ("#0072B2", "-"),
    "GRU": ("#009E73", "-."),
}
TASK_STYLES = (("#0072B2", "-"), ("#D55E00", "--"))


def draw(data: Data, width: float) -> Figure:
    """Accuracy over passes for two tasks; sample size and weights of the positional model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.72 * width))
    panels: Any = figure.subplots(2, 2)
    models, sizes = data["models"], data["sizes"]
    for axes, letter, each in zip(panels[0], "ab", np.unique(models["each"]), strict=True):
        _passes(axes, models.select(each=each))
        axes.set_title(f"({letter}) {_task(each)}")
    panels[0, 0].set_ylabel("accuracy on the test set")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=6)
    _samples(panels[1, 0], sizes)
    _weights(panels[1, 1], sizes)
    return figure


def _task(each: int) -> str:
    return "one of each symbol" if each == 1 else f"{each} of each symbol"


def _chance(axes: Axes) -> None:
    axes.axhline(0.5, color="0.6", lw=0.5)
    axes.set_ylim(0.42, 1.03)


def _passes(axes: Axes, points: SweepResult) -> None:
    _chance(axes)
    for name in _order.MODELS:
        rows = points.select(model=name)["accuracy"]
        colour, style = STYLES[name]
        x = np.arange(1, rows.shape[1] + 1)
        band(axes, x, rows, color=colour, ls=style, label=name, marker="o", ms=2)
    axes.set_xlabel("passes over the data (linear: iterations)")


def _samples(axes: Axes, sizes: SweepResult) -> None:
    _chance(axes)
    numbers = np.unique(sizes["n_train"])
    for each, (colour, style) in zip(np.unique(sizes["each"]), TASK_STYLES, strict=True):
        rows = np.array([sizes.select(each=each, n_train=n)["accuracy"] for n in numbers]).T
        band(axes, numbers, rows, color=colour, ls=style, label=_task(each), marker="o", ms=2)
    axes.set_xscale("log")
    axes.set_xlabel("training sequences")
    axes.set_ylabel("accuracy on the test set")
    axes.set_title("(c) every position, converged")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.22))


def _weights(axes: Axes, sizes: SweepResult) -> None:
    most = sizes.select(n_train=int(sizes["n_train"].max()))
    for each, (colour, style) in zip(np.unique(sizes["each"]), TASK_STYLES, strict=True):
        weights = most.select(each=each)["weights"]
        antisymmetric = (weights[:, 0] - weights[:, 1]) / 2
        x = np.arange(1, weights.shape[-1] + 1)
        low, middle, high = quantiles(antisymmetric)
        axes.plot(x, middle, color=colour, ls=style, label=_task(each))
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
    axes.axhline(0, color="0.6", lw=0.5)
    axes.set_xlabel("position")
    axes.set_ylabel(r"weight, $(w_{t,0} - w_{t,1})/2$")
    axes.set_title(f"(d) its weights, {int(sizes['n_train'].max())} sequences")
    axes.legend(loc="upper right")
