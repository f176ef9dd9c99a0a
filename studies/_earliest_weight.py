"""Measuring for earliest_weight: what a loss at step T says about the first step's use of W_xh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import _training
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
NETWORKS: dict[str, tuple[str, float]] = {
    "vanilla": ("vanilla", 0.0),
    "orthogonal": ("orthogonal", 0.0),
    "identity": ("identity", 0.0),
    "diagonal": ("diagonal", 0.0),
    "lstm_0": ("lstm", 0.0),
    "lstm_1": ("lstm", 1.0),
    "lstm_3": ("lstm", 3.0),
    "gru": ("gru", 0.0),
}
"""Kind and forget bias of each network, by the name it has in the grid."""
D_X = 4


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Ln |delta_1 x_1^T| / (|g| |x_1|) of each sequence at every T, and the bound where it exists.

    White input of variance 1; g is a random unit direction of h_T, so that the start is 0.
    """
    kind, forget_bias = NETWORKS[str(point["network"])]
    lengths = np.asarray(point["lengths"], dtype=int)
    n, size = int(point["n"]), int(point["size"])
    model = _training.make(kind, n, D_X, 1, rng, forget_bias=forget_bias, dtype=np.float32)
    x = rng.standard_normal((size, lengths[-1], D_X)).astype(np.float32)
    u = rng.standard_normal((size, n)).astype(np.float32)
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    exact = _double(model)
    logs = np.array([first_contribution(exact.cell, x[:, :T].astype(float), u) for T in lengths])
    single = np.array([first_contribution(model.cell, x[:, :T], u) for T in lengths])
    bound = np.array([bound_of(exact.cell, x[:, :T].astype(float)) for T in lengths])
    return {
        "lengths": lengths,
        "log_norm": logs,
        "bound": bound,
        "margin": float(np.min(bound[:, None] - logs)),
        "zero": np.isneginf(logs).mean(axis=1),
        "zero_float32": np.isneginf(single).mean(axis=1),
        "gap_float32": _largest_gap(single, logs),
    }


def _double(model: _training.Model) -> _training.Model:
    return _training.Model(
        model.kind, {name: a.astype(np.float64) for name, a in model.parameters.items()}
    )


def _largest_gap(single: Array, logs: Array) -> Array:
    """Median |ln| distance of the float32 gradients that are not zero, by T; nan where none is."""
    kept = np.isfinite(single) & np.isfinite(logs)
    gaps = [np.abs(s[k] - e[k]) for s, e, k in zip(single, logs, kept, strict=True)]
    return np.array([np.median(g) if len(g) else np.nan for g in gaps])


def first_contribution(cell: Any, x: Array, u: Array) -> Array:
    """Ln |delta_1 x_1^T|_F / (|u| |x_1|) = ln |delta_1| / |u| of each sequence, for L = u . h_T."""
    grad_h = np.zeros((*x.shape[:2], cell.n), dtype=x.dtype)
    grad_h[:, -1] = u
    delta = gp.backward(cell, x, grad_h).delta[:, 0].astype(float)
    # squares would underflow where the entries do not
    largest = np.abs(delta).max(axis=-1)
    with np.errstate(divide="ignore"):
        scaled = np.linalg.norm(delta / np.where(largest > 0, largest, 1)[:, None], axis=-1)
        logs = np.log(largest) + np.log(scaled)
    size = np.linalg.norm(u.astype(float), axis=-1)
    return np.asarray(np.where(largest > 0, logs, -np.inf) - np.log(size))


def bound_of(cell: Any, x: Array) -> float:
    """Gamma (gamma |W|)^(T-1) in nats; inf for gated cells, whose Jacobians have no one W."""
    if not isinstance(cell, gp.RNN):
        return np.inf
    chain = gp.linearise(cell, x[0])
    lag = x.shape[1] - 1
    bounds = gp.norm_bounds(chain, lags=[lag], scalings=0, splits=False)
    return float(bounds.spectral_norm[0] + np.log(cell.activation.gamma))
