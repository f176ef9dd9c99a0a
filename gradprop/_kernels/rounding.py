"""Plain products in one float format, one rounding at a time, and the events they run into.

Every product and every sum is one operation of the accumulator's dtype, followed by `settle`; sums
run over j ascending. Nothing is fused: a product is rounded before it is added. Formats below
float64 that the processor does not have are carried in float64. Steps come in the normal form of
`products`: J = 2**e (a I + diag(d) M), which is formed in float64 and rounded once to the format.

Events are first lags, counted from 1, with 0 for never.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.settle import settle

EPS, SUBNORMAL_ANY, SUBNORMAL_ALL, ZERO, OVERFLOW, NAN = range(6)
N_EVENTS = 6

# Verdicts by bounds need more room than the roundings of those bounds, n^2 eps at most.
CLEAR = 2.0**-30
PROBE_STEPS = 4


class Levels(NamedTuple):
    """Magnitudes at which events happen, in the dtype of the product.

    `tiny`: below it numbers are subnormal (or 0); `ceiling`: where the format overflows, inf or the
    largest number of a format without infinities. `inner_tiny` is `tiny` of the accumulator, (1,)
    in its dtype.
    """

    tiny: Any
    ceiling: Any
    inner_tiny: Any


@jit
def flushes(tiny):
    """Whether this thread's processor turns half of the smallest normal number into zero."""
    return not tiny * type(tiny)(0.5) > type(tiny)(0)


@jit
def round_step(M, d, e, a, A, outer):
    """A = 2**e (a I + diag(d) M), formed in float64, rounded once to the format; n^2 operations.

    Returns whether all its entries are finite there.
    """
    n = A.shape[0]
    largest = A.dtype.type(0)
    usual = -1000 < e < 1000
    scale = math.ldexp(1.0, int(e) if usual else 0)
    for i in range(n):
        for j in range(n):
            A[i, j] = settle(A.dtype.type(d[i] * M[i, j] * scale), outer)
        if a != 0.0:
            A[i, i] = settle(A.dtype.type((d[i] * M[i, i] + a) * scale), outer)
        if not usual:
            for j in range(n):
                # the product of a float64 and a power of two beyond its range, rounded once
                value = d[i] * M[i, j] + (a if i == j else 0.0)
                A[i, j] = settle(A.dtype.type(math.ldexp(value, int(e))), outer)
        for j in range(n):
            largest = max(largest, abs(A[i, j]))
    return largest < np.inf


@jit
def multiply(A, P, out, total, inner, outer):
    """out = A P for A (m, n), P (n, p); total (p,) is the accumulator. 2 m n p operations."""
    n, p = P.shape
    zero = total.dtype.type(0)
    for i in range(A.shape[0]):
        for c in range(p):
            total[c] = zero
        for j in range(n):
            factor = total.dtype.type(A[i, j])
            for c in range(p):
                term = settle(factor * total.dtype.type(P[j, c]), inner)
                total[c] = settle(total[c] + term, inner)
        for c in range(p):
            out[i, c] = settle(out.dtype.type(total[c]), outer)


@jit
def pull_back(A, v, out, total, inner, outer):
    """out = A^T v for A (m, n), v (m, 1); total (n,) is the accumulator. 2 m n operations."""
    m, n = A.shape
    zero = total.dtype.type(0)
    for c in range(n):
        total[c] = zero
    for j in range(m):
        factor = total.dtype.type(v[j, 0])
        for c in range(n):
            term = settle(factor * total.dtype.type(A[j, c]), inner)
            total[c] = settle(total[c] + term, inner)
    for c in range(n):
        out[c, 0] = settle(out.dtype.type(total[c]), outer)


