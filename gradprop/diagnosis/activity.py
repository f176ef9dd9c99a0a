"""What units and gates do along an orbit: saturation, mean gates, time constants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop.activations import Activation
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.cells.composite import Stacked
from gradprop.cells.lstm import LSTM
from gradprop.cells.rnn import RNN
from gradprop.gradients._problem import layers_of
from gradprop.orbit import Orbit
from gradprop.results import Result

SATURATED = 0.1
"""A unit is saturated where its slope is below this part of the largest one."""

MEANINGS = {
    "LSTM": {"i": "input gate", "f": "forget gate", "g": "candidate", "o": "output gate"},
    "GRU": {"r": "reset gate", "z": "update gate", "n": "candidate"},
    "RNN": {"": "units"},
}
CARRY = {"LSTM": "f", "GRU": "z"}
"""The gate that multiplies the old state: its mean log is a unit's own rate of forgetting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activity(Result):
    """Units and gates along the orbit.

    Attributes
    ----------
    names : str array, shape (K,)
        "units", "forget gate", ..., with the layer in front in a stack.
    saturated : float array, shape (K,)
        Share of units and steps with |phi'(z)| below a tenth of its largest value.
    mean : float array, shape (K,)
        Mean value: of a gate between 0 and 1.
    time_constant : float array, shape (K,)
        Of the slowest unit, in steps, -1 / mean ln(gate): for the gate that multiplies the old
        state, and for leaky units; nan for all others.
    slowest : int array, shape (K,)
        That unit; -1 where there is none.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "names": ("name",),
        "saturated": ("name",),
        "mean": ("name",),
        "time_constant": ("name",),
        "slowest": ("name",),
    }
    _table: ClassVar[str] = "names"
    names: NDArray[np.str_]
    saturated: Float
    mean: Float
    time_constant: Float
    slowest: Int

    def of(self, name: str) -> list[int]:
        """Rows of one kind, in all layers."""
        return [i for i, own in enumerate(self.names) if str(own).endswith(name)]


@dataclasses.dataclass
class _Row:
    """Running sums of one block of pre-activations."""

    name: str
    columns: slice
    function: Activation
    carries: bool
    leak: float
    saturated: float = 0.0
    total: float = 0.0
    log_sum: Any = 0.0
    count: int = 0

    def absorb(self, z: Float) -> None:
        """Valid steps (N, n)."""
        slope = np.abs(self.function.derivative(z))
        ceiling = self.function.gamma if np.isfinite(self.function.gamma) else slope.max(initial=0)
        value = np.asarray(self.function.evaluate(z))
        self.saturated += float((slope < SATURATED * ceiling).mean(axis=1).sum())
        self.total += float(value.mean(axis=1).sum())
        self.count += len(z)
        if self.carries:
            with np.errstate(divide="ignore"):
                self.log_sum = self.log_sum + np.log(value).sum(axis=0)

    def slowest(self) -> tuple[float, int]:
        """Time constant of the slowest unit, and which it is."""
        if self.carries:
            with np.errstate(divide="ignore"):
                steps = -self.count / np.minimum(self.log_sum, -0.0)
            steps = np.where(self.log_sum == 0, np.inf, steps)
            return float(steps.max()), int(steps.argmax())
        if 0 < self.leak < 1:
            return -1.0 / float(np.log1p(-self.leak)), 0
        return float("nan"), -1


def activity(orbit: Orbit) -> Activity | None:
    """Run an orbit once more, keeping sums only; None for a cell whose units are not known."""
    rows = list(_rows(orbit.cell))
    if not rows:
        return None
    state, n_valid = orbit.start.copy(), orbit.lengths.copy()
    for first in range(0, orbit.n_steps, orbit.chunk):
        last = min(first + orbit.chunk, orbit.n_steps)
        _, tapes = orbit.advance(state, n_valid, first, last)
        z = tapes[..., orbit.law.z_columns]
        taken = (first + np.arange(last - first)) < n_valid[:, None]
        valid = np.asarray(z[taken], dtype=np.float64)
        for row in rows:
            row.absorb(valid[:, row.columns])
    slowest = [row.slowest() for row in rows]
    count = np.array([max(row.count, 1) for row in rows])
    return Activity(
        names=np.array([row.name for row in rows]),
        saturated=np.array([row.saturated for row in rows]) / count,
        mean=np.array([row.total for row in rows]) / count,
        time_constant=np.array([steps for steps, _ in slowest]),
        slowest=np.array([unit for _, unit in slowest], dtype=np.int64),
    )


def _rows(cell: Cell) -> Iterator[_Row]:
    """Blocks of pre-activations in the order of the tape."""
    try:
        layers: list[Any] = list(layers_of(cell))
    except TypeError:
        return
    at = 0
    for number, layer in enumerate(layers):
        kind = "RNN" if isinstance(layer, RNN) else "LSTM" if isinstance(layer, LSTM) else "GRU"
        prefix = f"layer {number} " if isinstance(cell, Stacked) else ""
        for letter, meaning in MEANINGS[kind].items():
            is_gate = meaning.endswith("gate")
            yield _Row(
                name=prefix + meaning,
                columns=slice(at, at + layer.n),
                function=layer.gate_activation if is_gate else layer.activation,
                carries=letter == CARRY.get(kind, " "),
                leak=getattr(layer, "leak", 1.0) if kind == "RNN" else 1.0,
            )
            at += layer.n
