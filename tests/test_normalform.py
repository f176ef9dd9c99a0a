"""Normal form of row-scaled Jacobians: exact powers of two, for slopes and weights of any size."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradprop.blocks import row_scaled_block, scaled_rows

LEAKS = (1.0, 0.3, 1 - 2.0**-53, 2.0**-30)


def twin(rows, slopes, leak):
    """Unit and row scales of one step, number by number."""
    parts = [math.frexp(leak * slope) for slope in slopes]
    sizes = [e + row for (m, e), row in zip(parts, rows, strict=True) if m]
    keep, keep_exponent = math.frexp(1.0 - leak)
    sizes += [keep_exponent] if keep else []
    top, low = (max(sizes), min(sizes)) if sizes else (0, 0)
    unit = top - (min((top - low) // 2, 1000) if top - low > 900 else 0)
    return unit, [
        math.ldexp(m, e + row - unit) if m else 0.0 for (m, e), row in zip(parts, rows, strict=True)
    ]


@given(
    seed=st.integers(0, 2**32),
    far=st.sampled_from([2, 300, 450, 1060]),
    leak=st.sampled_from(LEAKS),
    n=st.integers(1, 9),
)
def test_against_the_twin(seed, far, leak, n):
    rng = np.random.default_rng(seed)
    R, m, K = 2, 3, 2
    sizes = [2.0 ** rng.integers(-far, min(far, 900), shape) for shape in ((K, n, 1), (R, m, n))]
    W = rng.standard_normal((K, n, n)) * sizes[0]
    dphi = rng.standard_normal((R, m, n)) * sizes[1]
    dphi *= rng.random(dphi.shape) < rng.choice([0.2, 0.8, 1.0])
    matrices, rows = scaled_rows(W)
    which = rng.integers(0, K, R)
    block = row_scaled_block(matrices, rows, which, dphi, leak, 5)
    assert block.first == 5
    assert np.array_equal(block.index, np.repeat(which[:, None], m, axis=1))
    for r in range(R):
        for t in range(m):
            unit, scales = twin(rows[which[r]].tolist(), dphi[r, t].tolist(), leak)
            assert block.exponents[r, t] == unit
            assert block.scales[r, t].tolist() == scales
            assert block.identity[r, t] == math.ldexp(1.0 - leak, -unit)


@given(seed=st.integers(0, 2**32), far=st.sampled_from([2, 300]), leak=st.sampled_from(LEAKS))
def test_nothing_is_rounded(seed, far, leak):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((1, 4, 4)) * 2.0 ** rng.integers(-far, far, (1, 4, 1))
    dphi = rng.standard_normal((1, 2, 4)) * 2.0 ** rng.integers(-far, far, (1, 2, 4))
    block = row_scaled_block(*scaled_rows(W), np.zeros(1, int), dphi, leak, 0)
    for t in range(2):
        unit = Fraction(2) ** int(block.exponents[0, t])
        for i in range(4):
            for j in range(4):
                got = Fraction(block.scales[0, t, i]) * Fraction(block.matrices[0, i, j]) * unit
                assert got == Fraction(leak * dphi[0, t, i]) * Fraction(W[0, i, j])
        assert Fraction(block.identity[0, t]) * unit == Fraction(1.0 - leak)


def test_slices_of_a_longer_orbit_give_the_same_numbers():
    rng = np.random.default_rng(0)
    matrices, rows = scaled_rows(rng.standard_normal((1, 5, 5)))
    dphi = rng.random((3, 20, 5))
    whole = row_scaled_block(matrices, rows, np.zeros(3, int), dphi, 0.5, 0)
    part = row_scaled_block(matrices, rows, np.zeros(3, int), dphi[:, 4:9], 0.5, 4)
    assert np.array_equal(part.scales, whole.scales[:, 4:9])
    assert np.array_equal(part.exponents, whole.exponents[:, 4:9])
    assert np.array_equal(part.identity, whole.identity[:, 4:9])


def test_a_row_that_underflows_before_it_is_scaled_is_not_lost():
    matrices, rows = scaled_rows(np.array([[[2.0**-390, 0.0], [0.0, 1.0]]]))
    block = row_scaled_block(matrices, rows, np.zeros(1, int), np.array([[[2.0**-800, 1.0]]]), 1, 0)
    # rows of 2**-1190 and 1: the first lies below every float, so the unit goes amid the two
    unit = 2 - (2 + 1188) // 2
    assert block.exponents[0, 0] == unit
    assert np.log2(block.scales[0, 0]).tolist() == [-1189 - unit, 1 - unit]
