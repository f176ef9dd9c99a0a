"""Steps of a cell in which every operation is rounded to a float format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._layouts import Layout
from gradprop.blocks import Float, Int, who_uses
from gradprop.cells.base import Cell, WeightedCell
from gradprop.gradients._problem import layers_of, one_network
from gradprop.orbit import Orbit
from gradprop.precision.formats import random_states
from gradprop.precision.stored import Arithmetic

CALL_OPERATIONS = 2**24
"""Multiplications given to one kernel call, about 0.1 s: Ctrl-C lives between calls."""


class Rounding:
    """Operations of an arithmetic, on float64 arrays that hold its numbers.

    Parameters
    ----------
    arithmetic : Arithmetic
    rng : Generator, optional
        For formats that round at random.
    """

    def __init__(self, arithmetic: Arithmetic, rng: Any = None) -> None:
        self._fmt = arithmetic.fmt
        self._rng = rng if arithmetic.fmt.rounding == "stochastic" else None
        inner, outer = random_states(rng if arithmetic.stochastic else None, (2, 1))
        self._inner = arithmetic.accumulator.carried(False, inner)
        self._outer = arithmetic.fmt.carried(False, outer)

    def __call__(self, values: Any) -> Float:
        """Outcomes of an operation, rounded once."""
        return self._fmt.round(values, self._rng)

    def dot(self, A: Float, v: Float) -> Float:
        """A v for A (m, n) and columns v (n, p): terms and sums rounded in the accumulator."""
        from gradprop._kernels.rounding import multiply

        out = np.empty((len(A), v.shape[1]))
        width = max(CALL_OPERATIONS // max(A.size, 1), 1)
        # overflow is an outcome; NumPy would warn where the JIT is switched off
        with np.errstate(all="ignore"):
            for start in range(0, v.shape[1], width):
                columns = np.ascontiguousarray(v[:, start : start + width])
                part, total = np.empty((len(A), columns.shape[1])), np.empty(columns.shape[1])
                multiply(A, columns, part, total, self._inner, self._outer)
                out[:, start : start + width] = part
        return out


class _Layer:
    """One layer of one network; states (s, B) and inputs (d, B) are columns."""

    def __init__(self, cell: Any, arrays: Layout, rounding: Rounding) -> None:
        from gradprop._kernels import gates

        self._cell, self._round, self._n = cell, rounding, arrays.W_hh.shape[1]
        self._kind = arrays.kind
        self._W, self._b_h = rounding(arrays.W_hh), rounding(arrays.b_h)[:, None]
        self._W_xh = None if arrays.W_xh is None else rounding(arrays.W_xh)
        self._bias = None if arrays.bias is None else rounding(arrays.bias)[:, None]
        self._update = {gates.RNN: self._vanilla, gates.LSTM: self._lstm}.get(self._kind, self._gru)

    def step(self, state: Float, x: Float | None) -> Float:
        """The state after one step."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._update(state, self._current(x))

    def _current(self, x: Float | None) -> Float | None:
        """W_xh x + bias, or what there is of it."""
        part = x if x is None or self._W_xh is None else self._round.dot(self._W_xh, x)
        return self._bias if part is None else self._plus(part, self._bias)

    def _plus(self, a: Float, b: Float | None) -> Float:
        return a if b is None else self._round(a + b)

    def _part(self, current: Float | None, rows: slice) -> Float | None:
        return None if current is None else current[rows]

    def _phi(self, z: Float) -> Float:
        return self._round(self._cell.activation.evaluate(z))

    def _gate(self, z: Float) -> Float:
        return self._round(self._cell.gate_activation.evaluate(z))

    def _vanilla(self, h: Float, current: Float | None) -> Float:
        after = self._phi(self._plus(self._round.dot(self._W, h), current))
        leak = self._cell.leak
        if leak == 1.0:
            return after
        kept, entered = self._round(1.0 - leak) * h, self._round(leak) * after
        return self._plus(self._round(kept), self._round(entered))

    def _lstm(self, state: Float, current: Float | None) -> Float:
        r, n = self._round, self._n
        z = self._plus(r.dot(self._W, state[:n]), current)
        enter, forget, out = (self._gate(z[k * n : (k + 1) * n]) for k in (0, 1, 3))
        entered = r(enter * self._phi(z[2 * n : 3 * n]))
        c = self._plus(r(forget * state[n:]), entered)
        return np.concatenate([r(out * self._phi(c)), c])

    def _gru(self, h: Float, current: Float | None) -> Float:
        from gradprop._kernels import gates

        r, n, after = self._round, self._n, self._kind == gates.GRU_AFTER
        dot = r.dot(self._W if after else self._W[: 2 * n], h)
        z = self._plus(dot[: 2 * n], self._part(current, slice(0, 2 * n)))
        reset, kept = self._gate(z[:n]), self._gate(z[n:])
        if after:
            inner = r(reset * self._plus(dot[2 * n :], self._b_h))
        else:
            inner = r.dot(self._W[2 * n :], r(reset * h))
        candidate = self._phi(self._plus(inner, self._part(current, slice(2 * n, 3 * n))))
        return self._plus(r(r(1.0 - kept) * candidate), r(kept * h))


