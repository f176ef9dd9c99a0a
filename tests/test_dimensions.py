"""Dimension, sum of positive exponents, effective rank: closed forms, limits, intervals."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop.lyapunov.intervals import student_quantile

dense = gp.JacobianChain.dense
INF, NAN = np.inf, np.nan


def twin(exponents):
    """Kaplan-Yorke dimension as the papers write it."""
    lam = sorted(exponents, reverse=True)
    total, j = 0.0, 0
    while j < len(lam) and total + lam[j] >= 0:
        total += lam[j]
        j += 1
    return float(j) if j == len(lam) else j + total / abs(lam[j])


# --- dimension ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exponents", "dimension", "n_whole", "status"),
    [
        # Henon map and folded towel map (published); the Lorenz flow's 0.9056, 0, -14.5723
        ([0.41922, -1.62319], 1.25827, 1, 0),
        ([0.43051, 0.37753, -3.30117], 2 + 0.80804 / 3.30117, 2, 0),
        ([0.9056, 0.0, -14.5723], 2.062145, 2, 0),
        ([-14.5723, 0.9056, 0.0], 2.062145, 2, 0),
        # equal and opposite: exactly 2, and nothing beyond it
        ([0.5, -0.5], 2.0, 2, gp.Status.NO_CROSSING),
        ([0.5, -0.5, -1.0], 2.0, 2, 0),
        ([-0.1, -2.0], 0.0, 0, 0),
        ([0.0, -2.0], 1.0, 1, 0),
        ([1.0, 2.0, 3.0], 3.0, 3, gp.Status.NO_CROSSING),
        ([1.0, -INF, -INF], 1.0, 1, 0),
        ([-INF, -INF], 0.0, 0, 0),
        ([0.5, -0.7, NAN], 1 + 5 / 7, 1, 0),
        ([0.5, NAN, NAN], NAN, 1, gp.Status.NOT_RESOLVED),
        ([NAN, NAN], NAN, 0, gp.Status.NOT_RESOLVED),
        ([NAN, -1.0], 0.0, 0, 0),
    ],
)
def test_kaplan_yorke(exponents, dimension, n_whole, status):
    result = gp.kaplan_yorke(exponents)
    assert result.dimension == pytest.approx(dimension, abs=5e-6, nan_ok=True)
    assert result.n_whole == n_whole
    assert result.status == status
    assert np.isnan(result.interval).all()


@given(st.lists(st.floats(-5, 5).map(lambda v: round(v, 3)), min_size=1, max_size=8))
def test_kaplan_yorke_is_what_the_papers_write(exponents):
    result = gp.kaplan_yorke(exponents)
    n = len(exponents)
    assert 0 <= result.dimension <= n
    total = np.cumsum(sorted(exponents, reverse=True))
    if np.abs(total).min() > 1e-9:  # a sum of zero up to rounding may fall on either side
        assert result.dimension == pytest.approx(twin(exponents), rel=1e-12)
    # scaling time changes nothing; adding contraction cannot raise it
    assert gp.kaplan_yorke(2 * np.array(exponents)).dimension == result.dimension
    assert gp.kaplan_yorke(np.array(exponents) - 0.1).dimension <= result.dimension + 1e-9


def test_batches_are_loops():
    exponents = np.random.default_rng(0).standard_normal((3, 4, 5)) - 0.2
    dimension, total = gp.kaplan_yorke(exponents), gp.positive_sum(exponents)
    assert dimension.dimension.shape == total.value.shape == (3, 4)
    assert dimension.interval.shape == (3, 4, 2)
    for at in np.ndindex(3, 4):
        assert dimension.dimension[at] == pytest.approx(twin(exponents[at]), rel=1e-12)
        assert total.value[at] == pytest.approx(sum(v for v in exponents[at] if v > 0))
    assert len(dimension.to_frame()) == len(total.to_frame()) == 12


# --- sum of positive exponents --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exponents", "value", "n_positive", "status"),
    [
        ([0.5, 0.25, -1.0], 0.75, 2, 0),
        ([-1.0, 0.25, 0.5], 0.75, 2, 0),
        ([-1.0, -INF], 0.0, 0, 0),
        ([0.0, -INF], 0.0, 0, 0),
        ([0.5, 0.25], 0.75, 2, gp.Status.NO_CROSSING),
        ([0.5, -0.1, NAN], 0.5, 1, 0),
        ([0.5, NAN], NAN, 1, gp.Status.NOT_RESOLVED),
        ([NAN], NAN, 0, gp.Status.NOT_RESOLVED),
    ],
)
def test_positive_sum(exponents, value, n_positive, status):
    result = gp.positive_sum(exponents)
    assert result.value == pytest.approx(value, nan_ok=True)
    assert result.n_positive == n_positive
    assert result.status == status
    assert np.isnan(result.interval).all()


# --- intervals ------------------------------------------------------------------------------------


def gaussian_spectrum(seed, steps=400, n=3, gain=1.8):
    # exponents 0.403, 0.096, -0.597: the dimension is 2.84
    J = gain / math.sqrt(n) * np.random.default_rng(seed).standard_normal((steps, n, n))
    return gp.lyapunov_spectrum(dense(J), confidence=0.9)


def test_intervals_are_those_of_batch_means():
    spectrum = gaussian_spectrum(1)
    counts = spectrum.history_steps
    sums = spectrum.history * counts[:, None]
    batches = np.diff(sums[9::10], axis=0, prepend=0.0) / np.diff(counts[9::10], prepend=0)[:, None]
    total = gp.positive_sum(spectrum)
    positive = batches[:, spectrum.exponents > 0].sum(axis=1)
    assert total.value == pytest.approx(positive.mean(), rel=1e-12)
    assert total.std_error == pytest.approx(positive.std(ddof=1) / math.sqrt(10), rel=1e-12)
    half = student_quantile(0.9, 9) * total.std_error
    assert total.interval == pytest.approx([total.value - half, total.value + half])
    # the dimension's is that of its linear part, here by central differences
    dimension = gp.kaplan_yorke(spectrum)
    assert dimension.n_whole == 2
    slope = np.empty(3)
    for i in range(3):
        step = 1e-6 * np.eye(3)[i]
        ends = [twin(spectrum.exponents + s * step) for s in (1, -1)]
        slope[i] = (ends[0] - ends[1]) / 2e-6
    linear = batches @ slope
    assert dimension.std_error == pytest.approx(linear.std(ddof=1) / math.sqrt(10), rel=1e-6)


def test_interval_of_the_sum_covers():
    exact = np.maximum(gp.newman_exponents(3, 1.8 / math.sqrt(3)).exponents, 0).sum()
    covered = 0
    for seed in range(100):
        total = gp.positive_sum(gaussian_spectrum(seed))
        covered += bool(total.interval[0] <= exact <= total.interval[1])
    # nominal 90 of 100; four binomial standard deviations below
    assert covered >= 78


def test_no_interval_without_steps_or_crossing():
    short = gp.lyapunov_spectrum(dense(np.random.default_rng(2).standard_normal((15, 2, 2))))
    for result in (gp.kaplan_yorke(short), gp.positive_sum(short)):
        assert result.status & gp.Status.TOO_SHORT
        assert np.isnan(result.interval).all()
    open_end = gp.kaplan_yorke(gp.lyapunov_spectrum(dense([2 * np.eye(2)] * 40)))
    assert open_end.dimension == 2
    assert open_end.status == gp.Status.NO_CROSSING
    assert "lower bound" in open_end.messages()[0]
    assert np.isnan(open_end.interval).all()


def test_spectra_with_zeros_and_of_several_networks():
    J = np.array([[np.diag([1.5, 0.0])] * 30, [np.diag([1.5, 0.5])] * 30])
    spectrum = gp.lyapunov_spectrum(dense(J))
    dimension, total = gp.kaplan_yorke(spectrum), gp.positive_sum(spectrum)
    assert dimension.dimension == pytest.approx([1.0, 1 + math.log(1.5) / math.log(2)])
    assert total.value == pytest.approx([math.log(1.5)] * 2)
    assert dimension.status.tolist() == total.status.tolist() == [0, 0]
    assert dimension.roles == spectrum.roles
    assert (dimension.std_error <= 1e-12).all()


@pytest.mark.parametrize("function", [gp.kaplan_yorke, gp.positive_sum])
def test_bad_exponents(function):
    with pytest.raises(ValueError, match=r"`exponents` must be finite or -inf; got inf"):
        function([1.0, INF])
    with pytest.raises(ValueError, match=r"`exponents` must not be empty"):
        function([])
    with pytest.raises(TypeError, match=r"`exponents` must hold numbers"):
        function(["a"])


# --- effective rank -------------------------------------------------------------------------------


def test_effective_rank_of_known_spectra():
    a = np.array([[1.0, 1.0, 0.5, 0.0], [1.0, 1.0, 0.5, 1.0]])
    rank = gp.effective_rank(gp.singular_values(gp.JacobianChain.diagonal(a), lags=[2, 0, 1]))
    sigma = np.array([1, 1, 0.25, 0])
    assert rank.lags.tolist() == [2, 0, 1]
    for at, values in ((0, sigma), (1, np.ones(4)), (2, a[0])):
        squares, p = values**2, values[values > 0] / values.sum()
        assert rank.participation[at] == pytest.approx(squares.sum() ** 2 / (squares**2).sum())
        assert rank.entropy[at] == pytest.approx(math.exp(-(p * np.log(p)).sum()))
    assert rank.anchor == "start"


def test_effective_rank_far_beyond_the_range_of_floats():
    n = 5
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((n, n)))[0]
    for scale in (1e-200, 1e200):
        rank = gp.effective_rank(gp.singular_values(dense([scale * Q] * 10)))
        assert rank.participation == pytest.approx([n], rel=1e-9)
        assert rank.entropy == pytest.approx([n], rel=1e-9)
    apart = gp.effective_rank(gp.singular_values(gp.JacobianChain.diagonal([[1e300, 1e-300]] * 9)))
    assert apart.participation == pytest.approx([1])
    assert apart.entropy == pytest.approx([1])


def test_effective_rank_of_zero_and_of_what_is_not_resolved():
    zero = gp.effective_rank(gp.singular_values(gp.JacobianChain.diagonal(np.zeros((2, 3)))))
    assert zero.participation == zero.entropy == [0]
    assert zero.status & gp.Status.ZERO
    values = gp.singular_values(gp.JacobianChain.diagonal([[2.0, 1.0, 1e-9]]))
    for logs, answer in (
        # whatever lies behind 1e-9 of the largest does not count; next to it, it does
        ([0.0, -40.0, NAN], 1.0),
        ([0.0, -0.1, NAN], NAN),
        ([NAN, NAN, NAN], NAN),
    ):
        lost = np.array(int(gp.Status.NOT_RESOLVED))
        made = dataclasses.replace(values, log_sigma=np.array([logs]), status=lost)
        rank = gp.effective_rank(made)
        assert rank.participation[0] == pytest.approx(answer, nan_ok=True)
        assert rank.entropy[0] == pytest.approx(answer, nan_ok=True)
        assert bool(rank.status & gp.Status.NOT_RESOLVED) == math.isnan(answer)


@given(st.integers(1, 6), st.integers(0, 8), st.integers(0, 2**31))
def test_effective_rank_lies_between_one_and_n(n, lag, seed):
    a = np.random.default_rng(seed).uniform(0.1, 2, (8, n))
    rank = gp.effective_rank(gp.singular_values(gp.JacobianChain.diagonal(a), lags=[lag]))
    assert 1 - 1e-12 <= rank.participation[0] <= n + 1e-12
    # the entropy of sigma is at least that of sigma^2, which is at least its collision entropy
    assert rank.participation[0] - 1e-9 <= rank.entropy[0] <= n + 1e-12


def test_effective_rank_takes_singular_values_only():
    with pytest.raises(TypeError, match=r"`singular_values` must be the result of .*; got list"):
        gp.effective_rank([1.0])
