"""Graded factors U-D-V of long products, from which singular values come in log scale.

The block normal form is that of `products`. Scales are kept as mantissa in [1/2, 1) and int64
exponent, so that no product is too long. Q and U are kept in strips (see `tiles`).
"""

import math

import numpy as np

from gradprop._kernels.blockqr import block_qr
from gradprop._kernels.gradedhouse import householder_strips
from gradprop._kernels.gradedrows import sort_columns, update_rows
from gradprop._kernels.jit import inlined, jit
from gradprop._kernels.lanes import copy
from gradprop._kernels.stripqr import pack, push_apart
from gradprop._kernels.structure import follow, follow_diagonal
from gradprop._kernels.tiles import WIDTH

LIMIT = 1e6
"""Spread of a panel (`blockqr`) beyond which Householder QR takes over: up to here the condition of
Q was below 1.001 on 160 panels with rows of all sizes, at 1e8 it was 200."""


@jit
def graded_step(B, shift, Q, mantissa, exponent, U, work, r, sure, bound):
    """Fold one factor into P = Q diag(mantissa 2**exponent) U; B (S, N, 8) is J Q 2**-shift.

    Q (S, N, 8) has r columns, orthonormal or, after Gram-Schmidt, well-conditioned, U (S, N, 8) r
    unit rows. Returns `sure`, the number of leading values whose pivots were not lost in rounding
    (a rank below `bound`, which exact zeros allow, is such a loss), and the spread of B; inf where
    block Gram-Schmidt is not accurate: the step is then to be finished by `householder_strips`.
    `work` is lost. About 3 n^3 flops.
    """
    if sort_columns(B, mantissa[:r], exponent[:r], U, work):
        copy(B, 0, B.size, Q, 0)
        spread = block_qr(Q, r, work, LIMIT)
        if spread < np.inf:
            lost = update_rows(work, mantissa[:r], exponent[:r], U, shift)
            return min(sure, r if r < bound else sure, lost if lost < r else sure), spread
    return sure, np.inf


@jit
def _ordinary(d):
    """Whether no entry but a zero is above 1 or below 2**-60."""
    for entry in d:  # noqa: SIM110 (all() of a generator does not compile)
        if entry != 0.0 and not 2.0**-60 <= abs(entry) <= 1.0:
            return False
    return True


@inlined
def _load(M, turned, own, packed):
    """own <- M, or its transpose, and packed <- own (see `pack`); 1 if no entry is zero."""
    n, zeros = M.shape[0], 0
    for i in range(n):
        for j in range(n):
            entry = M[j, i] if turned else M[i, j]
            own[i, j] = entry
            zeros += entry == 0.0
    pack(own, packed)
    return 1 if zeros == 0 else 0


@inlined
def _push(Q, packed, own, full, scales, alive, out):
    """out <- diag(scales) M Q, M as `_load` left it; returns `follow`'s bound on the rank."""
    n = own.shape[0]
    padded, plain = np.zeros(Q.shape[1]), full
    for i in range(n):
        padded[i] = scales[i]
        plain = plain and alive[i] and scales[i] != 0.0
    push_apart(packed, padded, np.arange(padded.size), Q, out)
    return n if plain else follow(own, scales, 0.0, alive)


@inlined
def _scale_rows(Q, scales, out):
    """out <- diag(scales) Q."""
    for s in range(Q.shape[0]):
        for i in range(scales.size):
            for c in range(WIDTH):
                out[s, i, c] = scales[i] * Q[s, i, c]


@jit
def _pace(before, own, matrix):
    """Ln of the spread a factor, slow to fall; a factor without its matrix says nothing yet."""
    if matrix < 0:
        return np.inf
    return max(own, 0.5 * (before + own)) if before < np.inf else own


@inlined
def _apply(M, now, scales, reverse, own, packed, held, Q, alive, B):
    """B <- diag(scales) M Q for the matrix `now` (-1: none); returns a bound on the rank.

    own, packed: what `_load` left of the matrix held[0]; held[1] is 1 if no entry is zero.
    """
    if now < 0:
        _scale_rows(Q, scales, B)
        return follow_diagonal(scales, alive)
    if now != held[0]:
        held[1] = _load(M[now], reverse, own, packed)
        held[0] = now
    return _push(Q, packed, own, held[1] == 1, scales, alive, B)


def _steps(whole):
    """The kernel of all steps; unless `whole` without Householder QR, which takes long to compile.

    Graded factors of one running product through a block (no identity part), from step `first` of
    the block to before `last`. Q, U (S, N, 8): see `graded_step`; N = 8 S, strips (2, S, N, 8).
    Forwards each step applies J_t = diag(d_t) M_t. In reverse the transposed product is grouped as
    M_1^T (D_1 M_2^T) ... (D_{T-1} M_T^T) D_T, so that every factor keeps its row scaling:
    `pending` is the M whose transpose waits to be applied, -1 before the first step.
    `group` factors are multiplied into Q before it is factored, and up to `most` as long as ln of
    the spread is expected within `reach`; `waiting` of them wait, `merged` have waited. `pace` is
    ln of the last spread, a factor; inf where Q is orthonormal to rounding.
    `bound` and `alive` (n,) follow the structure of exact zeros.
    own (n, n), packed (N / ROWS, n, ROWS), held (2,) as `_apply` wants them; packed and strips are
    zero.
    Returns how many steps were taken; minus that if the panel of the last one, in strips[0], is
    still to be folded in by `householder_strips`.
    """

    @jit
    def graded_steps(
        M, index, d, e, first, last, reverse, group, most, reach, own, packed, held, strips,
        Q, mantissa, exponent, U, rank, sure, bound, alive, pending, waiting, merged, pace,
    ):  # fmt: skip
        for s in range(first, last):
            t = last - 1 - (s - first) if reverse else s
            k = rank[0]
            strip, now = -(-k // WIDTH), pending[0] if reverse else index[t]
            B = strips[0, :strip]
            allowed = _apply(M, now, d[t], reverse, own, packed, held, Q[:strip], alive, B)
            pending[0] = index[t] if reverse else -1
            bound[0] = min(bound[0], allowed)
            taken = waiting[0] + 1
            near = taken < most and (taken + 1) * pace[0] <= reach
            if (near or taken < group) and _ordinary(d[t]):
                waiting[0], merged[0] = taken, merged[0] + 1
                for j in range(k):
                    exponent[j] += e[t]
                copy(B, 0, B.size, Q, 0)
            elif k > 0:
                sure[0], spread = graded_step(
                    B, e[t], Q, mantissa, exponent, U, strips[1], k, sure[0], bound[0]
                )
                pace[0] = _pace(pace[0], math.log(spread) / taken, now)
                waiting[0] = 0
                if spread == np.inf:
                    if whole:
                        rank[0], sure[0] = householder_strips(
                            B, e[t], Q, mantissa, exponent, U, k, sure[0], bound[0]
                        )
                    else:
                        return first - s - 1
        return last - first

    return graded_steps


graded_steps, graded_steps_whole = _steps(False), _steps(True)
