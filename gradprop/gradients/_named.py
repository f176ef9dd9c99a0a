"""Results with an axis of a cell's arrays, under their names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradprop.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayResult(Result):
    """A result whose axis "array" runs over `names`: "all", then the cell's arrays."""

    names: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Long table, the column ``array`` holding names.

        Returns
        -------
        pandas.DataFrame
            As every result's otherwise.
        """
        frame = super().to_frame()
        frame["array"] = np.array(self.names)[frame["array"]]
        return frame
