"""Graded factors U-D-V of long products, from which singular values come in log scale.

The block normal form is that of `products`. Scales are kept as mantissa in [1/2, 1) and int64
exponent, so that no product is too long.
"""

import math

import numpy as np

from gradprop._kernels.factor import descending, is_lost, row_largest, take_columns
from gradprop._kernels.jit import jit
from gradprop._kernels.lapack import form_basis, triangularise
from gradprop._kernels.products import times
from gradprop._kernels.structure import follow, follow_diagonal


@jit
def absorb_row_norms(U, r, mantissa, exponent):
    """Make the first r rows of U unit vectors, their norms going into the scales.

    Returns the first row that cancelled to zero, r if none did: it stays exactly zero.
    """
    lost = r
    for i in range(r):
        square = 0.0
        for j in range(U.shape[1]):
            square += U[i, j] * U[i, j]
        norm = math.sqrt(square)
        if norm == 0.0:
            lost = min(lost, i)
            continue
        for j in range(U.shape[1]):
            U[i, j] /= norm
        mantissa[i], shift = math.frexp(mantissa[i] * norm)
        exponent[i] += shift
    return lost


@jit
def _reflect(V, k, A, first):
    """Apply the reflector in column k of V to the columns of A from `first` on."""
    rows = len(A)
    square = 0.0
    for i in range(k, rows):
        square += V[i, k] * V[i, k]
    for j in range(first, A.shape[1]):
        s = 0.0
        for i in range(k, rows):
            s += V[i, k] * A[i, j]
        s *= 2.0 / square
        for i in range(k, rows):
            A[i, j] -= s * V[i, k]


@jit
def _pivoted_qr(B, weight):
    """Householder QR with column pivoting on log2-weighted column norms; stops at an exact zero.

    Returns Q (rows, rank), R (rank, cols), permutation. Used only where a pivot vanishes exactly.
    """
    rows, cols = B.shape
    A = B.copy()
    order = np.arange(cols)
    V = np.zeros((rows, min(rows, cols)))
    rank = 0
    for k in range(min(rows, cols)):
        best, at = -np.inf, -1
        for j in range(k, cols):
            square = 0.0
            for i in range(k, rows):
                square += A[i, j] * A[i, j]
            if square > 0.0 and 0.5 * math.log2(square) + weight[order[j]] > best:
                best, at = 0.5 * math.log2(square) + weight[order[j]], j
        if at < 0:
            break
        order[k], order[at] = order[at], order[k]
        for i in range(rows):
            A[i, k], A[i, at] = A[i, at], A[i, k]
        square = 0.0
        for i in range(k, rows):
            V[i, k] = A[i, k]
            square += A[i, k] * A[i, k]
        alpha = -math.sqrt(square) if V[k, k] > 0.0 else math.sqrt(square)
        V[k, k] -= alpha
        _reflect(V, k, A, k)
        A[k, k] = alpha
        for i in range(k + 1, rows):
            A[i, k] = 0.0
        rank = k + 1
    Q = np.zeros((rows, rank))
    for k in range(rank):
        Q[k, k] = 1.0
    for k in range(rank - 1, -1, -1):
        _reflect(V, k, Q, 0)
    return Q, A[:rank], order


@jit
def _sorted_by_scale(B, mantissa, exponent):
    """Row order, column order (scale-weighted, descending) and column weights in log2."""
    rows, cols = B.shape
    scale = np.empty(cols)
    for j in range(cols):
        scale[j] = math.log2(mantissa[j]) + exponent[j]
    row_weight = np.full(rows, -np.inf)
    column_weight = np.full(cols, -np.inf)
    for j in range(cols):
        largest, square = 0.0, 0.0
        for i in range(rows):
            largest = max(largest, abs(B[i, j]))
        for i in range(rows):
            if B[i, j] != 0.0:
                row_weight[i] = max(row_weight[i], math.log2(abs(B[i, j])) + scale[j])
                square += (B[i, j] / largest) ** 2
        if largest > 0.0:
            column_weight[j] = scale[j] + math.log2(largest) + 0.5 * math.log2(square)
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
    """out (k, m) <- the transpose of the first m rows and k columns of B in these orders."""
    for j in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[j, i] = B[rows[i], columns[j]]


