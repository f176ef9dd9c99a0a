"""Stacking the records of many points into the arrays of one result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._points import Point, columns
from gradprop._records import decode, schema
from gradprop._sweepresult import SweepResult


def gather(name: str, points: Sequence[Point], payloads: Iterable[bytes]) -> SweepResult:
    """Stack payloads, one for each point and in their order, into one array per field."""
    texts: dict[str, list[NDArray[Any]]] = {}
    values: dict[str, NDArray[Any]] = {}
    for i, payload in enumerate(payloads):
        if i == 0:
            for field, (dtype, shape) in schema(payload).items():
                if dtype == "text":
                    texts[field] = []
                else:
                    values[field] = np.empty((len(points), *shape), dtype)
        for field, value in decode(payload).items():
            if field in texts:
                texts[field].append(value)
            else:
                values[field][i] = value
    values.update({field: np.stack(stacked) for field, stacked in texts.items()})
    return SweepResult(name, columns(points), dict(sorted(values.items())))
