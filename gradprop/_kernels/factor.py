"""Orthogonal factorisations of long products: QR exponents, graded U-D-V, one-sided Jacobi.

The block normal form is that of `products`. Scales are kept as mantissa in [1/2, 1) and int64
exponent, so that no product is too long.
"""

import math

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.products import _accumulate, times
from gradprop._kernels.structure import follow, follow_diagonal

LN2 = math.log(2.0)
EPS = 2.0**-52


@jit
def _row_largest(B):
    largest = np.zeros(B.shape[0])
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            largest[i] = max(largest[i], abs(B[i, j]))
    return largest


@jit
def _lost(pivot, n, row, largest_row):
    """Whether a pivot was lost in rounding, or reflectors underflow on its row."""
    return pivot <= 4 * n * EPS * row or row < 2.0**-900 * largest_row


@jit
def _zero_columns(B):
    """1 where a column of B is exactly zero."""
    n, k = B.shape
    dead = np.ones(k, np.int64)
    for j in range(k):
        for i in range(n):
            if B[i, j] != 0.0:
                dead[j] = 0
    return dead


@jit
def _dependent_column(upper):
    """1 at the first pivot that is exactly zero though columns behind it are not."""
    k = upper.shape[1]
    dead = np.zeros(k, np.int64)
    for i in range(k):
        if upper[i, i] == 0.0:
            for j in range(i + 1, k):
                for h in range(i, j + 1):
                    if upper[h, j] != 0.0:
                        dead[i] = 1
                        return dead
    return dead


@jit
def _take_columns(A, order):
    """A <- A[:, order] (indexing with an array would compile for seconds)."""
    row = np.empty(order.size)
    for i in range(A.shape[0]):
        row[:] = A[i]
        for j in range(order.size):
            A[i, j] = row[order[j]]


@jit
def _move_last(dead, B, sums, carry, zero, unsure, history):
    """Stable: marked columns of B, and what belongs to them, go behind the others."""
    total = np.sum(dead)
    if total == 0 or np.sum(dead[dead.size - total :]) == total:
        return
    order = np.empty(dead.size, np.int64)
    living, lost = 0, dead.size - total
    for i in range(dead.size):
        if dead[i]:
            order[lost] = i
            lost += 1
        else:
            order[living] = i
            living += 1
    _take_columns(B, order)
    _take_columns(history, order)
    sums[:] = sums[order]
    carry[:] = carry[order]
    zero[:] = zero[order]
    unsure[:] = unsure[order]


@jit
def absorb(B, shift, counted, sums, carry, zero, unsure, history):
    """B (n, k) <- Q of B = Q R; where `counted`, adds ln |R_ii| + shift ln 2 to the sums (k,).

    Rows are sorted by size first: on graded rows Householder QR is then accurate row by row.
    zero (k,) marks exact zeros: a direction that is lost moves last, and what belongs to it in
    sums, history (H, k) ... with it, so that it does not stand before living ones. unsure (k,)
    marks pivots lost in rounding. Returns R (k, k). 4 n k^2 flops.
    """
    n, k = B.shape
    _move_last(_zero_columns(B), B, sums, carry, zero, unsure, history)
    largest = _row_largest(B)
    order = np.argsort(-largest, kind="mergesort")
    basis, upper = np.linalg.qr(B[order])
    dead = _dependent_column(upper)
    while np.sum(dead) > 0:
        # its arbitrary basis vector must not stand before living columns
        _move_last(dead, B, sums, carry, zero, unsure, history)
        basis, upper = np.linalg.qr(B[order])
        dead = _dependent_column(upper)
    for i in range(k):
        pivot = abs(upper[i, i])
        if pivot == 0.0:
            zero[i] = 1
        elif _lost(pivot, n, largest[order[i]], largest[order[0]]):
            unsure[i] = 1
        if pivot > 0.0 and counted:
            _accumulate(sums, carry, i, math.log(pivot) + shift * LN2)
    for i in range(n):
        B[order[i]] = basis[i]
    return upper


@jit
def qr_exponent_steps(
    M,
    index,
    d,
    e,
    a,
    n_valid,
    first,
    burn_in,
    Q,
    sums,
    carry,
    zero,
    unsure,
    age,
    edges,
    met,
    history,
):
    """Q R <- J Q at every step; sums ln |R_ii| after `burn_in` steps.

    Q (R, n, k); sums, carry, zero, unsure (R, k) as in `absorb`; history (R, H, k) receives the
    sums at the ages `edges` (R, H), of which met[r] have been passed. Cost (2 n^2 k + 4 n k^2) a
    step and replica.
    """
    R, n, k = Q.shape
    m = index.shape[1]
    B = np.empty((n, k))
    for r in range(R):
        for t in range(m):
            if first + t >= n_valid[r]:
                continue
            times(M[index[r, t]], d[r, t], a[r, t], np.ascontiguousarray(Q[r]), B)
            age[r] += 1
            counted = age[r] > burn_in
            absorb(B, e[r, t], counted, sums[r], carry[r], zero[r], unsure[r], history[r])
            Q[r] = B
            if met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                history[r, met[r]] = sums[r] + carry[r]
                met[r] += 1


