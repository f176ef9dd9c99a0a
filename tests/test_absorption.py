"""Gradients summed in a float format: exact twins, closed forms, updates that move nothing."""

from __future__ import annotations

from fractions import Fraction

import naive_precision as naive
import numpy as np
import pytest
from helpers import tolerance
from hypothesis import given, settings
from hypothesis import strategies as st
from test_quantised import DTYPES, STOCHASTIC

import gradprop as gp
from gradprop.gradients._problem import Problem
from gradprop.precision._contributions import StepContributions
from gradprop.precision.absorption import RunningSum
from gradprop.precision.formats import FORMATS, Format

BITS = {"float64": 53, "float32": 24, "tf32": 11, "float16": 11, "bfloat16": 8, "float8_e5m2": 3}


def last_only(T: int, n: int = 1) -> np.ndarray:
    """L = sum of h_T."""
    grad_h = np.zeros((T, n))
    grad_h[-1] = 1.0
    return grad_h


def halving(T: int = 80) -> tuple[gp.RNN, np.ndarray, np.ndarray]:
    """dL/db = sum of 0.5^k."""
    return gp.RNN([[0.5]], b=[0.0], activation="linear"), np.zeros((T, 1)), last_only(T)


# --- twins ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", *DTYPES])
def test_running_sums_equal_ml_dtypes_bit_for_bit(name):
    """Term by term in explicit loops; terms from float32, which ml_dtypes rounds once."""
    dtype, rng = np.dtype({"float32": np.float32, **DTYPES}[name]), np.random.default_rng(0)
    terms = rng.standard_normal((30, 40)) * 0.6 ** np.arange(30)[:, None]
    terms[rng.random(terms.shape) < 0.1] = 0.0
    terms = terms.astype(np.float32)
    total, stored = RunningSum(FORMATS[name], 40), np.zeros(40, dtype)
    for term in terms:
        same, lost = total.add(term.astype(np.float64))
        for i, value in enumerate(term):
            rounded = value.astype(dtype)
            after = dtype.type(stored[i] + rounded)
            assert same[i] == (after.tobytes() == stored[i].tobytes())
            assert lost[i] == (value != 0 and float(rounded) == 0)
            stored[i] = after
        np.testing.assert_array_equal(total.stored, stored.astype(np.float64))
    exact = [sum(map(Fraction, map(float, column))) for column in terms.T]
    off = np.array([float(Fraction(float(s)) - e) for s, e in zip(stored, exact, strict=True)])
    error = np.linalg.norm(off) / np.linalg.norm([float(e) for e in exact])
    # a norm of 40 differences, each exact but for its last rounding
    assert total.error(slice(0, 40)) == pytest.approx(error, rel=1e-12)


