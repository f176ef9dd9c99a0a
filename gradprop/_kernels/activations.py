"""phi and phi' of every built-in activation, scalar in and scalar out, in the dtype of z.

phi' always comes from z, never from phi(z), so that it keeps its relative accuracy where phi
saturates, and its rounding never carries it above the supremum of phi' (nor, for gelu, below the
infimum), in either dtype. nan in gives nan out. Constants come from a table in the dtype of z, as
a float literal would turn float32 into float64.
"""

import functools
import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.extending import is_jitted, overload

from .exponential import exp, expm1
from .jit import first_class, jit

CODES: dict[str, int] = {
    "tanh": 0,
    "relu": 1,
    "leaky_relu": 2,
    "sigmoid": 3,
    "hard_tanh": 4,
    "softplus": 5,
    "erf": 6,
    "gelu": 7,
    "selu": 8,
    "linear": 9,
    "hard_sigmoid": 10,
}

TANH = CODES["tanh"]
RELU = CODES["relu"]
LEAKY_RELU = CODES["leaky_relu"]
SIGMOID = CODES["sigmoid"]
HARD_TANH = CODES["hard_tanh"]
SOFTPLUS = CODES["softplus"]
ERF = CODES["erf"]
GELU = CODES["gelu"]
SELU = CODES["selu"]
LINEAR = CODES["linear"]
HARD_SIGMOID = CODES["hard_sigmoid"]

# Klambauer et al., Self-normalizing neural networks, NeurIPS 2017: lambda_01, alpha_01.
SELU_LAMBDA = 1.0507009873554805
SELU_LAMBDA_ALPHA = 1.7580993408473768
# gelu' has its extrema at -sqrt(2) and sqrt(2), where gelu'' = pdf(z) (2 - z**2) vanishes.
GELU_LOW = -0.12890414518515478
GELU_HIGH = 1.1289041451851547


class Constants(NamedTuple):
    """The constants of this module in one dtype."""

    zero: float
    half: float
    one: float
    two: float
    four: float
    five: float
    fifth: float
    quarter: float
    half_width: float
    sixty_four: float
    slope: float
    sqrt_half: float
    two_over_sqrt_pi: float
    one_over_sqrt_2pi: float
    selu_lambda: float
    selu_lambda_alpha: float
    gelu_low: float
    gelu_high: float
    cut: float
    far: float


def _towards_zero(dtype, value):
    """Round a double to dtype without growing: for the extreme values of phi'."""
    rounded = dtype(value)
    # compared as doubles: NumPy would round the double to dtype first
    return rounded if abs(float(rounded)) <= abs(value) else np.nextafter(rounded, dtype(0))


def _table(dtype):
    return Constants(
        zero=dtype(0),
        half=dtype(0.5),
        one=dtype(1),
        two=dtype(2),
        four=dtype(4),
        five=dtype(5),
        fifth=_towards_zero(dtype, 0.2),
        quarter=dtype(0.25),
        half_width=dtype(2.5),
        sixty_four=dtype(64),
        slope=dtype(0.01),
        sqrt_half=dtype(math.sqrt(0.5)),
        two_over_sqrt_pi=_towards_zero(dtype, 1.1283791670955126),
        one_over_sqrt_2pi=dtype(0.3989422804014327),
        selu_lambda=dtype(SELU_LAMBDA),
        selu_lambda_alpha=_towards_zero(dtype, SELU_LAMBDA_ALPHA),
        gelu_low=_towards_zero(dtype, GELU_LOW),
        gelu_high=_towards_zero(dtype, GELU_HIGH),
        cut=dtype(10),
        far=dtype(40),
    )


_TABLE32 = _table(np.float32)
_TABLE64 = _table(np.float64)


def constants(z):
    """The table in the dtype of z; this body runs only where the JIT is switched off."""
    return _TABLE32 if isinstance(z, np.float32) else _TABLE64


@overload(constants)
def _constants_compiled(z):
    table = _TABLE32 if z is types.float32 else _TABLE64
    return lambda z: table


@jit
def _at_most(value, top):
    return top if value > top else value


