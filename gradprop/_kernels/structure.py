"""What exact zeros alone say about a product: its zero rows, and how large its rank can be.

Only the places of nonzero entries count, never values: a zero found here is proven, whereas one
that a computation runs into may be luck of rounding.
"""

import numpy as np

from gradprop._kernels.jit import jit


@jit
def _is_full(M, d, alive):
    """Whether there is no zero in any of them."""
    for i in range(alive.size):
        if d[i] == 0.0 or not alive[i]:
            return False
    for i in range(M.shape[0]):
        zeros = 0
        for k in range(M.shape[1]):
            zeros += M[i, k] == 0.0
        if zeros > 0:
            return False
    return True


@jit
def follow(M, d, a, alive):
    """alive (n,): rows of P with a nonzero, before and after P <- (a I + diag(d) M) P.

    Returns a bound on the rank of the new P. n^2 comparisons.
    """
    n = alive.size
    if _is_full(M, d, alive):
        return n
    after, used = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    n_after, n_used = 0, 0
    for i in range(n):
        if a != 0.0 and alive[i]:
            after[i], used[i] = True, True
        if d[i] != 0.0:
            for k in range(n):
                if alive[k] and M[i, k] != 0.0:
                    after[i], used[k] = True, True
    for i in range(n):
        alive[i] = after[i]
        n_after += after[i]
        n_used += used[i]
    return min(n_after, n_used)


@jit
def follow_diagonal(d, alive):
    """`follow` for P <- diag(d) P."""
    n_alive = 0
    for i in range(alive.size):
        alive[i] = alive[i] and d[i] != 0.0
        n_alive += alive[i]
    return n_alive


@jit
def follow_steps(M, index, d, a, n_valid, first, alive, bound):
    """`follow` through a block, forwards: alive (R, n) and bound (R,) are carried on."""
    R, m = index.shape
    for r in range(R):
        for t in range(m):
            if first + t < n_valid[r]:
                bound[r] = min(bound[r], follow(M[index[r, t]], d[r, t], a[r, t], alive[r]))
