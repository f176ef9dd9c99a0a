"""Clipping: the exact norm of any gradients, one coefficient for all, nothing lost on the way."""

from __future__ import annotations

import collections
import math
import types
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from helpers import layouts, same, tolerance
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gradprop as gp

EPS = float(np.finfo(float).eps)
TINY = float(np.finfo(float).smallest_subnormal)
HUGE = float(np.finfo(float).max)
ORDERS = (1, 1.5, 2, 3, 4, 7.25, 2000.0, math.inf)


class Weights(NamedTuple):
    W: np.ndarray
    b: np.ndarray


def naive_norm(grads, ord):
    """As one reads the formula; for entries of ordinary size."""
    entries = [abs(float(x)) for g in grads for x in np.ravel(g)]
    if ord == math.inf:
        return max(entries)
    return sum(x**ord for x in entries) ** (1 / ord)


def exact_norm(grads, ord):
    """The norm in 40 digits, whose exponents have no end."""
    with mpmath.workdps(40):
        entries = [abs(mpmath.mpf(float(x))) for g in grads for x in np.ravel(g)]
        if ord == math.inf:
            return max(entries, default=mpmath.mpf(0))
        p = mpmath.mpf(ord)
        return sum((x**p for x in entries), mpmath.mpf(0)) ** (1 / p)


def exact_clipped(grads, max_norm, ord):
    """Entries times min(1, max_norm/total), in 40 digits."""
    with mpmath.workdps(40):
        total = exact_norm(grads, ord)
        factor = min(mpmath.mpf(1), mpmath.mpf(max_norm) / total) if total else mpmath.mpf(1)
        return [[factor * mpmath.mpf(float(x)) for x in np.ravel(g)] for g in grads]


def far_apart(rng, sizes=((3, 2), (5,), (), (0,), (2, 1, 2))):
    """Gradients of many shapes whose entries span the whole range of float64."""
    return [np.asarray(rng.standard_normal(s) * 2.0 ** rng.integers(-1000, 1000, s)) for s in sizes]


# --- reported cases ----------------------------------------------------------------------------


def test_p001_large_float32_gradients_do_not_overflow():
    given_ = np.full(100, 1e20, dtype=np.float32)
    (clipped,), total = gp.clip_by_global_norm([given_], 1.0)
    # 100 equal entries: ten times one of them, which is 1e20 rounded to float32
    assert total == pytest.approx(10 * float(given_[0]), rel=4 * EPS)
    assert total == pytest.approx(1e21, rel=2.0**-24)
    assert np.isfinite(np.float32(total))
    assert clipped.dtype == np.float32
    assert same(clipped, np.full(100, 0.1, dtype=np.float32))


def test_p002_a_gradient_that_is_not_finite_is_named_and_nothing_is_touched():
    a, b = np.array([1.0, 2.0]), np.array([np.inf, 3.0])
    for verb, bound in ((gp.clip_by_global_norm, 1.0), (gp.clip_by_value, 1.0)):
        with pytest.raises(ValueError, match=r"`grads\['b'\]` must be finite; got inf at .*\(0,\)"):
            verb({"a": a, "b": b}, bound)
    with pytest.raises(ValueError, match=r"`grads\[1\]` must be finite; got nan at .*\(1, 0\)"):
        gp.global_norm([a, np.array([[1.0], [np.nan]])])
    assert a.tolist() == [1.0, 2.0]
    assert b.tolist() == [np.inf, 3.0]


@pytest.mark.parametrize("ord", ORDERS)
def test_p005_zeros_with_threshold_zero_stay_zeros(ord):
    (clipped,), total = gp.clip_by_global_norm([np.zeros(3)], 0, ord=ord)
    assert same(clipped, np.zeros(3))
    assert total == 0.0
    (clipped,), total = gp.clip_by_global_norm([np.array([3.0, -4.0])], 0.0, ord=ord)
    assert not clipped.any()
    assert total > 3.9


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("empty", [[], (), {}, iter(())])
def test_p007_no_gradients_is_the_same_error_for_every_order(ord, empty):
    with pytest.raises(ValueError, match="no gradients"):
        gp.global_norm(empty, ord)
    with pytest.raises(ValueError, match="no gradients"):
        gp.clip_by_global_norm(empty, 1.0, ord=ord)


