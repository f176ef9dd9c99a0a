"""One layer run forwards and pulled backwards, for sequences that share one network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._layouts import Layout
from gradprop.cells.base import WeightedCell
from gradprop.cells.gru import GRU

Array = NDArray[Any]

FLOPS_PER_CALL = 2e9
"""Work given to one kernel call, about 0.2 s: Ctrl-C lives between calls."""


@dataclasses.dataclass
class LayerGradients:
    """Gradients of one layer and network, gates in the kernels' order, time-major.

    `recurrent` is `delta` as the recurrent weights meet it: behind a reset gate it is another one.
    """

    W_hh: Array
    W_xh: Array | None
    bias: Array
    b_h: Array
    h0: Array
    x: Array | None
    delta: Array
    recurrent: Array


class LayerRun:
    """States and pre-activations of B sequences through one layer.

    Parameters
    ----------
    cell : RNN, LSTM or GRU
        For its activations and leak.
    arrays : Layout
        Of one network: W_hh (rows, n).
    x : array (T, B, d_x) or None
        Zero in padded steps.
    start : array (B, s)
    lengths : int array (B,)
    n_steps : int
    """

    def __init__(
        self, cell: Any, arrays: Layout, x: Array | None, start: Array, lengths: Array, n_steps: int
    ) -> None:
        from gradprop._kernels import gates

        self.cell, self.arrays, self.x, self.lengths = cell, arrays, x, lengths
        self.n, self.n_steps, self.dtype = arrays.W_hh.shape[1], n_steps, start.dtype
        kind, B = arrays.kind, len(start)
        self.settings = (kind, *_codes(cell), self.dtype.type(getattr(cell, "leak", 1.0)))
        self.states = np.empty((n_steps + 1, *start.shape), dtype=self.dtype)
        self.states[0] = start
        current = _current(arrays, x, n_steps, B)
        # a vanilla cell's pre-activations take the place of their input part
        width = gates.TAPE_ROWS[kind] * self.n
        self.tapes = current if kind == gates.RNN else np.zeros((n_steps, B, width), self.dtype)
        before = kind == gates.GRU_BEFORE
        self.hidden = np.zeros((n_steps if before else 0, B, self.n), dtype=self.dtype)
        self._run(current)

    def _run(self, current: Array) -> None:
        forward, _, _ = kernels_of(self.cell)
        columns = np.ascontiguousarray(self.arrays.W_hh.T)
        for start, stop in self._blocks():
            forward(
                *self.settings, columns, self.arrays.b_h.copy(), current, self.lengths, start, stop,
                self.states, self.tapes, self.hidden,
            )  # fmt: skip

    def _blocks(self) -> Iterator[tuple[int, int]]:
        flops = max(2.0 * self.arrays.W_hh.size * self.states.shape[1], 1.0)
        size = max(int(FLOPS_PER_CALL // flops), 1)
        for start in range(0, self.n_steps, size):
            yield start, min(start + size, self.n_steps)

    @property
    def h(self) -> Array:
        """Output after each step, (T, B, n)."""
        return self.states[1:, :, : self.n]

    def pull(self, grad_h: Array, window: int) -> LayerGradients:
        """Gradients of sum(grad_h h); `window` 0 cuts nothing."""
        from gradprop._kernels import gates

        _, backward, _ = kernels_of(self.cell)
        v = np.zeros_like(self.states[0])
        deltas = np.empty((self.n_steps, len(v), self.arrays.W_hh.shape[0]), dtype=self.dtype)
        resets = self.arrays.kind in (gates.GRU_AFTER, gates.GRU_BEFORE)
        recurrents = np.empty_like(deltas) if resets else deltas
        for start, stop in reversed(list(self._blocks())):
            backward(
                *self.settings, self.arrays.W_hh, self.states, self.tapes, self.lengths, grad_h,
                window, start, stop, v, deltas, recurrents,
            )  # fmt: skip
        x = None
        if self.x is not None:
            x = deltas if self.arrays.W_xh is None else _wide(deltas, self.arrays.W_xh)
        parts = self.parameter_gradients(deltas, recurrents)
        return LayerGradients(*parts, v, x, deltas, recurrents)

    def parameter_gradients(
        self, deltas: Array, recurrents: Array
    ) -> tuple[Array, Array | None, Array, Array]:
        """W_hh, W_xh, bias and b_h from gradients at the pre-activations."""
        from gradprop._kernels import gates

        own_recurrents = recurrents is not deltas
        h = self.states[: self.n_steps, :, : self.n]
        W_hh = _outer(recurrents, h)
        if self.arrays.kind == gates.GRU_BEFORE:
            W_hh[2 * self.n :] = _outer(recurrents[..., 2 * self.n :], self.hidden)
        W_xh = None
        if self.x is not None and self.arrays.W_xh is not None:
            W_xh = _outer(deltas, self.x)
        elif self.arrays.W_xh is not None:
            W_xh = np.zeros_like(self.arrays.W_xh)
        bias = deltas.sum(axis=(0, 1))
        return W_hh, W_xh, bias, recurrents.sum(axis=(0, 1)) if own_recurrents else bias


def by_name(
    cell: WeightedCell, W_hh: Array, W_xh: Array | None, bias: Array, b_h: Array
) -> dict[str, Array]:
    """Gradients of a cell's own arrays, rows in the order in which they were given."""
    if isinstance(cell, GRU):
        named = {"W_hh": W_hh, "W_xh": W_xh, "b_x": bias, "b_h": b_h}
    else:
        named = {"W_hh": W_hh, "W_xh": W_xh, "b": bias}
    rows = getattr(cell, "rows", slice(None))
    out = {}
    for name in cell.arrays():
        own = named[name]
        assert own is not None
        given = np.empty_like(own)
        given[rows] = own
        out[name] = given
    return out


