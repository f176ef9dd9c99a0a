"""Householder QR of long products at every step.

The block normal form is that of `products`.
"""

import math

import numpy as np

from gradprop._kernels.householder import factorise, form
from gradprop._kernels.jit import jit
from gradprop._kernels.products import _accumulate, times
from gradprop._kernels.tiles import ROWS, WIDTH

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
def _sizes(largest):
    """Binary exponents of the sizes of rows; -inf for zeros. Rows of about 1 are all alike.

    Sorted by them, rows that differ little stay where they are, and triangles remain triangles.
    """
    sizes = np.empty(largest.size)
    for i in range(largest.size):
        sizes[i] = math.frexp(1.5 * largest[i])[1] if largest[i] > 0.0 else -np.inf
    return sizes


@jit
def is_lost(pivot, n, row, largest_row):
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
def _factorise_rows(B, order, P, V, T, upper):
    """P, V, T <- `householder.factorise` of the rows of B in that order, upper (k, k) <- R."""
    k = upper.shape[0]
    for s in range(P.shape[0]):
        for i in range(order.size):
            for j in range(s * WIDTH, min((s + 1) * WIDTH, k)):
                P[s, i, j - s * WIDTH] = B[order[i], j]
    factorise(P, k, V, T)
    for i in range(k):
        for j in range(k):
            upper[i, j] = P[j // WIDTH, i, j % WIDTH] if j >= i else 0.0


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
    k = order.size
    take_columns(B, order)
    take_columns(history, order)
    take_columns(sums.reshape(1, k), order)
    take_columns(carry.reshape(1, k), order)
    take_columns(zero.reshape(1, k), order)
    take_columns(unsure.reshape(1, k), order)


@jit
def absorb(B, shift, counted, sums, carry, zero, unsure, history):
    """B (n, k) <- Q of B = Q R; where `counted`, adds ln |R_ii| + shift ln 2 to the sums (k,).

    Rows are sorted by size first, up to factors of two: on graded rows Householder QR is then
    accurate row by row.
    zero (k,) marks exact zeros: a direction that is lost moves last, and what belongs to it in
    sums, history (H, k) ... with it, so that it does not stand before living ones. unsure (k,)
    marks pivots lost in rounding. Returns R (k, k). 4 n k^2 flops.
    """
    n, k = B.shape
    _move_last(_zero_columns(B), B, sums, carry, zero, unsure, history)
    largest = row_largest(B)
    order = descending(_sizes(largest))
    S, N = -(-k // WIDTH), -(-n // ROWS) * ROWS
    P, V, T, upper = (
        np.zeros((S, N, WIDTH)), np.empty((S, N, WIDTH)), np.empty((S, WIDTH, WIDTH)),
        np.empty((k, k)),
    )  # fmt: skip
    _factorise_rows(B, order, P, V, T, upper)
    dead = _dependent_column(upper)
    while np.sum(dead) > 0:
        # its arbitrary basis vector must not stand before living columns
        _move_last(dead, B, sums, carry, zero, unsure, history)
        P[:] = 0.0
        _factorise_rows(B, order, P, V, T, upper)
        dead = _dependent_column(upper)
    form(V, T, k, P)
    for i in range(k):
        pivot = abs(upper[i, i])
        if pivot == 0.0:
            zero[i] = 1
        elif is_lost(pivot, n, largest[order[i]], largest[order[0]]):
            unsure[i] = 1
        if pivot > 0.0 and counted:
            _accumulate(sums, carry, i, math.log(pivot) + shift * LN2)
    for i in range(n):
        for j in range(k):
            B[order[i], j] = P[j // WIDTH, i, j % WIDTH]
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
