"""Credit: norms between all pairs of steps, gradients by lag, and what windows leave out."""

from __future__ import annotations

import math
from fractions import Fraction

import naive
import numpy as np
import pytest
import untied
from chains import FAMILIES, random_chain
from helpers import same, tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop.gradients._paths import Paths
from gradprop.gradients._problem import Problem

dense = gp.JacobianChain.dense
ONE = gp.RNN([[0.9]], b=[1.0], activation="linear")
X10, LAST = np.zeros((10, 1)), np.eye(10)[:, -1:]


def norms(cell, flat):
    return [np.linalg.norm(part) for part in untied.parts(cell, flat)]


# --- credit matrix -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_credit_is_the_norm_of_every_partial_product(family):
    J = random_chain(np.random.default_rng(1), family, 10, 3)
    credit = gp.credit_matrix(dense(J))
    for s in range(11):
        for t in range(11):
            expected = naive.log_norms(J[t:s])[-1] if t <= s else -math.inf
            # cancellation is not rounding: there the stated error tells
            allowed = tolerance(float, 3, 10) + 2 * credit.error[s, t] if t <= s else 0.0
            if credit.error[s, t] < 1e-3:
                assert credit.log_norm[s, t] == pytest.approx(expected, abs=allowed)


def test_credit_of_jordan_blocks_is_known_exactly():
    a, b = 0.9, 50.0
    credit = gp.credit_matrix(dense([[[a, b], [0.0, a]]] * 40), steps=[3, 0, 40, 3])
    assert credit.later.tolist() == credit.earlier.tolist() == [0, 3, 40]
    for i, j in ((1, 0), (2, 0), (2, 1)):
        k = int(credit.later[i] - credit.earlier[j])
        half = 0.5 * k * b / a
        exact = k * math.log(a) + math.asinh(half)
        assert credit.log_norm[i, j] == pytest.approx(exact, abs=tolerance(float, 2, k))
    assert np.diag(credit.log_norm).tolist() == [0.0, 0.0, 0.0]
    assert (credit.log_norm[np.triu_indices(3, 1)] == -np.inf).all()
    assert credit.status == gp.Status.OK


def test_credit_leaves_the_range_of_floats():
    credit = gp.credit_matrix(dense(np.full((3000, 1, 1), 0.5)), steps=[0, 1500, 3000])
    exact = -math.log(2) * np.array([1500, 3000, 1500])
    assert credit.log_norm[[1, 2, 2], [0, 0, 1]] == pytest.approx(exact, rel=1e-14)


def test_credit_of_diagonal_chains_and_of_batches():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((2, 8, 3)) * np.exp(1j * rng.standard_normal((2, 8, 3)))
    credit = gp.credit_matrix(gp.JacobianChain.diagonal(a))
    logs = np.log(np.abs(a))
    for s in range(9):
        for t in range(s):
            exact = logs[:, t:s].sum(axis=1).max(axis=-1)
            assert credit.log_norm[:, s, t] == pytest.approx(exact, abs=1e-13)
    J = rng.standard_normal((3, 6, 2, 2))
    whole = gp.credit_matrix(dense(J))
    for r in range(3):
        assert same(whole.log_norm[r], gp.credit_matrix(dense(J[r])).log_norm)
    assert same(gp.credit_matrix(dense(J), steps=[1, 4]).log_norm[:, 1, 0], whole.log_norm[:, 4, 1])


def test_credit_of_padded_and_overflowing_orbits():
    cell = gp.RNN([[0.5]], activation="linear")
    padded = gp.credit_matrix(gp.linearise(cell, np.zeros((2, 4, 1)), lengths=[4, 2]))
    assert padded.log_norm[1, 4] == pytest.approx(np.log([0.25, 0.5, 1, 1, 1]), abs=1e-15)
    assert padded.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    doubling = gp.RNN([[2.0]], activation="linear")
    # 2^1023 is the last power of two in range
    over = gp.credit_matrix(gp.linearise(doubling, h0=[1.0], n_steps=1100), steps=[0, 1023, 1100])
    assert over.log_norm[1, 0] == pytest.approx(1023 * math.log(2), rel=1e-14)
    assert np.isnan(over.log_norm[2]).all()
    assert over.log_norm[0, 2] == -np.inf
    assert over.status == gp.Status.OVERFLOWED


