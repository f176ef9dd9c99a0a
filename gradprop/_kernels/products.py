"""Long products of step Jacobians that never over- or underflow.

A block of steps comes in one normal form: the Jacobian of replica r at step t is

    J = 2**e[r, t] * (a[r, t] I + diag(d[r, t]) M[index[r, t]]),

every row of M with largest magnitude in [1/2, 1) or 0. Running products are kept as mantissas of
that size beside an int64 power of two. Steps run forwards, or (`transpose`) backwards through the
block with J^T, which turns the lag of the last step into the first. `age[r]` counts the factors
that replica r has absorbed; `column[lag]` says where a lag's value is recorded, -1 for nowhere.
"""

import math

import numpy as np

from gradprop._kernels.copying import copy_matrix, copy_row
from gradprop._kernels.jit import jit

LN2 = math.log(2.0)
FAINT = 2.0**-900
"""Entries of a product are not told apart below this size, relative to the largest."""


@jit
def times(M, d, a, V, out):
    """out = (a I + diag(d) M) V, for V (n, p). 2 n^2 p flops."""
    np.dot(M, V, out)
    n, p = V.shape
    for i in range(n):
        for j in range(p):
            out[i, j] = d[i] * out[i, j] + a * V[i, j]


@jit
def transposed_times(M, d, a, V, out, work):
    """out = (a I + M^T diag(d)) V, for V (n, p). 2 n^2 p flops."""
    n, p = V.shape
    for i in range(n):
        for j in range(p):
            work[i, j] = d[i] * V[i, j]
    np.dot(M.T, work, out)
    if a != 0.0:
        for i in range(n):
            for j in range(p):
                out[i, j] += a * V[i, j]


@jit
def _unit(A):
    """Exponent of the largest magnitude of A (0 if A is zero), and two factors that take it out.

    Two, since one alone overflows where that magnitude is subnormal.
    """
    largest = 0.0
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            largest = max(largest, abs(A[i, j]))
    _, e = math.frexp(largest)
    half = -e // 2
    return e, math.ldexp(1.0, half), math.ldexp(1.0, -e - half)


@jit
def renormalise(A):
    """Scale A by the power of two that brings its largest magnitude into [1/2, 1).

    Returns that exponent (0 for a zero matrix).
    """
    e, first, second = _unit(A)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] = A[i, j] * first * second
    return e


@jit
def renormalise_visibly(A):
    """`renormalise`, with tiny nonzero entries raised to FAINT: what is lost never looks like 0."""
    e, first, second = _unit(A)
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            scaled = A[i, j] * first * second
            if A[i, j] != 0.0 and abs(scaled) < FAINT:
                scaled = math.copysign(FAINT, A[i, j])
            A[i, j] = scaled
    return e


@jit
def product_steps(
    M,
    index,
    d,
    e,
    a,
    n_valid,
    first,
    transpose,
    P,
    exponent,
    age,
    column,
    offset,
    kept,
    kept_exponent,
):
    """P <- J P (or J^T P backwards) through a block; keeps P at the lags that `column` names.

    P (R, n, p) and exponent (R,) are carried on; kept (R, C, n, p) and kept_exponent (R, C) receive
    copies at column - offset. Cost 2 n^2 p a step and replica.
    """
    R, n, p = P.shape
    m = index.shape[1]
    out = np.empty((n, p))
    work = np.empty((n, p))
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            if transpose:
                transposed_times(M[index[r, t]], d[r, t], a[r, t], P[r], out, work)
            else:
                times(M[index[r, t]], d[r, t], a[r, t], P[r], out)
            exponent[r] += e[r, t] + renormalise_visibly(out)
            copy_matrix(out, P[r])
            age[r] += 1
            c = column[age[r]] - offset
            if c >= 0:
                copy_matrix(out, kept[r, c])
                kept_exponent[r, c] = exponent[r]


@jit
def vector_steps(M, index, d, e, a, n_valid, first, transpose, v, exponent, age, column, log_norm):
    """v <- J v (or J^T v backwards) through a block; records ln ||v||_2 at the lags of `column`.

    v (R, n) and exponent (R,) are carried on, log_norm (R, L). Cost 2 n^2 a step and replica.
    """
    R, n = v.shape
    m = index.shape[1]
    out = np.empty((n, 1))
    work = np.empty((n, 1))
    current = np.empty((n, 1))
    for r in range(R):
        copy_row(v[r], current[:, 0])
        for s in range(m):
            t = m - 1 - s if transpose else s
            if first + t >= n_valid[r]:
                continue
            if transpose:
                transposed_times(M[index[r, t]], d[r, t], a[r, t], current, out, work)
            else:
                times(M[index[r, t]], d[r, t], a[r, t], current, out)
            exponent[r] += e[r, t] + renormalise(out)
            copy_matrix(out, current)
            age[r] += 1
            if column[age[r]] >= 0:
                square = 0.0
                for i in range(n):
                    square += out[i, 0] * out[i, 0]
                log_norm[r, column[age[r]]] = 0.5 * math.log(square) + exponent[r] * LN2
        copy_row(current[:, 0], v[r])


