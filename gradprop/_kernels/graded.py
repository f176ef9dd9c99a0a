"""Graded factors U-D-V of long products, from which singular values come in log scale.

The block normal form is that of `products`. Scales are kept as mantissa in [1/2, 1) and int64
exponent, so that no product is too long. Bases Q are kept transposed.
"""

import math

import numpy as np

from gradprop._kernels.blockqr import block_qr
from gradprop._kernels.factor import descending, is_lost, row_largest, take_columns
from gradprop._kernels.jit import jit
from gradprop._kernels.lapack import form_basis, triangularise
from gradprop._kernels.pivoted import pivoted_qr
from gradprop._kernels.structure import follow, follow_diagonal

LIMIT = 1e6
"""Spread of a panel (`blockqr`) beyond which Householder QR takes over: up to here the condition of
Q was below 1.001 on 160 panels with rows of all sizes, at 1e8 it was 200."""

ROWS = 16
"""Rows of U updated at once; found by experiment at n = 64 ... 256."""

FAINT = 150
"""Bits below a scale at which another adds nothing to its row of U: an entry of R is at most 2^20
times its pivot, which leaves 2^-130, not to be seen even after cancellation."""


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
    """u . v in eight partial sums, which a processor adds side by side."""
    n = u.size
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(0, n - 7, 8):
        a += u[k] * v[k]
        b += u[k + 1] * v[k + 1]
        c += u[k + 2] * v[k + 2]
        d += u[k + 3] * v[k + 3]
        e += u[k + 4] * v[k + 4]
        f += u[k + 5] * v[k + 5]
        g += u[k + 6] * v[k + 6]
        h += u[k + 7] * v[k + 7]
    for k in range(n - n % 8, n):
        a += u[k] * v[k]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


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
def _sort_columns(B, mantissa, exponent, U):
    """Sort the columns of B^T by length times scale; scales and rows of U follow.

    False where a column vanishes or is of no ordinary size: nothing is changed then.
    """
    k, n = B.shape
    weight, in_order = np.empty(k), True
    for j in range(k):
        square = dot_of(B[j], B[j])
        if not 2.0**-900 < square < 2.0**900:
            return False
        weight[j] = math.log2(mantissa[j]) + exponent[j] + 0.5 * math.log2(square)
        in_order = in_order and (j == 0 or weight[j] <= weight[j - 1])
    if in_order:
        return True
    order = descending(weight)
    take_columns(mantissa.reshape(1, k), order)
    take_columns(exponent.reshape(1, k), order)
    columns, rows = rows_in(B, order), rows_in(U, order)
    for i in range(k):
        for h in range(n):
            B[i, h] = columns[i, h]
            U[i, h] = rows[i, h]
    return True


@jit
def _last_seen(exponent, first, stop):
    """End of the columns j whose s_j is not FAINT beside some s_i, first <= i < stop."""
    least, last = exponent[first], exponent.size
    for i in range(first, stop):
        least = min(least, exponent[i])
    while last > stop and exponent[last - 1] < least - FAINT:
        last -= 1
    return last


@jit
def _graded_rows(R, first, stop, mantissa, exponent, shift):
    """Rows first ... stop - 1 of diag(1 / (R_ii s_i)) R diag(s), (rows, columns from `first` on).

    Their s_i become R_ii s_i 2**shift. Columns that are faint are left out.
    """
    last = _last_seen(exponent, first, stop)
    rows, share = np.zeros((stop - first, last - first)), np.empty(last - first)
    unit = exponent[first] + 1000
    for i in range(first, stop):
        h = i - first
        if unit - exponent[i] > 400:
            unit = exponent[i]
            for j in range(h, last - first):
                power = max(exponent[first + j] - unit, -1000)
                share[j] = math.ldexp(mantissa[first + j], int(power))
        own = 1.0 / (R[i, i] * share[h])
        rows[h, h] = 1.0
        for j in range(h + 1, last - first):
            rows[h, j] = R[i, first + j] * (share[j] * own)
        mantissa[i], extra = math.frexp(mantissa[i] * R[i, i])
        exponent[i] += extra + shift
    return rows


