"""Backpropagation through time for sequences that share one network, all rows of a step at once.

Arrays are time-major: B sequences, T steps, s units of state, n of h; what is left of a forward
run by `forward`. Weights W (rows, n) and U (rows, d_x), one block of n rows per gate, come as
`gemm.strips`. From lengths[b] on the gradient is kept. One product a step goes back in time, one to
the input; those that give the weights' gradients wait for SUMMED rows, which stay in the cache.
A vanilla cell has kernels of its own: who has no gates need not wait for the compilation of theirs.
"""

import numpy as np

from gradprop._kernels.gates import GRU_BEFORE, LSTM, add, clear, copy, pulled, reset_pulled, scale
from gradprop._kernels.gemm import prefetch, product
from gradprop._kernels.jit import FALSE, ONE, TRUE, ZERO, jit

SUMMED = 128


@jit
def _through(W, left, first, depth, out, at, width, keep):
    """out (B, width), from entry `at` on, <- left[:, first : first + depth] times rows of W."""
    B, rows = left.shape
    count, height, lanes = W.shape
    product(
        B, count * lanes, left.reshape(-1), first, rows, ONE, depth, W.reshape(-1), first * lanes,
        lanes, height * lanes, out.reshape(-1), at, width, keep,
    )  # fmt: skip


@jit
def _outer(left, t, steps, first, rows, right, lanes, out):
    """Rows from `first` on of out (., p) += the sum over some steps of left right^T."""
    _, B, width = left.shape
    p = right.shape[2]
    product(
        rows, p, left.reshape(-1), t * B * width + first, ONE, width, steps * B, right.reshape(-1),
        t * B * p, p, lanes, out.reshape(-1), first * p, p, TRUE,
    )  # fmt: skip


@jit
def _sum_rows(rows, t, steps, total, out):
    """out (rows,) += the sum over some steps and all sequences, each step by itself first."""
    for s in range(t, t + steps):
        clear(total)
        for b in range(rows.shape[1]):
            add(total, rows[s, b])
        add(out, total)


@jit
def _enter(t, start, n, lengths, grad_h, by_step, by_sequence, v, live):
    """Add the gradients at the h after step t to v, and tell which sequences are that long."""
    all_live = True
    for b in range(live.size):
        live[b] = t < lengths[b]
        all_live = all_live and live[b]
        at = t * by_step + b * by_sequence
        add(v[b, :n], grad_h[at : at + n])
        if t > start:
            prefetch(grad_h, at - by_step, n)
    return all_live


@jit
def _rnn_back(keep, W, all_live, live, v, delta, through):
    """Gradients v (B, n) at the states after a step become those before it.

    delta (B, n) comes as the step's coefficients, and gets the gradients at the pre-activations;
    rows that are not live keep v and get zeros.
    """
    B, n = v.shape
    scale(delta.reshape(-1), v.reshape(-1))
    if keep == 0 and all_live and through.shape[1] == n:
        _through(W, delta, ZERO, n, v, ZERO, n, FALSE)
        return
    for b in range(B):
        if not live[b]:
            clear(delta[b])
    _through(W, delta, ZERO, n, through, ZERO, through.shape[1], FALSE)
    for b in range(B):
        if live[b] and keep == 0:
            copy(through[b, :n], v[b])
        elif live[b]:
            for i in range(n):
                v[b, i] = keep * v[b, i] + through[b, i]


@jit
def rnn_backward(
    keep, W, U, h, x, lengths, grad_h, by_step, by_sequence, window, start, stop, v, deltas, grad_x,
    grad_W, grad_U, grad_b,
):  # fmt: skip
    """Pull gradients back through steps stop - 1 .. start, and add to those of the weights.

    deltas (T, B, n) come as the coefficients; fills them and grad_x (T, B, q). v (B, n), the
    gradient at the states after step `stop`, is carried on; the n numbers of grad_h (flat) from
    t by_step + b by_sequence on enter at the h after step t. Every `window` steps from the first
    (0: never) v is cut to zero. grad_W (n, p), grad_U (n, q or 0), grad_b (n,).
    """
    _, B, n = deltas.shape
    waiting, lanes = 0, W.shape[2]
    through, total = np.empty((B, h.shape[2]), dtype=v.dtype), np.empty(n, dtype=v.dtype)
    live = np.empty(B, dtype=np.bool_)
    for k in range(stop - start):
        t = stop - 1 - k
        all_live = _enter(t, start, n, lengths, grad_h, by_step, by_sequence, v, live)
        _rnn_back(keep, W, all_live, live, v, deltas[t], through)
        if grad_U.size > 0:
            q = grad_x.shape[2]
            _through(U, deltas[t], ZERO, n, grad_x, t * B * q, q, FALSE)
        waiting += 1
        if waiting * B >= SUMMED or t == start:
            _outer(deltas, t, waiting, ZERO, n, h, lanes, grad_W)
            if grad_U.size > 0:
                _outer(deltas, t, waiting, ZERO, n, x, lanes, grad_U)
            _sum_rows(deltas, t, waiting, total, grad_b)
            waiting = 0
        if window > 0 and t > 0 and t % window == 0:
            clear(v.reshape(-1))


