"""Long products of gated cells applied to vectors: from gates and W, never a dense Jacobian.

Panels of vectors are kept transposed, (p, s), a state of s entries in each row.
"""

import math

import numpy as np

from gradprop._kernels.copying import copy_matrix, copy_row
from gradprop._kernels.gates import GRU_BEFORE, LSTM, pulled, pushed, reset_pulled, reset_pushed
from gradprop._kernels.jit import jit
from gradprop._kernels.products import LN2, renormalise, renormalise_visibly


@jit
def _by_rows(V, W):
    """V W^T, (p, rows). One vector goes alone: BLAS would pack all of W for it."""
    if V.shape[0] > 1:
        return np.dot(V, W.T)
    out = np.empty((1, W.shape[0]))
    np.dot(W, V[0], out[0])
    return out


@jit
def push(kind, W, coef, V, ext, out):
    """out = (J V^T)^T, with J one step's Jacobian: one product with W (GRU_BEFORE: two parts)."""
    p, rows, n = V.shape[0], W.shape[0], W.shape[1]
    h = np.ascontiguousarray(V[:, :n])
    if kind == GRU_BEFORE:
        dot, hidden = np.empty((p, rows)), np.empty((p, n))
        copy_matrix(_by_rows(h, W[: 2 * n]), dot[:, : 2 * n])
        for j in range(p):
            reset_pushed(coef, dot[j], ext, h[j], hidden[j])
        copy_matrix(_by_rows(hidden, W[2 * n :]), dot[:, 2 * n :])
    else:
        dot = _by_rows(h, W)
    for j in range(p):
        pushed(kind, 0.0, coef, dot[j], ext, V[j], out[j])


@jit
def pull(kind, W, coef, V, out):
    """out = (J^T V^T)^T, the transpose of `push`."""
    p, rows, n = V.shape[0], W.shape[0], W.shape[1]
    delta = np.empty((p, rows))
    recurrent = delta if kind == LSTM else np.empty((p, rows))
    for j in range(p):
        pulled(kind, 0.0, coef, V[j], delta[j], recurrent[j], out[j])
    if kind == GRU_BEFORE:
        back = np.dot(np.ascontiguousarray(delta[:, 2 * n :]), W[2 * n :])
        for j in range(p):
            reset_pulled(coef, back[j], delta[j], recurrent[j], out[j])
        through = np.dot(np.ascontiguousarray(recurrent[:, : 2 * n]), W[: 2 * n])
    else:
        through = np.dot(recurrent, W)
    for j in range(p):
        for i in range(n):
            out[j, i] += through[j, i]


@jit
def gated_vector_steps(
    kind, W, which, coefs, n_valid, first, transpose, v, exponent, age, column, log_norm
):
    """`products.vector_steps` for gated cells: coefs (R, m, q), W (K, rows, n), v (R, s).

    2 rows n flops a step and replica.
    """
    R, width = v.shape
    m, ext = coefs.shape[1], np.zeros(W.shape[1])
    out = np.empty((1, width))
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            if transpose:
                pull(kind, W[which[r]], coefs[r, t], v[r : r + 1], out)
            else:
                push(kind, W[which[r]], coefs[r, t], v[r : r + 1], ext, out)
            exponent[r] += renormalise(out)
            copy_row(out[0], v[r])
            age[r] += 1
            if column[age[r]] >= 0:
                square = 0.0
                for i in range(width):
                    square += out[0, i] * out[0, i]
                log_norm[r, column[age[r]]] = 0.5 * math.log(square) + exponent[r] * LN2


@jit
def gated_panel_steps(
    kind, W, which, coefs, n_valid, first, transpose, P, exponent, age, column, offset, kept,
    kept_exponent,
):  # fmt: skip
    """`products.product_steps` for gated cells, applied to panels P (R, s, p).

    2 rows n p flops a step and replica.
    """
    R, width, p = P.shape
    m, ext = coefs.shape[1], np.zeros(W.shape[1])
    out = np.empty((p, width))
    for r in range(R):
        V = P[r].T.copy()
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            if transpose:
                pull(kind, W[which[r]], coefs[r, t], V, out)
            else:
                push(kind, W[which[r]], coefs[r, t], V, ext, out)
            exponent[r] += renormalise_visibly(out)
            copy_matrix(out, V)
            age[r] += 1
            c = column[age[r]] - offset
            if c >= 0:
                copy_matrix(out.T, kept[r, c])
                kept_exponent[r, c] = exponent[r]
        copy_matrix(V.T, P[r])
