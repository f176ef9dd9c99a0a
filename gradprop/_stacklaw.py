"""The law of a stack, and which law a cell obeys."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gradprop._customlaw import CustomLaw
from gradprop._laws import Array, Float, GatedLaw, Int, Law, LayerLaw, Place, RNNLaw
from gradprop.blocks import Block, dense_block
from gradprop.cells.base import Cell, GatedCell
from gradprop.cells.composite import Bidirectional, Stacked
from gradprop.cells.custom import CustomCell
from gradprop.cells.rnn import RNN


def law_of(cell: Cell, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> Law:
    """The law of a cell of one direction; TypeError for anything else."""
    if isinstance(cell, Stacked):
        return StackedLaw(cell, dtype, batch_shape)
    if isinstance(cell, RNN | GatedCell):
        return _layer_law(cell, dtype, batch_shape)
    if isinstance(cell, CustomCell):
        return CustomLaw(cell, dtype, batch_shape)
    if isinstance(cell, Bidirectional):
        raise TypeError(
            "`cell` must have one direction; a Bidirectional has two chains: take .forward, or "
            ".backward with the sequence reversed."
        )
    raise TypeError(f"`cell` must be a recurrent cell such as RNN; got {type(cell).__name__}.")


def _layer_law(cell: Cell, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> LayerLaw:
    if isinstance(cell, RNN):
        return RNNLaw(cell, dtype, batch_shape)
    return GatedLaw(cell, dtype, batch_shape)


class StackedLaw:
    """Layers on top of each other: block lower triangular Jacobians, formed a block at a time."""

    structure = "dense"

    def __init__(self, cell: Stacked, dtype: np.dtype[Any], batch_shape: tuple[int, ...]) -> None:
        self.cell, self._batch_shape = cell, batch_shape
        self.layers = [_layer_law(layer, dtype, batch_shape) for layer in cell.cells]
        self.n_state = cell.n_state
        self._states = _slices([layer.n_state for layer in self.layers])
        self._tapes = _slices([layer.tape_width for layer in self.layers])
        self._coefs = _slices([layer.coef_width for layer in self.layers])
        self.tape_width = self._tapes[-1].stop
        self.z_columns = np.concatenate(
            [tape.start + law.z_columns for law, tape in zip(self.layers, self._tapes, strict=True)]
        )
        self.coef_width = self._coefs[-1].stop

    def advance(
        self, x: Array | None, n_steps: int, first: int, n_valid: Int, state: Array
    ) -> tuple[Array, Array]:
        """Take steps layer by layer: each sees the h of the layer below at the same step."""
        R = len(state)
        states = np.empty((R, n_steps, self.n_state), dtype=state.dtype)
        tapes = np.empty((R, n_steps, self.tape_width), dtype=state.dtype)
        below = x
        for law, cell, own, tape in zip(
            self.layers, self.cell.cells, self._states, self._tapes, strict=True
        ):
            part = state[:, own].copy()
            states[..., own], tapes[..., tape] = law.advance(below, n_steps, first, n_valid, part)
            state[:, own] = part
            h = states[..., own][..., cell.output]
            below = h.reshape(*self._batch_shape, n_steps, cell.n)
        # a layer that overflowed ends the step for those below it too
        step = first + np.arange(n_steps)
        broken = np.asarray(~np.isfinite(state).all(axis=1))
        r, t = np.nonzero(np.logical_and(broken[:, None], step >= n_valid[:, None]))
        states[r, t], tapes[r, t] = np.nan, np.nan
        state[broken] = np.nan
        return states, tapes

    def coefficients(self, before: Array, states: Array, tapes: Array) -> Float:
        """Coefficients of all layers, side by side."""
        parts = zip(self.layers, self._states, self._tapes, strict=True)
        return np.concatenate(
            [law.coefficients(before[:, s], states[..., s], tapes[..., t]) for law, s, t in parts],
            axis=-1,
        )

    def block(self, coefs: Float, n_valid: Int, first: int) -> Block:
        """Step Jacobians, formed from the gates."""
        J = np.zeros((*coefs.shape[:2], self.n_state, self.n_state))
        for i, (law, own, part) in enumerate(
            zip(self.layers, self._states, self._coefs, strict=True)
        ):
            mine = np.ascontiguousarray(coefs[..., part])
            law.form(mine, n_valid, first, own.start, J)
            if i:
                below = self._states[i - 1].start + self.cell.cells[i - 1].output.start
                law.couple(mine, n_valid, first, Place(below, own.start, own.start), J)
        return dense_block(J, first)


def _slices(widths: list[int]) -> list[slice]:
    ends = np.cumsum([0, *widths])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
