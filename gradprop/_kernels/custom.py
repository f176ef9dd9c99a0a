"""One's own step: orbits, derivatives by complex step and by differences, given Jacobians.

Each function here compiles a kernel around a jitted `step(h, x)` or `jacobian(h, x)`. Not cached on
disk: every function of a user's would leave its own entry there. `step` gets copies, so it may
write to what it is given; `x` is (R or 1, m, d) or (N, d), where d may be 0. Kernels that see a
function first return False if what it returned has the wrong size. Rows of N states that are not
finite, or whose input is not (padding), give nan and are not shown to the function.
"""

import functools

import numba
import numpy as np

from gradprop._kernels.gates import is_finite

COMPLEX_STEP = 2.0**-100
DIFFERENCE_STEP = 2.0**-17
"""Truncation and rounding of a central difference, s^2 and eps / s, are about equal here."""

compiled = numba.njit(error_model="numpy", nogil=True)


@functools.lru_cache(maxsize=32)
def orbit_kernel(step):
    """Compile m steps from `state` (R, n), carried on, as `cells.rnn_steps`; the tape is x."""

    @compiled
    def custom_steps(x, first, n_valid, state, states, tapes):
        R, n = state.shape
        nan = state.dtype.type(np.nan)
        for r in range(R):
            h = state[r]
            for t in range(states.shape[1]):
                inputs = x[r if x.shape[0] > 1 else 0, t]
                taken = first + t < n_valid[r]
                if taken:
                    after = step(h.copy(), inputs.copy())
                    if after.size != n:
                        return False
                    for i in range(n):
                        h[i] = after[i]
                    taken = is_finite(h) and is_finite(inputs)
                    if not taken:
                        n_valid[r] = first + t
                        for i in range(n):
                            h[i] = nan
                for i in range(n):
                    states[r, t, i] = h[i]
                for i in range(inputs.size):
                    tapes[r, t, i] = inputs[i] if taken else nan
        return True

    return custom_steps


@functools.lru_cache(maxsize=32)
def complex_kernel(step):
    """Compile Im step(h + i s e_j) / s into J (N, n, n); Re step into values (N, n)."""

    @compiled
    def complex_step(h, x, J, values):
        N, n = h.shape
        for k in range(N):
            if not (is_finite(h[k]) and is_finite(x[k])):
                J[k] = np.nan
                values[k] = np.nan
                continue
            for j in range(n):
                moved = h[k].astype(np.complex128)
                moved[j] += complex(0.0, COMPLEX_STEP)
                after = step(moved, x[k].copy())
                for i in range(n):
                    J[k, i, j] = after[i].imag / COMPLEX_STEP
                    values[k, i] = after[i].real

    return complex_step


@functools.lru_cache(maxsize=32)
def given_kernel(jacobian):
    """Compile jacobian(h, x) of N states into J (N, n, n)."""

    @compiled
    def given_jacobians(h, x, J):
        N, n = h.shape
        for k in range(N):
            if not (is_finite(h[k]) and is_finite(x[k])):
                J[k] = np.nan
                continue
            found = jacobian(h[k].copy(), x[k].copy())
            if found.shape != (n, n):
                return False
            for i in range(n):
                for j in range(n):
                    J[k, i, j] = found[i, j]
        return True

    return given_jacobians


@functools.lru_cache(maxsize=32)
def difference_kernel(step):
    """Compile central differences of N states along directions (N, p, n); values (N, n) is step(h).

    slopes (N, n, p), and what two things say about their errors (N, n, p): slopes over twice the
    width (truncation, noise of the step), and second differences that do not grow fourfold with it
    (a kink within reach).
    """

    @compiled
    def differences(h, x, directions, values, slopes, errors):
        N, n = h.shape
        s = DIFFERENCE_STEP
        at = np.empty((5, n))
        for k in range(N):
            seen = is_finite(h[k]) and is_finite(x[k])
            for p in range(directions.shape[1]):
                for q in range(5):
                    moved = h[k].copy()
                    for i in range(n):
                        moved[i] += (q - 2) * s * directions[k, p, i]
                    at[q, :] = np.nan
                    if seen:
                        after = step(moved, x[k].copy())
                        for i in range(n):
                            at[q, i] = after[i]
                for i in range(n):
                    fine = (at[3, i] - at[1, i]) / (2 * s)
                    coarse = (at[4, i] - at[0, i]) / (4 * s)
                    bend = (at[3, i] - at[2, i]) - (at[2, i] - at[1, i])
                    far_bend = (at[4, i] - at[2, i]) - (at[2, i] - at[0, i])
                    values[k, i] = at[2, i]
                    slopes[k, i, p] = fine
                    errors[k, i, p] = abs(fine - coarse) + abs(4 * bend - far_bend) / (4 * s)

    return differences
