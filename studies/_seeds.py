"""Medians and ranges over networks, in figures and in tables; infinities are values like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop._drawing import draw_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[Any]
LEVELS = [0.05, 0.5, 0.95]


def quantiles(rows: ArrayLike) -> Array:
    """5 %, 50 % and 95 % over the first axis, values that occur; nan in every row stays nan."""
    return np.asarray(np.nanquantile(np.asarray(rows), LEVELS, axis=0, method="inverted_cdf"))


def band(axes: Axes, x: ArrayLike, rows: ArrayLike, *, alpha: float = 0.18, **style: Any) -> None:
    """Median over rows, and the 5-95 % range where it is finite; -inf on the lower edge."""
    low, middle, high = quantiles(rows)
    draw_curve(axes, x, middle, **style)
    colour = axes.lines[-1].get_color()
    shown = np.isfinite(low) & np.isfinite(high)
    axes.fill_between(np.asarray(x), low, high, where=shown, color=colour, alpha=alpha, lw=0)


def spread(values: ArrayLike, digits: int = 3) -> str:
    """Median [least, largest] as text."""
    v = np.asarray(values, dtype=float)
    v = v[~np.isnan(v)]
    if not v.size:
        return "-"
    middle = np.quantile(v, 0.5, method="inverted_cdf")
    return f"{middle:.{digits}g} [{v.min():.{digits}g}, {v.max():.{digits}g}]"
