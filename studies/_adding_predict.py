"""Does a number known before training tell how long a sum is learned? Ranks, with intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from _adding import HALF
from _tasks import CONSTANT_GUESS
from _training import Array

from gradprop.study import Data

PREDICTORS = ("horizon", "horizon_readout", "radius", "norm")
GATED = ("lstm", "gru")
N_BOOT = 2000
LEVELS = (0.025, 0.975)
PARTS = (("learned", "without gates"), ("learned", "without gates, full W"))


def learned_length(error: Array, lengths: Array, limit: float = HALF) -> float:
    """Length at which the error passes `limit`: interpolated in ln length, linear in the error.

    Half the shortest length if that is not learned, the longest if all are. Errors above the
    constant guess count as the guess.
    """
    failed = np.flatnonzero(~(error < limit))
    if not len(failed):
        return float(lengths[-1])
    i = int(failed[0])
    if i == 0:
        return float(lengths[0]) / 2
    low, high = np.minimum(error[i - 1 : i + 1], max(CONSTANT_GUESS, limit))
    share = (limit - low) / (high - low) if high > low else 0.0
    return float(np.exp(np.interp(share, (0.0, 1.0), np.log(lengths[i - 1 : i + 1]))))


def ranks(values: Array) -> Array:
    """Ranks along the last axis; ties share the mean of theirs."""
    below = (values[..., None, :] < values[..., :, None]).sum(axis=-1)
    level = (values[..., None, :] == values[..., :, None]).sum(axis=-1)
    return np.asarray(below + (level + 1) / 2)


def spearman(x: Array, y: Array) -> Array:
    """Rank correlation along the last axis; nan where one side is constant."""
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(scale > 0, (a * b).sum(axis=-1) / scale, np.nan))


def configurations(data: Data) -> dict[str, Array]:
    """One row per configuration: its kind, medians of predictors, geometric means of lengths.

    ``learned`` counts errors below half the constant guess, ``solved`` those below 0.01.
    """
    rows: dict[str, list[float | str]] = {}
    for sweep in data.values():
        lengths = sweep["lengths"][0]
        for name in dict.fromkeys(sweep["name"].tolist()):
            part = sweep.select(name=name)
            found: dict[str, float | str] = {"name": name, "kind": str(part["kind"][0])}
            found |= {key: float(np.median(part[key])) for key in PREDICTORS}
            for key, limit in (("learned", HALF), ("solved", 0.01)):
                each = [learned_length(e, lengths, limit) for e in part["error"]]
                found[key] = float(np.exp(np.mean(np.log(each))))
                found[f"{key}_low"], found[f"{key}_high"] = min(each), max(each)
            for key, value in found.items():
                rows.setdefault(key, []).append(value)
    return {key: np.array(values) for key, values in rows.items()}


def correlations(table: Mapping[str, Array], target: str = "learned") -> dict[str, Array]:
    """Rank correlation with `target` and its 95 % bootstrap interval, for every predictor.

    Configurations are drawn with replacement, the same for all predictors; "horizon - radius" and
    "horizon - norm" are differences of correlations within one draw.
    """
    y = table[target]
    drawn = np.random.default_rng(0).integers(0, len(y), (N_BOOT, len(y)))
    samples = {name: spearman(table[name][drawn], y[drawn]) for name in PREDICTORS}
    values = {name: spearman(table[name], y) for name in PREDICTORS}
    for rival in ("radius", "norm"):
        name = f"horizon - {rival}"
        samples[name] = samples["horizon"] - samples[rival]
        values[name] = values["horizon"] - values[rival]
    return {name: np.array([values[name], *_interval(samples[name])]) for name in values}


def _interval(samples: Array) -> Array:
    known = samples[np.isfinite(samples)]
    return np.quantile(known, LEVELS) if len(known) else np.full(2, np.nan)


def subset(table: Mapping[str, Array], keep: Array) -> dict[str, Array]:
    """The configurations of a mask."""
    return {key: values[keep] for key, values in table.items()}


def groups(table: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """All configurations, those without gates, and those that can gate one input by another.

    A diagonal network in one layer cannot: no unit of it sees another.
    """
    gated = np.isin(table["kind"], GATED)
    return {
        "all": subset(table, np.full(len(gated), True)),
        "without gates": subset(table, ~gated),
        "without gates, full W": subset(table, ~gated & (table["kind"] != "diagonal")),
    }
