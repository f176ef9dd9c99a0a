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
    """States of B sequences through one layer, and the coefficients of the steps' Jacobians.

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
        (self.n_sequences, self.n_state), self.dtype = start.shape, start.dtype
        self.kind, self.n, self.n_steps = arrays.kind, arrays.W_hh.shape[1], n_steps
        self._leak = self.dtype.type(getattr(cell, "leak", 1.0))
        self.keep = self.dtype.type(1) - self._leak
        self._inputs = self._padded(n_steps, 0) if x is None else _padded_rows(x)
        self._h = self._padded(n_steps + 1, self.n)
        self._h[0, :, : self.n] = start[:, : self.n]
        self._c = np.empty((n_steps + 1, self.n_sequences, self.n_state - self.n), self.dtype)
        self._c[0] = start[:, self.n :]
        before = self.kind == gates.GRU_BEFORE
        self._hidden = self._padded(n_steps if before else 0, self.n)
        width = gates.COEF_ROWS[self.kind] * self.n
        self.coefs = np.empty((n_steps, self.n_sequences, width), self.dtype)
        self._run()

    def _padded(self, n_steps: int, width: int) -> Array:
        """Room for rows of so many entries, as the kernels read them."""
        from gradprop._kernels.gemm import padded

        full = padded(width, self.dtype)
        made = np.empty if full == width else np.zeros
        return made((n_steps, self.n_sequences, full), dtype=self.dtype)

    def _run(self) -> None:
        from gradprop._kernels import gates
        from gradprop._kernels.gemm import strips

        kind, n, (_, W_hh, W_xh, bias, b_h) = self.kind, self.n, self.arrays
        bias = np.zeros(len(W_hh), self.dtype) if bias is None else bias.copy()
        depth = 0 if self.x is None else self.x.shape[-1]
        U = strips(np.empty((0, 0), self.dtype) if W_xh is None else W_xh.T)
        rnn, lstm, gru = forward_kernels(self.cell)
        gate, code = _codes(self.cell)
        for steps in self._blocks():
            shared = (U, bias, depth, self._inputs, self.lengths, *steps, self._h)
            if kind == gates.RNN:
                rnn(code, self._leak, strips(W_hh.T), *shared, self.coefs)
            elif kind == gates.LSTM:
                lstm(gate, code, strips(W_hh.T), *shared, self._c, self.coefs)
            else:
                split = 3 * n if kind == gates.GRU_AFTER else 2 * n
                parts = strips(W_hh[:split].T), strips(W_hh[split:].T)
                U, bias, *rest = shared
                gru(kind, gate, code, *parts, U, bias, b_h.copy(), *rest, self._hidden, self.coefs)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        flops = max(2.0 * self.arrays.W_hh.size * self.n_sequences, 1.0)
        size = max(int(FLOPS_PER_CALL // flops), 1)
        for start in range(0, self.n_steps, size):
            yield start, min(start + size, self.n_steps)

    @property
    def h(self) -> Array:
        """Output after each step, (T, B, n)."""
        return self._h[1:, :, : self.n]

    @property
    def h_before(self) -> Array:
        """Output before each step, (T, B, n)."""
        return self._h[:-1, :, : self.n]

    @property
    def hidden(self) -> Array:
        """What the candidate's weights meet, (T, B, n); empty unless reset before the product."""
        return self._hidden[..., : self.n]

    @property
    def last(self) -> tuple[Array, Array]:
        """The state after the last step: h, and the c of an LSTM."""
        return self._h[-1, :, : self.n], self._c[-1]

    def finite(self) -> NDArray[np.bool_]:
        """Whether the state is, (T + 1, B)."""
        h, c = (np.isfinite(a).all(axis=-1) for a in (self._h[..., : self.n], self._c))
        return np.logical_and(h, c)

    def pull(self, grad_h: Array, window: int) -> LayerGradients:
        """Gradients of sum(grad_h h), (T, B, n); `window` 0 cuts nothing. To be called once.

        What a vanilla cell gets at its pre-activations takes the place of the coefficients.
        """
        from gradprop._kernels import backward as kernels
        from gradprop._kernels import gates
        from gradprop._kernels.gemm import strips

        W_hh, W_xh = self.arrays.W_hh, self.arrays.W_xh
        met = np.empty((len(W_hh), 0), self.dtype) if self.x is None or W_xh is None else W_xh
        room = self._room(met.shape[1])
        W, U, rows = strips(W_hh), strips(met), _rows_of(grad_h)
        for steps in reversed(list(self._blocks())):
            if self.kind == gates.RNN:
                v, deltas, _, *sums = room[:-1]
                kernels.rnn_backward(
                    self.keep, W, U, self._h, self._inputs, self.lengths, *rows, window, *steps, v,
                    deltas, *sums,
                )  # fmt: skip
            else:
                kernels.gated_backward(
                    self.kind, W, U, self.coefs, self._h, self._inputs, self._hidden, self.lengths,
                    *rows, window, *steps, *room,
                )  # fmt: skip
        del self.coefs
        v, deltas, recurrents, grad_x, grad_W, grad_U, bias, b_h = room
        x = deltas if W_xh is None else grad_x[..., : met.shape[1]]
        own = W_xh
        if W_xh is not None:
            own = np.zeros_like(W_xh) if self.x is None else grad_U[:, : met.shape[1]]
        return LayerGradients(
            W_hh=grad_W[:, : self.n],
            W_xh=own,
            bias=bias,
            b_h=b_h if self.resets else bias,
            h0=v,
            x=None if self.x is None else x,
            delta=deltas,
            recurrent=recurrents,
        )

    def _room(self, width: int) -> tuple[Array, ...]:
        """Arrays for the gradients at the start, pre-activations and input, and for the sums."""
        from gradprop._kernels import gates

        B, rows, n_steps, dtype = self.n_sequences, len(self.arrays.W_hh), self.n_steps, self.dtype
        deltas = self.coefs if self.kind == gates.RNN else np.empty((n_steps, B, rows), dtype)
        recurrents = np.empty_like(deltas) if self.resets else deltas
        grad_x = self._padded(n_steps, width)
        sizes = ((B, self.n_state), (rows, self._h.shape[2]), (rows, grad_x.shape[2]), rows, rows)
        v, *sums = (np.zeros(size, dtype) for size in sizes)
        return v, deltas, recurrents, grad_x, *sums

    @property
    def resets(self) -> bool:
        """Whether a reset gate makes the gradient at W_hh h another than that at z."""
        from gradprop._kernels import gates

        return self.kind in (gates.GRU_AFTER, gates.GRU_BEFORE)