@pytest.mark.parametrize("ord", ORDERS)
def test_p007_gradients_without_entries_have_norm_zero(ord):
    assert gp.global_norm([np.empty(0), np.empty((0, 3))], ord) == 0.0
    clipped, total = gp.clip_by_global_norm([np.empty((0, 3))], 0.0, ord=ord)
    assert clipped[0].shape == (0, 3)
    assert total == 0.0


def test_p009_a_generator_is_read_once_and_a_spent_one_is_noticed():
    fresh = (x for x in np.array([3.0, 4.0]))
    clipped, total = gp.clip_by_global_norm(fresh, 1.0)
    assert total == 5.0
    assert isinstance(clipped, list)
    assert clipped == [pytest.approx(0.6, rel=EPS), pytest.approx(0.8, rel=EPS)]
    for verb in (gp.clip_by_global_norm, gp.clip_by_value):
        with pytest.raises(ValueError, match="no gradients"):
            verb(fresh, 1.0)
    with pytest.raises(ValueError, match="no gradients"):
        gp.global_norm(fresh)
    assert gp.global_norm(x for x in [3, 4]) == 5.0


@pytest.mark.parametrize(
    ("ord", "value"),
    [(1, 7.0), (1.5, 5.584250376480029), (2, 5.0), (4, 4.284572294953817), (math.inf, 4.0)],
)
def test_p011_the_root_is_taken_once(ord, value):
    for grads in ([3, 4], [np.array([3.0, 4.0])], {"a": np.array([3.0]), "b": np.array(4.0)}):
        assert gp.global_norm(grads, ord) == pytest.approx(value, rel=4 * EPS)
    assert gp.clip_by_global_norm([np.array([3.0, 4.0])], 9.0, ord=ord)[1] == pytest.approx(
        value, rel=4 * EPS
    )


def test_p013_half_precision_does_not_overflow():
    given_ = np.array([3000, 4000], dtype=np.float16)
    assert gp.global_norm([given_]) == 5000.0
    (clipped,), total = gp.clip_by_global_norm([given_], 1.0)
    assert total == 5000.0
    assert clipped.dtype == np.float16
    assert same(clipped, np.array([0.6, 0.8], dtype=np.float16))


def test_p016_norms_that_are_representable_are_found():
    assert gp.global_norm([[1e200, 1e200]]) == pytest.approx(math.sqrt(2) * 1e200, rel=2 * EPS)
    assert gp.global_norm([np.full(4, 1e-200)]) == 2e-200
    assert gp.global_norm(np.full((3, 3), 100, dtype=np.float16)) == 300.0


# --- the norm ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ord", ORDERS[:-2])
def test_norm_against_the_plain_formula(ord):
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal(s) for s in ((3, 4), (7,), (), (2, 2, 2))]
    n = sum(g.size for g in grads)
    expected = naive_norm(grads, ord)
    assert gp.global_norm(grads, ord) == pytest.approx(expected, rel=tolerance(float, n, 1, 2))


@pytest.mark.parametrize("ord", ORDERS)
def test_norm_in_forty_digits_over_the_whole_range(ord):
    rng = np.random.default_rng(1)
    for shift in (-60, 0, 20):
        grads = [np.ldexp(g, shift) for g in far_apart(rng)]
        # each of 16 terms has eps for its scaling, its power and its sum, shrunk by the root
        expected = float(exact_norm(grads, ord))
        assert gp.global_norm(grads, ord) == pytest.approx(expected, rel=tolerance(float, 16, 1, 1))


@pytest.mark.parametrize("ord", ORDERS)
def test_subnormal_entries_have_their_norm(ord):
    grads = [np.array([3 * TINY, -4 * TINY])]
    # rounded to a multiple of the smallest float
    assert abs(gp.global_norm(grads, ord) / TINY - float(exact_norm([[3, 4]], ord))) <= 0.5


def test_squares_of_short_numbers_are_exact():
    assert gp.global_norm([np.array([5.0, 12.0])]) == 13.0
    assert gp.global_norm([np.array([8.0, 9.0]), 12.0]) == 17.0


