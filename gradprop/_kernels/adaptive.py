"""Lyapunov exponents with few orthonormalisations: several steps at once while that is safe.

A panel B = J ... J Q of `period` steps is orthonormalised by blocks of columns, cheaply, as long as
it is well conditioned; otherwise the steps are taken back and fewer are tried, down to Householder
QR at every step (`factor.absorb`), period 0. The Q of the cheap way is orthonormal only to about
eps spread^2, but B = Q R holds to rounding: what Q lacks at one step is repaid by R at the next,
and a Householder QR aside settles the last one wherever sums are reported. The block normal form is
that of `products`; panels are kept in strips (see `tiles`).
"""

import math

import numpy as np

from gradprop._kernels.factor import absorb_strips, workspace
from gradprop._kernels.householder import factorise
from gradprop._kernels.jit import jit
from gradprop._kernels.products import _accumulate
from gradprop._kernels.stripqr import (
    defect,
    orthonormalise,
    pack,
    push,
)
from gradprop._kernels.tiles import ROWS, WIDTH

LN2 = math.log(2.0)
TARGET = math.log(1e4)
"""Log of the spread that periods aim at, and LIMIT, beyond which steps are taken back."""
LIMIT = math.log(1e5)

NEAR = 1e-5
"""Largest defect of Q: beyond it columns are less independent than their spread tells."""

LONGEST_PAUSE = 64
"""Most steps of Householder QR between two attempts at something cheaper."""


@jit
def _keep(A, out):
    """out = A (out[:] = A compiles for seconds)."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j]


@jit
def _spread(R, k):
    """Ln of the longest column of R, in strips, over the smallest pivot; inf where one is zero."""
    longest, smallest, own = 0.0, np.inf, np.empty(WIDTH)
    for s in range(R.shape[0]):
        first, last = s * WIDTH, min((s + 1) * WIDTH, k)
        own[:] = 0.0
        for i in range(first):
            for c in range(WIDTH):
                own[c] += R[s, i, c] * R[s, i, c]
        for j in range(first, last):
            for i in range(first, j + 1):
                own[j - first] += R[s, i, j - first] ** 2
            longest = max(longest, own[j - first])
            smallest = min(smallest, abs(R[s, j, j - first]))
    return 0.5 * math.log(longest) - math.log(smallest) if smallest > 0.0 else np.inf


@jit
def _total(sums, carry, row):
    """row <- sums + carry."""
    for i in range(row.size):
        row[i] = sums[i] + carry[i]


@jit
def _record(P, work, exponent, sums, carry, row):
    """row <- the sums once the panel P, times 2**exponent, will have been orthonormalised."""
    R, V, T, _ = work
    k, largest = row.size, 0.0
    for s in range(P.shape[0]):
        _keep(P[s], R[s])
        for i in range(P.shape[1]):
            for c in range(WIDTH):
                largest = max(largest, abs(P[s, i, c]))
    if largest < 2.0**400:
        factorise(R, k, V, T)
        for i in range(k):
            pivot = abs(R[i // WIDTH, i, i % WIDTH])
            row[i] = sums[i] + carry[i] + math.log(pivot) + exponent * LN2


@jit
def _within_one(d):
    """Whether every entry is at most 1 (and none nan)."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if not entry <= 1.0:
            return False
    return True


@jit
def _push_steps(
    M, index, d, e, a, t, p, cheap, Q, scratch, work, sums, carry, age, edges, met, history
):
    """Take the steps t .. t + p - 1 from Q to the first of the scratch panels; record on the way.

    Returns the power of two left out, `met`, and whether a cheap panel can be trusted.
    """
    panels, packed, held, scale = scratch
    n, exponent, now, before = d.shape[1], 0, (p - 1) % 2, Q
    for s in range(t, t + p):
        if cheap and not _within_one(d[s]):
            # rows farther apart than 2**900: entries of a panel could underflow and grow again
            return 0, met, False
        if held[0] != index[s]:
            pack(M[index[s]], packed)
            held[0] = index[s]
        for i in range(n):
            scale[i] = d[s, i]
        push(packed, scale, a[s], before, panels[now])
        before = panels[now]
        now = 1 - now
        exponent += e[s]
        if cheap and met < edges.size and age + (s - t) + 1 == edges[met]:
            _record(before, work, exponent, sums, carry, history[met])
            met += 1
    return exponent, met, True


