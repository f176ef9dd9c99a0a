"""A diagnosis as one page: six panels, and the HTML file around them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradprop._drawing import draw, draw_band, draw_curve
from gradprop.blocks import Float
from gradprop.diagnosis.advice import advice
from gradprop.diagnosis.result import Diagnosis
from gradprop.diagnosis.table import limit_name, rows, steps
from gradprop.diagnosis.words import sections
from gradprop.figures import style
from gradprop.report import Section, write_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT: dict[str, Any] = {"color": "0.45", "lw": 0.7, "ls": ":"}


def page(d: Diagnosis) -> Figure:
    """The six panels of one direction, in a new figure."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=d.page_inches)
        _panels(d, figure.subplots(3, 2).ravel())
    return figure


@draw.register(Diagnosis)
def _draw_diagnosis(result: Diagnosis, ax: Axes) -> Axes:
    """Divide the place of `ax` among the panels; the first of them is returned."""
    place = ax.get_subplotspec()
    figure: Any = ax.figure
    if place is None:
        raise ValueError("`ax` must come from subplots, whose place can be divided.")
    ax.remove()
    grid = place.subgridspec(3, 2)
    panels = np.array([figure.add_subplot(grid[i]) for i in range(6)])
    _panels(result, panels)
    first: Axes = panels[0]
    return first


def _panels(d: Diagnosis, axes: Any) -> None:
    for letter, ax, panel in zip("abcdef", axes, PANELS, strict=True):
        title = panel(d, ax)
        ax.set_title(f"({letter}) {title}")
        if ax.get_legend() is None and ax.get_legend_handles_labels()[1]:
            ax.legend()


def _small(ax: Axes, text: str, x: float, y: float, **where: Any) -> None:
    """A small grey label to the left of a point, without any say in the layout."""
    ax.text(x, y, text, fontsize=6, color="0.3", ha="right", va="bottom", **where).set_in_layout(
        False
    )


