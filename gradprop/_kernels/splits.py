"""The best way to cut a product into blocks whose norms are known."""

import math

from gradprop._kernels.jit import jit


@jit
def cheapest_splits(logs, n_valid, first, high, low, final, out):
    """out[r, t] = the least sum of log norms over all cuts of the steps 1 .. first + t + 1.

    logs (R, K, m): logs[r, k, t] is that of the last 2**k steps up to there, inf where unknown.
    high, low (R, 2**(K-1) + 1) carry the sums (two floats each) of the latest lags, at lag modulo
    their number; lag 0 has 0. final (R,) receives the sum of the last valid lag so far. 10 K
    operations a step.
    """
    R, K, m = logs.shape
    size = high.shape[1]
    for r in range(R):
        for t in range(m):
            lag = first + t + 1
            if lag > n_valid[r]:
                break
            best, rest = math.inf, 0.0
            for k in range(K):
                length = 2**k
                if length > lag:
                    break
                value, at = logs[r, k, t], (lag - length) % size
                before = high[r, at]
                total = before + value
                carry = 0.0
                if math.isfinite(total):
                    carry = low[r, at]
                    if abs(before) >= abs(value):
                        carry += (before - total) + value
                    else:
                        carry += (value - total) + before
                if total + carry < best + rest or k == 0:
                    best, rest = total, carry
            high[r, lag % size], low[r, lag % size] = best, rest
            out[r, t] = final[r] = best + rest
