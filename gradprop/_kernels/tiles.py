"""Small dense products at the speed of the processor: tiles of 4 x 8 kept in registers.

Panels are kept as strips of WIDTH columns, (S, N, WIDTH): column j of an n x k matrix stands in
strip j // WIDTH, and rows and columns that are not there are zero (N is n rounded up to a multiple
of ROWS). A strip stays in the first cache while a matrix passes by it. The tile is written in
vectors, since no loop in Python's clothes keeps its sums in registers: twice the speed of BLAS at
n = 32, and no slower at n = 512.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROWS, WIDTH, LANES = 4, 8, 4
VECTORS = WIDTH // LANES

FLOAT, WORD, HALF = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)


def _address(context, builder, array_type, array, offset):
    """Pointer to an entry of a contiguous array of doubles."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, FLOAT.as_pointer()), [offset])


def _vector(builder, pointer, lane):
    """Pointer to the vector that starts `lane` doubles behind a pointer."""
    moved = builder.gep(pointer, [ir.Constant(WORD, lane)])
    return builder.bitcast(moved, VECTOR.as_pointer())


def _load(builder, pointer, lane):
    value = builder.load(_vector(builder, pointer, lane))
    value.align = 8
    return value


def _spread(builder, scalar):
    """A vector of one number."""
    none = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(none, scalar, ir.Constant(HALF, 0))
    return builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(HALF, LANES), [0] * LANES))


def _fma(builder):
    """Multiply and add vectors; fused where the processor can."""
    signature = ir.FunctionType(VECTOR, [VECTOR] * 3)
    name = f"llvm.fmuladd.v{LANES}f64"
    return cgutils.get_or_insert_function(builder.module, signature, name)


def _column(builder, fused, sums, a, row, b):
    """sums + (column a) (row b), for a: `row` doubles between rows, b: WIDTH doubles."""
    right = [_load(builder, b, LANES * c) for c in range(VECTORS)]
    added = []
    for r in range(ROWS):
        factor = builder.load(builder.gep(a, [builder.mul(row, ir.Constant(WORD, r))]))
        factor = _spread(builder, factor)
        for c in range(VECTORS):
            added.append(builder.call(fused, [factor, right[c], sums[r * VECTORS + c]]))
    return added


def _loop(builder, count, first):
    """Open a loop of `count` > 0 rounds over values (type, start).

    Returns the values and what closes the loop, given those of the next round.
    """
    before = builder.block
    body, after = (builder.append_basic_block(f"tile.{name}") for name in ("loop", "done"))
    builder.branch(body)
    builder.position_at_end(body)
    carried = []
    for kind, start in ((WORD, ir.Constant(WORD, 0)), *first):
        carried.append(builder.phi(kind))
        carried[-1].add_incoming(start, before)

    def close(following):
        n = builder.add(carried[0], ir.Constant(WORD, 1))
        for value, new in zip(carried, [n, *following], strict=True):
            value.add_incoming(new, builder.block)
        builder.cbranch(builder.icmp_signed("<", n, count), body, after)
        builder.position_at_end(after)

    return carried[1:], close


def _sums(builder, a, row, step, b, depth):
    """The 4 x 8 sums of a product over `depth` columns of a and rows of b."""
    pointer, zero = FLOAT.as_pointer(), ir.Constant(VECTOR, [0.0] * LANES)
    start = [(pointer, a), (pointer, b), *[(VECTOR, zero)] * (ROWS * VECTORS)]
    (a, b, *sums), close = _loop(builder, depth, start)
    sums = _column(builder, _fma(builder), sums, a, row, b)
    close([builder.gep(a, [step]), builder.gep(b, [ir.Constant(WORD, WIDTH)]), *sums])
    return sums


def _sums_over_strips(builder, a, jump, b, n_strips):
    """The same over all columns of some strips, `jump` doubles apart."""
    pointer, zero = FLOAT.as_pointer(), ir.Constant(VECTOR, [0.0] * LANES)
    start = [(pointer, a), (pointer, b), *[(VECTOR, zero)] * (ROWS * VECTORS)]
    (a, b, *sums), close = _loop(builder, n_strips, start)
    here, fused, row = a, _fma(builder), ir.Constant(WORD, WIDTH)
    for _ in range(WIDTH):
        sums = _column(builder, fused, sums, here, row, b)
        here = builder.gep(here, [ir.Constant(WORD, 1)])
        b = builder.gep(b, [ir.Constant(WORD, WIDTH)])
    close([builder.gep(a, [jump]), b, *sums])
    return sums


def _each(builder, out, sums, new):
    """Store new(row, sum, vector pointer) for every vector of the tile at `out`."""
    for r in range(ROWS):
        for c in range(VECTORS):
            place = _vector(builder, out, WIDTH * r + LANES * c)
            builder.store(new(r, sums[r * VECTORS + c], place), place).align = 8


