"""Products begun anew at every block of steps, and sums that do not lose their small terms.

Steps come in the normal form of products.py. Step t (from 0) of what is handed over has the lag
first + t + 1; replica r takes part up to the lag n_valid[r] and keeps its state from there on.
"""

import math

import numpy as np

from gradprop._kernels.copying import copy_matrix
from gradprop._kernels.jit import jit
from gradprop._kernels.products import renormalise, times


@jit
def block_product_steps(
    M,
    index,
    d,
    e,
    a,
    n_valid,
    first,
    period,
    start,
    P,
    exponent,
    column,
    offset,
    kept,
    kept_exponent,
):
    """P <- J P, and P <- start at every lag that `period` divides, after it has been kept.

    P (R, n, p) and exponent (R,) are carried on; kept (R, C, n, p) and kept_exponent (R, C) receive
    copies at column[lag] - offset (column -1: not kept). Cost 2 n^2 p a step and replica.
    """
    R, n, p = P.shape
    out = np.empty((n, p))
    for r in range(R):
        for t in range(index.shape[1]):
            lag = first + t + 1
            if lag > n_valid[r]:
                break
            times(M[index[r, t]], d[r, t], a[r, t], P[r], out)
            exponent[r] += e[r, t] + renormalise(out)
            copy_matrix(out, P[r])
            c = column[lag] - offset
            if c >= 0:
                copy_matrix(out, kept[r, c])
                kept_exponent[r, c] = exponent[r]
            if lag % period == 0:
                copy_matrix(start, P[r])
                exponent[r] = 0


@jit
def running_sums(terms, n_valid, first, period, sums, carry, out):
    """out[r, t] = all of terms[r, :t+1] added to sums[r] + carry[r] (Neumaier), term by term.

    terms and out (R, m, q); sums and carry (R, q) are carried on, and start from 0 again after
    every lag that `period` divides (0: never). Cost 5 additions a term. A term of -inf stays.
    """
    R, m, q = terms.shape
    for r in range(R):
        for t in range(m):
            lag = first + t + 1
            live = lag <= n_valid[r]
            for j in range(q):
                if live:
                    value, before = terms[r, t, j], sums[r, j]
                    total = before + value
                    if not math.isfinite(total):
                        carry[r, j] = 0.0
                    elif abs(before) >= abs(value):
                        carry[r, j] += (before - total) + value
                    else:
                        carry[r, j] += (value - total) + before
                    sums[r, j] = total
                out[r, t, j] = sums[r, j] + carry[r, j]
                if live and period > 0 and lag % period == 0:
                    sums[r, j] = 0.0
                    carry[r, j] = 0.0
