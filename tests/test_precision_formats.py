"""Float formats and rounding to them, bit for bit."""

from __future__ import annotations

import math

import ml_dtypes
import naive_precision as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradprop.precision.formats import FORMATS, Format

ORACLES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
EXTENDED = {**ORACLES, "float32": np.float32}
STOCHASTIC = Format(8, 8, rounding="stochastic")


def patterns(name: str) -> np.ndarray:
    """Every number of a format of 8 or 16 bits, as float64; nan among them."""
    dtype = np.dtype(ORACLES[name])
    bits = np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):  # signalling nan
        return bits.view(dtype).astype(np.float64)


def by_oracle(x, name: str) -> np.ndarray:
    """As ml_dtypes casts; its float8_e4m3fn makes nan of what saturates here."""
    with np.errstate(all="ignore"):
        cast = np.asarray(x).astype(EXTENDED[name]).astype(np.float64)
    if name == "float8_e4m3":
        return np.where(np.isnan(cast) & ~np.isnan(x), np.copysign(448.0, x), cast)
    return cast


def assert_same_bits(found, expected) -> None:
    """Equal, zeros in their sign, nan with nan."""
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


# --- formats and rounding ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ORACLES)
def test_limits_are_those_of_ml_dtypes(name):
    fmt, info = FORMATS[name], ml_dtypes.finfo(ORACLES[name])
    own = (fmt.eps, fmt.min_normal, fmt.min_subnormal, fmt.max)
    theirs = (info.eps, info.smallest_normal, info.smallest_subnormal, info.max)
    assert own == tuple(float(value) for value in theirs)
    assert fmt.name == name


def test_largest_numbers_below_one_are_the_ceilings_of_stored_decays():
    names = ("bfloat16", "float16", "float8_e4m3")
    assert [1 - FORMATS[name].eps / 2 for name in names] == [0.99609375, 0.99951171875, 0.9375]
    assert FORMATS["tf32"] == Format(11, 8)
    assert FORMATS["float8_e4m3"].max == 448.0
    assert FORMATS["float8_e5m2"].max == 57344.0


@pytest.mark.parametrize("name", ORACLES)
def test_every_number_stays_and_every_midpoint_goes_to_the_even_one(name):
    numbers, fmt = patterns(name), FORMATS[name]
    whole = np.where(np.isinf(numbers) & (not fmt.infinities), np.nan, numbers)
    assert_same_bits(fmt.round(numbers), whole)
    positive = np.unique(np.abs(numbers[np.isfinite(numbers)]))
    middle = (positive[1:] + positive[:-1]) / 2
    near = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    # the neighbours' order in the list of patterns says which of the two is even
    lower = np.searchsorted(positive, near, side="right") - 1
    up = np.concatenate([lower[: middle.size] % 2 == 1, np.zeros(middle.size, bool),
                         np.ones(middle.size, bool)])  # fmt: skip
    expected = positive[lower + up]
    assert_same_bits(fmt.round(near), expected)
    assert_same_bits(fmt.round(-near), -expected)


@pytest.mark.parametrize("name", ORACLES)
def test_products_equal_ml_dtypes(name):
    """All pairs of the 8-bit formats, a million random pairs of the 16-bit ones."""
    numbers, rng = patterns(name), np.random.default_rng(1)
    if numbers.size == 256:
        a, b = (pair.ravel() for pair in np.meshgrid(numbers, numbers))
    else:
        a, b = rng.choice(numbers, (2, 1_000_000))
    dtype = ORACLES[name]
    with np.errstate(all="ignore"):
        product = a * b
        low = (a.astype(dtype) * b.astype(dtype)).astype(np.float64)
    if name == "float8_e4m3":
        low = np.where(np.isnan(low) & ~np.isnan(product), np.copysign(448.0, product), low)
    assert_same_bits(FORMATS[name].round(product), low)


@pytest.mark.parametrize("name", EXTENDED)
def test_random_numbers_of_all_sizes_equal_casts(name):
    """From float32 numbers, for ml_dtypes rounds others twice."""
    rng = np.random.default_rng(2)
    x = np.ldexp(rng.standard_normal(1_000_000), rng.integers(-160, 130, 1_000_000))
    if name != "float32":
        with np.errstate(over="ignore", under="ignore"):
            x = x.astype(np.float32).astype(np.float64)
    assert_same_bits(FORMATS[name].round(x), by_oracle(x, name))


