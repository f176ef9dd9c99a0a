"""A graded factor folded in by Householder QR, for panels that block Gram-Schmidt refuses.

Here alone bases Q and panels are kept transposed, (k, n), as LAPACK wants them.
"""

import math

import numpy as np

from gradprop._kernels.factor import descending, is_lost, row_largest, take_columns
from gradprop._kernels.jit import jit
from gradprop._kernels.lanes import BLOCK, blocks_dot
from gradprop._kernels.lapack import form_basis, triangularise
from gradprop._kernels.pivoted import pivoted_qr
from gradprop._kernels.stripqr import from_strips, to_strips
from gradprop._kernels.tiles import WIDTH


@jit
def absorb_row_norms(U, r, mantissa, exponent):
    """Make the first r rows of U unit vectors, their norms going into the scales.

    Returns the first row that cancelled to zero, r if none did: it stays exactly zero.
    """
    lost = r
    for i in range(r):
        norm = math.sqrt(dot_of(U[i], U[i]))
        if norm == 0.0:
            lost = min(lost, i)
            continue
        inverse = 1.0 / norm
        for j in range(U.shape[1]):
            U[i, j] *= inverse
        mantissa[i], shift = math.frexp(mantissa[i] * norm)
        exponent[i] += shift
    return lost


@jit
def dot_of(u, v):
    """u . v of contiguous rows, in partial sums that a processor adds side by side."""
    count = u.size // BLOCK
    total = blocks_dot(u, v, count)
    for k in range(count * BLOCK, u.size):
        total += u[k] * v[k]
    return total


@jit
def _sorted_by_scale(B, mantissa, exponent):
    """Row and column order of B^T (scale-weighted, descending) and log2 of the columns' scales.

    B (k, n) is transposed, as everywhere below.
    """
    k, n = B.shape
    scale, column_weight, row_weight = np.empty(k), np.full(k, -np.inf), np.zeros(n)
    for j in range(k):
        scale[j] = math.log2(mantissa[j]) + exponent[j]
    top = scale.max()
    for j in range(k):
        largest, square, weight = 0.0, 0.0, 2.0 ** max(scale[j] - top, -2000.0)
        for i in range(n):
            largest = max(largest, abs(B[j, i]))
            row_weight[i] = max(row_weight[i], abs(B[j, i]) * weight)
        if largest > 0.0:
            for i in range(n):
                square += (B[j, i] / largest) ** 2
            column_weight[j] = scale[j] + math.log2(largest) + 0.5 * math.log2(square)
    for i in range(n):
        if row_weight[i] > 2.0**-900:
            row_weight[i] = math.log2(row_weight[i])
            continue
        # the weights of columns underflow: logarithms must do
        row_weight[i] = -np.inf
        for j in range(k):
            if B[j, i] != 0.0:
                row_weight[i] = max(row_weight[i], math.log2(abs(B[j, i])) + scale[j] - top)
    return descending(row_weight), descending(column_weight), scale


@jit
def _regraded(R, order, mantissa, exponent, rank):
    """Rows (R_ij / R_ii) s_j / s_i and the scales |R_ii| s_i, for the permuted columns."""
    cols = R.shape[1]
    graded = np.zeros((rank, cols))
    new_mantissa = np.empty(rank)
    new_exponent = np.empty(rank, np.int64)
    for i in range(rank):
        pivot = abs(R[i, i])
        for j in range(i, cols):
            shift = exponent[order[j]] - exponent[order[i]]
            ratio = mantissa[order[j]] / mantissa[order[i]]
            graded[i, j] = math.ldexp(R[i, j] / pivot * ratio, int(max(min(shift, 1000), -2200)))
        new_mantissa[i], extra = math.frexp(pivot * mantissa[order[i]])
        new_exponent[i] = exponent[order[i]] + extra
    return graded, new_mantissa, new_exponent


