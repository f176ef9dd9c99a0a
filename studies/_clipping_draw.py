"""Figure of clipping, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
RULE_STYLES = {
    "none": ("0.0", "-"),
    "global 1": ("#0072B2", "-"),
    "global 5": ("#56B4E9", "--"),
    "each array 1": ("#D55E00", "-."),
}
NETWORK_STYLES = {
    "tanh, gain 1.5": ("#0072B2", "-"),
    "orthogonal": ("#E69F00", "--"),
    "identity": ("#009E73", "-."),
}
CONSTANT_GUESS = 1 / 6
WINDOW = 20
TOP = 10.0
"""Losses above it are drawn on the upper edge."""


def draw(data: Data, width: float) -> Figure:
    """Losses by rule for each network; norms, angles, and the vanished gradient."""
    from matplotlib.figure import Figure

    runs = data["runs"]
    figure = Figure(figsize=(width, 0.85 * width))
    panels: Any = figure.subplots(2, 3)
    for axes, name, letter in zip(panels[0], NETWORK_STYLES, "abc", strict=True):
        _losses(axes, runs.select(network=name))
        axes.set_title(f"({letter}) {name}")
    panels[0, 0].set_ylabel(f"loss, mean of {WINDOW} updates")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=6)
    _norms(panels[1, 0], runs)
    _angles(panels[1, 1], runs)
    _vanished(panels[1, 2], data["vanished"])
    return figure


def smoothed(loss: Array) -> Array:
    """Means over blocks of updates, of each run; nan where the run has ended."""
    n = loss.shape[1] // WINDOW
    return np.asarray(loss[:, : n * WINDOW].reshape(len(loss), n, WINDOW).mean(axis=2))


def _losses(axes: Axes, points: SweepResult) -> None:
    for rule, (colour, style) in RULE_STYLES.items():
        p = points.select(rule=rule)
        curves = smoothed(p["loss"])
        updates = WINDOW * (np.arange(curves.shape[1]) + 0.5)
        for k, curve in enumerate(np.minimum(curves, TOP)):
            axes.plot(
                updates, curve, color=colour, ls=style, lw=0.6, label=rule if k == 0 else None,
                zorder=1 if rule == "none" else 2,
            )  # fmt: skip
        ended = p["diverged_at"][p["diverged_at"] > 0]
        if len(ended):
            axes.plot(ended, np.full(len(ended), TOP), "x", color=colour, ms=4, clip_on=False)
            text = f"×: {len(ended)} of {len(p)} unclipped\nleft the floats"
            axes.text(0.98, 0.96, text, fontsize=6, transform=axes.transAxes, ha="right", va="top")
    axes.axhline(CONSTANT_GUESS, color="0.5", lw=0.6, ls=":", label="constant guess")
    axes.set_yscale("log")
    axes.set_ylim(0.03, TOP)
    axes.set_xlabel("update")


def _norms(axes: Axes, runs: SweepResult) -> None:
    for name, (colour, style) in NETWORK_STYLES.items():
        norms = runs.select(network=name, rule="global 1")["norm"]
        for k, row in enumerate(norms):
            known = np.sort(row[np.isfinite(row)])
            share = 1 - np.arange(len(known)) / len(known)
            axes.plot(
                known, share, color=colour, ls=style, lw=0.6, label=name if k == 0 else None
            )  # fmt: skip
        means = gp.clip_statistics(norms).mean
        at = [np.mean(row[np.isfinite(row)] > 2 * m) for row, m in zip(norms, means, strict=True)]
        axes.plot(2 * means, np.maximum(at, 1e-4), "o", color=colour, ms=2.5, mfc="none", mew=0.6)
    for threshold in (1.0, 5.0):
        axes.axvline(threshold, color="0.5", lw=0.6, ls=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 1.3)
    axes.set_xlabel("norm (○: 2 × mean)")
    axes.set_ylabel("share of updates above")
    axes.set_title("(d) norms, clipped at 1")


def _angles(axes: Axes, runs: SweepResult) -> None:
    for name, (colour, style) in NETWORK_STYLES.items():
        values = runs.select(network=name, rule="each array 1")["cosine"]
        values = np.clip(values[np.isfinite(values)], -1, 1)
        angle = np.sort(np.degrees(np.arccos(values)))
        share = 1 - np.arange(len(angle)) / len(angle)
        axes.plot(angle, share, color=colour, ls=style, lw=1.0, label=name)
    axes.plot([0, 0], [0, 1], color="k", lw=2.0, solid_capstyle="butt", label="joint clipping")
    axes.set_xlim(-1, 60)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("angle to it [degrees]")
    axes.set_ylabel("share of updates above")
    axes.set_title("(e) clipping each array")
    axes.legend(loc="upper right", fontsize=5.5)


def _vanished(axes: Axes, points: SweepResult) -> None:
    updates = np.arange(1, points["norm"].shape[1] + 1)
    for name, colour, style, width, label in (
        ("norm", "0.0", "-", 0.5, "norm"),
        ("norm_clipped", "#D55E00", ":", 1.2, "norm, clipped at 1"),
    ):
        for k, row in enumerate(points[name]):
            axes.plot(
                updates, np.log10(row), color=colour, ls=style, lw=width,
                label=label if k == 0 else None,
            )  # fmt: skip
    for name, marker, colour in (("log10_far", "o", "0.0"), ("log10_far_clipped", ".", "#D55E00")):
        for k, row in enumerate(points[name]):
            seen = np.isfinite(row)
            axes.plot(
                updates[seen], row[seen], marker, color=colour, ms=3 if marker == "o" else 2,
                mfc="none", mew=0.5, ls="-", lw=0.3,
                label="share, first half" if k == 0 and marker == "o" else None,
            )  # fmt: skip
    axes.axhline(0, color="0.5", lw=0.5, ls="-")
    same = int(points["bit_equal"].sum())
    axes.set_title(f"(f) {same} of {len(points)} bit-equal")
    axes.set_xlabel("update")
    axes.set_ylabel(r"$\log_{10}$")
    axes.set_ylim(top=9)
    axes.legend(loc="upper right", fontsize=5.5)
