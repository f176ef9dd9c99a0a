"""Recipe of an orbit: checked input, weights laid out for the kernels, steps on demand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._threads import replica_slices, spread
from gradprop.activations import Activation
from gradprop.blocks import Block, axis_roles, row_scaled_block, scaled_rows, who_uses
from gradprop.cells import RNN
from gradprop.environment import single_threaded_blas

Array = NDArray[Any]

CHUNK_FLOATS = 2**20
"""Floats of the states taken by one call (8 MiB): Ctrl-C lives between calls."""


class Orbit:
    """Recipe of an orbit: everything is checked and laid out, nothing is computed yet.

    Replicas are flat inside: R of them; `batch_shape` and `roles` say what they were.
    """

    def __init__(
        self,
        cell: RNN,
        x: ArrayLike | None,
        h0: ArrayLike | None,
        n_steps: int | None,
        lengths: ArrayLike | None,
        rng: Any,
        dtype: Any,
    ) -> None:
        if not isinstance(cell, RNN):
            raise TypeError(
                f"`cell` must be a recurrent cell such as RNN; got {type(cell).__name__}."
            )
        self.cell = cell
        self.dtype = _orbit_dtype(cell, dtype)
        self.x = None if x is None else _check_input(cell, x)
        self.n_steps = _check_n_steps(self.x, n_steps)
        start = _check_start(cell, h0, self.dtype)
        lengths = None if lengths is None else _checks.plain_array("lengths", lengths)
        self.batch_shape, self.roles = _batch(cell, self.x, start, lengths)
        self.n_replicas = int(np.prod(self.batch_shape, dtype=np.int64))
        if start is None and self.x is None:
            start = _checks.generator("rng", rng).standard_normal((*self.batch_shape, cell.n))
        self.start = self._flat(np.zeros(cell.n) if start is None else start, 1)
        self.lengths = _check_lengths(lengths, self.batch_shape, self.n_steps)
        if self.x is not None:
            _check_finite_input(self.x, self.lengths.reshape(self.batch_shape))
        self._lay_out_weights()

    def _flat(self, array: Array, core: int) -> Array:
        """Broadcast over all replicas, flatten them, cast to the orbit's dtype."""
        shape = (*self.batch_shape, *array.shape[array.ndim - core :])
        full = np.broadcast_to(array, shape)
        return np.array(full.reshape(-1, *full.shape[full.ndim - core :]), dtype=self.dtype)

    def _lay_out_weights(self) -> None:
        cell = self.cell
        for name in ("W_hh", "W_xh", "b"):
            array = getattr(cell, name)
            if array is not None:
                _check_range(name, array, self.dtype)
        weights = cell.W_hh.astype(self.dtype)
        self.W = np.ascontiguousarray(weights.reshape(-1, cell.n, cell.n))
        self.which = who_uses(weights.shape[:-2], self.batch_shape)
        self.normal = scaled_rows(self.W.astype(np.float64))

    def moved(self, ulps: int) -> Orbit:
        """The same orbit from a start whose entries lie `ulps` floats further from zero."""
        other = copy.copy(self)
        start = self.start
        away = np.where(start < 0, -np.inf, np.inf).astype(self.dtype)
        with np.errstate(over="ignore"):
            for _ in range(ulps):
                start = np.nextafter(start, away)
        other.start = start
        return other

    @property
    def chunk(self) -> int:
        """Steps taken by one call, and between two checkpoints."""
        return int(np.clip(CHUNK_FLOATS // max(self.n_replicas * self.cell.n, 1), 1, 4096))

    def currents(self, start: int, stop: int) -> Array:
        """W_xh x_t + b of steps start .. stop - 1, shape (R or 1, m, n).

        One matrix-vector product a step: a wide product rounds differently for another m, and an
        orbit taken up from a checkpoint would then be another orbit.
        """
        cell, m = self.cell, stop - start
        total = np.zeros((m, cell.n), dtype=self.dtype)
        # what overflows here, or stands in padding, is caught or skipped step by step
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            if self.x is not None:
                x = self.x[..., start:stop, :].astype(self.dtype)
                if cell.W_xh is not None:
                    W_xh = cell.W_xh.astype(self.dtype)[..., None, :, :]
                    x = np.matmul(W_xh, x[..., None])[..., 0]
                total = total + x
            if cell.b is not None:
                total = total + cell.b.astype(self.dtype)[..., None, :]
        if total.shape[:-2] in ((), (1,)):
            return np.ascontiguousarray(total.reshape(1, m, cell.n))
        return self._flat(total, 2)

    def advance(
        self, h: Array, n_valid: NDArray[np.int64], start: int, stop: int
    ) -> tuple[Array, Array]:
        """Take steps start .. stop - 1 from h (R, n), which is carried on; lowers `n_valid`.

        Returns states and pre-activations, each (R, m, n).
        """
        run, _ = _kernels_of(self.cell.activation)
        current = self.currents(start, stop)
        states = np.empty((self.n_replicas, stop - start, self.cell.n), dtype=self.dtype)
        zs = np.empty_like(states)

        def work(part: slice) -> None:
            drive = current[part] if len(current) > 1 else current
            code = self.cell.activation.code or 0
            run(
                code, self.W, self.which[part], drive, self.cell.leak, start,
                n_valid[part], h[part], states[part], zs[part],
            )  # fmt: skip

        spread(work, replica_slices(self.n_replicas, self.n_replicas))
        return states, zs

    def derivatives(self, zs: Array) -> NDArray[np.float64]:
        """phi'(z) in the orbit's dtype, upcast exactly; 0 where z is nan (padding)."""
        _, derivatives = _kernels_of(self.cell.activation)
        flat = np.ascontiguousarray(zs).ravel()
        out = np.empty_like(flat)
        derivatives(self.cell.activation.code or 0, flat, out)
        return np.nan_to_num(out.astype(np.float64), nan=0.0).reshape(zs.shape)

    def block_of(self, dphi: NDArray[np.float64], first: int) -> Block:
        """Step Jacobians for given phi'(z), shape (R, m, n)."""
        matrices, rows = self.normal
        return row_scaled_block(matrices, rows, self.which, dphi, self.cell.leak, first)


def _kernels_of(activation: Activation) -> tuple[Any, Any]:
    from gradprop._kernels import cells as kernels

    if activation.code is not None:
        return kernels.rnn_steps, kernels.derivatives
    run, derivatives = kernels.kernels_for(activation.phi, activation.dphi)
    return run, derivatives


def _orbit_dtype(cell: RNN, dtype: Any) -> np.dtype[Any]:
    try:
        chosen = cell.dtype if dtype is None else np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"`dtype` must be float32 or float64; got {dtype!r}.") from error
    if chosen not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"`dtype` must be float32 or float64; got {chosen}.")
    return chosen


