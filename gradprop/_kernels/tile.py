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
from numba.core import cgutils
from numba.extending import intrinsic

INT64, INT32, DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()


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
        self.context, self.builder, self.types, self.args = context, builder, sig.args[2:], args[2:]
        self.n_rows, self.dtype = n_rows, sig.args[10].dtype
        self.lanes = bits // self.dtype.bitwidth
        self.element = context.get_data_type(self.dtype)
        self.vector = ir.VectorType(self.element, self.lanes)
        self.align = self.dtype.bitwidth // 8
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fmuladd.v{self.lanes}f{self.dtype.bitwidth}"
        self.fma = cgutils.get_or_insert_function(builder.module, kind, name)

    def data(self, position):
        """Address of an array among the arguments."""
        kind = self.types[position]
        return self.context.make_array(kind)(self.context, self.builder, self.args[position]).data

    def entry(self, pointer, index):
        return self.builder.load(self.builder.gep(pointer, [index]))

    def splat(self, x):
        zero = ir.Constant(INT32, 0)
        nothing = ir.Constant(self.vector, ir.Undefined)
        mask = ir.Constant(ir.VectorType(INT32, self.lanes), [0] * self.lanes)
        first = self.builder.insert_element(nothing, x, zero)
        return self.builder.shuffle_vector(first, nothing, mask)

    def place(self, pointer, index, vector=None):
        vector = self.vector if vector is None else vector
        return self.builder.bitcast(self.builder.gep(pointer, [index]), vector.as_pointer())

    def load(self, pointer, index):
        value = self.builder.load(self.place(pointer, index))
        value.align = self.align
        return value

    def multiply_add(self, x, y, z):
        return self.builder.call(self.fma, [x, y, z])

    def listed(self, pointer, first):
        """Entries first .. first + n_rows - 1."""
        indices = [self.builder.add(first, ir.Constant(INT64, j)) for j in range(self.n_rows)]
        return [self.entry(pointer, index) for index in indices]

    def sums(self, bases, terms, picks, n_terms, X):
        """The loop over k: one accumulator a row."""
        builder, zero = self.builder, ir.Constant(INT64, 0)
        before = builder.block
        body, after = (builder.append_basic_block(f"tile.{name}") for name in ("sum", "done"))
        builder.cbranch(builder.icmp_signed(">", n_terms, zero), body, after)
        builder.position_at_end(body)
        k = builder.phi(INT64)
        sums = [builder.phi(self.vector) for _ in bases]
        term, x = self.entry(terms, k), self.load(X, self.entry(picks, k))
        following = []
        for base, total in zip(bases, sums, strict=True):
            factor = self.entry(base, term)
            if factor.type != self.element:
                factor = builder.fpext(factor, self.element)
            following.append(self.multiply_add(self.splat(factor), x, total))
        next_k = builder.add(k, ir.Constant(INT64, 1))
        builder.cbranch(builder.icmp_signed("<", next_k, n_terms), body, after)
        builder.position_at_end(after)
        nothing = ir.Constant(self.vector, None)
        found = [builder.phi(self.vector) for _ in bases]
        k.add_incoming(zero, before)
        k.add_incoming(next_k, body)
        for phis in (sums, found):
            for phi, last in zip(phis, following, strict=True):
                phi.add_incoming(nothing, before)
                phi.add_incoming(last, body)
        return found

    def write(self):
        """All of it."""
        builder = self.builder
        origin, rows, places, terms, picks, n_terms = (self.args[i] for i in (1, 3, 4, 5, 6, 7))
        x, own, at, a, y = (self.args[i] for i in (9, 10, 12, 13, 15))
        A, lists, X, scale, out, square = map(self.data, (0, 2, 8, 11, 14, 16))
        A, into, same = (builder.gep(p, [i]) for p, i in ((A, origin), (out, y), (X, own)))
        terms, picks = builder.gep(lists, [terms]), builder.gep(lists, [picks])
        bases = [builder.gep(A, [row]) for row in self.listed(lists, rows)]
        sums = self.sums(bases, terms, picks, n_terms, builder.gep(X, [x]))
        places = self.listed(lists, places)
        scales = map(self.splat, self.listed(scale, at))
        scaled = [builder.fmul(*pair) for pair in zip(sums, scales, strict=True)]
        before = builder.block
        with builder.if_then(builder.fcmp_unordered("!=", a, ir.Constant(self.element, 0.0))):
            factor = self.splat(a)
            loaded = [self.load(same, place) for place in places]
            added = [self.multiply_add(factor, *p) for p in zip(loaded, scaled, strict=True)]
            inside = builder.block
        results = [builder.phi(self.vector) for _ in scaled]
        total = None
        for result, value, other in zip(results, scaled, added, strict=True):
            result.add_incoming(value, before)
            result.add_incoming(other, inside)
        for result, place in zip(results, places, strict=True):
            builder.store(result, self.place(into, place)).align = self.align
            square_of = builder.fmul if total is None else self.multiply_add
            total = square_of(result, result, *([] if total is None else [total]))
        self.add_to(square, total)
        return self.context.get_dummy_value()

    def add_to(self, square, total):
        """square += total, in float64."""
        wide = ir.VectorType(DOUBLE, self.lanes)
        if self.element != DOUBLE:
            total = self.builder.fpext(total, wide)
        pointer = self.place(square, ir.Constant(INT64, 0), wide)
        value = self.builder.load(pointer)
        value.align = 8
        self.builder.store(self.builder.fadd(value, total), pointer).align = 8


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
