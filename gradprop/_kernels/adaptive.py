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

from gradprop._kernels.factor import absorb
from gradprop._kernels.householder import factorise
from gradprop._kernels.jit import jit
from gradprop._kernels.products import _accumulate
from gradprop._kernels.stripqr import (
    defect,
    from_strips,
    orthonormalise,
    pack,
    push,
    to_strips,
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
def _close(P, B, shift, counted, sums, carry, zero, unsure, history):
    """`factor.absorb` of a panel in strips, by way of B (n, k); returns ln of the spread."""
    from_strips(P, B)
    upper = absorb(B, shift, counted, sums, carry, zero, unsure, history)
    to_strips(B, P)
    return _spread(upper)


@jit
def _total(sums, carry, row):
    """row <- sums + carry."""
    for i in range(row.size):
        row[i] = sums[i] + carry[i]


@jit
def _record(P, panels, T, exponent, sums, carry, row):
    """row <- the sums once the panel P, times 2**exponent, will have been orthonormalised."""
    k, aside, largest = row.size, panels[2], 0.0
    for s in range(P.shape[0]):
        _keep(P[s], aside[s])
        for entry in aside[s].flat:
            largest = max(largest, abs(entry))
    if largest < 2.0**400:
        factorise(aside, k, panels[3], T)
        for i in range(k):
            pivot = abs(aside[i // WIDTH, i, i % WIDTH])
            row[i] = sums[i] + carry[i] + math.log(pivot) + exponent * LN2


@jit
def _within_one(d):
    """Whether every entry is at most 1 (and none nan)."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if not entry <= 1.0:
            return False
    return True


@jit
def _take(packed, scale, d, a, P, out):
    """`stripqr.push` with the row scales d (n,) of one step; `scale` is scratch, zero behind n."""
    for i in range(d.size):
        scale[i] = d[i]
    push(packed, scale, a, P, out)


@jit
def _several_steps(
    M, index, d, e, a, t, p, burn_in, Q, scratch, sums, carry, age, edges, met, history
):
    """Take the steps t .. t + p - 1 from Q to the next one, which is in the first of the scratch.

    Returns ln of the spread and `met`. Only where that spread is within LIMIT is anything added to
    the sums.
    """
    panels, packed, held, scale, inside, T, pivots = scratch
    exponent, k, before, seen = 0, pivots.size, Q, met
    now = (p - 1) % 2
    for s in range(t, t + p):
        if not _within_one(d[s]):
            # rows farther apart than 2**900: entries of a panel could underflow and grow again
            return np.inf, met
        _hold(M, index[s], packed, held)
        _take(packed, scale, d[s], a[s], before, panels[now])
        before = panels[now]
        now = 1 - now
        exponent += e[s]
        age += 1
        if seen < edges.size and age == edges[seen]:
            _record(before, panels, T, exponent, sums, carry, history[seen])
            seen += 1
    spread = orthonormalise(before, k, inside, pivots)
    if not spread <= LIMIT:
        return spread, met
    if not defect(before, k) <= NEAR:
        return np.inf, met
    if age > burn_in:
        for i in range(k):
            _accumulate(sums, carry, i, math.log(pivots[i]) + exponent * LN2)
    return spread, seen


@jit
def _hold(M, which, packed, held):
    """Pack M[which] unless it is."""
    if held[0] != which:
        pack(M[which], packed)
        held[0] = which


@jit
def _scratch(S, N, n, k):
    """Four panels, a packed matrix and which it is, row scales, and what a panel leaves behind."""
    held = np.empty(1, np.int64)
    held[0] = -1
    return (
        np.zeros((4, S, N, WIDTH)), np.zeros((N // ROWS, n, ROWS)), held, np.zeros(N),
        np.zeros((S * WIDTH, WIDTH)), np.zeros((S, WIDTH, WIDTH)), np.zeros(k),
    )  # fmt: skip


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
def _householder_step(
    M, which, d, e, a, counted, Q, B, scratch, sums, carry, zero, unsure, history, pace, longest
):
    """One step to the next Q by Householder QR; allows a panel of one step when that seems safe."""
    panels, packed, held, scale = scratch[0], scratch[1], scratch[2], scratch[3]
    _hold(M, which, packed, held)
    _take(packed, scale, d, a, Q, panels[0])
    spread = _close(panels[0], B, e, counted, sums, carry, zero, unsure, history)
    for s in range(Q.shape[0]):
        _keep(panels[0, s], Q[s])
    pace[1] -= 1
    if pace[1] <= 0 and spread <= TARGET:
        pace[0] = min(1, longest)


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
    n, k = M.shape[1], sums.shape[1]
    scratch, B = _scratch(Q.shape[1], Q.shape[2], n, k), np.empty((n, k))
    for r in range(Q.shape[0]):
        while age[r] < n_valid[r]:
            t, stop = age[r] - first, burn_in if age[r] < burn_in else n_valid[r]
            p = min(max(pace[r, 0], 1), stop - age[r])
            if t + p > index.shape[1]:
                break
            if pace[r, 0] == 0:
                age[r] += 1
                _householder_step(
                    M, index[r, t], d[r, t], e[r, t], a[r, t], age[r] > burn_in, Q[r], B, scratch,
                    sums[r], carry[r], zero[r], unsure[r], history[r], pace[r], longest,
                )  # fmt: skip
                if met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                    _total(sums[r], carry[r], history[r, met[r]])
                    met[r] += 1
                continue
            spread, seen = _several_steps(
                M, index[r], d[r], e[r], a[r], t, p, burn_in, Q[r], scratch,
                sums[r], carry[r], age[r], edges[r], met[r], history[r],
            )  # fmt: skip
            _next_period(pace[r], rate[r], p, spread, longest)
            if not spread <= LIMIT:
                continue
            for s in range(Q.shape[1]):
                _keep(scratch[0][0, s], Q[r, s])
            age[r], met[r] = age[r] + p, seen
            if age[r] == burn_in:
                counted = age[r] > burn_in  # no constant, for which all would be compiled again
                _close(Q[r], B, e[r, t], counted, sums[r], carry[r], zero[r], unsure[r], history[r])
