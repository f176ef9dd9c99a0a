"""Measuring for horizon_during_training: exponent, horizon and norms between updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import _tasks
import _training
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
BATCH = 32
N_PROBES = 64
QUANTILES = (0.05, 0.5, 0.95)


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Train one network; at every checkpoint its exponent, its horizon and its loss.

    The horizon is that of the readout's direction over `N_PROBES` fresh sequences, with the
    tolerance N^-1/2 of the training set's size N.
    """
    length, samples = int(point["length"]), int(point["samples"])
    checkpoints = np.asarray(point["checkpoints"], dtype=int)
    model = _training.make(str(point["kind"]), int(point["n"]), 2, 1, rng)
    data = _tasks.adding(samples, length, rng)
    probes = _tasks.adding(N_PROBES, length, rng)
    stream = long_input(length, int(point["stream"]), rng)
    adam, rows = _training.Adam(float(point["rate"])), []
    batches, record = _training.epochs(data, BATCH, rng), _training.Record()
    for before, now in zip([0, *checkpoints[:-1]], checkpoints, strict=True):
        part = _train(model, batches, adam, int(now - before))
        record.loss += part.loss
        record.norm += part.norm
        if part.diverged:
            raise ValueError(part.diverged)  # clipped at 1: not expected, and never dropped
        rows.append(checkpoint(model, probes, stream, samples))
    measured = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    edges = np.maximum(1, checkpoints)
    norms = [record.norm[max(0, b - 50) : b] for b in edges]
    return {
        **measured,
        "checkpoints": checkpoints,
        "length": length,
        "loss": np.array(record.loss),
        "norm": np.array(record.norm),
        "norm_quantiles": np.array([np.quantile(v, QUANTILES) for v in norms]),
    }


def _train(
    model: _training.Model, batches: Iterator[_training.Batch], adam: _training.Adam, updates: int
) -> _training.Record:
    return _training.train(model, batches, adam, updates, _training.squared_error, max_norm=1.0)


def long_input(length: int, steps: int, rng: np.random.Generator) -> Array:
    """Task sequences one after the other: values U(0, 1), two marks in every `length` steps."""
    count = -(-steps // length)
    return _tasks.adding(count, length, rng).x.reshape(-1, 2)[:steps].astype(np.float64)


def checkpoint(
    model: _training.Model, probes: _training.Batch, stream: Array, samples: int
) -> dict[str, Any]:
    """Exponent with its interval, horizon quantiles in steps (inf: not within), held-out loss."""
    exact = _training.Model(
        model.kind, {name: a.astype(np.float64) for name, a in model.parameters.items()}
    )
    spectrum = gp.lyapunov_spectrum(gp.linearise(exact.cell, stream), 1, burn_in=len(stream) // 10)
    chain = gp.linearise(exact.cell, probes.x.astype(np.float64))
    cotangent = np.zeros(exact.cell.n_state)
    cotangent[exact.cell.output] = exact.parameters["W_hy"][0]
    horizon = gp.horizon(chain, samples=samples, cotangent=cotangent)
    gradient = gp.gradient_by_lag(chain, cotangent, lags=[0, chain.n_steps]).log_norm
    held_out, _ = _training.squared_error(model.predict(probes.x), probes.target)
    return {
        "lambda_1": float(spectrum.exponents[0]),
        "low": float(spectrum.interval[0, 0]),
        "high": float(spectrum.interval[0, 1]),
        "horizon": np.asarray(horizon.quantiles),
        "share_beyond": float(np.mean(horizon.first_below == 0)),
        "log_gradient": np.quantile(gradient[:, 1] - gradient[:, 0], QUANTILES),
        "held_out": held_out,
    }
