"""Losses and their gradients, to the last digits, and without a trace of what padding holds."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from helpers import layouts, same, tolerance
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gradprop as gp

EPS = float(np.finfo(float).eps)
HUGE = float(np.finfo(float).max)


def batch(seed=0, B=3, T=5, C=4):
    """Logits, labels, targets and the mask of a padded batch, garbage on the padding."""
    rng = np.random.default_rng(seed)
    z = 3 * rng.standard_normal((B, T, C))
    y = rng.integers(0, C, (B, T))
    q = rng.standard_normal((B, T, C))
    mask = gp.length_mask([T, 2, 1], T)
    return z, y, q, mask


def naive_cross_entropy(z, y, mask):
    """The formula in plain NumPy; complex logits pass through it."""
    total = 0.0
    for index in zip(*np.nonzero(mask), strict=True):
        total = total + np.log(np.exp(z[index]).sum()) - z[index][y[index]]
    return total / np.count_nonzero(mask)


def naive_squared_error(p, q, mask):
    total, count = 0.0, 0
    for index in zip(*np.nonzero(mask), strict=True):
        for i in range(p.shape[-1]):
            total = total + (p[index][i] - q[index][i]) ** 2
            count += 1
    return total / count


def complex_step(function, x, h=1e-40):
    """Derivative of an analytic function by each entry: no difference, so no cancellation."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[index] += 1j * h
        gradient[index] = function(moved).imag / h
    return gradient


