"""Panels in strips of columns (see `tiles`): pushed by a Jacobian, and orthonormalised."""

import math

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.tiles import (
    ROWS,
    WIDTH,
    eliminate,
    tile,
    tile_minus,
    tile_solve,
    tile_step,
)


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
def push(packed, d, a, P, out):
    """out <- (a I + diag(d) M) P for a packed M; d (N,) is zero from n on. 2 n^2 k flops."""
    S, N, n = P.shape[0], P.shape[1], packed.shape[1]
    for s in range(S):
        strip = s * N * WIDTH
        for i in range(0, N, ROWS):
            tile_step(packed, i * n, P, strip, n, d, i, a, out, strip + i * WIDTH)


@jit
def _project(P, s, inside):
    """Take the columns of all strips before s out of strip s; inside (8 s, 8) <- their parts."""
    N = P.shape[1]
    own = s * N * WIDTH
    for t in range(s):
        for i in range(0, WIDTH, ROWS):
            tile(P, t * N * WIDTH + i, 1, WIDTH, P, own, N, inside, (t * WIDTH + i) * WIDTH)
    for i in range(0, N, ROWS):
        tile_minus(P, i * WIDTH, N * WIDTH, s, inside, 0, P, own + i * WIDTH)


@jit
def orthonormalise(P, k, inside, pivots):
    """P (S, N, 8) <- Q of P = Q R; pivots (k,) <- R_ii. Block Gram-Schmidt, 2 n k^2 flops.

    inside (8 S, 8) is overwritten. Returns ln of the spread, the longest column over the smallest
    pivot; inf where it fails. Q is orthonormal to about eps spread^2, but P = Q R holds to
    rounding. Source of the blocks: Stathopoulos, Wu, SIAM J. Sci. Comput. 23 (2002) 2165, section
    2.
    """
    S, N, _ = P.shape
    gram, unit = np.empty((WIDTH, WIDTH)), np.empty((WIDTH, WIDTH))
    own_pivots, scales, squares = np.empty(WIDTH), np.empty(WIDTH), np.empty(WIDTH)
    longest, smallest = 0.0, np.inf
    for s in range(S):
        own, width = s * N * WIDTH, min(WIDTH, k - s * WIDTH)
        squares[:] = 0.0
        if s > 0:
            _project(P, s, inside)
            for h in range(s * WIDTH):
                for j in range(WIDTH):
                    squares[j] += inside[h, j] * inside[h, j]
        for i in range(0, WIDTH, ROWS):
            tile(P, own + i, 1, WIDTH, P, own, N, gram, i * WIDTH)
        for j in range(width):
            longest = max(longest, squares[j] + gram[j, j])
        for j in range(width, WIDTH):
            gram[j, j] = 1.0
        eliminate(gram, unit, own_pivots, scales)
        for j in range(width):
            if not own_pivots[j] > 2.0**-400 or not longest < 2.0**900:
                return np.inf
            pivots[s * WIDTH + j] = own_pivots[j]
            smallest = min(smallest, own_pivots[j])
        for i in range(0, N, ROWS):
            tile_solve(unit, scales, P, own + i * WIDTH)
    return 0.5 * math.log(longest) - math.log(smallest)


@jit
def defect(P, k):
    """Largest entry of (Q^T Q - I) y for the k columns Q of P and signs y that look random.

    4 n k flops.
    """
    S, N, _ = P.shape
    y, u, found, worst = np.zeros(S * WIDTH), np.zeros(N), np.empty(WIDTH), 0.0
    for j in range(k):
        y[j] = 1.0 if (j + 1) * 0.6180339887498949 % 1.0 < 0.5 else -1.0
    for s in range(S):
        signs = y[s * WIDTH : (s + 1) * WIDTH]
        for i in range(N):
            row, total = P[s, i], 0.0
            for c in range(WIDTH):
                total += row[c] * signs[c]
            u[i] += total
    for s in range(S):
        found[:] = 0.0
        for i in range(N):
            row, factor = P[s, i], u[i]
            for c in range(WIDTH):
                found[c] += row[c] * factor
        for c in range(WIDTH):
            worst = max(worst, abs(found[c] - y[s * WIDTH + c]))
    return worst
