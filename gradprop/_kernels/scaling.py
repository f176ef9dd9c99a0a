"""Smooth bounds of the norm of e^x W e^-x, and the diagonal x that balances a matrix."""

import math

import numpy as np

from gradprop._kernels.copying import copy_matrix
from gradprop._kernels.jit import jit


@jit
def soft_maximum(x, sign, sharpness, share):
    """A smooth upper bound of max(sign x): ln sum exp(sharpness sign x) / sharpness.

    Its derivatives by sign x are written to `share` (n,); it exceeds the maximum by at most
    ln n / sharpness.
    """
    top = -np.inf
    for i in range(len(x)):
        top = max(top, sign * x[i])
    total = 0.0
    for i in range(len(x)):
        share[i] = math.exp(sharpness * (sign * x[i] - top))
        total += share[i]
    for i in range(len(x)):
        share[i] /= total
    return top + math.log(total) / sharpness


@jit
def log_schatten_norm(W, x, doublings, work, gradient):
    """Ln of the Schatten norm 2p of A = e^x W e^-x, p = 2**doublings + 1; gradient (n,) by x.

    It exceeds ln ||A||_2 by at most ln n / (2p). With G = A^T A: (1/2p) ln tr G^p, and its
    derivative is (diag A G^(p-1) A^T - diag G^p) / tr G^p. work (4, n, n) is overwritten.
    2 n^3 (doublings + 2) flops.
    """
    n = len(x)
    A, G, H, K = work[0], work[1], work[2], work[3]
    top = 0.0
    for i in range(n):
        for j in range(n):
            A[i, j] = W[i, j] * math.exp(x[i] - x[j])
            top = max(top, abs(A[i, j]))
    for i in range(n):
        for j in range(n):
            A[i, j] /= top
    np.dot(A.T, A, G)
    copy_matrix(G, H)
    log_scale = 0.0  # G^(p-1) = exp(log_scale) H
    for _ in range(doublings):
        trace = 0.0
        for i in range(n):
            trace += H[i, i]
        H /= trace
        np.dot(H, H, K)
        H, K = K, H
        log_scale = 2.0 * (log_scale + math.log(trace))
    np.dot(A, H, K)
    trace = 0.0
    for i in range(n):
        left, right = 0.0, 0.0
        for j in range(n):
            left += K[i, j] * A[i, j]
            right += H[i, j] * G[i, j]
        gradient[i] = left - right
        trace += right
    gradient /= trace
    return math.log(top) + (math.log(trace) + log_scale) / (2.0 * (2**doublings + 1))


@jit
def certificate_above(W, x, doublings, weight, log_gain, log_keep, work, gradient):
    """Smooth upper bound of weight range(x) + ln(exp(log_keep) + exp(log_gain) ||e^x W e^-x||_2).

    gradient (n,) receives its derivatives by x. Convex in x. work (4, n, n) is overwritten.
    """
    n = len(x)
    # both smooth parts then exceed what they stand for by the same amount
    sharpness = max(4.0 * 2**doublings * weight, 0.5)
    value = log_gain + log_schatten_norm(W, x, doublings, work, gradient)
    total = value
    if log_keep > -np.inf:
        high = max(value, log_keep)
        total = high + math.log(math.exp(value - high) + math.exp(log_keep - high))
    gradient *= math.exp(value - total)
    share = work[0, 0]
    for sign in (1.0, -1.0):
        total += weight * soft_maximum(x, sign, sharpness, share)
        for i in range(n):
            gradient[i] += weight * sign * share[i]
    return total


@jit
def balance(W, limit, sweeps, x):
    """Osborne's balancing: row and column of each unit get equal norms under e^x W e^-x.

    x (n,) is overwritten (start at 0), |x| <= limit. 10 n^2 flops a sweep, at most `sweeps`.
    """
    n = len(x)
    for _ in range(sweeps):
        moved = 0.0
        for i in range(n):
            row, column = 0.0, 0.0
            for j in range(n):
                if j != i:
                    row += (W[i, j] * math.exp(x[i] - x[j])) ** 2
                    column += (W[j, i] * math.exp(x[j] - x[i])) ** 2
            if row == 0.0 and column == 0.0:
                continue
            if row == 0.0:
                step = limit
            elif column == 0.0:
                step = -limit
            else:
                step = 0.25 * math.log(column / row)
            new = min(max(x[i] + step, -limit), limit)
            moved = max(moved, abs(new - x[i]))
            x[i] = new
        if moved < 1e-2:
            break
