"""Products by register tiles against NumPy, exactly where numbers are small integers."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from helpers import same
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels import gemm
from gradprop._kernels.jit import FALSE, ONE, TRUE, ZERO

DTYPES = (np.float32, np.float64)
SIZES = st.integers(1, 40)


def integers(rng, *shape, dtype):
    """Matrices whose products are exact in either dtype, whatever the order of the sum."""
    return rng.integers(-8, 9, shape).astype(dtype)


def padded_rows(array):
    out = np.zeros((len(array), gemm.padded(array.shape[1], array.dtype)), array.dtype)
    out[:, : array.shape[1]] = array
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=SIZES, depth=SIZES, columns=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_strips_and_rows_give_the_product(dtype, rows, depth, columns, seed):
    rng = np.random.default_rng(seed)
    A, B = integers(rng, rows, depth, dtype=dtype), integers(rng, depth, columns, dtype=dtype)
    strips, width = gemm.strips(B), gemm.width_of(dtype)
    start = integers(rng, rows, gemm.padded(columns, dtype), dtype=dtype)
    p, flat, transposed = start.shape[1], A.ravel(), A.T.ravel()
    for keep in (TRUE, FALSE):
        expected = A @ B + keep * start[:, :columns]
        for left, row, step in ((flat, depth, ONE), (transposed, ONE, rows)):
            for right, jump, strip in (
                (strips, width, depth * width),
                (padded_rows(B), p, width),
            ):
                out = start.copy()
                gemm.product(
                    rows, columns, left, ZERO, row, step, depth, right.ravel(), ZERO, jump, strip,
                    out.reshape(-1), ZERO, p, keep,
                )  # fmt: skip
                assert same(out[:, :columns], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_offsets_pick_parts_of_arrays(dtype):
    rng = np.random.default_rng(1)
    A, B = integers(rng, 20, 30, dtype=dtype), integers(rng, 30, 9, dtype=dtype)
    width, row = gemm.width_of(dtype), gemm.padded(9, dtype)
    out = np.full((14, row), 7, dtype)
    gemm.product(
        11, 9, A.ravel(), 4 * 30 + 5, 30, ONE, 12, gemm.strips(B).ravel(), 5 * width, width,
        30 * width, out.reshape(-1), 2 * row, row, FALSE,
    )  # fmt: skip
    assert same(out[2:13, :9], A[4:15, 5:17] @ B[5:17])
    assert (out[:2] == 7).all()
    assert (out[13:] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_number_depends_on_the_other_rows(dtype):
    rng = np.random.default_rng(2)
    A, B = (rng.standard_normal((33, 33)).astype(dtype) for _ in range(2))
    strips, width = gemm.strips(B).ravel(), gemm.width_of(dtype)
    p = gemm.padded(33, dtype)
    out = np.empty((33, p), dtype)
    call = (A.ravel(), ZERO, 33, ONE, 33, strips, ZERO, width, 33 * width, out.reshape(-1), ZERO)
    gemm.product(33, 33, *call, p, FALSE)
    whole = out.copy()
    for rows in (1, 7, 8, 9, 32):
        gemm.product(rows, 33, *call, p, FALSE)
        assert same(out[:rows, :33], whole[:rows, :33])


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("height", [1, gemm.HEIGHT])
def test_a_compiled_tile_is_as_the_plain_one(dtype, height):
    rng = np.random.default_rng(height)
    compiled, plain = gemm._emitted(height), gemm._plain(height)

    @numba.njit
    def call(A, B, C, depth, p, keep):
        compiled(A, 3, depth, 1, depth, B, 2, p, C, 1, p, keep)

    depth, p = 13, gemm.width_of(dtype)
    A = integers(rng, 3 + height * depth, dtype=dtype)
    B, C = (integers(rng, 2 + p * max(depth, height), dtype=dtype) for _ in range(2))
    for keep in (True, False):
        ours, theirs = C.copy(), C.copy()
        call(A, B, ours, depth, p, keep)
        plain(A, 3, depth, 1, depth, B, 2, p, theirs, 1, p, keep)
        assert same(ours, theirs)