def exact_cross_entropy(z, y):
    """Value and gradient of one step, in as many digits as the logits need besides 40."""
    span = max((math.frexp(v)[1] for v in z if v), default=0)
    with mpmath.workdps(40 + max(0, span) // 3 + 330):
        exps = [mpmath.exp(mpmath.mpf(float(v)) - mpmath.mpf(float(max(z)))) for v in z]
        total = mpmath.fsum(exps)
        value = mpmath.log(total) + mpmath.mpf(float(max(z))) - mpmath.mpf(float(z[y]))
        gradient = [e / total - (j == y) for j, e in enumerate(exps)]
        return float(value), [float(g) for g in gradient]


# --- cross-entropy -----------------------------------------------------------------------------


def test_cross_entropy_by_hand():
    loss = gp.cross_entropy([[0.0, math.log(3)], [0.0, 0.0]], [0, 1])
    # ln 4 and ln 2
    assert loss.value == pytest.approx(1.5 * math.log(2), rel=4 * EPS)
    np.testing.assert_allclose(loss.per_step, [math.log(4), math.log(2)], rtol=4 * EPS)
    np.testing.assert_allclose(loss.gradient, [[-0.375, 0.375], [0.25, -0.25]], rtol=4 * EPS)
    assert loss.n_steps == 2
    assert loss.mask.tolist() == [True, True]


def test_cross_entropy_against_the_plain_formula_and_its_complex_step():
    z, y, _, mask = batch()
    loss = gp.cross_entropy(z, y, mask)
    assert loss.value == pytest.approx(naive_cross_entropy(z, y, mask), rel=tolerance(float, 4, 8))
    gradient = complex_step(lambda x: naive_cross_entropy(x, y, mask), z)
    np.testing.assert_allclose(loss.gradient, gradient, rtol=0, atol=tolerance(float, 4, 1, 4))
    assert loss.n_steps == 8


@pytest.mark.parametrize(
    "z",
    [
        [0.3, -1.2, 2.0],
        [40.0, 0.1, -3.3],
        [700.1, 0.3, 0.7],
        [1e4, -1e4, 9990.7],
        [-740.3, 0.3, -20.1],
        [1e300, -1e300, 3.0],
        [1e300, 1e300, 1e300],
        [1e-300, 0.0, -1e-300],
        [5.0, 5.0 + 1e-15, 5.0 - 1e-9],
        [1.0],
    ],
)
def test_cross_entropy_in_many_digits(z):
    """Near probability 1 the loss is tiny, and still has all its digits."""
    for y in range(len(z)):
        loss = gp.cross_entropy([z], [y])
        value, gradient = exact_cross_entropy(z, y)
        # exp, sum, log1p, quotient: at most C + 4 roundings, each an ulp
        bound = tolerance(float, len(z), 1, 5)
        np.testing.assert_allclose(loss.value, value, rtol=bound, atol=5e-324)
        np.testing.assert_allclose(loss.gradient[0], gradient, rtol=bound, atol=5e-324)


def test_a_probability_near_one_keeps_relative_accuracy():
    # -ln(1/(1 + e^-50)) = e^-50 - e^-100/2: the plain formula gives 0
    loss = gp.cross_entropy([[50.0, 0.0]], [0])
    assert loss.value == pytest.approx(math.exp(-50), rel=4 * EPS)
    assert loss.gradient[0, 0] == -loss.gradient[0, 1]
    assert loss.gradient[0, 1] == pytest.approx(math.exp(-50), rel=4 * EPS)
    assert naive_cross_entropy(np.array([[50.0, 0.0]]), np.array([0]), np.array([True])) == 0.0


def test_uniform_logits_give_the_log_of_the_number_of_classes():
    for level in (0.0, -1e5, 1e300):
        loss = gp.cross_entropy(np.full((4, 7), level), [0, 3, 6, 1])
        assert loss.value == pytest.approx(math.log(7), rel=4 * EPS)


def test_the_value_is_inf_only_above_the_largest_float():
    logits = [[1.5 * 2.0**1022, 0.0], [0.0, 0.0]]
    loss = gp.cross_entropy([[0.9 * HUGE, 0.0]] * 3, [1, 1, 1])
    assert loss.value == pytest.approx(0.9 * HUGE, rel=4 * EPS)
    assert gp.cross_entropy(logits, [1, 0]).value == 1.5 * 2.0**1021
    beyond = gp.cross_entropy([[0.9 * HUGE, -0.9 * HUGE]], [1])
    assert beyond.value == math.inf
    assert beyond.gradient.tolist() == [[1.0, -1.0]]


# --- mean squared error ------------------------------------------------------------------------


def test_squared_error_is_the_mean_over_steps_and_features():
    loss = gp.mean_squared_error([[3.0, 0.0], [1.0, 1.0]], [[0.0, 4.0], [0.0, 2.0]])
    # (9 + 16 + 1 + 1)/4, without a factor 1/2; gradient 2 (p - q)/4
    assert loss.value == 6.75
    assert loss.per_step.tolist() == [12.5, 1.0]
    assert loss.gradient.tolist() == [[1.5, -2.0], [0.5, -0.5]]


def test_squared_error_against_the_plain_formula_and_its_complex_step():
    p, _, q, mask = batch(1)
    loss = gp.mean_squared_error(p, q, mask)
    expected = naive_squared_error(p, q, mask)
    assert loss.value == pytest.approx(expected, rel=tolerance(float, 4, 8, 1))
    gradient = complex_step(lambda x: naive_squared_error(x, q, mask), p)
    np.testing.assert_allclose(loss.gradient, gradient, rtol=8 * EPS)


def test_squared_error_in_forty_digits_over_the_whole_range():
    rng = np.random.default_rng(2)
    p = rng.standard_normal((6, 3)) * 2.0 ** rng.integers(-400, 400, (6, 3))
    q = rng.standard_normal((6, 3)) * 2.0 ** rng.integers(-400, 400, (6, 3))
    loss = gp.mean_squared_error(p, q)
    with mpmath.workdps(40):
        difference = [[mpmath.mpf(float(a)) - mpmath.mpf(float(b)) for a, b in zip(*r, strict=True)]
                      for r in zip(p, q, strict=True)]  # fmt: skip
        steps = [mpmath.fsum(d * d for d in row) / 3 for row in difference]
        value, per_step = float(mpmath.fsum(steps) / 6), [float(s) for s in steps]
        gradient = [[float(2 * d / 18) for d in row] for row in difference]
    assert loss.value == pytest.approx(value, rel=tolerance(float, 18, 1, 1))
    np.testing.assert_allclose(loss.per_step, per_step, rtol=tolerance(float, 3, 1, 2))
    np.testing.assert_allclose(loss.gradient, gradient, rtol=2 * EPS)


def test_no_square_overflows_or_vanishes_that_the_mean_does_not():
    large = np.zeros((100, 2))
    large[0, 0] = 1e155
    assert gp.mean_squared_error(large, np.zeros_like(large)).value == pytest.approx(
        5e307, rel=4 * EPS
    )
    small = np.full((3, 1), 1.5e-154)
    assert gp.mean_squared_error(small, 0 * small).value == pytest.approx(2.25e-308, rel=4 * EPS)
    beyond = gp.mean_squared_error([[1e200]], [[0.0]])
    assert beyond.value == math.inf
    assert beyond.gradient.tolist() == [[2e200]]


def test_a_difference_that_overflows_has_the_gradient_of_the_mean():
    far = np.array([[1.5e308], [0.0], [3.0], [4.0]])
    loss = gp.mean_squared_error(far, -far)
    assert loss.value == np.inf
    assert loss.gradient.ravel().tolist() == [1.5e308, 0.0, 3.0, 4.0]


def test_perfect_prediction():
    p = np.random.default_rng(3).standard_normal((4, 2))
    loss = gp.mean_squared_error(p, p)
    assert loss.value == 0.0
    assert not loss.gradient.any()


# --- masks and padding -------------------------------------------------------------------------


def losses(z, y, q, **selection):
    return [gp.cross_entropy(z, y, **selection), gp.mean_squared_error(z, q, **selection)]


def test_length_mask():
    mask = gp.length_mask([3, 0, 2], 3)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, True, False]]
    assert gp.length_mask(2, 4).tolist() == [True, True, False, False]
    assert gp.length_mask([[1], [2]], 2).shape == (2, 1, 2)
    assert gp.length_mask([0], 0).shape == (1, 0)


