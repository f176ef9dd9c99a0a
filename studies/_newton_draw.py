"""Figure of parallel_newton, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
COLOURS = ("#0072B2", "#009E73", "#E69F00", "#D55E00")
MARKERS = "osD^"


def iterations(points: SweepResult) -> Array:
    """Iterations as numbers; inf: not within the cap."""
    counts = points["iterations"].astype(float)
    return np.where(counts < 0, np.inf, counts)


def draw(data: Data, width: float) -> Figure:
    """Iterations against the exponent, residuals, and iterations against length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.48 * width))
    panels: Any = figure.subplots(1, 3, width_ratios=(1.25, 1.0, 1.0))
    _against_exponent(panels[0], data["gains"])
    _residuals(panels[1], data["gains"])
    _against_length(panels[2], data["lengths"])
    return figure


def _against_exponent(axes: Axes, points: SweepResult) -> None:
    cap = points["residuals"].shape[1] - 1
    counts = iterations(points)
    x, bars = points["lambda_1"], np.stack([points["low"], points["high"]])
    rows = (
        ("converged", np.isfinite(counts), counts),
        (f"not within {cap}", np.isinf(counts) & ~points["overflowed"], 1.5 * cap),
        ("overflowed", np.isinf(counts) & points["overflowed"], 2.2 * cap),
    )
    for std, colour in zip(np.unique(points["input_std"]), ("#0072B2", "#D55E00"), strict=True):
        for (label, kind, y), marker in zip(rows, ("o", "^", "v"), strict=True):
            mask = kind & (points["input_std"] == std)
            if mask.any():
                axes.errorbar(
                    x[mask], np.broadcast_to(y, x.shape)[mask],
                    xerr=np.abs(bars[:, mask] - x[mask]), color=colour, marker=marker, ls="",
                    ms=2.5, elinewidth=0.5, mfc="none" if marker != "o" else colour, mew=0.6,
                    label=f"{label}, input {std:g}",
                )  # fmt: skip
    axes.axvline(0, color="0.5", lw=0.6, ls="-")
    axes.axhline(cap, color="0.5", lw=0.6, ls=":")
    axes.set_yscale("log")
    axes.set_ylim(3, 3.2 * cap)
    axes.set_xlabel(r"$\lambda_1$ [nats/step]")
    axes.set_ylabel("Newton iterations")
    steps = int(points["n_steps_used"][0])
    axes.set_title(f"(a) T = {steps}")
    axes.legend(loc="upper left", fontsize=5, bbox_to_anchor=(0, 0.74))
    axes.set_xticks([-0.8, -0.4, 0.0])


def _residuals(axes: Axes, points: SweepResult) -> None:
    points = points.select(input_std=0.5)
    gains = np.unique(points["gain"])
    chosen = gains[np.linspace(0, len(gains) - 3, 4).astype(int)] if len(gains) > 5 else gains[:4]
    for gain, colour in zip(chosen, COLOURS, strict=True):
        for k, row in enumerate(points.select(gain=gain)["residuals"]):
            label = f"gain {gain:g}" if k == 0 else None
            at = np.arange(len(row))
            axes.plot(at, np.log10(row), color=colour, lw=0.5, ls="-", label=label)
    axes.axhline(-10, color="0.5", lw=0.6, ls=":")
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xlim(0, points["residuals"].shape[1])
    axes.minorticks_off()
    axes.set_xlabel("iteration")
    axes.set_ylabel(r"$\log_{10}$ max $|h_t - F(h_{t-1})|$")
    axes.set_title("(b) residual, input 0.5")
    axes.legend(loc="upper right", fontsize=5.5)


def _against_length(axes: Axes, points: SweepResult) -> None:
    cap = points["residuals"].shape[1] - 1
    lengths = np.unique(points["n_steps"])
    for gain, colour, marker in zip(np.unique(points["gain"]), COLOURS, MARKERS, strict=False):
        rows = np.stack([iterations(points.select(gain=gain, n_steps=T)) for T in lengths], axis=1)
        middle = np.quantile(rows, 0.5, axis=0, method="inverted_cdf")
        for row in rows:
            axes.plot(lengths, np.where(np.isinf(row), np.nan, row), color=colour, lw=0.4, ls="-")
        missing = np.isinf(middle)
        axes.plot(
            lengths, np.where(missing, 1.5 * cap, middle), marker, color=colour, ms=3,
            label=f"gain {gain:g}",
        )  # fmt: skip
    axes.plot(lengths, lengths, color="0.3", lw=0.8, ls="--", label="T")
    axes.axhline(cap, color="0.5", lw=0.6, ls=":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(3, 3 * cap)
    axes.set_xticks(lengths[::2], [str(T) for T in lengths[::2]])
    axes.minorticks_off()
    axes.set_xlabel("length T [steps]")
    axes.text(lengths[0], 1.75 * cap, f"not within {cap}", fontsize=5, ha="left", color="0.35")
    axes.set_title("(c) by length, input 0.5")
    axes.legend(loc="upper left", fontsize=5, bbox_to_anchor=(0, 0.88)).set_in_layout(False)