def test_credit_names_exact_zeros_and_needs_steps_for_long_chains():
    J = np.array([np.diag([0.0, 1.0]), np.diag([1.0, 0.0]), np.eye(2)])
    credit = gp.credit_matrix(dense(J))
    assert credit.log_norm[2, 0] == -np.inf
    assert credit.status == gp.Status.ZERO
    assert gp.credit_matrix(dense(np.empty((0, 2, 2)))).log_norm.tolist() == [[0.0]]
    long = gp.JacobianChain.row_scaled(np.eye(20), np.ones((8000, 20)))
    with pytest.raises(ValueError, match=r"`steps` must be given for all pairs of 8000 steps"):
        gp.credit_matrix(long)
    with pytest.raises(ValueError, match=r"`steps` must leave at most 16777216 pairs"):
        gp.credit_matrix(long, steps=np.arange(5000))
    with pytest.raises(ValueError, match=r"`steps` must lie in 0..8000; got 8001"):
        gp.credit_matrix(long, steps=[8001])
    with pytest.raises(TypeError, match=r"`chain` must be a JacobianChain"):
        gp.credit_matrix(ONE)


def test_table_of_a_credit_matrix_has_its_steps():
    frame = gp.credit_matrix(dense(np.full((4, 1, 1), 0.5)), steps=[1, 4]).to_frame()
    row = frame[(frame.later == 4) & (frame.earlier == 1)]
    assert row.log_norm.item() == pytest.approx(3 * math.log(0.5), abs=1e-15)


# --- lags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", untied.KINDS)
def test_parts_by_lag_are_those_of_the_untied_network(kind):
    rng = np.random.default_rng(3)
    cell = untied.random_cell(rng, kind)
    x, g = rng.standard_normal((6, 2)), rng.standard_normal((6, 3))
    found, h = untied.uses(cell, x, g)
    assert gp.rollout(cell, x).h[1:] == pytest.approx(h, abs=1e-14)
    G = untied.by_lag(found)
    lags = gp.lag_decomposition(cell, x, g)
    assert lags.names == ("all", *cell.arrays())
    whole = norms(cell, G.sum(axis=0))
    for k in range(6):
        tail = norms(cell, G[k:].sum(axis=0))
        assert np.exp(lags.log_norm[k]) == pytest.approx(norms(cell, G[k]), rel=1e-12)
        assert np.exp(lags.log_tail[k]) == pytest.approx(tail, rel=1e-12)
        assert lags.share[k] == pytest.approx(np.divide(tail, whole), rel=1e-12)
    assert (lags.status == gp.Status.OK).all()


