"""What width_and_rate measures: one width at one learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import _characters
import numpy as np
from _training import Adam, Batch, Model, Record, cross_entropy, make, outputs, train
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
LENGTH, BATCH, MAX_NORM = 32, 16, 1.0
GAIN, PATIENCE = 0.005, 3
"""Early stopping: no gain of so many nats over all before in so many evaluations."""


class Watch:
    """Follows a run past its early stop and the fixed number of updates, whichever comes last."""

    def __init__(self, model: Model, validation: Batch, every: int, fixed: int) -> None:
        self.model, self.validation, self.every, self.budget = model, validation, every, fixed
        self.curve: list[float] = []
        self.stop = 0
        self.best: Model | None = None
        self.fixed: Model | None = None

    def __call__(self, update: int, record: Record) -> bool:
        """Evaluate now and then; True ends the run."""
        if update % self.every:
            return False
        self.curve.append(loss_on(self.model, self.validation))
        if not self.stop:
            if self.curve[-1] == min(self.curve):
                self.best = self.model.copy()
            self.stop = update if stops(self.curve) else 0
        if update == self.budget:
            self.fixed = self.model.copy()
        return self.stop > 0 and update >= self.budget


def stops(curve: Sequence[float]) -> bool:
    """Whether the last evaluations all failed to be better than those before by enough."""
    return len(curve) > PATIENCE and min(curve[-PATIENCE:]) > min(curve[:-PATIENCE]) - GAIN


def fresh(n: int, rng: np.random.Generator) -> Model:
    """A tanh network that predicts characters."""
    return make("vanilla", n, _characters.size(), _characters.size(), rng)


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Losses of the network kept by early stopping, and of that after the fixed budget.

    Both are places on one trajectory. A loss is nan if the run diverged before its place.
    """
    every, most = int(point["every"]), int(point["most"])
    codes, held, last = _characters.splits()
    parts = [_characters.whole(c[: point["n_characters"]], LENGTH) for c in (codes, held, last)]
    model = fresh(int(point["n"]), rng)
    watch = Watch(model, parts[1], every, int(point["fixed"]))
    record = train(
        model, _characters.batches(codes, BATCH, LENGTH, rng), Adam(float(point["rate"])), most,
        cross_entropy, max_norm=MAX_NORM, watch=watch,
    )  # fmt: skip
    curve = np.full(most // every, np.nan)
    curve[: len(watch.curve)] = watch.curve
    values: dict[str, Any] = {
        "validation": curve,
        "updates": watch.stop or record.updates,
        "stopped": watch.stop > 0,
        "diverged": record.diverged != "",
        "budget": int(point["fixed"]),
        "every_update": every,
        "n_parameters": gp.parameter_count(model.cell, output_size=_characters.size()).total,
    }
    for name, kept in (("early", watch.best), ("fixed", watch.fixed)):
        for part, batch in (("training", parts[0]), ("test", parts[2])):
            values[f"{part}_{name}"] = np.nan if kept is None else loss_on(kept, batch)
    return values


def loss_on(model: Model, batch: Batch) -> float:
    """Mean loss in nats a character; inf where the network leaves the range of floats."""
    prediction, wanted = outputs(model, batch)
    return cross_entropy(prediction, wanted)[0] if np.isfinite(prediction).all() else np.inf