@jit
def _split(z):
    """z = high + low with high a multiple of 1/64, so that high**2 is exact for |z| <= 64."""
    c = constants(z)
    high = np.rint(z * c.sixty_four) / c.sixty_four
    return high, z - high


@jit
def _scaled_gauss(z, s, factor):
    """factor * exp(-s * z**2), |z| <= 40, s = 1/2 or 1: z**2 is exact, underflow rounds once."""
    c = constants(z)
    high, low = _split(z)
    root = np.exp(-(s * c.half) * (high * high))
    rest = np.exp(-s * low * (z + high))
    return (root * (factor * rest)) * root


@jit
def _normal_cdf(z):
    """Phi(z) for |z| <= 10 to a few ulp: the rounding of z/sqrt(2) is put back to first order."""
    c = constants(z)
    x = -z * c.sqrt_half
    value = type(z)(math.erfc(x))
    if z >= c.zero:
        return c.half * value
    z_high, z_low = _split(-z)
    x_high, x_low = _split(x)
    # z**2/2 - x**2 = (|z|/sqrt(2) - x) (|z|/sqrt(2) + x), leading part exact
    gap = c.half * (z_high * z_high) - x_high * x_high
    gap += z_high * z_low - c.two * x_high * x_low
    gap += c.half * z_low * z_low - x_low * x_low
    return c.half * (value - c.two_over_sqrt_pi * np.exp(-x * x) * (gap / (x + x)))


@jit
def _mills(z):
    """|z| Phi(z) / pdf(z) for z <= -10, asymptotic series: 20 terms leave 3e-17."""
    c = constants(z)
    w = c.one / (z * z)
    total = c.one
    for i in range(20):
        total = c.one - type(z)(39 - 2 * i) * w * total
    return total


@jit
def _gelu(z):
    c = constants(z)
    if z >= c.cut:
        return z
    if z > -c.cut:
        return z * _normal_cdf(z)
    if z > -c.far:
        return _scaled_gauss(z, c.half, -c.one_over_sqrt_2pi * _mills(z))
    return -c.zero if z <= -c.far else z


@jit
def _dgelu(z):
    c = constants(z)
    if z >= c.cut:
        return c.one
    if z > -c.cut:
        value = _normal_cdf(z) + _scaled_gauss(z, c.half, z * c.one_over_sqrt_2pi)
        return _at_most(c.gelu_low if value < c.gelu_low else value, c.gelu_high)
    if z > -c.far:
        tail = z * (c.one - _mills(z) / (z * z))
        return _scaled_gauss(z, c.half, c.one_over_sqrt_2pi * tail)
    return -c.zero if z <= -c.far else z


@jit
def _tanh(z):
    c = constants(z)
    rest = expm1(-c.two * abs(z))
    return np.copysign(rest / (c.two + rest), z)


@jit
def _bell(q):
    """q / (1 + q)**2 for 0 <= q <= 1; 1 + q (2 + q) loses less to rounding than (1 + q)**2."""
    c = constants(q)
    return q / (c.one + q * (c.two + q))


@jit
def _dtanh(z):
    c = constants(z)
    return _at_most(c.four * _bell(exp(-c.two * abs(z))), c.one)


@jit
def _sigmoid(z):
    c = constants(z)
    q = exp(-abs(z))
    return (q if z < c.zero else c.one) / (c.one + q)


@jit
def _dsigmoid(z):
    return _at_most(_bell(exp(-abs(z))), constants(z).quarter)


@jit
def _softplus(z):
    c = constants(z)
    rest = np.log1p(exp(-abs(z)))
    return rest if z <= c.zero else z + rest


@jit
def _derf(z):
    c = constants(z)
    if abs(z) >= c.far:
        return c.zero
    return _scaled_gauss(z, c.one, c.two_over_sqrt_pi)


@jit
def _step(z, low, high, outside, inside):
    """`inside` for low < z < high, `outside` at and beyond the kinks, nan for nan."""
    if z <= low or z >= high:
        return outside
    return inside if z == z else z


@jit
def _two_slopes(z, at_most_zero, above):
    if z > constants(z).zero:
        return above
    return at_most_zero if z == z else z


