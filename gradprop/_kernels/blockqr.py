"""QR of well-conditioned panels by block Gram-Schmidt, a third of the time of Householder's.

Panels are kept in strips (see `tiles`). Q is orthonormal only to about eps spread^2, the spread
being the longest column over the smallest pivot; Q R is the panel to rounding, row by row.
"""

import math

import numpy as np

from gradprop._kernels.jit import inlined, jit
from gradprop._kernels.lanes import BLOCK, FOUR, block_products
from gradprop._kernels.tiles import ROWS, WIDTH, eliminate, tile, tile_minus, tile_solve


@inlined
def _without(P, s, R):
    """Take the columns of all strips before s out of strip s of P; R's strip s <- their parts."""
    N = P.shape[1]
    own = s * N * WIDTH
    for t in range(s):
        for i in range(0, WIDTH, ROWS):
            place = own + (t * WIDTH + i) * WIDTH
            tile(P, t * N * WIDTH + i, 1, WIDTH, P, own, N, R, place)
    for i in range(0, N, ROWS):
        tile_minus(P, i * WIDTH, N * WIDTH, s, R, own, P, own + i * WIDTH)


@inlined
def _longest(R, s, gram, width, sums, longest):
    """Largest square of a length: `longest`, or of a column of strip s, of whose parts R knows."""
    own = s * R.shape[1] * WIDTH
    block_products(R, own, R, own, BLOCK, s * WIDTH // FOUR, sums)
    for c in range(width):
        square = (sums[0, c] + sums[1, c]) + (sums[2, c] + sums[3, c])
        longest = max(longest, square + gram[c, c])
    return longest


@jit
def block_qr(P, k, R, limit):
    """P (S, N, 8) <- Q of P = Q R, k columns; R (S, N, 8) <- R, pivots positive. 2 n k^2 flops.

    Returns the spread; inf where it is above `limit`: both are then lost. Below the blocks on its
    diagonal R is left as it is. Source of the blocks: Stathopoulos, Wu, SIAM J. Sci. Comput. 23
    (2002) 2165, section 2.
    """
    N = P.shape[1]
    gram, unit = np.empty((WIDTH, WIDTH)), np.empty((WIDTH, WIDTH))
    pivots, scales, sums = np.empty(WIDTH), np.empty(WIDTH), np.empty((FOUR, WIDTH))
    longest, smallest = 0.0, np.inf
    for s in range(-(-k // WIDTH)):
        own, width = s * N * WIDTH, min(WIDTH, k - s * WIDTH)
        if s > 0:
            _without(P, s, R)
        for i in range(0, WIDTH, ROWS):
            tile(P, own + i, 1, WIDTH, P, own, N, gram, i * WIDTH)
        longest = _longest(R, s, gram, width, sums, longest)
        for c in range(width, WIDTH):
            gram[c, c] = 1.0
        eliminate(gram, unit, 0, pivots, scales, 0)
        for c in range(width):
            # not so for nan
            if not (pivots[c] > 0.0 and longest < 2.0**900):
                return np.inf
            smallest = min(smallest, pivots[c])
        if not math.sqrt(longest) <= limit * smallest:
            return np.inf
        for i in range(WIDTH):
            for c in range(WIDTH):
                unit[i, c] = unit[i, c] if c > i else 0.0
                R[s, s * WIDTH + i, c] = pivots[i] * unit[i, c]
            R[s, s * WIDTH + i, i] = pivots[i]
        for i in range(0, N, ROWS):
            tile_solve(unit, scales, P, own + i * WIDTH)
    return math.sqrt(longest) / smallest
