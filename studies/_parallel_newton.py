"""Measuring for parallel_newton: all states of a tanh network at once, by Newton's method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
CAP = 400
"""Iterations after which a network counts as not converged."""
TOLERANCE = 1e-10
"""Largest |h_t - F(h_{t-1}, x_t)| of any unit at any step that counts as solved."""


def newton(W: Array, field: Array, start: Array, cap: int = CAP) -> tuple[int, Array, Array]:
    """Solve h_t = tanh(W h_{t-1} + field_t) for all t at once: iterations, residuals, states.

    The first guess is h = 0. Each iteration linearises every step at the guess and solves the
    linear recurrence exactly, d_t = J_t d_{t-1} + F(h_{t-1}) - h_t; no damping. -1: not within
    `cap`, be it for overflow. The residuals, one before each iteration, are nan behind the last.
    """
    guess = np.zeros((len(field) + 1, len(W)))
    guess[0] = start
    residuals = np.full(cap + 1, np.nan)
    for iteration in range(cap + 1):
        with np.errstate(over="ignore", invalid="ignore"):
            z = guess[:-1] @ W.T + field
            gap = np.tanh(z) - guess[1:]
            residuals[iteration] = np.abs(gap).max()
        if not np.isfinite(residuals[iteration]):
            residuals[iteration:] = np.nan
            return -1, residuals, guess
        if residuals[iteration] <= TOLERANCE:
            return iteration, residuals, guess
        guess[1:] += _linear_recurrence(W, slope(z), gap)
    return -1, residuals, guess


def slope(z: Array) -> Array:
    """Slope of tanh, from z."""
    q = np.exp(-2 * np.abs(z))
    return np.asarray(4 * q / (1 + q) ** 2)


def _linear_recurrence(W: Array, slopes: Array, gap: Array) -> Array:
    """d_t = diag(slopes_t) W d_{t-1} + gap_t from d_0 = 0, rows t = 1, 2, ..."""
    out = np.empty_like(gap)
    step = np.zeros(len(W))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(len(gap)):
            step = slopes[t] * (W @ step) + gap[t]
            out[t] = step
    return out


def network(point: Mapping[str, Any], rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """W, the input of every step and the start; those of one seed differ by the gain alone."""
    n = int(point["n"])
    W = gp.initialise("gaussian", n, rng=rng, gain=float(point["gain"]))
    start = rng.standard_normal(n)
    return W, float(point["input_std"]) * rng.standard_normal((int(point["n_steps"]), n)), start


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Iterations on one network, and the top exponent of the same steps with its interval."""
    W, field, start = network(point, rng)
    iterations, residuals, solved = newton(W, field, start, int(point["cap"]))
    chain = gp.linearise(gp.RNN(W), field, h0=start)
    spectrum = gp.lyapunov_spectrum(chain, 1, burn_in=len(field) // 16)
    orbit = gp.rollout(gp.RNN(W), field, h0=start).h
    error = float(np.abs(solved - orbit).max()) if iterations >= 0 else np.nan
    return {
        "iterations": iterations,
        "overflowed": bool(iterations < 0 and np.isnan(residuals).any()),
        "residuals": residuals,
        "lambda_1": float(spectrum.exponents[0]),
        "low": float(spectrum.interval[0, 0]),
        "high": float(spectrum.interval[0, 1]),
        "error": error,
        "n_steps_used": len(field),
    }