@jit
def _update_rows(R, mantissa, exponent, U, shift):
    """P = Q R diag(s) U, U (r, n), becomes Q diag(s) U again, with unit rows.

    Scales are graded, so that the longer the product, the fewer diagonals of R are multiplied.
    Returns the first row of U that cancelled.
    """
    r, n = U.shape
    for first in range(0, r, ROWS):
        stop = min(first + ROWS, r)
        rows = _graded_rows(R, first, stop, mantissa, exponent, shift)
        new = np.dot(rows, U[first : first + rows.shape[1]])
        for i in range(first, stop):
            for h in range(n):
                U[i, h] = new[i - first, h]
    return absorb_row_norms(U, r, mantissa, exponent)


@jit
def graded_step(B, shift, Q, mantissa, exponent, U, r, sure, bound):
    """Fold one factor into P = Q^T diag(mantissa 2**exponent) U; B (r, n) is Q[:r] J^T 2**-shift.

    Q (n, n) keeps r rows, orthonormal or (`loose`) well-conditioned, U (n, n) r unit rows. Returns
    the new rank r, `sure`, the number of leading values whose pivots were not lost in rounding (a
    rank below `bound`, which exact zeros allow, is such a loss), and `loose`. B is lost. About
    4 n^3 flops; 6 n^3 for Householder QR, which steps in where block Gram-Schmidt is not accurate.
    """
    n = B.shape[1]
    if _sort_columns(B, mantissa[:r], exponent[:r], U[:r]):
        R = np.empty((r, r))
        for i in range(r):
            for h in range(n):
                Q[i, h] = B[i, h]
        if block_qr(Q[:r], R, LIMIT):
            lost = _update_rows(R, mantissa[:r], exponent[:r], U[:r], shift)
            return r, min(sure, r if r < bound else sure, lost if lost < r else sure), True
    rank, sure = householder_step(B, shift, Q, mantissa, exponent, U, r, sure, bound)
    return rank, sure, False


@jit
def _ordinary(d):
    """Whether no entry but a zero is above 1 or below 2**-60."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if entry != 0.0 and not 2.0**-60 <= abs(entry) <= 1.0:
            return False
    return True


@jit
def graded_steps(
    M, index, d, e, low, high, first, reverse, group,
    Q, mantissa, exponent, U, rank, sure, bound, alive, pending, waiting, loose,
):  # fmt: skip
    """Graded factors of the running product through a block (chains without identity part).

    Only steps low[r] <= step < high[r] are taken.
    Forwards each step applies J_t = diag(d_t) M_t. In reverse the transposed product is grouped as
    M_1^T (D_1 M_2^T) ... (D_{T-1} M_T^T) D_T, so that every factor keeps its row scaling:
    `pending[r]` is the M whose transpose waits to be applied, -1 before the first step.
    `group` factors are multiplied into Q before it is factored; waiting[r] of them wait.
    `bound` (R,) and `alive` (R, n) follow the structure of exact zeros.
    """
    R, n = mantissa.shape
    m = index.shape[1]
    work = np.empty((n, n))
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if reverse else s
            if first + t < low[r] or first + t >= high[r]:
                continue
            k, scales, before = rank[r], d[r, t], pending[r]
            B = work[:k]
            if not reverse:
                most = follow(M[index[r, t]], scales, 0.0, alive[r])
                np.dot(Q[r, :k], M[index[r, t]].T, B)
            elif before >= 0:
                most = follow(M[before].T, scales, 0.0, alive[r])
                np.dot(Q[r, :k], M[before], B)
            else:
                most = follow_diagonal(scales, alive[r])
                for j in range(k):
                    for i in range(n):
                        B[j, i] = Q[r, j, i]
            if reverse:
                pending[r] = index[r, t]
            for j in range(k):
                for i in range(n):
                    B[j, i] *= scales[i]
            bound[r] = min(bound[r], most)
            if waiting[r] + 1 < group and _ordinary(scales):
                waiting[r] += 1
                for j in range(k):
                    exponent[r, j] += e[r, t]
                    for i in range(n):
                        Q[r, j, i] = B[j, i]
            elif k > 0:
                waiting[r] = 0
                rank[r], sure[r], loose[r] = graded_step(
                    B, e[r, t], Q[r], mantissa[r], exponent[r], U[r], k, sure[r], bound[r]
                )