def test_order_of_gradients_and_layout_change_no_bit():
    rng = np.random.default_rng(2)
    grads = [rng.standard_normal(s) for s in ((30, 40), (70,), (2, 2, 200), (11,))]
    for ord in (1, 2, 3.5):
        total = gp.global_norm(grads, ord)
        assert gp.global_norm(grads[::-1], ord) == total
        assert gp.global_norm(dict(enumerate(grads)), ord) == total
        for array in layouts(grads[0]).values():
            assert gp.global_norm([array, *grads[1:]], ord) == total


def test_a_total_above_the_largest_float_is_inf_and_the_clipping_still_right():
    grads = [np.array([HUGE, -HUGE]), np.array([HUGE / 2, 1.0])]
    clipped, total = gp.clip_by_global_norm(grads, 3.0)
    assert total == math.inf
    np.testing.assert_allclose(clipped[0], [2.0, -2.0], rtol=4 * EPS)
    # the total is HUGE 3/2
    np.testing.assert_allclose(clipped[1], [1.0, 2.0 / HUGE], rtol=4 * EPS)


# --- clipping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("max_norm", [1e-300, 1e-5, 3.0, 1e290])
def test_clipped_entries_in_forty_digits(ord, max_norm):
    grads = far_apart(np.random.default_rng(3))
    clipped, _ = gp.clip_by_global_norm(grads, max_norm, ord=ord)
    for own, expected in zip(clipped, exact_clipped(grads, max_norm, ord), strict=True):
        # the total's error, two roundings; and half of the smallest float where that is larger
        np.testing.assert_allclose(
            np.ravel(own), [float(x) for x in expected], rtol=tolerance(float, 16, 1, 1), atol=TINY
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_stays_and_each_entry_is_rounded_once(dtype):
    rng = np.random.default_rng(4)
    grads = [rng.standard_normal(50).astype(dtype), rng.standard_normal((3, 3)).astype(dtype)]
    clipped, _ = gp.clip_by_global_norm(grads, 0.7)
    eps = float(np.finfo(dtype).eps)
    for own, expected in zip(clipped, exact_clipped(grads, 0.7, 2), strict=True):
        assert own.dtype == dtype
        wanted = np.array([float(x) for x in expected])
        bound = eps / 2 * np.maximum(np.abs(wanted), float(np.finfo(dtype).smallest_normal))
        assert (np.abs(own.ravel().astype(float) - wanted) <= bound + 20 * EPS * abs(wanted)).all()


def test_what_needs_no_clipping_comes_back_bit_by_bit_as_a_copy():
    given_ = np.array([3.0, -0.0, -4.0])
    for max_norm in (5.0, 7.0, 1e300):
        (clipped,), total = gp.clip_by_global_norm([given_], max_norm)
        assert total == 5.0
        assert clipped.tobytes() == given_.tobytes()
        assert not np.shares_memory(clipped, given_)
    (clipped,), _ = gp.clip_by_global_norm([given_], math.nextafter(5.0, 0.0))
    assert abs(clipped[2]) <= 4.0


def test_input_is_never_changed():
    for array in layouts(np.array([[3.0, 40.0], [-5.0, 1.0]])).values():
        before = array.copy()
        for result in (gp.clip_by_global_norm([array], 1.0)[0], gp.clip_by_value([array], 1.0)):
            assert result[0].dtype == array.dtype
            assert result[0].shape == array.shape
            assert not np.shares_memory(result[0], array)
        assert same(array, before)


def test_layout_changes_no_bit():
    plain = np.random.default_rng(5).standard_normal((4, 5))
    clipped = gp.clip_by_global_norm(plain, 1.0)[0]
    for array in layouts(plain).values():
        assert same(gp.clip_by_global_norm(array, 1.0)[0], clipped)


def test_containers_come_back_as_they_were():
    W, b = np.array([[3.0]]), np.array([4.0])

    def clip(grads):
        return gp.clip_by_global_norm(grads, 1.0)[0]

    plain = clip({"W": W, "b": b})
    assert type(plain) is dict
    assert list(plain) == ["W", "b"]
    assert list(clip({"b": b, "W": W})) == ["b", "W"]
    assert type(clip(collections.OrderedDict(W=W, b=b))) is collections.OrderedDict
    default = clip(collections.defaultdict(list, W=W, b=b))
    assert default["missing"] == []
    assert type(clip(types.MappingProxyType({"W": W}))) is dict
    assert type(clip([W, b])) is list
    assert type(clip((W, b))) is tuple
    named = clip(Weights(W, b))
    assert type(named) is Weights
    assert named.b == pytest.approx(0.8)
    assert type(clip(np.array([3.0, 4.0]))) is np.ndarray
    assert type(clip({"W": W}.values())) is list
    for zero_d in (clip([np.array(3.0)])[0], clip(np.array(3.0))):
        assert isinstance(zero_d, np.ndarray)
        assert zero_d.shape == ()
    number = clip([np.float32(3.0)])[0]
    assert type(number) is np.float32
    assert isinstance(clip([3.0])[0], float)


def test_global_clipping_keeps_the_direction_and_clipping_each_tensor_does_not():
    grads = [np.array([30.0, 40.0]), np.array([0.3, 0.4])]
    joint, total = gp.clip_by_global_norm(grads, 1.0)
    one_by_one = [gp.clip_by_global_norm([g], 1.0)[0][0] for g in grads]
    by_value = gp.clip_by_value(grads, 1.0)

    def cosine(a, b):
        a, b = np.concatenate(a), np.concatenate(b)
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(joint, grads) == pytest.approx(1.0, abs=8 * EPS)
    # (0.6, 0.8, 0.3, 0.4) on (30, 40, 0.3, 0.4): 50.25 / (1.118034 · 50.0025)
    expected = 50.25 / math.sqrt(1.25) / math.hypot(50.0, 0.5)
    assert cosine(one_by_one, grads) == pytest.approx(expected, rel=8 * EPS)
    assert expected < 0.9
    assert np.concatenate(by_value).tolist() == [1.0, 1.0, 0.3, 0.4]
    # each tensor alone stays below the threshold, all of them together do not
    assert gp.global_norm(one_by_one) == pytest.approx(math.sqrt(1.25), rel=8 * EPS)
    assert gp.global_norm(joint) == pytest.approx(1.0, rel=8 * EPS)
    assert total == pytest.approx(math.hypot(50.0, 0.5), rel=4 * EPS)


finite_arrays = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4),
    elements=st.floats(-HUGE, HUGE),
)
orders = st.sampled_from(ORDERS) | st.floats(1.0, 50.0)


