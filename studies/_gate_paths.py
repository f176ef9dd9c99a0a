"""Measuring for gates_vs_vanilla: blocks of the product of full-state Jacobians, and depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import _training
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
PATHS = ("hh", "cc", "hc", "ch")
"""To and from: "hc" is dh_T/dc_0."""
D_X = 4
LN10 = float(np.log(10.0))


def product_blocks(factors: Array, blocks: Mapping[str, tuple[slice, slice]]) -> dict[str, Array]:
    """Ln of the spectral norm of each block (rows, columns) of J_lag ... J_1, at lags 1 ... T."""
    product, exponent = np.eye(factors.shape[-1]), 0.0
    logs: dict[str, list[float]] = {name: [] for name in blocks}
    for J in factors:
        product = J @ product
        size = np.abs(product).max()
        if size > 0:
            # a power of two: no digit changes
            power = np.frexp(size)[1]
            product, exponent = np.ldexp(product, -power), exponent + float(power)
        for name, (rows, columns) in blocks.items():
            norm = np.linalg.norm(product[rows, columns], 2)
            with np.errstate(divide="ignore"):
                logs[name].append(float(np.log(norm)) + exponent * float(np.log(2.0)))
    return {name: np.array(values) for name, values in logs.items()}


def lstm_blocks(n: int) -> dict[str, tuple[slice, slice]]:
    """The four blocks of an LSTM's state [h; c]."""
    part = {"h": slice(0, n), "c": slice(n, 2 * n)}
    return {name: (part[name[0]], part[name[1]]) for name in PATHS}


def without_recurrent_weights(kind: str, bias: float, twice: bool = False) -> Any:
    """LSTM (forget bias) or GRU (update bias) of one unit that no input moves."""
    total = 2 * bias if twice else bias
    if kind == "lstm":
        return gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0.0, total, 0.0, 0.0])
    return gp.GRU(np.zeros((3, 1)), np.zeros((3, 1)), [0.0, total, 0.0], np.zeros(3))


def measure_exact(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """log10 of the paths without recurrent weights, and what the gates say."""
    del rng  # nothing is drawn
    kind, steps = str(point["kind"]), int(point["n_steps"])
    cell = without_recurrent_weights(kind, float(point["bias"]), bool(point["twice"]))
    factors = gp.linearise(cell, np.zeros((steps, 1))).to_dense()
    everything = slice(None)
    blocks = lstm_blocks(1) if kind == "lstm" else {"hh": (everything, everything)}
    logs = product_blocks(np.asarray(factors), blocks)
    total = float(point["bias"]) * (2 if point["twice"] else 1)
    rates = gp.gate_rates(total, total)
    theory = float(rates.lstm if kind == "lstm" else rates.gru) * steps / LN10
    absent = np.full(steps, np.nan)
    found = {f"log10_{path}": logs.get(path, absent) / LN10 for path in PATHS}
    carried = found["log10_cc" if kind == "lstm" else "log10_hh"]
    return {**found, "theory": theory, "at_end": float(carried[-1])}


def measure_random(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """log10 of the paths with random recurrent weights, U(+-1/sqrt(n)), and white input."""
    kind, steps, n = str(point["kind"]), int(point["n_steps"]), int(point["n"])
    model = _training.make(kind, n, D_X, 1, rng, forget_bias=float(point["bias"]), dtype=np.float64)
    x = rng.standard_normal((steps, D_X))
    factors = np.asarray(gp.linearise(model.cell, x).to_dense())
    everything = slice(None)
    blocks = lstm_blocks(n) if kind == "lstm" else {"hh": (everything, everything)}
    logs = product_blocks(factors, blocks)
    absent = np.full(steps, np.nan)
    return {f"log10_{path}": logs.get(path, absent) / LN10 for path in PATHS}


def measure_depth(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """log10 of d h_top(lag)/d state_0 of a stack, its rate and that of its slowest layer alone.

    ``wide`` is one layer with as many units as the stack has.
    """
    kind, depth, steps = str(point["kind"]), int(point["depth"]), int(point["n_steps"])
    n, tol = int(point["n"]), float(point["tol"])
    layers = [
        _training.make(kind, n, D_X if i == 0 else n, 1, rng, dtype=np.float64).cell
        for i in range(depth)
    ]
    wide = _training.make(kind, n * depth, D_X, 1, rng, dtype=np.float64).cell
    x = rng.standard_normal((steps, D_X))
    stack = gp.Stacked(layers)
    own = [slice(o, o + c.n_state) for o, c in zip(stack.offsets, layers, strict=True)]
    blocks = {"whole": (stack.output, slice(None))}
    blocks |= {str(i): (part, part) for i, part in enumerate(own)}
    logs = product_blocks(np.asarray(gp.linearise(stack, x).to_dense()), blocks)
    block = {"wide": (wide.output, slice(None))}
    other = product_blocks(np.asarray(gp.linearise(wide, x).to_dense()), block)["wide"]
    whole = logs.pop("whole")
    return {
        "log10_stack": whole / LN10,
        "log10_wide": other / LN10,
        "horizon_stack": first_below(whole, tol),
        "horizon_wide": first_below(other, tol),
        "rate_stack": late_rate(whole),
        "rate_wide": late_rate(other),
        "rate_slowest": max(late_rate(values) for values in logs.values()),
        "rate_bottom": late_rate(logs["0"]),
    }


def first_below(logs: Array, tol: float) -> float:
    """First lag at which the norm is below tol; inf: not within the lags."""
    below = logs < np.log(tol)
    return float(below.argmax() + 1) if below.any() else np.inf


def late_rate(logs: Array) -> float:
    """Slope over the second half of the lags, nats a step."""
    half = len(logs) // 2
    return float((logs[-1] - logs[half - 1]) / (len(logs) - half))
