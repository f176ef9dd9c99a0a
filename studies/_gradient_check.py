"""Measuring for gradient_check: a twin of the cells that also runs in complex numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import _training
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
PRECISIONS = ("float64", "float32")
COMPLEX = {"float64": "complex128", "float32": "complex64"}


def states(kind: str, p: Mapping[str, Array], x: Array) -> Array:
    """H (R, B, T, n) of R networks (arrays with a leading axis) on x (B, T, d_x); any dtype."""
    n = p["W_hh"].shape[-1]
    b = p["b_x" if kind == "gru" else "b"]
    driven = x @ np.swapaxes(p["W_xh"], -1, -2)[:, None] + b[:, None, None]
    W = np.swapaxes(p["W_hh"], -1, -2)
    h = np.zeros((*driven.shape[:2], n), dtype=driven.dtype)
    c, seen = h, []
    for t in range(x.shape[1]):
        z, back = driven[:, :, t], h @ W
        if kind == "lstm":
            i, f, g, o = np.split(z + back, 4, axis=-1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
        elif kind == "gru":
            (r, u, new), (rh, uh, nh) = (
                np.split(a, 3, axis=-1) for a in (z, back + p["b_h"][:, None])
            )
            u = _sigmoid(u + uh)
            h = (1 - u) * np.tanh(new + _sigmoid(r + rh) * nh) + u * h
        else:
            h = np.tanh(z + back)
        seen.append(h)
    return np.stack(seen, axis=2)


def _sigmoid(z: Array) -> Array:
    return np.asarray((1 + np.tanh(z / 2)) / 2)


def losses(kind: str, flat: Array, shapes: Mapping[str, Any], x: Array, y: Array) -> Array:
    """Half the mean squared distance to y, summed over time, of each row of `flat` (R, P)."""
    ends = np.cumsum([int(np.prod(s)) for s in shapes.values()])[:-1]
    parts = np.split(flat, ends, axis=1)
    named = {k: a.reshape(-1, *s) for (k, s), a in zip(shapes.items(), parts, strict=True)}
    apart = states(kind, named, x) - y
    return np.asarray((apart * apart).sum(axis=(1, 2, 3)) / (2 * len(x)))


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Errors of difference quotients by step size against `gp.backward`, and of wrong gradients."""
    kind, steps = str(point["kind"]), np.asarray(point["steps"], dtype=float)
    model = _training.make(kind, point["n"], 2, 1, rng, dtype=np.float32)
    # rounded once: both precisions see the same network and the same data
    x, y = (rng.standard_normal((3, point["n_steps"], d)).astype(np.float32) for d in (2, model.n))
    found: dict[str, Any] = {"steps": steps}
    for dtype in PRECISIONS:
        g, flat, shapes = _reference(model, x.astype(dtype), y.astype(dtype))
        arguments = (kind, flat, shapes, x.astype(dtype), y.astype(dtype))
        for name, method in (("central", _central), ("complex", _complex_step)):
            quotients = np.array([method(*arguments, h) for h in steps]).astype(float)
            found[f"{name}_{dtype}"] = relative(quotients - g, g)
            gap = np.abs(quotients - g) / np.maximum(1.0, np.abs(g))
            found[f"{name}_entry_{dtype}"] = gap.max(axis=1)
            if (name, dtype) == ("central", "float64"):
                exact, central = g, quotients
    found["float32_backward"] = float(relative(g.astype(float) - exact, exact))
    found["last_only"] = relative(central - last_step_only(model, x, y), exact)
    fault = slope_at_state(model, x, y) if kind == "vanilla" else np.full_like(exact, np.nan)
    found["slope_at_state"] = relative(central - fault, exact)
    return found


def relative(gap: Array, g: Array) -> Array:
    """|gap| / |g| of each row."""
    return np.asarray(np.linalg.norm(gap, axis=-1) / np.linalg.norm(g.astype(float)))


def _cell(model: _training.Model, dtype: Any) -> Any:
    own = {name: a.astype(dtype) for name, a in model.parameters.items()}
    return _training.Model(model.kind, own).cell


def _reference(model: _training.Model, x: Array, y: Array) -> tuple[Array, Array, dict[str, Any]]:
    """The library's gradient, the flat parameters and their shapes."""
    cell = _cell(model, x.dtype)
    arrays = cell.arrays()
    g = gp.backward(cell, x, lambda h: (h - y) / len(x)).flat
    return g, np.concatenate([a.ravel() for a in arrays.values()]), _shapes(arrays)


def _shapes(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: a.shape for name, a in arrays.items()}


def _central(
    kind: str, flat: Array, shapes: Mapping[str, Any], x: Array, y: Array, h: float
) -> Array:
    """(L(theta + h) - L(theta - h)) / 2h for every entry, all of it in the dtype of `flat`."""
    h = flat.dtype.type(h)
    moved = h * np.eye(len(flat), dtype=flat.dtype)
    up, down = (losses(kind, flat + s, shapes, x, y) for s in (moved, -moved))
    return np.asarray((up - down) / (2 * h))


def _complex_step(
    kind: str, flat: Array, shapes: Mapping[str, Any], x: Array, y: Array, h: float
) -> Array:
    """Im L(theta + ih) / h for every entry: no difference is taken."""
    moved = (h * 1j * np.eye(len(flat))).astype(COMPLEX[flat.dtype.name])
    return np.asarray(losses(kind, flat + moved, shapes, x, y).imag / flat.dtype.type(h))


def last_step_only(model: _training.Model, x: Array, y: Array) -> Array:
    """The fault: only the last step's contribution to each shared gradient."""
    cell = _cell(model, np.float64)
    orbit = gp.rollout(cell, x.astype(float))
    g = (orbit.h[:, -1:] - y[:, -1:]) / len(x)
    return gp.backward(cell, x[:, -1:].astype(float), g, h0=orbit.state[:, -2]).flat


def slope_at_state(model: _training.Model, x: Array, y: Array) -> Array:
    """The fault: phi' at h_{t-1} in place of z_t, in hand-written BPTT of a tanh network."""
    cell = _cell(model, np.float64)
    h = gp.rollout(cell, x.astype(float)).h
    sums: list[Any] = [0.0, 0.0, 0.0]
    delta = np.zeros_like(h[:, 0])
    for t in range(x.shape[1], 0, -1):
        pulled = (h[:, t] - y[:, t - 1]) / len(x) + delta @ cell.W_hh
        delta = (1 - np.tanh(h[:, t - 1]) ** 2) * pulled
        for k, entry in enumerate((delta.T @ h[:, t - 1], delta.T @ x[:, t - 1], delta.sum(0))):
            sums[k] = sums[k] + entry
    return np.concatenate([np.ravel(s) for s in sums])
