"""Laws of single layers: a cell's weights laid out for the kernels, and what a block of steps does.

A tape holds what each step saw, pre-activations first; coefficients, in float64, are all that the
step's Jacobian needs beside the weights.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gradprop._layouts import flat_networks, layout
from gradprop._threads import replica_slices, spread
from gradprop.activations import Activation
from gradprop.blocks import Block, dense_block, row_scaled_block, scaled_rows
from gradprop.cells.rnn import RNN
from gradprop.environment import single_threaded_blas

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]


class Law(Protocol):
    """How the flat replicas of one cell move on."""

    structure: str
    n_state: int
    z_columns: Int
    tape_width: int
    coef_width: int

    def advance(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> tuple[Array, Array]:
        """States and tapes (R, m, .) of steps from `state` (R, s), carried on; lowers n_valid."""

    def coefficients(self, before: Array, states: Array, tapes: Array) -> Float:
        """Coefficients (R, m, q), from the state before the block, the states and the tapes."""

    def block(self, coefs: Float, n_valid: Int, first: int) -> Block:
        """Step Jacobians for given coefficients."""


class LayerLaw(Law, Protocol):
    """A law that can stand in a stack."""

    def form(self, coefs: Float, n_valid: Int, first: int, offset: int, J: Float) -> None:
        """Write this layer's Jacobians into J (R, m, s, s) at `offset`; I past the length."""

    def couple(self, coefs: Float, n_valid: Int, first: int, place: Place, J: Float) -> None:
        """Write how the states of the layers below move this one."""


class Place(NamedTuple):
    """Where a layer stands in a stack: row of the h below, columns below, its own first row."""

    source: int
    width: int
    offset: int