@st.composite
def problems(draw):
    """A cell, three padded sequences, their losses and lengths."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cell = untied.random_cell(rng, draw(st.sampled_from(untied.KINDS)))
    T = draw(st.integers(1, 12))
    lengths = np.array(draw(st.lists(st.integers(0, T), min_size=3, max_size=3)))
    inside = np.arange(T) < lengths[:, None]
    x = np.where(inside[..., None], rng.standard_normal((3, T, 2)), 1e30)
    g = rng.standard_normal((3, T, 3)) * inside[..., None]
    h0 = rng.standard_normal((3, cell.n_state))
    return cell, x, g, h0, lengths


@given(problems())
def test_parts_by_lag_sum_to_the_gradient(problem):
    cell, x, g, h0, lengths = problem
    T = x.shape[1]
    whole = gp.backward(cell, x, g, h0=h0, lengths=lengths)
    walk = Paths(Problem(cell, x, g, h0, lengths)).from_losses()
    total, size = np.zeros_like(whole.flat), np.finfo(float).tiny
    for _ in range(T):
        walk.back()
        part = walk.gradient()
        own = np.ldexp(*part.parts()[0])
        total, size = total + own, size + np.linalg.norm(own)
    allowed = tolerance(float, 12, T) * size
    assert np.linalg.norm(total - whole.flat) <= allowed
    lags = gp.lag_decomposition(cell, x, g, h0=h0, lengths=lengths)
    for i, part in enumerate([whole.flat, *whole.parameters.values()]):
        assert abs(np.exp(lags.log_tail[0, i]) - np.linalg.norm(part)) <= allowed


def test_few_lags_are_the_first_of_all():
    rng = np.random.default_rng(4)
    cell = untied.random_cell(rng, "gru")
    x, g = rng.standard_normal((2, 9, 2)), rng.standard_normal((2, 9, 3))
    whole, few = gp.lag_decomposition(cell, x, g), gp.lag_decomposition(cell, x, g, max_lag=3)
    assert few.lags.tolist() == [0, 1, 2, 3]
    for field in ("log_norm", "log_tail", "share"):
        assert same(getattr(few, field), getattr(whole, field)[:4])


def test_a_batch_is_the_sum_of_its_sequences_and_networks_do_not_mix():
    rng = np.random.default_rng(5)
    W, b = rng.standard_normal((2, 3, 3)) / 2, rng.standard_normal(3)
    x, g = rng.standard_normal((2, 7, 3)), rng.standard_normal((2, 7, 3))
    both = gp.lag_decomposition(gp.RNN(W, b=b), x, g)
    for k in range(7):
        parts = []
        for r in range(2):
            found, _ = untied.uses(gp.RNN(W[r], W_xh=np.eye(3), b=b), x[r], g[r])
            lag = untied.by_lag(found)[k]
            parts.append((lag[:9], lag[-3:]))
        # each network has its own W; the bias is shared, and its gradients add
        W_norm = np.linalg.norm([part[0] for part in parts])
        b_norm = np.linalg.norm(sum(part[1] for part in parts))
        expected = [math.hypot(W_norm, b_norm), W_norm, b_norm]
        assert np.exp(both.log_norm[k]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("dtype", "T"), [(np.float64, 1150), (np.float32, 200)])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_lags_leave_the_range_of_floats(dtype, T, factor):
    cell = gp.RNN(np.array([[factor]], dtype), b=np.zeros(1, dtype), activation="linear")
    g = np.zeros((T, 1))
    g[[0, -1]] = 1.0
    lags = gp.lag_decomposition(cell, np.zeros((T, 1)), g)
    exact = [Fraction(factor) ** k for k in range(T)]
    exact[0] += 1
    tails = np.cumsum(exact[::-1])[::-1]
    for k in (0, 1, T // 2, T - 1):
        for value, true in ((lags.log_norm[k, 2], exact[k]), (lags.log_tail[k, 2], tails[k])):
            log = math.log(true.numerator) - math.log(true.denominator)
            assert value == pytest.approx(log, abs=tolerance(dtype, 1, T))
    # the state is zero, and so is the gradient of W_hh
    assert (lags.log_norm[:, 1] == -np.inf).all()
    assert np.isnan(lags.share[:, 1]).all()
    assert lags.status.tolist() == [0, gp.Status.ZERO_GRADIENT, 0]


def test_a_faint_gradient_is_not_hidden_by_large_ones_that_no_parameter_meets():
    # two losses, k steps after their first step: from one it is saturated, then grows by 1.5; from
    # the other it is not, then falls by 0.5. What the parameters meet is the second alone
    k = 720
    x, h = np.zeros((2 * (k + 1), 1)), 0.0
    for t in range(len(x)):
        saturated = t >= k + 1 if t in (0, k + 1) else t < k + 1
        z = 1e4 if saturated else 0.0
        x[t] = z - 2 * h
        h = 0.5 * h + 0.5 * min(z, 1.0)
    g = np.zeros_like(x)
    g[[k, -1]] = 1.0
    cell = gp.RNN([[2.0]], b=[0.0], activation="hard_tanh", leak=0.5)
    lags = gp.lag_decomposition(cell, x, g, max_lag=k)
    assert lags.log_norm[k, 2] == pytest.approx((k + 1) * math.log(0.5), rel=1e-14)


def test_single_precision_agrees_with_double():
    rng = np.random.default_rng(6)
    double = untied.random_cell(rng, "lstm")
    single = gp.LSTM(*(a.astype(np.float32) for a in double.arrays().values()), gate_order="iofc")
    wide = gp.LSTM(*(a.astype(float) for a in single.arrays().values()), gate_order="iofc")
    x, g = (rng.standard_normal((2, 20, k)).astype(np.float32) for k in (2, 3))
    a, b = (gp.lag_decomposition(cell, x, g) for cell in (single, wide))
    assert a.log_norm == pytest.approx(b.log_norm, abs=tolerance(np.float32, 3, 20))
    assert a.log_tail == pytest.approx(b.log_tail, abs=tolerance(np.float32, 3, 20))


def test_a_callable_loss_is_that_at_the_orbit():
    rng = np.random.default_rng(7)
    cell, x = untied.random_cell(rng, "rnn"), rng.standard_normal((2, 8, 2))
    h = gp.rollout(cell, x).h[:, 1:]
    given_ahead = gp.lag_decomposition(cell, x, h**2)
    assert same(gp.lag_decomposition(cell, x, lambda h: h**2).log_tail, given_ahead.log_tail)


# --- windows -------------------------------------------------------------------------------------


def exact_scalar(window, sliding):
    """d h_10 / d 0.9 of h' = 0.9 h + 1, in rational numbers."""
    a, T = Fraction(9, 10), 10
    h = [sum(a**i for i in range(t)) for t in range(T + 1)]
    first = T - window if sliding else (T - 1) // window * window
    return float(sum(a ** (T - 1 - s) * h[s] for s in range(max(first, 0), T)))


