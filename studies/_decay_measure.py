"""What decay_vs_rho measures at one point of its grids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import _text_input
import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.perron import perron_log_norms

INPUT_STD = 0.5
TOLERANCES = {"horizon_eps": 2.0**-23, "horizon_samples": 1e4**-0.5}
MOST_NETWORKS = 128
POPULATION_GAIN = 1.2
POPULATION_BATCH = 100

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Network:
    """What every rho of one network shares: weights of radius 1, their bounds, input and start."""

    W: Array
    log_norm: float
    perron: Array
    x: Array
    h0: Array


_NETWORKS: dict[tuple[Any, ...], Network] = {}


def network(point: Mapping[str, Any], rng: np.random.Generator) -> Network:
    """The network of a point, drawn once per process: rng depends on its key alone."""
    key = (point["initialisation"], point["seed"], point["n"], point["n_lags"], point["n_steps"])
    if key not in _NETWORKS:
        if len(_NETWORKS) >= MOST_NETWORKS:
            _NETWORKS.clear()
        _NETWORKS[key] = _drawn(point, rng)
    return _NETWORKS[key]


def _drawn(point: Mapping[str, Any], rng: np.random.Generator) -> Network:
    name, n = point["initialisation"], int(point["n"])
    if name == "trained":
        W = np.asarray(gp.rescale(point["W_hh"], spectral_radius=1.0))
    else:
        ring: dict[str, Any] = {"inner": 1.0, "rotate": True} if name == "diagonal" else {}
        W = gp.initialise(name, n, rng=rng, spectral_radius=1.0, **ring)
    x = _text_input.drive(rng, n, point["burn_in"] + point["n_steps"], INPUT_STD) + point["b"]
    return Network(
        W,
        float(np.log(gp.spectral_norm(W))),
        perron_log_norms(W, np.arange(point["n_lags"] + 1)),
        x,
        rng.standard_normal(n),
    )


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Norms, bounds, leading exponent and horizons of one driven network at one rho."""
    n, n_lags, rho = int(point["n"]), int(point["n_lags"]), float(point["rho"])
    net = network(point, rng)
    chain = gp.linearise(gp.RNN(rho * net.W), net.x, h0=net.h0, dtype=point["dtype"])
    lags = np.arange(n_lags + 1)
    norms, bounds = gp.measure(
        chain.tail(n_lags),
        gp.Norms(lags=lags),
        gp.Bounds(lags=lags, certificates=False, splits=False),
    )
    log_W_norm, log_growth = _scaled_norms(net, rho, point["dtype"])
    curves = {
        "spectral_norm": lags * log_W_norm,
        "step_norms": bounds.step_norms,
        "blocked": bounds.blocked,
        "perron": net.perron + lags * log_growth,
    }
    warm = point["burn_in"] // 2
    exponents = gp.lyapunov_spectrum(chain.tail(point["n_steps"] + warm), 1, burn_in=warm)
    values: dict[str, Any] = {
        "n": n,
        "n_lags": n_lags,
        "log_W_norm": float(log_W_norm),
        "lambda1": float(exponents.exponents[0]),
        "lambda1_low": float(exponents.interval[0, 0]),
        "lambda1_high": float(exponents.interval[0, 1]),
        "log_norm_error": float(norms.error.max()),
        "log_norm": norms.log_norm[:: point["every"]],
    }
    for name, bound in curves.items():
        values[f"loose_{name}"] = float((bound[-1] - norms.log_norm[-1]) / n_lags)
        # the rule of all comparisons: absolute nats over 1 + lag
        values[f"margin_{name}"] = float(np.min((bound - norms.log_norm) / (1 + lags)))
    values["step_norms"] = bounds.step_norms[:: point["every"]]
    for name, tol in TOLERANCES.items():
        below = np.flatnonzero(norms.log_norm < np.log(tol))
        values[name] = int(below[0]) if len(below) else 0
    return values


def _scaled_norms(net: Network, rho: float, dtype: str) -> tuple[float, float]:
    """Ln ||rho W||_2, and what a step adds to the Perron bound of W."""
    if dtype == "float64":
        return net.log_norm + float(np.log(rho)), float(np.log(rho))
    # weights rounded to float32 have a norm of their own, entries up to 2^-24 larger
    norm = gp.spectral_norm((rho * net.W).astype(np.float32))
    return float(np.log(norm)), float(np.log(rho) + np.log1p(2.0**-24))


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
