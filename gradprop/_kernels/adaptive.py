"""Lyapunov exponents with few orthonormalisations: several steps at once while that is safe.

A panel B = J ... J Q of `period` steps is orthonormalised by blocks of columns, cheaply, as long as
it is well conditioned; otherwise the steps are taken back and fewer are tried, down to Householder
QR at every step (`factor.absorb`), period 0. The Q of the cheap way is orthonormal only to about
eps spread^2, but B = Q R holds to rounding: what Q lacks at one step is repaid by R at the next,
and a closing Householder QR settles the last one. The block normal form is that of `products`.
Panels are kept transposed, (k, n), so that columns lie together.
"""

import math

import numpy as np

from gradprop._kernels.factor import absorb
from gradprop._kernels.jit import jit
from gradprop._kernels.lapack import triangularise
from gradprop._kernels.products import _accumulate

LN2 = math.log(2.0)
WIDTH = 32
"""Columns orthonormalised at once; found by experiment at n = 16 ... 256."""

TARGET = math.log(1e4)
"""Log of the spread that periods aim at, and LIMIT, beyond which steps are taken back."""
LIMIT = math.log(1e5)


@jit
def push(M, d, a, B, out):
    """out = (J B^T)^T for J = a I + diag(d) M and a transposed panel B (k, n). 2 n^2 k flops."""
    np.dot(B, M.T, out)
    k, n = B.shape
    for j in range(k):
        for i in range(n):
            out[j, i] = d[i] * out[j, i] + a * B[j, i]


@jit
def _keep(A, out):
    """out = A (out[:] = A compiles for seconds)."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j]


@jit
def _eliminate(own, gram, pivots):
    """Orthonormalise the rows of `own` by the Cholesky factor of their Gram matrix, which is lost.

    Returns False where a pivot is not positive (or nan).
    """
    w, n = own.shape
    for i in range(w):
        if not gram[i, i] > 0.0:
            return False
        pivot = math.sqrt(gram[i, i])
        pivots[i] = pivot
        for h in range(n):
            own[i, h] /= pivot
        for j in range(i + 1, w):
            c = gram[i, j] / pivot
            for h in range(j, w):
                gram[j, h] -= c * (gram[i, h] / pivot)
            for h in range(n):
                own[j, h] -= c * own[i, h]
    return True


@jit
def orthonormalise(B, pivots):
    """B (k, n) <- Q^T of B^T = Q R; pivots (k,) <- R_ii. Block Gram-Schmidt, 2 n k^2 flops.

    Returns ln of the spread, the longest column over the smallest pivot; inf where it fails. Source
    of the blocks: Stathopoulos, Wu, SIAM J. Sci. Comput. 23 (2002) 2165, section 2.
    """
    k = B.shape[0]
    longest = 0.0
    for j in range(0, k, WIDTH):
        stop = min(j + WIDTH, k)
        own = B[j:stop]
        squares = np.zeros(stop - j)
        if j > 0:
            inside = np.dot(B[:j], own.T)
            own -= np.dot(inside.T, B[:j])
            for h in range(j):
                for i in range(stop - j):
                    squares[i] += inside[h, i] * inside[h, i]
        gram = np.dot(own, own.T)
        for i in range(stop - j):
            longest = max(longest, squares[i] + gram[i, i])
        if not (longest < 2.0**900 and _eliminate(own, gram, pivots[j:stop])):
            return np.inf
    smallest = pivots.min()
    return 0.5 * math.log(longest) - math.log(smallest) if smallest > 2.0**-400 else np.inf


@jit
def _spread(upper):
    """Ln of the longest column over the smallest pivot; inf where one is zero."""
    k = upper.shape[0]
    longest, smallest = 0.0, np.inf
    for j in range(k):
        square = 0.0
        for i in range(j + 1):
            square += upper[i, j] * upper[i, j]
        longest = max(longest, square)
        smallest = min(smallest, abs(upper[j, j]))
    return 0.5 * math.log(longest) - math.log(smallest) if smallest > 0.0 else np.inf


@jit
def _close(B, shift, counted, sums, carry, zero, unsure, history):
    """`factor.absorb` of a transposed panel; returns the period that looks safe then, 0 or 1."""
    k, n = B.shape
    panel = np.empty((n, k))
    _keep(B.T, panel)
    upper = absorb(panel, shift, counted, sums, carry, zero, unsure, history)
    _keep(panel.T, B)
    return 1 if _spread(upper) <= TARGET else 0


@jit
def _total(sums, carry, row):
    """row <- sums + carry."""
    for i in range(row.size):
        row[i] = sums[i] + carry[i]


@jit
def _record(B, exponent, sums, carry, row):
    """row <- the sums once the panel B, times 2**exponent, will have been orthonormalised."""
    k, n = B.shape
    panel, upper, tau = np.empty((k, n)), np.empty((k, k)), np.empty(k)
    _keep(B, panel)
    largest = 0.0
    for entry in panel.flat:
        largest = max(largest, abs(entry))
    if largest < 2.0**900:
        triangularise(panel, upper, tau)
        for i in range(row.size):
            row[i] = sums[i] + carry[i] + math.log(abs(upper[i, i])) + exponent * LN2


@jit
def _within_one(d):
    """Whether every entry is at most 1 (and none nan)."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if not entry <= 1.0:
            return False
    return True