@pytest.mark.parametrize("junk", [1e30, np.nan, np.inf, -np.inf, 1e308])
def test_what_stands_on_masked_steps_changes_no_bit(junk):
    z, y, q, mask = batch(4)
    clean = losses(z, y, q, mask=mask)
    z[~mask], q[~mask] = junk, -junk
    y[~mask] = -(2**40)
    for before, after in zip(clean, losses(z, y, q, mask=mask), strict=True):
        assert after.value == before.value
        assert after.gradient.tobytes() == before.gradient.tobytes()
        assert after.per_step.tobytes() == before.per_step.tobytes()
        assert (after.gradient[~mask] == 0).all()
        assert (after.per_step[~mask] == 0).all()
        assert (after.gradient[mask] != 0).all()


def test_more_padding_changes_no_bit():
    z, y, q, mask = batch(5, T=9)
    wide = [np.concatenate([a, np.full_like(a, 7)], axis=1) for a in (z, y, q)]
    for own, padded in zip(
        losses(z, y, q, mask=mask), losses(*wide, lengths=[9, 2, 1]), strict=True
    ):
        assert padded.value == own.value
        assert same(padded.gradient[:, :9], own.gradient)
        assert not padded.gradient[:, 9:].any()


def test_lengths_are_the_mask_where_none_is_given():
    z, y, q, mask = batch(6)
    for by_mask, by_lengths in zip(
        losses(z, y, q, mask=mask), losses(z, y, q, lengths=[5, 2, 1]), strict=True
    ):
        assert by_lengths.value == by_mask.value
        assert same(by_lengths.gradient, by_mask.gradient)
        assert same(by_lengths.mask, mask)


def test_a_loss_on_a_padded_step_is_refused():
    z, y, q, mask = batch(7)
    mask = mask.copy()
    mask[1, 3] = True
    message = r"`mask` must be False on padding.*sequence \(1,\), step 4, index \(1, 3\)"
    with pytest.raises(ValueError, match=message):
        gp.cross_entropy(z, y, mask, lengths=[5, 2, 1])
    with pytest.raises(ValueError, match=message):
        gp.mean_squared_error(z, q, mask, lengths=[5, 2, 1])
    # only the last valid step counts: a mask may be smaller than the lengths
    last = gp.length_mask([5, 2, 1], 5) & ~gp.length_mask([4, 1, 0], 5)
    assert gp.cross_entropy(z, y, last, lengths=[5, 2, 1]).n_steps == 3


def test_a_mask_of_steps_serves_every_sequence():
    z, y, q, _ = batch(8)
    steps = np.array([False, True, True, False, True])
    full = np.broadcast_to(steps, (3, 5))
    for short, long in zip(losses(z, y, q, mask=steps), losses(z, y, q, mask=full), strict=True):
        assert short.value == long.value
        assert same(short.gradient, long.gradient)


