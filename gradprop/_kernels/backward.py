"""Backpropagation through time for sequences that share one network, all rows of a step at once.

Arrays are time-major: B sequences, T steps, s units of state, n of h; what is left of a forward
run by `forward`. Weights W (rows, n) and U (rows, d_x), one block of n rows per gate, come as
`gemm.strips`. From lengths[b] on the gradient is kept. One product a step goes back in time, one to
the input; those that give the weights' gradients wait for SUMMED rows, which stay in the cache.
"""

import numpy as np

from gradprop._kernels.gates import GRU_BEFORE, LSTM, RNN, add, pulled, reset_pulled, scale
from gradprop._kernels.gemm import prefetch, product
from gradprop._kernels.jit import FALSE, TRUE, ZERO, jit

SUMMED = 128


@jit
def _through(W, left, first, depth, out, keep):
    """out (B, .) <- left[:, first : first + depth] times those rows of W, or added to it."""
    B, rows = left.shape
    strips, height, width = W.shape
    product(
        B, strips * width, left, first, rows, 1, depth, W, first * width, width, height * width,
        out, 0, out.shape[1], keep,
    )  # fmt: skip


@jit
def _rnn_back(keep, W, live, v, delta, through):
    """`step_back` of a vanilla cell: delta comes as its coefficients, all sequences as one row."""
    B, n = v.shape
    scale(delta.reshape(-1), v.reshape(-1))
    if keep == 0 and live.all() and through.shape[1] == n:
        _through(W, delta, 0, n, v, FALSE)
        return
    for b in range(B):
        if not live[b]:
            delta[b] = v.dtype.type(0)
    _through(W, delta, 0, n, through, FALSE)
    for b in range(B):
        if live[b] and keep == 0:
            v[b] = through[b, :n]
        elif live[b]:
            for i in range(n):
                v[b, i] = keep * v[b, i] + through[b, i]


@jit
def _gated_back(kind, keep, W, coef, live, v, delta, recurrent, through, direct):
    """`step_back` of a gated cell."""
    B, rows = delta.shape
    n = rows // 4 if kind == LSTM else rows // 3
    for b in range(B):
        if live[b]:
            pulled(kind, keep, coef[b], v[b], delta[b], recurrent[b], direct[b])
        else:
            delta[b] = v.dtype.type(0)
            recurrent[b] = v.dtype.type(0)
    if kind == GRU_BEFORE:
        _through(W, delta, 2 * n, n, through, FALSE)
        for b in range(B):
            if live[b]:
                reset_pulled(coef[b], through[b, :n], delta[b], recurrent[b], direct[b])
        _through(W, recurrent, 0, 2 * n, through, FALSE)
    else:
        _through(W, recurrent, 0, rows, through, FALSE)
    for b in range(B):
        if live[b]:
            v[b] = direct[b]
            add(v[b, :n], through[b])


@jit
def step_back(kind, keep, W, coef, live, v, delta, recurrent, through, direct):
    """Take gradients v (B, s) at the states after one step to those before it.

    Fills delta (B, rows), and recurrent (B, rows), which must be delta where no reset gate makes it
    another; rows that are not live keep v and get zeros. Of a vanilla cell delta must come as coef.
    """
    if kind == RNN:
        _rnn_back(keep, W, live, v, delta, through)
    else:
        _gated_back(kind, keep, W, coef, live, v, delta, recurrent, through, direct)


@jit
def _outer(left, t, steps, first, rows, right, lanes, out):
    """Rows from `first` on of out (., p) += the sum over some steps of left right^T."""
    _, B, width = left.shape
    p = right.shape[2]
    product(
        rows, p, left, t * B * width + first, 1, width, steps * B, right, t * B * p, p, lanes, out,
        first * p, p, TRUE,
    )  # fmt: skip


@jit
def _sum_rows(rows, t, steps, out):
    """out (rows,) += the sum over some steps and all sequences, each step by itself first."""
    total = np.empty_like(out)
    for s in range(t, t + steps):
        total[:] = out.dtype.type(0)
        for b in range(rows.shape[1]):
            add(total, rows[s, b])
        add(out, total)


