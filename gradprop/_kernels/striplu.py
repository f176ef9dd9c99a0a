"""Gaussian elimination of panels in strips (see `tiles`), rows interchanged: P A = L U.

Strip by strip, all that came before taken out at once. Multipliers are at most 1 in magnitude, so
that errors of a row are as small as the row. Source: Higham, Accuracy and Stability of Numerical
Algorithms (2002), sections 9.3 and 9.7.
"""

import math

import numpy as np

from gradprop._kernels.jit import ONE, inlined, jit
from gradprop._kernels.pivoting import left_columns, left_rows, pivot_columns, row_sizes, to_rows
from gradprop._kernels.stripqr import room
from gradprop._kernels.tiles import ROWS, WIDTH, solve_unit

FAINT = 2.0**-900
"""Rows smaller than this part of the largest may have lost what products of them need."""
GROWTH = 2.0**10
"""Most that a row may grow by; in practice it is a few times."""
DOUBTFUL = 1e9
"""Ratio of a row to its pivot beyond which the pivot might be one lost in rounding."""


@jit
def space(S, N):
    """What `eliminate_panel` works in.

    Columns (8, N) of a strip; U in it and the largest in its columns, (N, 8); triangles on the
    diagonal of L, (S, 8, 8); sizes of rows, rows alive (N,) and those of pivots (8,).
    """
    return (
        room(WIDTH * N).reshape(WIDTH, N), room(N * WIDTH).reshape(N, WIDTH),
        room(N * WIDTH).reshape(N, WIDTH), np.zeros((S, WIDTH, WIDTH)), room(N),
        room(N).view(np.int64), np.empty(WIDTH, np.int64),
    )  # fmt: skip


@inlined
def _to_columns(P, s, L, order, U, blocks, columns):
    """U, columns <- strip s of P, the columns of all strips before taken out."""
    N, start = P.shape[1], s * P.shape[1] * WIDTH
    for t in range(s):
        for i in range(t * WIDTH, (t + 1) * WIDTH, ROWS):
            left_rows(L, N * WIDTH, t, order, i, P, start, U, U)
        solve_unit(blocks, t * WIDTH * WIDTH, WIDTH, 1, U, t * WIDTH * WIDTH)
    for i in range(s * WIDTH, N, ROWS):
        left_columns(L, N * WIDTH, s, order, i, P, start, U, columns, N, i - s * WIDTH)


@inlined
def _from_columns(columns, s, width, chosen, order, L, blocks):
    """Strip s of L, and the triangle on its diagonal, <- `width` columns and zeros."""
    N, top = L.shape[1], s * WIDTH
    for c in range(width, WIDTH):
        for i in range(N - top):
            columns[c, i] = 0.0
    to_rows(columns, N, N - top, order, top, L, s * N * WIDTH)
    for i in range(top):
        for c in range(WIDTH):
            L[s, order[i], c] = 0.0
    for i in range(1, width):
        for c in range(i):
            blocks[s, i, c] = columns[c, chosen[i]]


@inlined
def _reorder(order, top, chosen, width):
    """Let entries top .. top + width - 1 of order be those chosen (counted from top).

    Those that have to make room take the places left.
    """
    taken, h = np.int64(0), 0
    for c in range(width):
        if chosen[c] < width:
            taken |= np.int64(1) << chosen[c]
    for c in range(width):
        place = chosen[c]
        chosen[c] = order[top + place]
        if place >= width:
            while taken >> h & 1:
                h += 1
            order[top + place] = order[top + h]
            h += 1
    for c in range(width):
        order[top + c] = chosen[c]


@inlined
def _raise(U, top, upper):
    """upper <- magnitudes of the first rows of U where larger."""
    for i in range(top):
        for c in range(WIDTH):
            size = abs(U[i, c])
            upper[i, c] = size if size > upper[i, c] else upper[i, c]


@inlined
def _growth(k, order, upper, sizes, columns):
    """Largest ratio of a row of U outside the blocks on its diagonal to that row of the panel."""
    row_sizes(upper, ONE, sizes.size, columns)
    grown = 0.0
    for i in range(k):
        grown = max(grown, columns[0, i] / sizes[order[i]])
    return grown


@inlined
def _start(P, order, sizes, upper):
    """The plain order, sizes of rows and the largest of them; upper <- 0."""
    row_sizes(P, P.shape[0], P.shape[1], sizes)
    largest = 0.0
    for i in range(order.size):
        order[i] = i
        largest = max(largest, sizes[i])
        for c in range(WIDTH):
            upper[i, c] = 0.0
    return largest


@jit
def eliminate_panel(P, k, limit, L, order, pivots, columns, U, upper, blocks, sizes, alive, chosen):
    """L <- lower triangle of a panel P (S, N, 8) of k columns; pivots (8 S,) <- |U_ii|.

    2/3 k^3 flops for n = k.
    L has its rows where those of P are: in the order of order (N,) it is triangular, with ones.
    Returns ln of the spread, the largest entry over the smallest pivot; inf where that is more than
    `limit`, a row has grown too much, is too small beside others, or its pivot might be one lost in
    rounding. L is of no use then. From `columns` on: see `space`.
    """
    (S, N, _), s = P.shape, 0
    largest, smallest = _start(P, order, sizes, upper), np.inf
    while s < S and limit > 0.0:
        top, width = s * WIDTH, min(WIDTH, k - s * WIDTH)
        _to_columns(P, s, L, order, U, blocks, columns)
        _raise(U, top, upper)
        pivot_columns(columns, N, N - top, alive, chosen, pivots, top)
        for c in range(width):
            pivot, size = abs(pivots[top + c]), sizes[order[top + chosen[c]]]
            if not pivot * DOUBTFUL > size or not size > FAINT * largest:
                limit = 0.0
            smallest = min(smallest, pivot)
            pivots[top + c] = pivot
        if largest <= limit * smallest:
            _from_columns(columns, s, width, chosen, order, L, blocks)
            _reorder(order, top, chosen, width)
            s += 1
        else:
            limit = 0.0
    good = limit > 0.0 and _growth(k, order, upper, sizes, columns) <= GROWTH
    return math.log(largest) - math.log(smallest) if good else np.inf
