"""Column strips of a long product, each carried through all steps of a block alone.

The columns of P never mix, so a strip of a few dozen of them stays in the nearest caches while it
goes through a block, and strips are units of work for threads. Steps are those of `products`. A
strip S, in float64 or float32, has check columns C beside it, in float64: CHECKS fixed combinations
C = S x of its columns, carried through the same steps. The rounding of S x - C is the error seen.

S is kept in tiles (q, n + 1, w) of w columns and C as one (n + 1, CHECKS); the last row is always
zero, where padding goes. Both share an int64 power of two and are brought back to the size of one
only now and then; sums of squares come out of the multiplications themselves. Entries below FAINT
are looked for only when the smallest one could have got near the end of the range: a lower bound of
it is carried along.

Arrays that cost time to make come from the caller; the lists of offsets are those of `striprows`.
"""

import math

import numpy as np

from gradprop._kernels.jit import FALSE, ONE, ZERO, inlined, jit
from gradprop._kernels.products import FAINT
from gradprop._kernels.striprows import (
    CHECKS,
    LISTS,
    PADDING,
    REGIONS,
    multiply,
    pad,
    pick,
    scale_rows,
    strip_gap,
)

SPARSE = 8
"""Rows of zeros are left out where they are at least one in so many."""
FAR, SAFE = 2.0**40, 2.0**100
"""A strip whose sum of squares or its inverse exceeds FAR is scaled. Beyond SAFE the squares, or in
float32 the strip, may have left their range, and the step is taken again from a scaled strip."""
BOTTOM, FAINTEST = -1000, math.frexp(FAINT)[1] - 2
"""Binary exponents: what no entry may fall below unseen, and a lower bound of the scaled ones."""
NORMAL = -1021
"""Products below may have lost an entry altogether: an exact zero is not believed then."""
CANCELLED, CANCELLED_LEAKY = -107, -161
"""A sum of products of floats, one after the other, is 0 or at least 2**-107 times its smallest
term; of such a sum times a float and another product, 2**-161."""
MAGNITUDE = np.int64(2**63 - 1)


@jit
def _least(bits, begin, end):
    """A lower bound of the smallest nonzero entry's exponent; 0 if all are zero."""
    least, part = MAGNITUDE, bits[begin:end]
    for i in range(part.size):
        # one less, which turns a zero into the largest of all
        magnitude = ((part[i] & MAGNITUDE) - 1) & MAGNITUDE
        least = magnitude if magnitude < least else least
    if least == MAGNITUDE:
        return np.int64(0)
    exponent = least >> 52
    return exponent - 1023 if exponent > 0 else np.int64(-1076)


@jit
def _least_and_zeros(d, begin, end):
    """Of part of d: the bound of `_least`, and how many entries are zero."""
    count, part = 0, d[begin:end]
    for i in range(part.size):
        count += part[i] == 0.0
    return _least(d.view(np.int64), begin, end), count


@jit
def least_exponents(bits, size, out):
    """Lower bounds of the exponents of the smallest entries of matrices of `size` entries each."""
    for i in range(out.size):
        out[i] = _least(bits, i * size, (i + 1) * size)


@jit
def _clear(d, at, n, X, x, tiles, width):
    """Zero the rows with d = 0 of the tiles at x, which nobody has written."""
    for i in range(n):
        if d[at + i] == 0.0:
            for j in range(tiles):
                for c in range(width):
                    X[x + (j * (n + 1) + i) * width + c] = 0


