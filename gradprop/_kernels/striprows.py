"""One step of a strip and its check columns, and the gap between the two: tiles side by side.

Arrays are flat, and lists of offsets lie side by side in `lists`, `stride` apart: rows, places,
marks (of rows in M, S, C); terms, picks, check picks (of terms in M, S, C); spread, columns (of
columns in S, in x). Loops run over slices: an index that might be negative costs a gather for every
load.
"""

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.tile import tile

CHECKS = 4
LISTS, PADDING = 8, 4
REGIONS = 5
"""What stands in C, each (n + 1, CHECKS): old and new columns, work space, x, work space."""
MINUS_ONE = np.float64(-1)


@jit
def pick(d, at, n, sparse, lists, begin, stride, one, two):
    """Write three lists from `begin` for i < n with d[at + i] != 0 (all, unless `sparse`)."""
    count = 0
    for i in range(n):
        if not sparse or d[at + i] != 0.0:
            lists[begin + count] = i * one
            lists[begin + stride + count] = i * two
            lists[begin + 2 * stride + count] = i * CHECKS
            count += 1
    return count


@jit
def pad(n, count, lists, stride, width, scale, check_scale):
    """Fill the lists of rows up to what tiles can take: four, or an even number above."""
    padded = 4 if count == 1 or count == 2 else count + count % 2
    for j in range(count, padded):
        lists[j] = lists[0] if count > 0 else 0
        lists[stride + j], lists[2 * stride + j] = n * width, n * CHECKS
        scale[j], check_scale[j] = 0, 0
    return padded


@jit
def multiply(
    M, M_check, origin, lists, counts, S, x, own, scale, y, tiles, C, x_check, own_check,
    check_scale, y_check, a, square, check_square,
):  # fmt: skip
    """Tiles of S at y <- scale M (tiles at x) + a (tiles at own), and C alike with M_check.

    Four or six rows at a time of all tiles, while these rows of M are near. Returns the sum of
    squares of S.
    """
    for j in range(square.size):
        square[j] = 0.0
    stride, n_rows, n_terms, i = lists.size // LISTS, counts[0], counts[1], 0
    size = (stride - PADDING + 1) * square.size
    terms, picks, check_picks = 3 * stride, 4 * stride, 5 * stride
    while i < n_rows:
        six = n_rows - i >= 6 and n_rows - i != 8
        places, marks = stride + i, 2 * stride + i
        if six:
            for at in range(0, tiles * size, size):
                tile(
                    6, 512, M, origin, lists, i, places, terms, picks, n_terms, S, x + at, own + at,
                    scale, i, S.dtype.type(a), S, y + at, square,
                )  # fmt: skip
            tile(
                6, 256, M_check, origin, lists, i, marks, terms, check_picks, n_terms, C, x_check,
                own_check, check_scale, i, a, C, y_check, check_square,
            )  # fmt: skip
        else:
            for at in range(0, tiles * size, size):
                tile(
                    4, 512, M, origin, lists, i, places, terms, picks, n_terms, S, x + at, own + at,
                    scale, i, S.dtype.type(a), S, y + at, square,
                )  # fmt: skip
            tile(
                4, 256, M_check, origin, lists, i, marks, terms, check_picks, n_terms, C, x_check,
                own_check, check_scale, i, a, C, y_check, check_square,
            )  # fmt: skip
        i += 6 if six else 4
    total = 0.0
    for j in range(square.size):
        total += square[j]
    return total


@jit
def strip_gap(lists, n_rows, n_terms, S, now, C, y, ones, square):
    """Sum of squares of (S at now) x - (C at y), x among the regions of C."""
    x, work = 3 * (C.size // REGIONS), 4 * (C.size // REGIONS)
    for j in range(CHECKS):
        square[j] = 0.0
    stride, i = lists.size // LISTS, 0
    rows, marks, terms, picks = stride, 2 * stride, 6 * stride, 7 * stride
    while i < n_rows:
        six = n_rows - i >= 6 and n_rows - i != 8
        if six:
            tile(
                6, 256, S, now, lists, rows + i, marks + i, terms, picks, n_terms, C, x, y,
                ones, i, MINUS_ONE, C, work, square,
            )  # fmt: skip
        else:
            tile(
                4, 256, S, now, lists, rows + i, marks + i, terms, picks, n_terms, C, x, y,
                ones, i, MINUS_ONE, C, work, square,
            )  # fmt: skip
        i += 6 if six else 4
    return square[0] + square[1] + square[2] + square[3]


@jit
def scale_rows(d, at, n, X, x, y, tiles, width):
    """Rows of the tiles at y <- d times those at x."""
    for j in range(tiles):
        for i in range(n):
            factor, k = d[at + i], (j * (n + 1) + i) * width
            old, new = X[x + k : x + k + width], X[y + k : y + k + width]
            for c in range(width):
                new[c] = factor * old[c]
