"""A checked BPTT problem: a cell, its sequences, and the loss gradients at its outputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._layouts import Layout, layout
from gradprop.blocks import who_uses
from gradprop.cells.base import Cell, GatedCell, WeightedCell
from gradprop.cells.composite import Bidirectional, Stacked
from gradprop.cells.rnn import RNN
from gradprop.environment import single_threaded_blas
from gradprop.gradients._layer import LayerGradients, LayerRun, by_name
from gradprop.orbit import Orbit

Array = NDArray[Any]
Int = NDArray[np.int64]


class Problem:
    """Sequences of a cell of one direction, flat and time-major, grouped by network.

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
    x, grad_h, h0, lengths : array_like
        As :func:`gradprop.backward`.
    late : bool, default: False
        Let `confirm` find what is not finite, where it can.
    """

    def __init__(
        self, cell: Cell, x: Any, grad_h: Any, h0: Any, lengths: Any, *, late: bool = False
    ) -> None:
        self.layers = layers_of(cell)
        self._late = late and lengths is None and self.layers[0].W_xh is not None
        for given in (x, grad_h):  # no cast, which may overflow
            same = isinstance(given, np.ndarray) and given.dtype == cell.dtype
            self._late = self._late and same
        grads = None if callable(grad_h) else _loss_gradient(grad_h, cell, finite=not self._late)
        if x is None and (h0 is None or grads is None):
            raise ValueError("`x` None needs `h0`, and an array for `grad_h`.")
        n_steps = grads.shape[-2] if x is None and grads is not None else None
        self.orbit = Orbit(cell, x, h0, n_steps, lengths, None, None, own=False)
        if not self._late:
            self.orbit.check_input()
        self.cell, self.dtype = cell, self.orbit.dtype
        self.n_steps, self.lengths = self.orbit.n_steps, self.orbit.lengths
        self.batch_shape, self.roles = self.orbit.batch_shape, self.orbit.roles
        self._loss = grad_h
        self.grad_h = None if grads is None else self._flat_grads(grads)
        self.networks = cell.batch_shape
        self.which = who_uses(self.networks, self.batch_shape)
        if self.grad_h is None and int(np.prod(self.networks)) > 1:
            raise ValueError(
                "`grad_h` must be an array for a cell with replica axes; got a callable."
            )

    def _flat_grads(self, grads: Array) -> Array:
        """Loss gradients (T, R, n), a view, checked to be zero in padded steps."""
        shape = (*self.batch_shape, self.n_steps, self.cell.n)
        if grads.shape != shape:
            raise ValueError(
                f"`grad_h` must have shape {shape}, one entry per sequence, step and unit; got "
                f"{grads.shape}."
            )
        self._check_range(grads)
        own = np.asarray(grads, dtype=self.dtype).reshape(len(self.lengths), *shape[-2:])
        flat = own.transpose(1, 0, 2)
        padded = self._padded
        if padded is not None and flat[padded].any():
            step, replica = np.argwhere(padded & flat.any(axis=-1))[0]
            index = tuple(int(i) for i in np.unravel_index(replica, self.batch_shape))
            raise ValueError(
                f"`grad_h` must be zero in padded steps; it is not at step {step + 1} of sequence "
                f"{index}, which has length {self.lengths[replica]}."
            )
        return flat

    @functools.cached_property
    def _padded(self) -> NDArray[np.bool_] | None:
        """Padded steps (T, R), if there are any."""
        if (self.lengths == self.n_steps).all():
            return None
        return np.asarray(np.arange(self.n_steps)[:, None] >= self.lengths)

    def _check_range(self, grads: Array) -> None:
        """Refuse a cast in which the largest entry overflows, or loses digits to underflow."""
        if grads.dtype == self.dtype:
            return
        top, info = float(np.abs(grads).max(initial=0.0)), np.finfo(self.dtype)
        if top > float(info.max) or 0 < top < float(info.tiny):
            raise ValueError(
                f"`grad_h` must lie in the range of {self.dtype}, that of the cell; its largest "
                f"entry is {top:.3g}: scale the loss, or use a cell in float64."
            )

    def loss_gradient(self, runs: list[LayerRun], rows: Int) -> Array:
        """Loss gradients (T, B, n) of some replicas: those given, or the callable's at their h."""
        if self.grad_h is not None:
            return _of_replicas(self.grad_h, rows)
        with single_threaded_blas():
            given = self._loss(self.batch(runs[-1].h).copy())
        grads = _loss_gradient(given, self.cell)
        return self._flat_grads(grads)

    @functools.cached_property
    def x(self) -> Array | None:
        """Input (T, R, d_x), zero in padded steps."""
        x = self.orbit.x
        if x is None:
            return None
        shape = (*self.batch_shape, *x.shape[-2:])
        full = x if x.shape == shape else np.broadcast_to(x, shape)
        flat = full.reshape(len(self.lengths), *x.shape[-2:]).transpose(1, 0, 2)
        with np.errstate(over="ignore"):
            cast = np.array(flat, dtype=self.dtype, order="C")
        if self._padded is not None:
            cast[self._padded] = 0.0
        # inside a sequence the orbit has checked what it was given
        if x.dtype != self.dtype and not np.isfinite(cast).all():
            raise ValueError(f"`x` must lie in the range of {self.dtype}; it overflows.")
        return cast

    def groups(self) -> Iterator[tuple[int, Int]]:
        """Networks, and the flat replicas that use each."""
        for network in range(int(np.prod(self.networks, dtype=np.int64))):
            yield network, np.flatnonzero(self.which == network)

    def run(self, network: int, rows: Int) -> list[LayerRun]:
        """Run some replicas of one network; raises where an orbit overflows."""
        runs: list[LayerRun] = []
        x = None if self.x is None else _of_replicas(self.x, rows)
        offset, lengths = 0, self.lengths[rows]
        for layer in self.layers:
            start = np.ascontiguousarray(self.orbit.start[rows, offset : offset + layer.n_state])
            arrays = one_network(layer, self.dtype, self.networks, network)
            with np.errstate(over="ignore", invalid="ignore"):
                runs.append(LayerRun(layer, arrays, x, start, lengths, self.n_steps))
            if not self._late:
                self._check_finite(runs[-1].finite(), rows)
            x = runs[-1].h
            offset += layer.n_state
        return runs

    def confirm(self, runs: list[LayerRun], layers: list[LayerGradients], rows: Int) -> None:
        """Refuse what is not finite: checks that were put off, for the price of a few sums.

        Every entry of the input, of the states and of the loss gradients is a factor of a term of
        some sum over steps, and makes it nan or infinite; if all sums are finite, so are they.
        """
        sums = [a for own in layers for a in (own.W_hh, own.W_xh, own.bias) if a is not None]
        sums += [last for run in runs for last in run.last]
        if not self._late or all(np.isfinite(a).all() for a in sums):
            return
        assert self.grad_h is not None
        _checks.check_finite("grad_h", self.batch(self.grad_h))
        self.orbit.check_input()
        for run in runs:
            self._check_finite(run.finite(), rows)

    def _check_finite(self, finite: NDArray[np.bool_], rows: Int) -> None:
        if not finite.all():
            step, row = np.argwhere(~finite)[0]
            index = tuple(int(i) for i in np.unravel_index(rows[row], self.batch_shape))
            raise ValueError(
                f"the orbit must stay finite; it overflows {self.dtype} at step {step} of sequence "
                f"{index}: shorten it, or lower the weights."
            )

    def batch(self, flat: Array) -> Array:
        """Time-major flat replicas (T, R, .) back to (..., T, .): a view."""
        return flat.transpose(1, 0, 2).reshape(*self.batch_shape, *flat.shape[::2])


