"""Cells made of cells: layers on top of each other, and two directions side by side."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradprop import _checks
from gradprop.cells.base import Array, Cell
from gradprop.cells.custom import CustomCell


@dataclasses.dataclass(frozen=True, eq=False)
class Stacked(Cell):
    """Layers on top of each other: each takes the h of the layer below at the same step.

    Parameters
    ----------
    cells : sequence of cells
        Bottom first. A layer's input has the width of the h below it. Stacks among them are
        taken apart: their layers become layers of this one.

    Raises
    ------
    ValueError, TypeError
        No cells; a member that is no cell, has two directions or is a `CustomCell`, of which it is
        not known how its input moves it; widths or replica axes that do not fit.

    Notes
    -----
    The state stacks those of the layers, bottom first; h is that of the top layer. The step
    Jacobian is block lower triangular, so the determinant is the product of the layers'.

    Examples
    --------
    >>> import gradprop as gp
    >>> layer = gp.RNN([[0.5]], W_xh=[[1.0]], activation="linear")
    >>> gp.step_jacobian(gp.Stacked([layer, layer]), [0.0, 0.0]).tolist()
    [[0.5, 0.0], [0.5, 0.5]]
    """

    cells: tuple[Cell, ...]

    def __init__(self, cells: Sequence[Cell]) -> None:
        if isinstance(cells, Cell) or not isinstance(cells, Sequence):
            raise TypeError(f"`cells` must be a sequence of cells; got {type(cells).__name__}.")
        if not cells:
            raise ValueError("`cells` must hold at least one cell; got none.")
        for i, cell in enumerate(cells):
            if not isinstance(cell, Cell) or isinstance(cell, Bidirectional | CustomCell):
                raise TypeError(
                    "`cells` must be cells of one direction and of known weights; "
                    f"member {i} is {type(cell).__name__}."
                )
        cells = [part for cell in cells for part in getattr(cell, "cells", (cell,))]
        for i, (below, above) in enumerate(itertools.pairwise(cells)):
            if above.d_x not in (None, below.n):
                raise ValueError(
                    f"`cells` must fit on top of each other: member {i} gives {below.n} units, "
                    f"member {i + 1} takes {above.d_x}."
                )
        object.__setattr__(self, "cells", tuple(cells))
        _ = self.batch_shape

    @property
    def n(self) -> int:
        """Units of the top layer."""
        return self.cells[-1].n

    @property
    def n_state(self) -> int:
        """Width of all layers' states."""
        return sum(cell.n_state for cell in self.cells)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each layer's state begins."""
        return tuple(int(i) for i in np.cumsum([0] + [cell.n_state for cell in self.cells[:-1]]))

    @property
    def output(self) -> slice:
        """The top layer's h within the state."""
        inner, offset = self.cells[-1].output, self.offsets[-1]
        return slice(offset + inner.start, offset + inner.stop)

    @property
    def d_x(self) -> int | None:
        """Width of the bottom layer's input."""
        return self.cells[0].d_x

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if every layer is."""
        return np.result_type(*(cell.dtype for cell in self.cells))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the layers, broadcast together."""
        return _checks.broadcast_shapes(
            **{f"cells[{i}]": cell.batch_shape for i, cell in enumerate(self.cells)}
        )

    def arrays(self) -> dict[str, Array]:
        """Arrays of all layers by name, as ``"0.W_hh"``.

        Returns
        -------
        dict of str to array
        """
        return named_parts({str(i): cell for i, cell in enumerate(self.cells)})


@dataclasses.dataclass(frozen=True, eq=False)
class Bidirectional(Cell):
    """Two cells that read the sequence from its two ends; h holds both, forward part first.

    Parameters
    ----------
    forward, backward : cells
        Of the same input width. The backward one starts at each sequence's last valid step, never
        on padding.

    Raises
    ------
    ValueError, TypeError
        Input widths or replica axes that differ; a member that is no cell of one direction.

    Notes
    -----
    There is no one chain of Jacobians: linearise `.forward`, and `.backward` with the sequence
    reversed.

    Examples
    --------
    >>> import gradprop as gp
    >>> cell = gp.RNN([[0.8]], W_xh=[[0.5]], b=[0.3])
    >>> both = gp.rollout(gp.Bidirectional(cell, cell), [1.0, -1.0, 0.0, 0.0], lengths=2)
    >>> both.h[:2, 1].round(8).tolist()
    [0.56632755, -0.19737532]
    """

    forward: Cell
    backward: Cell

    def __init__(self, forward: Cell, backward: Cell) -> None:
        for name, cell in (("forward", forward), ("backward", backward)):
            if not isinstance(cell, Cell) or isinstance(cell, Bidirectional):
                raise TypeError(
                    f"`{name}` must be a cell of one direction; got {type(cell).__name__}."
                )
            object.__setattr__(self, name, cell)
        widths = {forward.d_x, backward.d_x} - {None}
        if len(widths) > 1:
            raise ValueError(
                f"`forward` and `backward` must take one input; got widths {forward.d_x} and "
                f"{backward.d_x}."
            )
        _ = self.batch_shape

    @property
    def n(self) -> int:
        """Units of both directions."""
        return self.forward.n + self.backward.n

    @property
    def n_state(self) -> int:
        """Width of both states."""
        return self.forward.n_state + self.backward.n_state

    @property
    def d_x(self) -> int | None:
        """Width of the input."""
        return self.forward.d_x if self.forward.d_x is not None else self.backward.d_x

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if both are."""
        return np.result_type(self.forward.dtype, self.backward.dtype)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of both, broadcast together."""
        return _checks.broadcast_shapes(
            forward=self.forward.batch_shape, backward=self.backward.batch_shape
        )

    def arrays(self) -> dict[str, Array]:
        """Arrays of both by name, as ``"forward.W_hh"``.

        Returns
        -------
        dict of str to array
        """
        return named_parts({"forward": self.forward, "backward": self.backward})


def named_parts(parts: dict[str, Cell]) -> dict[str, Array]:
    """Arrays of all parts under "part.name"."""
    return {f"{part}.{k}": v for part, cell in parts.items() for k, v in cell.arrays().items()}