class _WeightLaw:
    """What the laws of vanilla and gated cells share."""

    def __init__(self, cell: Any, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> None:
        self.cell, self.dtype, self.batch_shape = cell, dtype, batch_shape
        self.arrays = layout(cell, dtype)
        self.kind = self.arrays.kind
        self.W, self.which = flat_networks(self.arrays.W_hh, 2, batch_shape)
        self.W.flags.writeable = False  # as the cell's own is: one type for the kernels
        self.keep = 1.0 - getattr(cell, "leak", 1.0)

    def currents(self, x: Array | None, n_steps: int) -> Array:
        """W_xh x_t + bias of some steps, shape (R or 1, m, rows).

        One matrix-vector product a step: a wide product rounds differently for another m, and an
        orbit taken up from a checkpoint would then be another orbit.
        """
        total = np.zeros((n_steps, self.W.shape[1]), dtype=self.dtype)
        # what overflows here, or stands in padding, is caught or skipped step by step
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            if x is not None:
                x = x.astype(self.dtype)
                if self.arrays.W_xh is not None:
                    x = np.matmul(self.arrays.W_xh[..., None, :, :], x[..., None])[..., 0]
                total = total + x
            if self.arrays.bias is not None:
                total = total + self.arrays.bias[..., None, :]
        if total.shape[:-2] in ((), (1,)):
            return np.ascontiguousarray(total.reshape(1, *total.shape[-2:]))
        full = np.broadcast_to(total, (*self.batch_shape, *total.shape[-2:]))
        # a view of what is whole already would be read-only, another type for the kernels
        return np.require(full, requirements=("C", "W")).reshape(-1, *total.shape[-2:])

    def form(self, coefs: Float, n_valid: Int, first: int, offset: int, J: Float) -> None:
        """Write this layer's Jacobians into J (R, m, s, s) at `offset`; I past the length."""
        from gradprop._kernels import gated

        W = self.W.astype(np.float64)
        gated.form_own(self.kind, self.keep, W, self.which, coefs, n_valid, first, offset, J)

    def couple(self, coefs: Float, n_valid: Int, first: int, place: Place, J: Float) -> None:
        """Write how the states of the layers below move this one."""
        from gradprop._kernels import gated

        W_xh = self.arrays.W_xh
        if W_xh is None:
            W_xh = np.eye(self.cell.n)
        inputs, which_input = flat_networks(W_xh.astype(np.float64), 2, self.batch_shape)
        gated.form_coupling(
            self.kind, self.keep, self.W.astype(np.float64), self.which, inputs, which_input,
            coefs, n_valid, first, *place, J,
        )  # fmt: skip


class RNNLaw(_WeightLaw):
    """Vanilla cells: J = (1 - leak) I + leak diag(phi') W; coefficients are leak phi'."""

    structure = "row_scaled"

    def __init__(self, cell: RNN, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> None:
        super().__init__(cell, dtype, batch_shape)
        self.n_state = self.tape_width = self.coef_width = cell.n
        self.z_columns = np.arange(cell.n)

    @functools.cached_property
    def normal(self) -> tuple[Float, Int]:
        """Normal form of W, which only Jacobians need."""
        return scaled_rows(self.W.astype(np.float64, copy=False))

    def advance(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> tuple[Array, Array]:
        """Take steps; the tape is z."""
        states = np.empty((len(state), n_steps, self.n_state), dtype=self.dtype)
        zs = np.empty_like(states)
        self._run(0, x, first, n_valid, state, states, zs)
        return states, zs

    def slopes(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> Float:
        """Take the same steps, of which only the coefficients are kept."""
        slopes = np.empty((len(state), n_steps, self.n_state))
        self._run(1, x, first, n_valid, state, slopes)
        return slopes

    def _run(
        self, kernel: int, x: Array | None, first: int, n_valid: Int, state: Array, *out: Array
    ) -> None:
        """Fill arrays (R, m, n) by one of the kernels of steps, in threads."""
        run = _rnn_kernels(self.cell.activation)[kernel]
        code, leak, R = self.cell.activation.code or 0, self.cell.leak, len(state)
        drive = self.currents(x, out[0].shape[1])

        def work(part: slice) -> None:
            current = drive[part] if len(drive) > 1 else drive
            run(
                code, self.W, self.which[part], current, leak, first,
                n_valid[part], state[part], *(array[part] for array in out),
            )  # fmt: skip

        spread(work, replica_slices(R, R))

    def coefficients(self, before: Array, states: Array, tapes: Array) -> Float:
        """phi'(z) in the orbit's dtype, upcast exactly; 0 where z is nan (padding)."""
        _, _, derivatives = _rnn_kernels(self.cell.activation)
        flat = np.ascontiguousarray(tapes).ravel()
        out = np.empty_like(flat)
        derivatives(self.cell.activation.code or 0, flat, out)
        coefs = out.astype(np.float64, copy=False)
        if np.isnan(coefs.sum()):
            np.copyto(coefs, 0.0, where=np.isnan(coefs))
        return coefs.reshape(tapes.shape)

    def block(self, coefs: Float, n_valid: Int, first: int) -> Block:
        """Step Jacobians for given phi'(z), shape (R, m, n)."""
        matrices, rows = self.normal
        return row_scaled_block(matrices, rows, self.which, coefs, self.cell.leak, first)

    def form(self, coefs: Float, n_valid: Int, first: int, offset: int, J: Float) -> None:
        """Write this layer's Jacobians into J (R, m, s, s) at `offset`; I past the length."""
        super().form(self.cell.leak * coefs, n_valid, first, offset, J)

    def couple(self, coefs: Float, n_valid: Int, first: int, place: Place, J: Float) -> None:
        """Write how the states of the layers below move this one."""
        super().couple(self.cell.leak * coefs, n_valid, first, place, J)


class GatedLaw(_WeightLaw):
    """LSTM and GRU: coefficients from gates, dense Jacobians formed a block at a time."""

    structure = "dense"

    def __init__(self, cell: Any, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> None:
        from gradprop._kernels import gates

        super().__init__(cell, dtype, batch_shape)
        self.b_h, self.which_b = flat_networks(self.arrays.b_h, 1, batch_shape)
        self.n_state = cell.n_state
        self.z_columns = np.arange(gates.GATE_ROWS[self.kind] * cell.n)
        self.tape_width = gates.TAPE_ROWS[self.kind] * cell.n
        self.coef_width = gates.COEF_ROWS[self.kind] * cell.n

    def advance(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> tuple[Array, Array]:
        """Take steps; a tape is z, and for a GRU with reset after also W_hn h + b_hn."""
        run, _, gate, code = _gated_kernels(self.cell.gate_activation, self.cell.activation)
        drive, R = self.currents(x, n_steps), len(state)
        states = np.empty((R, n_steps, self.n_state), dtype=self.dtype)
        tapes = np.empty((R, n_steps, self.tape_width), dtype=self.dtype)

        def work(part: slice) -> None:
            current = drive[part] if len(drive) > 1 else drive
            run(
                self.kind, gate, code, self.W, self.which[part], current, self.b_h,
                self.which_b[part], first, n_valid[part], state[part], states[part], tapes[part],
            )  # fmt: skip

        spread(work, replica_slices(R, R))
        return states, tapes

    def coefficients(self, before: Array, states: Array, tapes: Array) -> Float:
        """Coefficients in float64, from the orbit upcast exactly; nan where padded."""
        _, run, gate, code = _gated_kernels(self.cell.gate_activation, self.cell.activation)
        previous = np.concatenate([before[:, None], states[:, :-1]], axis=1)
        tape, start, end = (
            np.ascontiguousarray(a, dtype=np.float64).reshape(-1, a.shape[-1])
            for a in (tapes, previous, states)
        )
        coefs = np.empty((*tapes.shape[:2], self.coef_width))
        run(self.kind, gate, code, 1.0, tape, start, end, coefs.reshape(-1, self.coef_width))
        return coefs

    def block(self, coefs: Float, n_valid: Int, first: int) -> Block:
        """Step Jacobians, formed from the gates."""
        J = np.zeros((*coefs.shape[:2], self.n_state, self.n_state))
        self.form(coefs, n_valid, first, 0, J)
        return dense_block(J, first)


def _rnn_kernels(activation: Activation) -> tuple[Any, Any, Any]:
    from gradprop._kernels import cells as kernels

    if activation.code is not None:
        return kernels.rnn_steps, kernels.rnn_slopes, kernels.derivatives
    run, slopes, derivatives = kernels.kernels_for(activation.phi, activation.dphi)
    return run, slopes, derivatives


def _gated_kernels(gate: Activation, own: Activation) -> tuple[Any, Any, int, int]:
    """Kernels and the codes to call them with; rebuilt if an activation is one's own."""
    from gradprop._kernels import gated as kernels
    from gradprop._kernels.activations import complement_of

    if gate.code is not None and own.code is not None:
        return kernels.gated_steps, kernels.slope_steps, gate.code, own.code
    of_gate = (gate.phi, gate.dphi, complement_of(gate.code, gate.phi))
    run, slopes = kernels.kernels_for(of_gate, (own.phi, own.dphi))
    return run, slopes, -1, 0