@jit
def _scatter(panel, rows, rank, Q):
    """Q <- 0 but for the rows in `rows`: they receive the columns of panel[:rank]."""
    for i in range(Q.shape[0]):
        for j in range(Q.shape[1]):
            Q[i, j] = 0.0
    for i in range(panel.shape[1]):
        for j in range(rank):
            Q[rows[i], j] = panel[j, i]


@jit
def _with_pivots(B, row_order, order, scale, panel):
    """QR with column pivoting of the first rows and columns of B in these orders; order changes.

    panel (k, rows) receives Q^T; returns R.
    """
    k, rows = panel.shape
    again, weight = np.empty((rows, k)), np.empty(k)
    for j in range(k):
        weight[j] = scale[order[j]]
    _take(B, row_order, order, again.T)
    basis, R, pivots = _pivoted_qr(again, weight)
    for i in range(len(R)):
        for h in range(rows):
            panel[i, h] = basis[h, i]
    take_columns(order.reshape(1, k), pivots)
    return R


@jit
def graded_step(B, shift, Q, mantissa, exponent, U, r, sure, bound):
    """Fold one factor into P = Q diag(mantissa 2**exponent) U, given B = J Q[:, :r] 2**-shift.

    Q (n, n) keeps r orthonormal columns, U (n, n) r unit rows. Returns the new rank r and `sure`,
    the number of leading values whose pivots were not lost in rounding; a rank below `bound`, which
    exact zeros allow, is such a loss. About 5 n^3 flops.
    Source: graded QDU accumulation after Stewart, ETNA 5 (1997) 29; rows and columns are sorted by
    scale before a Householder QR, which then needs no pivoting.
    """
    n = B.shape[0]
    largest = row_largest(B)
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
def graded_steps(
    M, index, d, e, low, high, first, reverse,
    Q, mantissa, exponent, U, rank, sure, bound, alive, pending,
):  # fmt: skip
    """Graded factors of the running product through a block (chains without identity part).

    Only steps low[r] <= step < high[r] are taken.
    Forwards each step applies J_t = diag(d_t) M_t. In reverse the transposed product is grouped as
    M_1^T (D_1 M_2^T) ... (D_{T-1} M_T^T) D_T, so that every factor keeps its row scaling:
    `pending[r]` is the M whose transpose waits to be applied, -1 before the first step.
    `bound` (R,) and `alive` (R, n) follow the structure of exact zeros.
    """
    R, n = mantissa.shape
    m = index.shape[1]
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if reverse else s
            if first + t < low[r] or first + t >= high[r]:
                continue
            k, scales = rank[r], d[r, t]
            panel, B = np.empty((n, k)), np.empty((n, k))
            for i in range(n):
                for j in range(k):
                    panel[i, j] = Q[r, i, j]
            if not reverse:
                most = follow(M[index[r, t]], scales, 0.0, alive[r])
                times(M[index[r, t]], scales, 0.0, panel, B)
            else:
                if pending[r] >= 0:
                    most = follow(M[pending[r]].T, scales, 0.0, alive[r])
                    np.dot(M[pending[r]].T, panel, B)
                else:
                    most = follow_diagonal(scales, alive[r])
                    B, panel = panel, B
                for i in range(n):
                    for j in range(k):
                        B[i, j] *= scales[i]
                pending[r] = index[r, t]
            bound[r] = min(bound[r], most)
            if k > 0:
                rank[r], sure[r] = graded_step(
                    B, e[r, t], Q[r], mantissa[r], exponent[r], U[r], k, sure[r], bound[r]
                )
