"""Householder QR by LAPACK called directly: np.linalg.qr takes seconds to compile.

Matrices are kept transposed: rows of A (k, n) are the columns of an n x k matrix, as LAPACK wants
them.
"""

import ctypes

import numba
from numba import _helperlib, types

from gradprop._kernels.jit import jit

DOUBLE = ord("d")


def _routine(name, sizes):
    """One of the LAPACK routines behind Numba's np.linalg, with so many sizes before its arrays.

    They find SciPy's LAPACK at their first call and bring their own workspace.
    """
    if numba.config.DISABLE_JIT:
        arguments = [ctypes.c_char, *[ctypes.c_ssize_t] * sizes]
        arguments += [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p]
        return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(_helperlib.c_helpers[name])
    arguments = [types.char, *[types.intp] * sizes]
    arguments += [types.CPointer(types.float64), types.intp, types.CPointer(types.float64)]
    return types.ExternalFunction(f"numba_{name}", types.intc(*arguments))


_geqrf, _orgqr = _routine("ez_geqrf", 2), _routine("ez_xxgqr", 3)


# Numba frees an array after the last use of its name, which taking its address would be. So the
# arrays of these two belong to their callers.
@jit
def _factorise(A, tau):
    _geqrf(DOUBLE, A.shape[1], A.shape[0], A.ctypes, A.shape[1], tau.ctypes)


@jit
def _generate(A, tau, rank):
    _orgqr(DOUBLE, A.shape[1], rank, rank, A.ctypes, A.shape[1], tau.ctypes)


@jit
def triangularise(A, upper, tau):
    """A (k, n) <- reflectors of A^T = Q R; upper (min(n, k), k) <- R, tau (min(n, k),) theirs.

    2 n k^2 flops for k <= n.
    """
    k, n = A.shape
    _factorise(A, tau)
    for i in range(min(n, k)):
        for j in range(k):
            upper[i, j] = A[j, i] if j >= i else 0.0


@jit
def form_basis(A, tau):
    """First min(n, k) rows of A (k, n) <- those of Q^T, from the reflectors of `triangularise`."""
    k, n = A.shape
    _generate(A, tau, min(n, k))