def _check_input(cell: RNN, x: ArrayLike) -> Array:
    array = _checks.real_array("x", x, keep_float32=True, finite=False)
    if array.ndim == 1:
        array = array[:, None]
    width = cell.n if cell.W_xh is None else cell.W_xh.shape[-1]
    if array.ndim < 2 or array.shape[-1] != width:
        raise ValueError(
            f"`x` must have shape (..., T, {width}) for this cell; got shape {np.shape(x)}."
        )
    if 0 in array.shape[:-2]:
        raise ValueError(f"`x` must not be empty; got shape {array.shape}.")
    return array


def _check_finite_input(x: Array, lengths: NDArray[np.int64]) -> None:
    """Padding may hold anything; inside a sequence every entry must be finite."""
    bad = ~np.isfinite(x).all(axis=-1)
    if not bad.any():
        return
    step = np.arange(x.shape[-2])
    inside = np.broadcast_to(bad, (*lengths.shape, len(step))) & (step < lengths[..., None])
    if inside.any():
        index = tuple(int(i) for i in np.argwhere(inside)[0])
        raise ValueError(f"`x` must be finite; it is not at step {index[-1] + 1}, index {index}.")


def _check_n_steps(x: Array | None, n_steps: int | None) -> int:
    if x is None:
        if n_steps is None:
            raise ValueError("`n_steps` must be given when `x` is None; got None.")
        return _checks.integer("n_steps", n_steps, minimum=0, maximum=2**53)
    longest = x.shape[-2]
    return (
        longest
        if n_steps is None
        else _checks.integer("n_steps", n_steps, minimum=0, maximum=longest)
    )


def _check_start(cell: RNN, h0: ArrayLike | None, dtype: np.dtype[Any]) -> Array | None:
    if h0 is None:
        return None
    start = _checks.real_array("h0", h0, shape=(cell.n,), keep_float32=True)
    _check_range("h0", start, dtype)
    return start


def _check_range(name: str, array: Array, dtype: np.dtype[Any]) -> None:
    if np.abs(array).max() > np.finfo(dtype).max:
        raise ValueError(f"`{name}` must lie in the range of {dtype}; it overflows.")


def _batch(
    cell: RNN, x: Array | None, start: Array | None, lengths: ArrayLike | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Replica axes and the role of each: what varies along it."""
    parts = {"weights": cell.batch_shape}
    if x is not None:
        parts["inputs"] = x.shape[:-2]
    if lengths is not None:
        parts["lengths"] = np.shape(lengths)
    if start is not None:
        parts["starts"] = start.shape[:-1]
    shape = _checks.broadcast_shapes(**parts)
    return shape, axis_roles(shape, {k: v for k, v in parts.items() if k != "lengths"})


def _check_lengths(
    lengths: ArrayLike | None, batch_shape: tuple[int, ...], n_steps: int
) -> NDArray[np.int64]:
    if lengths is None:
        return np.full(int(np.prod(batch_shape, dtype=np.int64)), n_steps, dtype=np.int64)
    array = np.asarray(lengths)
    flat = _checks.integer_array("lengths", array.ravel(), minimum=0, maximum=n_steps)
    return np.array(np.broadcast_to(flat.reshape(array.shape), batch_shape), dtype=np.int64).ravel()