@jit
def same_bits(A, B):
    """Whether two finite arrays agree bit for bit: zeros in their sign, too."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            x, y = A[i, j], B[i, j]
            if x != y or (x == 0 and math.copysign(1.0, x) != math.copysign(1.0, y)):
                return False
    return True


@jit
def note(events, event, age, happened):
    """Record the age at which an event happens for the first time."""
    if happened and events[event] == 0:
        events[event] = age


@jit
def scan(P, levels, age, events):
    """Record the events that entries show; returns (largest magnitude, all finite, all nan)."""
    tiny = levels.tiny
    largest = P.dtype.type(0)
    n_small, n_over, n_inf, n_nan = 0, 0, 0, 0
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            x = abs(P[i, j])
            largest = max(largest, x)
            n_small += (x > 0) & (x < tiny)
            n_over += x >= levels.ceiling
            n_inf += x == np.inf
            n_nan += x != x
    finite = n_inf + n_nan == 0
    note(events, SUBNORMAL_ANY, age, n_small > 0)
    note(events, SUBNORMAL_ALL, age, finite and largest > 0 and largest < tiny)
    note(events, ZERO, age, finite and largest == 0)
    note(events, OVERFLOW, age, n_over > 0)
    note(events, NAN, age, n_nan > 0)
    return np.float64(largest), finite, n_nan == P.size


@jit
def spectral_norm_below(P, largest, limit, probe):
    """Whether the float64 2-norm of a finite P (n, p), entries at most `largest`, is below `limit`.

    The singular values decide; they are computed only where cheap bounds on the norm do not: the
    Frobenius norm F, F / sqrt(min(n, p)), and ||P v|| for the vector `probe` (p,), which is carried
    from step to step and converges to the leading right singular vector. n p operations, and 20 n^3
    in the few steps around the crossing.
    """
    if largest == 0.0:
        return limit > 0.0
    n, p = P.shape
    A = P.astype(np.float64) / largest
    bound = limit / largest
    frobenius = 0.0
    for i in range(n):
        for j in range(p):
            frobenius += A[i, j] * A[i, j]
    frobenius = math.sqrt(frobenius)
    if p == 1:
        return frobenius < bound
    if frobenius * (1.0 + CLEAR) < bound:
        return True
    if frobenius * (1.0 - CLEAR) >= bound * math.sqrt(min(n, p)):
        return False
    for _ in range(PROBE_STEPS):
        image = np.dot(A, probe)
        if math.sqrt(np.dot(image, image)) * (1.0 - CLEAR) >= bound:
            return False
        back = np.dot(A.T, image)
        size = math.sqrt(np.dot(back, back))
        if size == 0.0:
            break
        probe[:] = back / size
    return np.linalg.svd(A, False)[1][0] < bound


@jit
def event_steps(
    M, index, d, e, a, n_valid, first, transpose, inner, outer, levels, limit, P, probe,
    age, events, same, flushed,
):  # fmt: skip
    """P <- J P (or J^T P backwards, P one column) through a block, in the dtype of P; notes events.

    P (R, n, p), probe (R, p) and age (R,) are carried on; limit (R,) is that of the norm. Events go
    to events (R, 6), same[r, age] says that P did not change in any bit, flushed[r] that the
    processor flushes. Cost 2 n^2 p a step and replica; nothing where P is all zero or all nan.
    """
    R, n, p = P.shape
    m = index.shape[1]
    A = np.empty((n, n), P.dtype)
    out = np.empty((n, p), P.dtype)
    total = np.empty(n if transpose else p, levels.inner_tiny.dtype)
    for r in range(R):
        flushed[r] = flushed[r] or flushes(levels.tiny) or flushes(levels.inner_tiny[0])
        largest, finite, lost = scan(P[r], levels, 0, events[r])
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            age[r] += 1
            usual = round_step(M[index[r, t]], d[r, t], e[r, t], a[r, t], A, outer)
            if lost or (usual and largest == 0.0 and finite):
                note(events[r], ZERO, age[r], not lost)
                continue
            if transpose:
                pull_back(A, P[r], out, total, inner, outer)
            else:
                multiply(A, P[r], out, total, inner, outer)
            largest, finite, lost = scan(out, levels, age[r], events[r])
            if finite and events[r, EPS] == 0:
                below = spectral_norm_below(out, largest, limit[r], probe[r])
                note(events[r], EPS, age[r], below)
            same[r, age[r]] = finite and largest > 0.0 and same_bits(out, P[r])
            P[r] = out


@jit
def diagonal_event_steps(
    factors, n_valid, first, transpose, as_vector, inner, outer, levels, limit, P,
    age, events, same, flushed,
):  # fmt: skip
    """As `event_steps` for diagonal Jacobians: factors (R, m, n), P (R, n, 1) their product.

    The norm is that of the vector P, or that of the matrix diag(P): its largest entry.
    """
    R, m, n = factors.shape
    out = np.empty((n, 1), P.dtype)
    probe, wide = np.ones(1), levels.inner_tiny
    for r in range(R):
        flushed[r] = flushed[r] or flushes(levels.tiny) or flushes(levels.inner_tiny[0])
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            age[r] += 1
            for i in range(n):
                factor = settle(P.dtype.type(factors[r, t, i]), outer)
                term = settle(wide.dtype.type(factor) * wide.dtype.type(P[r, i, 0]), inner)
                out[i, 0] = settle(P.dtype.type(term), outer)
            largest, finite, _ = scan(out, levels, age[r], events[r])
            if finite and events[r, EPS] == 0:
                below = largest < limit[r]
                if as_vector:
                    below = spectral_norm_below(out, largest, limit[r], probe)
                note(events[r], EPS, age[r], below)
            same[r, age[r]] = finite and largest > 0.0 and same_bits(out, P[r])
            P[r] = out