def rational_gradient(W, W_xh, x, grad_h) -> list[list[Fraction]]:
    """Contributions of a linear network by step, (T, n n + n d_x), all exact."""
    n, d = len(W), len(W_xh[0])
    h = [[Fraction(0)] * n]
    for step in x:
        h.append([
            sum((W[i][j] * h[-1][j] for j in range(n)), Fraction(0))
            + sum((W_xh[i][k] * step[k] for k in range(d)), Fraction(0))
            for i in range(n)
        ])  # fmt: skip
    delta, terms = [Fraction(0)] * n, []
    for t in reversed(range(len(x))):
        delta = [
            grad_h[t][i] + sum((W[j][i] * delta[j] for j in range(n)), Fraction(0))
            for i in range(n)
        ]  # fmt: skip
        recurrent = [delta[i] * h[t][j] for i in range(n) for j in range(n)]
        terms.append(recurrent + [delta[i] * x[t][k] for i in range(n) for k in range(d)])
    return terms


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.integers(3, 12), st.integers(4, 7),
    st.sampled_from(["backward", "forward"]), st.sampled_from([0.1, 0.5, 1.0]),
)  # fmt: skip
def test_linear_networks_of_short_numbers_equal_rational_loops(seed, p, k, order, share):
    """Weights, input and losses are multiples of 1/4, so that float64 makes no error either."""
    fmt, rng, T, n, d = Format(p, k), np.random.default_rng(seed), 6, 3, 2
    shapes = ((n, n), (n, d), (T, d), (T, n))
    arrays = [rng.integers(-3, 4, shape) / 4 for shape in shapes]
    exact = [[[Fraction(float(v)) for v in row] for row in a] for a in arrays]
    terms = rational_gradient(*exact)
    cell = gp.RNN(arrays[0], arrays[1], activation="linear")
    found = gp.absorption(cell, arrays[2], arrays[3], fmt, order=order, share=share)
    stored = [0.0] * len(terms[0])
    for lag in range(T)[:: 1 if order == "backward" else -1]:
        rounded = [naive.exactly_rounded(term, fmt) for term in terms[lag]]
        after = [
            naive.exactly_rounded(Fraction(s) + Fraction(r), fmt)
            for s, r in zip(stored, rounded, strict=True)
        ]  # fmt: skip
        same = np.array([a == s for a, s in zip(after, stored, strict=True)])
        lost = np.array([r == 0 != t for r, t in zip(rounded, terms[lag], strict=True)])
        zero = np.array([t == 0 for t in terms[lag]])
        for shares, mask in ((found.absorbed, same), (found.underflowed, lost), (found.zero, zero)):
            parts = mask, mask[: n * n], mask[n * n :]
            assert shares[lag].tolist() == [part.mean() for part in parts]
        stored = after
    moved = (1 - found.absorbed >= share).T
    assert found.bit_horizon.tolist() == [max(np.flatnonzero(m), default=-1) for m in moved]


def networks(rng: np.random.Generator) -> dict:
    def draw(*shape: int) -> np.ndarray:
        return 0.5 * rng.standard_normal(shape)

    lstm = gp.LSTM(draw(16, 4), draw(16, 3), draw(16), gate_order="iofc")
    after = gp.GRU(draw(12, 4), draw(12, 3), draw(12), draw(12))
    before = gp.GRU(draw(12, 4), draw(12, 3), draw(12), draw(12), reset_after=False)
    return {
        "rnn": gp.RNN(draw(4, 4), draw(4, 3), draw(4), leak=0.4),
        "lstm": lstm, "gru": after, "gru_before": before,
        "stacked": gp.Stacked([gp.RNN(draw(3, 3), draw(3, 3)), before]),
        "replicas": gp.RNN(draw(2, 4, 4), draw(4, 3), draw(2, 4)),
    }  # fmt: skip


@pytest.mark.parametrize("name", networks(np.random.default_rng(0)))
def test_contributions_add_up_to_the_gradient(name):
    """All of them, of sequences of all lengths, by an independent sum; T B terms an entry."""
    rng = np.random.default_rng(1)
    cell, T, lengths = networks(rng)[name], 9, np.array([9, 4])
    x, grad_h = rng.standard_normal((2, T, 3)), rng.standard_normal((2, T, cell.n))
    grad_h[1, 4:] = 0.0
    terms = StepContributions(Problem(cell, x, grad_h, None, lengths))
    total = sum(terms.at(lag) for lag in range(terms.n_lags))
    expected = gp.backward(cell, x, grad_h, lengths=lengths)
    scale = np.abs(expected.flat).max()
    assert np.abs(total - expected.flat).max() <= tolerance(float, 4, 2 * T) * scale
    assert terms.n_lags == T
    assert terms.slices[0].stop == expected.flat.size
    sizes = [s.stop - s.start for s in terms.slices[1:]]
    assert sizes == [int(np.prod(shape)) for shape in expected.shapes]


def test_with_one_loss_at_the_end_lags_are_those_of_the_gradient():
    """Then the steps between a contribution and the end are those between it and the loss."""
    rng = np.random.default_rng(2)
    cell, x, grad_h = networks(rng)["gru"], rng.standard_normal((7, 3)), last_only(7, 4)
    terms = StepContributions(Problem(cell, x, grad_h, None, None))
    by_lag = gp.lag_decomposition(cell, x, grad_h).log_norm[:, 0]
    logs = [np.log(np.linalg.norm(terms.at(lag))) for lag in range(7)]
    assert logs == pytest.approx(by_lag.tolist(), abs=tolerance(float, 4, 7))


