"""Finish of the graded factorisation: graded LQ and one-sided Jacobi in log scale."""

import math

import numpy as np

from gradprop._kernels.factor import EPS, descending
from gradprop._kernels.gradedhouse import absorb_row_norms, dot_of, rows_in
from gradprop._kernels.gradedrows import permute_scales
from gradprop._kernels.jit import jit
from gradprop._kernels.lapack import triangularise
from gradprop._kernels.tiles import ROWS, WIDTH, tile


@jit
def graded_finish(U, mantissa, exponent, r):
    """Two graded LQ steps: P's singular values are those of diag(scales) U, U (r, r), sorted.

    The mantissa of a row that cancels to zero becomes nan: its value is lost in rounding.
    """
    rows, R, tau = U[:r].copy(), np.empty((r, r)), np.empty(r)
    for _ in range(2):
        triangularise(rows, R, tau)
        rows = _transposed_triangle(R, mantissa, exponent, r)
        lost = absorb_row_norms(rows, r, mantissa, exponent)
        weight = np.empty(r)
        for i in range(r):
            if i >= lost and not _has_entries(rows[i]):
                mantissa[i] = np.nan
            known = not math.isnan(mantissa[i])
            weight[i] = math.log2(mantissa[i]) + exponent[i] if known else -np.inf
        order = descending(weight)
        rows = rows_in(rows, order)
        permute_scales(mantissa, exponent, order)
    return rows


@jit
def _has_entries(row):
    """Whether any entry is not zero."""
    found = False
    for entry in row:
        found = found or entry != 0.0
    return found


@jit
def _transposed_triangle(R, mantissa, exponent, r):
    """Rows R_ji s_i / s_j: diag(s) of them is the transpose of diag(s) R^T."""
    graded = np.zeros((r, r))
    for j in range(r):
        for i in range(j, r):
            if R[j, i] == 0.0:
                continue
            shift = int(max(min(exponent[i] - exponent[j], 1000), -2200))
            graded[j, i] = math.ldexp(R[j, i] * (mantissa[i] / mantissa[j]), shift)
    return graded


@jit
def _rotate(rows, mantissa, exponent, i, j, gap, cosine):
    """Make rows i and j orthogonal; row i has the larger scale, 2**gap <= 1 is the ratio of powers.

    The mantissa of a row that cancels to zero becomes nan.
    """
    tau = math.ldexp(mantissa[j] / mantissa[i], int(max(gap, -2200)))
    z = (tau * tau - 1.0) / (2.0 * cosine)
    sign = 1.0 if z >= 0.0 else -1.0
    slope = sign / (abs(z) + math.sqrt(tau * tau + z * z))
    c = 1.0 / math.sqrt(1.0 + (slope * tau) ** 2)
    back = slope * tau * tau
    n = rows.shape[1]
    for k in range(n):
        u, v = rows[i, k], rows[j, k]
        rows[i, k] = c * (u - back * v)
        rows[j, k] = c * (v + slope * u)
    norm_i, norm_j = math.sqrt(dot_of(rows[i], rows[i])), math.sqrt(dot_of(rows[j], rows[j]))
    if norm_i == 0.0:
        mantissa[i], norm_i = np.nan, 1.0
    if norm_j == 0.0:
        mantissa[j], norm_j = np.nan, 1.0
    # reciprocals: a division takes sixteen times as long as a product
    inverse_i, inverse_j = 1.0 / norm_i, 1.0 / norm_j
    for k in range(n):
        rows[i, k] *= inverse_i
        rows[j, k] *= inverse_j
    mantissa[i], shift = math.frexp(mantissa[i] * norm_i)
    exponent[i] += shift
    mantissa[j], shift = math.frexp(mantissa[j] * norm_j)
    exponent[j] += shift


@jit
def _meet(rows, mantissa, exponent, p, q, cosine, tolerance):
    """Rotate rows p and q unless they are orthogonal already; whether that was done."""
    if not abs(cosine) > tolerance:
        return False
    gap = exponent[q] - exponent[p]
    if gap > 0 or (gap == 0 and mantissa[q] > mantissa[p]):
        _rotate(rows, mantissa, exponent, q, p, -gap, cosine)
    else:
        _rotate(rows, mantissa, exponent, p, q, gap, cosine)
    return True


@jit
def _within(rows, mantissa, exponent, first, stop, tolerance):
    """All pairs of rows first ... stop - 1; the largest |cosine|."""
    worst = 0.0
    for p in range(first, stop - 1):
        for q in range(p + 1, stop):
            cosine = dot_of(rows[p], rows[q])
            worst = max(worst, abs(cosine))
            _meet(rows, mantissa, exponent, p, q, cosine, tolerance)
    return worst


@jit
def _put(row, columns, c):
    """columns[:, c] = row."""
    for k in range(row.size):
        columns[k, c] = row[k]


@jit
def _largest(gram, skip):
    """Largest magnitude in all rows but the first ones."""
    worst = 0.0
    for h in range(skip, ROWS):
        for c in range(WIDTH):
            worst = max(worst, abs(gram[h, c]))
    return worst


@jit
def _between(rows, mantissa, exponent, first, q, skip, gram, columns, tolerance):
    """Rows first ... first + 7 meet q + skip ... q + 3, with the cosines in gram (4, 8).

    Those of a row that has turned are computed anew. Returns the largest |cosine|.
    """
    worst, turned = 0.0, np.zeros(WIDTH, np.bool_)
    for h in range(skip, ROWS):
        own = False
        for c in range(WIDTH):
            cosine = gram[h, c]
            if own or turned[c]:
                cosine = dot_of(rows[first + c], rows[q + h])
            worst = max(worst, abs(cosine))
            if _meet(rows, mantissa, exponent, first + c, q + h, cosine, tolerance):
                own, turned[c] = True, True
    for c in range(WIDTH):
        if turned[c]:
            _put(rows[first + c], columns, c)
    return worst


@jit
def jacobi_sweep(rows, mantissa, exponent):
    """One sweep of one-sided Jacobi on rows scaled by mantissa 2**exponent, all in log scale.

    Returns the largest |cosine| between two rows met in the sweep. n^3 flops in tiles, and 10 n for
    each pair of rows that is not orthogonal or whose rows have just turned.
    Source: Demmel & Veselic, SIAM J. Matrix Anal. Appl. 13 (1992) 1204, Algorithm 4.1, with the
    ratio of the two scales kept apart so that it may underflow.
    """
    r, n = rows.shape
    tolerance, worst = math.sqrt(n) * EPS, 0.0
    columns, gram = np.empty((n, WIDTH)), np.empty((ROWS, WIDTH))
    for first in range(0, r, WIDTH):
        stop = min(first + WIDTH, r)
        worst = max(worst, _within(rows, mantissa, exponent, first, stop, tolerance))
        if stop == r:
            break
        for c in range(WIDTH):
            _put(rows[first + c], columns, c)
        for q in range(stop, r, ROWS):
            # the last four may overlap others
            at = min(q, r - ROWS)
            tile(rows, at * n, n, 1, columns, 0, n, gram, 0)
            largest = _largest(gram, q - at)
            if not largest <= tolerance:
                largest = _between(
                    rows, mantissa, exponent, first, at, q - at, gram, columns, tolerance
                )
            worst = max(worst, largest)
    return worst