# --- dtypes, layouts, results ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_of_the_gradient_is_that_of_the_outputs(dtype):
    z, y, q, mask = batch(9)
    z, q = z.astype(dtype), q.astype(dtype)
    wide = losses(z.astype(float), y, q.astype(float), mask=mask)
    for own, exact in zip(losses(z, y, q, mask=mask), wide, strict=True):
        # computed in float64 and rounded once
        assert own.value == exact.value
        assert isinstance(own.value, float)
        assert own.gradient.dtype == dtype
        assert same(own.gradient, exact.gradient.astype(dtype))
    whole = gp.mean_squared_error([[1, 2]], [[0, 0]])
    assert (whole.value, whole.gradient.dtype) == (2.5, np.float64)


def test_layout_and_input_are_left_alone():
    z, y, q, mask = batch(10)
    expected = losses(z, y, q, mask=mask)
    labels = layouts(y)
    for name, array in layouts(z).items():
        before = array.copy()
        for own, wanted in zip(losses(array, labels[name], q, mask=mask), expected, strict=True):
            assert own.value == wanted.value
            assert same(own.gradient, wanted.gradient)
        assert same(array, before)


def test_result_is_read_only_and_has_a_table(tmp_path):
    z, y, _, mask = batch(11)
    loss = gp.cross_entropy(z, y, mask)
    with pytest.raises(ValueError, match="read-only"):
        loss.gradient[0] = 1
    frame = loss.to_frame()
    assert len(frame) == 15
    assert frame["per_step"][frame["mask"]].mean() == pytest.approx(loss.value, rel=8 * EPS)
    loss.save(tmp_path / "loss.npz")
    stored = type(loss).load(tmp_path / "loss.npz")
    assert stored.value == loss.value
    assert same(stored.gradient, loss.gradient)


# --- laws --------------------------------------------------------------------------------------

logits = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5),
    elements=st.floats(-50, 50, width=16),
)


def labels_for(z, data):
    return data.draw(hnp.arrays(np.int64, z.shape[:-1], elements=st.integers(0, z.shape[-1] - 1)))


@given(logits, st.data())
def test_adding_a_constant_to_all_logits_changes_nothing(z, data):
    y = labels_for(z, data)
    shift = float(data.draw(st.integers(-1000, 1000)))
    own, moved = gp.cross_entropy(z, y), gp.cross_entropy(z + shift, y)
    # the shift rounds each logit by half an ulp of 1050, 512 eps; the loss moves by two of them
    np.testing.assert_allclose(moved.value, own.value, rtol=0, atol=1100 * EPS)
    np.testing.assert_allclose(moved.gradient, own.gradient, rtol=0, atol=1100 * EPS)


@given(logits, st.data())
def test_gradient_sums_to_zero_over_classes_and_the_loss_is_not_negative(z, data):
    y = labels_for(z, data)
    loss = gp.cross_entropy(z, y)
    np.testing.assert_allclose(loss.gradient.sum(axis=-1), 0, atol=2 * z.shape[-1] * EPS)
    assert loss.value >= 0
    assert (np.take_along_axis(loss.gradient, y[..., None], axis=-1) <= 0).all()
    assert np.abs(loss.gradient).max() * loss.n_steps <= 1 + z.shape[-1] * EPS


@given(logits, st.data())
def test_order_of_sequences_does_not_matter(z, data):
    y = labels_for(z, data)
    order = np.array(data.draw(st.permutations(range(len(z)))))
    rng = np.random.default_rng(0)
    q = rng.standard_normal(z.shape)
    for own, moved in zip(losses(z, y, q), losses(z[order], y[order], q[order]), strict=True):
        assert moved.value == pytest.approx(own.value, rel=tolerance(float, z.size, 1, 1))
        assert same(moved.gradient, own.gradient[order])
        assert same(moved.per_step, own.per_step[order])


