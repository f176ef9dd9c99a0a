"""Recipe of an orbit: checked input, a law laid out for the kernels, steps on demand."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._laws import Law, RNNLaw
from gradprop._stacklaw import law_of
from gradprop.blocks import axis_roles
from gradprop.cells.base import Cell

Array = NDArray[Any]

CHUNK_FLOATS = 2**20
"""Floats of coefficients made by one call (8 MiB): Ctrl-C lives between calls."""


class Orbit:
    """Recipe of an orbit: everything is checked and laid out, nothing is computed yet.

    Replicas are flat inside: R of them; `batch_shape` and `roles` say what they were. An orbit that
    does not outlive a call need not have an `own` copy of x, which it then leaves to be checked.
    """

    def __init__(
        self,
        cell: Cell,
        x: ArrayLike | None,
        h0: ArrayLike | None,
        n_steps: int | None,
        lengths: ArrayLike | None,
        rng: Any,
        dtype: Any,
        *,
        own: bool = True,
    ) -> None:
        if not isinstance(cell, Cell):
            raise TypeError(
                f"`cell` must be a recurrent cell such as RNN; got {type(cell).__name__}."
            )
        self.cell = cell
        self.dtype = _orbit_dtype(cell, dtype)
        self.x = None if x is None else _check_input(cell, x, own)
        self.n_steps = _check_n_steps(self.x, n_steps)
        start = _check_start(cell, h0, self.dtype)
        lengths = None if lengths is None else _checks.plain_array("lengths", lengths)
        self.batch_shape, self.roles = _batch(cell, self.x, start, lengths)
        self.n_replicas = int(np.prod(self.batch_shape, dtype=np.int64))
        if cell.dtype.itemsize > self.dtype.itemsize:
            for name, array in cell.arrays().items():
                _check_range(name, array, self.dtype)
        if start is None and self.x is None:
            shape = (*self.batch_shape, cell.n_state)
            start = _checks.generator("rng", rng).standard_normal(shape)
        self.start = (
            np.zeros((self.n_replicas, cell.n_state), self.dtype)
            if start is None
            else self._flat(start)
        )
        self.lengths = _check_lengths(lengths, self.batch_shape, self.n_steps)
        if own:
            self.check_input()

    def check_input(self) -> None:
        """Padding may hold anything; inside a sequence every entry must be finite."""
        if self.x is not None:
            _check_finite_input(self.x, self.lengths.reshape(self.batch_shape))

    @functools.cached_property
    def law(self) -> Law:
        """How replicas move on, and their Jacobians; gradients through time need neither."""
        return law_of(self.cell, self.dtype, self.batch_shape)

    def _flat(self, start: Array) -> Array:
        """Broadcast over all replicas, flatten them, cast to the orbit's dtype."""
        full = np.broadcast_to(start, (*self.batch_shape, start.shape[-1]))
        return np.array(full.reshape(-1, full.shape[-1]), dtype=self.dtype)

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
        width = max(self.law.n_state, self.law.coef_width)
        return int(np.clip(CHUNK_FLOATS // max(self.n_replicas * width, 1), 1, 4096))

    def advance(
        self, state: Array, n_valid: NDArray[np.int64], start: int, stop: int
    ) -> tuple[Array, Array]:
        """Take steps start .. stop - 1 from `state` (R, s), which is carried on; lowers `n_valid`.

        Returns states (R, m, s) and tapes (R, m, q).
        """
        x = None if self.x is None else self.x[..., start:stop, :]
        return self.law.advance(x, stop - start, start, n_valid, state)

    def coefficients(
        self, state: Array, n_valid: NDArray[np.int64], start: int, stop: int
    ) -> NDArray[np.float64]:
        """Take the same steps; returns what their Jacobians need beside the weights, (R, m, q)."""
        if isinstance(self.law, RNNLaw):
            x = None if self.x is None else self.x[..., start:stop, :]
            return self.law.slopes(x, stop - start, start, n_valid, state)
        before = state.copy()
        states, tapes = self.advance(state, n_valid, start, stop)
        return self.law.coefficients(before, states, tapes)


def _orbit_dtype(cell: Cell, dtype: Any) -> np.dtype[Any]:
    try:
        chosen = cell.dtype if dtype is None else np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"`dtype` must be float32 or float64; got {dtype!r}.") from error
    if chosen not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"`dtype` must be float32 or float64; got {chosen}.")
    return chosen


def _check_input(cell: Cell, x: ArrayLike, own: bool) -> Array:
    array = _checks.real_array("x", x, keep_float32=True, finite=False, own=own)
    if array.ndim == 1:
        array = array[:, None]
    width = cell.d_x
    if array.ndim < 2 or width not in (None, array.shape[-1]):
        raise ValueError(
            f"`x` must have shape (..., T, {width}) for this cell; got shape {np.shape(x)}."
        )
    if 0 in array.shape[:-2]:
        raise ValueError(f"`x` must not be empty; got shape {array.shape}.")
    return array


def _check_finite_input(x: Array, lengths: NDArray[np.int64]) -> None:
    finite = np.isfinite(x)
    if finite.all():
        return
    bad = ~finite.all(axis=-1)
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


def _check_start(cell: Cell, h0: ArrayLike | None, dtype: np.dtype[Any]) -> Array | None:
    if h0 is None:
        return None
    start = _checks.real_array("h0", h0, shape=(cell.n_state,), keep_float32=True)
    _check_range("h0", start, dtype)
    return start


def _check_range(name: str, array: Array, dtype: np.dtype[Any]) -> None:
    if max(array.max(), -array.min()) > np.finfo(dtype).max:
        raise ValueError(f"`{name}` must lie in the range of {dtype}; it overflows.")


def _batch(
    cell: Cell, x: Array | None, start: Array | None, lengths: ArrayLike | None
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
