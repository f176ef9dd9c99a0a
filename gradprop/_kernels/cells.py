"""Forward steps of cells: a block of steps for many replicas, in the dtype of the state.

Conventions of all kernels here: `R` replicas, `m` steps of the block, `n` units; weights are stored
once per distinct network and picked by `which[r]`; a step is skipped (state kept) from
`n_valid[r]` on, and `n_valid[r]` is lowered to the last step whose state is finite.
"""

import functools
import types

import numba
import numpy as np

from gradprop._kernels.copying import copy_row
from gradprop._kernels.jit import inlined, jit
from gradprop._kernels.rows import dphi_row, phi_row, row_of

FEW = 128
"""Units up to which a product with a vector is a loop."""


@jit
def _finite(v):
    ok = True
    for i in range(v.size):
        ok = ok and np.isfinite(v[i])
    return ok


@jit
def _times(columns, h, out):
    """out = columns^T h, four columns at a time: faster than a call of BLAS for few units."""
    n, whole = h.size, h.size - h.size % 4
    for i in range(n):
        out[i] = 0
    for j in range(0, whole, 4):
        a, b, c, d = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
        p, q, r, s = h[j], h[j + 1], h[j + 2], h[j + 3]
        for i in range(n):
            out[i] += (a[i] * p + b[i] * q) + (c[i] * r + d[i] * s)
    for j in range(whole, n):
        for i in range(n):
            out[i] += columns[j, i] * h[j]


@inlined
def _step(code, matrix, columns, h, drive, keep, step, dot, z, after):
    """z and `after` <- W h + drive and the next state; whether both are finite."""
    if h.size <= FEW:
        _times(columns, h, dot)
    else:
        np.dot(matrix, h, dot)
    for i in range(h.size):
        z[i] = dot[i] + drive[i]
    phi_row(code, z, after)
    for i in range(h.size):
        after[i] = keep * h[i] + step * after[i]
    return _finite(z) and _finite(after)


@jit
def _transpose(matrix, columns):
    """columns <- W^T, which only few units need."""
    if matrix.shape[0] <= FEW:
        for i in range(matrix.shape[0]):
            for j in range(matrix.shape[0]):
                columns[j, i] = matrix[i, j]


@jit
def rnn_steps(code, W, which, current, leak, first, n_valid, h, states, zs):
    """h <- (1-leak) h + leak phi(W h + current), for `m` steps; writes states and zs (R, m, n).

    `current` (R or 1, m, n), `h` (R, n) is carried on. Cost m R (2 n^2 + n phi).
    """
    R, m = h.shape[0], zs.shape[1]
    step = h.dtype.type(leak)
    keep = h.dtype.type(1) - step
    nan = h.dtype.type(np.nan)
    dot, columns = np.empty_like(h[0]), np.empty_like(W[0])
    for r in range(R):
        matrix = W[which[r]]
        _transpose(matrix, columns)
        drive = current[r if current.shape[0] > 1 else 0]
        for t in range(m):
            if first + t >= n_valid[r]:
                zs[r, t, :] = nan
                copy_row(h[r], states[r, t])
                continue
            z, after = zs[r, t], states[r, t]
            if not _step(code, matrix, columns, h[r], drive[t], keep, step, dot, z, after):
                n_valid[r] = first + t
                after[:] = nan
                z[:] = nan
            copy_row(after, h[r])


@jit
def rnn_slopes(code, W, which, current, leak, first, n_valid, h, slopes):
    """The same steps, of which only slopes (R, m, n) = phi'(z), in float64, is written.

    phi' is computed in the dtype of the state; past the last valid step it is 0.
    """
    R, n = h.shape
    step = h.dtype.type(leak)
    keep = h.dtype.type(1) - step
    dot, columns = np.empty_like(h[0]), np.empty_like(W[0])
    z, after, own = np.empty_like(h[0]), np.empty_like(h[0]), np.empty_like(h[0])
    for r in range(R):
        matrix = W[which[r]]
        _transpose(matrix, columns)
        drive = current[r if current.shape[0] > 1 else 0]
        for t in range(slopes.shape[1]):
            if first + t >= n_valid[r]:
                slopes[r, t, :] = 0.0
                continue
            if _step(code, matrix, columns, h[r], drive[t], keep, step, dot, z, after):
                dphi_row(code, z, own)
                for i in range(n):
                    slopes[r, t, i] = own[i]
            else:
                n_valid[r] = first + t
                after[:] = h.dtype.type(np.nan)
                slopes[r, t, :] = 0.0
            copy_row(after, h[r])


@jit
def derivatives(code, zs, out):
    """out = dphi(zs), elementwise on flat arrays; nan stays nan."""
    dphi_row(code, zs, out)


@functools.lru_cache(maxsize=32)
def kernels_for(own_phi, own_dphi):
    """`rnn_steps`, `rnn_slopes` and `derivatives` for one's own jitted pair z -> float.

    The same code objects, compiled once more with other rows of phi and dphi among their globals: a
    kernel that took functions as arguments could not be cached on disk.
    """
    compiled = numba.njit(error_model="numpy")

    def row(f):
        return row_of(compiled(lambda code, z: f(z)))

    names = {**globals(), "phi_row": row(own_phi), "dphi_row": row(own_dphi)}

    def again(compiler, f):
        return compiler(types.FunctionType(getattr(f, "py_func", f).__code__, names))

    names["_step"] = again(inlined, _step)
    whole = numba.njit(error_model="numpy", nogil=True)
    return tuple(again(whole, f) for f in (rnn_steps, rnn_slopes, derivatives))
