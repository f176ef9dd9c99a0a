"""Products of small matrices at the speed of the processor, by tiles kept in its registers.

The right factor is read `width_of(dtype)` columns at a time: by strips of that many (`strips`), or
from rows padded to a multiple of it. So no call packs anything, which takes BLAS a third of the
time where few rows meet a large matrix. Each entry is summed over k ascending, from zero: no number
depends on what else is computed, nor on the number of rows.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from .jit import jit
from .vectors import INT32, constant, firsts, has, load, moved, multiply_add, splat, store

# 8 x 2 registers of AVX-512, or 4 x 2 of the 16 of older ones: as many sums as hide what one takes.
HEIGHT, BITS = (8, 512) if has("avx512f") else (4, 256)
VECTORS = 2


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
        self.context, self.builder = context, builder
        self.args = firsts(context, builder, sig.args, args)
        dtype = sig.args[0].dtype
        self.vector = ir.VectorType(context.get_data_type(dtype), BITS // dtype.bitwidth)

    def at(self, position, offset):
        """Pointer to an entry of an array among the arguments."""
        return moved(self.builder, self.args[position], self.args[offset])

    def places(self, pointer):
        """Pointers to the vectors of one row."""
        return [moved(self.builder, pointer, v * self.vector.count) for v in range(VECTORS)]

    def row(self, pointer):
        return [load(self.builder, self.vector, place) for place in self.places(pointer)]

    def sums(self, a, rows, step, b, jump, depth):
        """The loop over k > 0 terms: the vectors of each row."""
        builder, before = self.builder, self.builder.block
        body, after = (builder.append_basic_block(f"product.{name}") for name in ("sum", "done"))
        builder.branch(body)
        builder.position_at_end(body)
        k, left, right = (builder.phi(kind) for kind in (depth.type, a.type, b.type))
        sums = [[builder.phi(self.vector) for _ in range(VECTORS)] for _ in rows]
        new, factors = [], self.row(right)
        for offset, totals in zip(rows, sums, strict=True):
            x = splat(builder, self.vector, builder.load(moved(builder, left, offset)))
            pairs = zip(factors, totals, strict=True)
            new.append([multiply_add(builder, x, *pair) for pair in pairs])
        following = builder.add(k, constant(1))
        carried = [(k, constant(0), following)]
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
            [builder.mul(stride, constant(i)) for i in range(height)] for stride in (row, width)
        )
        sums = self.sums(self.at(0, 1), rows, step, self.at(5, 6), jump, depth)
        out = self.at(8, 9)
        pointers = [builder.gep(out, [offset]) for offset in outs]
        kept = self.kept(keep, pointers)
        for pointer, totals, old in zip(pointers, sums, kept, strict=True):
            for place, total, start in zip(self.places(pointer), totals, old, strict=True):
                store(builder, builder.fadd(start, total), place)
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
        byte = ir.IntType(8).as_pointer()
        place = moved(builder, *firsts(context, builder, sig.args, args))
        kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        how = (ir.Constant(INT32, i) for i in (0, 3, 1))
        builder.call(prefetch, [builder.bitcast(place, byte), *how])
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
