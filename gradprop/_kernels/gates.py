"""One step of each cell, row by row: the state after, its derivative, and both ways through it.

`kind` is RNN, LSTM, GRU_AFTER or GRU_BEFORE (where the reset gate stands). Rows of length n per
gate, in the orders i f g o and r z n:

    tape       pre-activations: n | 4n | 4n (the last n: recurrent part m of the candidate) | 3n
    coef       what the step Jacobian needs beside W: n | 6n | 5n | 5n
    dot        recurrent product W_hh h, or W_hh applied to a perturbation of h

GRU_BEFORE multiplies twice: once for both gates, then W_n (r h) for the candidate, whose row is
`hidden`. `work` is scratch, WORK_ROWS n long. `pushed` takes a perturbation of the state through
the step, `pulled` is its transpose: it gives the gradient at the pre-activations, which is all that
BPTT needs. Only `out = f(row)` with rows that do not overlap is vectorised.
"""

import numpy as np

from gradprop._kernels.jit import jit
from gradprop._kernels.rows import complement_row, dphi_row, phi_row

RNN, LSTM, GRU_AFTER, GRU_BEFORE = 0, 1, 2, 3
GATE_ROWS = {RNN: 1, LSTM: 4, GRU_AFTER: 3, GRU_BEFORE: 3}
TAPE_ROWS = {RNN: 1, LSTM: 4, GRU_AFTER: 4, GRU_BEFORE: 3}
COEF_ROWS = {RNN: 1, LSTM: 6, GRU_AFTER: 5, GRU_BEFORE: 5}
WORK_ROWS = 5


@jit
def multiply(a, b, out):
    """out = a b, entry by entry; slices, for LLVM does not vectorise over computed indices."""
    for i in range(out.size):
        out[i] = a[i] * b[i]


@jit
def scale(row, factor):
    """row *= factor, entry by entry."""
    for i in range(row.size):
        row[i] *= factor[i]


@jit
def add(row, other):
    """row += other, entry by entry."""
    for i in range(row.size):
        row[i] += other[i]


@jit
def clear(row):
    """row = 0: a loop, for Numba takes long to compile the assignment of a slice."""
    for i in range(row.size):
        row[i] = 0


@jit
def copy(row, out):
    """out = row, as `clear`."""
    for i in range(row.size):
        out[i] = row[i]


@jit
def _sum(a, b, out):
    """out = a + b, entry by entry."""
    for i in range(out.size):
        out[i] = a[i] + b[i]


@jit
def preactivate(kind, gate, dot, current, b_h, h, tape, hidden, work):
    """Fill `tape` from dot = W_hh h and current = W_xh x + b; the reset h goes to `hidden`."""
    n = h.size
    if kind == GRU_AFTER:
        candidate, reset, inner = tape[2 * n : 3 * n], work[:n], tape[3 * n :]
        _sum(dot[: 2 * n], current[: 2 * n], tape[: 2 * n])
        _sum(dot[2 * n :], b_h, inner)
        phi_row(gate, tape[:n], reset)
        multiply(reset, inner, candidate)
        add(candidate, current[2 * n :])
    elif kind == GRU_BEFORE:
        _sum(dot[: 2 * n], current[: 2 * n], tape[: 2 * n])
        phi_row(gate, tape[:n], hidden)
        scale(hidden, h)
    else:
        _sum(dot, current, tape)


@jit
def complete(dot, current, tape):
    """Candidate of GRU_BEFORE, from dot = W_n hidden."""
    n = dot.size
    _sum(dot, current[2 * n :], tape[2 * n :])


@jit
def update(kind, gate, code, leak, tape, before, after, work):
    """State after the step, in another row than the state before it."""
    one = tape.dtype.type(1)
    if kind == RNN:
        keep = one - leak
        phi_row(code, tape, after)
        if keep != 0:
            for i in range(after.size):
                after[i] = keep * before[i] + leak * after[i]
    elif kind == LSTM:
        n = after.size // 2
        enter, forget, inner = work[:n], work[n : 2 * n], work[2 * n : 3 * n]
        out, squashed = work[3 * n : 4 * n], work[4 * n : 5 * n]
        phi_row(gate, tape[: 2 * n], work[: 2 * n])
        phi_row(code, tape[2 * n : 3 * n], inner)
        phi_row(gate, tape[3 * n :], out)
        c, c_before = after[n:], before[n:]
        for i in range(n):
            c[i] = forget[i] * c_before[i] + enter[i] * inner[i]
        phi_row(code, c, squashed)
        multiply(out, squashed, after[:n])
    else:
        n = after.size
        u, rest = work[:n], work[n : 2 * n]
        phi_row(gate, tape[n : 2 * n], u)
        complement_row(gate, tape[n : 2 * n], rest)
        phi_row(code, tape[2 * n : 3 * n], after)
        for i in range(n):
            after[i] = rest[i] * after[i] + u[i] * before[i]