@jit
def _met(kind, t, steps, deltas, recurrents, h, x, hidden, lanes, grad_W, grad_U, grad_b, grad_r):
    """Add what the weights got in some steps: their gradients, and the sums of both deltas."""
    _, _, rows = deltas.shape
    if kind == GRU_BEFORE:
        n = rows // 3
        _outer(recurrents, t, steps, 0, 2 * n, h, lanes, grad_W)
        _outer(recurrents, t, steps, 2 * n, n, hidden, lanes, grad_W)
    else:
        _outer(recurrents, t, steps, 0, rows, h, lanes, grad_W)
    if grad_U.size > 0:
        _outer(deltas, t, steps, 0, rows, x, lanes, grad_U)
    _sum_rows(deltas, t, steps, grad_b)
    if kind != RNN and kind != LSTM:
        _sum_rows(recurrents, t, steps, grad_r)


@jit
def backward(
    kind, keep, W, U, coefs, h, x, hidden, lengths, grad_h, by_step, by_sequence, window, start,
    stop, v, deltas, recurrents, grad_x, grad_W, grad_U, grad_b, grad_r,
):  # fmt: skip
    """Pull gradients back through steps stop - 1 .. start, and add to those of the weights.

    Fills deltas (which of a vanilla cell must be coefs), of a GRU also recurrents (else the same
    array), both (T, B, rows), and grad_x (T, B, q). v (B, s), the gradient at the states after step `stop`, is carried on; the n numbers
    of grad_h (flat) from t by_step + b by_sequence on enter at the h after step t. Every `window`
    steps from the first (0: never) v is cut to zero. grad_W (rows, p), grad_U (rows, q or 0).
    """
    _, B, rows = deltas.shape
    n, waiting, lanes = v.shape[1], 0, W.shape[2]
    if kind == LSTM:
        n //= 2
    through, direct = np.empty((B, h.shape[2]), dtype=v.dtype), np.zeros_like(v)
    live = np.empty(B, dtype=np.bool_)
    for k in range(stop - start):
        t = stop - 1 - k
        for b in range(B):
            at = t * by_step + b * by_sequence
            live[b] = t < lengths[b]
            add(v[b, :n], grad_h[at : at + n])
            if t > start:
                prefetch(grad_h, at - by_step, n)
        step_back(kind, keep, W, coefs[t], live, v, deltas[t], recurrents[t], through, direct)
        if grad_U.size > 0:
            _through(U, deltas[t], ZERO, rows, grad_x[t], FALSE)
        waiting += 1
        if waiting * B >= SUMMED or t == start:
            _met(
                kind, t, waiting, deltas, recurrents, h, x, hidden, lanes, grad_W, grad_U, grad_b,
                grad_r,
            )  # fmt: skip
            waiting = 0
        if window > 0 and t > 0 and t % window == 0:
            v[:] = v.dtype.type(0)


@jit
def lag_back(kind, keep, W, coefs, lengths, first, v, deltas, recurrents):
    """One lag further back for the losses of m steps at once.

    v (m, B, s): entry j holds the gradient of a loss at the state after step first + j + 1, and
    gets that at the state before. Fills deltas and recurrents (m, B, rows).
    """
    m, B, _ = deltas.shape
    through = np.empty((B, W.shape[0] * W.shape[2]), dtype=v.dtype)
    direct = np.zeros_like(v[0])
    live = np.empty(B, dtype=np.bool_)
    same = kind == RNN or kind == LSTM
    for j in range(m):
        for b in range(B):
            live[b] = first + j < lengths[b]
        delta = deltas[j]
        recurrent = delta if same else recurrents[j]
        if kind == RNN:
            delta[:] = coefs[j]
        step_back(kind, keep, W, coefs[j], live, v[j], delta, recurrent, through, direct)
        if same:
            recurrents[j] = delta