def test_sequences_of_a_batch_are_aligned_at_their_ends():
    rng = np.random.default_rng(3)
    cell, lengths = networks(rng)["rnn"], np.array([6, 2])
    x = rng.standard_normal((2, 6, 3))
    grad_h = np.zeros((2, 6, 4))
    grad_h[0, 5], grad_h[1, 1] = rng.standard_normal((2, 4))
    both = StepContributions(Problem(cell, x, grad_h, None, lengths))
    long, short = (
        StepContributions(Problem(cell, x[i, :T], grad_h[i, :T], None, None))
        for i, T in enumerate(lengths)
    )
    for lag in range(6):
        own = long.at(lag) + (short.at(lag) if lag < 2 else 0.0)
        assert np.abs(both.at(lag) - own).max() <= tolerance(float, 4, 6) * np.abs(own).max()


# --- closed forms -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BITS)
def test_a_sum_of_halves_ends_at_two(name):
    """1 + 1/2 + ... has p bits at k = p - 1, is rounded up to 2 at k = p, and stays there.

    From the other end every term doubles and meets a smaller sum: each changes a bit, unless it
    underflows: below half the smallest number, or at it (ties go to zero).
    """
    cell, x, grad_h = halving()
    p, smallest = BITS[name], FORMATS[name].log_min_subnormal / np.log(2.0)
    back = gp.absorption(cell, x, grad_h, name)
    assert back.bit_horizon[back.names.index("b")] == p
    assert (back.absorbed[:, 2] == (back.lags > p)).all()
    assert back.error[2] == pytest.approx(2.0**-80, rel=1e-9)
    ahead = gp.absorption(cell, x, grad_h, name, order="forward")
    lost = back.lags >= round(1 - smallest)
    assert (ahead.underflowed[:, 2] == lost).all()
    assert (ahead.absorbed[:, 2] == lost).all()


def test_a_start_of_zeros_is_a_zero_and_a_share_of_all_entries_is_asked_for():
    cell, x, grad_h = halving(5)
    found = gp.absorption(cell, x, grad_h, "float32")
    assert found.names == ("all", "W_hh", "b")
    assert found.zero[:, 1].tolist() == [1.0] * 5
    assert found.bit_horizon.tolist() == [4, -1, 4]
    assert gp.absorption(cell, x, grad_h, "float32", share=0.6).bit_horizon.tolist() == [-1, -1, 4]
    assert found.status.tolist() == [0, gp.Status.ZERO_GRADIENT, 0]
    assert np.isnan(found.error[1])
    assert found.absorbed[:, 0].tolist() == [0.5] * 5
    frame = found.to_frame()
    assert len(frame) == 15
    assert frame.query("array == 'b' and lags == 3")["absorbed"].tolist() == [0.0]


def test_a_sum_that_overflows_says_so():
    """1.5^k: partial sums pass 65504 at k = 25 in float16; float8_e4m3 stays at 448."""
    cell = gp.RNN([[1.5]], b=[0.0], activation="linear")
    x, grad_h = np.zeros((40, 1)), last_only(40)
    half = gp.absorption(cell, x, grad_h, "float16")
    assert half.status[2] == gp.Status.LEFT_RANGE
    assert half.error[2] == np.inf
    assert np.flatnonzero(half.absorbed[:, 2]).min() == half.bit_horizon[2] + 1
    sums = np.cumsum(1.5 ** np.arange(40))
    assert half.bit_horizon[2] == np.flatnonzero(sums > 65520)[0]
    quarter = gp.absorption(cell, x, grad_h, "float8_e4m3")
    assert quarter.status[2] == 0
    assert quarter.error[2] == pytest.approx(1 - 448 / sums[-1], rel=1e-9)