def _of_replicas(array: Array, rows: Int) -> Array:
    """Some replicas of (T, R, .), without a copy if they are all."""
    return array if len(rows) == array.shape[1] else np.ascontiguousarray(array[:, rows])


def _loss_gradient(grad_h: ArrayLike, cell: Cell, *, finite: bool = True) -> Array:
    # read within the call, never written to: no copy
    shape = ("T", cell.n)
    return _checks.real_array(
        "grad_h", grad_h, shape=shape, keep_float32=True, finite=finite, own=False
    )


def layers_of(cell: Cell) -> list[WeightedCell]:
    """Layers bottom-up; TypeError for cells whose parameters are not known."""
    layers = cell.cells if isinstance(cell, Stacked) else (cell,)
    known: list[WeightedCell] = [layer for layer in layers if isinstance(layer, RNN | GatedCell)]
    if len(known) != len(layers) or isinstance(cell, Bidirectional):
        raise TypeError(
            "`cell` must be made of RNN, LSTM and GRU, whose parameters are known; got "
            f"{type(cell).__name__}."
        )
    return known


def layer_prefixes(cell: Cell) -> list[str]:
    """Beginning of each layer's names: none for a single layer."""
    return [f"{i}." for i in range(len(cell.cells))] if isinstance(cell, Stacked) else [""]


def one_network(layer: WeightedCell, dtype: Any, networks: tuple[int, ...], network: int) -> Layout:
    """The kernels' arrays of one of the networks that a cell's replica axes hold."""
    arrays = layout(layer, dtype)
    index = np.unravel_index(network, networks)

    def pick(array: Array | None, core: int) -> Array | None:
        if array is None or not networks:
            return array
        full = np.broadcast_to(array, (*networks, *array.shape[array.ndim - core :]))
        return np.ascontiguousarray(full[index])

    W_hh, b_h = pick(arrays.W_hh, 2), pick(arrays.b_h, 1)
    assert W_hh is not None
    assert b_h is not None
    return Layout(arrays.kind, W_hh, pick(arrays.W_xh, 2), pick(arrays.bias, 1), b_h)


class ParameterSums:
    """Gradients of a cell's arrays, summed over everything that shares an array."""

    def __init__(self, cell: Cell, dtype: Any) -> None:
        self._networks = cell.batch_shape
        self._shapes = {name: array.shape for name, array in cell.arrays().items()}
        self.values = {name: np.zeros(s, dtype=dtype) for name, s in self._shapes.items()}

    def add(self, prefix: str, layer: WeightedCell, network: int, parts: Any) -> None:
        """Add what one network's replicas give to one layer: W_hh, W_xh, bias, b_h."""
        for name, own in by_name(layer, *parts).items():
            self.place(prefix + name, network, own)

    def place(self, name: str, network: int, own: Array) -> None:
        """Add what one network's replicas give to one array."""
        index, total = np.unravel_index(network, self._networks), self.values[name]
        axes = index[len(index) - (total.ndim - own.ndim) :]
        where = tuple(int(i) if size > 1 else 0 for i, size in zip(axes, total.shape, strict=False))
        total[where] += own


def pulled_layers(
    runs: list[LayerRun], grad_h: Array, window: int
) -> tuple[list[LayerGradients], Array]:
    """Pull gradients through a stack, top layer first; returns them bottom-up, and d/dx."""
    found: list[LayerGradients] = []
    for run in reversed(runs):
        found.append(run.pull(grad_h, window))
        below = found[-1].x
        grad_h = np.empty((*grad_h.shape[:2], 0), grad_h.dtype) if below is None else below
    return found[::-1], grad_h
