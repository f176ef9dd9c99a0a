"""What becomes of the outcome of one operation: rounding to a float format, flushing, overflow.

Formats below float64 are carried in float64. A product of two numbers of at most 26 bits is exact
there, so rounding it is the one rounding. A sum is rounded to 53 bits first, which changes nothing
for formats of at most 25 bits: 53 >= 2 p + 2 bits make the double rounding innocuous (S. A.
Figueroa, SIGNUM Newsl. 30 (1995) 21), and sums below the smallest normal number are exact.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from gradprop._kernels.jit import jit

FRACTION_BITS = 52
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Native(NamedTuple):
    """Arithmetic of the processor's own format; outcomes smaller than `tiny` become zero."""

    tiny: Any


class Low(NamedTuple):
    """A format carried in float64, rounded to nearest.

    It lacks the last `drop` bits of a float64 significand. Numbers from `normal` on have that
    precision, those below it are multiples of `step`; outcomes beyond `largest` become `beyond`,
    those below `tiny` zero.
    """

    drop: int
    normal: float
    step: float
    largest: float
    beyond: float
    tiny: float


class AtRandom(NamedTuple):
    """A format carried in float64, rounded at random; `state` (1,) uint64 moves on."""

    low: Low
    state: Any


def settle(x, arithmetic):
    """What an operation's outcome x becomes: x itself, or x rounded, or a zero of its sign."""
    return RULES[type(arithmetic)](x, arithmetic)


@overload(settle)
def compiled_settle(x, arithmetic):
    rule = RULES[arithmetic.instance_class]
    return lambda x, arithmetic: rule(x, arithmetic)


@jit
def flush(x, native):
    """x, or a zero of its sign where it is small."""
    return x * type(x)(0) if abs(x) < native.tiny else x


@jit
def to_nearest(x, low):
    """x (float64) as the nearest number of the format, ties to the even one; nan stays nan."""
    size = abs(x)
    if size < low.normal:
        # the sum's own rounding is that to multiples of `step`
        shift = low.step * 2.0**FRACTION_BITS
        size = (size + shift) - shift
    elif size < np.inf and low.drop > 0:
        bits = np.float64(size).view(np.int64)
        odd = (bits >> low.drop) & 1
        bits += (1 << (low.drop - 1)) - 1 + odd
        size = np.int64((bits >> low.drop) << low.drop).view(np.float64)
    return bounded(size, x, low)


@jit
def to_neighbour(x, arithmetic):
    """x as one of its two neighbours, the nearer one more often: right on average."""
    size, low = abs(x), arithmetic.low
    if not size < np.inf:
        return bounded(size, x, low)
    step = low.step
    if size >= low.normal:
        bits = np.float64(size).view(np.int64)
        power = np.int64((bits >> FRACTION_BITS) << FRACTION_BITS).view(np.float64)
        step = power * 2.0**-FRACTION_BITS * 2.0**low.drop
    multiple = size / step
    below = math.floor(multiple)
    return bounded((below + (uniform(arithmetic.state) < multiple - below)) * step, x, low)


@jit
def bounded(size, x, low):
    """A rounded magnitude within the format's range, with the sign of x."""
    if size > low.largest:
        size = low.beyond
    elif size < low.tiny:
        size = 0.0
    return math.copysign(size, x)


@jit
def uniform(state):
    """The next number in [0, 1), a multiple of 2**-53 (splitmix64, S. Vigna's constants)."""
    state[0] += np.uint64(GOLDEN)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * 2.0**-53


RULES = {Native: flush, Low: to_nearest, AtRandom: to_neighbour}


@jit
def settle_all(values, arithmetic):
    """Settle every entry of a 1-D array in place, in order."""
    for i in range(values.size):
        values[i] = settle(values[i], arithmetic)
