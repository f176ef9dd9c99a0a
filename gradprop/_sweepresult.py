"""What a sweep returns: columns of points and stacked arrays of what was measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradprop._points import SEED, Value

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class SweepResult:
    """What a sweep measured, in the order of its grid (seeds vary fastest).

    Attributes
    ----------
    name : str
        The sweep's name.
    points : mapping of str to array, shape (points,)
        One column per field of the grid, and ``seed``.
    values : mapping of str to array, shape (points, ...)
        One array per field of ``measure``: (points,) for numbers, strings and bools.
    """

    name: str
    points: Mapping[str, NDArray[Any]]
    values: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        for field in ("points", "values"):
            arrays = {name: array.view() for name, array in getattr(self, field).items()}
            for array in arrays.values():
                array.flags.writeable = False
            object.__setattr__(self, field, MappingProxyType(arrays))

    def __len__(self) -> int:
        return len(self.points[SEED])

    def __getitem__(self, field: str) -> NDArray[Any]:
        """Column of a field of the grid or of ``measure``; KeyError lists the known ones."""
        for arrays in (self.points, self.values):
            if field in arrays:
                return arrays[field]
        known = ", ".join([*self.points, *self.values])
        raise KeyError(f"sweep {self.name!r} has no field {field!r}; it has {known}.")

    def select(self, **fields: Value) -> SweepResult:
        """Keep the points at which each named field equals the given value, in their order.

        Parameters
        ----------
        **fields : str, bool, int or float
            Field of the grid (or ``seed``) = value.

        Returns
        -------
        SweepResult
            May have no points.
        """
        keep = np.ones(len(self), dtype=bool)
        for name, value in fields.items():
            keep &= self[name] == value
        return SweepResult(
            self.name,
            {name: array[keep] for name, array in self.points.items()},
            {name: array[keep] for name, array in self.values.items()},
        )

    def to_frame(self) -> pd.DataFrame:
        """Table of one row per point: the fields of the grid, the seed, all scalar fields.

        Returns
        -------
        pandas.DataFrame
            Without the fields that are arrays at each point; see ``values`` for those.
        """
        import pandas as pd

        return pd.DataFrame(self.scalars())

    def scalars(self) -> dict[str, NDArray[Any]]:
        """The columns of :meth:`to_frame`.

        Returns
        -------
        dict of str to array, shape (points,)
        """
        return {**self.points, **{k: v for k, v in self.values.items() if v.ndim == 1}}