@given(st.lists(finite_arrays, min_size=1, max_size=4), st.floats(0, HUGE), orders)
def test_laws_of_clipping(grads, max_norm, ord):
    clipped, total = gp.clip_by_global_norm(grads, max_norm, ord=ord)
    n = sum(g.size for g in grads)
    assert total >= max((np.abs(g).max(initial=0.0) for g in grads), default=0.0) * (1 - 4 * EPS)
    after = gp.global_norm(clipped, ord)
    # rounding of entries, that of subnormal ones counted apart
    assert after <= max_norm * (1 + (n + 8) * EPS) + n * TINY
    for own, given_ in zip(clipped, grads, strict=True):
        assert (np.abs(own) <= np.abs(given_)).all()
        assert (np.signbit(own) == np.signbit(given_)).all()
        assert np.isfinite(own).all()
        if total <= max_norm:
            assert same(own, given_)


@given(finite_arrays, st.integers(-300, 300), orders)
def test_a_power_of_two_passes_through_the_norm(array, k, ord):
    total = gp.global_norm([array], ord)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(array, k)
    if np.isfinite(scaled).all() and same(np.ldexp(scaled, -k), array) and 1e-200 < total < 1e200:
        assert gp.global_norm([scaled], ord) == np.ldexp(total, k)


