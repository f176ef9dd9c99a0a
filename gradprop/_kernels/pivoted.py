"""Householder QR with column pivoting, for panels whose pivots vanish."""

import math

import numpy as np

from gradprop._kernels.jit import ZERO, jit


@jit
def _reflect(V, k, A, first):
    """Apply the reflector in column k of V to the columns of A from `first` on."""
    rows = len(A)
    square = 0.0
    for i in range(k, rows):
        square += V[i, k] * V[i, k]
    for j in range(first, A.shape[1]):
        s = 0.0
        for i in range(k, rows):
            s += V[i, k] * A[i, j]
        s *= 2.0 / square
        for i in range(k, rows):
            A[i, j] -= s * V[i, k]


@jit
def pivoted_qr(B, weight):
    """Householder QR with column pivoting on log2-weighted column norms; stops at an exact zero.

    Returns Q (rows, rank), R (rank, cols), permutation. Used only where a pivot vanishes exactly.
    """
    rows, cols = B.shape
    A = B.copy()
    order = np.arange(cols)
    V = np.zeros((rows, min(rows, cols)))
    rank = 0
    for k in range(min(rows, cols)):
        best, at = -np.inf, -1
        for j in range(k, cols):
            square = 0.0
            for i in range(k, rows):
                square += A[i, j] * A[i, j]
            if square > 0.0 and 0.5 * math.log2(square) + weight[order[j]] > best:
                best, at = 0.5 * math.log2(square) + weight[order[j]], j
        if at < 0:
            break
        order[k], order[at] = order[at], order[k]
        for i in range(rows):
            A[i, k], A[i, at] = A[i, at], A[i, k]
        square = 0.0
        for i in range(k, rows):
            V[i, k] = A[i, k]
            square += A[i, k] * A[i, k]
        alpha = -math.sqrt(square) if V[k, k] > 0.0 else math.sqrt(square)
        V[k, k] -= alpha
        _reflect(V, k, A, k)
        A[k, k] = alpha
        for i in range(k + 1, rows):
            A[i, k] = 0.0
        rank = k + 1
    Q = np.zeros((rows, rank))
    for k in range(rank):
        Q[k, k] = 1.0
    for k in range(rank - 1, -1, -1):
        _reflect(V, k, Q, ZERO)
    return Q, A[:rank], order