@jit
def _next_period(pace, rate, p, spread, longest):
    """Choose what comes after p steps with that spread: pace (period, wait, pause), rate (1,).

    `rate` is ln of the spread a step, slow to fall. After a single step that was too much come
    `wait` steps of Householder QR, twice as many each time.
    """
    own = min(spread, 2.0 * LIMIT) / p
    if spread <= LIMIT:
        rate[0] = max(own, 0.5 * (rate[0] + own))
        pace[0] = max(1, min(2 * pace[0], longest, int(TARGET / max(rate[0], 1e-3))))
        pace[2] = max(1, pace[2] // 2)
        return
    rate[0] = max(own, rate[0])
    pace[0] = p // 2
    if p == 1:
        pace[1], pace[2] = pace[2], min(2 * pace[2], LONGEST_PAUSE)


@jit
def _add(pivots, exponent, sums, carry):
    """Add the logarithms of pivots times 2**exponent to the sums."""
    for i in range(pivots.size):
        _accumulate(sums, carry, i, math.log(pivots[i]) + exponent * LN2)


@jit
def _settle(P, work, sums, carry, pivots):
    """Start the sums, empty so far, with what P lacks to be orthonormal, which R repays later."""
    _record(P, work, np.int64(0), sums, carry, pivots)
    for i in range(pivots.size):
        sums[i] = -pivots[i]


@jit
def exponent_steps(
    M, index, d, e, a, n_valid, first, burn_in, longest,
    Q, sums, carry, zero, unsure, pace, rate, age, edges, met, history,
):  # fmt: skip
    """As `factor.qr_exponent_steps`, with Q (R, S, N, 8) in strips, orthonormalised adaptively.

    pace (R, 3), rate (R, 1): see `_next_period`; the first says how many steps the next panel
    takes, at most `longest`; 0: Householder QR. A panel that does not fit into the block waits: the
    caller presents the steps from age[r] on again, with those that follow. Nothing depends on how
    steps are cut into blocks.
    """
    (_, S, N, _), n, k = Q.shape, M.shape[1], sums.shape[1]
    panels, held, pivots = np.zeros((2, S, N, WIDTH)), np.full(1, -1), np.zeros(k)
    scratch = panels, np.zeros((N // ROWS, n, ROWS)), held, np.zeros(N)
    work, inside = workspace(S, N), np.zeros((S * WIDTH, WIDTH))
    for r in range(Q.shape[0]):
        while age[r] < n_valid[r]:
            t, stop = age[r] - first, burn_in if age[r] < burn_in else n_valid[r]
            cheap, p = pace[r, 0] > 0, min(max(pace[r, 0], 1), stop - age[r])
            if t + p > index.shape[1]:
                break
            exponent, seen, safe = _push_steps(
                M, index[r], d[r], e[r], a[r], t, p, cheap, Q[r], scratch, work, sums[r], carry[r],
                age[r], edges[r], met[r], history[r],
            )  # fmt: skip
            if cheap:
                spread = orthonormalise(panels[0], k, inside, pivots) if safe else np.inf
                if spread <= LIMIT and not defect(panels[0], k) <= NEAR:
                    spread = np.inf
                _next_period(pace[r], rate[r], p, spread, longest)
                if not spread <= LIMIT:
                    continue
                if age[r] + p > burn_in:
                    _add(pivots, exponent, sums[r], carry[r])
                elif age[r] + p == burn_in:
                    _settle(panels[0], work, sums[r], carry[r], pivots)
            else:
                counted = age[r] >= burn_in
                absorb_strips(
                    panels[0], n, work, exponent, counted, sums[r], carry[r], zero[r], unsure[r],
                    history[r],
                )  # fmt: skip
                pace[r, 1] -= 1
                if pace[r, 1] <= 0 and _spread(work[0], k) <= TARGET:
                    pace[r, 0] = min(1, longest)
            for s in range(S):
                _keep(panels[0, s], Q[r, s])
            age[r], met[r] = age[r] + p, seen
            if not cheap and met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                _total(sums[r], carry[r], history[r, met[r]])
                met[r] += 1