@pytest.mark.parametrize(
    ("window", "chunked", "sliding"),
    [
        (1, 6.12579511, 6.12579511),
        (2, 11.25159022, 11.25159022),
        (3, 6.12579511, 15.47738533),
        (5, 21.57997555, 21.57997555),
        (10, 26.39010709, 26.39010709),
        (11, 26.39010709, 26.39010709),
    ],
)
def test_windows_of_the_scalar_example(window, chunked, sliding):
    whole = exact_scalar(10, sliding=True)
    assert whole == pytest.approx(26.39010709, abs=5e-9)
    bias = gp.truncation_bias(ONE, X10, LAST, [window])
    for errors, known, is_sliding in (
        (bias.chunked_error, chunked, False),
        (bias.sliding_error, sliding, True),
    ):
        exact = exact_scalar(window, is_sliding)
        assert exact == pytest.approx(known, abs=5e-9)
        assert whole * (1 - errors[0, 1]) == pytest.approx(exact, rel=tolerance(float, 1, 10))
        assert whole * (1 - errors[0, 1]) == pytest.approx(known, abs=1e-8)
    # nothing cancels here: the triangle inequality is an equality
    assert bias.bound[0, 1] == pytest.approx(bias.sliding_error[0, 1], abs=1e-14)
    assert bias.exponent == pytest.approx(math.log(0.9), rel=1e-13)
    assert bias.forecast == pytest.approx(0.9**window, rel=1e-12)
    assert bias.advised_window == pytest.approx(math.log(100) / -math.log(0.9), rel=1e-12)


