"""Forward steps of cells: a block of steps for many replicas, in the dtype of the state.

Conventions of all kernels here: `R` replicas, `m` steps of the block, `n` units; weights are stored
once per distinct network and picked by `which[r]`; a step is skipped (state kept) from
`n_valid[r]` on, and `n_valid[r]` is lowered to the last step whose state is finite.
"""

import functools
import types

import numba
import numpy as np

from gradprop._kernels.jit import jit
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


@jit
def rnn_steps(code, W, which, current, leak, first, n_valid, h, states, zs):
    """h <- (1-leak) h + leak phi(W h + current), for `m` steps; writes states and zs (R, m, n).

    `current` (R or 1, m, n), `h` (R, n) is carried on. Cost m R (2 n^2 + n phi).
    """
    R, n = h.shape
    m = zs.shape[1]
    one = h.dtype.type(1)
    step = h.dtype.type(leak)
    keep = one - step
    nan = h.dtype.type(np.nan)
    dot, columns = np.empty_like(h[0]), np.empty_like(W[0])
    for r in range(R):
        matrix = W[which[r]]
        if n <= FEW:
            for i in range(n):
                for j in range(n):
                    columns[j, i] = matrix[i, j]
        drive = current[r if current.shape[0] > 1 else 0]
        for t in range(m):
            if first + t >= n_valid[r]:
                for i in range(n):
                    zs[r, t, i] = nan
                    states[r, t, i] = h[r, i]
                continue
            z, after = zs[r, t], states[r, t]
            if n <= FEW:
                _times(columns, h[r], dot)
            else:
                np.dot(matrix, h[r], dot)
            for i in range(n):
                z[i] = dot[i] + drive[t, i]
            phi_row(code, z, after)
            for i in range(n):
                after[i] = keep * h[r, i] + step * after[i]
            if not (_finite(z) and _finite(after)):
                n_valid[r] = first + t
                for i in range(n):
                    after[i] = nan
                    z[i] = nan
            for i in range(n):
                h[r, i] = after[i]


@jit
def derivatives(code, zs, out):
    """out = dphi(zs), elementwise on flat arrays; nan stays nan."""
    dphi_row(code, zs, out)


@functools.lru_cache(maxsize=32)
def kernels_for(own_phi, own_dphi):
    """`rnn_steps` and `derivatives` for one's own jitted pair z -> float.

    The same code objects, compiled once more with other rows of phi and dphi among their globals: a
    kernel that took functions as arguments could not be cached on disk.
    """
    compiled = numba.njit(error_model="numpy")

    def row(f):
        return row_of(compiled(lambda code, z: f(z)))

    names = {**globals(), "phi_row": row(own_phi), "dphi_row": row(own_dphi)}
    return tuple(
        numba.njit(error_model="numpy", nogil=True)(types.FunctionType(f.py_func.__code__, names))
        for f in (rnn_steps, derivatives)
    )
