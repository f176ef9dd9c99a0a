"""Stacking the records of many points into the arrays of one result, a part at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._records import head, row_dtype


class Columns:
    """One array per field with a row per point, filled in parts: nothing else is held."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self.arrays: dict[str, NDArray[Any]] = {}

    def put_payloads(self, rows: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Unpack payloads, one for each row; the fields must be the same in all."""
        alike: dict[bytes, list[int]] = {}
        for i, payload in enumerate(payloads):
            alike.setdefault(head(payload), []).append(i)
        for first, members in alike.items():
            dtype, start = row_dtype(first), len(first) + 1
            if dtype.itemsize:
                body = b"".join([payloads[i][start:] for i in members])
                stacked = np.frombuffer(body, dtype)
            else:
                stacked = np.zeros(len(members), dtype)
            here = [rows[i] for i in members]
            for name in dtype.names or ():
                self.put(name, here, stacked[name])

    def put(self, name: str, rows: Sequence[int], values: NDArray[Any]) -> None:
        """Set rows of one field; longer texts widen it, floats make its whole numbers floats."""
        held = self.arrays.get(name)
        if held is None:
            held = np.zeros((self._n_rows, *values.shape[1:]), values.dtype)
        dtype = np.result_type(held.dtype, values.dtype)
        self.arrays[name] = held = held.astype(dtype, copy=False)
        held[rows] = values