@jit
def _gated_back(kind, W, coef, live, v, delta, recurrent, through, direct):
    """As `_rnn_back`, of a gated cell: v (B, s), coef (B, .), delta and recurrent (B, rows).

    `recurrent` is the gradient at W_hh h; it must be delta where no reset gate makes it another.
    """
    B, rows = delta.shape
    n, keep = rows // 4 if kind == LSTM else rows // 3, v.dtype.type(0)
    for b in range(B):
        if live[b]:
            pulled(kind, keep, coef[b], v[b], delta[b], recurrent[b], direct[b])
        else:
            clear(delta[b])
            clear(recurrent[b])
    width, depth = through.shape[1], rows
    if kind == GRU_BEFORE:
        _through(W, delta, 2 * n, n, through, ZERO, width, FALSE)
        for b in range(B):
            if live[b]:
                reset_pulled(coef[b], through[b, :n], delta[b], recurrent[b], direct[b])
        depth = 2 * n
    _through(W, recurrent, ZERO, depth, through, ZERO, width, FALSE)
    for b in range(B):
        if live[b]:
            copy(direct[b], v[b])
            add(v[b, :n], through[b])


@jit
def gated_backward(
    kind, W, U, coefs, h, x, hidden, lengths, grad_h, by_step, by_sequence, window, start, stop, v,
    deltas, recurrents, grad_x, grad_W, grad_U, grad_b, grad_r,
):  # fmt: skip
    """As `rnn_backward`, of a gated cell, from coefficients (T, B, .); deltas (T, B, rows).

    `recurrents` are the same array but for a GRU, whose sums over them go to grad_r (rows,);
    `hidden` (T, B, p) is what the candidate's weights of GRU_BEFORE meet.
    """
    _, B, rows = deltas.shape
    n, waiting, lanes = rows // 4 if kind == LSTM else rows // 3, 0, W.shape[2]
    through, total = np.empty((B, h.shape[2]), dtype=v.dtype), np.empty(rows, dtype=v.dtype)
    direct, live = np.empty((B, v.shape[1]), dtype=v.dtype), np.empty(B, dtype=np.bool_)
    own = 2 * n if kind == GRU_BEFORE else rows
    for k in range(stop - start):
        t = stop - 1 - k
        _enter(t, start, n, lengths, grad_h, by_step, by_sequence, v, live)
        _gated_back(kind, W, coefs[t], live, v, deltas[t], recurrents[t], through, direct)
        if grad_U.size > 0:
            q = grad_x.shape[2]
            _through(U, deltas[t], ZERO, rows, grad_x, t * B * q, q, FALSE)
        waiting += 1
        if waiting * B >= SUMMED or t == start:
            _outer(recurrents, t, waiting, ZERO, own, h, lanes, grad_W)
            if own < rows:
                _outer(recurrents, t, waiting, own, n, hidden, lanes, grad_W)
            if grad_U.size > 0:
                _outer(deltas, t, waiting, ZERO, rows, x, lanes, grad_U)
            _sum_rows(deltas, t, waiting, total, grad_b)
            if kind != LSTM:
                _sum_rows(recurrents, t, waiting, total, grad_r)
            waiting = 0
        if window > 0 and t > 0 and t % window == 0:
            clear(v.reshape(-1))


@jit
def rnn_lag_back(keep, W, lengths, first, v, deltas):
    """One lag further back for the losses of m steps at once.

    v (m, B, n): entry j holds the gradient of a loss at the state after step first + j + 1, and
    gets that at the state before. deltas (m, B, n) come as the coefficients of those steps.
    """
    m, B, _ = v.shape
    through = np.empty((B, W.shape[0] * W.shape[2]), dtype=v.dtype)
    live = np.empty(B, dtype=np.bool_)
    for j in range(m):
        all_live = True
        for b in range(B):
            live[b] = first + j < lengths[b]
            all_live = all_live and live[b]
        _rnn_back(keep, W, all_live, live, v[j], deltas[j], through)


@jit
def gated_lag_back(kind, W, coefs, lengths, first, v, deltas, recurrents):
    """As `rnn_lag_back`, of a gated cell; v (m, B, s), deltas and recurrents (m, B, rows)."""
    m, B, s = v.shape
    through = np.empty((B, W.shape[0] * W.shape[2]), dtype=v.dtype)
    direct, live = np.empty((B, s), dtype=v.dtype), np.empty(B, dtype=np.bool_)
    for j in range(m):
        for b in range(B):
            live[b] = first + j < lengths[b]
        recurrent = deltas[j] if kind == LSTM else recurrents[j]
        _gated_back(kind, W, coefs[j], live, v[j], deltas[j], recurrent, through, direct)
