"""Orbits for backpropagation: all sequences of one network at once, and what the way back needs.

Arrays are time-major: B sequences, T steps; h (T + 1, B, p), x (T, B, q) and `hidden` (T, B, p)
have rows of n and d_x entries, padded as `gemm` reads them. Weights come as `gemm.strips` of their
transposes, one block of n columns per gate. Each step leaves the coefficients of its Jacobian,
which the other direction reads in place of phi and phi': rows of `gates.slopes`.
Steps from lengths[b] on keep the state; their coefficients are left alone.
"""

import functools

import numpy as np

from gradprop._kernels.gated import rebuild, with_activations
from gradprop._kernels.gates import GRU_AFTER, GRU_BEFORE, add, clear, copy, multiply, scale
from gradprop._kernels.gemm import product
from gradprop._kernels.jit import FALSE, ONE, TRUE, ZERO, jit
from gradprop._kernels.rows import both_row, complement_row


@jit
def _times(W, a, at, p, depth, out, keep):
    """out (B, .) <- rows of a, from entry `at` on and p apart, times W; or added to it."""
    count, _, lanes = W.shape
    B, width = out.shape
    product(
        B, count * lanes, a.reshape(-1), at, p, ONE, depth, W.reshape(-1), ZERO, lanes,
        depth * lanes, out.reshape(-1), ZERO, width, keep,
    )  # fmt: skip


@jit
def _input_part(U, bias, x, t, depth, out):
    """out (B, .) <- W_xh x + b; x itself in place of the product where there are no weights."""
    _, B, q = x.shape
    for b in range(B):
        copy(bias, out[b, : bias.size])
    if U.shape[0] > 0:
        _times(U, x, t * B * q, q, depth, out, TRUE)
    elif depth > 0:
        for b in range(B):
            add(out[b, : bias.size], x[t, b])


@jit
def rnn_forward(code, leak, W, U, bias, depth, x, lengths, start, stop, h, coefs):
    """Steps start .. stop - 1 of a vanilla cell; coefficients (T, B, n) leak phi'(z)."""
    (_, B, n), p = coefs.shape, h.shape[2]
    z = np.empty((B, W.shape[0] * W.shape[2]), dtype=h.dtype)
    together = z.shape[1] == n and p == n
    count, size = (1, B * n) if together else (B, n)
    keep = h.dtype.type(1) - leak
    for t in range(start, stop):
        _input_part(U, bias, x, t, depth, z)
        _times(W, h, t * B * p, p, n, z, TRUE)
        rows, after = z.reshape(count, -1), h[t + 1].reshape(count, -1)
        slopes = coefs[t].reshape(count, -1)
        for i in range(count):
            both_row(code, rows[i, :size], after[i, :size], slopes[i])
        if keep != 0:
            for b in range(B):
                for i in range(n):
                    h[t + 1, b, i] = keep * h[t, b, i] + leak * h[t + 1, b, i]
                    coefs[t, b, i] *= leak
        for b in range(B):
            if t >= lengths[b]:
                copy(h[t, b], h[t + 1, b])


@jit
def _lstm_update(gate, code, z, before, h, c, coef, work):
    """State and coefficients of one sequence; z holds rows i f g o, work four rows."""
    n = c.size
    inner, squashed, through = work[0], work[1], work[2]
    enter, forget = coef[2 * n : 3 * n], coef[4 * n : 5 * n]
    both_row(gate, z[:n], enter, coef[:n])
    both_row(gate, z[n : 2 * n], forget, coef[n : 2 * n])
    both_row(code, z[2 * n : 3 * n], inner, work[3])
    for i in range(n):
        c[i] = forget[i] * before[i] + enter[i] * inner[i]
    scale(coef[:n], inner)
    scale(coef[n : 2 * n], before)
    scale(enter, work[3])
    both_row(code, c, squashed, coef[5 * n :])
    both_row(gate, z[3 * n : 4 * n], through, coef[3 * n : 4 * n])
    multiply(through, squashed, h[:n])
    scale(coef[3 * n : 4 * n], squashed)
    scale(coef[5 * n :], through)


