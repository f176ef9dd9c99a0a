"""Sums and scalings in vectors against their plain twins, whatever the count and the place."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from test_kernels import needs_jit

from gradprop._kernels import lanes
from gradprop._kernels.gradedhouse import dot_of

EPS = float(np.finfo(np.float64).eps)

if not numba.config.DISABLE_JIT:

    @numba.njit
    def block_products(A, a, B, b, jump, count, out):
        lanes.block_products(A, a, B, b, jump, count, out)

    @numba.njit
    def blocks_dot(u, v, count):
        return lanes.blocks_dot(u, v, count)

    @numba.njit
    def scale_row(A, a, jump, count, X, x, step, factor):
        lanes.scale_row(A, a, jump, count, X, x, step, factor)

    @numba.njit
    def copy(A, a, count, out, o):
        lanes.copy(A, a, count, out, o)


@needs_jit
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_lanes_are_their_twins(count):
    rng = np.random.default_rng(count)
    A, B = rng.standard_normal((3, 20, 8)), rng.standard_normal((3, 20, 8))
    got, expected = np.full((2, 4, 8), np.nan)
    for jump in (32, 40):
        block_products(A, 5, B, 9, jump, count, got)
        lanes._plain_block_products(A, 5, B, 9, jump, count, expected)
        np.testing.assert_allclose(got, expected, rtol=0, atol=20 * count * EPS)
    u, v = rng.standard_normal((2, 240))
    expected = lanes._plain_blocks_dot(u, v, count)
    assert blocks_dot(u, v, count) == pytest.approx(expected, rel=0, abs=1000 * EPS)
    for jump, step in ((8, 8), (40, 0)):
        got, expected = A.copy(), A.copy()
        scale_row(got, 3, jump, count, B, 1, step, -1.5)
        lanes._plain_scale_row(expected, 3, jump, count, B, 1, step, -1.5)
        np.testing.assert_allclose(got, expected, rtol=2 * EPS)
    got, expected = A.copy(), A.copy()
    copy(B, 3, 9 * count, got, 11)
    lanes._plain_copy(B, 3, 9 * count, expected, 11)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [1, 8, 31, 32, 33, 100])
def test_a_dot_product_of_any_length(n):
    u, v = np.random.default_rng(n).standard_normal((2, n))
    assert dot_of(u, v) == pytest.approx(u @ v, rel=0, abs=4 * n * EPS)
