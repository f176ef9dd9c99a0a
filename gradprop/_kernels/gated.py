"""Orbits of gated cells, and their step Jacobians formed from gates.

As in `cells`: R replicas, m steps, weights once per distinct network and picked by `which[r]`; W
has one block of n rows per gate. Width of the state: 2n for LSTM, n for GRU.
"""

import functools
import types

import numba
import numpy as np

from gradprop._kernels import gates
from gradprop._kernels.copying import copy_matrix, copy_row
from gradprop._kernels.gates import (
    GRU_BEFORE,
    LSTM,
    WORK_ROWS,
    complete,
    is_finite,
    preactivate,
    pushed,
    reset_pushed,
    slopes,
    update,
)
from gradprop._kernels.jit import jit
from gradprop._kernels.rows import both_rows_of, row_of


@jit
def gated_steps(
    kind, gate, code, W, which, current, b_h, which_b, first, n_valid, state, states, tapes
):
    """Take m steps from `state` (R, s), carried on; writes states (R, m, s) and tapes (R, m, q).

    `current` (R or 1, m, gates n) is W_xh x + b, b_h (K', n) the candidate's recurrent bias.
    """
    R = state.shape[0]
    m, n = tapes.shape[1], W.shape[2]
    one = state.dtype.type(1)
    nan = state.dtype.type(np.nan)
    hidden, work = np.empty(n, dtype=state.dtype), np.empty(WORK_ROWS * n, dtype=state.dtype)
    for r in range(R):
        matrix = W[which[r]]
        drive = current[r if current.shape[0] > 1 else 0]
        for t in range(m):
            tape = tapes[r, t]
            if first + t >= n_valid[r]:
                tape[:] = nan
                copy_row(state[r], states[r, t])
                continue
            h = state[r, :n]
            dot = np.dot(matrix, h)
            preactivate(kind, gate, dot, drive[t], b_h[which_b[r]], h, tape, hidden, work)
            if kind == GRU_BEFORE:
                complete(np.dot(matrix[2 * n :], hidden), drive[t], tape)
            after = states[r, t]
            update(kind, gate, code, one, tape, state[r], after, work)
            if not (is_finite(tape) and is_finite(after)):
                n_valid[r] = first + t
                after[:] = nan
                tape[:] = nan
            copy_row(after, state[r])


@jit
def slope_steps(kind, gate, code, leak, tapes, before, after, coefs):
    """Coefficients (N, q) of N steps, from tapes (N, .) and the states before and after (N, s)."""
    work = np.empty(WORK_ROWS * after.shape[1], dtype=after.dtype)
    for i in range(tapes.shape[0]):
        slopes(kind, gate, code, leak, tapes[i], before[i], after[i], coefs[i], work)


@jit
def form_own(kind, keep, W, which, coefs, n_valid, first, offset, J):
    """Write d state'/d state of one layer into J (R, m, s, s) at `offset`; I past the length.

    O(s n) a step from the gates; GRU_BEFORE multiplies two matrices, 2 n^3.
    """
    R, m = coefs.shape[:2]
    n, rows = W.shape[2], W.shape[1]
    width = n * 2 if kind == LSTM else n
    row, out = np.zeros(width), np.empty(width)
    ext, hidden = np.zeros(rows), np.empty((n, n))
    for r in range(R):
        columns = np.ascontiguousarray(W[which[r]].T)
        candidate = np.ascontiguousarray(columns[:, 2 * n :]) if kind == GRU_BEFORE else columns
        for t in range(m):
            if first + t >= n_valid[r]:
                for j in range(width):
                    J[r, t, offset + j, offset + j] = 1.0
                continue
            coef = coefs[r, t]
            dots = columns.copy()
            if kind == GRU_BEFORE:
                for j in range(n):
                    row[j] = 1.0
                    reset_pushed(coef, dots[j], ext, row, hidden[j])
                    row[j] = 0.0
                copy_matrix(np.dot(hidden, candidate), dots[:, 2 * n :])
            for j in range(width):
                row[j] = 1.0
                pushed(kind, keep, coef, dots[j] if j < n else ext, ext, row, out)
                row[j] = 0.0
                for i in range(width):
                    J[r, t, offset + i, offset + j] = out[i]


@jit
def form_coupling(
    kind, keep, W, which, W_xh, which_x, coefs, n_valid, first, source, width, offset, J
):
    """Write d state'/d (states below) of one layer, from the h of the layer below in J.

    `source` is the row where that h begins, `width` the columns of all layers below, `offset` this
    layer's first row. 2 width d_x (gates n) flops a step.
    """
    R, m = coefs.shape[:2]
    n, rows = W.shape[2], W.shape[1]
    d_x = W_xh.shape[2]
    own = n * 2 if kind == LSTM else n
    zero, none, out = np.zeros(own), np.zeros(rows), np.empty(own)
    dot, hidden = np.zeros(rows), np.empty(n)
    for r in range(R):
        wide = np.ascontiguousarray(W_xh[which_x[r]].T)
        for t in range(m):
            if first + t >= n_valid[r]:
                continue
            below = np.ascontiguousarray(J[r, t, source : source + d_x, :width].T)
            exts = np.dot(below, wide)
            for j in range(width):
                if kind == GRU_BEFORE:
                    reset_pushed(coefs[r, t], none, exts[j], zero[:n], hidden)
                    copy_row(np.dot(W[which[r], 2 * n :], hidden), dot[2 * n :])
                pushed(kind, keep, coefs[r, t], dot, exts[j], zero, out)
                for i in range(own):
                    J[r, t, offset + i, j] = out[i]


@functools.lru_cache(maxsize=32)
def kernels_for(gate, own_pair):
    """`gated_steps` and `slope_steps` for jitted functions of one's own.

    `gate` is (phi, dphi, 1 - phi) of the gates, `own_pair` (phi, dphi) of the candidate. As
    `cells.kernels_for`; in the rebuilt kernels code -1 means the gates' activation.
    """
    names = with_activations({**gates.__dict__, **globals()}, gate, own_pair)
    for name in ("preactivate", "update", "_gru_slopes", "slopes", "gated_steps", "slope_steps"):
        rebuild(names, name)
    return names["gated_steps"], names["slope_steps"]


def with_activations(names, gate, own_pair):
    """The same globals with rows that take code -1 for the gates' activation."""
    compiled = numba.njit(error_model="numpy")

    def either(of_gate, of_own):
        return compiled(lambda code, z: of_gate(z) if code < 0 else of_own(z))

    gate_phi, gate_dphi, complement = gate
    own_phi, own_dphi = own_pair
    phi, dphi = either(gate_phi, own_phi), either(gate_dphi, own_dphi)
    return {
        **names,
        "phi_row": row_of(phi),
        "dphi_row": row_of(dphi),
        "both_row": both_rows_of(phi, dphi),
        "complement_row": row_of(either(complement, own_phi)),
    }


def rebuild(names, name):
    """Compile a function of `names` again, with `names` as its globals, and put it there."""
    code = names[name].py_func.__code__
    names[name] = numba.njit(error_model="numpy", nogil=True)(types.FunctionType(code, names))
