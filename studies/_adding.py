"""What adding_task measures: one network, trained from the same start on longer and longer sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from _tasks import CONSTANT_GUESS, adding
from _training import Adam, Array, Batch, Model, Record, make, squared_error, train

import gradprop as gp

BATCH = 32
HELD_OUT = 512
CHECK_EVERY = 25
SOLVED = 0.01
STOP = 0.8 * SOLVED
"""Validation error that ends a run: margin enough that the test error is below SOLVED too."""
HALF = CONSTANT_GUESS / 2
"""Error of who knows one of the two marked values: below it a network has felt both halves."""
MAX_NORM = 1.0
PROBES = 8
"""Sequences along which the untrained and the trained network are linearised."""

Point = Mapping[str, Any]


def build(point: Point, rng: np.random.Generator) -> Model:
    """The untrained network of a configuration.

    ``scale`` multiplies W_hh and ``input_scale`` W_xh; a diagonal is drawn from [``low``, 1];
    ``bias`` is added to what keeps the state: forget gate of an LSTM, update gate of a GRU.
    """
    kind, n = str(point["kind"]), int(point["n"])
    model = make(kind, n, 2, 1, rng, forget_bias=float(point["bias"]))
    p = model.parameters
    if kind == "diagonal":
        p["W_hh"] = np.diag(rng.uniform(point["low"], 1.0, n)).astype(p["W_hh"].dtype)
    if kind == "gru":
        p["b_x"][n : 2 * n] += np.float32(point["bias"])
    p["W_hh"] *= np.float32(point["scale"])
    p["W_xh"] *= np.float32(point["input_scale"])
    return model


def recurrent_block(model: Model) -> Array:
    """The square matrix whose radius and norm are rivals of the horizon.

    Of the gated cells the rows of the candidate: they multiply h as W_hh of the others does.
    """
    n = model.n
    rows = slice(2 * n, 3 * n) if model.kind in ("lstm", "gru") else slice(None)
    return np.asarray(model.parameters["W_hh"][rows], dtype=np.float64)


def reach(model: Model, x: Array, samples: int, *, readout: bool = False) -> float:
    """Median over sequences of the last lag at which the gradient exceeds samples**-1/2.

    Worst case over directions, or of the readout's own row; the length of x if it never ends.
    """
    chain = gp.linearise(model.cell, x)
    cotangent = None
    if readout:
        cotangent = np.zeros((len(x), model.cell.n_state))
        cotangent[:, : model.n] = model.parameters["W_hy"][0]
    found = gp.horizon(chain, samples=samples, cotangent=cotangent)
    return float(np.median(found.last_above))


def measure(point: Point, rng: np.random.Generator) -> dict[str, Any]:
    """Radius, norm and horizon of the untrained network; errors and updates by length.

    Where ``climb`` is set, lengths after the first that is not learned (error of at least HALF)
    are left out: nan, and 0 updates.
    """
    lengths = np.asarray(point["lengths"])
    start, probes, *tasks = rng.spawn(2 + len(lengths))
    model = build(point, start)
    x = adding(PROBES, int(lengths[-1]), probes).x
    samples = int(point["n_updates"]) * BATCH
    block = recurrent_block(model)
    values: dict[str, Any] = {
        "horizon": reach(model, x, samples),
        "horizon_readout": reach(model, x, samples, readout=True),
        "radius": float(gp.spectral_radius(block)),
        "norm": float(gp.spectral_norm(block)),
    }
    error, after = np.full((2, len(lengths)), np.nan)
    updates = np.zeros(len(lengths), dtype=np.int64)
    for i, (length, own) in enumerate(zip(lengths, tasks, strict=True)):
        trained = model.copy()
        error[i], updates[i] = learn(trained, int(length), point, own)
        after[i] = reach(trained, x, samples) if math.isfinite(error[i]) else np.nan
        if point["climb"] and not error[i] < HALF:
            break
    return values | {
        "lengths": lengths,
        "error": error,
        "updates": updates,
        "horizon_after": after,
    }


def learn(model: Model, length: int, point: Point, rng: np.random.Generator) -> tuple[float, int]:
    """Train on sums of one length; the test error (inf if the run diverged), and the updates made.

    Every batch is new. A run ends early when the validation error is below STOP.
    """
    validation, test = adding(HELD_OUT, length, rng), adding(HELD_OUT, length, rng)

    def watch(update: int, record: Record) -> bool:
        return update % CHECK_EVERY == 0 and held_out_error(model, validation) < STOP

    # a run that overflows ends, and says so in its record
    with np.errstate(over="ignore", invalid="ignore"):
        record = train(
            model,
            fresh(length, rng),
            Adam(float(point["rate"])),
            int(point["n_updates"]),
            squared_error,
            max_norm=MAX_NORM,
            watch=watch,
        )
    error = math.inf if record.diverged else held_out_error(model, test)
    return error, record.updates


def fresh(length: int, rng: np.random.Generator) -> Iterator[Batch]:
    """New batches for ever."""
    while True:
        yield adding(BATCH, length, rng)


def held_out_error(model: Model, data: Batch) -> float:
    """Mean squared error; inf where the orbit left the range of floats."""
    try:
        return squared_error(model.predict(data.x), data.target)[0]
    except ValueError:
        return math.inf
