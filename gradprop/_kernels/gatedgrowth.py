"""Lyapunov exponents of gated cells from gates and W, never a dense Jacobian: for few vectors."""

import numpy as np

from gradprop._kernels.factor import absorb
from gradprop._kernels.gatevectors import push
from gradprop._kernels.jit import jit
from gradprop._kernels.products import renormalise


@jit
def gated_exponent_steps(
    kind, W, which, coefs, n_valid, first, burn_in,
    Q, sums, carry, zero, unsure, age, edges, met, history,
):  # fmt: skip
    """As `factor.qr_exponent_steps`, with Q (R, k, s) transposed, coefs (R, m, q), W (K, rows, n).

    2 rows n k + 4 s k^2 flops a step and replica.
    """
    R, k, s = Q.shape
    ext, out, B = np.zeros(W.shape[1]), np.empty((k, s)), np.empty((s, k))
    for r in range(R):
        for t in range(coefs.shape[1]):
            if first + t >= n_valid[r]:
                continue
            push(kind, W[which[r]], coefs[r, t], Q[r], ext, out)
            shift = renormalise(out)
            for j in range(k):
                for i in range(s):
                    B[i, j] = out[j, i]
            age[r] += 1
            counted = age[r] > burn_in
            absorb(B, shift, counted, sums[r], carry[r], zero[r], unsure[r], history[r])
            for j in range(k):
                for i in range(s):
                    Q[r, j, i] = B[i, j]
            if met[r] < edges.shape[1] and age[r] == edges[r, met[r]]:
                for j in range(k):
                    history[r, met[r], j] = sums[r, j] + carry[r, j]
                met[r] += 1
