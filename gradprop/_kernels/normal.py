"""Normal form of row-scaled Jacobians: a power of two taken out of each step."""

import math

import numpy as np

from gradprop._kernels.jit import jit

FAR = 2**40
MAGNITUDE, ONE = np.int64(2**63 - 1), np.int64(1023)


@jit
def _exponents(leak, dphi, row, total):
    """total[i] = exponent of leak dphi[i] times 2**row[i], -FAR for zero; the extreme ones."""
    top, low, subnormal = -FAR, FAR, False
    for i in range(row.size):
        bits = np.float64(leak * dphi[i]).view(np.int64) & MAGNITUDE
        found = (bits >> 52) - 1022 + row[i]
        top = max(top, found if bits > 0 else -FAR)
        low = min(low, found if bits > 0 else FAR)
        subnormal |= (bits > 0) & (bits >> 52 == 0)
        total[i] = found if bits > 0 else -FAR
    if subnormal:
        top, low = -FAR, FAR
        for i in range(row.size):
            value = leak * dphi[i]
            if value != 0.0:
                found = math.frexp(value)[1] + row[i]
                top, low = max(top, found), min(low, found)
    return top, low


@jit
def row_scales(leak, dphi, rows, which, keep, keep_exponent, scales, exponents, identity):
    """Fill scales (R, m, n), exponents and identity (R, m) of a block.

    For (1 - leak) I + leak diag(dphi) W, where W has rows of largest magnitude in [1/2, 1) times
    2**rows (K, n), and 1 - leak = keep 2**keep_exponent. The power of two taken out is the largest,
    or one amid them where they differ by more than 2**900, so that the smallest are normal too.
    """
    R, m, n = dphi.shape
    total = np.empty(n, dtype=np.int64)
    for r in range(R):
        row = rows[which[r]]
        for t in range(m):
            top, low = _exponents(leak, dphi[r, t], row, total)
            if keep != 0.0:
                top, low = max(top, keep_exponent), min(low, keep_exponent)
            unit = 0 if top == -FAR else top
            if top - low > 900:
                unit = top - min((top - low) // 2, 1000)
            exponents[r, t] = unit
            identity[r, t] = math.ldexp(keep, keep_exponent - unit) if keep != 0.0 else 0.0
            plain = True
            for i in range(n):
                plain = plain and abs(row[i] - unit) < 1000
            if plain:
                for i in range(n):
                    power = np.int64((row[i] - unit + ONE) << 52).view(np.float64)
                    scales[r, t, i] = leak * dphi[r, t, i] * power
            else:
                for i in range(n):
                    scales[r, t, i] = math.ldexp(leak * dphi[r, t, i], row[i] - unit)
