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
from .jit import jit


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


@jit
def complement_row(code, z, out):
    """out (m,) = 1 - phi(z), entry by entry."""
    if code == SIGMOID:
        for i in range(z.size):
            out[i] = complement(np.int64(SIGMOID), z[i])
    else:
        for i in range(z.size):
            out[i] = complement(code, z[i])


def row_of(scalar):
    """The loop for one's own compiled scalar(code, z); not cached on disk."""

    def row(code, z, out):
        for i in range(z.size):
            out[i] = scalar(code, z[i])

    return numba.njit(error_model="numpy", nogil=True)(row)