@intrinsic
def tile(typingctx, A, a, row, step, B, b, depth, C, c):
    """C[c:] <- 4 x 8 tile of A[a:] B[b:], where A has `row` and `step` doubles between entries."""

    def emit(context, builder, signature, arguments):
        left, right, out = (
            _address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 4, 7)
        )
        sums = _sums(builder, left, arguments[2], arguments[3], right, arguments[6])
        _each(builder, out, sums, lambda r, total, place: total)
        return context.get_dummy_value()

    i = types.int64
    return types.void(A, i, i, i, B, i, i, C, i), emit


@intrinsic
def tile_minus(typingctx, A, a, jump, n_strips, B, b, C, c):
    """C[c:] -= 4 x 8 tile of A[a:] B[b:] over the columns of strips `jump` doubles apart."""

    def emit(context, builder, signature, arguments):
        left, right, out = (
            _address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 4, 6)
        )
        sums = _sums_over_strips(builder, left, arguments[2], right, arguments[3])

        def less(r, total, place):
            old = builder.load(place)
            old.align = 8
            return builder.fsub(old, total)

        _each(builder, out, sums, less)
        return context.get_dummy_value()

    i = types.int64
    return types.void(A, i, i, i, B, i, C, i), emit


@intrinsic
def tile_step(typingctx, M, m, V, v, depth, d, row, keep, C, c):
    """C[c:] <- diag(d[row:]) (tile of M[m:] V[v:]) + keep V[v + 8 row:], M packed in tiles."""

    def emit(context, builder, signature, arguments):
        left, right, scale, out = (
            _address(context, builder, signature.args[i], arguments[i], arguments[i + 1])
            for i in (0, 2, 5, 8)
        )
        depth, row, keep = (arguments[i] for i in (4, 6, 7))
        one, rows = ir.Constant(WORD, 1), ir.Constant(WORD, ROWS)
        sums = _sums(builder, left, one, rows, right, depth)
        before = builder.gep(right, [builder.mul(row, ir.Constant(WORD, WIDTH))])
        fused, kept = _fma(builder), _spread(builder, keep)
        scales = [
            _spread(builder, builder.load(builder.gep(scale, [ir.Constant(WORD, r)])))
            for r in range(ROWS)
        ]
        values = []
        for r in range(ROWS):
            for vector in range(VECTORS):
                old = _load(builder, before, WIDTH * r + LANES * vector)
                scaled = builder.fmul(scales[r], sums[r * VECTORS + vector])
                values.append(builder.call(fused, [kept, old, scaled]))
        _each(builder, out, values, lambda r, value, place: value)
        return context.get_dummy_value()

    i = types.int64
    return types.void(M, i, V, i, i, d, i, types.float64, C, i), emit