@jit
def _absorb_row_norms(U, r, mantissa, exponent):
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
            U[i, :] = 0.0
            lost = min(lost, i)
            continue
        for j in range(U.shape[1]):
            U[i, j] /= norm
        mantissa[i], shift = math.frexp(mantissa[i] * norm)
        exponent[i] += shift
    return lost


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
        v = A[k:, k].copy()
        norm = math.sqrt(np.sum(v * v))
        alpha = -norm if v[0] > 0.0 else norm
        v[0] -= alpha
        vv = np.sum(v * v)
        for j in range(k, cols):
            s = 2.0 * np.sum(v * A[k:, j]) / vv
            A[k:, j] -= s * v
        A[k, k] = alpha
        A[k + 1 :, k] = 0.0
        V[k:, k] = v
        rank = k + 1
    Q = np.zeros((rows, rank))
    for k in range(rank):
        Q[k, k] = 1.0
    for k in range(rank - 1, -1, -1):
        v = V[k:, k]
        vv = np.sum(v * v)
        for j in range(rank):
            s = 2.0 * np.sum(v * Q[k:, j]) / vv
            Q[k:, j] -= s * v
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
    return (
        np.argsort(-row_weight, kind="mergesort"),
        np.argsort(-column_weight, kind="mergesort"),
        scale,
    )


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
def graded_step(B, shift, Q, mantissa, exponent, U, r, sure, bound):
    """Fold one factor into P = Q diag(mantissa 2**exponent) U, given B = J Q[:, :r] 2**-shift.

    Q (n, n) keeps r orthonormal columns, U (n, n) r unit rows. Returns the new rank r and `sure`,
    the number of leading values whose pivots were not lost in rounding; a rank below `bound`, which
    exact zeros allow, is such a loss. About 5 n^3 flops.
    Source: graded QDU accumulation after Stewart, ETNA 5 (1997) 29; rows and columns are sorted by
    scale before a Householder QR, which then needs no pivoting.
    """
    n = B.shape[0]
    live = np.nonzero(_row_largest(B))[0]
    if live.size == 0:
        return 0, (0 if bound > 0 else sure)
    row_order, order, scale = _sorted_by_scale(B[live], mantissa[:r], exponent[:r])
    row_order = live[row_order]
    sorted_rows = B[row_order][:, order]
    basis, R = np.linalg.qr(sorted_rows)
    rank = R.shape[0]
    exact_zero = False
    for i in range(rank):
        exact_zero = exact_zero or R[i, i] == 0.0
    if exact_zero:
        basis, R, again = _pivoted_qr(sorted_rows, scale[order])
        order = order[again]
        rank = R.shape[0]
    if rank < bound:
        sure = min(sure, rank)
    largest = _row_largest(sorted_rows)
    for i in range(rank):
        if _lost(abs(R[i, i]), n, largest[i], largest.max()):
            sure = min(sure, i)
    graded, new_mantissa, new_exponent = _regraded(R, order, mantissa, exponent, rank)
    U[:rank] = np.dot(graded, U[order])
    mantissa[:rank] = new_mantissa
    exponent[:rank] = new_exponent + shift
    lost = _absorb_row_norms(U, rank, mantissa, exponent)
    if lost < rank:
        sure = min(sure, lost)
    Q[:, :] = 0.0
    for i in range(live.size):
        Q[row_order[i], :rank] = basis[i, :rank]
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
            panel = np.ascontiguousarray(Q[r, :, :k])
            B = np.empty((n, k))
            if not reverse:
                most = follow(M[index[r, t]], scales, 0.0, alive[r])
                times(M[index[r, t]], scales, 0.0, panel, B)
            else:
                if pending[r] >= 0:
                    most = follow(M[pending[r]].T, scales, 0.0, alive[r])
                    np.dot(M[pending[r]].T, panel, B)
                else:
                    most = follow_diagonal(scales, alive[r])
                    B[:] = panel
                for i in range(n):
                    B[i] *= scales[i]
                pending[r] = index[r, t]
            bound[r] = min(bound[r], most)
            if k > 0:
                rank[r], sure[r] = graded_step(
                    B, e[r, t], Q[r], mantissa[r], exponent[r], U[r], k, sure[r], bound[r]
                )