def test_random_rounding_still_moves_what_nearest_absorbs():
    """The expected sum is the exact one; 40 draws of a sum near 2 with steps of 2^-7."""
    cell, x, grad_h = halving(40)
    nearest = gp.absorption(cell, x, grad_h, "bfloat16")
    rng = np.random.default_rng(4)
    drawn = [gp.absorption(cell, x, grad_h, STOCHASTIC, rng=rng).error[2] for _ in range(40)]
    assert nearest.error[2] < np.mean(drawn) <= 2 * 2.0**-7
    same = [gp.absorption(cell, x, grad_h, STOCHASTIC, rng=7).absorbed for _ in range(2)]
    assert same[0].tobytes() == same[1].tobytes()


def test_forward_order_is_the_more_accurate_one_for_a_vanishing_gradient():
    """Same terms; larger ones last. A known effect, here over ten networks in bfloat16."""
    rng, wins = np.random.default_rng(5), 0
    for _ in range(10):
        cell = gp.RNN(gp.initialise("gaussian", 16, rng=rng, gain=1.0))
        x, grad_h = rng.standard_normal((60, 16)), last_only(60, 16)
        errors = [
            gp.absorption(cell, x, grad_h, "bfloat16", order=o).error[0]
            for o in ("backward", "forward")
        ]
        wins += errors[1] < errors[0]
    assert wins >= 9


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"fmt": "half"}, ValueError, "`fmt` must be one of"),
        ({"fmt": Format(40, 8)}, ValueError, "`fmt` must be float64 or have at most 25 bits"),
        ({"order": "latest"}, ValueError, "`order` must be one of 'backward', 'forward'"),
        ({"share": 0.0}, ValueError, "`share` must be greater than 0"),
        ({"rng": 1}, ValueError, "`rng` must be left out"),
        ({"fmt": STOCHASTIC}, ValueError, "`rng` must be a seed"),
        ({"grad_h": np.ones((3, 1))}, ValueError, "`grad_h` must have shape"),
        ({"cell": gp.Bidirectional(*[gp.RNN([[1.0]])] * 2)}, TypeError, "`cell` must be made of"),
        ({"cell": 3}, TypeError, "`cell` must be made of RNN, LSTM and GRU"),
    ],
)
def test_bad_input(options, error, text):
    cell, x, grad_h = halving(5)
    usual = {"cell": cell, "x": x, "grad_h": grad_h, "fmt": "float32"}
    given = {**usual, **options}
    arguments = [given.pop(name) for name in usual]
    with pytest.raises(error, match=text):
        gp.absorption(*arguments, **given)


# --- updates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", *DTYPES])
def test_updates_equal_loops_over_ml_dtypes(name):
    dtype, rng = np.dtype({"float32": np.float32, **DTYPES}[name]), np.random.default_rng(6)
    numbers = rng.standard_normal((2, 300)) * np.exp(rng.uniform(-12, 2, (2, 300)))
    w, g = numbers.astype(np.float32).astype(dtype)
    rate, beta2 = 2.0**-7, 1 - 2.0**-10  # products with them are exact
    exact = {"w": w.astype(float), "g": g.astype(float)}
    found = gp.update_absorption(
        {"w": exact["w"]}, {"w": exact["g"]}, name, learning_rate=rate, beta2=beta2, eps=2.0**-5
    )
    sgd = adam = lost = damped = 0
    with np.errstate(all="ignore"):
        for own, slope in zip(w, g, strict=True):
            step = dtype.type(np.float32(rate) * np.float32(slope))
            sgd += own - step == own
            v = dtype.type(np.float32(float(slope) ** 2 * (1 - beta2)))
            lost += v == 0 != slope
            update = rate * float(slope) / (np.sqrt(float(v) / (1 - beta2)) + 2.0**-5)
            adam += own - dtype.type(np.float32(update)) == own
            damped += abs(float(slope)) < 2.0**-5
    counts = [found.sgd, found.adam, found.v_lost, found.damped]
    assert [round(float(c[0]) * 300) for c in counts] == [sgd, adam, lost, damped]
    assert 0 < sgd < 300
    assert 0 < damped < 300
    assert found.names == ("all", "w")


