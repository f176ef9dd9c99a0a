"""Figure of stated_vs_true_error, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import _product_families
import _stated_measure
import numpy as np
from numpy.typing import NDArray

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
LIMITS = (1e-15, 1e-2)
FLOOR = 1e-18
BLUE, ORANGE, GREY, RED = "#0072B2", "#D55E00", "0.55", "#CC3311"
METHOD_STYLES = (("s", "0.45"), ("D", "#E69F00"), ("^", "#009E73"), ("o", "#0072B2"))


def draw(data: Data, width: float) -> Figure:
    """Draw ten panels of stated against true errors, their ratios, and accuracy against work."""
    from matplotlib.figure import Figure

    products, methods = data["products"], data["methods"]
    figure = Figure(figsize=(width, 1.05 * width))
    rows = figure.add_gridspec(2, 1, height_ratios=(1.75, 1.0))
    panels: Any = rows[0].subgridspec(2, 5).subplots(sharex=True, sharey=True)
    below: Any = rows[1].subgridspec(1, 2).subplots()
    for axes, family in zip(panels.ravel(), _product_families.FAMILIES, strict=True):
        _scatter(axes, products.select(family=family), family)
    panels[0, 0].set_ylim(FLOOR, LIMITS[1])
    for axes in panels[:, 0]:
        axes.set_ylabel("true error [nats]")
    panels[1, 2].set_xlabel("stated error [nats]   (nan: float64 alone → in the end)")
    panels[0, 0].set_title("(a) gaussian")
    _legend(figure, panels[0, 0])
    _ratios(below[0], products)
    _work(below[1], methods)
    return figure


def _scatter(axes: Axes, part: SweepResult, family: str) -> None:
    escalated = np.broadcast_to(part["escalated"][..., None], part["error"].shape)
    groups = (
        ("error_alone", "true_alone", escalated, GREY, "x", 1.6),
        ("error", "true_error", ~escalated, BLUE, ".", 1.4),
        ("error", "true_error", escalated, ORANGE, ".", 1.4),
    )
    for stated, true, mask, colour, marker, size in groups:
        x, y = part[stated][mask], part[true][mask]
        # exact zeros have no place on logarithmic axes; they are counted in the panel
        shown = (x > 0) & np.isfinite(x) & np.isfinite(y)
        axes.plot(
            x[shown], np.maximum(y[shown], 1.5 * FLOOR), ls="", marker=marker, ms=size,
            mew=0.4, color=colour, rasterized=True,
        )  # fmt: skip
    axes.fill_between(LIMITS, LIMITS, LIMITS[1], color=RED, alpha=0.08, lw=0)
    axes.plot(LIMITS, LIMITS, "-", color=RED, lw=0.7)
    tol = _stated_measure.TOLERANCE
    axes.plot([tol, tol], [FLOOR, tol], color="0.4", lw=0.6, ls=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*LIMITS)
    axes.set_xticks([1e-14, 1e-8, 1e-2])
    axes.set_yticks([1e-18, 1e-13, 1e-8, 1e-3])
    axes.minorticks_off()
    axes.set_title(family)
    axes.text(
        0.04, 0.97, _counts(part), transform=axes.transAxes, fontsize=4.8, va="top", color="0.2"
    )


def _counts(part: SweepResult) -> str:
    n_values = int(part["n_values"].sum())
    zeros = int(((part["error"] == 0) & (part["true_error"] == 0)).sum())
    open_alone, unresolved = int(part["n_open_alone"].sum()), int(part["n_unresolved"].sum())
    lines = [f"{n_values} values", f"nan: {open_alone} → {unresolved}"]
    return "\n".join([*lines, f"zeros: {zeros}"] if zeros else lines)


def _legend(figure: Figure, axes: Axes) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], ls="", marker="o", ms=3, color=BLUE, label="float64"),
        Line2D([], [], ls="", marker="o", ms=3, color=ORANGE, label="escalated"),
        Line2D([], [], ls="", marker="x", ms=3, color=GREY, label="the same, float64 alone"),
        Line2D([], [], color=RED, lw=0.8, label="true = stated"),
        Line2D([], [], color="0.4", lw=0.6, ls=":", label="tol: above it nan"),
    ]
    figure.legend(handles=entries, loc="outside upper center", ncols=5, fontsize=6)


def _ratios(axes: Axes, products: SweepResult) -> None:
    edges = np.linspace(-7, 1, 65)
    hard = np.isin(products["family"], _product_families.HARD)
    for mask, colour, style, label in (
        (~hard, BLUE, "-", "six harmless families"),
        (hard, ORANGE, "--", "four hard families"),
    ):
        ratio = _stated_measure.ratios(products["error"][mask], products["true_error"][mask])
        ratio = ratio[ratio > 0]
        counts, _ = np.histogram(np.log10(np.maximum(ratio, 10.0 ** edges[0])), edges)
        axes.stairs(counts, 10.0**edges, color=colour, ls=style, lw=1.0, label=label)
        axes.axvline(ratio.max(), color=colour, lw=0.6, ls=style)
    axes.axvline(1.0, color=RED, lw=0.8)
    axes.axvspan(1.0, 10.0, color=RED, alpha=0.08, lw=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1e-6, 10)
    axes.set_ylim(top=12 * axes.get_ylim()[1])
    axes.set_xlabel("true / stated error")
    axes.set_ylabel("values")
    axes.set_title("(b) how much the statement spares")
    axes.legend(loc="upper left", fontsize=5.5).set_in_layout(False)


def _work(axes: Axes, methods: SweepResult) -> None:
    sizes = np.unique(methods["n"])
    for i, (name, (marker, colour)) in enumerate(
        zip(_stated_measure.METHODS, METHOD_STYLES, strict=True)
    ):
        at = [methods.select(n=n) for n in sizes]
        flops = np.array([p["flops"][0, i] for p in at])
        errors = np.array([np.quantile(p["largest_error"][:, i], (0, 0.5, 1)) for p in at]).T
        hollow = i == 0
        axes.errorbar(
            flops, errors[1], [errors[1] - errors[0], errors[2] - errors[1]], color=colour,
            marker=marker, ms=5 if hollow else 3, mfc="none" if hollow else colour, lw=0.7,
            elinewidth=0.6, label=name,
        )  # fmt: skip
    stated = [np.median(methods.select(n=n)["stated"]) for n in sizes]
    ours = [methods.select(n=n)["flops"][0, -1] for n in sizes]
    axes.plot(ours, stated, ":", color=METHOD_STYLES[-1][1], lw=0.9, label="its stated error")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("work [flops]")
    axes.set_ylabel(r"largest error of $\ln\sigma_i$ [nats]")
    axes.set_title(f"(c) tanh, n = {', '.join(map(str, sizes))}; {int(methods['steps'][0])} steps")
    axes.legend(loc="center right", fontsize=5.5).set_in_layout(False)
