"""Small dense products at the speed of the processor: tiles of ROWS x 8 kept in registers.

Panels are kept as strips of WIDTH columns, (S, N, WIDTH): column j of an n x k matrix stands in
strip j // WIDTH, and rows and columns that are not there are zero (N is n rounded up to a multiple
of WIDTH). A strip stays in the first cache while a matrix passes by it. Tiles have eight vectors of
sums, of 512 bits where the processor has them: twice the speed of BLAS at n = 32, and no slower at
n = 512. No number depends on the length of vectors.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gradprop._kernels.vectors import (
    DOUBLE,
    INT32,
    constant,
    filled,
    has,
    intrinsic_of,
    load,
    loop,
    moved,
    multiply_add,
    shuffled,
    splat,
    store,
    written,
)

WIDTH = 8
LANES = 8 if has("avx512f") else 4
ROWS = LANES
"""Rows of a tile: each has WIDTH / LANES vectors, eight in all."""
VECTORS = WIDTH // LANES

VECTOR, INT = ir.VectorType(DOUBLE, LANES), types.int64


_STARTS = range(0, WIDTH, LANES)


def row_at(builder, pointer, i):
    """Row i of a tile, in vectors."""
    return [load(builder, VECTOR, moved(builder, pointer, WIDTH * i + c)) for c in _STARTS]


def set_row_at(builder, pointer, i, row):
    """Put vectors there."""
    for c, vector in zip(_STARTS, row, strict=True):
        store(builder, vector, moved(builder, pointer, WIDTH * i + c))


def _column(builder, sums, a, row, b):
    """sums + (column a) (row b), for a: `row` doubles between rows, b: WIDTH doubles."""
    right = row_at(builder, b, 0)
    added = []
    for r in range(ROWS):
        place = moved(builder, a, builder.mul(row, constant(r)))
        factor = splat(builder, VECTOR, builder.load(place))
        for c in range(VECTORS):
            added.append(multiply_add(builder, factor, right[c], sums[r * VECTORS + c]))
    return added


def _nothing():
    return [filled(VECTOR, 0.0)] * (ROWS * VECTORS)


def _rows_of(sums):
    return [sums[r * VECTORS : (r + 1) * VECTORS] for r in range(ROWS)]


def _tile(builder, A, a, row, step, B, b, depth, C, c):
    start = [moved(builder, A, a), moved(builder, B, b), *_nothing()]
    (A, B, *sums), close = loop(builder, depth, start)
    added = _column(builder, sums, A, row, B)
    close([moved(builder, A, step), moved(builder, B, WIDTH), *added])
    for r, values in enumerate(_rows_of(sums)):
        set_row_at(builder, moved(builder, C, c), r, values)


@intrinsic
def tile(typingctx, A, a, row, step, B, b, depth, C, c):
    """C[c:] <- ROWS x 8 tile of A[a:] B[b:] with `row` and `step` doubles between entries of A."""
    return types.void(A, INT, INT, INT, B, INT, INT, C, INT), written("tile", _tile)


def _tile_minus(builder, A, a, jump, n_strips, B, b, C, c):
    start = [moved(builder, A, a), moved(builder, B, b), *_nothing()]
    (A, B, *sums), close = loop(builder, n_strips, start)
    added = sums
    for h in range(WIDTH):
        right = moved(builder, B, WIDTH * h)
        added = _column(builder, added, moved(builder, A, h), constant(WIDTH), right)
    close([moved(builder, A, jump), moved(builder, B, WIDTH * WIDTH), *added])
    C = moved(builder, C, c)
    for r, values in enumerate(_rows_of(sums)):
        pairs = zip(row_at(builder, C, r), values, strict=True)
        set_row_at(builder, C, r, [builder.fsub(*pair) for pair in pairs])


@intrinsic
def tile_minus(typingctx, A, a, jump, n_strips, B, b, C, c):
    """C[c:] -= ROWS x 8 tile of A[a:] B[b:] over the columns of strips `jump` doubles apart."""
    return types.void(A, INT, INT, INT, B, INT, C, INT), written("tile_minus", _tile_minus)


def _tile_step(builder, M, m, step, order, first, depth, V, v, d, row, C, c):
    start = [moved(builder, order, first), *_nothing()]
    M, V, C = moved(builder, M, m), moved(builder, V, v), moved(builder, C, c)
    (order, *sums), close = loop(builder, depth, start)
    which = builder.load(order)
    right = moved(builder, V, builder.mul(which, constant(WIDTH)))
    left = moved(builder, M, builder.mul(which, step))
    close([moved(builder, order, 1), *_column(builder, sums, left, constant(1), right)])
    for r, values in enumerate(_rows_of(sums)):
        factor = splat(builder, VECTOR, builder.load(moved(builder, d, row, r)))
        set_row_at(builder, C, r, [builder.fmul(factor, value) for value in values])


@intrinsic
def tile_step(typingctx, M, m, step, order, first, depth, V, v, d, row, C, c):
    """C[c:] <- diag(d[row:]) (tile of M[m:] V[v:]) over columns and rows order[first:], `depth`.

    Columns of M are `step` doubles apart, their entries side by side.
    """
    kinds = M, INT, INT, order, INT, INT, V, INT, d, INT, C, INT
    return types.void(*kinds), written("tile_step", _tile_step)


def _solve_unit(builder, L, a, row, step, C, c):
    L, C = moved(builder, L, a), moved(builder, C, c)
    rows = [row_at(builder, C, i) for i in range(WIDTH)]
    for i in range(1, WIDTH):
        for h in range(i):
            steps = (builder.mul(by, constant(x)) for by, x in ((row, i), (step, h)))
            factor = builder.fneg(builder.load(moved(builder, L, *steps)))
            factor = splat(builder, VECTOR, factor)
            pairs = zip(rows[h], rows[i], strict=True)
            rows[i] = [multiply_add(builder, factor, *pair) for pair in pairs]
        set_row_at(builder, C, i, rows[i])


@intrinsic
def solve_unit(typingctx, L, a, row, step, C, c):
    """C[c:] <- L^-1 C[c:] for 8 rows of C and the unit lower triangle L[a:], 8 x 8.

    L has `row` and `step` doubles between entries; its diagonal and what is above are not looked
    at.
    """
    return types.void(L, INT, INT, INT, C, INT), written("solve_unit", _solve_unit)


def _lane(builder, row, i):
    """A vector of entry i of a row of vectors."""
    return shuffled(builder, row[i // LANES], None, [i % LANES] * LANES)


def _eliminate(builder, gram, unit, u, pivots, scales, p):
    unit, scales = moved(builder, unit, u), moved(builder, scales, p)
    rows, one = [row_at(builder, gram, i) for i in range(WIDTH)], filled(VECTOR, 1.0)
    for i in range(WIDTH):
        pivot = _lane(builder, rows[i], i)
        own = builder.fdiv(one, pivot)
        upper = [builder.fmul(vector, own) for vector in rows[i]]
        for j in range(i + 1, WIDTH):
            factor = builder.fneg(_lane(builder, rows[i], j))
            pairs = zip(upper, rows[j], strict=True)
            rows[j] = [multiply_add(builder, factor, *pair) for pair in pairs]
        set_row_at(builder, unit, i, upper)
        number = builder.extract_element(pivot, ir.Constant(INT32, 0))
        builder.store(number, moved(builder, pivots, i))
    for c in _STARTS:
        place = moved(builder, pivots, c)
        lengths = intrinsic_of(builder, "sqrt", load(builder, VECTOR, place))
        store(builder, lengths, place)
        store(builder, builder.fdiv(one, lengths), moved(builder, scales, c))


@intrinsic
def eliminate(typingctx, gram, unit, u, pivots, scales, p):
    """Factors of an 8 x 8 matrix gram = L D L^T: unit[u:] <- L^T, pivots (8,) <- sqrt(D).

    scales[p:] (8,) <- 1 / pivots. A pivot is not positive (or nan) where gram is not positive
    definite. Without a loop, so that little but 8 divisions one after another takes time. Below its
    diagonal unit is left with rubbish.
    """
    return types.void(gram, unit, INT, pivots, scales, INT), written("eliminate", _eliminate)


def _tile_solve(builder, unit, scales, C, c):
    C = moved(builder, C, c)
    by = row_at(builder, scales, 0)
    for r in range(ROWS):
        row = row_at(builder, C, r)
        for i in range(WIDTH - 1):
            factor = builder.fneg(_lane(builder, row, i))
            pairs = zip(row_at(builder, unit, i), row, strict=True)
            row = [multiply_add(builder, factor, *pair) for pair in pairs]
        set_row_at(builder, C, r, [builder.fmul(*pair) for pair in zip(row, by, strict=True)])


@intrinsic
def tile_solve(typingctx, unit, scales, C, c):
    """C[c:] <- C[c:] U^-1 for the triangle U = diag(1 / scales) (I + unit) and ROWS rows of C."""
    return types.void(unit, scales, C, INT), written("tile_solve", _tile_solve)


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


def _plain_tile_step(M, m, step, order, first, depth, V, v, d, row, C, c):
    which = order.ravel()[first : first + depth]
    left = M.ravel()[m + step * which + np.arange(ROWS)[:, None]]
    right = V.ravel()[v + WIDTH * which[:, None] + np.arange(WIDTH)]
    C.reshape(-1)[c : c + ROWS * WIDTH] = (d[row : row + ROWS, None] * (left @ right)).ravel()


def _plain_solve_unit(L, a, row, step, C, c):
    rows = C.reshape(-1)[c : c + WIDTH * WIDTH].reshape(WIDTH, WIDTH)
    left = L.ravel()[a + row * np.arange(WIDTH)[:, None] + step * np.arange(WIDTH)]
    for i in range(1, WIDTH):
        rows[i] -= left[i, :i] @ rows[:i]


def _plain_eliminate(gram, unit, u, pivots, scales, p):
    with np.errstate(all="ignore"):
        U = gram.copy()
        for i in range(WIDTH):
            for j in range(i + 1, WIDTH):
                U[j, j:] -= U[i, j] / U[i, i] * U[i, j:]
        pivots[:] = np.sqrt(np.diagonal(U))
        scales.reshape(-1)[p : p + WIDTH] = 1.0 / pivots
        unit.reshape(-1)[u : u + WIDTH * WIDTH] = (U / np.diagonal(U)[:, None]).ravel()


def _plain_tile_solve(unit, scales, C, c):
    rows = C.reshape(-1)[c : c + ROWS * WIDTH].reshape(ROWS, WIDTH)
    for i in range(WIDTH):
        rows[:, i + 1 :] -= rows[:, i : i + 1] * unit[i, i + 1 :]
    rows *= scales


if getattr(numba.config, "DISABLE_JIT", False):
    tile, tile_minus, tile_step = _plain_tile, _plain_tile_minus, _plain_tile_step  # type: ignore[assignment]
    solve_unit, eliminate, tile_solve = _plain_solve_unit, _plain_eliminate, _plain_tile_solve  # type: ignore[assignment]
