"""Times, memory and size of training runs, measured on the machine at hand."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from _training import Model
from numpy.typing import NDArray

import gradprop as gp
from gradprop.study import Table

HEADING = ("ms an update", "ms to predict 512 samples", "peak MiB of an update", "parameters")


def table(
    title: str,
    runs: Mapping[str, tuple[Model, Callable[[int], object]]],
    x: NDArray[np.float32],
) -> Table:
    """One row a run: a model and a function that trains it for so many updates; x (512, T, d_x)."""
    rows: list[Sequence[str | float]] = [(title, *HEADING)]
    for name, (model, update) in runs.items():
        count = gp.parameter_count(model.cell, output_size=len(model.parameters["b_y"])).total
        each = 1e3 * best(lambda update=update: update(10)) / 10  # type: ignore[misc]
        predicted = 1e3 * best(lambda model=model: model.predict(x))  # type: ignore[misc]
        memory = peak(lambda update=update: update(1))  # type: ignore[misc]
        rows.append((name, each, predicted, memory, count))
    return rows


def best(call: Callable[[], object], repeats: int = 5) -> float:
    """Least wall time of some calls after a first one, in seconds."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def peak(call: Callable[[], object]) -> float:
    """Largest memory held by Python and NumPy during a call, in MiB."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
