"""A register tile of a matrix product, in LLVM's vectors: what np.dot does for one size only.

    out[i, :] = scale[i] * sum_k A[i, k] X[k, :] + a * X[i, :],      square += out[i, :]**2

for 6 or 4 rows i and as many columns as fill a register of 512 bits, or two of 256 (or half of
that). The sum runs over k ascending, so that no number depends on what else is computed. Rows and
terms are picked by lists of offsets: A may be stored by rows or by columns, or in pieces, and what
is known to be zero is left out at no cost.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from gradprop._kernels.vectors import (
    DOUBLE,
    constant,
    filled,
    firsts,
    load,
    loop,
    moved,
    multiply_add,
    splat,
    store,
)


def plain(
    n_rows, bits, A, origin, lists, rows, places, terms, picks, n_terms, X, x, own, scale, at, a,
    out, y, square,
):  # fmt: skip
    """The same in NumPy, for a switched-off JIT and for tests. All arrays are flat.

    `rows`, `places`, `terms` and `picks` say where in `lists` lists begin. Row j < n_rows of the
    tile has A[i, k] at origin + row[j] + term[k] of A, k < n_terms; term k takes the vector at
    x + pick[k] of X. With scale[at + j], and a times the vector at own + place[j] of X, it goes to
    y + place[j] of out. `square` (float64) has room for one vector.
    """
    lanes = np.arange(bits // (8 * X.itemsize))
    k = np.arange(n_terms)
    for j in range(n_rows):
        factors = A[origin + lists[rows + j] + lists[terms + k]].astype(X.dtype)
        result = scale[at + j] * (factors @ X[x + lists[picks + k][:, None] + lanes])
        if a != 0:
            result = result + a * X[own + lists[places + j] + lanes]
        out[y + lists[places + j] + lanes] = result
        square[lanes] += result.astype(np.float64) ** 2


class _Emitter:
    """Writes the instructions of one tile."""

    def __init__(self, context, builder, sig, args, n_rows, bits):
        self.context, self.builder, self.n_rows = context, builder, n_rows
        self.args = firsts(context, builder, sig.args[2:], args[2:])
        dtype = sig.args[10].dtype
        self.element = context.get_data_type(dtype)
        self.vector = ir.VectorType(self.element, bits // dtype.bitwidth)

    def entry(self, pointer, index):
        return self.builder.load(moved(self.builder, pointer, index))

    def vector_at(self, pointer, index):
        return load(self.builder, self.vector, moved(self.builder, pointer, index))

    def splat(self, x):
        return splat(self.builder, self.vector, x)

    def listed(self, pointer, first):
        """Entries first .. first + n_rows - 1."""
        return [
            self.entry(moved(self.builder, pointer, first), constant(j)) for j in range(self.n_rows)
        ]

    def sums(self, bases, terms, picks, n_terms, X):
        """The loop over k: one accumulator a row."""
        builder = self.builder
        start = [constant(0), *[filled(self.vector, 0.0)] * self.n_rows]
        (k, *sums), close = loop(builder, n_terms, start)
        term, x = self.entry(terms, k), self.vector_at(X, self.entry(picks, k))
        following = []
        for base, total in zip(bases, sums, strict=True):
            factor = self.entry(base, term)
            if factor.type != self.element:
                factor = builder.fpext(factor, self.element)
            following.append(multiply_add(builder, self.splat(factor), x, total))
        close([builder.add(k, constant(1)), *following])
        return sums

    def write(self):
        """All of it."""
        builder = self.builder
        A, origin, lists, rows, places, terms, picks, n_terms, X, x, own = self.args[:11]
        scale, at, a, out, y, square = self.args[11:]
        A, into, same = (moved(builder, p, i) for p, i in ((A, origin), (out, y), (X, own)))
        terms, picks = moved(builder, lists, terms), moved(builder, lists, picks)
        bases = [moved(builder, A, row) for row in self.listed(lists, rows)]
        sums = self.sums(bases, terms, picks, n_terms, moved(builder, X, x))
        places = self.listed(lists, places)
        scales = map(self.splat, self.listed(scale, at))
        scaled = [builder.fmul(*pair) for pair in zip(sums, scales, strict=True)]
        results = self.with_own(scaled, a, same, places)
        total = None
        for result, place in zip(results, places, strict=True):
            store(builder, result, moved(builder, into, place))
            total = (
                builder.fmul(result, result)
                if total is None
                else multiply_add(builder, result, result, total)
            )
        self.add_to(square, total)
        return self.context.get_dummy_value()

    def with_own(self, scaled, a, same, places):
        """Rows plus a times those at `same`, which are looked at only if a is not 0."""
        builder = self.builder
        before = builder.block
        with builder.if_then(builder.fcmp_unordered("!=", a, ir.Constant(self.element, 0.0))):
            factor = self.splat(a)
            loaded = [self.vector_at(same, place) for place in places]
            pairs = zip(loaded, scaled, strict=True)
            added = [multiply_add(builder, factor, *pair) for pair in pairs]
            inside = builder.block
        results = [builder.phi(self.vector) for _ in scaled]
        for result, value, other in zip(results, scaled, added, strict=True):
            result.add_incoming(value, before)
            result.add_incoming(other, inside)
        return results

    def add_to(self, square, total):
        """square += total, in float64."""
        wide = ir.VectorType(DOUBLE, self.vector.count)
        if self.element != DOUBLE:
            total = self.builder.fpext(total, wide)
        store(self.builder, self.builder.fadd(load(self.builder, wide, square), total), square)


@intrinsic(prefer_literal=True)
def compiled(
    typing, n_rows, bits, A, origin, lists, rows, places, terms, picks, n_terms, X, x, own, scale,
    at, a, out, y, square,
):  # fmt: skip
    """`plain` for contiguous arrays and literal n_rows (4, 6) and bits (256, 512)."""
    one = types.int64
    sig = types.void(
        n_rows, bits, A, one, lists, one, one, one, one, one, X, one, one, scale, one, X.dtype,
        out, one, square,
    )  # fmt: skip

    def write(context, builder, sig, args):
        size = n_rows.literal_value, bits.literal_value
        return _Emitter(context, builder, sig, args, *size).write()

    return sig, write


tile = plain if getattr(config, "DISABLE_JIT", 0) else compiled