class EmulatedOrbit:
    """An orbit in a format, step by step; weights, input and start are rounded to it first.

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
        In float64.
    orbit : Orbit
        Its input, start and replicas.
    rounding : Rounding
    """

    def __init__(self, cell: Cell, orbit: Orbit, rounding: Rounding) -> None:
        self._orbit, self._round = orbit, rounding
        self._layers = layers_of(cell)
        self._networks = cell.batch_shape
        self._which = who_uses(self._networks, orbit.batch_shape)

    def states(self) -> tuple[Float, Int]:
        """States (R, T + 1, m), nan from the first that is not finite on, and its step less 1."""
        orbit = self._orbit
        states = np.empty((orbit.n_replicas, orbit.n_steps + 1, orbit.start.shape[-1]))
        states[:, 0] = self._round(orbit.start)
        for rows, layers in self._groups():
            x = self._input(rows)
            for t in range(orbit.n_steps):
                below, state = None if x is None else x[t], states[rows, t].T
                states[rows, t + 1] = self._step(layers, state, below).T
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(states).all(axis=-1))
        n_valid = np.where(finite.all(axis=1), orbit.n_steps, finite.argmin(axis=1) - 1)
        states[np.arange(orbit.n_steps + 1) > n_valid[:, None]] = np.nan
        return states, n_valid

    def _groups(self) -> Iterator[tuple[Int, list[tuple[WeightedCell, _Layer]]]]:
        """Flat replicas of each network, and its layers."""
        for network in range(int(np.prod(self._networks, dtype=np.int64))):
            layers = [
                (c, _Layer(c, one_network(c, np.float64, self._networks, network), self._round))
                for c in self._layers
            ]
            yield np.flatnonzero(self._which == network), layers

    def _input(self, rows: Int) -> NDArray[np.float64] | None:
        """Rounded input (T, d, B) of some replicas."""
        orbit = self._orbit
        if orbit.x is None:
            return None
        x = orbit.x[..., : orbit.n_steps, :]
        full = np.broadcast_to(x, (*orbit.batch_shape, *x.shape[-2:]))
        return self._round(full.reshape(-1, *x.shape[-2:])[rows].transpose(1, 2, 0))

    def _step(
        self, layers: list[tuple[WeightedCell, _Layer]], state: Float, x: Float | None
    ) -> Float:
        after, offset = [], 0
        for cell, layer in layers:
            own = np.ascontiguousarray(state[offset : offset + cell.n_state])
            after.append(layer.step(own, x))
            x, offset = after[-1][: cell.n], offset + cell.n_state
        return after[0] if len(after) == 1 else np.concatenate(after)
