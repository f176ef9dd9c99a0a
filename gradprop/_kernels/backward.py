"""Backpropagation through time for sequences that share one network, all rows of a step at once.

Arrays are time-major: B sequences, T steps, s units of state, n of h. states (T + 1, B, s), tapes
(T, B, q); W (rows, n) with one block of n rows per gate, `columns` its transpose, both contiguous.
Steps from lengths[b] on keep the state, and the gradient. One product a step in each direction.
"""

import functools

import numpy as np

from gradprop._kernels import gates
from gradprop._kernels.gated import rebuild, with_activations
from gradprop._kernels.gates import (
    GRU_BEFORE,
    LSTM,
    RNN,
    WORK_ROWS,
    add,
    complete,
    multiply,
    preactivate,
    pulled,
    reset_pulled,
    slopes,
    update,
)
from gradprop._kernels.jit import ZERO, jit


@jit
def _rnn_forward(code, leak, columns, lengths, t, tape, before, after, dots, work):
    """One step of a vanilla cell, all sequences as one row; `tape` goes from W_xh x + b to z."""
    z = tape.reshape(-1)
    np.dot(before, columns, dots)
    add(z, dots.reshape(-1))
    update(ZERO, ZERO, code, leak, z, before.reshape(-1), after.reshape(-1), work)
    for b in range(lengths.size):
        if t >= lengths[b]:
            after[b] = before[b]


@jit
def forward(
    kind, gate, code, leak, columns, b_h, current, lengths, start, stop, states, tapes, hidden
):
    """Fill states and tapes of steps start .. stop - 1; `current` (T, B, rows) = W_xh x + b.

    `hidden` (T, B, n) receives r h, where the reset gate stands before the product. For RNN `tapes`
    is filled from what it holds, W_xh x + b, and `current` is not read: they may be one array.
    """
    n, rows = columns.shape
    B = states.shape[1]
    dots = np.empty((B, rows), dtype=states.dtype)
    work = np.empty(WORK_ROWS * n, dtype=states.dtype)
    candidate = np.ascontiguousarray(columns[:, rows - n :])
    for t in range(start, stop):
        if kind == RNN:
            before, after = states[t], states[t + 1]
            _rnn_forward(code, leak, columns, lengths, t, tapes[t], before, after, dots, work)
            continue
        h = np.ascontiguousarray(states[t, :, :n])
        np.dot(h, columns, dots)
        spare = hidden[t] if kind == GRU_BEFORE else h
        for b in range(B):
            if t < lengths[b]:
                preactivate(
                    kind, gate, dots[b], current[t, b], b_h, h[b], tapes[t, b], spare[b], work
                )
        if kind == GRU_BEFORE:
            again = np.dot(spare, candidate)
            for b in range(B):
                if t < lengths[b]:
                    complete(again[b], current[t, b], tapes[t, b])
        for b in range(B):
            if t < lengths[b]:
                update(kind, gate, code, leak, tapes[t, b], states[t, b], states[t + 1, b], work)
            else:
                states[t + 1, b] = states[t, b]


@jit
def _scratch(kind, v, n):
    """Coefficients, gradients that pass by W, those that pass through it, and rows for `gates`."""
    B = v.shape[0]
    width = n if kind == RNN else (6 * n if kind == LSTM else 5 * n)
    coef, through = np.empty((B, width), dtype=v.dtype), np.empty((B, n), dtype=v.dtype)
    return coef, np.empty_like(v), through, np.empty(WORK_ROWS * n, dtype=v.dtype)


@jit
def _rnn_back(code, leak, W, tapes, live, v, delta, scratch):
    """`step_back` of a vanilla cell, all sequences as one row."""
    coef, direct, through, work = scratch
    z, own, factors, here = tapes.reshape(-1), v.reshape(-1), coef.reshape(-1), delta.reshape(-1)
    keep = v.dtype.type(1) - leak
    slopes(ZERO, ZERO, code, leak, z, z, z, factors, work)
    if keep == 0 and live.all():
        multiply(factors, own, here)
        np.dot(delta, W, v)
        return
    pulled(ZERO, keep, factors, own, here, here, direct.reshape(-1))
    for b in range(live.size):
        if not live[b]:
            delta[b] = v.dtype.type(0)
    np.dot(delta, W, through)
    for b in range(live.size):
        if live[b]:
            v[b] = direct[b]
            add(v[b], through[b])


