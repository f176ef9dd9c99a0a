"""Graded factors U-D-V of long products, from which singular values come in log scale.

The block normal form is that of `products`. Scales are kept as mantissa in [1/2, 1) and int64
exponent, so that no product is too long. Bases Q are kept transposed.
"""

import math

import numpy as np

from gradprop._kernels.blockqr import block_qr
from gradprop._kernels.factor import descending, is_lost, row_largest, take_columns
from gradprop._kernels.gradedrows import sort_columns, update_rows
from gradprop._kernels.jit import jit
from gradprop._kernels.lanes import BLOCK, blocks_dot, copy
from gradprop._kernels.lapack import form_basis, triangularise
from gradprop._kernels.pivoted import pivoted_qr
from gradprop._kernels.stripqr import from_strips, pack, push, to_strips
from gradprop._kernels.structure import follow, follow_diagonal
from gradprop._kernels.tiles import ROWS, WIDTH

LIMIT = 1e6
"""Spread of a panel (`blockqr`) beyond which Householder QR takes over: up to here the condition of
Q was below 1.001 on 160 panels with rows of all sizes, at 1e8 it was 200."""

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
def _fallback(B, n, shift, Q, mantissa, exponent, U, r, sure, bound):
    """`householder_step` on strips."""
    S = B.shape[0]
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


@jit
def graded_step(B, n, shift, Q, mantissa, exponent, U, work, r, sure, bound):
    """Fold one factor into P = Q diag(mantissa 2**exponent) U; B (S, N, 8) is J Q 2**-shift.

    Q (S, N, 8) has r columns, orthonormal or, after Gram-Schmidt, well-conditioned, U (S, N, 8) r
    unit rows. Returns the new rank r, `sure`, the number of leading values whose pivots were not
    lost in rounding (a rank below `bound`, which exact zeros allow, is such a loss), and the spread
    of B if Gram-Schmidt took it, inf otherwise. B and `work` are lost. About 3 n^3 flops; 6 n^3 for
    Householder QR, which steps in where block Gram-Schmidt is not accurate.
    """
    if sort_columns(B, mantissa[:r], exponent[:r], U, work):
        copy(B, 0, B.size, Q, 0)
        spread = block_qr(Q, r, work, LIMIT)
        if spread < np.inf:
            lost = update_rows(work, mantissa[:r], exponent[:r], U, shift)
            return r, min(sure, r if r < bound else sure, lost if lost < r else sure), spread
    rank, sure = _fallback(B, n, shift, Q, mantissa, exponent, U, r, sure, bound)
    return rank, sure, np.inf


@jit
def _ordinary(d):
    """Whether no entry but a zero is above 1 or below 2**-60."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if entry != 0.0 and not 2.0**-60 <= abs(entry) <= 1.0:
            return False
    return True


@jit
def _load(M, turned, own, packed):
    """own <- M, or its transpose, and packed <- own (see `pack`); whether no entry is zero."""
    n, full = M.shape[0], True
    for i in range(n):
        for j in range(n):
            entry = M[j, i] if turned else M[i, j]
            own[i, j] = entry
            full = full and entry != 0.0
    pack(own, packed)
    return full


@jit
def _push(Q, packed, own, full, scales, alive, out):
    """out <- diag(scales) M Q, M as `_load` left it; returns `follow`'s bound on the rank."""
    n = own.shape[0]
    padded, plain = np.zeros(Q.shape[1]), full
    for i in range(n):
        padded[i] = scales[i]
        plain = plain and alive[i] and scales[i] != 0.0
    push(packed, padded, 0.0, Q, out)
    return n if plain else follow(own, scales, 0.0, alive)


@jit
def _scale_rows(Q, scales, out):
    """out <- diag(scales) Q."""
    for s in range(Q.shape[0]):
        for i in range(scales.size):
            for c in range(WIDTH):
                out[s, i, c] = scales[i] * Q[s, i, c]


@jit
def _pace(before, own, matrix):
    """Ln of the spread a factor, slow to fall; a factor without its matrix says nothing yet."""
    if matrix < 0:
        return np.inf
    return max(own, 0.5 * (before + own)) if before < np.inf else own


@jit
def graded_steps(
    M, index, d, e, low, high, first, reverse, group, most, reach,
    Q, mantissa, exponent, U, rank, sure, bound, alive, pending, waiting, merged, pace,
):  # fmt: skip
    """Graded factors of the running product through a block (chains without identity part).

    Only steps low[r] <= step < high[r] are taken. Q, U (R, S, N, 8): see `graded_step`; N = 8 S.
    Forwards each step applies J_t = diag(d_t) M_t. In reverse the transposed product is grouped as
    M_1^T (D_1 M_2^T) ... (D_{T-1} M_T^T) D_T, so that every factor keeps its row scaling:
    `pending[r]` is the M whose transpose waits to be applied, -1 before the first step.
    `group` factors are multiplied into Q before it is factored, and up to `most` as long as ln of
    the spread is expected within `reach`; waiting[r] of them wait, merged[r] have waited. pace[r]
    is ln of the last spread, a factor; inf where Q is orthonormal to rounding.
    `bound` (R,) and `alive` (R, n) follow the structure of exact zeros.
    """
    R, n = mantissa.shape
    _, S, N, _ = Q.shape
    own, packed, strips = np.empty((n, n)), np.zeros((N // ROWS, n, ROWS)), np.zeros((2, S, N, WIDTH))
    m, held, full = index.shape[1], -1, False
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if reverse else s
            k, now = rank[r], pending[r] if reverse else index[r, t]
            if first + t < low[r] or first + t >= high[r]:
                continue
            strip = -(-k // WIDTH)
            B, scales = strips[0, :strip], d[r, t]
            if now >= 0:
                if now != held:
                    held, full = now, _load(M[now], reverse, own, packed)
                allowed = _push(Q[r, :strip], packed, own, full, scales, alive[r], B)
            else:
                allowed = follow_diagonal(scales, alive[r])
                _scale_rows(Q[r, :strip], scales, B)
            if reverse:
                pending[r] = index[r, t]
            bound[r] = min(bound[r], allowed)
            taken = waiting[r] + 1
            near = taken < most and (taken + 1) * pace[r] <= reach
            if (near or taken < group) and _ordinary(scales):
                waiting[r] = taken
                merged[r] += 1
                for j in range(k):
                    exponent[r, j] += e[r, t]
                copy(B, 0, B.size, Q[r], 0)
            elif k > 0:
                rank[r], sure[r], spread = graded_step(
                    B, n, e[r, t], Q[r], mantissa[r], exponent[r], U[r], strips[1], k, sure[r],
                    bound[r],
                )  # fmt: skip
                pace[r] = _pace(pace[r], math.log(spread) / taken, now)
                waiting[r] = 0
