"""Interleaved timing: each round calls every candidate once, in shuffled order."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

LEAST, MOST = 5, 25


def interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    seconds: float,
    *,
    clock: Callable[[], float] = time.process_time,
    least: int = LEAST,
    most: int = MOST,
) -> dict[str, list[float]]:
    """Seconds of every call, by candidate; all were called before, so that nothing compiles here.

    As many rounds as fit in about `seconds`, `least` at any rate.
    """
    order, shuffle = list(candidates), random.Random(0).shuffle
    times: dict[str, list[float]] = {name: [] for name in order}
    gc.collect()
    began = time.perf_counter()
    for done in range(most):
        if done >= least and (time.perf_counter() - began) * (done + 1) / done > seconds:
            break
        shuffle(order)
        for name in order:
            start = clock()
            candidates[name]()
            times[name].append(clock() - start)
    return times


def spread(values: list[float], scale: float = 1.0) -> dict[str, float]:
    """Median, quartiles and number of rounds."""
    ordered = sorted(value * scale for value in values)
    if len(ordered) < 2:
        low = high = ordered[0]
    else:
        low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
    middle = statistics.median(ordered)
    return {"median": middle, "q1": low, "q3": high, "rounds": len(ordered)}
