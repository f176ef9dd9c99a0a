"""Arrays of one layer and direction as they are stored, and whether their shapes agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from gradprop.orbit import Array

KINDS = {1: "RNN", 3: "GRU", 4: "LSTM"}
"""Kind of a layer by its number of gate blocks."""
N_BLOCKS = {kind: blocks for blocks, kind in KINDS.items()}


@dataclasses.dataclass(frozen=True)
class Stored:
    """Arrays and their names by role; `columns` if a gate's block is one of columns."""

    names: Mapping[str, str]
    arrays: Mapping[str, Array]
    columns: bool
    kind: str | None
    hidden_size: int | None

    def describe(self, role: str) -> str:
        """An array's name and shape, for messages."""
        return f"`{self.names[role]}` {self.arrays[role].shape}"

    @property
    def side(self) -> str:
        """Along what the gates' blocks stand."""
        return "columns" if self.columns else "rows"

    def turned(self, fits: bool) -> str:
        """Advice for a matrix whose transpose fits."""
        other = "rows" if self.columns else "columns"
        hint = f" Its transpose fits: if it is stored so, say options={{'orientation': '{other}'}}."
        return hint if fits else ""

    def rows(self, role: str) -> Array:
        """A matrix with a block of rows per gate."""
        array = self.arrays[role]
        if array.ndim != 2:
            raise ValueError(f"`{self.names[role]}` must be a matrix; got shape {array.shape}.")
        return array.T if self.columns else array

    def size(self) -> tuple[str, int]:
        """Kind and units by the recurrent matrix; a declaration that contradicts it is refused."""
        n_rows, n = self.rows("W_hh").shape
        if self.hidden_size is not None and n != self.hidden_size:
            raise ValueError(
                f"`hidden_size` must fit the arrays: {self.hidden_size} units are declared, but "
                f"{self.describe('W_hh')} has {n}."
            )
        blocks = _blocks(n_rows, n)
        if blocks is None:
            raise ValueError(
                f"{self.describe('W_hh')} must have n, 3 n or 4 n {self.side} (RNN, GRU, LSTM) "
                f"for its n = {n} units; got {n_rows}.{self.turned(_blocks(n, n_rows) is not None)}"
            )
        if self.kind is not None and self.kind != KINDS[blocks]:
            raise ValueError(
                f"{self.describe('W_hh')} must have {N_BLOCKS[self.kind]} blocks of n = {n} "
                f"{self.side}, being that of an {self.kind}; got {blocks}."
            )
        return KINDS[blocks], n

    def input_weights(self, n_rows: int) -> Array:
        """W_xh, whose rows must be those of W_hh."""
        W = self.rows("W_xh")
        if W.shape[0] != n_rows or W.shape[1] == 0:
            raise ValueError(
                f"{self.describe('W_xh')} must have {n_rows} {self.side}, as "
                f"{self.describe('W_hh')} has; got {W.shape[0]}.{self.turned(W.shape[1] == n_rows)}"
            )
        return W

    def vector(self, role: str, shape: tuple[int, ...]) -> Array:
        """A bias of one exact shape, in float64, in which biases are added."""
        array = self.arrays[role]
        if array.shape != shape:
            raise ValueError(
                f"`{self.names[role]}` must have shape {shape}, as {self.describe('W_hh')} asks; "
                f"got shape {array.shape}."
            )
        return array.astype(np.float64)


def _blocks(n_rows: int, n: int) -> int | None:
    """Gate blocks of n rows; None if there is no such cell."""
    fits = n > 0 and n_rows % n == 0 and n_rows // n in KINDS
    return n_rows // n if fits else None
