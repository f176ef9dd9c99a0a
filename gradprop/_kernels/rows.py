"""phi and phi' over rows: the code is a constant inside each loop, so that LLVM vectorises it.

The code goes on as np.int64, not as a literal, for each of which phi would be compiled anew.
A loop computes the same bits as the scalar functions one by one. `out` must not be `z` (nor overlap
it), which would be right but slow.
"""

import numba
import numpy as np

from .activations import (
    HARD_SIGMOID,
    HARD_TANH,
    LEAKY_RELU,
    LINEAR,
    RELU,
    SELU,
    SIGMOID,
    SOFTPLUS,
    TANH,
    complement,
    dphi,
    phi,
)
from .jit import inlined, jit


@jit
def phi_row(code, z, out):
    """out (m,) = phi(z), entry by entry."""
    if code == TANH:
        for i in range(z.size):
            out[i] = phi(np.int64(TANH), z[i])
    elif code == SIGMOID:
        for i in range(z.size):
            out[i] = phi(np.int64(SIGMOID), z[i])
    elif code == RELU:
        for i in range(z.size):
            out[i] = phi(np.int64(RELU), z[i])
    elif code == LINEAR:
        for i in range(z.size):
            out[i] = phi(np.int64(LINEAR), z[i])
    elif code == LEAKY_RELU:
        for i in range(z.size):
            out[i] = phi(np.int64(LEAKY_RELU), z[i])
    elif code == HARD_TANH:
        for i in range(z.size):
            out[i] = phi(np.int64(HARD_TANH), z[i])
    elif code == HARD_SIGMOID:
        for i in range(z.size):
            out[i] = phi(np.int64(HARD_SIGMOID), z[i])
    elif code == SELU:
        for i in range(z.size):
            out[i] = phi(np.int64(SELU), z[i])
    else:
        for i in range(z.size):
            out[i] = phi(code, z[i])


@jit
def dphi_row(code, z, out):
    """out (m,) = phi'(z), entry by entry."""
    if code == TANH:
        for i in range(z.size):
            out[i] = dphi(np.int64(TANH), z[i])
    elif code == SIGMOID:
        for i in range(z.size):
            out[i] = dphi(np.int64(SIGMOID), z[i])
    elif code == RELU:
        for i in range(z.size):
            out[i] = dphi(np.int64(RELU), z[i])
    elif code == LINEAR:
        for i in range(z.size):
            out[i] = dphi(np.int64(LINEAR), z[i])
    elif code == LEAKY_RELU:
        for i in range(z.size):
            out[i] = dphi(np.int64(LEAKY_RELU), z[i])
    elif code == HARD_TANH:
        for i in range(z.size):
            out[i] = dphi(np.int64(HARD_TANH), z[i])
    elif code == HARD_SIGMOID:
        for i in range(z.size):
            out[i] = dphi(np.int64(HARD_SIGMOID), z[i])
    elif code == SELU:
        for i in range(z.size):
            out[i] = dphi(np.int64(SELU), z[i])
    elif code == SOFTPLUS:
        for i in range(z.size):
            out[i] = dphi(np.int64(SOFTPLUS), z[i])
    else:
        for i in range(z.size):
            out[i] = dphi(code, z[i])


@inlined
def _both(code, z, out, slope):
    """Each z is read once: a second time, after `out` was written, it might be another."""
    for i in range(z.size):
        x = z[i]
        out[i] = phi(code, x)
        slope[i] = dphi(code, x)


@jit
def both_row(code, z, out, slope):
    """out (m,) = phi(z) and slope (m,) = phi'(z): one exponential for both."""
    if code == TANH:
        _both(np.int64(TANH), z, out, slope)
    elif code == SIGMOID:
        _both(np.int64(SIGMOID), z, out, slope)
    elif code == RELU:
        _both(np.int64(RELU), z, out, slope)
    elif code == LINEAR:
        _both(np.int64(LINEAR), z, out, slope)
    elif code == LEAKY_RELU:
        _both(np.int64(LEAKY_RELU), z, out, slope)
    elif code == HARD_TANH:
        _both(np.int64(HARD_TANH), z, out, slope)
    elif code == HARD_SIGMOID:
        _both(np.int64(HARD_SIGMOID), z, out, slope)
    elif code == SELU:
        _both(np.int64(SELU), z, out, slope)
    elif code == SOFTPLUS:
        _both(np.int64(SOFTPLUS), z, out, slope)
    else:
        _both(code, z, out, slope)


@jit
def complement_row(code, z, out):
    """out (m,) = 1 - phi(z), entry by entry."""
    if code == SIGMOID:
        for i in range(z.size):
            out[i] = complement(np.int64(SIGMOID), z[i])
    else:
        for i in range(z.size):
            out[i] = complement(code, z[i])


def both_rows_of(one, other):
    """`both_row` of one's own compiled scalar(code, z) and its derivative."""

    def row(code, z, out, slope):
        for i in range(z.size):
            out[i] = one(code, z[i])
            slope[i] = other(code, z[i])

    return numba.njit(error_model="numpy", nogil=True)(row)


def row_of(scalar):
    """The loop for one's own compiled scalar(code, z); not cached on disk."""

    def row(code, z, out):
        for i in range(z.size):
            out[i] = scalar(code, z[i])

    return numba.njit(error_model="numpy", nogil=True)(row)