def test_by_value_against_plain_comparisons():
    grads = {"a": np.array([[0.5, -3.0], [2.0, -0.25]]), "b": np.array(7.0)}
    clipped = gp.clip_by_value(grads, 1.5)
    assert clipped["a"].tolist() == [[0.5, -1.5], [1.5, -0.25]]
    assert clipped["b"] == 1.5
    assert not gp.clip_by_value(grads, 0)["a"].any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_by_value_rounds_the_limit_to_the_dtype(dtype):
    given_ = np.array([-9, 0.01, 9], dtype=dtype)
    limited = gp.clip_by_value([given_], 0.1)[0]
    assert same(limited, np.array([-0.1, 0.01, 0.1], dtype=dtype))
    assert limited.dtype == dtype
    # a limit beyond the dtype clips nothing
    assert same(gp.clip_by_value([given_], 1e300)[0], given_)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [gp.clip_by_global_norm, gp.clip_by_value])
@pytest.mark.parametrize(
    ("grads", "error", "message"),
    [
        ({"a": np.array([1, 2])}, TypeError, r"`grads\['a'\]` must be floating.*int64"),
        ([np.array([True])], TypeError, r"`grads\[0\]` must be floating.*bool"),
        ([np.array([1j])], TypeError, r"`grads\[0\]` must be real; got dtype complex128"),
        ([np.ma.array([1.0])], TypeError, r"`grads\[0\]` must be a plain array; got a masked"),
        ([np.ones(2), None], TypeError, r"`grads\[1\]` must hold numbers; got dtype object"),
        ([np.longdouble(1)], TypeError, r"`grads\[0\]` must be at most double precision"),
        ([[[1.0], [1.0, 2.0]]], ValueError, r"`grads\[0\]` must be a regular array"),
        (3.0, TypeError, r"`grads` must be a mapping, an iterable or an array; got float"),
        (np.array([np.nan]), ValueError, r"`grads` must be finite; got nan at index \(0,\)"),
    ],
)
def test_bad_gradients_are_refused_by_name(verb, grads, error, message):
    with pytest.raises(error, match=message):
        verb(grads, 1.0)


@pytest.mark.parametrize("bound", [-1.0, math.nan, math.inf, 10**400, "1", None, True])
def test_bad_thresholds_are_refused_before_a_generator_is_read(bound):
    grads = iter([np.ones(1)])
    with pytest.raises((ValueError, TypeError), match="`max_norm` must be"):
        gp.clip_by_global_norm(grads, bound)
    with pytest.raises((ValueError, TypeError), match="`limit` must be"):
        gp.clip_by_value(grads, bound)
    assert gp.global_norm(grads) == 1.0


@pytest.mark.parametrize("ord", [0, 0.5, -1, math.nan, -math.inf, "fro", None])
def test_bad_orders_are_refused(ord):
    with pytest.raises((ValueError, TypeError), match="`ord` must be"):
        gp.global_norm([1.0], ord)
    with pytest.raises((ValueError, TypeError), match="`ord` must be"):
        gp.clip_by_global_norm([1.0], 1.0, ord=ord)


# --- statistics of thresholds ------------------------------------------------------------------


def naive_statistics(norms, threshold):
    kept = [x for x in norms if math.isfinite(x)]
    share = sum(x > threshold for x in kept) / len(kept)
    coefficients = [threshold / x if x > threshold else 1.0 for x in kept]
    return share, math.fsum(coefficients) / len(kept)


def test_statistics_by_hand():
    run = gp.clip_statistics([4.0, 0.0, 1.0, 2.0, 8.0])
    assert float(run.mean) == 3.0
    assert run.labels == ("1", "5", "2 x mean", "3 x mean")
    assert run.thresholds.tolist() == [1.0, 5.0, 6.0, 9.0]
    assert run.share_clipped.tolist() == [0.6, 0.2, 0.2, 0.0]
    # (1/4 + 1 + 1 + 1/2 + 1/8)/5, (4 + 5/8)/5, (4 + 3/4)/5, 1
    np.testing.assert_allclose(run.mean_coefficient, [0.575, 0.925, 0.95, 1.0], rtol=4 * EPS)
    assert run.levels.tolist() == [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0]
    # ranks 0, 0.2, 1, 2, 3, 3.8, 4
    np.testing.assert_allclose(run.quantiles, [0.0, 0.2, 1.0, 2.0, 4.0, 7.2, 8.0], rtol=4 * EPS)
    assert (int(run.n_finite), int(run.n_non_finite)) == (5, 0)


