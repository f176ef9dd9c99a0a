"""Row scales of Jacobians (1 - leak) I + leak diag(phi') W in the normal form of `products`."""

import math

import numpy as np

from gradprop._kernels.jit import jit

NARROW = 400
"""Within 2**-NARROW .. 2**NARROW scaling by powers of two is a multiplication, and exact."""
WIDEST = 900
"""Largest log2 of the ratio of rows for which the largest one sets the unit."""


@jit
def _unit(top, low):
    """Power of two to take out of rows of sizes 2**low .. 2**top.

    The largest, or one amid them where they lie so far apart that the smallest would underflow.
    """
    return top - (min((top - low) // 2, 1000) if top - low > WIDEST else 0)


@jit
def _scale_any(slopes, leak, rows, keep, keep_exponent, scales):
    """scales (n,) = leak slopes 2**(rows - unit) with numbers of any size; returns the unit."""
    n, found = slopes.size, keep != 0.0
    top = low = keep_exponent if found else 0
    for i in range(n):
        mantissa, exponent = math.frexp(leak * slopes[i])
        if mantissa != 0.0:
            size = exponent + rows[i]
            top = max(top, size) if found else size
            low = min(low, size) if found else size
            found = True
    unit = _unit(top, low)
    for i in range(n):
        mantissa, exponent = math.frexp(leak * slopes[i])
        scales[i] = math.ldexp(mantissa, int(exponent + rows[i] - unit)) if mantissa != 0.0 else 0.0
    return unit


@jit
def _scale(slopes, leak, powers, scales, bits):
    """scales (n,) = leak slopes powers; `bits` are those of scales.

    Returns the exponents of the largest and of the smallest magnitude but zero; far out where there
    is none or one has underflowed. In integers, since LLVM vectorises no maximum of floats that may
    be nan.
    """
    n, ones = slopes.size, np.int64(0x7FFFFFFFFFFFFFFF)
    lost = 0
    for i in range(n):
        scales[i] = leak * slopes[i] * powers[i]
        lost += (scales[i] == 0.0) != (slopes[i] == 0.0)
    top, low = np.int64(0), ones
    for i in range(n):
        top = max(top, bits[i] & ones)
        # a zero becomes the largest of all
        low = min(low, ((bits[i] & ones) - 1) & ones)
    if top == 0 or lost:
        return np.int64(-(2**20)), np.int64(-(2**20))
    return (top >> 52) - 1022, ((low + 1) >> 52) - 1022


@jit
def row_scales(dphi, which, rows, leak, keep, keep_exponent, scales, units):
    """scales (R, m, n) = leak dphi 2**(rows - units), rows (K, n) picked by which (R,).

    units (R, m) become the exponent of the largest in magnitude, or of keep 2**keep_exponent (the
    identity part, keep = 0 for none); 0 where all is zero. 4 n operations a step and replica.
    """
    R, m, n = dphi.shape
    powers = np.empty(n)
    plain = keep == 0.0 or abs(keep_exponent) <= NARROW
    for r in range(R):
        row, tame = rows[which[r]], plain
        for i in range(n):
            tame = tame and abs(row[i]) <= NARROW
            powers[i] = math.ldexp(1.0, int(row[i]))
        for t in range(m):
            slopes, out = dphi[r, t], scales[r, t]
            if tame:
                top, low = _scale(slopes, leak, powers, out, out.view(np.int64))
                if top <= NARROW and low >= -NARROW:
                    if keep != 0.0:
                        top = max(top, keep_exponent)
                    units[r, t] = top
                    factor = math.ldexp(1.0, int(-top))
                    for i in range(n):
                        out[i] *= factor
                    continue
            units[r, t] = _scale_any(slopes, leak, row, keep, keep_exponent, out)