@given(logits, st.data())
def test_the_mean_of_two_halves_is_the_mean(z, data):
    y = labels_for(z, data)
    q = np.zeros_like(z)
    mask = data.draw(hnp.arrays(np.bool_, z.shape[:-1]))
    if mask.all() or not mask.any():
        return
    parts = zip(
        losses(z, y, q), losses(z, y, q, mask=mask), losses(z, y, q, mask=~mask), strict=True
    )
    for whole, a, b in parts:
        joined = (a.value * a.n_steps + b.value * b.n_steps) / whole.n_steps
        assert joined == pytest.approx(whole.value, rel=tolerance(float, z.size, 1), abs=1e-300)
        sum_ = (a.gradient * a.n_steps + b.gradient * b.n_steps) / whole.n_steps
        np.testing.assert_allclose(sum_, whole.gradient, rtol=8 * EPS, atol=1e-300)


# --- what is refused ---------------------------------------------------------------------------


def test_no_step_that_counts_is_refused():
    z, y, q, mask = batch(12)
    for selection in ({"mask": np.zeros_like(mask)}, {"lengths": [0, 0, 0]}):
        with pytest.raises(ValueError, match="must not be empty"):
            gp.cross_entropy(z, y, **selection)
        with pytest.raises(ValueError, match="must not be empty"):
            gp.mean_squared_error(z, q, **selection)
    with pytest.raises(ValueError, match="must not be empty"):
        gp.cross_entropy(np.empty((0, 3)), np.empty(0, dtype=int))


def test_entries_that_are_not_finite_are_named_with_their_step():
    z, y, q, mask = batch(13)
    bad = z.copy()
    bad[1, 1, 2] = np.nan
    where = r"got nan at sequence \(1,\), step 2, index \(1, 1, 2\)"
    with pytest.raises(ValueError, match=r"`logits` must be finite; " + where):
        gp.cross_entropy(bad, y, mask)
    with pytest.raises(ValueError, match=r"`prediction` must be finite; " + where):
        gp.mean_squared_error(bad, q, mask)
    with pytest.raises(ValueError, match=r"`target` must be finite; " + where):
        gp.mean_squared_error(q, bad, mask)


@pytest.mark.parametrize(
    ("y", "selection", "error", "message"),
    [
        ([0, 3, 1], {}, ValueError, r"`labels` must lie in 0..2; got 3 at step 2, index \(1,\)"),
        ([0, 1, -1], {}, ValueError, r"`labels` must lie in 0..2; got -1 at step 3"),
        ([0.0, 1.0, 2.0], {}, TypeError, r"`labels` must hold integers; got dtype float64"),
        ([True, False, True], {}, TypeError, r"`labels` must hold integers; got dtype bool"),
        ([0, 1], {}, ValueError, r"`labels` must have the logits' shape \(3,\); got \(2,\)"),
        ([0, 1, 2], {"mask": [1, 0, 1]}, TypeError, r"`mask` must hold booleans; got dtype int64"),
        ([0, 1, 2], {"mask": [True] * 2}, ValueError, r"`mask` must fit steps of shape \(3,\)"),
        ([0, 1, 2], {"mask": np.ma.array([True] * 3)}, TypeError, r"`mask` must be a plain array"),
        ([0, 1, 2], {"lengths": 4}, ValueError, r"`lengths` must lie in 0..3; got 4"),
        ([0, 1, 2], {"lengths": [1, 2]}, ValueError, r"`lengths` must fit steps of shape"),
        ([0, 1, 2], {"lengths": 1.5}, TypeError, r"`lengths` must hold integers"),
    ],
)
def test_bad_arguments_are_refused_by_name(y, selection, error, message):
    with pytest.raises(error, match=message):
        gp.cross_entropy(np.zeros((3, 3)), y, **selection)


def test_bad_shapes_and_kinds_are_refused():
    with pytest.raises(ValueError, match=r"`logits` must have shape \(..., T, C\)"):
        gp.cross_entropy([1.0, 2.0], 0)
    with pytest.raises(TypeError, match=r"`logits` must be real"):
        gp.cross_entropy([[1j]], [0])
    with pytest.raises(ValueError, match=r"`target` must have the prediction's shape"):
        gp.mean_squared_error(np.zeros((3, 2)), np.zeros((3, 1)))
    with pytest.raises(TypeError, match=r"`n_steps` must be an integer"):
        gp.length_mask([1], 2.0)
