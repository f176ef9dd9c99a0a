"""Lyapunov exponents by elimination: what QR at every step gives, for a fraction of its cost.

A panel P = J ... J B of `period` steps is factored as L U with rows interchanged, and B = L goes on
instead of Q. Spans of leading columns are those of QR: with B = Q R' at the end, the R of the whole
product is R' U ... U, so that only where sums are reported a QR of B is due, which is well
conditioned. Errors of one step are those of its rows, whatever their sizes; those of several grow
with the ratio of a row to its pivot. Where it is too large the steps are taken back and fewer are
tried, down to Householder QR at every step (`factor.absorb`), period 0, which knows directions that
are lost. Source: Bauer, Z. Angew. Math. Phys. 8 (1957) 214 (Treppeniteration). The block normal
form is that of `products`; panels are kept in strips (see `tiles`).
"""

import math

import numpy as np

from gradprop._kernels.factor import absorb_strips, workspace
from gradprop._kernels.householder import factorise
from gradprop._kernels.jit import ONE, ZERO, inlined, jit
from gradprop._kernels.products import _accumulate
from gradprop._kernels.striplu import eliminate_panel, space
from gradprop._kernels.stripqr import lengths, pack, push, room
from gradprop._kernels.tiles import ROWS, WIDTH

LN2 = math.log(2.0)
TARGET, LIMIT, NO_LIMIT = 1e2, 1e3, np.inf
"""Longest column over the smallest pivot: what periods aim at, and beyond what several steps are
taken back. One step is as accurate as QR, whatever it is; several steps at 1e4 and 1e5 were off by
up to 1e-11 in ln |det| where QR is by 6e-14, at 1e2 and 1e3 by 1e-14."""
SKEW = 1e3
"""Largest ratio of squares with which lengths of columns are right to a thousand roundings."""

LONGEST_PAUSE = 64
"""Most steps of Householder QR between two attempts at something cheaper."""


