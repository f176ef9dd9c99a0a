"""The row side of graded factors P = Q diag(s) U in strips (see `tiles`): U, and the order of s.

Scales s are mantissas in [1/2, 1) and int64 exponents. U (S, N, 8) holds its rows as rows.
"""

import math

import numpy as np

from gradprop._kernels.factor import descending
from gradprop._kernels.jit import inlined, jit
from gradprop._kernels.lanes import BLOCK, FOUR, block_products, copy, scale_row
from gradprop._kernels.tiles import ROWS, WIDTH, tile_minus

FAINT = 150
"""Bits below a scale at which another adds nothing to its row of U: an entry of R is at most 2^20
times its pivot, which leaves 2^-130, not to be seen even after cancellation."""


@inlined
def _squares(P, squares):
    """squares (8 S,) <- of the lengths of P's columns."""
    S, N, _ = P.shape
    sums = np.empty((FOUR, WIDTH))
    for s in range(S):
        own = s * N * WIDTH
        block_products(P, own, P, own, BLOCK, N // FOUR, sums)
        for c in range(WIDTH):
            squares[s * WIDTH + c] = (sums[0, c] + sums[1, c]) + (sums[2, c] + sums[3, c])


@inlined
def _weigh(squares, mantissa, exponent, weight):
    """weight (k,) <- what grows with length times scale, as 2 log2 does, but is linear in between.

    Returns whether columns are sorted by it: 1 or 0, -1 for columns of no ordinary size.
    """
    found = np.int64(1)
    for j in range(weight.size):
        if not 2.0**-900 < squares[j] < 2.0**900:
            return np.int64(-1)
        own, bits = math.frexp(mantissa[j] * mantissa[j] * squares[j])
        weight[j] = 2.0 * own + (bits + 2 * exponent[j])
        if j > 0 and weight[j] > weight[j - 1]:
            found = np.int64(0)
    return found


@jit
def permute_scales(mantissa, exponent, order):
    """The first scales <- mantissa[order], exponent[order]."""
    values, powers = np.empty(order.size), np.empty(order.size, np.int64)
    for j in range(order.size):
        values[j], powers[j] = mantissa[order[j]], exponent[order[j]]
    for j in range(order.size):
        mantissa[j], exponent[j] = values[j], powers[j]


@inlined
def _permute(P, U, order, work):
    """Columns of P and rows of U that are not in their place move there."""
    N, moved, m = P.shape[1], np.empty(order.size, np.int64), 0
    for j in range(order.size):
        if order[j] != j:
            moved[m] = j
            m += 1
    for q in range(m):
        h = order[moved[q]]
        for i in range(N):
            work[q // WIDTH, i, q % WIDTH] = P[h // WIDTH, i, h % WIDTH]
    for q in range(m):
        h = moved[q]
        for i in range(N):
            P[h // WIDTH, i, h % WIDTH] = work[q // WIDTH, i, q % WIDTH]
    for t in range(U.shape[0]):
        own = t * N
        for q in range(m):
            copy(U, (own + order[moved[q]]) * WIDTH, WIDTH, work, q * WIDTH)
        for q in range(m):
            copy(work, q * WIDTH, WIDTH, U, (own + moved[q]) * WIDTH)


@jit
def sort_columns(P, mantissa, exponent, U, work):
    """Sort the columns of P by length times scale (k,); scales and rows of U follow.

    False where a column vanishes or is of no ordinary size: nothing is changed then.
    """
    k = mantissa.size
    squares, weight = np.empty(P.shape[0] * WIDTH), np.empty(k)
    _squares(P, squares)
    found = _weigh(squares, mantissa, exponent, weight)
    if found == 0:
        order = descending(weight)
        permute_scales(mantissa, exponent, order)
        _permute(P, U, order, work)
    return found >= 0


@jit
def _last_seen(exponent, first, stop):
    """End of the columns j whose s_j is not FAINT beside some s_i, first <= i < stop."""
    least, last = exponent[first], exponent.size
    for i in range(first, stop):
        least = min(least, exponent[i])
    while last > stop and exponent[last - 1] < least - FAINT:
        last -= 1
    return last


@inlined
def _shares(mantissa, exponent, first, unit, share):
    """share[first:] <- s 2**-unit."""
    for j in range(first, mantissa.size):
        share[j] = math.ldexp(mantissa[j], int(max(exponent[j] - unit, -1000)))


@inlined
def _grade(R, mantissa, exponent, shift, last):
    """R <- I - diag(1 / (R_ii s_i)) R diag(s); then s_i becomes R_ii s_i 2**shift.

    last (S,) <- the end of the strips that the rows of a strip do not find faint.
    """
    k = mantissa.size
    N, share = R.shape[1], np.zeros(last.size * WIDTH)
    unit = exponent[0] + 1000
    for s in range(-(-k // WIDTH)):
        first, stop = s * WIDTH, min((s + 1) * WIDTH, k)
        last[s] = -(-_last_seen(exponent, first, stop) // WIDTH)
        for i in range(first, stop):
            if unit - exponent[i] > 400:
                unit = exponent[i]
                _shares(mantissa, exponent, i, unit, share)
            pivot = R[s, i, i - first]
            own = -1.0 / (pivot * share[i])
            for c in range(i - first + 1):
                R[s, i, c] = 0.0
            start, jump = (s * N + i) * WIDTH, N * WIDTH
            scale_row(R, start, jump, last[s] - s, share, first, WIDTH, own)
            mantissa[i], extra = math.frexp(mantissa[i] * pivot)
            exponent[i] += extra + shift


@jit
def _total(row):
    """Sum of eight numbers."""
    return ((row[0] + row[1]) + (row[2] + row[3])) + ((row[4] + row[5]) + (row[6] + row[7]))


@inlined
def _absorb_norms(U, mantissa, exponent):
    """Make the first k rows of U unit vectors, their norms going into the scales (k,).

    Returns the first row that cancelled to zero, k if none did: it stays exactly zero.
    """
    S, N, _ = U.shape
    k, jump = mantissa.size, N * WIDTH
    lost, sums, ones = k, np.empty((FOUR, WIDTH)), np.ones(WIDTH)
    for first in range(0, k, FOUR):
        block_products(U, first * WIDTH, U, first * WIDTH, jump, S, sums)
        for i in range(first, min(first + FOUR, k)):
            norm = math.sqrt(_total(sums[i - first]))
            if norm == 0.0:
                lost = min(lost, i)
                continue
            scale_row(U, i * WIDTH, jump, S, ones, 0, 0, 1.0 / norm)
            mantissa[i], extra = math.frexp(mantissa[i] * norm)
            exponent[i] += extra
    return lost


@jit
def update_rows(R, mantissa, exponent, U, shift):
    """P = Q R diag(s) U, s (k,), becomes Q diag(s) U again, with unit rows; R is lost.

    n k^2 flops, fewer the longer the product: scales are graded, and what is faint is left out.
    Returns the first row of U that cancelled.
    """
    k, N = mantissa.size, U.shape[1]
    last = np.empty(U.shape[0], np.int64)
    _grade(R, mantissa, exponent, shift, last)
    for t in range(U.shape[0]):
        for i in range(0, k, ROWS):
            s = i // WIDTH
            left, right = (s * N + i) * WIDTH, (t * N + s * WIDTH) * WIDTH
            # rows are overwritten only when all above them have used them
            out = (t * N + i) * WIDTH
            tile_minus(R, left, N * WIDTH, last[s] - s, U, right, U, out)
    return _absorb_norms(U, mantissa, exponent)