def test_the_gradient_that_is_lost_beside_a_weight_of_one():
    """The next bfloat16 below 1 is 2^-8 away: lr g moves it from half of that on; ties to even."""
    g = np.array([2.0**-9, np.nextafter(2.0**-9, 1) + 2.0**-16, -(2.0**-8), -(2.0**-7)])
    found = gp.update_absorption({"w": np.ones(4)}, {"w": g}, "bfloat16", learning_rate=1.0)
    assert found.sgd[0] == 0.5


def test_adam_in_float16_divides_by_zero():
    """1e-8 is below half of 2^-24, and 1e-3 g^2 is from g = 0.0054 down: sqrt(2^-25 / 1e-3)."""
    edge = np.sqrt(2.0**-25 / 1e-3)
    g = {"a": [0.98 * edge, 1.02 * edge], "b": [0.0]}
    w = {"a": [1.0, 1.0], "b": [1.0]}
    found = gp.update_absorption(w, g, "float16", learning_rate=1e-3)
    assert found.stored_eps == 0.0
    assert found.names == ("all", "a", "b")
    assert found.v_lost.tolist() == [1 / 3, 0.5, 0.0]
    assert found.not_finite.tolist() == [2 / 3, 0.5, 1.0]
    wide = gp.update_absorption(w, g, "bfloat16", learning_rate=1e-3)
    assert wide.v_lost.tolist() == wide.not_finite.tolist() == [0.0, 0.0, 0.0]
    assert wide.damped.tolist() == [1 / 3, 0.0, 1.0]
    assert wide.to_frame()["array"].tolist() == ["all", "a", "b"]


def test_damped_means_less_than_half_a_step():
    """Without rounding the step is lr / (1 + eps / g): below lr / 2 where g is below eps."""
    g = np.array([0.5, 0.999, 1.001, 3.0]) * 1e-8
    found = gp.update_absorption({"w": np.zeros(4)}, {"w": g}, "float64", learning_rate=1.0)
    assert found.damped[0] == 0.5
    assert found.adam[0] == 0.0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"weights": [1.0]}, TypeError, "`weights` must be a mapping"),
        ({"grads": {"v": [1.0]}}, ValueError, "must have the same names; got \\['w'\\]"),
        ({"grads": {"w": [1.0, 2.0]}}, ValueError, "must have the shape \\(1,\\)"),
        ({"grads": {"w": [np.nan]}}, ValueError, "must be finite"),
        ({"grads": {"w": [1.0], 1: [1.0]}}, ValueError, "must have the same names"),
        ({"weights": {"w": [1e6]}}, ValueError, "ends at 65504; got 1e\\+06"),
        ({"learning_rate": 0.0}, ValueError, "`learning_rate` must be greater than 0"),
        ({"beta2": 1.0}, ValueError, "`beta2` must be less than 1"),
        ({"eps": -1.0}, ValueError, "`eps` must be at least 0"),
        ({"fmt": "half"}, ValueError, "`fmt` must be one of"),
        ({"rng": 1}, ValueError, "`rng` must be left out"),
        ({"weights": {}, "grads": {}}, ValueError, "must have the same names"),
    ],
)
def test_bad_updates(options, error, text):
    usual = {"weights": {"w": [1.0]}, "grads": {"w": [1.0]}, "fmt": "float16", "learning_rate": 0.1}
    with pytest.raises(error, match=text):
        gp.update_absorption(**{**usual, **options})


def test_an_update_by_zero_over_zero_is_told_in_a_format_without_infinities():
    """v and eps both vanish in e4m3, and its largest number is no answer."""
    found = gp.update_absorption({"w": [1.0]}, {"w": [0.5]}, "float8_e4m3", learning_rate=1e-3)
    assert found.not_finite.tolist() == [1.0, 1.0]