def test_statistics_against_plain_loops_run_by_run():
    rng = np.random.default_rng(6)
    norms = np.exp(rng.standard_normal((3, 2, 400)))
    norms[0, 1, [5, 7]] = np.nan, np.inf
    for thresholds in (None, [0.0, 0.5, 2.0]):
        runs = gp.clip_statistics(norms, thresholds)
        for index in np.ndindex(3, 2):
            for k, limit in enumerate(runs.thresholds[index]):
                share, coefficient = naive_statistics(norms[index], limit)
                assert runs.share_clipped[(*index, k)] == share
                assert runs.mean_coefficient[(*index, k)] == pytest.approx(
                    coefficient, rel=tolerance(float, 400, 1, 1)
                )
            one = gp.clip_statistics(norms[index], thresholds)
            assert same(one.quantiles, runs.quantiles[index])
            assert one.mean == pytest.approx(runs.mean[index], rel=tolerance(float, 400, 1, 1))
    assert runs.n_non_finite.tolist() == [[0, 2], [0, 0], [0, 0]]
    assert len(runs.to_frame()) == 18


def test_norms_that_are_not_finite_are_counted_and_never_averaged():
    clean, dirty = [3.0, 1.0, 2.0], [np.nan, 3.0, np.inf, 1.0, 2.0]
    a, b = gp.clip_statistics(clean), gp.clip_statistics(dirty)
    assert int(b.n_non_finite) == 2
    for name in ("mean", "quantiles", "thresholds", "share_clipped", "mean_coefficient"):
        assert same(getattr(a, name), getattr(b, name))


def test_statistics_at_the_ends_of_the_range():
    run = gp.clip_statistics([1.5e308, 1.5e308, 0.75e308])
    assert float(run.mean) == pytest.approx(1.25e308, rel=4 * EPS)
    # twice the mean is no float, and nothing is above it
    assert run.thresholds.tolist()[2:] == [math.inf, math.inf]
    assert run.share_clipped.tolist() == [1.0, 1.0, 0.0, 0.0]
    zero = gp.clip_statistics([0.0, 0.0], 0.0)
    assert (float(zero.share_clipped[0]), float(zero.mean_coefficient[0])) == (0.0, 1.0)


def test_the_coefficient_is_the_one_that_clipping_applies():
    rng = np.random.default_rng(7)
    updates = rng.standard_normal((20, 5))
    norms = [gp.global_norm(u) for u in updates]
    applied = [gp.clip_by_global_norm(u, 2.0)[0][0] / u[0] for u in updates]
    run = gp.clip_statistics(norms, 2.0)
    assert run.mean_coefficient[0] == pytest.approx(
        np.mean(applied), rel=tolerance(float, 20, 1, 1)
    )

    expected = pytest.approx(np.mean(applied), rel=tolerance(float, 20, 1, 1))
    assert run.mean_coefficient[0] == expected


@pytest.mark.parametrize(
    ("norms", "thresholds", "error", "message"),
    [
        ([1.0, -2.0], None, ValueError, r"`norms` must be at least 0; got -2.0 at index \(1,\)"),
        ([np.nan, np.inf], None, ValueError, r"`norms` must hold at least one finite norm"),
        ([[1.0], [np.nan]], None, ValueError, r"at least one finite norm; got none in run \(1,\)"),
        ([], None, ValueError, r"`norms` must not be empty"),
        (3.0, None, ValueError, r"`norms` must have shape"),
        ([1.0], [-1.0], ValueError, r"`thresholds` must be one row of numbers >= 0"),
        ([1.0], [[1.0]], ValueError, r"`thresholds` must be one row"),
        ([1.0], [np.inf], ValueError, r"`thresholds` must be finite"),
        ([1.0], [], ValueError, r"`thresholds` must not be empty"),
        ([1.0], ["x"], TypeError, r"`thresholds` must hold numbers"),
    ],
)
def test_bad_norms_are_refused(norms, thresholds, error, message):
    with pytest.raises(error, match=message):
        gp.clip_statistics(norms, thresholds)
