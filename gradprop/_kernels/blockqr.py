"""QR of well-conditioned panels by block Gram-Schmidt, a third of the time of Householder's.

Panels are kept transposed, (k, n), so that columns lie together. Q is orthonormal only to about
eps spread^2, the spread being the longest column over the smallest pivot; Q R is the panel to
rounding, row by row.
"""

import math

import numpy as np

from gradprop._kernels.jit import jit

NARROW, WIDE = 16, 32
"""Columns orthonormalised at once, of up to 64 and of more; found by experiment, n = 64 ... 256."""


@jit
def _cholesky(gram):
    """Upper triangle of gram (w, w) <- R, gram = R^T R; False where a pivot is not positive."""
    w = gram.shape[0]
    for i in range(w):
        if not gram[i, i] > 0.0:
            return False
        pivot = math.sqrt(gram[i, i])
        gram[i, i], inverse = pivot, 1.0 / pivot
        for h in range(i + 1, w):
            gram[i, h] *= inverse
        for j in range(i + 1, w):
            c = gram[i, j]
            for h in range(j, w):
                gram[j, h] -= c * gram[i, h]
    return True


@jit
def _solve(R, own):
    """own (w, n) <- R^-T own, by substitution, four rows at a time."""
    w, n = own.shape
    for p in range(0, w, 4):
        q = min(p + 4, w)
        for i in range(p, q):
            for j in range(p, i):
                c = R[j, i]
                for h in range(n):
                    own[i, h] -= c * own[j, h]
            inverse = 1.0 / R[i, i]
            for h in range(n):
                own[i, h] *= inverse
        for i in range(q, w):
            c0, c1, c2, c3 = R[p, i], R[p + 1, i], R[p + 2, i], R[p + 3, i]
            for h in range(n):
                own[i, h] -= (c0 * own[p, h] + c1 * own[p + 1, h]) + (
                    c2 * own[p + 2, h] + c3 * own[p + 3, h]
                )


@jit
def block_qr(B, upper, limit):
    """B (k, n) <- Q^T of B^T = Q R; upper (k, k) <- R with positive pivots. 2 n k^2 flops.

    False where the spread is above `limit`: both are then lost. Below the blocks on its diagonal,
    `upper` is left as it is. Source of the blocks: Stathopoulos, Wu, SIAM J. Sci. Comput. 23 (2002)
    2165, section 2.
    """
    k = B.shape[0]
    width = NARROW if k <= 64 else WIDE
    longest, smallest = 0.0, np.inf
    for j in range(0, k, width):
        stop = min(j + width, k)
        own = B[j:stop]
        squares = np.zeros(stop - j)
        if j > 0:
            inside = np.dot(B[:j], own.T)
            before = np.dot(inside.T, B[:j])
            for i in range(stop - j):
                for h in range(B.shape[1]):
                    own[i, h] -= before[i, h]
            for h in range(j):
                for i in range(stop - j):
                    upper[h, j + i] = inside[h, i]
                    squares[i] += inside[h, i] * inside[h, i]
        gram = np.dot(own, own.T)
        for i in range(stop - j):
            longest = max(longest, squares[i] + gram[i, i])
        if not (longest < 2.0**900 and _cholesky(gram)):
            return False
        for i in range(stop - j):
            smallest = min(smallest, gram[i, i])
            for h in range(stop - j):
                upper[j + i, j + h] = gram[i, h] if h >= i else 0.0
        if not math.sqrt(longest) <= limit * smallest:
            return False
        _solve(gram, own)
    return True
