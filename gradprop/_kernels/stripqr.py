"""Panels in strips of columns (see `tiles`): pushed by a Jacobian, and how long its columns are."""

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.tiles import ROWS, WIDTH, eliminate, solve_unit, tile, tile_step


@jit
def room(size):
    """Zeros that start where lines of the cache do: vectors across two of them cost up to twice."""
    raw = np.zeros(size + WIDTH)
    first = (-(raw.ctypes.data >> 3)) % WIDTH
    return raw[first : first + size]


@jit
def pack(M, packed):
    """packed (N / ROWS, n, ROWS) <- M (n, n), rows side by side; rows beyond n stay zero."""
    n = M.shape[0]
    for i in range(n):
        out, row = packed[i // ROWS, :, i % ROWS], M[i]
        for j in range(n):
            out[j] = row[j]


@jit
def to_strips(A, P):
    """P (S, N, WIDTH) <- A (n, k); the rest is left alone."""
    n, k = A.shape
    for s in range(P.shape[0]):
        for i in range(n):
            for j in range(s * WIDTH, min((s + 1) * WIDTH, k)):
                P[s, i, j - s * WIDTH] = A[i, j]


@jit
def from_strips(P, A):
    """The reverse of `to_strips`."""
    n, k = A.shape
    for s in range(P.shape[0]):
        for i in range(n):
            for j in range(s * WIDTH, min((s + 1) * WIDTH, k)):
                A[i, j] = P[s, i, j - s * WIDTH]


@jit
def push(packed, d, a, order, plain, triangular, panels, source, target):
    """Panel `target` <- (a I + diag(d) M) panel `source`, for a packed M, of panels (., S, N, 8).

    d (N,) is zero from n on. order (2, N) lists the rows of the source; the second list is plain.
    Where the source is `triangular` in that order (as L of `striplu`), as much as half of the
    2 n^2 k flops is left out.
    """
    (_, S, N, _), n = panels.shape, packed.shape[1]
    for s in range(S):
        first = s * WIDTH if triangular else 0
        left, strip = (source * S + s) * N * WIDTH, (target * S + s) * N * WIDTH
        for i in range(0, N, ROWS):
            tile_step(
                packed, i * n, ROWS, order, plain * N + first, n - first, panels, left, d, i,
                panels, strip + i * WIDTH,
            )  # fmt: skip
        if a != 0.0:
            for i in range(n):
                for c in range(WIDTH):
                    panels[target, s, i, c] += a * panels[source, s, i, c]


@jit
def push_apart(packed, d, order, P, out):
    """out <- diag(d) M P for a packed M and panels (S, N, 8) apart; order (N,) counts up."""
    n, N = packed.shape[1], P.shape[1]
    for s in range(P.shape[0]):
        own = s * N * WIDTH
        for i in range(0, N, ROWS):
            tile_step(packed, i * n, ROWS, order, 0, n, P, own, d, i, out, own + i * WIDTH)


@jit
def _gram_block(L, order, s, t, U, ones, work):
    """First eight rows of work (16, 8) <- block (t, s) of L^T L, less rows of U before."""
    N, K, top = L.shape[1], U.shape[1], s * WIDTH
    for i in range(0, WIDTH, ROWS):
        row = t * N * WIDTH + i
        tile_step(
            L, row, WIDTH, order, top, N - top, L, s * N * WIDTH, ones, 0, work, i * WIDTH
        )  # fmt: skip
    if t > 0:
        for i in range(0, WIDTH, ROWS):
            out = (WIDTH + i) * WIDTH
            tile(U, t * K * WIDTH + i, 1, WIDTH, U, s * K * WIDTH, t * WIDTH, work, out)
        for i in range(WIDTH):
            for c in range(WIDTH):
                work[i, c] -= work[WIDTH + i, c]


@jit
def lengths(L, k, order, U, pivots):
    """pivots (k,) <- |R_ii| of L = Q R by Cholesky of L^T L, for L (S, N, 8) as in `striplu`.

    U (S, 8 S, 8) is overwritten. Returns the largest ratio of a column's square to its pivot's (inf
    where it fails), to which errors are proportional. 2/3 k^3 flops for n = k.
    """
    S, worst = L.shape[0], 1.0
    work, gram = np.empty((2 * WIDTH, WIDTH)), np.empty((WIDTH, WIDTH))
    unit, scales, own = np.empty((S, WIDTH, WIDTH)), np.empty((S, WIDTH)), np.empty(WIDTH)
    squares, ones = np.empty(WIDTH), np.ones(ROWS)
    for s in range(S):
        width = min(WIDTH, k - s * WIDTH)
        squares[:] = 0.0
        for t in range(s):
            _gram_block(L, order, s, t, U, ones, work)
            solve_unit(unit, t * WIDTH * WIDTH, 1, WIDTH, work, 0)
            for i in range(WIDTH):
                for c in range(WIDTH):
                    value = work[i, c] * scales[t, i]
                    U[s, t * WIDTH + i, c] = value
                    squares[c] += value * value
        _gram_block(L, order, s, s, U, ones, work)
        for i in range(WIDTH):
            for c in range(WIDTH):
                gram[i, c] = work[i, c]
            squares[i] += gram[i, i]
            if i >= width:
                gram[i, i] = 1.0
        eliminate(gram, unit, s * WIDTH * WIDTH, own, scales, s * WIDTH)
        for c in range(width):
            pivots[s * WIDTH + c] = own[c]
            ratio = squares[c] / (own[c] * own[c])
            worst = max(worst, ratio) if ratio <= np.inf else np.inf
    return worst
