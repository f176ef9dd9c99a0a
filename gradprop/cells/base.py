"""What all cells have in common: sizes, dtype, replica axes, checked arrays."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.activations import Activation, activation

Array = NDArray[Any]
Shape = Sequence[int | str | None]


class Cell(abc.ABC):
    """A recurrent map h_t = F(h_{t-1}, x_t), described by its arrays."""

    PARAMETERS: tuple[str, ...] = ()
    """Names of the arrays, each of which may be None."""

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """Number of units: width of the output part h."""

    @property
    def n_state(self) -> int:
        """Width of the state that the chain propagates."""
        return self.n

    @property
    def output(self) -> slice:
        """Where h stands within the state."""
        return slice(0, self.n)

    @property
    @abc.abstractmethod
    def d_x(self) -> int | None:
        """Width of the input; None if any width goes."""

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, that of every weight."""

    @property
    @abc.abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the weights, broadcast together."""

    def arrays(self) -> dict[str, Array]:
        """Arrays by name, those that are None left out.

        Returns
        -------
        dict of str to array
        """
        named = {name: getattr(self, name) for name in self.PARAMETERS}
        return {name: array for name, array in named.items() if array is not None}


class WeightedCell(Cell):
    """A cell of one layer, whose arrays are its attributes."""

    W_hh: Array
    W_xh: Array | None

    @property
    def n(self) -> int:
        """Number of units: width of the output part h."""
        return int(self.W_hh.shape[-1])

    @property
    def d_x(self) -> int | None:
        """Width of the input."""
        return self.n if self.W_xh is None else int(self.W_xh.shape[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, that of every weight."""
        return self.W_hh.dtype

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the weights, broadcast together."""
        shapes = {
            name: array.shape[: array.ndim - (2 if name.startswith("W") else 1)]
            for name, array in self.arrays().items()
        }
        return _checks.broadcast_shapes(**shapes)

    def _freeze(self, values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
        """Check the arrays, give them one dtype, make them read-only and set them."""
        arrays = {
            name: _checks.real_array(name, value, shape=shapes[name], keep_float32=True)
            for name, value in values.items()
            if value is not None
        }
        dtype = np.result_type(*arrays.values())
        for name in values:
            array = arrays.get(name)
            if array is not None:
                array = np.array(array, dtype=dtype)
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        _ = self.batch_shape


class GatedCell(WeightedCell):
    """A cell with gates, whose arrays stack one block of n rows per gate."""

    GATES: str
    """Gates in the order of this package."""
    ORDERS: Mapping[str, str]
    """Accepted orders, and each in this package's letters."""

    gate_order: str
    gate_activation: Activation
    activation: Activation

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of the given arrays, in the order of this package."""
        own, n = self.ORDERS[self.gate_order], self.n
        return np.concatenate([own.index(gate) * n + np.arange(n) for gate in self.GATES])

    def _freeze(self, values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
        for name, value in values.items():
            if value is None:
                raise TypeError(f"`{name}` must be an array; got None (zeros do what none would).")
        super()._freeze(values, shapes)

    def _set_gates(self, gate_order: str, gate_activation: Any, own_activation: Any) -> None:
        _checks.choice("gate_order", gate_order, self.ORDERS)
        object.__setattr__(self, "gate_order", gate_order)
        object.__setattr__(self, "gate_activation", activation(gate_activation))
        object.__setattr__(self, "activation", activation(own_activation))


def gated_size(name: str, W_hh: Any, n_gates: int) -> int:
    """Units of a cell whose recurrent weights have n_gates n rows; a clear error if they do not."""
    shape = _checks.real_array(name, W_hh, keep_float32=True, finite=False).shape
    if len(shape) < 2 or shape[-1] == 0 or shape[-2] != n_gates * shape[-1]:
        hint = ""
        if len(shape) >= 2 and shape[-1] == n_gates * shape[-2]:
            hint = f" Shape ({shape[-2]}, {shape[-1]}) is the transpose: row = to, column = from."
        raise ValueError(
            f"`{name}` must have shape (..., {n_gates} n, n): {n_gates} gates of n units; "
            f"got shape {shape}.{hint}"
        )
    return int(shape[-1])