@jit
def step_back(kind, gate, code, leak, W, tapes, before, after, live, v, delta, recurrent, scratch):
    """Take gradients v (B, s) at the states after one step to those before it.

    Fills delta (B, rows), and recurrent (B, rows) where a reset gate makes it another; rows that
    are not live keep v and get zeros.
    """
    if kind == RNN:
        _rnn_back(code, leak, W, tapes, live, v, delta, scratch)
        return
    coef, direct, through, work = scratch
    B, n = v.shape[0], W.shape[1]
    keep = v.dtype.type(1) - leak
    recurrent = delta if kind == LSTM else recurrent
    for b in range(B):
        if live[b]:
            slopes(kind, gate, code, leak, tapes[b], before[b], after[b], coef[b], work)
            pulled(kind, keep, coef[b], v[b], delta[b], recurrent[b], direct[b])
        else:
            delta[b] = v.dtype.type(0)
            recurrent[b] = v.dtype.type(0)
            direct[b] = v[b]
    if kind == GRU_BEFORE:
        back = np.dot(np.ascontiguousarray(delta[:, 2 * n :]), W[2 * n :])
        for b in range(B):
            if live[b]:
                reset_pulled(coef[b], back[b], delta[b], recurrent[b], direct[b])
        np.dot(np.ascontiguousarray(recurrent[:, : 2 * n]), W[: 2 * n], through)
    else:
        np.dot(recurrent, W, through)
    for b in range(B):
        v[b] = direct[b]
        if live[b]:
            add(v[b, :n], through[b])


@jit
def backward(
    kind, gate, code, leak, W, states, tapes, lengths, grad_h, window, start, stop, v, deltas,
    recurrents,
):  # fmt: skip
    """Pull gradients back through steps stop - 1 .. start; fills deltas, of a GRU also recurrents.

    Both (T, B, rows). v (B, s), the gradient at the states after step `stop`, is carried on; grad_h
    (T, B, n) enters at the h after each step. Every `window` steps from the first (0: never) v is
    cut to zero.
    """
    B, n = v.shape[0], W.shape[1]
    scratch = _scratch(kind, v, n)
    live = np.empty(B, dtype=np.bool_)
    for k in range(stop - start):
        t = stop - 1 - k
        for b in range(B):
            live[b] = t < lengths[b]
            add(v[b, :n], grad_h[t, b])
        step_back(
            kind, gate, code, leak, W, tapes[t], states[t], states[t + 1], live, v, deltas[t],
            recurrents[t], scratch,
        )  # fmt: skip
        if window > 0 and t > 0 and t % window == 0:
            v[:] = v.dtype.type(0)


@jit
def lag_back(kind, gate, code, leak, W, states, tapes, lengths, lag, last, v, deltas, recurrents):
    """One lag further back for the losses of all steps at once.

    v (T, B, s): entry t holds the gradient of the loss at step t with respect to the state after
    step t - lag. Fills deltas and recurrents (T, B, rows) of step t - lag, for t in
    lag .. last - 1; entries below `lag` are left alone.
    """
    B = v.shape[1]
    scratch = _scratch(kind, v[0], W.shape[1])
    live = np.empty(B, dtype=np.bool_)
    for t in range(lag, last):
        s = t - lag
        for b in range(B):
            live[b] = t < lengths[b]
        step_back(
            kind, gate, code, leak, W, tapes[s], states[s], states[s + 1], live, v[t], deltas[t],
            recurrents[t], scratch,
        )  # fmt: skip
        if kind in (RNN, LSTM):
            recurrents[t] = deltas[t]


@functools.lru_cache(maxsize=32)
def kernels_for(gate, own_pair):
    """`forward`, `backward` and `lag_back` for one's own activations, as `gated.kernels_for`."""
    names = with_activations({**gates.__dict__, **globals()}, gate, own_pair)
    for name in (
        "preactivate", "update", "_gru_slopes", "slopes", "_rnn_forward", "forward", "_rnn_back",
        "step_back", "backward", "lag_back",
    ):  # fmt: skip
        rebuild(names, name)
    return names["forward"], names["backward"], names["lag_back"]
