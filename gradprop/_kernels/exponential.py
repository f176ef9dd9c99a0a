"""exp(x) and exp(x) - 1 for x <= 0 by plain arithmetic, so that loops over them vectorise.

x = k ln 2 + r with |r| <= ln(2)/2 (Cody and Waite: k times the high part of ln 2 is exact), then
exp(r) - 1 = r + r**2 P(r) by Taylor's series. 2**k is applied as two powers of two, made from their
bits, so that a subnormal result is rounded once. No branch, no call, no cast of a float to an
integer: k is read off the last bits of x/ln 2 + 1.5 * 2**(digits - 1), nan included.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from .jit import jit


class Constants(NamedTuple):
    """What the two functions need, in one dtype; 1/2!, 1/3!, ... come highest order first."""

    one: float
    floor: float
    shift: float
    log2_e: float
    ln2_high: float
    ln2_low: float
    taylor: tuple[float, ...]


def _table(dtype, floor, digits, order, ln2_high, ln2_low):
    return Constants(
        one=dtype(1),
        floor=dtype(floor),
        shift=dtype(1.5 * 2.0 ** (digits - 1)),
        log2_e=dtype(1 / math.log(2)),
        ln2_high=dtype(ln2_high),
        ln2_low=dtype(ln2_low),
        taylor=tuple(dtype(1 / math.factorial(j)) for j in range(order, 1, -1)),
    )


# exp(floor) is below half the smallest subnormal number. The terms left out are at most 0.01 eps
# (order 8) and 0.003 eps (order 14) of r. 355/512 is Cephes' high part, the other one fdlibm's.
_TABLE32 = _table(np.float32, -104, 24, 8, 355 / 512, -2.1219444005469057e-4)
_TABLE64 = _table(np.float64, -746, 53, 14, 0.6931471803691238, 1.9082149292705877e-10)
_SHIFT32 = _TABLE32.shift.view(np.int32)
_SHIFT64 = _TABLE64.shift.view(np.int64)


def _constants(x):
    """The table in the dtype of x; this body runs only where the JIT is switched off."""
    return _TABLE32 if isinstance(x, np.float32) else _TABLE64


@overload(_constants)
def _constants_compiled(x):
    table = _TABLE32 if x is types.float32 else _TABLE64
    return lambda x: table


@jit
def _two_powers32(shifted):
    k = np.int32(np.float32(shifted).view(np.int32) - _SHIFT32)
    half = np.int32(k >> 1)
    first = np.int32(np.int32(half + 127) << 23)
    second = np.int32(np.int32(k - half + 127) << 23)
    return first.view(np.float32), second.view(np.float32)


@jit
def _two_powers64(shifted):
    k = np.float64(shifted).view(np.int64) - _SHIFT64
    half = k >> 1
    first, second = np.int64((half + 1023) << 52), np.int64((k - half + 1023) << 52)
    return first.view(np.float64), second.view(np.float64)


def _two_powers(shifted):
    """Two floats whose product is 2**k, from shifted = k + shift."""
    return (_two_powers32 if isinstance(shifted, np.float32) else _two_powers64)(shifted)


@overload(_two_powers)
def _two_powers_compiled(shifted):
    chosen = _two_powers32 if shifted is types.float32 else _two_powers64
    return lambda shifted: chosen(shifted)


@jit
def _reduced(x):
    """exp(r) - 1 and the two factors of 2**k; nan stays nan in the first."""
    c = _constants(x)
    x = c.floor if x < c.floor else x
    shifted = x * c.log2_e + c.shift
    k = shifted - c.shift
    r = (x - k * c.ln2_high) - k * c.ln2_low
    total = c.taylor[0]
    for coefficient in c.taylor[1:]:
        total = total * r + coefficient
    first, second = _two_powers(shifted)
    return r + (r * r) * total, first, second


@jit
def exp(x):
    """exp(x) for x <= 0 or nan, within 1.1 spacings of floats (0.94 found)."""
    rest, first, second = _reduced(x)
    return ((_constants(x).one + rest) * first) * second


@jit
def expm1(x):
    """exp(x) - 1 for x <= 0 or nan, within 1.1 spacings of floats (1.03 found)."""
    rest, first, second = _reduced(x)
    scale = first * second
    return scale * rest + (scale - _constants(x).one)
