"""Measuring for trained_networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import _networks
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
LAGS, BLOCKS, EXPONENTS, DIRECTIONS = 1001, 4, 3, 32
LN10 = float(np.log(10.0))


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Decay, exponents, horizons and spectral radii of one layer on its own input."""
    layer = _networks.layer(str(point["layer"]))
    chain = gp.linearise(layer.cell, layer.x)
    norms, exponents = gp.measure(
        chain, gp.Norms(anchor="end"), gp.Exponents(EXPONENTS, chain.n_steps // 10)
    )
    curve = norms.log_norm / LN10
    horizons = [_first_below(curve)]
    for _ in range(DIRECTIONS):
        u = np.zeros(chain.n)
        u[layer.cell.output] = rng.standard_normal(layer.cell.n)
        pulled = gp.gradient_by_lag(chain, u).log_norm / LN10
        horizons.append(_first_below(pulled - pulled[0]))
    radii = block_radii(layer.cell)
    return {
        "n": layer.cell.n,
        "n_steps": chain.n_steps,
        "kind": type(layer.cell).__name__,
        "trained": int(layer.trained),
        "log10_norm": _padded(curve, LAGS),
        "exponents": exponents.exponents,
        "interval": exponents.interval[0],
        "log_radii": _padded(np.log(radii), BLOCKS),
        "horizon_worst": horizons[0],
        "horizons": np.array(horizons[1:]),
        "gap": _gap(curve, layer.reference),
    }


def block_radii(cell: Any) -> Array:
    """Spectral radius of each gate's block of W_hh, in the order i f g o or r z n."""
    n, rows = cell.n, getattr(cell, "rows", np.arange(cell.n))
    blocks = cell.W_hh[rows].reshape(-1, n, n)
    return np.array([float(gp.spectral_radius(block)) for block in blocks])


def _first_below(log10_norm: Array) -> float:
    """First lag below 2**-23; inf: not within the input."""
    below = np.flatnonzero(log10_norm < np.log10(2.0**-23))
    return float(below[0]) if below.size else float("inf")


def _padded(values: Array, size: int) -> Array:
    out = np.full(size, np.nan)
    out[: min(size, len(values))] = values[:size]
    return out


def _gap(curve: Array, reference: Mapping[str, Any]) -> float:
    """Largest |difference| / max(1, |value|) from the stored log10 norms; nan if there are none."""
    stored = reference.get("log10_norm_lag", {})
    gaps = [abs(curve[int(k)] - v) / max(1.0, abs(v)) for k, v in stored.items()]
    return float(max(gaps)) if gaps else float("nan")
