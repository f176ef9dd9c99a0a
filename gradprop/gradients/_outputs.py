"""Gradients of single outputs of one step, of each sequence by itself, never out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.gradients._layer import LayerRun, by_name
from gradprop.gradients._paths import NOTHING, back, rescale
from gradprop.gradients._problem import Problem
from gradprop.results import LN2, log_sum_exp

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

Scaled = tuple[Array, Int]
"""An array (B, ...), and a power of two for each sequence that it is to be multiplied by."""

PARTS = {"W_hh": 0, "W_xh": 1, "b": 2, "b_x": 2, "b_h": 3}
"""Where each array of a cell stands among the four sums of its layer."""

BLOCK = 32
"""Steps between two products of gradients at pre-activations with what they meet."""


class OutputGradients:
    """Sequences of one network, run, and u cotangents for the h of each.

    Parameters
    ----------
    problem : Problem
    network : int
    rows : int array (B,)
    cotangents : float array (u, n)
    """

    def __init__(self, problem: Problem, network: int, rows: Int, cotangents: Float) -> None:
        self._runs = problem.run(network, rows)
        self._lengths = problem.lengths[rows]
        self._cotangents = cotangents.astype(problem.dtype)
        self._copies, self._dtype = len(cotangents), problem.dtype

    def log_squares(self, t: int) -> Float:
        """Ln of the squared norms of the gradients of the h after step t, (B, 1 + arrays, u)."""
        ends = np.minimum(self._lengths, t)
        v = [self._zeros(1, run.states.shape[-1]) for run in self._runs]
        power = np.full(len(ends), NOTHING, dtype=np.int64)
        sums = [Sum(run, self._copies) for run in self._runs]
        for stop in range(int(ends.max(initial=0)), 0, -BLOCK):
            m = min(BLOCK, stop)
            met = np.empty((m, len(ends)), dtype=np.int64)
            deltas, recurrents = (
                [self._zeros(m, run.arrays.W_hh.shape[0]) for run in self._runs] for _ in range(2)
            )
            for j in reversed(range(m)):
                step = stop - m + j
                self._enter(v[-1], power, ends == step + 1)
                met[j] = power
                back(self._runs, v, step, _at(deltas, j), _at(recurrents, j), self._copies)
                rescale([self._by_sequence(a) for a in v], power)
            for own, delta, recurrent in zip(sums, deltas, recurrents, strict=True):
                own.add(stop - m, delta, recurrent, met)
        each = [log for own in sums for log in own.log_squares()]
        return np.stack([log_sum_exp(np.array(each), axis=0), *each], axis=1)

    def _zeros(self, m: int, width: int) -> Array:
        return np.zeros((m, len(self._lengths) * self._copies, width), dtype=self._dtype)

    def _by_sequence(self, a: Array) -> Array:
        return a.reshape(len(self._lengths), self._copies, -1)

    def _enter(self, v: Array, power: Int, here: NDArray[np.bool_]) -> None:
        """Set the cotangents of sequences whose step this is."""
        n = self._cotangents.shape[1]
        power[here] = 0
        self._by_sequence(v)[here, :, :n] = self._cotangents


def _at(layers: list[Array], j: int) -> list[Array]:
    """Views of step j of each layer's array, that axis kept."""
    return [a[j : j + 1] for a in layers]


class Sum:
    """Gradients of one layer's arrays summed over steps, by sequence and cotangent.

    Each array's sum has powers of two of its own: where only early steps reach an array, as where
    an impulse is the input, its gradient is far below those of the others.

    Parameters
    ----------
    run : LayerRun
    copies : int
        u cotangents for each of the B sequences.
    """

    def __init__(self, run: LayerRun, copies: int) -> None:
        self._run, self._shape = run, (run.states.shape[1], copies)
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
        ones = np.ones((len(delta), self._shape[0], 1), dtype=delta.dtype)
        h = run.states[steps, :, :n]
        if run.arrays.kind == gates.GRU_BEFORE:
            candidate = np.arange(recurrent.shape[-1]) >= 2 * n
            W_hh = _plus(
                self._product(np.where(candidate, 0, recurrent), h, power),
                self._product(np.where(candidate, recurrent, 0), run.hidden[steps], power),
            )
        else:
            W_hh = self._product(recurrent, h, power)
        W_xh = self._product(delta, ones * 0 if run.x is None else run.x[steps], power)
        biases = [self._product(a, ones, power) for a in (delta, recurrent)]
        return [W_hh, W_xh, *biases]

    def _product(self, left: Array, right: Array, power: Int) -> Scaled:
        """Sum over steps of left rightᵀ 2**power, each sequence by itself."""
        m, B, width = right.shape
        rows = left.shape[-1]
        left = left.reshape(m, B, -1)
        sizes = [np.abs(a).max(axis=-1) for a in (left, right)]
        of_left, of_right = (np.frexp(size)[1].astype(np.int64) for size in sizes)
        own = np.where((sizes[0] > 0) & (sizes[1] > 0), power + of_left + of_right, NOTHING)
        top = own.max(axis=0)
        left = np.ldexp(left, (own - top - of_left)[..., None])
        right = np.ldexp(right, -of_right[..., None])
        product: Array = np.matmul(np.moveaxis(left, 0, -1), right.swapaxes(0, 1))
        return product.reshape(*self._shape, rows, width), top

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