def _current(arrays: Layout, x: Array | None, n_steps: int, B: int) -> Array:
    """Input part of all pre-activations in one wide product, (T, B, rows)."""
    rows, dtype = arrays.W_hh.shape[0], arrays.W_hh.dtype
    if x is None:
        current = np.zeros((n_steps, B, rows), dtype=dtype)
    elif arrays.W_xh is None:
        current = x.copy()
    else:
        current = _wide(x, np.ascontiguousarray(arrays.W_xh.T))
    if arrays.bias is not None:
        current += arrays.bias
    return current


def _wide(a: Array, matrix: Array) -> Array:
    """A @ matrix as one product over steps and sequences."""
    return (a.reshape(-1, a.shape[-1]) @ matrix).reshape(*a.shape[:-1], matrix.shape[-1])


def _outer(left: Array, right: Array) -> Array:
    """Sum over steps and sequences of left rightᵀ."""
    flat = np.ascontiguousarray(right).reshape(-1, right.shape[-1])
    return np.asarray(left.reshape(-1, left.shape[-1]).T @ flat)


def _codes(cell: Any) -> tuple[int, int]:
    gate = getattr(cell, "gate_activation", cell.activation)
    if gate.code is None or cell.activation.code is None:
        return -1, 0
    return gate.code, cell.activation.code


def kernels_of(cell: Any) -> tuple[Any, Any, Any]:
    """`forward`, `backward` and `lag_back`; rebuilt if an activation is one's own."""
    from gradprop._kernels import backward as kernels
    from gradprop._kernels.activations import complement_of

    gate = getattr(cell, "gate_activation", cell.activation)
    if gate.code is not None and cell.activation.code is not None:
        return kernels.forward, kernels.backward, kernels.lag_back
    rebuilt: tuple[Any, Any, Any] = kernels.kernels_for(
        (gate.phi, gate.dphi, complement_of(gate.code, gate.phi)),
        (cell.activation.phi, cell.activation.dphi),
    )
    return rebuilt
