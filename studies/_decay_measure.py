"""What decay_vs_rho measures at one point of its grids."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import _text_input
import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.perron import perron_log_norms

INPUT_STD = 0.5
TOLERANCES = {"horizon_eps": 2.0**-23, "horizon_samples": 1e4**-0.5}
BOUNDS = ("spectral_norm", "step_norms", "blocked", "perron")
POPULATION_GAIN = 1.2
POPULATION_BATCH = 100

Array = NDArray[Any]


@functools.lru_cache(maxsize=512)
def _norms_once(key: tuple[Any, ...], W: _Hashed, n_lags: int) -> tuple[float, Array]:
    """Ln ||W||_2 and ln || |W|^l ||_2 of a network of radius 1, the same for every rho."""
    norm = float(np.log(gp.spectral_norm(W.array)))
    return norm, perron_log_norms(W.array, np.arange(n_lags + 1))


class _Hashed:
    """An array that a cache takes as it is: the key beside it tells networks apart."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed)


def unit_network(point: Mapping[str, Any], rng: np.random.Generator) -> Array:
    """Weights of spectral radius 1 (before rho): drawn, or those of a trained network."""
    name, n = point["initialisation"], int(point["n"])
    if name == "trained":
        return np.asarray(gp.rescale(point["W_hh"], spectral_radius=1.0))
    ring: dict[str, Any] = {"inner": 1.0, "rotate": True} if name == "diagonal" else {}
    return gp.initialise(name, n, rng=rng, spectral_radius=1.0, **ring)


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Norms, bounds, leading exponent and horizons of one driven network at one rho."""
    n, n_lags, rho = int(point["n"]), int(point["n_lags"]), float(point["rho"])
    W = unit_network(point, rng)
    total = point["burn_in"] + point["n_steps"]
    x = _text_input.drive(rng, n, total, INPUT_STD) + point["b"]
    cell = gp.RNN(rho * W)
    chain = gp.linearise(cell, x, h0=rng.standard_normal(n), dtype=point["dtype"])
    lags = np.arange(n_lags + 1)
    norms, bounds = gp.measure(
        chain.tail(point["n_steps"]), gp.Norms(lags=lags), gp.Bounds(lags=lags)
    )
    warm = point["burn_in"] // 2
    exponents = gp.lyapunov_spectrum(chain.tail(point["n_steps"] + warm), 1, burn_in=warm)
    values: dict[str, Any] = {
        "n": n,
        "n_lags": n_lags,
        "lambda1": float(exponents.exponents[0]),
        "lambda1_low": float(exponents.interval[0, 0]),
        "lambda1_high": float(exponents.interval[0, 1]),
        "log_norm_error": float(norms.error.max()),
        "log_norm": norms.log_norm[:: point["every"]],
    }
    for name in BOUNDS:
        bound = getattr(bounds, name)
        values[f"loose_{name}"] = float((bound[-1] - norms.log_norm[-1]) / n_lags)
        # the rule of all comparisons: absolute nats over 1 + lag
        values[f"margin_{name}"] = float(np.min((bound - norms.log_norm) / (1 + lags)))
        if name in ("spectral_norm", "step_norms"):
            values[name] = bound[:: point["every"]]
    for name, tol in TOLERANCES.items():
        below = np.flatnonzero(norms.log_norm < np.log(tol))
        values[name] = int(below[0]) if len(below) else 0
    return values


def measure_population(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Pulled-back gradients and norms of a batch of Gaussian networks, by lag."""
    n, n_lags, size = int(point["n"]), int(point["n_lags"]), int(point["size"])
    W = gp.initialise("gaussian", n, size=size, rng=rng, gain=point["gain"])
    x = _text_input.drive(rng, n, point["burn_in"] + n_lags, INPUT_STD, (size,))
    chain = gp.linearise(gp.RNN(W), x, h0=rng.standard_normal((size, n))).tail(n_lags)
    u = rng.standard_normal((size, n))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    lags = np.arange(0, n_lags + 1, point["every"])
    return {
        "n": n,
        "n_lags": n_lags,
        "log_gradient": gp.gradient_by_lag(chain, u, lags=lags).log_norm,
        "log_sigma1": gp.log_norms(chain, lags=lags, anchor="end").log_norm,
    }
