"""Householder QR of long products at every step.

The block normal form is that of `products`.
"""

import math

import numpy as np

from gradprop._kernels.householder import factorise, form
from gradprop._kernels.jit import FALSE, TRUE, jit
from gradprop._kernels.products import _accumulate, times
from gradprop._kernels.stripqr import from_strips, to_strips
from gradprop._kernels.tiles import WIDTH

LN2 = math.log(2.0)
EPS = 2.0**-52


@jit
def row_largest(B):
    largest = np.zeros(B.shape[0])
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            largest[i] = max(largest[i], abs(B[i, j]))
    return largest


@jit
def is_lost(pivot, n, row, largest_row):
    """Whether a pivot was lost in rounding, or reflectors underflow on its row."""
    return pivot <= 4 * n * EPS * row or row < 2.0**-900 * largest_row


@jit
def _zero_columns(P, dead):
    """dead (k,) <- 1 where a column of P, in strips, is exactly zero; returns how many are."""
    found = 0
    for j in range(dead.size):
        dead[j] = 1
        for i in range(P.shape[1]):
            if P[j // WIDTH, i, j % WIDTH] != 0.0:
                dead[j] = 0
                break
        found += dead[j]
    return found


@jit
def _dependent_column(R, dead):
    """dead (k,) <- 1 at the first pivot that is exactly zero though columns behind it are not."""
    k = dead.size
    dead[:] = 0
    for i in range(k):
        if R[i // WIDTH, i, i % WIDTH] == 0.0:
            for j in range(i + 1, k):
                for h in range(i, j + 1):
                    if R[j // WIDTH, h, j % WIDTH] != 0.0:
                        dead[i] = 1
                        return 1
    return 0


@jit
def descending(values):
    """Order of values from the largest on, equal ones as they stand; by insertion.

    Here as elsewhere below, what NumPy has a word for (argsort, A[order], A[i] = row) is spelled
    out where the word compiles for seconds.
    """
    order = np.empty(values.size, np.int64)
    for i in range(values.size):
        j = i
        while j > 0 and values[order[j - 1]] < values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@jit
def take_columns(A, order):
    """A <- A[:, order]."""
    row = np.empty(order.size, A.dtype)
    for i in range(A.shape[0]):
        for j in range(order.size):
            row[j] = A[i, order[j]]
        for j in range(order.size):
            A[i, j] = row[j]


@jit
def _move_last(dead, P, sums, carry, zero, unsure, history):
    """Stable: marked columns of P, and what belongs to them, go behind the others."""
    k, total = dead.size, np.sum(dead)
    if np.sum(dead[k - total :]) == total:
        return
    order = np.empty(k, np.int64)
    living, lost = 0, k - total
    for i in range(k):
        if dead[i]:
            order[lost] = i
            lost += 1
        else:
            order[living] = i
            living += 1
    columns = np.empty((P.shape[1], k))
    from_strips(P, columns)
    take_columns(columns, order)
    to_strips(columns, P)
    take_columns(history, order)
    take_columns(sums.reshape(1, k), order)
    take_columns(carry.reshape(1, k), order)
    take_columns(zero.reshape(1, k), order)
    take_columns(unsure.reshape(1, k), order)


@jit
def _by_rows(P, order, out, back):
    """out <- the rows of P in that order, or (`back`) P's into those places of out."""
    for s in range(P.shape[0]):
        for i in range(order.size):
            row, place = (P[s, i], out[s, order[i]]) if back else (P[s, order[i]], out[s, i])
            for c in range(WIDTH):
                place[c] = row[c]


@jit
def _row_sizes(P, n):
    """Largest magnitude in each row, and its binary exponent (-inf for 0). Rows of 1 are alike.

    Sorted by exponents, rows that differ little stay where they are, and triangles remain so.
    """
    largest, sizes, own = np.zeros(n), np.empty(n), np.empty(WIDTH)
    for i in range(n):
        own[:] = 0.0
        for s in range(P.shape[0]):
            for c in range(WIDTH):
                size = abs(P[s, i, c])
                own[c] = size if size > own[c] else own[c]
        for c in range(WIDTH):
            largest[i] = max(largest[i], own[c])
        sizes[i] = math.frexp(1.5 * largest[i])[1] if largest[i] > 0.0 else -np.inf
    return largest, sizes


@jit
def absorb_strips(P, n, work, shift, counted, sums, carry, zero, unsure, history):
    """P <- Q of P = Q R, in strips; where `counted`, adds ln |R_ii| + shift ln 2 to the sums (k,).

    Rows are sorted by size first, up to factors of two: on graded rows Householder QR is then
    accurate row by row. zero (k,) marks exact zeros: a direction that is lost moves last, and what
    belongs to it in sums, history (H, k) ... with it, so that it does not stand before living ones.
    unsure (k,) marks pivots lost in rounding. R stands in
    the first of `work` (see `workspace`). 8/3 k^3 flops for n = k.
    """
    R, V, T, Q = work
    k = sums.size
    dead = np.empty(k, np.int64)
    if _zero_columns(P, dead) > 0:
        _move_last(dead, P, sums, carry, zero, unsure, history)
    largest, sizes = _row_sizes(P, n)
    order = descending(sizes)
    _by_rows(P, order, R, FALSE)
    factorise(R, k, V, T)
    while _dependent_column(R, dead) > 0:
        # its arbitrary basis vector must not stand before living columns
        _move_last(dead, P, sums, carry, zero, unsure, history)
        _by_rows(P, order, R, FALSE)
        factorise(R, k, V, T)
    for i in range(k):
        pivot = abs(R[i // WIDTH, i, i % WIDTH])
        if pivot == 0.0:
            zero[i] = 1
        elif is_lost(pivot, n, largest[order[i]], largest[order[0]]):
            unsure[i] = 1
        if pivot > 0.0 and counted:
            _accumulate(sums, carry, i, math.log(pivot) + shift * LN2)
    form(V, T, k, Q)
    _by_rows(Q, order, P, TRUE)


@jit
def workspace(S, N):
    """What `absorb_strips` works in."""
    strips = np.zeros((3, S, N, WIDTH))
    return strips[0], strips[1], np.zeros((S, WIDTH, WIDTH)), strips[2]


@jit
def absorb(B, shift, counted, sums, carry, zero, unsure, history):
    """`absorb_strips` of B (n, k); returns R (k, k)."""
    n, k = B.shape
    S, N = -(-k // WIDTH), -(-n // WIDTH) * WIDTH
    P, upper, work = np.zeros((S, N, WIDTH)), np.zeros((k, k)), workspace(S, N)
    to_strips(B, P)
    absorb_strips(P, n, work, shift, counted, sums, carry, zero, unsure, history)
    for i in range(k):
        for j in range(i, k):
            upper[i, j] = work[0][j // WIDTH, i, j % WIDTH]
    from_strips(P, B)
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
