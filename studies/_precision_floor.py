"""Measuring for precision_floor: vectors, spectra, absorbed shares, horizons in float formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
FLIPFLOP = Path(__file__).resolve().parent / "data" / "weights" / "flipflop_rnn8.npz"
SEQUENCES = 10_000
"""N: a gradient below N^-1/2 of its size is lost in the noise of its own estimate."""
SHARE = 0.1
"""Of the entries, which a lag must still change: of a ring that is its slowest decays."""
EVENTS = ("n_eps", "n_subnormal_any", "n_zero")
LIMITS = ("statistical", "ceiling", "absorption", "underflow")


def random_network(n: int, n_steps: int, rng: np.random.Generator) -> tuple[gp.RNN, Array]:
    """Gaussian tanh network of gain 1 under white noise of standard deviation 0.5."""
    cell = gp.RNN(gp.initialise("gaussian", n, rng=rng, gain=1.0))
    return cell, 0.5 * rng.standard_normal((n_steps, n))


def uniform(n: int) -> Array:
    """The cotangent: the same for all units, of norm 1."""
    return np.full(n, n**-0.5)


def at_the_end(n_steps: int, n: int) -> Array:
    """Its gradient: a loss of the last state alone."""
    grad_h = np.zeros((n_steps, n))
    grad_h[-1] = uniform(n)
    return grad_h


def measure_vector(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A cotangent pulled back in a format, lag by lag, beside the exact norm, and the events."""
    n, fmt = int(point["n"]), str(point["fmt"])
    chain = gp.linearise(*random_network(n, int(point["n_steps"]), rng))
    u = uniform(n)
    stored: Any = gp.Events(fmt, "vector", u=u).folds(chain)[0]
    norms = [float(np.linalg.norm(stored.P[0].astype(float)))]
    for block in chain.blocks(1, reverse=True):
        stored.update(block, slice(0, 1))
        norms.append(float(np.linalg.norm(stored.P[0].astype(float))))
    with np.errstate(divide="ignore"):
        log_norm = np.log(norms)
    events = gp.precision_events(chain, fmt, of="vector", u=u)
    return {
        "log_norm": log_norm,
        "exact": gp.gradient_by_lag(chain, u).log_norm,
        **{name: events.event(name) or 0 for name in EVENTS},
        "n_zero_exact": events.exact.event("n_zero") or 0,
    }


def measure_spectrum(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Singular values of the plain product over the largest, beside the exact ones."""
    n, lags = int(point["n"]), np.array([20, 50, 200])
    W = gp.initialise("gaussian", n, rng=rng, gain=1.1)
    chain = gp.linearise(gp.RNN(W), 0.3 * rng.standard_normal((int(lags[-1]), n)))
    plain = gp.plain_singular_values(chain, str(point["fmt"]), lags=lags)
    return {
        "lags": lags,
        "plain": plain.log_sigma - plain.log_sigma[:, :1],
        "exact": plain.exact_log_sigma - plain.exact_log_sigma[:, :1],
        "rank": gp.trustworthy_rank(chain, str(point["fmt"]), lags=lags).rank,
    }


def measure_absorbed(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Share of the entries of W_hh that a lag leaves as they are, and the error of the sum."""
    n, n_steps = int(point["n"]), int(point["n_steps"])
    cell, x = random_network(n, n_steps, rng)
    found = gp.absorption(
        cell, x, at_the_end(n_steps, n), str(point["fmt"]), order=str(point["order"])
    )
    k = found.names.index("W_hh")
    return {
        "absorbed": found.absorbed[:, k],
        "underflowed": found.underflowed[:, k],
        "bit_horizon": int(found.bit_horizon[k]),
        "error": float(found.error[k]),
    }


def measure_budget(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """What ends the horizon of a network in a format: four limits, in steps.

    Each is the first lag that is lost; inf: not within the run; nan: there is no such limit.
    """
    network, fmt = str(point["network"]), str(point["fmt"])
    n_steps = int(point[f"steps_{network}"])
    cell, x = _network(network, int(point["n"]), n_steps, rng)
    chain, own = _chain(network, cell, x), gp.quantised(cell, fmt)
    u = uniform(chain.n)
    statistical = gp.horizon(chain, samples=SEQUENCES, cotangent=u)
    rounded = gp.horizon(_chain(network, own, x), samples=SEQUENCES, cotangent=u)
    # the modes of a ring are networks of one unit, each with its share of the cotangent
    grad_h = np.broadcast_to(at_the_end(n_steps, chain.n)[..., None], (n_steps, chain.n, 1))
    grad_h = np.moveaxis(grad_h, 1, 0) if network == "ring" else grad_h[..., 0]
    last = int(gp.absorption(cell, x, grad_h, fmt, share=SHARE).bit_horizon[1])
    zero = gp.precision_events(chain, fmt, of="vector", u=u).event("n_zero")
    return {
        "statistical": beyond(int(statistical.first_below) or None),
        "ceiling": ceiling(fmt) if network == "ring" else np.nan,
        "absorption": beyond(None if last >= n_steps - 2 else last + 1),
        "underflow": beyond(zero),
        "statistical_rounded": beyond(int(rounded.first_below) or None),
    }


def beyond(lag: int | None) -> float:
    """A lag; inf for one that is not within the run."""
    return np.inf if lag is None else float(lag)


def ceiling(fmt: str) -> float:
    """Lag at which the largest decay below 1 that the format holds has come down to N^-1/2."""
    return float(gp.decay_ceiling(fmt).memory * 0.5 * np.log(SEQUENCES))


def _network(name: str, n: int, n_steps: int, rng: np.random.Generator) -> tuple[gp.RNN, Array]:
    if name == "random":
        return random_network(n, n_steps, rng)
    if name == "orthogonal":
        cell = gp.RNN(gp.initialise("orthogonal", n, rng=rng))
        return cell, 0.1 * rng.standard_normal((n_steps, n))
    if name == "ring":
        decays = np.linspace(0.9, 0.999, n).reshape(n, 1, 1)
        return gp.RNN(decays, activation="linear"), rng.standard_normal((n_steps, 1))
    arrays = {k: a.astype(np.float64) for k, a in np.load(FLIPFLOP).items()}
    cell = gp.RNN(arrays["W_hh"], arrays["W_ih"], arrays["b_ih"] + arrays["b_hh"])
    # as in the stored input: pulses of either sign, one in ten steps on each channel
    pulses = rng.choice([-1.0, 0.0, 1.0], (n_steps, 3), p=[0.05, 0.9, 0.05])
    return cell, pulses


def _chain(name: str, cell: gp.RNN, x: Array) -> gp.JacobianChain:
    """The ring as one diagonal recurrence."""
    if name == "ring":
        return gp.JacobianChain.diagonal(np.tile(cell.W_hh.ravel(), (len(x), 1)))
    return gp.linearise(cell, x)
