"""Sums of products and scalings side by side in vectors, of blocks of 32 or 8 doubles.

LLVM reorders no sum of floats, so that no loop in Python's clothes keeps partial sums in vectors.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES, WIDTH, BLOCK = 4, 8, 32
"""Doubles of a vector, of a row of strips (see `tiles`), and of four such rows."""
FOUR = BLOCK // WIDTH

FLOAT, WORD, HALF = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)


def _address(context, builder, array_type, array, offset):
    """Pointer to an entry of a contiguous array of doubles."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, FLOAT.as_pointer()), [offset])


def _vector(builder, pointer, lane):
    return builder.bitcast(builder.gep(pointer, [ir.Constant(WORD, lane)]), VECTOR.as_pointer())


def _load(builder, pointer, lane):
    value = builder.load(_vector(builder, pointer, lane))
    value.align = 8
    return value


def _loop(builder, count, first, emit):
    """`count` rounds (none if not positive) over values (type, start): emit gives the next ones."""
    before = builder.block
    body, after = (builder.append_basic_block(f"lanes.{name}") for name in ("loop", "done"))
    first = [(WORD, ir.Constant(WORD, 0)), *first]
    builder.cbranch(builder.icmp_signed(">", count, ir.Constant(WORD, 0)), body, after)
    builder.position_at_end(body)
    carried = [builder.phi(kind) for kind, _ in first]
    following = [builder.add(carried[0], ir.Constant(WORD, 1)), *emit(*carried[1:])]
    builder.cbranch(builder.icmp_signed("<", following[0], count), body, after)
    builder.position_at_end(after)
    found = [builder.phi(kind) for kind, _ in first]
    for inside, outside, (_, start), new in zip(carried, found, first, following, strict=True):
        inside.add_incoming(start, before)
        inside.add_incoming(new, body)
        outside.add_incoming(start, before)
        outside.add_incoming(new, body)
    return found[1:]


def _sums(builder, a, b, jump, count):
    """Vectors of the sums over blocks of 32, `jump` doubles apart, of products entry by entry."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
    pointer, zero = FLOAT.as_pointer(), ir.Constant(VECTOR, [0.0] * LANES)

    def emit(a, b, *sums):
        new = [
            builder.call(fused, [_load(builder, a, LANES * q), _load(builder, b, LANES * q), total])
            for q, total in enumerate(sums)
        ]
        return [builder.gep(a, [jump]), builder.gep(b, [jump]), *new]

    first = [(pointer, a), (pointer, b), *[(VECTOR, zero)] * (BLOCK // LANES)]
    return _loop(builder, count, first, emit)[2:]


@intrinsic
def block_products(typingctx, A, a, B, b, jump, count, out):
    """out (4, 8) <- sum of `count` blocks of A[a:] times those of B[b:], `jump` doubles apart."""

    def emit(context, builder, signature, arguments):
        left, right = (
            _address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 2)
        )
        zero = ir.Constant(WORD, 0)
        place = _address(context, builder, signature.args[6], arguments[6], zero)
        for q, total in enumerate(_sums(builder, left, right, arguments[4], arguments[5])):
            builder.store(total, _vector(builder, place, LANES * q)).align = 8
        return context.get_dummy_value()

    i = types.int64
    return types.void(A, i, B, i, i, i, out), emit


@intrinsic
def blocks_dot(typingctx, u, v, count):
    """Dot product of the first `count` blocks of 32 of u and v."""

    def emit(context, builder, signature, arguments):
        zero = ir.Constant(WORD, 0)
        left, right = (
            _address(context, builder, signature.args[i], arguments[i], zero) for i in (0, 1)
        )
        sums = _sums(builder, left, right, ir.Constant(WORD, BLOCK), arguments[2])
        while len(sums) > 1:
            sums = [builder.fadd(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
        parts = [builder.extract_element(sums[0], ir.Constant(HALF, q)) for q in range(LANES)]
        while len(parts) > 1:
            parts = [builder.fadd(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return types.float64(u, v, types.int64), emit


@intrinsic
def scale_row(typingctx, A, a, jump, count, X, x, step, factor):
    """Eight entries at A[a + t jump] *= factor times eight at X[x + t step], for t < count."""

    def emit(context, builder, signature, arguments):
        row, scale = (
            _address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 4)
        )
        jump, count, step, factor = (arguments[i] for i in (2, 3, 6, 7))
        none = ir.Constant(VECTOR, ir.Undefined)
        first = builder.insert_element(none, factor, ir.Constant(HALF, 0))
        mask = ir.Constant(ir.VectorType(HALF, LANES), [0] * LANES)
        factors = builder.shuffle_vector(first, none, mask)

        def emit_row(row, scale):
            values = [
                builder.fmul(
                    _load(builder, row, lane), builder.fmul(_load(builder, scale, lane), factors)
                )
                for lane in range(0, WIDTH, LANES)
            ]
            for q, value in enumerate(values):
                builder.store(value, _vector(builder, row, LANES * q)).align = 8
            return [builder.gep(row, [jump]), builder.gep(scale, [step])]

        pointer = FLOAT.as_pointer()
        _loop(builder, count, [(pointer, row), (pointer, scale)], emit_row)
        return context.get_dummy_value()

    i = types.int64
    return types.void(A, i, i, i, X, i, i, types.float64), emit


@intrinsic
def copy(typingctx, A, a, count, out, o):
    """out[o:] <- `count` doubles of A[a:]; they do not overlap."""

    def emit(context, builder, signature, arguments):
        source, target = (
            _address(context, builder, signature.args[i], arguments[i], arguments[j])
            for i, j in ((0, 1), (3, 4))
        )
        cgutils.raw_memcpy(builder, target, source, arguments[2], 8)
        return context.get_dummy_value()

    i = types.int64
    return types.void(A, i, i, out, i), emit


def _plain_block_products(A, a, B, b, jump, count, out):
    places = jump * np.arange(count)[:, None] + np.arange(BLOCK)
    out.reshape(-1)[:] = (A.ravel()[a + places] * B.ravel()[b + places]).sum(axis=0)


def _plain_blocks_dot(u, v, count):
    return u[: BLOCK * count] @ v[: BLOCK * count]


def _plain_scale_row(A, a, jump, count, X, x, step, factor):
    entries = A.reshape(-1)
    for t in range(count):
        scale = X.ravel()[x + t * step :][:WIDTH]
        entries[a + t * jump : a + t * jump + WIDTH] *= scale * factor


def _plain_copy(A, a, count, out, o):
    out.reshape(-1)[o : o + count] = A.ravel()[a : a + count]


if getattr(numba.config, "DISABLE_JIT", False):
    plain = (_plain_block_products, _plain_blocks_dot, _plain_scale_row, _plain_copy)
    block_products, blocks_dot, scale_row, copy = plain  # type: ignore[assignment]
