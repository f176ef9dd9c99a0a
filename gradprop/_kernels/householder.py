"""Householder QR of panels in strips (see `tiles`), block by block of eight columns.

The reflectors of a strip act on others as one: I - V T V^T, so that all but the strips themselves
is products of tiles. Source: Schreiber, Van Loan, SIAM J. Sci. Stat. Comput. 10 (1989) 53, section
2. With rows sorted by size it is accurate row by row, as plain Householder QR is.
"""

import math

import numpy as np

from gradprop._kernels.jit import FALSE, TRUE, jit
from gradprop._kernels.tiles import ROWS, WIDTH, tile, tile_minus


@jit
def _reflector(P, s, c, products):
    """Turn column c of strip s below its pivot into a reflector H = I - tau v v^T, and R_cc above.

    Below the pivot stays v / scale. products (4, 8): scratch. Returns tau and scale, after H has
    been applied to the columns behind c. 4 n operations on rows of eight.
    """
    N, top = P.shape[1], s * WIDTH + c
    strip = P[s]
    alpha, below = strip[top, c], N - top - 1
    first = min(c, WIDTH - ROWS)
    own = products[c - first]
    products[:] = 0.0
    if below > 0:
        start = (s * N + top + 1) * WIDTH
        tile(P, start + first, 1, WIDTH, P, start, below, products, 0)
    square = alpha * alpha + own[c]
    if not (own[c] > 2.0**-600 and square < 2.0**900):
        return _any_reflector(strip, top, c, own)
    beta = -math.copysign(math.sqrt(square), alpha)
    scale, tau = 1.0 / (alpha - beta), (beta - alpha) / beta
    for q in range(WIDTH):
        part = tau * (strip[top, q] + scale * own[q]) if q > c else 0.0
        strip[top, q] -= part
        own[q] = scale * part
    strip[top, c] = beta
    for i in range(top + 1, N):
        row = strip[i]
        factor = row[c]
        for q in range(WIDTH):
            row[q] -= factor * own[q]
    return tau, scale


@jit
def _any_reflector(strip, top, c, own):
    """`_reflector` where squares could underflow or overflow: v itself stays below the pivot."""
    N, largest = strip.shape[0], 0.0
    for i in range(top + 1, N):
        largest = max(largest, abs(strip[i, c]))
    if largest == 0.0:
        return 0.0, 1.0
    alpha = strip[top, c]
    largest = max(largest, abs(alpha))
    square = 0.0
    for i in range(top, N):
        square += (strip[i, c] / largest) ** 2
    beta = -math.copysign(largest * math.sqrt(square), alpha)
    tau = (beta - alpha) / beta
    for i in range(top + 1, N):
        strip[i, c] /= alpha - beta
    strip[top, c] = beta
    for q in range(c + 1, WIDTH):
        part = strip[top, q]
        for i in range(top + 1, N):
            part += strip[i, c] * strip[i, q]
        own[q] = tau * part
        strip[top, q] -= own[q]
        for i in range(top + 1, N):
            strip[i, q] -= strip[i, c] * own[q]
    return tau, 1.0


@jit
def _as_one(V, s, taus, T, work):
    """T[s] (8, 8) <- the triangle that makes the reflectors of strip s one: I - V T V^T."""
    N, top = V.shape[1], s * WIDTH
    start = (s * N + top) * WIDTH
    for i in range(0, WIDTH, ROWS):
        tile(V, start + i, 1, WIDTH, V, start, N - top, work, i * WIDTH)
    own = T[s]
    own[:] = 0.0
    for c in range(WIDTH):
        for i in range(c):
            total = 0.0
            for h in range(i, c):
                total += own[i, h] * work[h, c]
            own[i, c] = -taus[c] * total
        own[c, c] = taus[c]


@jit
def _apply(V, s, T, transposed, P, t, work):
    """Strip t of P <- that of (I - V T V^T) P, or with T^T, for the reflectors of strip s."""
    N, top = V.shape[1], s * WIDTH
    left, right = (s * N + top) * WIDTH, (t * N + top) * WIDTH
    row, step = (1, WIDTH) if transposed else (WIDTH, 1)
    for i in range(0, WIDTH, ROWS):
        tile(V, left + i, 1, WIDTH, P, right, N - top, work, i * WIDTH)
    for i in range(0, WIDTH, ROWS):
        start = s * WIDTH * WIDTH + i * row
        tile(T, start, row, step, work, 0, WIDTH, work, WIDTH * WIDTH + i * WIDTH)
    for i in range(0, (N - top) * WIDTH, ROWS * WIDTH):
        tile_minus(V, left + i, 0, 1, work, WIDTH * WIDTH, P, right + i)


@jit
def factorise(P, k, V, T):
    """P (S, N, 8) <- R above its diagonal, of a panel of k columns; V, T <- the reflectors.

    V (S, N, 8), T (S, 8, 8). 4/3 k^3 flops for n = k.
    """
    S, N, _ = P.shape
    work, products, taus = np.empty((2 * WIDTH, WIDTH)), np.empty((ROWS, WIDTH)), np.empty(WIDTH)
    scales = np.empty(WIDTH)
    for s in range(S):
        for t in range(s):
            _apply(V, t, T, TRUE, P, s, work)
        top = s * WIDTH
        for c in range(WIDTH):
            taus[c], scales[c] = 0.0, 0.0
            if top + c < k:
                taus[c], scales[c] = _reflector(P, s, c, products)
        for i in range(N):
            for c in range(WIDTH):
                V[s, i, c] = P[s, i, c] * scales[c] if i > top + c else 0.0
        for c in range(min(WIDTH, k - top)):
            V[s, top + c, c] = 1.0
        _as_one(V, s, taus, T, work)


@jit
def form(V, T, k, P):
    """P (S, N, 8) <- the first k columns of Q from its reflectors. 4/3 k^3 flops for n = k."""
    S, N, _ = P.shape
    work = np.empty((2 * WIDTH, WIDTH))
    for t in range(S):
        for i in range(N):
            for c in range(WIDTH):
                P[t, i, c] = 0.0
        for c in range(min(WIDTH, k - t * WIDTH)):
            P[t, t * WIDTH + c, c] = 1.0
        for s in range(t + 1):
            _apply(V, t - s, T, FALSE, P, t, work)