def parameter_gradients(
    arrays: Layout, h: Array, x: Array | None, hidden: Array, deltas: Array, recurrents: Array
) -> tuple[Array, Array | None, Array, Array]:
    """W_hh, W_xh, bias and b_h from some steps' gradients at the pre-activations.

    h is (m, B, n) before those steps, and `hidden` what the candidate of GRU_BEFORE met.
    """
    from gradprop._kernels import gates

    n = h.shape[-1]
    W_hh = _outer(recurrents, h)
    if arrays.kind == gates.GRU_BEFORE:
        W_hh[2 * n :] = _outer(recurrents[..., 2 * n :], hidden)
    W_xh = None
    if x is not None and arrays.W_xh is not None:
        W_xh = _outer(deltas, x)
    elif arrays.W_xh is not None:
        W_xh = np.zeros_like(arrays.W_xh)
    bias = deltas.sum(axis=(0, 1))
    return W_hh, W_xh, bias, bias if recurrents is deltas else recurrents.sum(axis=(0, 1))


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


def _padded_rows(x: Array) -> Array:
    """Rows of x (T, B, d_x) as the kernels read them."""
    from gradprop._kernels.gemm import padded

    width = padded(x.shape[-1], x.dtype)
    if width == x.shape[-1]:
        return np.require(x, requirements=["C", "A", "W"])
    out = np.zeros((*x.shape[:-1], width), dtype=x.dtype)
    out[..., : x.shape[-1]] = x
    return out


def _rows_of(array: Array) -> tuple[Array, int, int]:
    """Rows of (T, B, n) as a flat array, and how far apart they stand by step and by sequence."""
    n_steps, B, n = array.shape
    whole = np.swapaxes(array, 0, 1)
    if whole.flags.c_contiguous and whole.flags.writeable:
        return whole.reshape(-1), n, n_steps * n
    return np.require(array, requirements=["C", "A", "W"]).reshape(-1), B * n, n


def _outer(left: Array, right: Array) -> Array:
    """Sum over steps and sequences of left rightᵀ."""
    flat = np.ascontiguousarray(right).reshape(-1, right.shape[-1])
    return np.asarray(left.reshape(-1, left.shape[-1]).T @ flat)


def _codes(cell: Any) -> tuple[int, int]:
    gate = getattr(cell, "gate_activation", cell.activation)
    if gate.code is None or cell.activation.code is None:
        return -1, 0
    return gate.code, cell.activation.code


def forward_kernels(cell: Any) -> tuple[Any, Any, Any]:
    """Of a vanilla cell, an LSTM and a GRU; rebuilt if an activation is one's own."""
    from gradprop._kernels import forward as kernels
    from gradprop._kernels.activations import complement_of

    gate = getattr(cell, "gate_activation", cell.activation)
    if gate.code is not None and cell.activation.code is not None:
        return kernels.rnn_forward, kernels.lstm_forward, kernels.gru_forward
    rebuilt: tuple[Any, Any, Any] = kernels.kernels_for(
        (gate.phi, gate.dphi, complement_of(gate.code, gate.phi)),
        (cell.activation.phi, cell.activation.dphi),
    )
    return rebuilt
