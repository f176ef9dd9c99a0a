"""The numbers of a diagnosis, row by row, and the words for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gradprop.results import LN2

if TYPE_CHECKING:
    from gradprop.diagnosis.result import Diagnosis

Row = tuple[str, float, float, float, str]
NAMES = {
    "statistical": "sampling noise",
    "resolution": "the resolution of {fmt}",
    "underflow": "underflow in {fmt}",
    "absorption": "absorption by sums in {fmt}",
    "ceiling": "the slowest decay of {fmt}",
    "chaos": "chaos",
}


def steps(value: float) -> str:
    """A number of steps."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "never"
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def reach_of(d: Diagnosis) -> float:
    """Last lag before the limit that binds; in chaos the steps of doubling; inf if none binds."""
    if not d.budget.binds:
        return math.inf
    lag = d.budget.of(d.budget.binds)
    return lag if d.budget.binds == "chaos" else lag - 1


def settled_rate(d: Diagnosis) -> float:
    """lambda_1, or 0 where its interval holds 0."""
    rate, low, high = d.leading
    return 0.0 if low <= 0 <= high else rate


def limit_name(d: Diagnosis, name: str) -> str:
    """A limit in words."""
    return NAMES.get(name, name).format(fmt=d.fmt)


def window_of(d: Diagnosis) -> tuple[int, int]:
    """Lags between which the paths' rates are read off."""
    last = int(d.norms.lags[-1])
    return (last // 4, min(last, 200)) if last < 400 else (50, 200)


def path_rate(d: Diagnosis, path: int) -> float:
    """Mean change of the log norm per step, of the first sequence."""
    low, high = window_of(d)
    curve = d.norms.path_log_norm.reshape(-1, *d.norms.path_log_norm.shape[-2:])[0, :, path]
    with np.errstate(invalid="ignore"):
        return float((curve[high] - curve[low]) / max(high - low, 1))


def step_extremes(d: Diagnosis) -> tuple[float, float]:
    """Largest and mean ln ||J_t||."""
    known = d.steps.log_norm[np.isfinite(d.steps.log_norm)]
    return (float(known.max()), float(known.mean())) if known.size else (math.nan, math.nan)


def rows(d: Diagnosis) -> Iterator[Row]:
    """Quantity, value, low, high, unit."""
    nan = math.nan
    yield ("lambda_1", *d.leading, "nats per step")
    flat = d.exponents.exponents.reshape(-1, d.exponents.exponents.shape[-1])[0]
    for i, value in enumerate(flat[1:], start=2):
        low, high = d.exponents.interval.reshape(-1, len(flat), 2)[0, i - 1]
        yield f"lambda_{i}", float(value), float(low), float(high), "nats per step"
    for name, h in (("worst direction", d.worst), ("loss direction", d.direction)):
        low, middle, high = map(float, h.quantiles)
        yield f"horizon, {name}", middle, low, high, "steps"
    for name, value in zip(d.budget.limits, d.budget.steps, strict=True):
        yield f"limit, {limit_name(d, str(name))}", float(value), nan, nan, "steps"
    for i, name in enumerate(d.paths):
        yield f"path, {name}", path_rate(d, i), nan, nan, "nats per step"
    yield from _more_rows(d)


def _more_rows(d: Diagnosis) -> Iterator[Row]:
    nan = math.nan
    low, middle, high = map(float, d.memory.driven)
    yield "state memory under this input", middle, low, high, "steps"
    yield "end states under a constant input", float(d.memory.end_states), nan, nan, ""
    yield "share of swaps that switch end state", float(d.memory.switched), nan, nan, ""
    if d.activity is not None:
        for i, name in enumerate(d.activity.names):
            yield f"saturated, {name}", float(d.activity.saturated[i]), nan, nan, "share"
            if str(name).endswith("gate"):
                yield f"mean, {name}", float(d.activity.mean[i]), nan, nan, ""
            if d.activity.slowest[i] >= 0:
                yield f"slowest, {name}", float(d.activity.time_constant[i]), nan, nan, "steps"
    largest, mean = step_extremes(d)
    yield "largest step norm", largest, nan, nan, "nats"
    yield "mean step norm", mean, nan, nan, "nats"
    _, certificate, _, orbit = d.tightest
    yield "tightest certificate", certificate, nan, nan, "nats per step"
    yield "tightest orbit bound", orbit, nan, nan, "nats per step"
    if d.edge is not None:
        low, high = map(float, d.edge.interval)
        yield "gain at the edge", float(d.edge.gain), low, high, ""
    if d.clipping is not None:
        for level, value in zip(d.clipping.levels, d.clipping.quantiles, strict=True):
            yield f"gradient norm, {level:.0%}", float(value), nan, nan, ""
        for label, share in zip(d.clipping.labels, d.clipping.share_clipped, strict=True):
            yield f"clipped at {label}", float(share), nan, nan, "share"
    yield "truncation window", d.window, nan, nan, "steps"
    low_scale, high_scale = (float(v) / LN2 for v in (d.loss_scale.log_low, d.loss_scale.log_high))
    yield "loss scale, log2", nan, low_scale, high_scale, ""
