"""Sums of products and scalings side by side in vectors, of blocks of 32 or 8 doubles.

LLVM reorders no sum of floats, so that no loop in Python's clothes keeps partial sums in vectors.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gradprop._kernels.vectors import (
    DOUBLE,
    INT32,
    constant,
    filled,
    firsts,
    load,
    loop,
    moved,
    multiply_add,
    splat,
    store,
    written,
)

LANES, WIDTH, BLOCK = 4, 8, 32
"""Doubles of a vector, of a row of strips (see `tiles`), and of four such rows."""
FOUR = BLOCK // WIDTH

VECTOR, INT = ir.VectorType(DOUBLE, LANES), types.int64


def _vectors(builder, pointer, size):
    """Vectors of the next `size` doubles."""
    return [load(builder, VECTOR, moved(builder, pointer, at)) for at in range(0, size, LANES)]


def _sums(builder, a, b, jump, count):
    """Vectors of the sums over blocks of 32, `jump` doubles apart, of products entry by entry."""
    zero = filled(VECTOR, 0.0)
    (a, b, *sums), close = loop(builder, count, [a, b, *[zero] * (BLOCK // LANES)])
    entries = zip(_vectors(builder, a, BLOCK), _vectors(builder, b, BLOCK), sums, strict=True)
    new = [multiply_add(builder, *three) for three in entries]
    close([moved(builder, a, jump), moved(builder, b, jump), *new])
    return sums


def _block_products(builder, A, a, B, b, jump, count, out):
    sums = _sums(builder, moved(builder, A, a), moved(builder, B, b), jump, count)
    for q, total in enumerate(sums):
        store(builder, total, moved(builder, out, LANES * q))


@intrinsic
def block_products(typingctx, A, a, B, b, jump, count, out):
    """out (4, 8) <- sum of `count` blocks of A[a:] times those of B[b:], `jump` doubles apart."""
    return types.void(A, INT, B, INT, INT, INT, out), written("block_products", _block_products)


def _halved(builder, values):
    """Sum of 2^k values, by halves."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [builder.fadd(*pair) for pair in pairs]
    return values[0]


@intrinsic
def blocks_dot(typingctx, u, v, count):
    """Dot product of the first `count` blocks of 32 of u and v."""

    def emit(context, builder, signature, arguments):
        u, v, count = firsts(context, builder, signature.args, arguments)
        total = _halved(builder, _sums(builder, u, v, constant(BLOCK), count))
        lanes = [builder.extract_element(total, ir.Constant(INT32, q)) for q in range(LANES)]
        return _halved(builder, lanes)

    return types.float64(u, v, INT), emit


def _scale_row(builder, A, a, jump, count, X, x, step, factor):
    factors = splat(builder, VECTOR, factor)
    start = [moved(builder, A, a), moved(builder, X, x)]
    (row, scale), close = loop(builder, count, start)
    by = [builder.fmul(vector, factors) for vector in _vectors(builder, scale, WIDTH)]
    for q, (value, own) in enumerate(zip(_vectors(builder, row, WIDTH), by, strict=True)):
        store(builder, builder.fmul(value, own), moved(builder, row, LANES * q))
    close([moved(builder, row, jump), moved(builder, scale, step)])


@intrinsic
def scale_row(typingctx, A, a, jump, count, X, x, step, factor):
    """Eight entries at A[a + t jump] *= factor times eight at X[x + t step], for t < count."""
    kinds = A, INT, INT, INT, X, INT, INT, types.float64
    return types.void(*kinds), written("scale_row", _scale_row)


def _copy(builder, A, a, count, out, o):
    cgutils.raw_memcpy(builder, moved(builder, out, o), moved(builder, A, a), count, 8)


@intrinsic
def copy(typingctx, A, a, count, out, o):
    """out[o:] <- `count` doubles of A[a:]; they do not overlap."""
    return types.void(A, INT, INT, out, INT), written("copy", _copy)


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
