"""Long products of gated cells applied to vectors: from gates and W, never a dense Jacobian."""

import math

import numpy as np

from gradprop._kernels.gates import GRU_BEFORE, LSTM, pulled, pushed, reset_pulled, reset_pushed
from gradprop._kernels.jit import jit
from gradprop._kernels.products import LN2, renormalise


@jit
def push(kind, W, coef, v, ext, dot, hidden, out):
    """out = J v, with J one step's Jacobian: one product with W (GRU_BEFORE: in two parts)."""
    n = W.shape[1]
    h = v[:n]
    if kind == GRU_BEFORE:
        dot[: 2 * n] = np.dot(W[: 2 * n], h)
        reset_pushed(coef, dot, ext, v, hidden)
        dot[2 * n :] = np.dot(W[2 * n :], hidden)
    else:
        dot[:] = np.dot(W, h)
    pushed(kind, 0.0, coef, dot, ext, v, out)


@jit
def pull(kind, W, coef, v, delta, recurrent, out):
    """out = J^T v, the transpose of `push`."""
    n = W.shape[1]
    recurrent = delta if kind == LSTM else recurrent
    pulled(kind, 0.0, coef, v, delta, recurrent, out)
    if kind == GRU_BEFORE:
        reset_pulled(coef, np.dot(delta[2 * n :], W[2 * n :]), delta, recurrent, out)
        through = np.dot(recurrent[: 2 * n], W[: 2 * n])
    else:
        through = np.dot(recurrent, W)
    for i in range(n):
        out[i] += through[i]


@jit
def gated_vector_steps(
    kind, W, which, coefs, n_valid, first, transpose, v, exponent, age, column, log_norm
):
    """`products.vector_steps` for gated cells: coefs (R, m, q), W (K, rows, n), v (R, s).

    2 rows n flops a step and replica.
    """
    R, width = v.shape
    m, rows, n = coefs.shape[1], W.shape[1], W.shape[2]
    ext, dot, hidden = np.zeros(rows), np.empty(rows), np.empty(n)
    recurrent = np.empty(rows)
    out = np.empty((width, 1))
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            if transpose:
                pull(kind, W[which[r]], coefs[r, t], v[r], dot, recurrent, out[:, 0])
            else:
                push(kind, W[which[r]], coefs[r, t], v[r], ext, dot, hidden, out[:, 0])
            exponent[r] += renormalise(out)
            v[r] = out[:, 0]
            age[r] += 1
            if column[age[r]] >= 0:
                square = 0.0
                for i in range(width):
                    square += out[i, 0] * out[i, 0]
                log_norm[r, column[age[r]]] = 0.5 * math.log(square) + exponent[r] * LN2
