"""Gradients of a layer's arrays summed over steps, each array with powers of two of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.gradients._layer import LayerRun, by_name
from gradprop.results import LN2

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

Scaled = tuple[Array, Int]
"""An array (B, ...), and a power of two for each sequence that it is to be multiplied by."""

PARTS = {"W_hh": 0, "W_xh": 1, "b": 2, "b_x": 2, "b_h": 3}
"""Where each array of a cell stands among the four sums of its layer."""

NOTHING = -(2**30)
"""Power of two of what is exactly zero."""


class ScaledSum:
    """Gradients of one layer's arrays summed over steps, by sequence and cotangent.

    Each array's sum has powers of two of its own: where only early steps reach an array, as where
    an impulse is the input, its gradient is far below those of the others.

    Parameters
    ----------
    run : LayerRun
    copies : int, default: 1
        u cotangents for each of the B sequences.
    together : bool, default: False
        Sum over the sequences too, whose number then counts as 1; needs one copy.
    """

    def __init__(self, run: LayerRun, copies: int = 1, *, together: bool = False) -> None:
        self._run = run
        B = run.n_sequences
        self._shape, self._merged = (1, copies) if together else (B, copies), B if together else 1
        self._parts: list[Scaled] = []

    def add(self, step: int, delta: Array, recurrent: Array, power: Int) -> None:
        """Add steps `step` + 1 .. + m: gradients (m, B u, rows) times 2**power, power (m, B)."""
        met = self._met(step, delta, recurrent, power)
        kept = self._parts or met
        self._parts = met if kept is met else [_plus(*pair) for pair in zip(kept, met, strict=True)]

    def _met(self, step: int, delta: Array, recurrent: Array, power: Int) -> list[Scaled]:
        """W_hh, W_xh, bias and b_h, (B, u, rows, columns)."""
        from gradprop._kernels import gates

        run, n, steps = self._run, self._run.n, slice(step, step + len(delta))
        m, B = len(delta), run.n_sequences
        power = self._by_step(power)[..., 0]
        ones = np.ones((m, B, 1), dtype=delta.dtype)
        h, x = run.h_before[steps], 0 * ones if run.x is None else run.x[steps]
        right_h, right_x, right_b = (_unit(self._by_step(a)) for a in (h, x, ones))
        left_x = _unit(self._by_step(delta))
        left_h = left_x if recurrent is delta else _unit(self._by_step(recurrent))
        if run.arrays.kind == gates.GRU_BEFORE:
            hidden = _unit(self._by_step(run.hidden[steps]))
            candidate = np.arange(recurrent.shape[-1]) >= 2 * n
            outer = np.where(candidate, 0, recurrent), np.where(candidate, recurrent, 0)
            parts = [_unit(self._by_step(a)) for a in outer]
            W_hh = _plus(
                self._product(parts[0], right_h, power), self._product(parts[1], hidden, power)
            )
        else:
            W_hh = self._product(left_h, right_h, power)
        biases = [self._product(left, right_b, power) for left in (left_x, left_h)]
        return [W_hh, self._product(left_x, right_x, power), *biases]

    def _by_step(self, a: Array) -> Array:
        """(m, B u, .) as (m, B, u .); `together`, every step of a sequence is one of its own."""
        return a.reshape(len(a) * self._merged, self._shape[0], -1)

    def _product(self, left: Scaled, right: Scaled, power: Int) -> Scaled:
        """Sum over steps of left rightᵀ 2**power, each sequence by itself or all together."""
        (one, of_one), (other, of_other) = left, right
        own = np.maximum(power + of_one + of_other, NOTHING)
        top = own.max(axis=0)
        # a factor in place of ldexp, which takes ten times as long: too small a one is zero
        one = one * np.ldexp(one.dtype.type(1), np.maximum(own - top, -(2**20)))[..., None]
        product: Array = np.matmul(one.transpose(1, 2, 0), other.swapaxes(0, 1))
        return product.reshape(*self._shape, -1, other.shape[-1]), top

    def totals(self) -> dict[str, tuple[Float, int]]:
        """The cell's own arrays and their powers of two, of all sequences `together`."""
        arrays, powers = zip(*self._parts, strict=True)
        W_hh, W_xh, bias, b_h = (a[0, 0].astype(np.float64) for a in arrays)
        named = by_name(self._run.cell, W_hh, W_xh, bias[:, 0], b_h[:, 0])
        return {name: (a, int(powers[PARTS[name]][0])) for name, a in named.items()}

    def log_squares(self) -> list[Float]:
        """Ln of the squared norms of the cell's own arrays, (B, u) each."""
        cell = self._run.cell
        if not self._parts:
            return [np.full(self._shape, -np.inf) for _ in cell.arrays()]
        arrays, powers = zip(*self._parts, strict=True)
        named = by_name(cell, *(np.moveaxis(a, 2, 0) for a in arrays))
        return [
            _log_squares(a) + 2 * LN2 * powers[PARTS[name]][:, None] for name, a in named.items()
        ]


def _unit(a: Array) -> Scaled:
    """Rows of `a` (..., k) with largest entries of order one, and their powers of two (...)."""
    size = np.abs(a).max(axis=-1)
    power = np.frexp(size)[1].astype(np.int64)
    return np.ldexp(a, -power[..., None]), np.where(size > 0, power, NOTHING)


def _plus(one: Scaled, other: Scaled) -> Scaled:
    """Sum of two arrays (B, ...) times powers of two (B,)."""
    top = np.maximum(one[1], other[1])
    a, b = (np.ldexp(part, (power - top)[:, None, None, None]) for part, power in (one, other))
    return a + b, top


def _log_squares(a: Array) -> Float:
    """Ln of the sum of squares over the first and last of four axes, of entries of any size."""
    rest = np.abs(a).astype(np.float64)
    size = rest.max(axis=(0, 3), keepdims=True)
    scaled = np.divide(rest, size, out=np.zeros_like(rest), where=size > 0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log((scaled**2).sum(axis=(0, 3))) + 2 * np.log(size[0, ..., 0]))