@jit
def _several_steps(
    M, index, d, e, a, t, p, burn_in, Q, B, work, pivots, sums, carry, age, edges, met, history
):
    """Take the steps t .. t + p - 1 from Q to the next one, which is in B or in `work`.

    Returns it, ln of the spread and `met`. Only where that spread is within LIMIT is anything added
    to the sums.
    """
    exponent, before = 0, Q
    for s in range(t, t + p):
        if not _within_one(d[s]):
            # rows farther apart than 2**900: entries of a panel could underflow and grow again
            return B, np.inf, met
        push(M[index[s]], d[s], a[s], before, work)
        B, work = work, B
        before = B
        exponent += e[s]
        age += 1
        if met < edges.size and age == edges[met]:
            _record(B, exponent, sums, carry, history[met])
            met += 1
    spread = orthonormalise(B, pivots)
    if spread <= LIMIT and age > burn_in:
        for i in range(pivots.size):
            _accumulate(sums, carry, i, math.log(pivots[i]) + exponent * LN2)
    return B, spread, met


@jit
def exponent_steps(
    M, index, d, e, a, n_valid, first, burn_in, longest,
    Q, sums, carry, zero, unsure, period, age, edges, met, history,
):  # fmt: skip
    """As `factor.qr_exponent_steps`, with Q (R, k, n) transposed and orthonormalised adaptively.

    period (R,): steps that the next panel of each replica takes, at most `longest`; 0: Householder
    QR at every step. A panel that does not fit into the block waits: the caller presents the steps
    from age[r] on again, with those that follow. Nothing depends on how steps are cut into blocks.
    """
    R, k, n = Q.shape
    B, work, pivots = np.empty((k, n)), np.empty((k, n)), np.empty(k)
    for r in range(R):
        while age[r] < n_valid[r]:
            t, stop = age[r] - first, burn_in if age[r] < burn_in else n_valid[r]
            p = min(max(period[r], 1), stop - age[r])
            if t + p > index.shape[1]:
                break
            if period[r] == 0:
                age[r] += 1
                push(M[index[r, t]], d[r, t], a[r, t], Q[r], work)
                _keep(work, Q[r])
                period[r] = min(longest, _close(
                    Q[r], e[r, t], age[r] > burn_in, sums[r], carry[r], zero[r], unsure[r],
                    history[r],
                ))  # fmt: skip
                if met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                    _total(sums[r], carry[r], history[r, met[r]])
                    met[r] += 1
                continue
            panel, spread, seen = _several_steps(
                M, index[r], d[r], e[r], a[r], t, p, burn_in, Q[r], B, work, pivots,
                sums[r], carry[r], age[r], edges[r], met[r], history[r],
            )  # fmt: skip
            if not spread <= LIMIT:
                period[r] = p // 2
                continue
            _keep(panel, Q[r])
            age[r], met[r] = age[r] + p, seen
            period[r] = max(1, min(2 * period[r], longest, int(TARGET * p / max(spread, 1e-3))))
            if age[r] == burn_in:
                counted = age[r] > burn_in  # no constant, for which all would be compiled again
                _close(Q[r], e[r, t], counted, sums[r], carry[r], zero[r], unsure[r], history[r])