@pytest.mark.parametrize("kind", untied.KINDS)
def test_truncated_gradients_are_those_of_the_untied_network(kind):
    rng = np.random.default_rng(8)
    cell = untied.random_cell(rng, kind)
    x, g = rng.standard_normal((7, 2)), rng.standard_normal((7, 3))
    found, _ = untied.uses(cell, x, g)
    later, use = np.indices((7, 7))
    bias = gp.truncation_bias(cell, x, g, [1, 2, 3, 7])
    whole = untied.parts(cell, found.sum(axis=(0, 1)))
    for i, K in enumerate([1, 2, 3, 7]):
        kept = {"chunked": later // K == use // K, "sliding": later - use < K}
        for name, which in kept.items():
            short = untied.parts(cell, found[which].sum(axis=0))
            for j, (a, b) in enumerate(zip(short, whole, strict=True)):
                error, cosine = (getattr(bias, f"{name}_{f}")[i, j] for f in ("error", "cosine"))
                size = np.linalg.norm(b)
                assert error == pytest.approx(np.linalg.norm(a - b) / size, abs=1e-12)
                # the first state is zero: one step at a time never uses W_hh on a later loss only
                if np.linalg.norm(a) > 0:
                    true = a @ b / np.linalg.norm(a) / size
                    assert cosine == pytest.approx(true, abs=1e-12)


@given(problems(), st.lists(st.integers(1, 15), min_size=1, max_size=3))
def test_windows_keep_their_laws(problem, windows):
    cell, x, g, h0, lengths = problem
    bias = gp.truncation_bias(cell, x, g, [*windows, 12], h0=h0, lengths=lengths)
    whole = gp.backward(cell, x, g, h0=h0, lengths=lengths).flat
    size = np.linalg.norm(whole)
    if size == 0:
        assert np.isnan(bias.sliding_error[:, 0]).all()
        return
    for i, K in enumerate(windows):
        cut = gp.backward(cell, x, g, h0=h0, lengths=lengths, window=K).flat
        allowed = tolerance(float, 12, 12) * (1 + np.linalg.norm(cut) / size)
        error = np.linalg.norm(cut - whole) / size
        assert bias.chunked_error[i, 0] == pytest.approx(error, abs=allowed)
    slack = tolerance(float, 12, 12) * (1 + bias.bound)
    known = ~np.isnan(bias.bound)
    assert (bias.sliding_error <= bias.bound + slack)[known].all()
    assert (bias.chunked_error[-1][known[-1]] == 0).all()
    assert (bias.sliding_error[-1][known[-1]] == 0).all()


def test_advice_in_chaos_at_the_edge_and_for_dead_networks():
    x = np.zeros((6, 1))
    for factor, advised, forecast in ((2.0, 1.0, 1.0), (1.0, math.inf, 1.0), (0.0, 0.0, 0.0)):
        cell = gp.RNN([[factor]], b=[1.0], activation="linear")
        bias = gp.truncation_bias(cell, x, np.ones((6, 1)), [2])
        assert bias.advised_window == pytest.approx(advised, abs=1e-15)
        assert bias.forecast.tolist() == [forecast]


def test_long_unstable_gradients_are_compared_out_of_range():
    # G_k = 2^k: a sliding window of K keeps 2^K - 1 of 2^T - 1, a chunk as much
    T, K = 1200, 1190
    cell = gp.RNN([[2.0]], b=[0.0], activation="linear")
    g = np.eye(T)[:, -1:]
    bias = gp.truncation_bias(cell, np.zeros((T, 1)), g, [K])
    assert bias.sliding_error[0, 2] == pytest.approx(1 - 2.0**-10, rel=1e-12)
    assert bias.bound[0, 2] == pytest.approx(1 - 2.0**-10, rel=1e-12)
    # the last chunk has 10 steps: nothing is left in double precision
    assert bias.chunked_error[0, 2] == pytest.approx(1.0, rel=1e-15)
    assert bias.sliding_cosine[0, 2] == pytest.approx(1.0, rel=1e-15)


def test_exponents_of_sequences_are_weighted_by_their_steps():
    cell = gp.RNN([[[0.5]], [[0.25]]], b=[1.0], activation="linear")
    x, g = np.zeros((2, 8, 1)), np.zeros((2, 8, 1))
    bias = gp.truncation_bias(cell, x, g, [1], lengths=[8, 2])
    mean = (8 * math.log(0.5) + 2 * math.log(0.25)) / 10
    assert bias.exponent == pytest.approx(mean, rel=1e-13)


def test_zero_gradients_have_a_status_and_no_ratios():
    for x, g in ((X10, np.zeros((10, 1))), (np.zeros((0, 1)), np.zeros((0, 1)))):
        bias = gp.truncation_bias(ONE, x, g, [1, 20])
        assert (bias.status == gp.Status.ZERO_GRADIENT).all()
        assert "The whole gradient is zero" in bias.messages()[0]
        for field in ("chunked_error", "chunked_cosine", "sliding_error", "sliding_cosine"):
            assert np.isnan(getattr(bias, field)).all()
        assert np.isnan(bias.bound).all()
        lags = gp.lag_decomposition(ONE, x, g)
        assert (lags.log_tail == -np.inf).all()
        assert np.isnan(lags.share).all()


def test_a_gradient_that_cancels_exactly_is_zero_too():
    # h_t = t b: 2 h_1 - h_2 does not depend on b, its parts 1 and -1 do
    cell = gp.RNN([[1.0]], b=[0.0], activation="linear")
    x, g = np.zeros((2, 1)), [[2.0], [-1.0]]
    lags = gp.lag_decomposition(cell, x, g)
    assert lags.log_norm[:, 2].tolist() == [0.0, 0.0]
    assert lags.log_tail[:, 2].tolist() == [-np.inf, 0.0]
    assert np.isnan(lags.share[:, 2]).all()
    bias = gp.truncation_bias(cell, x, g, [1])
    assert np.isnan([bias.sliding_error[0, 2], bias.chunked_error[0, 2], bias.bound[0, 2]]).all()
    assert bias.status[2] == gp.Status.ZERO_GRADIENT


def test_tables_name_the_arrays(tmp_path):
    bias = gp.truncation_bias(ONE, X10, LAST, [1, 3])
    frame = bias.to_frame()
    assert frame.array.tolist() == ["all", "W_hh", "b"] * 2
    assert frame.windows.tolist() == [1] * 3 + [3] * 3
    assert same(frame.sliding_error, bias.sliding_error.ravel())
    assert set(gp.lag_decomposition(ONE, X10, LAST).to_frame()["array"]) == {"all", "W_hh", "b"}
    bias.save(tmp_path / "bias.npz")
    assert same(gp.TruncationBias.load(tmp_path / "bias.npz").bound, bias.bound)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"windows": [2, 0]}, ValueError, r"`windows` must lie in 1\.\.\d+; got 0"),
        ({"windows": 1.5}, TypeError, r"`windows` must hold integers"),
        ({"windows": []}, ValueError, r"`windows` must not be empty"),
        ({"tol": 0.0}, ValueError, r"`tol` must be greater than 0"),
        ({"grad_h": np.zeros((9, 1))}, ValueError, r"`grad_h` must have shape \(10, 1\)"),
        ({"cell": gp.Bidirectional(ONE, ONE)}, TypeError, r"`cell` must be made of RNN, LSTM"),
        ({"x": None}, ValueError, r"`h0`"),
        ({"cell": gp.RNN([[1e200]], b=[1.0], activation="linear")}, ValueError, r"overflows"),
    ],
)
def test_bad_windows_are_refused_by_name(arguments, error, message):
    given_all = {"cell": ONE, "x": X10, "grad_h": LAST, "windows": [1], **arguments}
    with pytest.raises(error, match=message):
        gp.truncation_bias(**given_all)


