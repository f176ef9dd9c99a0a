"""Derivatives of every step's loss by every step's own copy of the parameters, on a tape.

Unrolled over T steps, a recurrent network is a feed-forward one whose T layers share their
parameters. Untied, each use has its own gradient: all there is to say of lags and windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tape
from tape import Var, sigmoid, tanh

import gradprop as gp

KINDS = ("rnn", "lstm", "gru", "gru_before", "stack")


def random_cell(rng: np.random.Generator, kind: str, n: int = 3, d_x: int = 2) -> Any:
    """A cell of each kind, of moderate weights."""

    def arrays(gates: int, n: int, d_x: int) -> tuple[Any, ...]:
        shapes = ((gates * n, n), (gates * n, d_x), (gates * n,))
        return tuple(rng.standard_normal(s) / np.sqrt(s[-1]) for s in shapes)

    if kind == "rnn":
        return gp.RNN(*arrays(1, n, d_x), leak=0.7)
    if kind == "lstm":
        return gp.LSTM(*arrays(4, n, d_x), gate_order="iofc")
    if kind == "stack":
        lower, middle = random_cell(rng, "lstm", n - 1, d_x), random_cell(rng, "rnn", n, n - 1)
        return gp.Stacked([lower, middle, random_cell(rng, "gru", n, n)])
    W_hh, W_xh, b_x = arrays(3, n, d_x)
    b_h = rng.standard_normal(3 * n)
    return gp.GRU(W_hh, W_xh, b_x, b_h, gate_order="zrh", reset_after=kind == "gru")


def step(cell: Any, p: dict[str, Var], state: Any, x: Var) -> tuple[Any, Var]:
    """One step of a cell of parameters p; returns the state and its output part."""
    n = cell.n
    if isinstance(cell, gp.Stacked):
        states = []
        for i, (layer, own) in enumerate(zip(cell.cells, state, strict=True)):
            names = {k.partition(".")[2]: v for k, v in p.items() if k.startswith(f"{i}.")}
            new, x = step(layer, names, own, x)
            states.append(new)
        return states, x
    rows = {g: slice(k * n, (k + 1) * n) for k, g in enumerate(getattr(cell, "gate_order", "1"))}
    if isinstance(cell, gp.RNN):
        z = p["W_hh"] @ state + p["W_xh"] @ x + p["b"]
        h = (1 - cell.leak) * state + cell.leak * tanh(z)
        return h, h
    if isinstance(cell, gp.LSTM):
        h, c = state
        z = p["W_hh"] @ h + p["W_xh"] @ x + p["b"]
        i, o, f, g = (z[rows[k]] for k in "iofc")
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        return (h, c), h
    into, inner = p["W_xh"] @ x + p["b_x"], p["W_hh"] @ state + p["b_h"]
    u, r = (sigmoid(into[rows[k]] + inner[rows[k]]) for k in "zr")
    last = rows["h"]
    if cell.reset_after:
        candidate = tanh(into[last] + r * inner[last])
    else:
        candidate = tanh(into[last] + p["W_hh"][last] @ (r * state) + p["b_h"][last])
    h = (1 - u) * candidate + u * state
    return h, h


def zero_state(cell: Any) -> Any:
    if isinstance(cell, gp.Stacked):
        return [zero_state(layer) for layer in cell.cells]
    zero = Var(np.zeros(cell.n))
    return (zero, zero) if isinstance(cell, gp.LSTM) else zero


def uses(cell: Any, x: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (T, T, P) of weights[t] . h_t by the parameters of step s; and h (T, n)."""
    copies, outputs, state = [], [], zero_state(cell)
    for x_t in x:
        copies.append({name: Var(a) for name, a in cell.arrays().items()})
        state, h = step(cell, copies[-1], state, Var(x_t))
        outputs.append(h)
    size = sum(a.size for a in cell.arrays().values())
    found = np.zeros((len(x), len(x), size))
    for t, h in enumerate(outputs):
        tape.backward((h * weights[t]).sum())
        for s in range(t + 1):
            found[t, s] = np.concatenate([v.grad.ravel() for v in copies[s].values()])
    return found, np.array([h.value for h in outputs])


def parts(cell: Any, flat: np.ndarray) -> list[np.ndarray]:
    """A flat gradient, all of it and then by array."""
    ends = np.cumsum([a.size for a in cell.arrays().values()])[:-1]
    return [flat, *np.split(flat, ends, axis=-1)]


def by_lag(found: np.ndarray) -> np.ndarray:
    """G_k (T, P): summed over losses t and uses s with t - s = k."""
    return np.array([np.trace(found, -k, 0, 1) for k in range(len(found))])
