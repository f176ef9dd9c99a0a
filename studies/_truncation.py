"""What truncation measures: training with one window on one task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import _characters
import _tasks
import numpy as np
from _training import (
    Adam,
    Batch,
    Model,
    Parameters,
    Record,
    cross_entropy,
    epochs,
    loss_and_gradients,
    make,
    outputs,
    train,
)
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
UNITS = {"recall": 12, "text": 32}
BATCH = {"recall": 20, "text": 8}
DELAY = (17, 31)
RATE, MAX_NORM, FORGET_BIAS = 1e-2, 1.0, 3.0
N_TRAIN, N_TEST, N_BIAS = 2000, 400, 4


def problem(
    task: str, length: int, rng: np.random.Generator
) -> tuple[Model, Iterator[Batch], Batch]:
    """A fresh LSTM, batches for ever, and a test set."""
    d_x, d_y = (3, 2) if task == "recall" else (_characters.size(),) * 2
    model = make("lstm", UNITS[task], d_x, d_y, rng, forget_bias=FORGET_BIAS)
    if task == "recall":
        data, test = (_tasks.recall(size, length, DELAY, rng) for size in (N_TRAIN, N_TEST))
        return model, epochs(data, BATCH[task], rng), test
    training, _, last = _characters.splits()
    batches = _characters.batches(training, BATCH[task], length, rng)
    return model, batches, _characters.whole(last, length)


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Test loss and accuracy and gradient norms during training, and the bias before and after."""
    task, length, every = point["task"], int(point["length"]), int(point["every"])
    n_updates, windows = int(point["n_updates"]), np.asarray(point["windows"])
    model, batches, test = problem(task, length, rng)
    few = Batch(test.x[:N_BIAS], test.target[:N_BIAS], mask=_mask(test)[:N_BIAS])
    before = bias(model, few, windows)
    curves = np.full((2, n_updates // every), np.nan)

    def watch(update: int, record: Record) -> bool:
        if update % every == 0:
            prediction, wanted = outputs(model, test)
            right = prediction.argmax(axis=1) == wanted
            curves[:, update // every - 1] = cross_entropy(prediction, wanted)[0], np.mean(right)
        return False

    record = train(
        model, batches, Adam(RATE), n_updates, cross_entropy, max_norm=MAX_NORM,
        window=int(point["window"]), watch=watch,
    )  # fmt: skip
    norms = np.full(n_updates, np.nan)
    norms[: record.updates] = record.norm
    reached = reach(test, int(point["window"])) if task == "recall" else np.nan
    return {
        "loss": curves[0], "accuracy": curves[1], "norm": norms, "bias_before": before,
        "bias_after": bias(model, few, windows), "reached": float(reached),
        "diverged": record.diverged != "",
    }  # fmt: skip


def bias(model: Model, batch: Batch, windows: Array) -> Array:
    """Relative error and cosine of the truncated gradient of the cell's arrays, (2, W)."""
    prediction, wanted = outputs(model, batch)
    at, _ = batch.losses()
    grad_h = np.zeros((*batch.x.shape[:2], model.n), dtype=prediction.dtype)
    grad_h[at] = cross_entropy(prediction, wanted)[1] @ model.parameters["W_hy"]
    found = gp.truncation_bias(model.cell, batch.x, grad_h, windows)
    return np.stack([found.chunked_error[:, 0], found.chunked_cosine[:, 0]])


def reach(batch: Batch, window: int) -> float:
    """Share of the queries of a recall batch whose store lies in their own chunk."""
    steps = np.arange(batch.x.shape[1])
    stored = np.maximum.accumulate(np.where(batch.x[..., 1] > 0, steps, -1), axis=1)
    same = stored // window == steps // window
    return float(same[_mask(batch)].mean())


def in_pieces(model: Model, batch: Batch, window: int) -> Parameters:
    """Gradients of truncated BPTT with no more than one chunk of states in memory.

    The state at the end of a chunk comes from a second forward pass.
    """
    mask, start = _mask(batch), None
    sums = {name: np.zeros_like(a) for name, a in model.parameters.items()}
    for first in range(0, batch.x.shape[1], window):
        steps = slice(first, first + window)
        piece = Batch(batch.x[:, steps], batch.target[:, steps], mask=mask[:, steps])
        share = float(mask[:, steps].sum() / mask.sum())
        if share:
            _, grads = loss_and_gradients(model, piece, cross_entropy, h0=start)
            for name, g in grads.items():
                sums[name] += (share * g).astype(g.dtype)
        start = gp.rollout(model.cell, piece.x, h0=start).state[:, -1]
    return sums


def _mask(batch: Batch) -> Array:
    assert batch.mask is not None
    return batch.mask