def test_bad_lags_are_refused_by_name():
    with pytest.raises(ValueError, match=r"`max_lag` must be at most 9; got 10"):
        gp.lag_decomposition(ONE, X10, LAST, max_lag=10)
    with pytest.raises(ValueError, match=r"`grad_h` must be zero in padded steps"):
        gp.lag_decomposition(ONE, X10, LAST, lengths=9)
    with pytest.raises(TypeError, match=r"`cell` must be made of"):
        gp.lag_decomposition(gp.Bidirectional(ONE, ONE), X10, np.zeros((10, 2)))


@pytest.mark.parametrize(("dtype", "n_steps"), [("float32", 90), ("float64", 400)])
def test_an_array_far_below_the_others_keeps_its_digits(dtype, n_steps):
    """h' = h/8 + x + b, an impulse at step 1, loss at the end: dL/dW_xh = 8^-(T-1), dL/db = 8/7."""
    one = np.ones((1, 1), dtype)
    cell = gp.RNN(one / 8, one, np.zeros(1, dtype), activation="linear")
    x, grad_h = np.zeros((2, n_steps, 1), dtype)
    x[0], grad_h[-1] = 1, 1
    found = gp.lag_decomposition(cell, x, grad_h, max_lag=1)
    faint = found.names.index("W_xh")
    exact = -(n_steps - 1) * np.log(8)
    assert found.log_tail[0, faint] == pytest.approx(exact, rel=1e-6)
    assert not found.status.any()
    bias = gp.truncation_bias(cell, x, grad_h, [1, n_steps])
    assert not bias.status.any()
    assert bias.sliding_error[:, faint].tolist() == [1, 0]
    assert bias.chunked_error[:, faint].tolist() == [1, 0]
    by_output = gp.parameter_sensitivity(cell, x, steps=[n_steps]).log_norm[0]
    assert by_output[faint] == pytest.approx(exact, rel=1e-6)


def test_networks_of_one_array_far_apart_add_at_the_power_of_the_larger():
    cell = gp.RNN(np.full((2, 1, 1), 0.5), np.ones((1, 1)), activation="linear")
    x, grad_h = np.ones((2, 40, 1)), np.zeros((2, 40, 1))
    x[0] *= 1e-300
    grad_h[:, -1, 0] = 1e-200, 1.0
    found = gp.lag_decomposition(cell, x, grad_h)
    whole = gp.backward(cell, x, grad_h)
    for i, name in enumerate(found.names[1:], start=1):
        norm = np.linalg.norm(whole.parameters[name])
        assert found.log_tail[0, i] == pytest.approx(np.log(norm), abs=1e-12)


def test_a_layer_far_below_the_one_above_is_not_called_zero():
    one = np.ones((1, 1), np.float32)
    layer = gp.RNN(one / 2, one * np.float32(1e-30), np.ones(1, np.float32), activation="linear")
    cell = gp.Stacked([layer, layer, layer])
    x, grad_h = np.zeros((2, 4, 1), np.float32)
    grad_h[-1] = 1
    found = gp.lag_decomposition(cell, x, grad_h)
    for array, expected in {"2.b": gp.Status.OK, "0.b": gp.Status.FAINT_GRADIENT}.items():
        i = found.names.index(array)
        assert found.status[i] == expected
        assert np.isneginf(found.log_tail[0, i]) == bool(expected)
