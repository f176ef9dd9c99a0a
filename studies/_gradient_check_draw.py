"""Figure of gradient_check, from its stored data alone."""

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
NAMES = {"vanilla": "RNN, tanh", "lstm": "LSTM", "gru": "GRU"}
CURVES = {
    "central_float64": ("#0072B2", "-", "central, float64"),
    "central_float32": ("#D55E00", "-", "central, float32"),
    "complex_float64": ("#0072B2", "--", "complex step, float64"),
    "complex_float32": ("#D55E00", "--", "complex step, float32"),
}
FAULTS = {
    "last_only": ("0.1", "fault: last step only"),
    "slope_at_state": ("0.45", "fault: φ′ at h"),
}
EPS = {"float64": 2.0**-52, "float32": 2.0**-23}


def draw(data: Data, width: float) -> Figure:
    """Error against step size, one panel a cell."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.5 * width))
    panels: Any = figure.subplots(1, len(NAMES), sharex=True, sharey=True)
    for axes, (kind, name), letter in zip(panels, NAMES.items(), "abc", strict=True):
        _panel(axes, data["errors"].select(kind=kind))
        axes.set_title(f"({letter}) {name}")
        axes.set_xlabel("step size h")
    panels[0].set_ylabel(r"$\|\Delta\|\,/\,\|g\|$")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=6)
    return figure


def _panel(axes: Axes, points: SweepResult) -> None:
    steps = points["steps"][0]
    for name, (colour, style, label) in CURVES.items():
        low, middle, high = np.quantile(points[name], (0, 0.5, 1), axis=0)
        axes.plot(steps, middle, ls=style, color=colour, lw=1.0, label=label)
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, lw=0)
    for name, (colour, label) in FAULTS.items():
        if np.isfinite(points[name]).all():
            low, middle, high = np.quantile(points[name], (0, 0.5, 1), axis=0)
            axes.plot(steps, middle, ls=":", color=colour, lw=1.3, label=label)
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, lw=0)
    for dtype, eps in EPS.items():
        colour = CURVES[f"central_{dtype}"][0]
        text = r"$\varepsilon^{1/3}, \varepsilon^{2/3}$ of the precision"
        axes.plot(
            eps ** (1 / 3), eps ** (2 / 3), "D", color=colour, ms=4, mfc="none",
            label=text if dtype == "float64" else None,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(2e-1, 5e-16)  # smaller steps to the right
    axes.set_xticks([1e-2, 1e-6, 1e-10, 1e-14])
    axes.minorticks_off()
