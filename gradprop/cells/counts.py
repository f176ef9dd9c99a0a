"""How many numbers a network has to learn."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.cells.base import Cell
from gradprop.cells.custom import CustomCell
from gradprop.results import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterCount(Result):
    """Numbers of entries of a network's arrays (see :func:`parameter_count`).

    Attributes
    ----------
    names : str array, shape (k,)
        Arrays of the cell, then of the readout.
    sizes : int array, shape (k,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {"names": ("name",), "sizes": ("name",)}
    names: NDArray[np.str_]
    sizes: NDArray[np.int64]

    @property
    def by_name(self) -> dict[str, int]:
        """Entries of each array."""
        return {str(name): int(size) for name, size in zip(self.names, self.sizes, strict=True)}

    @property
    def weights(self) -> int:
        """Entries of all matrices."""
        return self.total - self.biases

    @property
    def biases(self) -> int:
        """Entries of all bias vectors."""
        return sum(size for name, size in self.by_name.items() if _is_bias(name))

    @property
    def total(self) -> int:
        """Entries of all arrays."""
        return sum(self.by_name.values())


def parameter_count(cell: Cell, *, output_size: Any = None) -> ParameterCount:
    """Parameters of one network: a sequence of any length shares them.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or Bidirectional
        Replicas are not counted. Layers and directions are named in front, as "0.W_hh".
    output_size : int, optional
        Size d_y of a linear readout o = W_hy h + b_y, which is counted too.

    Returns
    -------
    ParameterCount
        ``by_name``, ``weights``, ``biases``, ``total``.

    Raises
    ------
    TypeError
        What is no cell; a CustomCell, whose parameters stand in its code.
    ValueError
        A size outside 1 .. 2^31.

    Notes
    -----
    A GRU has two bias vectors; an LSTM one here, where frameworks may store two that are added.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN(np.zeros((4, 4)), np.zeros((4, 3)), np.zeros(4))
    >>> count = gp.parameter_count(cell, output_size=2)
    >>> count.by_name
    {'W_hh': 16, 'W_xh': 12, 'b': 4, 'W_hy': 8, 'b_y': 2}
    >>> count.weights, count.biases, count.total
    (36, 6, 42)
    """
    if not isinstance(cell, Cell) or isinstance(cell, CustomCell):
        raise TypeError(f"`cell` must be a cell of known weights; got {type(cell).__name__}.")
    sizes = {}
    for name, array in cell.arrays().items():
        core = array.shape[-1:] if _is_bias(name) else array.shape[-2:]
        sizes[name] = int(np.prod(core, dtype=np.int64))
    if output_size is not None:
        d_y = _checks.integer("output_size", output_size, minimum=1, maximum=2**31)
        sizes |= {"W_hy": d_y * cell.n, "b_y": d_y}
    return ParameterCount(
        names=np.array(list(sizes)), sizes=np.array(list(sizes.values()), dtype=np.int64)
    )


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2].startswith("b")