@jit
def lstm_forward(gate, code, W, U, bias, depth, x, lengths, start, stop, h, c, coefs):
    """Steps of an LSTM; c (T + 1, B, n), coefficients (T, B, 6 n)."""
    (_, B, n), p = c.shape, h.shape[2]
    z = np.empty((B, W.shape[0] * W.shape[2]), dtype=h.dtype)
    work = np.empty((4, n), dtype=h.dtype)
    for t in range(start, stop):
        _input_part(U, bias, x, t, depth, z)
        _times(W, h, t * B * p, p, n, z, TRUE)
        for b in range(B):
            if t < lengths[b]:
                _lstm_update(gate, code, z[b], c[t, b], h[t + 1, b], c[t + 1, b], coefs[t, b], work)
            else:
                copy(h[t, b], h[t + 1, b])
                copy(c[t, b], c[t + 1, b])


@jit
def _gru_gates(kind, gate, z, dot, h, coef, spare):
    """Gates' part of the coefficients from W_xh x + b and dot = W_hh h.

    GRU_AFTER completes z; GRU_BEFORE leaves r h, which the candidate's weights meet, in `spare`.
    """
    n = h.size
    of_r, u, reset = coef[:n], coef[3 * n : 4 * n], coef[4 * n :]
    inner = dot[2 * n : 3 * n] if kind == GRU_AFTER else h
    add(z[: 2 * n], dot[: 2 * n])
    both_row(gate, z[:n], reset, of_r)
    both_row(gate, z[n : 2 * n], u, coef[n : 2 * n])
    scale(of_r, inner)
    multiply(reset, inner, spare)
    if kind == GRU_AFTER:
        add(z[2 * n : 3 * n], spare)


@jit
def _gru_update(gate, code, z, before, after, coef, work):
    """State, and the rest of the coefficients, once z is complete."""
    n = before.size
    rest, candidate, change, u = work[0], work[1], work[2], coef[3 * n : 4 * n]
    complement_row(gate, z[n : 2 * n], rest)
    both_row(code, z[2 * n : 3 * n], candidate, coef[2 * n : 3 * n])
    scale(coef[2 * n : 3 * n], rest)
    for i in range(n):
        change[i] = before[i] - candidate[i]
    scale(coef[n : 2 * n], change)
    for i in range(n):
        after[i] = rest[i] * candidate[i] + u[i] * before[i]


@jit
def gru_forward(
    kind, gate, code, W, candidate, U, bias, b_h, depth, x, lengths, start, stop, h, hidden, coefs
):
    """Steps of a GRU; coefficients (T, B, 5 n).

    GRU_BEFORE: W are the gates' weights, `candidate` its own; `hidden` (T, B, p) receives r h.
    """
    n, (_, B, p) = b_h.size, h.shape
    z, dot = np.empty((B, 3 * p), dtype=h.dtype), np.empty((B, 3 * p), dtype=h.dtype)
    again, work = np.empty((B, p), dtype=h.dtype), np.empty((3, n), dtype=h.dtype)
    for t in range(start, stop):
        _input_part(U, bias, x, t, depth, z)
        for b in range(B):
            clear(dot[b])
            copy(b_h, dot[b, 2 * n : 3 * n])
        _times(W, h, t * B * p, p, n, dot, TRUE)
        spare = hidden[t] if kind == GRU_BEFORE else again
        for b in range(B):
            if t < lengths[b]:
                _gru_gates(kind, gate, z[b], dot[b], h[t, b, :n], coefs[t, b], spare[b, :n])
        if kind == GRU_BEFORE:
            _times(candidate, hidden, t * B * p, p, n, again, FALSE)
            for b in range(B):
                add(z[b, 2 * n : 3 * n], again[b])
        for b in range(B):
            if t < lengths[b]:
                before, after = h[t, b, :n], h[t + 1, b, :n]
                _gru_update(gate, code, z[b], before, after, coefs[t, b], work)
            else:
                copy(h[t, b], h[t + 1, b])


@functools.lru_cache(maxsize=32)
def kernels_for(gate, own_pair):
    """The three directions forward for one's own activations, as `gated.kernels_for`."""
    names = with_activations(dict(globals()), gate, own_pair)
    for name in ("_lstm_update", "_gru_gates", "_gru_update", *NAMES):
        rebuild(names, name)
    return tuple(names[name] for name in NAMES)


NAMES = ("rnn_forward", "lstm_forward", "gru_forward")
