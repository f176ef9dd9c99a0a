"""exp and expm1 for x <= 0 against high precision, at every exponent, and special values."""

from __future__ import annotations

import mpmath as mp
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels import exponential

DTYPES = [np.float32, np.float64]
# Half a spacing for the last sum and half for the last but one (in expm1 scale * rest, in exp the
# reduced argument and its polynomial) are 1; terms left out, second-order parts and the rounding of
# k ln2_low take less than a tenth.
BOUND = 1.1
NUMPY = {"exp": np.exp, "expm1": np.expm1}
EXACT = {"exp": mp.exp, "expm1": mp.expm1}


@numba.njit(error_model="numpy")
def exp_row(x, out):
    for i in range(x.size):
        out[i] = exponential.exp(x[i])


@numba.njit(error_model="numpy")
def expm1_row(x, out):
    for i in range(x.size):
        out[i] = exponential.expm1(x[i])


ROWS = {"exp": exp_row, "expm1": expm1_row}


def mapped(name, x):
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        ROWS[name](x, out)
    return out


def spacing(value, dtype):
    """Distance of `value` from the next float towards zero: the smaller of the two at 2**k."""
    below = np.nextafter(np.abs(value).astype(dtype), dtype(0))
    return np.maximum(np.spacing(below), np.finfo(dtype).smallest_subnormal).astype(np.float64)


def errors32(name, x):
    """Errors in spacings; float64's own function is wrong by 2**-28 of them."""
    exact = NUMPY[name](x.astype(np.float64))
    return np.abs(mapped(name, x) - exact) / spacing(exact, np.float32)


def worst64(name, x):
    got, worst = mapped(name, x), 0.0
    with mp.workdps(50):
        for point, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = EXACT[name](mp.mpf(point))
            unit = float(spacing(np.float64(float(exact)), np.float64))
            worst = max(worst, float(abs(mp.mpf(value) - exact) / mp.mpf(unit)))
    return worst


@pytest.mark.parametrize("name", list(ROWS))
def test_float32_at_every_exponent(name):
    # 4096 patterns of the mantissa for each of the 255 exponents of finite floats: 1.04e6 patterns
    rng = np.random.default_rng(32)
    mantissa = rng.integers(0, 2**23, (255, 4096), dtype=np.uint32)
    mantissa[:, :4] = [0, 1, 2**22, 2**23 - 1]
    exponent = np.arange(255, dtype=np.uint32)[:, None]
    x = (np.uint32(2**31) | exponent << np.uint32(23) | mantissa).view(np.float32).ravel()
    assert errors32(name, x).max() <= BOUND


@pytest.mark.parametrize("name", list(ROWS))
def test_float32_where_the_result_moves(name):
    # evenly spread arguments reach all k, every subnormal size, and the edges between two k
    k = np.arange(-151, 1)
    edges = ((k + 0.5) * np.log(2)).astype(np.float32)
    near = edges[:, None] + np.spacing(edges)[:, None] * np.arange(-40, 41, dtype=np.float32)
    spread = np.random.default_rng(1).uniform(-105, 0, 500_000).astype(np.float32)
    assert errors32(name, np.minimum(np.concatenate([near.ravel(), spread]), 0)).max() <= BOUND


@pytest.mark.parametrize("name", list(ROWS))
def test_float64_against_fifty_digits(name):
    rng = np.random.default_rng(64)
    edges = (np.arange(-1076, 1, 4) + 0.5) * np.log(2)
    near = (edges[:, None] + np.spacing(edges)[:, None] * np.array([-1.0, 0.0, 1.0])).ravel()
    sizes = -np.exp(rng.uniform(-745, 6.7, 3000))
    x = np.concatenate([near, sizes, rng.uniform(-746, 0, 3000), rng.uniform(-3, 0, 3000)])
    assert worst64(name, np.minimum(x, 0.0)) <= BOUND


@given(st.floats(-800, 0))
def test_laws(value):
    for dtype in DTYPES:
        x = dtype(value)
        with np.errstate(all="ignore"):
            e, em1 = exponential.exp(x), exponential.expm1(x)
        assert 0 <= e <= 1
        assert -1 <= em1 <= 0
        # both to 1.1 spacings, and one rounding of the sum, of numbers not above 1
        assert abs(float(e) - 1 - float(em1)) <= 2.2 * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(dtype):
    small = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, -np.inf, np.nan, -np.nan, -np.finfo(dtype).max, -small], dtype)
    got = mapped("exp", x)
    np.testing.assert_array_equal(got, np.array([1, 1, 0, np.nan, np.nan, 0, 1], dtype))
    assert got.dtype == dtype
    expected = np.array([0, 0, -1, np.nan, np.nan, -1, -small], dtype)
    np.testing.assert_array_equal(mapped("expm1", x), expected)


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 149), (np.float64, 1074)])
def test_subnormal_results_are_rounded_once(dtype, digits):
    # results from a quarter of the smallest subnormal number up are its nearest multiple, but for
    # what the function is wrong by before that rounding
    x = -np.linspace((digits - 23) * np.log(2), (digits + 3) * np.log(2), 2001).astype(dtype)
    got, eps = mapped("exp", x), float(np.finfo(dtype).eps)
    with mp.workdps(50):
        for point, value in zip(x.tolist(), got.tolist(), strict=True):
            units = mp.exp(mp.mpf(point)) * mp.mpf(2) ** digits
            assert abs(mp.mpf(value) * mp.mpf(2) ** digits - units) <= 0.5 + BOUND * eps * units
