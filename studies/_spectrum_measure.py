"""What spectrum_vs_theory measures at one point of its grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp

BINS = 32
CURVE = 200
LOCAL_EDGES = np.linspace(-4.0, 2.0, 61)

Array = NDArray[Any]


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Spectra of as many networks as have ``largest`` units together, and their gap to theory."""
    n, gain, noise = int(point["n"]), float(point["gain"]), float(point["noise"])
    n_networks = int(point["largest"]) // n
    W = gp.initialise("gaussian", n, size=n_networks, rng=rng, gain=gain)
    h0 = rng.standard_normal((n_networks, n))
    kept = point["burn_in"] + point["n_steps"]
    total = point["transient"] + kept
    if noise:
        x = np.sqrt(noise) * rng.standard_normal((n_networks, total, n))
        chain = gp.linearise(gp.RNN(W), x, h0=h0)
    else:
        chain = gp.linearise(gp.RNN(W), h0=h0, n_steps=total)
    spectrum = gp.lyapunov_spectrum(chain.tail(kept), burn_in=point["burn_in"])
    exponents = spectrum.exponents.mean(axis=0)
    theory = gp.random_network_spectrum("tanh", gain, n, noise)
    gap = exponents - theory.exponents
    return {
        "lambda_1": float(exponents[0]),
        "dimension": float(gp.kaplan_yorke(spectrum).dimension.mean() / n),
        "positive_sum": float(gp.positive_sum(spectrum).value.mean() / n),
        "unstable_fraction": float(np.mean(spectrum.exponents > 0)),
        "curve": _binned(exponents),
        "gap": _binned(gap),
    }


def _binned(values: Array) -> Array:
    """Means of BINS groups of consecutive values."""
    return np.asarray(values.reshape(BINS, -1).mean(axis=1))


def measure_theory(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The law itself."""
    law = gp.random_network_spectrum("tanh", point["gain"], CURVE, point["noise"])
    names = ("lambda_1", "dimension", "positive_sum", "unstable_fraction", "mean_exponent")
    return {"u": law.u, "curve": law.exponents} | {n: float(getattr(law, n)) for n in names}


def measure_local(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Growth per step of a product of Gaussian matrices, against ln of chi variables."""
    from scipy.stats import chi, kstest

    n, n_steps = int(point["n"]), int(point["n_steps"])
    chain = gp.JacobianChain.dense(rng.standard_normal((n_steps, n, n)))
    local = gp.local_exponents(chain, window=1)
    middle = 0.5 * (LOCAL_EDGES[1:] + LOCAL_EDGES[:-1])
    freedom = np.arange(n, 0, -1)
    counts = [np.histogram(local.exponents[:, i], LOCAL_EDGES)[0] for i in range(n)]
    p_values = [kstest(np.exp(local.exponents[:, i]), chi(freedom[i]).cdf).pvalue for i in range(n)]
    return {
        "middle": middle,
        "density": np.array(counts) / (n_steps * np.diff(LOCAL_EDGES)),
        "exact_density": chi(freedom[:, None]).pdf(np.exp(middle)) * np.exp(middle),
        "p_value": np.array(p_values),
        "widths": local.widths,
        "variance_growth": local.variance_growth.T,
        "exact_variance": gp.newman_exponents(n, 1.0).variance_per_step,
    }


def measure_lags(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Largest singular value (ln) of products of critical Gaussian matrices, by lag."""
    n, n_lags, size = int(point["n"]), int(point["n_lags"]), int(point["n_networks"])
    lags = np.unique(np.geomspace(1, n_lags, 24).astype(int))
    if point["kind"] == "tied":
        W = gp.initialise("gaussian", n, size=size, rng=rng, gain=1.0)
        chain = gp.JacobianChain.row_scaled(W, np.ones((size, n_lags, n)))
    else:
        J = rng.standard_normal((size, n_lags, n, n)) / np.sqrt(n)
        chain = gp.JacobianChain.dense(J)
    typical = gp.newman_exponents(n, n**-0.5).exponents[0]
    return {
        "lags": lags,
        "log_sigma": gp.log_norms(chain, lags=lags).log_norm.mean(axis=0),
        "edge": gp.product_edge(lags).log_sigma,
        "line": lags * float(typical),
    }
