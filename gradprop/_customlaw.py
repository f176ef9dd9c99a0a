"""Law of a cell made of one's own step."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradprop._kernels import custom as kernels
from gradprop._laws import Array, Float, Int
from gradprop.blocks import Block, dense_block
from gradprop.cells._derivatives import RELATIVE, as_text, probe, step_jacobians
from gradprop.cells.custom import CustomCell


class CustomLaw:
    """The tape is x, nan where padded; coefficients are the Jacobians themselves."""

    structure = "dense"
    tape_width = 0
    """That of x, which a law does not know; only a stack asks."""

    def __init__(
        self, cell: CustomCell, dtype: np.dtype[Any], batch_shape: tuple[int, ...]
    ) -> None:
        self.cell, self.dtype, self.batch_shape = cell, dtype, batch_shape
        self.n_state = cell.n
        self.z_columns = np.empty(0, dtype=np.int64)
        self.coef_width = cell.n**2

    def advance(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> tuple[Array, Array]:
        """Take steps; one thread, for what a step does inside is not known."""
        drive = self._inputs(x, n_steps)
        running = np.flatnonzero(n_valid > first)
        if first == 0 and len(running):
            r = int(running[0])
            probe(self.cell, state[r], drive[r if len(drive) > 1 else 0, 0])
        states = np.empty((len(state), n_steps, self.n_state), dtype=self.dtype)
        tapes = np.empty((len(state), n_steps, drive.shape[-1]), dtype=self.dtype)
        run = kernels.orbit_kernel(self.cell.step)
        if not run(drive, first, n_valid, state, states, tapes):
            raise ValueError(f"`step` must return shape ({self.cell.n},) at every step.")
        return states, tapes

    def _inputs(self, x: Array | None, n_steps: int) -> Array:
        """Inputs of some steps, shape (R or 1, m, d)."""
        if x is None:
            return np.empty((1, n_steps, 0), dtype=self.dtype)
        with np.errstate(over="ignore"):
            x = x.astype(self.dtype)
        own = self.batch_shape if x.ndim > 2 else (1,)
        return np.ascontiguousarray(np.broadcast_to(x, (*own, *x.shape[-2:]))).reshape(
            int(np.prod(own, dtype=np.int64)), *x.shape[-2:]
        )

    def coefficients(self, before: Array, states: Array, tapes: Array) -> Float:
        """Jacobians (R, m, n n) in float64 at the orbit's states, upcast exactly; nan if padded."""
        previous = np.concatenate([before[:, None], states[:, :-1]], axis=1)
        R, m, n = previous.shape
        h, x = (
            np.ascontiguousarray(a, dtype=np.float64).reshape(R * m, a.shape[-1])
            for a in (previous, tapes)
        )
        J, errors = step_jacobians(self.cell, h, x)
        taken = np.isfinite(np.concatenate([h, x, states.reshape(R * m, n)], axis=1)).all(axis=1)
        _refuse_doubtful(h[taken], J[taken], errors[taken])
        return J.reshape(R, m, n * n)

    def block(self, coefs: Float, n_valid: Int, first: int) -> Block:
        """Step Jacobians; I past the length."""
        R, m, _ = coefs.shape
        J = coefs.reshape(R, m, self.n_state, self.n_state).copy()
        J[first + np.arange(m) >= n_valid[:, None]] = np.eye(self.n_state)
        return dense_block(J, first)


def _refuse_doubtful(h: Float, J: Float, errors: Float) -> None:
    size, error = np.abs(J).max(axis=(1, 2)), errors.max(axis=(1, 2))
    known = np.isfinite(size) & (error <= RELATIVE * size)
    if not known.all():
        k = int(np.argmin(known))
        raise ValueError(
            f"`step` must have a derivative that can be told to {RELATIVE:g} of its largest entry; "
            f"at h = {as_text(h[k])} that entry is {size[k]:.3g} and the error of differences "
            f"{error[k]:.3g}: pass `jacobian`."
        )
