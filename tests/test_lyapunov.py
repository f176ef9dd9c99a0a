"""Lyapunov exponents: closed forms, known maps, order of factors, zeros, intervals."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from helpers import same, tolerance

import gradprop as gp
from gradprop.lyapunov.intervals import batch_means, student_quantile
from gradprop.lyapunov.spectrum import lyapunov_spectrum

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


# --- closed forms --------------------------------------------------------------------------------


def test_p038_a_contraction():
    halving = gp.RNN([[0.5]], activation="linear")
    for chain in (dense(np.full((50, 1, 1), 0.5)), gp.linearise(halving, n_steps=50, h0=[1.0])):
        spectrum = gp.lyapunov_spectrum(chain)
        assert spectrum.exponents[0] == pytest.approx(-0.6931471805599453, rel=2 * EPS)
        # nothing varies; a batch mean is known to a few eps
        assert spectrum.std_error[0] <= 4 * EPS


def test_p040_the_basis_has_to_turn_into_place():
    J = np.array([[0.5, 0.0], [1.0, 2.0]])
    cold = gp.lyapunov_spectrum(dense([J] * 10))
    assert cold.exponents == pytest.approx([0.65260057, -0.65260057], abs=5e-9)
    assert "no warm-up" in gp.lyapunov_spectrum(dense([J] * 40)).verdict
    warm = gp.lyapunov_spectrum(dense([J] * 33), burn_in=13)
    assert warm.exponents == pytest.approx([0.69314718, -0.69314718], abs=1e-8)
    assert "no warm-up" not in warm.verdict
    assert warm.n_steps == 20
    assert warm.burn_in == 13


def test_p042_fewer_exponents_than_units():
    J = np.diag([0.1, 0.4, 0.3, 0.2, 0.5])
    for k in (1, 2, 3, 5):
        chain = dense([J] * 500)
        leading = gp.lyapunov_spectrum(chain, k, burn_in=300)
        expected = np.log([0.5, 0.4, 0.3, 0.2, 0.1])[:k]
        np.testing.assert_allclose(leading.exponents, expected, atol=1e-12)
        diagonal = gp.JacobianChain.diagonal(np.einsum("kii->ki", chain.to_dense()))
        exact = gp.lyapunov_spectrum(diagonal, k, burn_in=300)
        np.testing.assert_allclose(exact.exponents, expected, rtol=4 * EPS)
    assert np.log([0.5, 0.4]) == pytest.approx([-0.693147, -0.916291], abs=5e-7)
    # other random bases find the same; the same rng gives the same bits
    spread = [gp.lyapunov_spectrum(dense([J] * 500), 2, burn_in=300, rng=s) for s in (1, 2, 1)]
    assert same(spread[0].exponents, spread[2].exponents)
    np.testing.assert_allclose(spread[1].exponents, np.log([0.5, 0.4]), atol=1e-12)


def test_scaled_rotations_have_equal_exponents():
    Q = random_orthogonal(np.random.default_rng(1), 6)
    spectrum = gp.lyapunov_spectrum(dense([0.9 * Q] * 200))
    assert np.abs(spectrum.exponents - math.log(0.9)).max() <= tolerance(np.float64, 6, 1)


def test_cat_map(oracles):
    spectrum = gp.lyapunov_spectrum(dense([[[2.0, 1.0], [1.0, 1.0]]] * 300), burn_in=50)
    expected = [float(oracles["cat_map"]["lam1"]), float(oracles["cat_map"]["lam2"])]
    np.testing.assert_allclose(spectrum.exponents, expected, atol=tolerance(np.float64, 2, 1))


def test_p043_logistic_map(oracles):
    x, slopes = 0.3123, np.empty(200_000)
    for t in range(len(slopes)):
        slopes[t] = 4 * (1 - 2 * x)
        x = 4 * x * (1 - x)
    for chain in (dense(slopes[:, None, None]), gp.JacobianChain.diagonal(slopes[:, None])):
        spectrum = gp.lyapunov_spectrum(chain)
        assert spectrum.exponents.shape == (1,)
        assert spectrum.exponents[0] == pytest.approx(float(oracles["logistic"]["r=4"]), abs=1e-3)
        assert spectrum.exponents[0] == pytest.approx(np.log(np.abs(slopes)).mean(), rel=1e-12)


def test_a_superstable_orbit_has_minus_infinity():
    spectrum = gp.lyapunov_spectrum(dense(np.array([1.5, 0.0, 1.5, 0.0] * 10)[:, None, None]))
    assert spectrum.exponents[0] == -np.inf
    assert spectrum.status & gp.Status.ZERO


def henon(steps, x=0.1, y=0.1):
    J = np.empty((steps, 2, 2))
    for t in range(steps):
        J[t] = [[-2.8 * x, 1.0], [0.3, 0.0]]
        x, y = 1 - 1.4 * x * x + y, 0.3 * x
    return J


def test_p045_henon_map(oracles):
    spectrum = gp.lyapunov_spectrum(dense(henon(21_000)), burn_in=1_000)
    assert spectrum.exponents == pytest.approx([0.4192, -1.6232], abs=0.008)
    assert spectrum.exponents.sum() == pytest.approx(-1.2039728043, abs=1e-9)
    exact = float(oracles["henon"]["lam1_plus_lam2 exact"])
    assert spectrum.exponents.sum() == pytest.approx(exact, abs=1e-12)
    stored = oracles["henon"]["lam1_numeric"]["mean"]
    assert abs(spectrum.exponents[0] - stored) <= 4 * spectrum.std_error[0]


def test_fixed_points(oracles):
    x = float(oracles["henon"]["fixed_point_x"])
    J = np.array([[-2.8 * x, 1.0], [0.3, 0.0]])
    spectrum = gp.lyapunov_spectrum(dense([J] * 200), burn_in=60)
    expected = [float(v) for v in oracles["henon"]["fixed_point_exponents"]]
    np.testing.assert_allclose(spectrum.exponents, expected, atol=1e-14)
    for case in oracles["scalar_tanh"]["cases"]:
        w, h = float(case["w"]), float(case["hstar"])
        if w == 1:
            continue  # approached algebraically, not within any number of steps
        chain = gp.linearise(gp.RNN([[w]]), n_steps=20, h0=[h])
        got = gp.lyapunov_spectrum(chain).exponents[0]
        # the float64 next to the fixed point is eps off; phi' there amplifies by 2 |w| h
        assert got == pytest.approx(float(case["lam"]), abs=100 * EPS)


@pytest.mark.parametrize("n", [4, 8])
def test_newman_exponents(n, oracles):
    stored = next(c for c in oracles["newman"]["cases"] if (c["d"], c["s2"], c["r"]) == (n, "1", n))
    exact = np.array([float(x) for x in stored["lam"]])
    steps, chains = 4000, 100
    error = np.sqrt([float(x) / steps for x in stored["var_times_n"]])
    rng = np.random.default_rng(n)
    total = np.zeros((chains, n))
    for r in range(0, chains, 20):
        J = rng.standard_normal((20, steps, n, n)) / math.sqrt(n)
        spectrum = gp.lyapunov_spectrum(dense(J))
        total[r : r + 20] = spectrum.std_error
        # the order of the spectrum's columns may change by sampling only
        z = (spectrum.exponents - exact) / error
        assert np.abs(z).max() <= 4.5  # of 20 n values
        assert np.abs(z[0]).max() <= 4
    assert (total.mean(axis=0) / error) == pytest.approx(np.ones(n), abs=0.35)


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "rel"), [(1.5, 1e-12), (8.0, 1e-12)])
def test_sum_of_exponents_is_the_log_determinant(gain, rel):
    # at gain 8 most units are saturated; without the row sort the sum is 6e-10 off
    rng = np.random.default_rng(2)
    n, steps = 24, 400
    cell = gp.RNN(gain * rng.standard_normal((n, n)) / math.sqrt(n))
    x = rng.standard_normal((steps, n))
    run, chain = gp.rollout(cell, x), gp.linearise(cell, x)
    log_slopes = math.fsum(np.log(naive.dphi("tanh", run.z)).ravel())
    expected = log_slopes + steps * np.linalg.slogdet(cell.W_hh)[1]
    spectrum = gp.lyapunov_spectrum(chain)
    assert np.isfinite(spectrum.exponents).all()
    assert spectrum.exponents.sum() * steps == pytest.approx(expected, rel=rel)
    assert chain.log_abs_det() == pytest.approx(expected, rel=rel)


def test_forward_order_of_the_factors():
    """The spectrum of J_1 J_2 … J_T differs: only an asymmetric network shows it."""
    rng = np.random.default_rng(3)
    cell = gp.RNN(3 * rng.standard_normal((16, 16)) / 4)
    chain = gp.linearise(cell, n_steps=4000, rng=4)
    J = chain.to_dense()
    # a random vector, pushed forward step by step
    v, growth = np.ones(16), []
    for J_t in J:
        v = J_t @ v
        growth.append(math.log(np.linalg.norm(v)))
        v /= np.linalg.norm(v)
    expected = np.mean(growth[500:])
    spectrum = gp.lyapunov_spectrum(chain, burn_in=500)
    assert spectrum.exponents[0] == pytest.approx(expected, abs=1e-10)
    assert gp.lyapunov_spectrum(chain, 1, burn_in=500).exponents[0] == pytest.approx(
        expected, abs=1e-10
    )
    wrong = gp.lyapunov_spectrum(dense(J[::-1]), burn_in=500).exponents
    assert np.abs(wrong - spectrum.exponents).max() > 0.05


def test_exponents_against_the_twin():
    J = random_chain(np.random.default_rng(5), "orthogonal_tanh", 300, 5)
    twin = naive.qr_increments(J)
    spectrum = gp.lyapunov_spectrum(dense(J), burn_in=100)
    mean, error = naive.batch_means(twin[100:])
    order = np.argsort(-mean)
    np.testing.assert_allclose(spectrum.exponents, mean[order], atol=1e-12)
    np.testing.assert_allclose(spectrum.std_error, error[order], atol=1e-12)
    assert spectrum.history.shape == (100, 5)
    assert spectrum.history_steps.tolist() == list(range(2, 201, 2))
    np.testing.assert_allclose(spectrum.history[-1], spectrum.exponents, atol=1e-15)
    half = np.cumsum(twin[100:], axis=0)[99] / 100
    np.testing.assert_allclose(spectrum.history[49], half[order], atol=1e-12)


def test_leading_exponents_are_those_of_the_whole_spectrum():
    J = random_chain(np.random.default_rng(6), "tanh", 1500, 6)
    whole = gp.lyapunov_spectrum(dense(J), burn_in=500).exponents
    for k in (1, 2, 4):
        # after 500 steps any basis has turned into the same flag
        leading = gp.lyapunov_spectrum(dense(J), k, burn_in=500).exponents
        np.testing.assert_allclose(leading, whole[:k], atol=1e-9)


# --- zeros ---------------------------------------------------------------------------------------


def test_p047_one_zero_does_not_spoil_the_others():
    spectrum = gp.lyapunov_spectrum(dense([np.diag([0.5, 0.0])] * 10))
    assert spectrum.exponents == pytest.approx([-0.693147, -np.inf], abs=5e-7)
    assert spectrum.status & gp.Status.ZERO


def test_a_dead_first_coordinate_does_not_hide_the_living_one():
    for J in (np.diag([0.0, 0.5]), np.array([[0.0, 0.0], [0.0, 0.5]])):
        spectrum = gp.lyapunov_spectrum(dense([J] * 30))
        assert spectrum.exponents == pytest.approx([math.log(0.5), -np.inf], rel=4 * EPS)
        assert spectrum.std_error[1] == 0
        assert same(spectrum.interval[1], [-np.inf, -np.inf])
        diagonal = gp.lyapunov_spectrum(gp.JacobianChain.diagonal([np.diag(J)] * 30))
        assert same(np.isneginf(diagonal.exponents), [False, True])


def test_p028_zero_columns_and_zero_matrices():
    one = gp.lyapunov_spectrum(dense([[[0.0, 1.0], [0.0, 2.0]]] * 30), burn_in=5)
    assert one.exponents == pytest.approx([math.log(2), -np.inf], rel=4 * EPS)
    assert gp.lyapunov_spectrum(dense([np.eye(2)] * 30)).exponents.tolist() == [0.0, 0.0]
    zero = gp.lyapunov_spectrum(dense(np.zeros((30, 2, 2))))
    assert (zero.exponents == -np.inf).all()
    assert "exact zeros" in zero.verdict
    nilpotent = gp.lyapunov_spectrum(dense([np.eye(3, k=1)] * 30))
    assert (nilpotent.exponents == -np.inf).all()


def test_a_dependent_column_does_not_stand_before_a_living_one():
    # columns (a, a, b): the second direction dies at once, the third lives on
    rng = np.random.default_rng(7)
    first = np.array([[1.0, 1, 0], [0, 0, 1], [0, 0, 0]])
    G = rng.standard_normal((400, 3, 3))
    spectrum = gp.lyapunov_spectrum(dense(np.concatenate([first[None], G])), burn_in=100)
    plain = gp.lyapunov_spectrum(dense(G[99:]), 2, burn_in=0, rng=1).exponents
    assert spectrum.exponents[2] == -np.inf
    # bases that started elsewhere agree to 1/T
    np.testing.assert_allclose(spectrum.exponents[:2], plain, atol=5 / 300)
    mid = np.concatenate([G[:200], first[None], G[200:]])
    assert same(np.isneginf(gp.lyapunov_spectrum(dense(mid)).exponents), [False, False, True])


def test_relu_network_counts_its_lost_directions():
    rng = np.random.default_rng(8)
    J = random_chain(rng, "relu", 200, 6)
    rank = min(int((np.abs(J_t).max(axis=1) > 0).sum()) for J_t in J)
    spectrum = gp.lyapunov_spectrum(dense(J))
    assert np.isneginf(spectrum.exponents).sum() >= 6 - rank
    assert not np.isnan(spectrum.exponents).any()


def test_a_direction_lost_in_rounding_is_nan_never_a_number():
    spectrum = gp.lyapunov_spectrum(dense([np.ones((3, 3))] * 60), burn_in=10)
    assert spectrum.exponents[0] == pytest.approx(math.log(3), abs=1e-13)
    assert not np.isfinite(spectrum.exponents[1:]).any()
    assert spectrum.status & (gp.Status.NOT_RESOLVED | gp.Status.ZERO)
    # rows farther apart than reflectors can tell
    Q = random_orthogonal(np.random.default_rng(9), 2)
    far = gp.lyapunov_spectrum(dense([np.diag([1e200, 1e-200]) @ Q] * 30))
    assert np.isnan(far.exponents[1])
    assert far.status & gp.Status.NOT_RESOLVED


# --- intervals -----------------------------------------------------------------------------------


def test_batch_means_against_the_twin():
    rng = np.random.default_rng(10)
    increments = rng.standard_normal((400, 3)) + 0.1
    mean, error = naive.batch_means(increments)
    sums = np.cumsum(increments, axis=0)
    for parts in (10, 20, 100):
        at = 400 * np.arange(1, parts + 1) // parts
        got = batch_means(sums[at - 1], at.astype(float))
        np.testing.assert_allclose(got[0], mean, rtol=1e-12)
        np.testing.assert_allclose(got[1], error, rtol=1e-12)
    # uneven batches: 23 steps in ten parts
    at = 23 * np.arange(1, 11) // 10
    pieces = np.split(increments[:23], at[:-1])
    got = batch_means(sums[at - 1], at.astype(float))
    assert got[0] == pytest.approx(increments[:23].mean(axis=0))
    means = np.array([piece.mean(axis=0) for piece in pieces])
    assert got[1] == pytest.approx(means.std(axis=0, ddof=1) / math.sqrt(10))


def test_student_quantiles():
    # two-sided 95 % with 9 degrees of freedom: 2.262157; many degrees: the normal 1.959964
    assert student_quantile(0.95, 9) == pytest.approx(2.2621571628, abs=5e-10)
    assert student_quantile(0.95, 10**8) == pytest.approx(1.9599639845, abs=5e-8)


def test_intervals_are_student_intervals_around_the_exponents():
    J = np.random.default_rng(11).standard_normal((500, 3, 3))
    for confidence in (0.9, 0.95):
        spectrum = gp.lyapunov_spectrum(dense(J), confidence=confidence)
        half = student_quantile(confidence, 9) * spectrum.std_error
        assert spectrum.interval.shape == (3, 2)
        np.testing.assert_allclose(spectrum.interval[:, 0], spectrum.exponents - half)
        np.testing.assert_allclose(spectrum.interval[:, 1], spectrum.exponents + half)
        assert spectrum.confidence == confidence
        assert f"{confidence:.0%}" in spectrum.verdict


def test_interval_of_a_correlated_scalar_chain_covers_as_promised():
    # AR(1) log growth with correlation time 10: batches of 200 know about it
    rng = np.random.default_rng(12)
    covered, rate = 0, -0.1
    noise = rng.standard_normal((300, 2500))
    level = np.zeros(300)
    growth = np.empty((300, 2000))
    for t in range(2500):
        level = 0.9 * level + noise[:, t]
        if t >= 500:
            growth[:, t - 500] = rate + 0.1 * level
    spectrum = gp.lyapunov_spectrum(gp.JacobianChain.diagonal(np.exp(growth)[..., None]))
    low, high = spectrum.interval[:, 0, 0], spectrum.interval[:, 0, 1]
    covered = int(((low <= rate) & (rate <= high)).sum())
    # 95 % nominal, measured 93 %: of 300 at least 264 with five standard deviations to spare
    assert covered >= 264
    # independent samples would make the interval too short by (1 + 0.9)/(1 - 0.9) under the root
    naive_error = growth.std(axis=1) / math.sqrt(2000)
    assert spectrum.std_error.mean() > 3 * naive_error.mean()


def test_too_few_steps_for_an_interval():
    J = np.random.default_rng(13).standard_normal((19, 2, 2))
    short = gp.lyapunov_spectrum(dense(J))
    assert short.status == gp.Status.TOO_SHORT
    assert np.isnan(short.std_error).all()
    assert np.isfinite(short.exponents).all()
    assert "No interval" in short.verdict
    assert gp.lyapunov_spectrum(dense(np.tile(J, (2, 1, 1)))).status == gp.Status.OK


def test_one_short_replica_does_not_spoil_the_others():
    rng = np.random.default_rng(14)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((4, 200, 3))
    lengths = np.array([200, 50, 5, 0])
    together = gp.lyapunov_spectrum(gp.linearise(cell, x, lengths=lengths))
    for r, length in enumerate(lengths[:3]):
        alone = gp.lyapunov_spectrum(gp.linearise(cell, x[r, :length]))
        assert same(together.exponents[r], alone.exponents)
        assert same(together.std_error[r], alone.std_error)
        assert together.status[r] == alone.status
        assert together.n_steps[r] == length
    assert np.isnan(together.exponents[3]).all()
    assert together.status[3] & gp.Status.TOO_SHORT


def test_overflowed_orbits_are_measured_up_to_there():
    cell = gp.RNN([[2.0]], activation="linear")
    chain = gp.linearise(cell, n_steps=1200, h0=[[1.0], [0.0]])
    spectrum = gp.lyapunov_spectrum(chain)
    assert spectrum.n_steps.tolist() == [1023, 1200]
    assert spectrum.exponents[:, 0] == pytest.approx(np.log([2, 2]), rel=4 * EPS)
    assert spectrum.status.tolist() == [gp.Status.OVERFLOWED, gp.Status.OK]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"k": 3}, ValueError, r"`k` must be at most .*2.*; got 3"),
        ({"k": 0}, ValueError, r"`k` must be at least 1"),
        ({"k": 1.0}, TypeError, r"`k` must be an integer"),
        ({"burn_in": 4}, ValueError, r"`burn_in` must be less than .* 4 steps.*; got 4"),
        ({"burn_in": -1}, ValueError, r"`burn_in` must be at least 0"),
        ({"confidence": 1.0}, ValueError, r"`confidence` must be less than 1"),
        ({"confidence": "95%"}, TypeError, r"`confidence` must be a real number"),
        ({"k": 1, "rng": "x"}, (TypeError, ValueError), r"`rng` must be None, a seed"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        lyapunov_spectrum(dense(np.ones((4, 2, 2))), **arguments)


def test_p049_strings_are_refused_at_the_entry():
    for values in ([["11,76"], ["3,1"]], np.array([["11,76"]], dtype=object)):
        with pytest.raises(TypeError, match=r"`a` must hold numbers; got dtype .*decimal commas"):
            gp.JacobianChain.diagonal(values)
        with pytest.raises(TypeError, match=r"`x` must hold numbers"):
            gp.linearise(gp.RNN([[0.5]]), values)