def _lane(builder, vectors, i):
    """A vector of entry i of a row of vectors."""
    none, lanes = ir.Constant(VECTOR, ir.Undefined), [i % LANES] * LANES
    mask = ir.Constant(ir.VectorType(HALF, LANES), lanes)
    return builder.shuffle_vector(vectors[i // LANES], none, mask)


def _forward(builder, rows):
    """LDL^T by row operations: the rows of L^T, and D in vectors."""
    fused, one = _fma(builder), ir.Constant(VECTOR, [1.0] * LANES)
    unit, diagonal = [], [ir.Constant(VECTOR, ir.Undefined)] * VECTORS
    for i in range(WIDTH):
        pivot = _lane(builder, rows[i], i)
        own = builder.fdiv(one, pivot)
        unit.append([builder.fmul(vector, own) for vector in rows[i]])
        number = builder.extract_element(pivot, ir.Constant(HALF, 0))
        at = ir.Constant(HALF, i % LANES)
        diagonal[i // LANES] = builder.insert_element(diagonal[i // LANES], number, at)
        for j in range(i + 1, WIDTH):
            factor = builder.fneg(_lane(builder, rows[i], j))
            for c in range(j // LANES, VECTORS):
                rows[j][c] = builder.call(fused, [factor, unit[i][c], rows[j][c]])
    return unit, diagonal


def _above(i):
    """Masks of the entries behind entry i of a row."""
    lanes = [[1.0 * (LANES * c + h > i) for h in range(LANES)] for c in range(VECTORS)]
    return [ir.Constant(VECTOR, own) for own in lanes]


@intrinsic
def eliminate(typingctx, gram, unit, pivots, scales):
    """Factors of an 8 x 8 matrix gram = L D L^T: unit <- L^T - I, pivots (8,) <- sqrt(D).

    scales (8,) <- 1 / pivots. A pivot is not positive (or nan) where gram is not positive definite.
    Without a loop, so that little but 8 divisions one after another takes time.
    """

    def emit(context, builder, signature, arguments):
        zero = ir.Constant(WORD, 0)
        gram, unit, pivots, scales = (
            _address(context, builder, kind, array, zero)
            for kind, array in zip(signature.args, arguments, strict=True)
        )
        lanes = [LANES * c for c in range(VECTORS)]
        rows = [[_load(builder, gram, WIDTH * i + c) for c in lanes] for i in range(WIDTH)]
        upper, diagonal = _forward(builder, rows)
        kind = ir.FunctionType(VECTOR, [VECTOR])
        root = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f64")
        one = ir.Constant(VECTOR, [1.0] * LANES)
        for c, vector in zip(lanes, diagonal, strict=True):
            pivot = builder.call(root, [vector])
            builder.store(pivot, _vector(builder, pivots, c)).align = 8
            builder.store(builder.fdiv(one, pivot), _vector(builder, scales, c)).align = 8
        for i, row in enumerate(upper):
            for c, vector, mask in zip(lanes, row, _above(i), strict=True):
                place = _vector(builder, unit, WIDTH * i + c)
                builder.store(builder.fmul(vector, mask), place).align = 8
        return context.get_dummy_value()

    return types.void(gram, unit, pivots, scales), emit


@intrinsic
def tile_solve(typingctx, unit, scales, C, c):
    """C[c:] <- C[c:] U^-1 for the triangle U = diag(1 / scales) (I + unit) and ROWS rows of C."""

    def emit(context, builder, signature, arguments):
        zero = ir.Constant(WORD, 0)
        unit, scales = (
            _address(context, builder, signature.args[i], arguments[i], zero) for i in range(2)
        )
        out = _address(context, builder, signature.args[2], arguments[2], arguments[3])
        fused, values = _fma(builder), []
        for r in range(ROWS):
            row = [_load(builder, out, WIDTH * r + LANES * v) for v in range(VECTORS)]
            for i in range(WIDTH - 1):
                factor = builder.fneg(_lane(builder, row, i))
                for v in range((i + 1) // LANES, VECTORS):
                    right = _load(builder, unit, WIDTH * i + LANES * v)
                    row[v] = builder.call(fused, [factor, right, row[v]])
            values += [
                builder.fmul(vector, _load(builder, scales, LANES * v))
                for v, vector in enumerate(row)
            ]
        _each(builder, out, values, lambda r, value, place: value)
        return context.get_dummy_value()

    return types.void(unit, scales, C, types.int64), emit


def _plain_tile(A, a, row, step, B, b, depth, C, c):
    left = A.ravel()[a + row * np.arange(ROWS)[:, None] + step * np.arange(depth)]
    right = B.ravel()[b : b + WIDTH * depth].reshape(depth, WIDTH)
    C.reshape(-1)[c : c + ROWS * WIDTH] = (left @ right).ravel()


def _plain_tile_minus(A, a, jump, n_strips, B, b, C, c):
    out = C.reshape(-1)[c : c + ROWS * WIDTH]
    for s in range(n_strips):
        left = A.ravel()[a + s * jump :][: ROWS * WIDTH].reshape(ROWS, WIDTH)
        right = B.ravel()[b + s * WIDTH**2 :][: WIDTH**2].reshape(WIDTH, WIDTH)
        out -= (left @ right).ravel()


def _plain_tile_step(M, m, V, v, depth, d, row, keep, C, c):
    _plain_tile(M, m, 1, ROWS, V, v, depth, C, c)
    out = C.reshape(-1)[c : c + ROWS * WIDTH].reshape(ROWS, WIDTH)
    out *= d[row : row + ROWS, None]
    out += keep * V.ravel()[v + WIDTH * row :][: ROWS * WIDTH].reshape(ROWS, WIDTH)


def _plain_eliminate(gram, unit, pivots, scales):
    with np.errstate(all="ignore"):
        U = gram.copy()
        for i in range(WIDTH):
            for j in range(i + 1, WIDTH):
                U[j, j:] -= U[i, j] / U[i, i] * U[i, j:]
        pivots[:] = np.sqrt(np.diagonal(U))
        scales[:] = 1.0 / pivots
        unit[:] = np.triu(U, 1) / np.diagonal(U)[:, None]


def _plain_tile_solve(unit, scales, C, c):
    rows = C.reshape(-1)[c : c + ROWS * WIDTH].reshape(ROWS, WIDTH)
    for i in range(WIDTH):
        rows[:, i + 1 :] -= rows[:, i : i + 1] * unit[i, i + 1 :]
    rows *= scales


if getattr(numba.config, "DISABLE_JIT", False):
    plain = (_plain_tile, _plain_tile_minus, _plain_tile_step, _plain_eliminate, _plain_tile_solve)
    tile, tile_minus, tile_step, eliminate, tile_solve = plain  # type: ignore[assignment]