@jit
def rows_in(A, order):
    """A[order]."""
    out = np.empty((order.size, A.shape[1]))
    for i in range(order.size):
        for j in range(A.shape[1]):
            out[i, j] = A[order[i], j]
    return out


@jit
def _take(B, rows, columns, out):
    """out (k, m) <- B^T in this order of its rows (the first m) and columns."""
    for j in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[j, i] = B[columns[j], rows[i]]


@jit
def _scatter(panel, rows, rank, Q):
    """Q <- 0 but for the columns in `rows`: they receive those of panel[:rank]."""
    for j in range(Q.shape[0]):
        for i in range(Q.shape[1]):
            Q[j, i] = 0.0
    for j in range(rank):
        for i in range(panel.shape[1]):
            Q[j, rows[i]] = panel[j, i]


@jit
def _with_pivots(B, row_order, order, scale, panel):
    """QR with column pivoting of B^T in these orders of rows and columns; the latter changes.

    panel (k, rows) receives Q^T; returns R.
    """
    k, rows = panel.shape
    again, weight = np.empty((rows, k)), np.empty(k)
    for j in range(k):
        weight[j] = scale[order[j]]
    _take(B, row_order, order, again.T)
    basis, R, pivots = pivoted_qr(again, weight)
    for i in range(len(R)):
        for h in range(rows):
            panel[i, h] = basis[h, i]
    take_columns(order.reshape(1, k), pivots)
    return R


@jit
def householder_step(B, shift, Q, mantissa, exponent, U, r, sure, bound):
    """`graded_step` for any B; Q becomes orthonormal to rounding.

    Source: graded QDU accumulation after Stewart, ETNA 5 (1997) 29; rows and columns are sorted by
    scale before a Householder QR, which then needs no pivoting.
    """
    n = B.shape[1]
    largest = row_largest(B.T)
    rows, top = 0, 0.0
    for value in largest:
        rows += 1 if value > 0.0 else 0
        top = max(top, value)
    if rows == 0:
        return 0, (0 if bound > 0 else sure)
    # zero rows come last
    row_order, order, scale = _sorted_by_scale(B, mantissa[:r], exponent[:r])
    rank = min(rows, r)
    panel, R, tau = np.empty((r, rows)), np.empty((rank, r)), np.empty(rank)
    _take(B, row_order, order, panel)
    triangularise(panel, R, tau)
    exact_zero = False
    for i in range(rank):
        exact_zero = exact_zero or R[i, i] == 0.0
    if exact_zero:
        R = _with_pivots(B, row_order, order, scale, panel)
        rank = len(R)
    else:
        form_basis(panel, tau)
    if rank < bound:
        sure = min(sure, rank)
    for i in range(rank):
        if is_lost(abs(R[i, i]), n, largest[row_order[i]], top):
            sure = min(sure, i)
    graded, new_mantissa, new_exponent = _regraded(R, order, mantissa, exponent, rank)
    np.dot(graded, rows_in(U, order), U[:rank])
    for i in range(rank):
        mantissa[i] = new_mantissa[i]
        exponent[i] = new_exponent[i] + shift
    lost = absorb_row_norms(U, rank, mantissa, exponent)
    if lost < rank:
        sure = min(sure, lost)
    _scatter(panel, row_order, rank, Q)
    return rank, sure


@jit
def householder_strips(B, shift, Q, mantissa, exponent, U, r, sure, bound):
    """`householder_step` on strips."""
    S, n = B.shape[0], mantissa.size
    panel, basis, rows = np.empty((r, n)), np.empty((n, n)), np.empty((n, n))
    for j in range(r):
        for i in range(n):
            panel[j, i] = B[j // WIDTH, i, j % WIDTH]
    from_strips(U, rows)
    rank, sure = householder_step(panel, shift, basis, mantissa, exponent, rows, r, sure, bound)
    for s in range(S):
        for c in range(WIDTH):
            j = s * WIDTH + c
            for i in range(n):
                Q[s, i, c] = basis[j, i] if j < rank else 0.0
    to_strips(rows, U)
    return rank, sure