@jit
def slopes(kind, gate, code, leak, tape, before, after, coef, work):
    """Coefficients of the step Jacobian.

    RNN: leak phi'. LSTM: of z_i, z_f, z_g in c', of z_o in h', then f and e = o phi'(c').
    GRU: of z_r (in the candidate's z, or in r h), of z_z, k = (1 - u) phi', then u and r.
    """
    if kind == RNN:
        dphi_row(code, tape, coef)
        if leak != 1:
            for i in range(coef.size):
                coef[i] *= leak
    elif kind == LSTM:
        n = after.size // 2
        enter, inner, out = tape[:n], tape[2 * n : 3 * n], tape[3 * n :]
        value, c = work[:n], after[n:]
        dphi_row(gate, tape[: 2 * n], coef[: 2 * n])
        dphi_row(code, inner, coef[2 * n : 3 * n])
        dphi_row(gate, out, coef[3 * n : 4 * n])
        phi_row(gate, tape[n : 2 * n], coef[4 * n : 5 * n])
        dphi_row(code, c, coef[5 * n :])
        phi_row(code, inner, value)
        scale(coef[:n], value)
        scale(coef[n : 2 * n], before[n:])
        phi_row(gate, enter, value)
        scale(coef[2 * n : 3 * n], value)
        phi_row(code, c, value)
        scale(coef[3 * n : 4 * n], value)
        phi_row(gate, out, value)
        scale(coef[5 * n :], value)
    else:
        _gru_slopes(kind, gate, code, tape, before, coef, work)


@jit
def _gru_slopes(kind, gate, code, tape, before, coef, work):
    n = before.size
    candidate, of_z, of_candidate = work[:n], coef[n : 2 * n], coef[2 * n : 3 * n]
    rest = work[n : 2 * n]
    dphi_row(gate, tape[: 2 * n], coef[: 2 * n])
    dphi_row(code, tape[2 * n : 3 * n], of_candidate)
    phi_row(gate, tape[n : 2 * n], coef[3 * n : 4 * n])
    complement_row(gate, tape[n : 2 * n], rest)
    phi_row(gate, tape[:n], coef[4 * n :])
    phi_row(code, tape[2 * n : 3 * n], candidate)
    scale(coef[:n], tape[3 * n :] if kind == GRU_AFTER else before)
    for i in range(n):
        of_z[i] *= before[i] - candidate[i]
        of_candidate[i] *= rest[i]


@jit
def reset_pushed(coef, dot, ext, v, hidden):
    """GRU_BEFORE: perturbation of r h, from those of z_r (dot + ext) and of h."""
    n = v.size
    for i in range(n):
        hidden[i] = coef[4 * n + i] * v[i] + coef[i] * (dot[i] + ext[i])


@jit
def pushed(kind, keep, coef, dot, ext, v, out):
    """Perturbation of the state after the step.

    From v before it, dot = W_hh v_h (candidate of GRU_BEFORE: W_n times the perturbed r h) and
    ext = W_xh times a perturbation of the input.
    """
    if kind == RNN:
        for i in range(v.size):
            out[i] = keep * v[i] + coef[i] * (dot[i] + ext[i])
    elif kind == LSTM:
        n = v.size // 2
        for i in range(n):
            dc = coef[4 * n + i] * v[n + i]
            for k in range(3):
                dc += coef[k * n + i] * (dot[k * n + i] + ext[k * n + i])
            out[n + i] = dc
            dz = dot[3 * n + i] + ext[3 * n + i]
            out[i] = coef[5 * n + i] * dc + coef[3 * n + i] * dz
    else:
        n = v.size
        for i in range(n):
            dz = dot[2 * n + i] + ext[2 * n + i]
            if kind == GRU_AFTER:
                inner = coef[4 * n + i] * dot[2 * n + i] + coef[i] * (dot[i] + ext[i])
                dz = inner + ext[2 * n + i]
            update_part = coef[n + i] * (dot[n + i] + ext[n + i])
            out[i] = coef[3 * n + i] * v[i] + update_part + coef[2 * n + i] * dz


@jit
def pulled(kind, keep, coef, v, delta, recurrent, direct):
    """Transpose of `pushed`: `delta` at the pre-activations, `direct` at the state before.

    `recurrent` is the gradient at dot, filled where a reset gate makes it another than delta; what
    W_hh^T recurrent adds to `direct` is the caller's. GRU_BEFORE fills only the candidate and
    z_z; `reset_pulled` does the rest.
    """
    if kind == RNN:
        multiply(coef, v, delta)
        for i in range(v.size):
            direct[i] = keep * v[i]
    elif kind == LSTM:
        n = v.size // 2
        v_h, v_c, e, dc = v[:n], v[n:], coef[5 * n :], direct[n:]
        for i in range(n):
            dc[i] = v_c[i] + e[i] * v_h[i]
        for k in range(3):
            multiply(coef[k * n : (k + 1) * n], dc, delta[k * n : (k + 1) * n])
        multiply(coef[3 * n : 4 * n], v_h, delta[3 * n :])
        scale(dc, coef[4 * n : 5 * n])
        clear(direct[:n])
    else:
        n = v.size
        candidate = delta[2 * n :]
        multiply(coef[2 * n : 3 * n], v, candidate)
        multiply(coef[n : 2 * n], v, delta[n : 2 * n])
        copy(delta[n:], recurrent[n:])
        if kind == GRU_AFTER:
            multiply(coef[:n], candidate, delta[:n])
            copy(delta[:n], recurrent[:n])
            scale(recurrent[2 * n :], coef[4 * n :])
        multiply(coef[3 * n : 4 * n], v, direct)


@jit
def reset_pulled(coef, back, delta, recurrent, direct):
    """GRU_BEFORE: from back = W_n^T delta_n, the gradient at z_r and what r h passes to h."""
    n = direct.size
    for i in range(n):
        delta[i] = coef[i] * back[i]
        recurrent[i] = delta[i]
        direct[i] += coef[4 * n + i] * back[i]


@jit
def is_finite(row):
    """Whether every entry is."""
    ok = True
    for i in range(row.size):
        ok = ok and np.isfinite(row[i])
    return ok
