"""Covariant Lyapunov vectors: QR forwards with everything kept, triangular solves backwards.

The block normal form is that of `products`.
"""

import math

import numpy as np

from gradprop._kernels.copying import copy_matrix
from gradprop._kernels.factor import absorb
from gradprop._kernels.jit import jit
from gradprop._kernels.products import _accumulate, times

LN2 = math.log(2.0)


@jit
def forward_steps(M, index, d, e, a, n_valid, first, Q, zero, unsure, moved, bases, uppers):
    """Householder QR at every step; keeps Q before and R of each step of the block.

    Q (R, n, k) is carried on; bases (R, m, n, k), uppers (R, m, k, k) are filled. zero and unsure
    (R, k) as in `factor.absorb`; moved (R,) becomes the step after which columns last changed
    places, so that those before it are other directions. 2 n^2 k + 4 n k^2 flops a step.
    """
    R, n, k = Q.shape
    B = np.empty((n, k))
    sums, carry, labels = np.zeros(k), np.zeros(k), np.zeros((1, k))
    for r in range(R):
        for t in range(index.shape[1]):
            copy_matrix(Q[r], bases[r, t])
            if first + t >= n_valid[r]:
                continue
            times(M[index[r, t]], d[r, t], a[r, t], np.ascontiguousarray(Q[r]), B)
            for i in range(k):
                labels[0, i] = i
            counted = n_valid[r] < 0
            upper = absorb(B, e[r, t], counted, sums, carry, zero[r], unsure[r], labels)
            copy_matrix(upper, uppers[r, t])
            for i in range(k):
                if labels[0, i] != i:
                    moved[r] = first + t + 1
            copy_matrix(B, Q[r])


@jit
def _solve(upper, C, X):
    """X = R^-1 C for upper triangular R and C (k, k): column j needs only the first j + 1 rows."""
    k = C.shape[0]
    copy_matrix(C, X)
    for i in range(k - 1, -1, -1):
        for j in range(i + 1, k):
            for c in range(j, k):
                X[i, c] -= upper[i, j] * X[j, c]
        for c in range(i, k):
            X[i, c] /= upper[i, i]


@jit
def _normalise(X, growth, shift):
    """Make the columns of X unit vectors; growth <- shift ln 2 - ln of their norms."""
    k = X.shape[1]
    for c in range(k):
        largest = 0.0
        for i in range(c + 1):
            # nan stays: such a column is lost
            largest = abs(X[i, c]) if not abs(X[i, c]) <= largest else largest
        square = 0.0
        for i in range(c + 1):
            X[i, c] /= largest
            square += X[i, c] * X[i, c]
        norm = math.sqrt(square)
        for i in range(c + 1):
            X[i, c] /= norm
        growth[c] = shift * LN2 - math.log(norm) - math.log(largest)


@jit
def backward_steps(
    uppers, e, n_valid, since, until, first, C, coordinates, growth, total, carry, counted
):
    """C <- R^-1 C with unit columns, last step of the block first.

    C (R, k, k) holds the covariant vectors after the block in the basis Q, and then those before
    it; coordinates (R, m, k, k) and growth (R, m, k) receive, for each step, the coordinates
    before it and the growth through it. That of the steps since[r] .. until[r] - 1 is summed up in
    total + carry (R, k), and they are counted (R,). k^3 / 3 flops a step.
    """
    R, m = e.shape
    k = C.shape[1]
    X = np.empty((k, k))
    for r in range(R):
        for t in range(m - 1, -1, -1):
            if first + t < n_valid[r]:
                _solve(uppers[r, t], C[r], X)
                _normalise(X, growth[r, t], e[r, t])
                copy_matrix(X, C[r])
                if since[r] <= first + t < until[r]:
                    counted[r] += 1
                    for i in range(k):
                        _accumulate(total[r], carry[r], i, growth[r, t, i])
            copy_matrix(C[r], coordinates[r, t])
