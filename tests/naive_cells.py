"""Twins of the gated and composite cells: one step written as in the papers.

They read a cell's arrays and settings and share no code with it. One network, one state, one input.
States may be real or complex arrays (ops = ARRAYS), or a `tape.Var` (ops = TAPE).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tape
from numpy.typing import NDArray

Array = NDArray[Any]


def _hard_sigmoid(z: Array) -> Array:
    return np.where(np.abs(z.real) < 2.5, 0.2 * z + 0.5, (z.real > 0) + 0j)


ARRAYS = SimpleNamespace(
    join=np.concatenate,
    tanh=np.tanh,
    sigmoid=lambda z: 1 / (1 + np.exp(-z)),
    relu=lambda z: np.where(z.real > 0, z, 0),
    linear=lambda z: z,
    hard_sigmoid=_hard_sigmoid,
    softsign=lambda z: z / (1 + np.sign(z.real) * z),
)
TAPE = SimpleNamespace(
    join=tape.concatenate,
    tanh=tape.tanh,
    sigmoid=tape.sigmoid,
    relu=tape.relu,
    linear=lambda z: z,
    hard_sigmoid=lambda z: tape.elementwise(
        z, lambda v: np.clip(0.2 * v + 0.5, 0, 1), lambda v: 0.2 * (np.abs(v) < 2.5)
    ),
    softsign=lambda z: tape.elementwise(
        z, lambda v: v / (1 + np.abs(v)), lambda v: 1 / (1 + np.abs(v)) ** 2
    ),
)


def step(cell: Any, state: Any, x: Any = None, ops: Any = ARRAYS) -> Any:
    """State after one step of any cell of one direction."""
    twin = {"RNN": rnn, "LSTM": lstm, "GRU": gru, "Stacked": stacked}[type(cell).__name__]
    return twin(cell, state, x, ops)


def rnn(cell: Any, h: Any, x: Any, ops: Any) -> Any:
    """h' = (1 - leak) h + leak phi(W h + U x + b)."""
    z = cell.W_hh @ h
    if x is not None:
        z = z + (x if cell.W_xh is None else cell.W_xh @ x)
    if cell.b is not None:
        z = z + cell.b
    return (1 - cell.leak) * h + cell.leak * getattr(ops, cell.activation.name)(z)


def lstm(cell: Any, state: Any, x: Any, ops: Any) -> Any:
    """c' = f c + i g, h' = o phi(c')."""
    n = cell.W_hh.shape[1]
    s, phi = (getattr(ops, a.name) for a in (cell.gate_activation, cell.activation))
    h, c = state[:n], state[n:]
    z = cell.W_hh @ h + cell.W_xh @ x + cell.b
    gate = {letter: z[k * n : (k + 1) * n] for k, letter in enumerate(cell.gate_order)}
    candidate = gate["c"] if "c" in gate else gate["g"]
    c = s(gate["f"]) * c + s(gate["i"]) * phi(candidate)
    return ops.join([s(gate["o"]) * phi(c), c])


def gru(cell: Any, h: Any, x: Any, ops: Any) -> Any:
    """h' = (1 - z) new + z h, the reset gate after or before the candidate's recurrent product."""
    n = cell.W_hh.shape[1]
    s, phi = (getattr(ops, a.name) for a in (cell.gate_activation, cell.activation))
    order = cell.gate_order.replace("h", "n")  # Keras calls the candidate h
    block = {letter: slice(k * n, (k + 1) * n) for k, letter in enumerate(order)}
    W, U = ({k: M[rows] for k, rows in block.items()} for M in (cell.W_hh, cell.W_xh))
    b, c = ({k: v[rows] for k, rows in block.items()} for v in (cell.b_x, cell.b_h))
    r = s(W["r"] @ h + U["r"] @ x + b["r"] + c["r"])
    z = s(W["z"] @ h + U["z"] @ x + b["z"] + c["z"])
    if cell.reset_after:
        new = phi(U["n"] @ x + b["n"] + r * (W["n"] @ h + c["n"]))
    else:
        new = phi(U["n"] @ x + b["n"] + W["n"] @ (r * h) + c["n"])
    return (1 - z) * new + z * h


def stacked(cell: Any, state: Any, x: Any, ops: Any) -> Any:
    """Each layer sees the h of the one below at the same step."""
    parts, start = [], 0
    for layer in cell.cells:
        width = layer.W_hh.shape[1] * (2 if type(layer).__name__ == "LSTM" else 1)
        parts.append(step(layer, state[start : start + width], x, ops))
        start += width
        x = parts[-1][: layer.W_hh.shape[1]]
    return ops.join(parts)


def rollout(cell: Any, x: Any, h0: Array) -> Array:
    """States (T+1, m)."""
    states = [np.asarray(h0, dtype=float)]
    for x_t in x:
        states.append(step(cell, states[-1], x_t).real)
    return np.array(states)


def complex_step_jacobian(cell: Any, state: Array, x: Any = None) -> Array:
    """Column j is Im F(state + i e_j s) / s, exact to rounding for an analytic F."""
    columns = []
    for j in range(len(state)):
        moved = state.astype(complex)
        moved[j] += 1e-30j
        columns.append(step(cell, moved, x).imag / 1e-30)
    return np.array(columns).T


def tape_jacobian(cell: Any, state: Array, x: Any = None) -> Array:
    """Row i is the gradient of entry i."""
    rows = []
    start = tape.Var(state)
    after = step(cell, start, x, TAPE)
    for row in np.eye(len(state)):
        tape.backward(after, row)
        rows.append(start.grad)
    return np.array(rows)