@jit
def _clear_both(d, at, n, S, C, now, size, rest, tiles, width):
    _clear(d, at, n, S, now * size, tiles, width)
    _clear(d, at, n, C, now * rest, ONE, rest // (n + 1))


@jit
def _scaled(value, first, second):
    """Of nonzero values at least FAINT: what is lost must never look like an exact zero."""
    result = np.float64(value) * first * second
    return math.copysign(FAINT, value) if value != 0 and abs(result) < FAINT else result


@jit
def _level(S, C, now, size, rest):
    """Scale S and C to the largest magnitude of S (or C, if S is zero) in [1/2, 1).

    Returns the exponent taken out, the sum of squares of S, and whether anything is left.
    """
    top, total = 0.0, 0.0
    for i in range(now * size, (now + 1) * size):
        top = max(top, abs(S[i]))
    if top == 0.0:
        for i in range(now * rest, (now + 1) * rest):
            top = max(top, abs(C[i]))
    if top == 0.0:
        return 0, 0.0, False
    _, shift = math.frexp(top)
    # two factors, since 2**-shift alone overflows for subnormal `top`
    half = -shift // 2
    first, second = math.ldexp(1.0, half), math.ldexp(1.0, -shift - half)
    for i in range(now * size, (now + 1) * size):
        S[i] = _scaled(S[i], first, second)
        total += np.float64(S[i]) * np.float64(S[i])
    for i in range(now * rest, (now + 1) * rest):
        C[i] = _scaled(C[i], first, second)
    return shift, total, True


@inlined
def _tidy(S, C, now, size, rest):
    """Bring S and C away from the end of the range: exponent taken out, that of the least entry."""
    shift, least = 0, _least(C.view(np.int64), now * rest, (now + 1) * rest)
    if S.itemsize == 8:
        least = min(least, _least(S.view(np.int64), now * size, (now + 1) * size))
    if least < BOTTOM // 2:
        shift, _, _ = _level(S, C, now, size, rest)
        least = max(least - shift, FAINTEST)
    return shift, least


@inlined
def _choose(d, at, before, n, sparse, transpose, width, lists, scale, check_scale, counts):
    """Renew the lists where rows of zeros come or go; `before` is where the d are that made S.

    `counts`: rows and terms listed, and whether rows of the new and of the old S are missing.
    """
    stride = lists.size // LISTS
    terms = 3 * stride
    if transpose:
        if sparse or counts[3]:
            counts[1] = pick(d, at, n, sparse, lists, terms, stride, n, width)
        counts[3] = sparse
        return
    if counts[2] or counts[3]:
        counts[1] = pick(d, before, n, counts[2] == 1, lists, terms, stride, ONE, width)
    counts[3] = counts[2]
    if sparse or counts[2]:
        count = pick(d, at, n, sparse, lists, ZERO, stride, n, width)
        counts[0] = pad(n, count, lists, stride, width, scale, check_scale)
        for j in range(count):
            scale[j] = check_scale[j] = d[at + lists[2 * stride + j] // CHECKS]
    else:
        own = d[at : at + n]
        for i in range(n):
            scale[i] = check_scale[i] = own[i]
    counts[2] = sparse


@inlined
def _apply(
    M, M_check, origin, d, at, n, a, transpose, S, C, now, size, rest, lists, scale, check_scale,
    counts, tiles, width, square, check_square,
):  # fmt: skip
    """New S and C <- (a I + diag(d) M) or (a I + M^T diag(d)) times the old; sum of squares."""
    source, work = now * size, now * rest
    if transpose:
        source, work = 2 * size, 2 * rest
        scale_rows(d, at, n, S, now * size, source, tiles, width)
        scale_rows(d, at, n, C, now * rest, work, ONE, rest // (n + 1))
    return multiply(
        M, M_check, origin, lists, counts, S, source, now * size, scale, (1 - now) * size, tiles, C,
        work, now * rest, check_scale, (1 - now) * rest, a, square, check_square,
    )  # fmt: skip


@inlined
def _take(
    M, M_check, origin, d, at, before, n, a, transpose, S, C, now, size, rest, lists, scale,
    check_scale, counts, tiles, width, square, check_square,
):  # fmt: skip
    """`_apply`, then S and C leveled where they need it.

    Returns the sum of squares of S, the exponent taken out, and whether anything is left.
    """
    shift, more, left, again = 0, 0, True, True
    while True:
        total = _apply(
            M, M_check, origin, d, at, n, a, transpose, S, C, now, size, rest, lists, scale,
            check_scale, counts, tiles, width, square, check_square,
        )  # fmt: skip
        if not again or 1 / SAFE < total < SAFE:
            break
        if counts[3] and not transpose:
            _clear_both(d, before, n, S, C, now, size, rest, tiles, width)
        shift, _, _ = _level(S, C, now, size, rest)
        again = False
    if again and 1 / FAR < total < FAR:
        return total, shift, left
    if counts[2]:
        _clear_both(d, at, n, S, C, 1 - now, size, rest, tiles, width)
    more, total, left = _level(S, C, 1 - now, size, rest)
    return total, shift + more, left


@inlined
def _guard(
    d, at, before, n, keep, least_matrix, S, C, state, counts, now, size, rest, tiles, width
):  # fmt: skip
    """Note in `state` how small entries may get in this step, `_tidy` if need be; d's zeros."""
    least, zeros = _least_and_zeros(d, at, at + n)
    lost = least + least_matrix + (CANCELLED if keep == 0.0 else CANCELLED_LEAKY)
    faint = state[1] + lost < BOTTOM
    if counts[2] and (faint or keep != 0.0):
        _clear_both(d, before, n, S, C, now, size, rest, tiles, width)
    if faint:
        shift, state[1] = _tidy(S, C, now, size, rest)
        state[0] += shift
    state[1] += lost
    state[3] |= state[1] < NORMAL
    return zeros


@jit
def _write(S, begin, column, n_columns, width, kept):
    """Columns column .. column + n_columns - 1 of kept (n, n) <- the strip in tiles at `begin`."""
    n = kept.shape[0]
    for first in range(0, n_columns, width):
        some = min(width, n_columns - first)
        for i in range(n):
            at = begin + (first // width * (n + 1) + i) * width
            old, new = S[at : at + some], kept[i, column + first : column + first + some]
            for c in range(some):
                new[c] = old[c]


@inlined
def _one_strip(
    M, M_check, least_M, index, d, e, a, n_valid, transpose, r, S, C, state, lists, scale,
    check_scale, ones, counts, first_column, n_columns, square, check_square, column, offset,
    squares, gaps, exponents, kept,
):  # fmt: skip
    """The strip in S and C through a block; see `strip_steps`. Returns which region it ends in."""
    n, m, size, rest = ones.size - PADDING, index.shape[1], S.size // 3, C.size // REGIONS
    width, tiles = square.size, (n_columns + square.size - 1) // square.size
    now, before, left, total, last = ZERO, ZERO, True, 1.0, min(m, n_valid)
    for s in range(last):
        t = last - 1 - s if transpose else s
        at, keep, matrix = (r * m + t) * n, a[r, t], index[r, t]
        zeros = _guard(
            d, at, before, n, keep, least_M[matrix], S, C, state, counts, now, size, rest, tiles,
            width,
        )  # fmt: skip
        if left:
            sparse = zeros * SPARSE >= n and (transpose or keep == 0.0)
            _choose(d, at, before, n, sparse, transpose, width, lists, scale, check_scale, counts)
            total, shift, left = _take(
                M, M_check, matrix * n * n, d, at, before, n, keep, transpose, S, C, now, size,
                rest, lists, scale, check_scale, counts, tiles, width, square, check_square,
            )  # fmt: skip
            now, before = 1 - now, at
            state[0] += shift
            state[1] -= shift
        state[0] += e[r, t]
        state[2] += 1
        c = column[state[2]] - offset
        if c >= 0:
            squares[c], exponents[c] = total, state[0]
            gaps[c] = (
                (math.inf if state[3] else 0.0)
                if not left
                else strip_gap(
                    lists, counts[0], n_columns, S, now * size, C, now * rest, ones, check_square
                )
            )
            if kept.shape[0] > 0 and counts[2]:
                _clear_both(d, before, n, S, C, now, size, rest, tiles, width)
            if kept.shape[0] > 0:
                _write(S, now * size, first_column, n_columns, width, kept[c])
    if counts[2]:
        _clear_both(d, before, n, S, C, now, size, rest, tiles, width)
    return now


@jit
def strip_steps(
    M, M_check, least_M, index, d, e, a, n_valid, first, transpose, x, P, checks, state,
    tiles, width, column, offset, begin, end, squares, gaps, exponents, kept,
    S, C, lists, scale, check_scale, ones, counts, square, check_square,
):  # fmt: skip
    """P <- J P (or J^T P backwards) through a block, strips begin .. end - 1 of all R G.

    P (R G, size) in tiles, checks (R G, (n + 1) CHECKS) and state (R G, 4) of int64 (exponent,
    lower bound of the smallest entry's, steps absorbed, whether entries may be lost) are carried
    on. At the columns of lags, less `offset`, squares (R G, C) receive the sums of squares of
    strips, gaps those of S x - C, to be times 4**exponents; kept (R, C or 0, n, n) receives P, the
    columns of a strip to be times 2**exponents. x (n, CHECKS) has a row for each column of P.
    Cost 2 n^2 (w q + CHECKS) flops a step, and 2 n w q CHECKS more at a lag.
    """
    G, size, n, stride = P.shape[0] // index.shape[0], P.shape[1], ones.size - PADDING, ones.size
    rest, by_row = (n + 1) * CHECKS, ONE if transpose else n
    by_term = n if transpose else ONE
    for item in range(begin, end):
        r, first_column = item // G, item % G * tiles * width
        n_columns = min(tiles * width, x.size // CHECKS - first_column)
        for i in range(size):
            S[i], S[size + i] = P[item, i], 0
        for i in range(rest):
            C[i], C[rest + i] = checks[item, i], 0.0
        for i in range(n_columns * CHECKS):
            C[3 * rest + i] = x[first_column * CHECKS + i]
        for c in range(n_columns):
            lists[6 * stride + c] = c // width * (n + 1) * width + c % width
            lists[7 * stride + c] = c * CHECKS
        for i in range(n):
            scale[i], check_scale[i] = 1, 1.0
        count = pick(ones, ZERO, n, FALSE, lists, ZERO, stride, by_row, width)
        counts[0] = pad(n, count, lists, stride, width, scale, check_scale)
        counts[1] = pick(ones, ZERO, n, FALSE, lists, 3 * stride, stride, by_term, width)
        counts[2], counts[3] = 0, 0
        now = _one_strip(
            M, M_check, least_M, index, d, e, a, n_valid[r] - first, transpose, r, S, C,
            state[item], lists, scale, check_scale, ones, counts, first_column, n_columns, square,
            check_square, column, offset, squares[item], gaps[item], exponents[item], kept[r],
        )  # fmt: skip
        for i in range(size):
            P[item, i] = S[now * size + i]
        for i in range(rest):
            checks[item, i] = C[now * rest + i]
