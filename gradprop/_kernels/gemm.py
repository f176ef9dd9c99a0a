"""Products of small matrices at the speed of the processor, by tiles kept in its registers.

The right factor is read `width_of(dtype)` columns at a time: by strips of that many (`strips`), or
from rows padded to a multiple of it. So no call packs anything, which takes BLAS a third of the
time where few rows meet a large matrix. Each entry is summed over k ascending, from zero: no number
depends on what else is computed, nor on the number of rows.
"""

from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from .jit import jit


def _wide():
    """Whether the processor has the 32 registers of 512 bits of AVX-512."""
    try:
        return bool(llvmlite.binding.get_host_cpu_features().get("avx512f"))
    except RuntimeError:
        return False


# 8 x 2 registers of AVX-512, or 4 x 2 of the 16 of older ones: as many sums as hide what one takes.
HEIGHT, BITS = (8, 512) if _wide() else (4, 256)
VECTORS = 2
WORD, HALF = ir.IntType(64), ir.IntType(32)


def width_of(dtype: Any) -> int:
    """Columns of a tile."""
    return VECTORS * BITS // (8 * np.dtype(dtype).itemsize)


def padded(size: int, dtype: Any) -> int:
    """Size rounded up to whole tiles."""
    return -(-size // width_of(dtype)) * width_of(dtype)


def strips(matrix: NDArray[Any]) -> NDArray[Any]:
    """Columns of a matrix (K, N), `width_of` at a time, (S, K, width): the last filled with 0."""
    width, (K, N) = width_of(matrix.dtype), matrix.shape
    out = np.zeros((-(-N // width), K, width), dtype=matrix.dtype)
    whole = N // width
    out[:whole] = matrix[:, : whole * width].reshape(K, whole, width).swapaxes(0, 1)
    if whole < len(out):
        out[whole, :, : N - whole * width] = matrix[:, whole * width :]
    return out


class _Emitter:
    """Writes the instructions of one tile."""

    def __init__(self, context, builder, sig, args):
        self.context, self.builder, self.types, self.args = context, builder, sig.args, args
        dtype = sig.args[0].dtype
        self.size = dtype.bitwidth // 8
        self.lanes = BITS // dtype.bitwidth
        self.vector = ir.VectorType(context.get_data_type(dtype), self.lanes)
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fmuladd.v{self.lanes}f{dtype.bitwidth}"
        self.fma = cgutils.get_or_insert_function(builder.module, kind, name)

    def at(self, position, offset):
        """Pointer to an entry of an array among the arguments."""
        array = self.context.make_array(self.types[position])
        data = array(self.context, self.builder, self.args[position]).data
        return self.builder.gep(data, [self.args[offset]])

    def places(self, pointer):
        """Pointers to the vectors of one row."""
        for v in range(VECTORS):
            moved = self.builder.gep(pointer, [ir.Constant(WORD, v * self.lanes)])
            yield self.builder.bitcast(moved, self.vector.as_pointer())

    def row(self, pointer):
        values = [self.builder.load(place) for place in self.places(pointer)]
        for value in values:
            value.align = self.size
        return values

    def splat(self, x):
        nothing = ir.Constant(self.vector, ir.Undefined)
        mask = ir.Constant(ir.VectorType(HALF, self.lanes), [0] * self.lanes)
        first = self.builder.insert_element(nothing, x, ir.Constant(HALF, 0))
        return self.builder.shuffle_vector(first, nothing, mask)

    def sums(self, a, rows, step, b, jump, depth):
        """The loop over k > 0 terms: the vectors of each row."""
        builder, before = self.builder, self.builder.block
        body, after = (builder.append_basic_block(f"product.{name}") for name in ("sum", "done"))
        builder.branch(body)
        builder.position_at_end(body)
        k, left, right = builder.phi(WORD), builder.phi(a.type), builder.phi(b.type)
        sums = [[builder.phi(self.vector) for _ in range(VECTORS)] for _ in rows]
        new, factors = [], self.row(right)
        for offset, totals in zip(rows, sums, strict=True):
            x = self.splat(builder.load(builder.gep(left, [offset])))
            new.append([builder.call(self.fma, [x, *p]) for p in zip(factors, totals, strict=True)])
        following = builder.add(k, ir.Constant(WORD, 1))
        carried = [(k, ir.Constant(WORD, 0), following)]
        carried += [(p, q, builder.gep(p, [m])) for p, q, m in ((left, a, step), (right, b, jump))]
        zero = ir.Constant(self.vector, None)
        for totals, others in zip(sums, new, strict=True):
            carried += [(p, zero, q) for p, q in zip(totals, others, strict=True)]
        for phi, first, later in carried:
            phi.add_incoming(first, before)
            phi.add_incoming(later, body)
        builder.cbranch(builder.icmp_signed("<", following, depth), body, after)
        builder.position_at_end(after)
        return new

    def write(self, height):
        """All of it."""
        builder = self.builder
        row, step, depth, jump, width, keep = (self.args[i] for i in (2, 3, 4, 7, 10, 11))
        rows, outs = (
            [builder.mul(stride, ir.Constant(WORD, i)) for i in range(height)]
            for stride in (row, width)
        )
        sums = self.sums(self.at(0, 1), rows, step, self.at(5, 6), jump, depth)
        out = self.at(8, 9)
        pointers = [builder.gep(out, [offset]) for offset in outs]
        kept = self.kept(keep, pointers)
        for pointer, totals, old in zip(pointers, sums, kept, strict=True):
            for place, total, start in zip(self.places(pointer), totals, old, strict=True):
                builder.store(builder.fadd(start, total), place).align = self.size
        return self.context.get_dummy_value()

    def kept(self, keep, pointers):
        """What stands in some rows, or zeros."""
        zero, before = ir.Constant(self.vector, None), self.builder.block
        with self.builder.if_then(keep):
            rows = [self.row(pointer) for pointer in pointers]
            inside = self.builder.block
        found = [[self.builder.phi(self.vector) for _ in row] for row in rows]
        for phis, row in zip(found, rows, strict=True):
            for phi, value in zip(phis, row, strict=True):
                phi.add_incoming(zero, before)
                phi.add_incoming(value, inside)
        return found


def _emitted(height):
    """Tile of so many rows, as a function of compiled code."""

    @intrinsic
    def tile(typing, A, a, row, step, depth, B, b, jump, C, c, width, keep):
        one = types.int64
        sig = types.void(A, one, one, one, one, B, one, one, C, one, one, types.boolean)

        def write(context, builder, sig, args):
            return _Emitter(context, builder, sig, args).write(height)

        return sig, write

    return tile


def _plain(height):
    """The same in NumPy, for a switched-off JIT. Offsets count entries of the flat arrays."""

    def tile(A, a, row, step, depth, B, b, jump, C, c, width, keep):
        k, lanes = np.arange(depth), np.arange(width_of(C.dtype))
        rows = np.arange(height)[:, None]
        left = A.reshape(-1)[a + row * rows + step * k]
        right = B.reshape(-1)[b + jump * k[:, None] + lanes]
        out, places = C.reshape(-1), c + width * rows + lanes
        # term by term, as the loop over k: no product of NumPy's, whose sums depend on the rows
        total = (left[:, :, None] * right).sum(axis=1)
        out[places] = (out[places] if keep else 0) + total

    return tile


@intrinsic
def _touch(typing, A, a):
    def write(context, builder, sig, args):
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), HALF, HALF, HALF])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(prefetch, [pointer, *(ir.Constant(HALF, i) for i in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(A, types.int64), write


if getattr(numba.config, "DISABLE_JIT", 0):
    _made, _touch = _plain, lambda A, a: None  # type: ignore[assignment]
else:
    _made = _emitted
_high, _low = _made(HEIGHT), _made(1)


@jit
def prefetch(A, a, size):
    """Fetch entries a .. a + size - 1 of A into the cache, while something else is computed."""
    for i in range(0, size, 64 // A.itemsize):
        _touch(A, a + i)


@jit
def product(rows, columns, A, a, row, step, depth, B, b, jump, strip, C, c, width, keep):
    """C (rows, columns) <- A B, or C + A B if `keep`; arrays contiguous, of one dtype.

    A[i, k] stands at a + i row + k step of A; a strip of B at b + s strip, `jump` from one k to the
    next; row i of C at c + i width, written to the end of its last tile. 2 rows columns depth
    flops, columns rounded up to whole tiles. `keep` where depth is 0.
    """
    lanes = np.int64(VECTORS * BITS // (8 * C.itemsize))
    for s in range((columns + lanes - 1) // lanes):
        right, out, i = b + s * strip, c + s * lanes, 0
        if depth == 0:
            continue
        while i + HEIGHT <= rows:
            _high(A, a + i * row, row, step, depth, B, right, jump, C, out + i * width, width, keep)
            i += HEIGHT
        while i < rows:
            _low(A, a + i * row, row, step, depth, B, right, jump, C, out + i * width, width, keep)
            i += 1