@jit
def _accumulate(sums, carry, i, value):
    """Neumaier's compensated sum: sums[i] + carry[i] is the total."""
    total = sums[i] + value
    if abs(sums[i]) >= abs(value):
        carry[i] += (sums[i] - total) + value
    else:
        carry[i] += (value - total) + sums[i]
    sums[i] = total


@jit
def leading_exponent_steps(
    M, index, d, e, a, n_valid, first, burn_in, v, sums, carry, zero, age, edges, met, history
):
    """One tangent vector, normalised at every step: sums its log growth after `burn_in` steps.

    v (R, n); sums, carry, zero (R, 1); history (R, H, 1) receives the sum at the ages `edges`
    (R, H), of which met[r] have been passed.
    """
    R, n = v.shape
    m = index.shape[1]
    out = np.empty((n, 1))
    current = np.empty((n, 1))
    for r in range(R):
        copy_row(v[r], current[:, 0])
        for t in range(m):
            if first + t >= n_valid[r]:
                continue
            times(M[index[r, t]], d[r, t], a[r, t], current, out)
            shift = renormalise(out)
            square = 0.0
            for i in range(n):
                square += out[i, 0] * out[i, 0]
            age[r] += 1
            if square == 0.0:
                # the direction is lost exactly; its exponent is -inf whatever follows
                zero[r, 0] = 1
            else:
                norm = math.sqrt(square)
                for i in range(n):
                    current[i, 0] = out[i, 0] / norm
                if age[r] > burn_in:
                    _accumulate(sums[r], carry[r], 0, math.log(norm) + (e[r, t] + shift) * LN2)
            if met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                history[r, met[r], 0] = sums[r, 0] + carry[r, 0]
                met[r] += 1
        copy_row(current[:, 0], v[r])


@jit
def log_sum_steps(
    steps, slack, n_valid, first, reverse, sums, carry, magnitude, age, column, logs, magnitudes
):
    """Compensated sums of ln |a| per unit of diagonal chains, recorded at the lags of `column`.

    steps (R, m, n); sums, carry, magnitude (R, n); logs, magnitudes (R, L, n). The magnitude grows
    by |ln a| + slack. An exact zero makes its sum -inf for good and leaves the other two alone.
    """
    R, m, n = steps.shape
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if reverse else s
            if first + t >= n_valid[r]:
                continue
            for i in range(n):
                value = steps[r, t, i]
                if math.isfinite(value) and math.isfinite(sums[r, i]):
                    _accumulate(sums[r], carry[r], i, value)
                    magnitude[r, i] += abs(value) + slack
                else:
                    sums[r, i] = -np.inf
            age[r] += 1
            c = column[age[r]]
            if c >= 0:
                for i in range(n):
                    logs[r, c, i] = sums[r, i] + carry[r, i]
                    magnitudes[r, c, i] = magnitude[r, i]


@jit
def diagonal_vector_steps(factors, n_valid, first, reverse, v, exponent, age, column, log_norm):
    """`vector_steps` for diagonal chains: factors (R, m, n) and v (R, n), both real or complex."""
    R, m, n = factors.shape
    for r in range(R):
        for s in range(m):
            t = m - 1 - s if reverse else s
            if first + t >= n_valid[r]:
                continue
            top = 0.0
            for i in range(n):
                top = max(top, abs(factors[r, t, i]))
            # factors first, since a subnormal one times v would lose its last bits
            before = math.frexp(top)[1]
            near, far = math.ldexp(1.0, -before // 2), math.ldexp(1.0, -before - (-before // 2))
            largest = 0.0
            for i in range(n):
                v[r, i] *= factors[r, t, i] * near * far
                largest = max(largest, abs(v[r, i]))
            e = math.frexp(largest)[1]
            near, far = math.ldexp(1.0, -e // 2), math.ldexp(1.0, -e - (-e // 2))
            square = 0.0
            for i in range(n):
                v[r, i] = v[r, i] * near * far
                square += abs(v[r, i]) ** 2
            exponent[r] += before + e
            age[r] += 1
            if column[age[r]] >= 0:
                log_norm[r, column[age[r]]] = 0.5 * math.log(square) + exponent[r] * LN2
