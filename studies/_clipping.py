"""Measuring for clipping: training runs under several rules, and what a rule does to a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import _tasks
import _training
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
RULES = ("none", "global 1", "global 5", "each array 1")
BATCH = 32


def each_array(grads: _training.Parameters, limit: float) -> _training.Parameters:
    """Every array clipped by its own norm."""
    return {name: gp.clip_by_global_norm({name: g}, limit)[0][name] for name, g in grads.items()}


def cosine(a: _training.Parameters, b: _training.Parameters) -> float:
    """Cosine between two gradients taken as long vectors."""
    sizes = gp.global_norm(a) * gp.global_norm(b)
    return float(sum(np.vdot(a[k].astype(float), b[k].astype(float)) for k in a)) / sizes


class PerArray:
    """An optimiser that first clips each array by itself, and keeps by how much that turned it."""

    def __init__(self, inner: _training.Optimiser, limit: float, *, only_watch: bool) -> None:
        self.inner, self.limit, self.only_watch = inner, limit, only_watch
        self.cosines: list[float] = []

    def step(self, parameters: _training.Parameters, grads: _training.Parameters) -> None:
        """One update."""
        clipped = each_array(grads, self.limit)
        # as a number: of gradients clipped jointly to the limit no array is above it
        self.cosines.append(cosine(grads, clipped))
        self.inner.step(parameters, grads if self.only_watch else clipped)


def batches(length: int, rng: np.random.Generator) -> Iterator[_training.Batch]:
    """Fresh sequences of the adding task for ever."""
    while True:
        yield _tasks.adding(BATCH, length, rng)


def network(name: str, n: int, rng: np.random.Generator) -> _training.Model:
    """A tanh network of gain 1.5, an orthogonal one, or relu units that start from the identity."""
    model = _training.make("vanilla" if name == "tanh, gain 1.5" else name, n, 2, 1, rng)
    if name == "tanh, gain 1.5":
        W = gp.initialise("gaussian", n, rng=rng, gain=1.5)
        model.parameters["W_hh"] = W.astype(np.float32)
    return model


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """One run: losses, norms before clipping, where it diverged, and angles of per-array clipping.

    Runs of one seed that differ in the rule alone have the same start and the same batches.
    """
    rule, updates = str(point["rule"]), int(point["n_updates"])
    model = network(str(point["network"]), int(point["n"]), rng)
    sgd = PerArray(_training.SGD(float(point["rate"])), 1.0, only_watch=rule != "each array 1")
    limit = float(rule.split()[-1]) if rule.startswith("global") else None
    # a run that leaves the range of floats is a result here: its record says so
    with np.errstate(over="ignore", invalid="ignore"):
        record = _training.train(
            model, batches(int(point["length"]), rng), sgd, updates, _training.squared_error,
            max_norm=limit,
        )  # fmt: skip
    made = record.updates
    return {
        "loss": padded(record.loss, updates),
        "norm": padded(record.norm, updates),
        "cosine": padded(sgd.cosines, updates),
        "clipped": float(np.mean(record.clipped)) if made else np.nan,
        "diverged_at": made + 1 if record.diverged else -1,
        "diverged": record.diverged,
        "final_loss": np.inf if record.diverged else float(np.mean(record.loss[-100:])),
    }


def padded(values: list[float], size: int) -> Array:
    """As an array of fixed size, nan behind what there is."""
    out = np.full(size, np.nan)
    out[: len(values)] = values
    return out


def measure_vanished(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Train a contracting network twice, with and without clipping, and compare every bit."""
    length, updates = int(point["length"]), int(point["n_updates"])
    start = _training.make("vanilla", int(point["n"]), 2, 1, rng)
    start.parameters["b_y"][:] = 1.0  # the mean of the targets: no large first gradient
    data = int(rng.integers(2**62))
    probe = _tasks.adding(BATCH, length, rng)
    runs, far = [], np.full((2, updates), np.nan)
    for k, limit in enumerate((None, float(point["limit"]))):
        model = start.copy()
        record = _training.train(
            model, batches(length, np.random.default_rng(data)),
            _training.SGD(float(point["rate"])), updates, _training.squared_error,
            max_norm=limit, watch=_watch_far(model, probe, far[k], int(point["every"])),
        )  # fmt: skip
        runs.append((model, record))
    (free, free_record), (held, held_record) = runs
    same = all(
        free.parameters[name].tobytes() == held.parameters[name].tobytes()
        for name in free.parameters
    )
    return {
        "bit_equal": same,
        "norm": padded(free_record.norm, updates),
        "norm_clipped": padded(held_record.norm, updates),
        "log10_far": far[0],
        "log10_far_clipped": far[1],
        "largest_norm": max(free_record.norm),
        "final_loss": float(np.mean(free_record.loss[-50:])),
    }


def _watch_far(
    model: _training.Model, probe: _training.Batch, out: Array, every: int
) -> Callable[[int, _training.Record], bool]:
    def watch(update: int, record: _training.Record) -> bool:
        if update % every == 0:
            out[update - 1] = log10_far_share(model, probe)
        return False

    return watch


def log10_far_share(model: _training.Model, batch: _training.Batch) -> float:
    """log10 of the share of the deltas' norm that lies in the first half of the sequence."""
    exact = _training.Model(
        model.kind, {name: a.astype(np.float64) for name, a in model.parameters.items()}
    )
    u = exact.parameters["W_hy"][0]
    x = batch.x.astype(np.float64)
    grad_h = np.zeros((*x.shape[:2], model.n))
    grad_h[:, -1] = u
    delta = gp.backward(exact.cell, x, grad_h).delta
    half = delta[:, : x.shape[1] // 2]
    largest = np.abs(half).max()
    if largest == 0:
        return -np.inf
    ratio = np.linalg.norm(half / largest) / np.linalg.norm(delta)
    return float(np.log10(largest) + np.log10(ratio))