@jit
def _keep(A, out):
    """out = A (out[:] = A compiles for seconds)."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j]


@jit
def _keep_panel(P, out):
    for s in range(P.shape[0]):
        _keep(P[s], out[s])


@jit
def _total(sums, carry, row):
    """row <- sums + carry."""
    for i in range(row.size):
        row[i] = sums[i] + carry[i]


@jit
def _add_lengths(P, k, work, exponent, row):
    """row += ln |R_ii| + exponent ln 2 by Householder QR of a panel, unless that leaves range."""
    R, V, T, _ = work
    largest = 0.0
    for s in range(P.shape[0]):
        _keep(P[s], R[s])
        for i in range(P.shape[1]):
            for c in range(WIDTH):
                largest = max(largest, abs(P[s, i, c]))
    if largest < 2.0**400:
        factorise(R, k, V, T)
        for i in range(k):
            row[i] += math.log(abs(R[i // WIDTH, i, i % WIDTH])) + exponent * LN2


@jit
def _close(L, order, work, pivots, row):
    """row += ln |R_ii| of a triangle L = Q R; pivots (k,) is overwritten."""
    if lengths(L, row.size, order, work[0], pivots) <= SKEW:
        for i in range(row.size):
            row[i] += math.log(pivots[i])
    else:
        _add_lengths(L, row.size, work, np.int64(0), row)


@jit
def _record(P, L, order, work, exponent, pivots, row, lu):
    """row += the logarithms that QR of a panel P, times 2**exponent, would add. L: scratch."""
    columns, U, upper, blocks, sizes, alive, chosen = lu
    spread = eliminate_panel(
        P, row.size, NO_LIMIT, L, order, pivots, columns, U, upper, blocks, sizes, alive, chosen
    )
    if not spread < np.inf:
        _add_lengths(P, row.size, work, exponent, row)
        return
    for i in range(row.size):
        row[i] += math.log(pivots[i]) + exponent * LN2
    _close(L, order, work, pivots, row)


@inlined
def _push_steps(
    M, index, d, e, a, t, p, cheap, now, order, triangular, panels, packed, held, scale
):
    """Take the steps t .. t + p - 1 from panel `now`, into panels 2 and 3.

    Returns where the last one stands, the power of two left out, and whether it can be trusted
    where it is to be treated as `cheap`.
    """
    n, exponent, s, safe = packed.shape[1], 0, t, True
    while s < t + p and safe:
        for i in range(n):
            scale[i] = d[s, i]
            # rows farther apart than 2**900: entries of a panel could underflow and grow again
            safe = safe and (scale[i] <= 1.0 or not cheap)
        if held[0] != index[s]:
            pack(M[index[s]], packed)
            held[0] = index[s]
        target, plain = 2 if now != 2 else 3, np.int64(now >= 2)
        push(packed, scale, a[s], order, plain, triangular and not plain, panels, now, target)
        now = target
        exponent += e[s]
        s += 1
    return now, exponent, safe


@inlined
def _next_period(pace, rate, p, spread, target, longest):
    """Choose what comes after p steps with that spread: pace (period, wait, pause, _), rate (1,).

    target: ln of the spread aimed at. `rate` is ln of the spread a step, slow to fall. After a
    single step that was too much come `wait` steps of Householder QR, twice as many each time.
    """
    own = min(spread, 2.0 * target) / p
    if spread < np.inf:
        rate[0] = max(own, 0.5 * (rate[0] + own))
        pace[0] = max(1, min(2 * pace[0], longest, int(target / max(rate[0], 1e-3))))
        pace[2] = max(1, pace[2] // 2)
        return
    rate[0] = max(own, rate[0])
    pace[0] = p // 2
    if p == 1:
        pace[1], pace[2] = pace[2], min(2 * pace[2], LONGEST_PAUSE)


@inlined
def _wait(pace, longest):
    """After a step of Householder QR: try something cheaper when the pause is over."""
    pace[1] -= 1
    if pace[1] <= 0:
        pace[0] = min(1, longest)


@inlined
def _add(pivots, exponent, sums, carry):
    """Add the logarithms of pivots times 2**exponent to the sums."""
    for i in range(sums.size):
        _accumulate(sums, carry, i, math.log(pivots[i]) + exponent * LN2)


@inlined
def _next_stop(age, p, edges, met):
    """How many of p steps to take at once: sums may have to be recorded on the way."""
    return min(p, edges[met] - age) if met < edges.size else p


@inlined
def _advance(
    M, index, d, e, a, first, p, cheap, now, order, triangular, sums, carry, age, edges, met,
    history, panels, packed, held, scale, spare, rows, work, pivots, lu,
):  # fmt: skip
    """Take p steps from panel `now`, as `_push_steps`, and record sums on the way."""
    at, exponent, safe = 0, 0, True
    while at < p and safe:
        more = _next_stop(age + at, p - at, edges, met)
        now, shift, safe = _push_steps(
            M, index, d, e, a, age - first + at, more, cheap, now, order, triangular, panels,
            packed, held, scale,
        )  # fmt: skip
        at, exponent = at + more, exponent + shift
        if safe and at < p:
            _total(sums, carry, history[met])
            _record(panels[now], spare, rows, work, exponent, pivots, history[met], lu)
            met += 1
    return now, exponent, met, safe


@inlined
def _report(sums, carry, closed, recorded, settled, history, met):
    """Record sums, `closed` being what the basis lacks to be orthonormal; or start them with it."""
    for i in range(sums.size):
        if recorded:
            history[met, i] = sums[i] + carry[i] + closed[i]
        if settled:
            sums[i] = -closed[i]


@inlined
def _replica(
    M, index, d, e, a, n_valid, first, burn_in, longest, order, sums, carry, zero, unsure, pace,
    rate, age, edges, met, history, panels, packed, held, scale, spare, work, pivots, lu,
):  # fmt: skip
    """`exponent_steps` for one replica, from panels[0]; returns its age, edges met, and the panel.

    order (2, N): that of the basis, and the plain one; lu is `striplu.space`.
    """
    columns, U, upper, blocks, sizes, alive, chosen = lu
    n, k, base, rows = packed.shape[1], sums.size, ZERO, np.arange(order.shape[1])
    closed, length = np.zeros(k), math.sqrt(n)  # of a column, where its entries are 1
    while age < n_valid:
        stop = burn_in if age < burn_in else n_valid
        cheap, p = pace[0] > 0, min(max(pace[0], 1), stop - age)
        if age - first + p > index.size:
            break
        now, exponent, seen, safe = _advance(
            M, index, d, e, a, first, p, cheap, base, order, pace[3] == 1, sums, carry, age, edges,
            met, history, panels, packed, held, scale, spare, rows, work, pivots, lu,
        )  # fmt: skip
        P, L = panels[now], panels[ONE - base]
        if cheap:
            limit, spread = NO_LIMIT if p == 1 else LIMIT / length, np.inf
            if safe:
                spread = eliminate_panel(
                    P, k, limit, L, rows, pivots, columns, U, upper, blocks, sizes, alive, chosen
                )
            _next_period(pace, rate, p, spread, math.log(TARGET / length), longest)
            if not spread < np.inf:
                continue
            if age + p > burn_in:
                _add(pivots, exponent, sums, carry)
        else:
            absorb_strips(P, n, work, exponent, age >= burn_in, sums, carry, zero, unsure, history)
            _keep_panel(P, L)
            _wait(pace, longest)
        for i in range(rows.size):
            order[0, i] = rows[i] if cheap else i
        base, age, met, pace[3] = ONE - base, age + p, seen, cheap
        recorded = met < edges.size and age == edges[met]
        for i in range(k):
            closed[i] = 0.0
        if cheap and (recorded or age == burn_in):
            _close(L, rows, work, pivots, closed)
        _report(sums, carry, closed, recorded, age == burn_in, history, met)
        met += recorded
    return age, met, base


@jit
def exponent_steps(
    M, index, d, e, a, n_valid, first, burn_in, longest, Q, order, sums, carry, zero, unsure, pace,
    rate, age, edges, met, history,
):  # fmt: skip
    """As `factor.qr_exponent_steps`, with a basis Q (R, S, N, 8) in strips, kept adaptively.

    Q[r] is triangular in the order of rows order[r], where it is at all. pace (R, 4), rate (R, 1):
    see `_next_period`; the first says how many steps the next panel takes, at most `longest`; 0:
    Householder QR; the last, whether Q is triangular. A panel that does not fit into the block
    waits: the caller presents the steps from age[r] on again, with those that follow. Nothing
    depends on how steps are cut into blocks.
    """
    (_, S, N, _), n = Q.shape, M.shape[1]
    size, held, rows = S * N * WIDTH, np.full(1, -1), np.empty((2, N), np.int64)
    panels, spare = room(4 * size).reshape(4, S, N, WIDTH), room(size).reshape(S, N, WIDTH)
    packed, scale = room(N * n).reshape(N // ROWS, n, ROWS), np.zeros(N)
    work, pivots = workspace(S, N), np.zeros(S * WIDTH)
    lu = space(S, N)
    for r in range(Q.shape[0]):
        _keep_panel(Q[r], panels[0])
        for i in range(N):
            rows[0, i], rows[1, i] = order[r, i], i
        age[r], met[r], base = _replica(
            M, index[r], d[r], e[r], a[r], n_valid[r], first, burn_in, longest, rows, sums[r],
            carry[r], zero[r], unsure[r], pace[r], rate[r], age[r], edges[r], met[r], history[r],
            panels, packed, held, scale, spare, work, pivots, lu,
        )  # fmt: skip
        for i in range(N):
            order[r, i] = rows[0, i]
        _keep_panel(panels[base], Q[r])
