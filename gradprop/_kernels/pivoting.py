"""Elimination of eight columns with row interchanges, in vectors along the columns.

A strip is turned round for it, so that looking for the largest entry and the updates behind it need
one pass over the columns for each pivot.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gradprop._kernels.tiles import INT, LANES, ROWS, VECTOR, VECTORS, WIDTH, row_at, set_row_at
from gradprop._kernels.vectors import (
    INT32,
    INT64,
    constant,
    filled,
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

NUMBERS = ir.VectorType(INT64, LANES)
COUNTING = ir.Constant(NUMBERS, list(range(LANES)))
MARK = 2**20 - 1
"""Most rows. The last bits of a magnitude make room for the row: one number says which is largest,
the upper one where two differ by less than 2**-32."""


def _mark(builder, values, rows):
    """Magnitudes as integers, with MARK - row in their last bits."""
    size = builder.and_(builder.bitcast(values, NUMBERS), filled(NUMBERS, 2**63 - 1 - MARK))
    return builder.or_(size, builder.sub(filled(NUMBERS, MARK), rows))


def _larger(builder, a, b):
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _row_of_largest(builder, marks):
    """The row of the largest magnitude of all lanes."""
    distance = 1
    while distance < LANES:
        lanes = [i ^ distance for i in range(LANES)]
        marks = _larger(builder, marks, shuffled(builder, marks, None, lanes))
        distance *= 2
    mark = builder.extract_element(marks, ir.Constant(INT32, 0))
    return builder.sub(constant(MARK), builder.and_(mark, constant(MARK)))


def _next(builder, at, rows):
    return builder.add(at, constant(LANES)), builder.add(rows, filled(NUMBERS, LANES))


def _search(builder, column, alive, count):
    """The row of the largest magnitude in a column of `count` vectors. All rows come to life."""
    first = [constant(0), COUNTING, filled(NUMBERS, 0)]
    (at, rows, largest), close = loop(builder, count, first)
    store(builder, filled(NUMBERS, 1), moved(builder, alive, at))
    marks = _mark(builder, load(builder, VECTOR, moved(builder, column, at)), rows)
    close([*_next(builder, at, rows), _larger(builder, marks, largest)])
    return _row_of_largest(builder, largest)


def _living(builder, alive, at, rows, row):
    """Lanes that are alive and not `row`, which dies; and the lane that is."""
    place = moved(builder, alive, at)
    own = builder.icmp_signed("==", rows, row)
    left = builder.select(own, filled(NUMBERS, 0), load(builder, NUMBERS, place))
    store(builder, left, place)
    return builder.icmp_signed("!=", left, filled(NUMBERS, 0)), own


def _reduce(builder, columns, alive, row, count):
    """Divide the first column by its entry in `row`, take it out of the others.

    Returns that entry, and the row of the largest entry left in the next column.
    """
    top = [builder.load(moved(builder, column, row)) for column in columns]
    inverse = splat(builder, VECTOR, builder.fdiv(ir.Constant(top[0].type, 1.0), top[0]))
    factors = [splat(builder, VECTOR, builder.fneg(value)) for value in top[1:]]
    chosen, one, none = splat(builder, NUMBERS, row), filled(VECTOR, 1.0), filled(VECTOR, 0.0)
    first = [constant(0), COUNTING, filled(NUMBERS, 0)]
    (at, rows, largest), close = loop(builder, count, first)
    living, own = _living(builder, alive, at, rows, chosen)
    value = load(builder, VECTOR, moved(builder, columns[0], at))
    part = builder.select(living, builder.fmul(value, inverse), none)
    store(builder, builder.select(own, one, part), moved(builder, columns[0], at))
    found = largest
    for i, (column, factor) in enumerate(zip(columns[1:], factors, strict=True)):
        place = moved(builder, column, at)
        left = multiply_add(builder, part, factor, load(builder, VECTOR, place))
        store(builder, left, place)
        if i == 0:
            marks = _mark(builder, left, rows)
            found = builder.select(living, _larger(builder, marks, largest), largest)
    close([*_next(builder, at, rows), found])
    return top[0], _row_of_largest(builder, largest) if factors else None


def _pivot_columns(builder, columns, stride, length, alive, chosen, pivots, first):
    count, pivots = builder.sdiv(length, constant(LANES)), moved(builder, pivots, first)
    columns = [moved(builder, columns, builder.mul(stride, constant(c))) for c in range(WIDTH)]
    row = _search(builder, columns[0], alive, count)
    for c in range(WIDTH):
        builder.store(row, moved(builder, chosen, c))
        pivot, row = _reduce(builder, columns[c:], alive, row, count)
        builder.store(pivot, moved(builder, pivots, c))


@intrinsic
def pivot_columns(typingctx, columns, stride, length, alive, chosen, pivots, first):
    """Columns (8, length), `stride` apart, <- L of A = L U, its rows where those of A stand.

    Pivot c, pivots[first + c] = U_cc, is found in row chosen[c], the largest of what is left in its
    column: L is 1 there, and 0 behind. alive (length,) is overwritten. Rows come in vectors: length
    is a multiple of 8. A pivot of zero leaves no number in its column and those behind.
    """
    kinds = columns, INT, INT, alive, chosen, pivots, INT
    return types.void(*kinds), written("pivot_columns", _pivot_columns)


def _turned(builder, rows):
    """Transpose LANES vectors: pairs of rows, then pairs of pairs ... change their halves."""
    distance = 1
    while distance < LANES:
        low = [i + LANES * bool(i & distance) - bool(i & distance) * distance for i in range(LANES)]
        high = [i + distance for i in low]
        for i in range(LANES):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                rows[i] = shuffled(builder, *pair, low)
                rows[i + distance] = shuffled(builder, *pair, high)
        distance *= 2
    return rows


def _left(builder, L, jump, n_strips, order, at, P, p, U):
    """Rows of a strip of P less L U, in vectors, for the first eight arguments of `left_rows`."""
    order, P = moved(builder, order, at), moved(builder, P, p)
    steps = [
        builder.mul(builder.load(moved(builder, order, r)), constant(WIDTH)) for r in range(ROWS)
    ]
    old = [row_at(builder, moved(builder, P, step), 0) for step in steps]
    start = [*(moved(builder, L, step) for step in steps), U]
    start += [filled(VECTOR, 0.0)] * (ROWS * VECTORS)
    values, close = loop(builder, n_strips, start)
    rows, U, sums = values[:ROWS], values[ROWS], values[ROWS + 1 :]
    added = sums
    for h in range(WIDTH):
        right = row_at(builder, U, h)
        factors = [splat(builder, VECTOR, builder.load(moved(builder, x, h))) for x in rows]
        added = [
            multiply_add(builder, factors[i // VECTORS], right[i % VECTORS], total)
            for i, total in enumerate(added)
        ]
    following = [moved(builder, row, jump) for row in rows]
    close([*following, moved(builder, U, WIDTH * WIDTH), *added])
    return [
        [builder.fsub(old[r][v], sums[r * VECTORS + v]) for v in range(VECTORS)]
        for r in range(ROWS)
    ]


def _left_rows(builder, L, jump, n_strips, order, at, P, p, U, out):
    rows = _left(builder, L, jump, n_strips, order, at, P, p, U)
    out = moved(builder, out, builder.mul(at, constant(WIDTH)))
    for r, row in enumerate(rows):
        set_row_at(builder, out, r, row)


@intrinsic
def left_rows(typingctx, L, jump, n_strips, order, at, P, p, U, out):
    """Rows order[at:] of P[p:], ROWS of them, less L U over strips of L `jump` doubles apart.

    They go into rows at, at + 1 ... of `out`, which may be U.
    """
    kinds = L, INT, INT, order, INT, P, INT, U, out
    return types.void(*kinds), written("left_rows", _left_rows)


def _left_columns(builder, L, jump, n_strips, order, at, P, p, U, columns, stride, first):
    rows = _left(builder, L, jump, n_strips, order, at, P, p, U)
    out = moved(builder, columns, first)
    for v in range(VECTORS):
        for i, column in enumerate(_turned(builder, [row[v] for row in rows])):
            step = builder.mul(stride, constant(v * LANES + i))
            store(builder, column, moved(builder, out, step))


@intrinsic
def left_columns(typingctx, L, jump, n_strips, order, at, P, p, U, columns, stride, first):
    """As `left_rows`, but into columns `stride` doubles apart, from their entry `first` on."""
    kinds = L, INT, INT, order, INT, P, INT, U, columns, INT, INT
    return types.void(*kinds), written("left_columns", _left_columns)


def _to_rows(builder, columns, stride, length, order, at, P, p):
    count, P = builder.sdiv(length, constant(LANES)), moved(builder, P, p)
    (columns, order), close = loop(builder, count, [columns, moved(builder, order, at)])
    parts = []
    for v in range(VECTORS):
        steps = [builder.mul(stride, constant(v * LANES + i)) for i in range(LANES)]
        along = [load(builder, VECTOR, moved(builder, columns, step)) for step in steps]
        parts.append(_turned(builder, along))
    for i, row in enumerate(zip(*parts, strict=True)):
        which = builder.mul(builder.load(moved(builder, order, i)), constant(WIDTH))
        set_row_at(builder, moved(builder, P, which), 0, row)
    close([moved(builder, columns, LANES), moved(builder, order, LANES)])


@intrinsic
def to_rows(typingctx, columns, stride, length, order, at, P, p):
    """Rows order[at:], `length` of them, of the strip P[p:] <- entries of the columns."""
    kinds = columns, INT, INT, order, INT, P, INT
    return types.void(*kinds), written("to_rows", _to_rows)


def _larger_size(builder, values, largest):
    size = intrinsic_of(builder, "fabs", values)
    return builder.select(builder.fcmp_ordered(">", size, largest), size, largest)


def _row_sizes(builder, P, n_strips, length, sizes):
    jump = builder.mul(length, constant(WIDTH))
    count = builder.sdiv(length, constant(LANES))
    (rows, sizes), close = loop(builder, count, [P, sizes])
    start = [rows, *[filled(VECTOR, 0.0)] * LANES]
    (strip, *largest), close_inner = loop(builder, n_strips, start)
    found = largest
    for v in range(VECTORS):
        places = [moved(builder, strip, WIDTH * i + v * LANES) for i in range(LANES)]
        found = [
            _larger_size(builder, load(builder, VECTOR, place), old)
            for place, old in zip(places, found, strict=True)
        ]
    close_inner([moved(builder, strip, jump), *found])
    turned = _turned(builder, largest)
    while len(turned) > 1:
        pairs = zip(turned[::2], turned[1::2], strict=True)
        turned = [_larger_size(builder, *pair) for pair in pairs]
    store(builder, turned[0], sizes)
    close([moved(builder, rows, WIDTH * LANES), moved(builder, sizes, LANES)])


@intrinsic
def row_sizes(typingctx, P, n_strips, length, sizes):
    """sizes (length,) <- largest magnitude in each row of P (n_strips, length, 8)."""
    return types.void(P, INT, INT, sizes), written("row_sizes", _row_sizes)


def _plain_pivot_columns(columns, stride, length, alive, chosen, pivots, first):
    A = columns.reshape(-1)[: WIDTH * stride].reshape(WIDTH, stride)[:, :length]
    alive[:length] = 1
    with np.errstate(all="ignore"):
        for c in range(WIDTH):
            marks = np.abs(A[c]).view(np.int64) & ~MARK | MARK - np.arange(length)
            row = int(np.argmax(np.where(alive[:length] != 0, marks, 0)))
            chosen[c], alive[row], pivots[first + c] = row, 0, A[c, row]
            part = np.where(alive[:length] != 0, A[c] / A[c, row], 0.0)
            A[c + 1 :] -= A[c + 1 :, row, None] * part
            A[c], A[c, row] = part, 1.0


def _plain_left(L, jump, n_strips, order, at, P, p, U):
    which = WIDTH * order[at : at + ROWS, None] + np.arange(WIDTH)
    rows = P.ravel()[p + which]
    for s in range(n_strips):
        rows -= L.ravel()[s * jump + which] @ U[s * WIDTH : (s + 1) * WIDTH]
    return rows


def _plain_left_rows(L, jump, n_strips, order, at, P, p, U, out):
    out[at : at + ROWS] = _plain_left(L, jump, n_strips, order, at, P, p, U)


def _plain_left_columns(L, jump, n_strips, order, at, P, p, U, columns, stride, first):
    rows = _plain_left(L, jump, n_strips, order, at, P, p, U)
    columns.reshape(WIDTH, stride)[:, first : first + ROWS] = rows.T


def _plain_to_rows(columns, stride, length, order, at, P, p):
    which = p + WIDTH * order[at : at + length, None] + np.arange(WIDTH)
    P.reshape(-1)[which] = columns.reshape(WIDTH, stride)[:, :length].T


def _plain_row_sizes(P, n_strips, length, sizes):
    sizes.reshape(-1)[:length] = np.abs(P.reshape(n_strips, length, WIDTH)).max(axis=(0, 2))


if getattr(numba.config, "DISABLE_JIT", False):
    pivot_columns, row_sizes = _plain_pivot_columns, _plain_row_sizes  # type: ignore[assignment]
    left_rows, left_columns = _plain_left_rows, _plain_left_columns  # type: ignore[assignment]
    to_rows = _plain_to_rows  # type: ignore[assignment]
