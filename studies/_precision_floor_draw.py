"""Figure of precision_floor, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from _precision_floor import LIMITS
from _seeds import band
from numpy.typing import NDArray

from gradprop._drawing import draw_curve
from gradprop.precision.formats import format_of
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
FORMAT_STYLES = {
    "float32": ("#0072B2", "-"),
    "float16": ("#009E73", "--"),
    "bfloat16": ("#D55E00", "-."),
    "float8_e4m3": ("#CC79A7", ":"),
}
EVENT_MARKERS = {"n_eps": ("o", "below eps"), "n_zero": ("s", "zero")}
LIMIT_STYLES = {
    "statistical": ("#0072B2", "o", r"statistics, $N^{-1/2}$, $N=10^4$"),
    "ceiling": ("#009E73", "D", "largest stored decay"),
    "absorption": ("#D55E00", "s", "absorption in the sum"),
    "underflow": ("0.25", "^", "underflow"),
}
NETWORK_NAMES = {
    "random": "random tanh", "orthogonal": "orthogonal tanh", "ring": "ring of decays",
    "flipflop": "trained flip-flop",
}  # fmt: skip
LAG_COLOURS = {20: "#56B4E9", 50: "#E69F00", 200: "#009E73"}
EDGE = 1e4
"""Right edge of the budget: limits beyond the run, or beyond it, stand there."""


def draw(data: Data, width: float) -> Figure:
    """Vectors, spectra and absorbed shares above; horizons and what ends them below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.86 * width))
    rows: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    upper, lower = rows
    panels: Any = upper.subplots(1, 3)
    _vectors(panels[0], data["vectors"])
    _spectra(panels[1], data["spectra"])
    _absorbed(panels[2], data["absorbed"])
    _budget(lower, data["budget"])
    return figure


def _first_seed(points: SweepResult) -> SweepResult:
    return points.select(seed=int(np.min(points["seed"])))


def _vectors(axes: Axes, points: SweepResult) -> None:
    shown = _first_seed(points)
    exact = shown["exact"][0]
    axes.plot(np.arange(len(exact)), exact, color="0.8", ls="-", lw=3.5, label="exact", zorder=1)
    for fmt, (colour, style) in FORMAT_STYLES.items():
        p = shown.select(fmt=fmt)
        stored = p["log_norm"][0]
        lags, finite = np.arange(len(stored)), np.isfinite(stored)
        axes.plot(lags[finite], stored[finite], color=colour, ls=style, lw=1.0, label=fmt, zorder=3)
        for name, (marker, _) in EVENT_MARKERS.items():
            lag = int(p[name][0])
            if lag:
                y = stored[lag] if np.isfinite(stored[lag]) else stored[lag - 1]
                axes.plot(lag, y, marker, color=colour, ms=3.5, mfc="w", mew=0.8, zorder=4)
    lowest = min(np.min(r[np.isfinite(r)]) for r in shown["log_norm"])
    axes.set_ylim(1.1 * lowest, 4)
    for name in ("float16", "bfloat16", "float32"):
        least = format_of(name).log_min_subnormal
        if least > 1.1 * lowest:
            axes.axhline(least, xmin=0.9, color=FORMAT_STYLES[name][0], ls="-", lw=1.0)
    for marker, text in EVENT_MARKERS.values():
        axes.plot([], [], marker, color="0.3", ms=3.5, mfc="w", mew=0.8, label=text)
    axes.plot([], [], color="0.3", ls="-", lw=1.0, label="smallest number")
    axes.set_xlabel("lag [steps]")
    axes.set_ylabel(r"ln $\|P_\ell^\top u\|$ [nats]")
    axes.set_title("(a) one vector pulled back")
    axes.legend(loc="lower left", fontsize=5.5)


