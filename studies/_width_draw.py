"""Figure of width_and_rate, from its stored data alone."""

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
STYLES = (("#D55E00", "-", "o"), ("#E69F00", "--", "s"), ("#0072B2", "-.", "^"))


def draw(data: Data, width: float) -> Figure:
    """Both grids whole; fixed-budget losses against the rate; curves at each width's best rate."""
    from matplotlib.figure import Figure

    points = data["grid"]
    figure = Figure(figsize=(width, 0.85 * width))
    panels: Any = figure.subplots(2, 2)
    budget = fixed_budget(points)
    _grid(panels[0, 0], points, "test_early", "(a) early stopping: test loss, updates")
    _grid(panels[0, 1], points, "test_fixed", f"(b) {budget} updates each: test loss")
    _rates(panels[1, 0], points)
    _curves(panels[1, 1], points)
    return figure


def fixed_budget(points: SweepResult) -> int:
    """Updates after which the fixed-budget losses were taken."""
    return int(points["budget"][0])


def axes_of(points: SweepResult) -> tuple[Array, Array]:
    """Widths and rates, ascending."""
    return np.unique(points["n"]), np.unique(points["rate"])


def best_rate(points: SweepResult, n: int, field: str) -> float:
    """Rate with the least median of a loss over seeds, for one width."""
    _, rates = axes_of(points)
    return float(min(rates, key=lambda r: np.median(points.select(n=n, rate=r)[field])))


def _grid(axes: Axes, points: SweepResult, field: str, title: str) -> None:
    widths, rates = axes_of(points)
    cells = [[points.select(n=n, rate=rate) for rate in rates] for n in widths]
    middle = np.array([[np.median(cell[field]) for cell in row] for row in cells])
    both = [np.median(points.select(n=n, rate=r)[f]) for f in ("test_early", "test_fixed")
            for n in widths for r in rates]  # fmt: skip
    axes.imshow(middle, cmap="Blues", vmin=min(both), vmax=3 * max(both) - 2 * min(both),
                aspect="auto", origin="lower")  # fmt: skip
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            axes.text(j, i, _text(cell, field), ha="center", va="center", fontsize=4.5)
    axes.set_xticks(range(len(rates)), [f"{r:g}" for r in rates])
    axes.set_yticks(range(len(widths)), [str(n) for n in widths])
    axes.set_xlabel("learning rate")
    axes.set_ylabel("units")
    axes.set_title(title)


def _text(cell: SweepResult, field: str) -> str:
    loss = cell[field]
    lines = [f"{np.median(loss):.2f}", f"{loss.min():.2f}–{loss.max():.2f}"]
    if field == "test_early":
        few, many = cell["updates"].min(), cell["updates"].max()
        lines.append(f"{few}–{many}" if few < many else f"{few}")
        unstopped = int((~cell["stopped"]).sum())
        lines.append(f"limit: {unstopped}" if unstopped else "")
    return "\n".join(lines)


def _rates(axes: Axes, points: SweepResult) -> None:
    widths, rates = axes_of(points)
    for n, (colour, style, marker) in zip(widths, STYLES, strict=True):
        for field, solid in (("test_fixed", True), ("training_fixed", False)):
            groups = [points.select(n=n, rate=r)[field] for r in rates]
            low, middle, high = quantiles(np.array(groups).T)
            axes.errorbar(
                rates, middle, [middle - low, high - middle], color=colour, marker=marker, ms=3,
                mfc=colour if solid else "none", ls=style if solid else ":", lw=0.9,
                elinewidth=0.6, label=f"{n} units" if solid else None,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss [nats a character]")
    axes.set_title(f"(c) {fixed_budget(points)} updates; hollow: on training text")
    axes.legend(loc="upper center")


def _curves(axes: Axes, points: SweepResult) -> None:
    widths, _ = axes_of(points)
    every = int(points["every_update"][0])
    for n, (colour, style, _) in zip(widths, STYLES, strict=True):
        rate = best_rate(points, int(n), "test_fixed")
        rows = points.select(n=n, rate=rate)["validation"]
        shown = np.isfinite(rows).all(axis=0)
        x = every * np.arange(1, rows.shape[1] + 1)
        band(axes, x[shown], rows[:, shown], color=colour, ls=style, label=f"{n}, rate {rate:g}")
    axes.axvline(fixed_budget(points), color="0.6", lw=0.5)
    axes.set_xlabel("updates")
    axes.set_ylabel("validation loss [nats]")
    axes.set_title("(d) best rate of each width")
    axes.legend(loc="upper right", title="units")
