"""Arrays of a cell of one layer as the kernels want them: gates in order, networks flat."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import who_uses
from gradprop.cells.base import WeightedCell
from gradprop.cells.gru import GRU
from gradprop.cells.lstm import LSTM
from gradprop.cells.rnn import RNN

Array = NDArray[Any]
Int = NDArray[np.int64]


class Layout(NamedTuple):
    """Arrays of a cell in the order of the kernels; bias is (..., rows), b_h (..., n)."""

    kind: int
    W_hh: Array
    W_xh: Array | None
    bias: Array | None
    b_h: Array


def layout(cell: WeightedCell, dtype: Any) -> Layout:
    """Gates in the kernels' order, biases added in float64 and then rounded to `dtype`."""
    from gradprop._kernels import gates

    bias: Array | None
    rows: Any
    if isinstance(cell, RNN):
        bias, inner, rows, kind = cell.b, np.zeros(cell.n), slice(None), gates.RNN
    elif isinstance(cell, LSTM):
        bias, inner, rows, kind = cell.b, np.zeros(cell.n), cell.rows, gates.LSTM
    elif isinstance(cell, GRU):
        rows, kind = cell.rows, gates.GRU_AFTER if cell.reset_after else gates.GRU_BEFORE
        b_x, b_h = cell.b_x.astype(np.float64), cell.b_h.astype(np.float64)
        inner = b_h[..., rows][..., 2 * cell.n :] * cell.reset_after
        outside = np.ones(3 * cell.n)
        outside[rows[2 * cell.n :]] = not cell.reset_after
        bias = b_x + b_h * outside
    else:
        raise TypeError(f"no layout for a {type(cell).__name__}.")
    return Layout(
        kind,
        np.ascontiguousarray(cell.W_hh[..., rows, :], dtype=dtype),
        None if cell.W_xh is None else np.ascontiguousarray(cell.W_xh[..., rows, :], dtype=dtype),
        None if bias is None else bias[..., rows].astype(dtype),
        inner.astype(dtype),
    )


def flat_networks(array: Array, core: int, batch_shape: tuple[int, ...]) -> tuple[Array, Int]:
    """Distinct networks (K, ...), and which of them each flat replica uses."""
    own = array.shape[: array.ndim - core]
    flat = np.ascontiguousarray(array.reshape(-1, *array.shape[len(own) :]))
    return flat, who_uses(own, batch_shape)