@given(
    st.integers(2, 53), st.integers(2, 10), st.booleans(), st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-40, 40),
)  # fmt: skip
def test_any_format_rounds_as_rational_numbers_do(p, k, subnormals, infinities, x, power):
    fmt = Format(p, k, subnormals, infinities=infinities)
    mantissa = math.frexp(x)[0]
    for value in (x, math.ldexp(mantissa, power), math.ldexp(mantissa, fmt.min_exponent)):
        assert_same_bits(fmt.round([value])[0], np.float64(naive.exactly_rounded(value, fmt)))


def test_flushing_formats_without_subnormals_and_special_values():
    half, tiny = FORMATS["float16"], 2.0**-14
    x = np.array([tiny, 0.999 * tiny, 0.9999999 * tiny, -0.5 * tiny, 0.0, -0.0])
    assert_same_bits(half.round(x, flush=True), np.array([tiny, 0, tiny, -0.0, 0, -0.0]))
    without = Format(11, 5, subnormals=False)
    assert_same_bits(without.round(x), np.array([tiny, tiny, tiny, -0.0, 0, -0.0]))
    assert_same_bits(without.round(x, flush=True), half.round(x, flush=True))
    special = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300])
    assert_same_bits(half.round(special), np.array([np.inf, -np.inf, np.nan, np.inf, -np.inf]))
    found = FORMATS["float8_e4m3"].round(special)
    assert_same_bits(found, np.array([448, -448, np.nan, 448, -448]))
    assert FORMATS["float64"].round(0.1) == 0.1
    assert FORMATS["float64"].round(1e-310, flush=True) == 0.0
    assert half.round(np.ones((2, 0, 3))).shape == (2, 0, 3)


def test_rounding_leaves_the_argument_alone():
    x = np.array([0.1, 0.2])
    FORMATS["float16"].round(x)
    assert x.tolist() == [0.1, 0.2]


def test_stochastic_rounding_is_right_on_average_and_reproducible():
    """Each of N draws goes up with the odds q: the share is within 5 sqrt(q (1 - q) / N) of q."""
    size = 200_000
    for fmt, x in ((STOCHASTIC, 1.001), (STOCHASTIC, -0.1), (STOCHASTIC, 2.0**-133 * 0.2),
                   (Format(3, 5, rounding="stochastic"), 0.3),
                   (Format(8, 8, False, "stochastic"), 2.0**-126 * 0.7)):  # fmt: skip
        found = fmt.round(np.full(size, x), rng=3)
        low, high = np.unique(np.abs(found))
        assert low < abs(x) < high
        odds = (abs(x) - low) / (high - low)
        share = (np.abs(found) == high).mean()
        assert abs(share - odds) <= 5 * math.sqrt(odds * (1 - odds) / size)
        assert_same_bits(found, fmt.round(np.full(size, x), rng=3))
        assert (np.sign(found[found != 0]) == np.sign(x)).all()
    numbers = patterns("bfloat16")
    assert_same_bits(STOCHASTIC.round(numbers, rng=0), numbers)
    assert (STOCHASTIC.round(np.full(100, 0.1), 1) != STOCHASTIC.round(np.full(100, 0.1), 2)).any()


@pytest.mark.parametrize(
    ("fmt", "arguments", "error", "text"),
    [
        (STOCHASTIC, {}, ValueError, "`rng` must be a seed or a generator for stochastic rounding"),
        (FORMATS["float16"], {"rng": 1}, ValueError, "`rng` must be left out for nearest rounding"),
        (FORMATS["float16"], {"x": [1j]}, TypeError, "`x` must be real"),
        (FORMATS["float16"], {"flush": 1}, ValueError, "`flush` must be one of True, False"),
        (STOCHASTIC, {"rng": "one"}, TypeError, "`rng` must be None, a seed or a numpy Generator"),
    ],
)
def test_bad_rounding(fmt, arguments, error, text):
    with pytest.raises(error, match=text):
        fmt.round(**{"x": [1.0], **arguments})


def test_stored_decays_of_a_ring():
    """linspace(.9, .999, 256): 27 distinct decays in bfloat16, 78 modes at exactly 1 in e4m3."""
    decays = np.linspace(0.9, 0.999, 256)
    assert np.unique(FORMATS["bfloat16"].round(decays)).size == 27
    assert (FORMATS["float8_e4m3"].round(decays) == 1.0).sum() == 78