def _spectra(axes: Axes, points: SweepResult) -> None:
    shown = _first_seed(points)
    lags = shown["lags"][0]
    i = np.arange(1, shown["exact"].shape[-1] + 1)
    floor = 1.25 * float(np.min(shown["plain"]))
    for k, lag in enumerate(lags):
        colour = LAG_COLOURS[int(lag)]
        axes.plot(i, shown["exact"][0][k], color=colour, ls="-", lw=2.5, alpha=0.4)
        for fmt, style, marker in (("float32", "-", "o"), ("float64", ":", "s")):
            p = shown.select(fmt=fmt)
            draw_curve(axes, i, p["plain"][0][k], color=colour, ls=style, lw=0.8)
            rank = int(p["rank"][0][k])
            axes.plot(i[rank - 1], p["plain"][0][k][rank - 1], marker, color=colour, ms=4, mfc="w")
    axes.set_ylim(floor, 18)  # room for the legend
    axes.set_xlabel("index i")
    axes.set_ylabel(r"ln $\sigma_i/\sigma_1$ [nats]")
    axes.set_title("(b) plain products")
    for k, lag in enumerate(lags):
        exact = shown["exact"][0][k]
        at = int(np.flatnonzero(exact > 0.9 * floor)[-1])
        axes.annotate(
            rf"$\ell={int(lag)}$", (i[at], exact[at]), (-3, -1), textcoords="offset points",
            color=LAG_COLOURS[int(lag)], ha="right", fontsize=6,
        )  # fmt: skip
    handles = [
        _line("0.7", "-", 2.5, "exact"),
        _line("k", "-", 0.8, "float32 (○ last trusted)"),
        _line("k", ":", 0.8, "float64 (□ last trusted)"),
    ]
    axes.legend(handles=handles, loc="upper right", fontsize=5.5, handlelength=1.5)


def _line(colour: str, style: str, width: float, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, ls=style, lw=width, label=label)


def _absorbed(axes: Axes, points: SweepResult) -> None:
    for fmt, (colour, _) in FORMAT_STYLES.items():
        for order, style in (("backward", "-"), ("forward", ":")):
            rows = points.select(fmt=fmt, order=order)["absorbed"]
            lags = np.arange(1, rows.shape[1] + 1)
            band(axes, lags, rows, color=colour, ls=style, lw=1.0, alpha=0.1)
    axes.axhline(0.5, color="0.5", lw=0.5)
    axes.set_xscale("log")
    axes.set_ylim(-0.03, 1.2)  # room for the legend
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_xlabel("lag + 1 [steps]")
    axes.set_ylabel(r"share of $W_{hh}$ with no bit changed")
    axes.set_title("(c) absorbed in sums")
    handles = [_line("k", "-", 1.0, r"$t=T\dots 1$"), _line("k", ":", 1.0, r"$t=1\dots T$")]
    axes.legend(handles=handles, loc="upper center", ncols=2, fontsize=6, handlelength=1.5)


def _budget(figure: Any, points: SweepResult) -> None:
    formats = [f for f in FORMAT_STYLES if f in set(points["fmt"])]
    panels = figure.subplots(1, len(formats), sharey=True)
    rows = list(NETWORK_NAMES)
    figure.suptitle("what ends the horizon (bar: the first limit)", fontsize=7)
    for axes, fmt, letter in zip(panels, formats, "def", strict=False):
        for y, network in enumerate(rows):
            _bar(axes, y, points.select(network=network, fmt=fmt))
        axes.set_xscale("log")
        axes.set_xlim(1, 1.6 * EDGE)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks([1, 10, 100, 1000, EDGE], ["1", "10", "100", "", "beyond"])
        axes.minorticks_off()
        axes.set_xlabel("lag [steps]")
        axes.set_title(f"({letter}) {fmt}")
    panels[0].set_yticks(np.arange(len(rows)), list(NETWORK_NAMES.values()))
    handles = [
        _marker(colour, marker, label) for colour, marker, label in LIMIT_STYLES.values()
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=6)


def _marker(colour: str, marker: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=marker, ls="", ms=4, label=label)


def _bar(axes: Axes, y: int, points: SweepResult) -> None:
    """Up to the smallest limit, in its colour; all limits as markers, with their range."""
    known: dict[str, tuple[float, float, float]] = {}
    for name in LIMITS:
        values = np.minimum(points[name][~np.isnan(points[name])], EDGE)
        if len(values):
            middle = np.quantile(values, 0.5, method="inverted_cdf")
            known[name] = (float(values.min()), float(middle), float(values.max()))
    binding = min(known, key=lambda name: known[name][1])
    axes.barh(y, known[binding][1] - 1, left=1, height=0.34, color=LIMIT_STYLES[binding][0],
              alpha=0.45, lw=0)  # fmt: skip
    for k, (name, (low, middle, high)) in enumerate(known.items()):
        colour, marker, _ = LIMIT_STYLES[name]
        at = y + 0.14 * (k - 1.5)
        axes.plot([low, high], [at, at], color=colour, ls="-", lw=0.8)
        axes.plot(middle, at, marker, color=colour, ms=3.5, clip_on=False)
