"""The data of a diagnosis: checked, laid out as sequences, or made where none are given."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Int
from gradprop.cells.base import Cell, GatedCell
from gradprop.cells.composite import Stacked
from gradprop.cells.rnn import RNN
from gradprop.chain import JacobianChain
from gradprop.linearise import linearise

WHITE_STEPS = 1000
"""Steps of the white noise that stands for data that are not given."""

POSITIONS = 16
"""Loss positions along a single sequence."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Input (B, T, d) or none, and the true lengths (B,)."""

    x: NDArray[Any] | None
    lengths: Int
    rng: Any
    notes: tuple[str, ...] = ()

    @property
    def n_steps(self) -> int:
        """The longest."""
        return int(self.lengths.max())

    def chain(self, cell: Cell, which: Any, ends: Int) -> JacobianChain:
        """Chain of some sequences, each up to its end; one sequence has no replica axis."""
        many = len(ends) > 1
        x = None if self.x is None else self.x[which] if many else self.x[which[0]]
        steps = int(ends.max())
        lengths = ends if many else None
        return linearise(cell, x, n_steps=steps, lengths=lengths, rng=self.rng)

    def sequence(self, i: int, end: int) -> NDArray[Any] | None:
        """Valid steps of one sequence."""
        return None if self.x is None else self.x[i, :end]


def prepare(cell: Cell, x: ArrayLike | None, lengths: ArrayLike | None, rng: Any) -> Data:
    """Check the input by its shape; finiteness and width are the orbit's to check."""
    if x is None:
        if lengths is not None:
            raise ValueError("`lengths` needs `x`; got lengths alone.")
        steps = np.array([WHITE_STEPS])
        if cell.d_x is None:
            note = f"no input: the network runs by itself from a random start, {WHITE_STEPS} steps"
            return Data(None, steps, rng, (note,))
        note = f"no input given: white noise of variance 1, {WHITE_STEPS} steps; use your own data"
        noise = _checks.generator("rng", rng).standard_normal((1, WHITE_STEPS, cell.d_x))
        return Data(noise, steps, rng, (note,))
    array = _checks.real_array("x", x, keep_float32=True, finite=False)
    if array.ndim not in (1, 2, 3):
        raise ValueError(f"`x` must have shape (B, T, d_x); got shape {array.shape}.")
    if array.ndim < 3:
        array = (array[:, None] if array.ndim == 1 else array)[None]
    if array.shape[1] == 0:
        raise ValueError(f"`x` must hold at least one step; got shape {np.shape(x)}.")
    if lengths is None:
        return Data(array, np.full(len(array), array.shape[1], dtype=np.int64), rng)
    own = _checks.integer_array("lengths", lengths, minimum=0, maximum=array.shape[1])
    if len(own) != len(array):
        raise ValueError(
            f"`lengths` must have one entry per sequence, {len(array)}; got {len(own)}."
        )
    if (own == 0).any():
        raise ValueError(f"`lengths` must be at least 1; sequence {int(np.argmin(own))} is empty.")
    return Data(array, own, rng)


def positions(data: Data) -> tuple[Int, Int]:
    """Sequences, and the step of the loss in each: several along a single sequence."""
    n = len(data.lengths)
    if n > 1 or data.n_steps < 4 * POSITIONS:
        return np.arange(n), data.lengths
    ends = np.linspace(data.n_steps // 2, data.n_steps, POSITIONS).astype(np.int64)
    return np.zeros(POSITIONS, dtype=np.int64), ends


def describe(cell: Cell) -> str:
    """A network in words."""
    if isinstance(cell, Stacked):
        return f"{len(cell.cells)} layers: " + "; ".join(describe(c) for c in cell.cells)
    name = type(cell).__name__
    if isinstance(cell, RNN | GatedCell):
        leak = f", leak {cell.leak:g}" if isinstance(cell, RNN) and cell.leak < 1 else ""
        width = f"{cell.n} {cell.activation.name} units{leak}, input {cell.d_x} wide"
        return f"{name}, {width}, {cell.dtype}"
    return f"{name}, {cell.n} units"


def describe_data(data: Data) -> str:
    """The data in words."""
    n = len(data.lengths)
    many = f"{n} sequences of up to" if n > 1 else "1 sequence of"
    return f"{many} {data.n_steps} steps"