def _legend(ax: Axes, below: bool) -> None:
    """A legend of two columns, with room made for it below or above the curves."""
    low, high = ax.get_ylim()
    room = 0.1 * (1 + (len(ax.get_legend_handles_labels()[1]) + 1) // 2) * (high - low)
    ax.set_ylim(low - room * below, high + room * (not below))
    ax.legend(loc="lower left" if below else "upper left", ncols=2, fontsize=6)


def _flat(values: Float, keep: int) -> Float:
    return values.reshape(-1, *values.shape[values.ndim - keep :])


def _decay(d: Diagnosis, ax: Axes) -> str:
    """Worst and given direction by lag, the line of lambda_1, the tolerance."""
    draw_band(ax, d.norms.lags, _flat(d.norms.log_norm, 1), "worst direction")
    relative = d.gradient.log_norm - d.gradient.log_norm[..., :1]
    draw_band(ax, d.gradient.lags, _flat(relative, 1), "loss direction")
    last = _lags_shown(d)
    if math.isfinite(d.leading[0]):
        ax.plot([0, last], [0, d.leading[0] * last], "k:", lw=0.8, label=r"$\lambda_1 \ell$")
    ax.set_xlim(-0.02 * last, 1.02 * last)
    _fit_heights(ax, last)
    level = math.log(d.tol)
    if ax.get_ylim()[0] <= level:
        ax.axhline(level, **FAINT)
        _small(ax, f"{d.tol:.2g}", 0.99, level, transform=ax.get_yaxis_transform())
    ax.set_xlabel(r"lag $\ell$ back from the loss [steps]")
    ax.set_ylabel("ln of the relative norm [nats]")
    _legend(ax, below=d.leading[0] < 0 and d.budget.binds != "")
    return "gradient by lag"


def _lags_shown(d: Diagnosis) -> int:
    """Lags up to a little beyond the last limit: what comes later is smaller still."""
    known = [v for v in d.budget.steps if math.isfinite(v)]
    return int(min(d.gradient.lags[-1], 1.5 * max([*known, 20.0]))) if known else int(d.n_steps)


def _fit_heights(ax: Axes, last: float) -> None:
    """Limits of the vertical axis from what is drawn at lags up to `last`."""
    shown = [np.asarray(y)[np.asarray(x) <= last] for x, y in (li.get_data() for li in ax.lines)]
    heights = np.concatenate(shown) if shown else np.zeros(1)
    heights = heights[np.isfinite(heights)]
    if heights.size:
        low, high = float(heights.min()), float(heights.max())
        margin = 0.06 * max(high - low, 1.0)
        ax.set_ylim(low - margin, high + margin)


def _budget(d: Diagnosis, ax: Axes) -> str:
    """A bar per limit, the binding one in colour."""
    names = [limit_name(d, str(name)) for name in d.budget.limits]
    known = [v for v in d.budget.steps if math.isfinite(v)]
    longest = max([*known, float(d.n_steps)])
    place = range(len(names))
    for i, (name, value) in enumerate(zip(d.budget.limits, d.budget.steps, strict=True)):
        end = float(value) if math.isfinite(value) else 1.0
        ax.barh(i, end - 1.0, left=1.0, color=_bar_colour(d, str(name)), height=0.6)
        text = steps(float(value)) + (" (extrapolated)" if d.budget.extrapolated[i] else "")
        inside = math.log(max(end, 1.0)) > 0.6 * math.log(longest)
        ax.annotate(
            text, (max(end, 1.0), i), xytext=(-3 if inside else 3, 0), textcoords="offset points",
            va="center", ha="right" if inside else "left", fontsize=7,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yticks(place, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(1, 1.5 * longest)
    ax.set_xlabel("gradient lost from this lag on [steps]")
    return "what limits the reach"


def _bar_colour(d: Diagnosis, name: str) -> str:
    return "C1" if name == d.budget.binds else "0.8"


def _exponents(d: Diagnosis, ax: Axes) -> str:
    draw(d.exponents, ax)
    values = np.ravel(d.exponents.exponents)
    ax.set_xticks(range(1, d.exponents.exponents.shape[-1] + 1))
    if np.isfinite(values).any():
        ax.margins(y=0.15)
    ax.set_xlabel("index i of the exponent")
    return "Lyapunov exponents, 95 % intervals"


def _path_panel(d: Diagnosis, ax: Axes) -> str:
    """By gate path and layer; where there is one path only, the norms of single steps."""
    if not d.paths:
        known = d.steps.log_norm[np.isfinite(d.steps.log_norm)]
        ax.hist(known, bins=40, histtype="stepfilled", color="C0", alpha=0.6, label="single steps")
        ax.axvline(d.leading[0], color="k", ls=":", lw=1, label=r"$\lambda_1$ of the product")
        ax.set_xlabel(r"ln $\|J_t\|_2$ [nats per step]")
        ax.set_ylabel("steps")
        return "single steps against their product"
    curves = _flat(d.norms.path_log_norm, 2)[0]
    for i, name in enumerate(d.paths):
        draw_curve(ax, d.norms.lags[1:], curves[1:, i], label=name)
    ax.set_xlabel(r"lag $\ell$ back from the end [steps]")
    ax.set_ylabel(r"ln $\|$block of $P_\ell\|_2$ [nats]")
    _legend(ax, below=True)
    return "by layer and gate path"


def _activity_panel(d: Diagnosis, ax: Axes) -> str:
    if d.activity is None:
        ax.text(0.5, 0.5, "not known for this cell", transform=ax.transAxes, ha="center")
        return "saturation"
    names, place = [str(name) for name in d.activity.names], np.arange(len(d.activity.names))
    ax.barh(place - 0.2, d.activity.saturated, height=0.38, color="C0", label="share saturated")
    gates = np.array([name.endswith("gate") for name in names])
    if gates.any():
        ax.barh(
            place[gates] + 0.2, d.activity.mean[gates], height=0.38, color="C1", label="mean value"
        )
    ax.set_yticks(place, names)
    ax.set_ylim(1.25 * max(len(names), 3), -0.6)
    ax.set_xlim(0, 1)
    ax.legend(loc="lower right", ncols=2)
    ax.set_xlabel("share of units and steps; mean of a gate")
    return "saturation and gates"


def _clip_panel(d: Diagnosis, ax: Axes) -> str:
    c = d.clipping
    if c is None:
        ax.text(0.5, 0.5, "no gradient norms", transform=ax.transAxes, ha="center")
        return "gradient norms"
    ax.plot(c.quantiles, 100 * c.levels, "o-", color="C0")
    if c.quantiles[-1] > 30 * c.quantiles[0] > 0:
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0)
    low, high = ax.get_xlim()
    for threshold, label in zip(map(float, c.thresholds), c.labels, strict=True):
        if low < threshold < high:
            ax.axvline(threshold, **FAINT)
            where = {"transform": ax.get_xaxis_transform(), "rotation": 90}
            _small(ax, label, threshold, 0.03, **where)
    ax.set_xlabel("norm of the BPTT gradient")
    ax.set_ylabel(f"per cent below (n = {int(c.n_finite)})")
    return "gradient norms and thresholds"


PANELS = (_decay, _budget, _exponents, _path_panel, _activity_panel, _clip_panel)


def write_page(d: Diagnosis, path: str | os.PathLike[str]) -> Path:
    """The HTML file of both directions, if there are two."""
    parts: list[Section] = []
    ways = [("", d)] if d.backward is None else [("forward: ", d), ("backward: ", d.backward)]
    for prefix, way in ways:
        told = list(sections(way))
        parts += [
            Section(f"{prefix}what to do").points(list(advice(way))),
            Section(f"{prefix}at a glance").figure(page(way), f"Six panels. {way.verdict}"),
            Section(f"{prefix}findings").terms(told),
            Section(f"{prefix}numbers").table(
                ("quantity", "value", "low", "high", "unit"), [_cells(row) for row in rows(way)]
            ),
        ]
    return write_html(path, f"Diagnosis of {d.network}", d.verdict, parts)


def _cells(row: Any) -> tuple[str, ...]:
    name, *values, unit = row
    return (name, *("" if math.isnan(v) else f"{v:.5g}" for v in values), unit)