@jit
def phi(code, z):
    """The activation with this code at z; float32 in gives float32 out."""
    c = constants(z)
    if code == TANH:
        return _tanh(z)
    if code == RELU:
        return c.zero if z <= c.zero else z
    if code == LEAKY_RELU:
        return z if z > c.zero else z * c.slope
    if code == SIGMOID:
        return _sigmoid(z)
    if code == HARD_TANH:
        return -c.one if z < -c.one else (c.one if z > c.one else z)
    if code == SOFTPLUS:
        return _softplus(z)
    if code == ERF:
        return type(z)(math.erf(z))
    if code == GELU:
        return _gelu(z)
    if code == SELU:
        return z * c.selu_lambda if z > c.zero else c.selu_lambda_alpha * expm1(z)
    if code == HARD_SIGMOID:
        # (z + 2.5)/5 rather than z/5 + 1/2: no cancellation at the lower kink
        if z <= -c.half_width:
            return c.zero
        return c.one if z >= c.half_width else (z + c.half_width) / c.five
    return z


@jit
def dphi(code, z):
    """phi'(z) from z; at a kink 0 (relu, hard_tanh, hard_sigmoid) or the smaller slope."""
    c = constants(z)
    if code == TANH:
        return _dtanh(z)
    if code == RELU:
        return _two_slopes(z, c.zero, c.one)
    if code == LEAKY_RELU:
        return _two_slopes(z, c.slope, c.one)
    if code == SIGMOID:
        return _dsigmoid(z)
    if code == HARD_TANH:
        return _step(z, -c.one, c.one, c.zero, c.one)
    if code == SOFTPLUS:
        return _sigmoid(z)
    if code == ERF:
        return _derf(z)
    if code == GELU:
        return _dgelu(z)
    if code == SELU:
        return (
            c.selu_lambda_alpha * exp(z)
            if z < c.zero
            else _two_slopes(z, c.selu_lambda, c.selu_lambda)
        )
    if code == HARD_SIGMOID:
        return _step(z, -c.half_width, c.half_width, c.zero, c.fifth)
    return c.one if z == z else z


@jit
def complement(code, z):
    """1 - phi(z): of a gate near 1, the digits that the rounding of phi(z) takes away."""
    c = constants(z)
    if code in (SIGMOID, HARD_SIGMOID):
        return phi(code, -z)
    if code == TANH:
        return c.two * _sigmoid(-c.two * z)
    if code == ERF:
        return type(z)(math.erfc(z))
    return c.one - phi(code, z)


def as_float(z):
    """Integers to float64, floats as they are; this body runs only where the JIT is off."""
    return z if isinstance(z, float | np.floating) else float(z)


@overload(as_float)
def _as_float_compiled(z):
    if isinstance(z, types.Float):
        return lambda z: z
    return lambda z: float(z)


def pair(code: int) -> tuple[Any, Any]:
    """Return compiled z -> phi(z) and z -> phi'(z) of one built-in."""

    @first_class
    def phi_of(z):
        return phi(code, as_float(z))

    @first_class
    def dphi_of(z):
        return dphi(code, as_float(z))

    return phi_of, dphi_of


@functools.cache
def complement_of(code: int | None, own_phi: Any) -> Any:
    """Return compiled z -> 1 - phi(z); of one's own phi, by subtraction."""
    if code is None:
        return numba.njit(lambda z: 1 - own_phi(z))

    @jit
    def of_built_in(z):
        return complement(code, as_float(z))

    return of_built_in


def is_compiled(function: Any) -> bool:
    """Tell whether a kernel can call this function: a jitted one, or any if the JIT is off."""
    without_jit = getattr(numba.config, "DISABLE_JIT", 0)
    return is_jitted(function) or bool(without_jit and callable(function))


def apply(function, z, out):
    """Fill `out` (m,) with `function(z[i])`."""
    for i in range(z.size):
        out[i] = function(z[i])


# Not cached on disk: every function of a user's would leave its own entry there.
apply_custom = numba.njit(error_model="numpy", nogil=True)(apply)
