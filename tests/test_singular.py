"""All singular values against high precision: right to the stated error, or not given at all."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest
from chains import FAMILIES, nearly_singular, random_chain, random_orthogonal
from exact import mp_log_singular_values
from helpers import same, tolerance
from test_norms import flipflop_chain, inline_product

import gradprop as gp
from gradprop._kernels.jacobi import jacobi_sweep
from gradprop.graded import finished

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


@pytest.fixture(autouse=True)
def _float64_alone(monkeypatch):
    """What float64 cannot settle stays open here; arbitrary precision has its own tests."""
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)


def check(values, exact, *, at=0):
    """Every resolved value is within its error, every other one is nan; returns how many are."""
    sigma, error, resolved = values.log_sigma[at], values.error[at], values.resolved[at]
    gap = np.array([0.0 if a == b else abs(a - b) for a, b in zip(sigma, exact, strict=True)])
    assert (gap[resolved] <= error[resolved]).all(), (sigma, exact, error)
    assert np.isnan(sigma[~resolved]).all()
    # minus infinity is a claim of exact singularity
    assert np.isneginf(exact[np.isneginf(sigma)]).all()
    assert (error[resolved] <= values.tol).all()
    if not resolved.all():
        assert values.status & gp.Status.NOT_RESOLVED
    return int((~resolved).sum())


# --- stored references ---------------------------------------------------------------------------


def test_twelve_oracle_products(oracles, oracle_products):
    cases = [(case, oracle_products[case["key"]]) for case in oracles["products"]["cases"]]
    cases += [(case, inline_product(case)) for case in oracles["products"]["inline"]]
    assert len(cases) == 12
    for case, J in cases:
        exact = np.array([float(x) for x in case["ln_sigma"]])
        values = gp.singular_values(dense(J))
        assert check(values, exact) == 0
        finite = np.isfinite(exact)
        assert np.abs(values.log_sigma[0][finite] - exact[finite]).max() <= 1e-11
        assert same(np.isneginf(values.log_sigma[0]), np.isneginf(exact))
        if "relu" in case.get("key", ""):
            assert finite.sum() == 5
            assert (values.error[0][~finite] == 0).all()
            assert values.status == gp.Status.ZERO


def test_trained_flip_flop_network(flipflop):
    reference = flipflop[0]["reference"]["pulses_T500"]
    exact = np.array(reference["exact_log10_singular_values_mpmath1500"])
    values = gp.singular_values(flipflop_chain(flipflop), tol=1e-6)
    assert values.resolved.all()
    np.testing.assert_allclose(values.log_sigma[0] / math.log(10), exact, rtol=0, atol=1e-7)
    assert values.log_sigma[0, 0] == pytest.approx(-710.50716674, abs=5e-9)


def test_jordan_blocks_in_closed_form(oracles):
    for case in oracles["jordan2"]["cases"]:
        J = np.array([[float(case["l"]), float(case["c"])], [0.0, float(case["l"])]])
        values = gp.singular_values(dense([J] * case["n"]))
        exact = np.array([float(x) for x in case["ln_sigma"]])
        # the float64 next to l is half an eps off, and ln sigma_2 takes that n times
        assert (np.abs(values.log_sigma[0] - exact) <= values.error[0] + case["n"] * EPS).all()
        assert values.resolved.all()


# --- against exact integers ----------------------------------------------------------------------

SMALL = [1, 2, 2, 3, 3, 4, 4, 5, 6, 8]
COUNTED = ("cancelling", "jordan", "triangular")


def test_no_value_is_off_by_more_than_its_error():
    """440 products of eleven families: none wrong, few unresolved, all of those hard families."""
    unresolved, total = collections.Counter(), collections.Counter()
    for seed in range(440):
        rng = np.random.default_rng([21, seed])
        family = FAMILIES[seed % len(FAMILIES)]
        n, steps = int(rng.choice(SMALL)), 2 * int(rng.integers(1, 31))
        J = random_chain(rng, family, steps, n)
        unresolved[family] += check(gp.singular_values(dense(J)), mp_log_singular_values(J))
        total[family] += n
    assert sum(total.values()) > 1000
    for family in FAMILIES:
        # half of the cancelling ones are lost to any float64 method
        allowed = {"cancelling": 0.7, "triangular": 0.2, "jordan": 0.2}.get(family, 0.0)
        assert unresolved[family] <= allowed * total[family], (family, unresolved)


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_lags_and_anchors(anchor):
    rng = np.random.default_rng(1)
    J = random_chain(rng, "tanh", 30, 4)
    lags = [30, 0, 7, 7, 1, 29]
    values = gp.singular_values(dense(J), lags=lags, anchor=anchor)
    assert values.lags.tolist() == lags
    for i, lag in enumerate(lags):
        part = J[:lag] if anchor == "start" else J[len(J) - lag :]
        assert check(values, mp_log_singular_values(part) if lag else np.zeros(4), at=i) == 0
        alone = gp.singular_values(dense(J), lags=[lag], anchor=anchor)
        assert same(alone.log_sigma[0], values.log_sigma[i])
    assert same(gp.singular_values(dense(J), anchor=anchor).lags, [30])


def test_leak_and_row_scaled_forms():
    rng = np.random.default_rng(2)
    W, dphi = rng.standard_normal((4, 4)), rng.uniform(0, 1, (25, 4))
    for leak in (1.0, 0.3):
        chain = gp.JacobianChain.row_scaled(W, dphi, leak=leak)
        # the entries of diag(dphi) W round: half an eps each, before which the chain is exact
        exact = mp_log_singular_values(chain.to_dense())
        values = gp.singular_values(chain)
        slack = 25 * EPS * np.linalg.cond(chain.to_dense()).max() * 4
        assert values.resolved.all()
        assert (np.abs(values.log_sigma[0] - exact) <= values.error[0] + slack).all()


def test_saturated_rows_keep_their_accuracy():
    # regression: without a row sort the smallest value was off by 2e-8
    rng = np.random.default_rng(3)
    W = rng.standard_normal((6, 6))
    dphi = 4 * np.exp(-2 * np.abs(20 * rng.standard_normal((60, 6))))
    values = gp.singular_values(gp.JacobianChain.row_scaled(W, dphi))
    J = gp.JacobianChain.row_scaled(W, dphi).to_dense()
    assert check(gp.singular_values(dense(J)), mp_log_singular_values(J)) == 0
    assert values.resolved.all()
    assert values.error.max() < 1e-9


def test_rows_are_sorted_by_their_weight_not_their_size():
    # regression: sorting by |B| alone was off by 28 nats on permutations scaled by 10^+-8
    rng = np.random.default_rng(4)
    J = np.array(
        [10.0 ** rng.uniform(-8, 8, (6, 1)) * np.eye(6)[rng.permutation(6)] for _ in range(60)]
    )
    values = gp.singular_values(dense(J))
    assert check(values, mp_log_singular_values(J)) == 0
    assert values.error.max() < 1e-9
    mixed = np.array([J_k @ random_orthogonal(rng, 6) for J_k in J[:30]])
    assert check(gp.singular_values(dense(mixed)), mp_log_singular_values(mixed)) == 0


def test_scaled_rotation_has_equal_values():
    Q = random_orthogonal(np.random.default_rng(5), 16)
    for rho in (0.5, 1.1):
        values = gp.singular_values(dense([rho * Q] * 100))
        assert values.resolved.all()
        expected = 100 * math.log(rho)
        assert np.abs(values.log_sigma[0] - expected).max() <= tolerance(np.float64, 16, 100)


def test_sum_is_the_log_determinant():
    for family in ("gaussian", "tanh", "saturated", "orthogonal_tanh", "graded"):
        J = random_chain(np.random.default_rng(6), family, 40, 12)
        values = gp.singular_values(dense(J))
        assert values.resolved.all()
        total = dense(J).log_abs_det()
        assert abs(values.log_sigma.sum() - total) <= values.error.sum() + 1e-12 * abs(total)


def test_several_blocks_of_columns():
    """18 columns are two blocks, against integers; 70 are three, against the determinant."""
    J = random_chain(np.random.default_rng(18), "tanh", 12, 18)
    values = gp.singular_values(dense(J))
    assert check(values, mp_log_singular_values(J)) == 0
    J = random_chain(np.random.default_rng(70), "tanh", 30, 70)
    values, total = gp.singular_values(dense(J)), dense(J).log_abs_det()
    assert values.resolved.all()
    assert abs(values.log_sigma.sum() - total) <= values.error.sum() + 1e-12 * abs(total)


# --- several Jacobians at once -------------------------------------------------------------------


@pytest.mark.parametrize("group", [2, 4])
def test_grouped_steps_are_right_to_their_error(group):
    """Wrong nowhere; the smallest values lose digits, which their error says."""
    for seed in range(4 * len(FAMILIES)):
        rng = np.random.default_rng([24, seed])
        n, steps = int(rng.choice(SMALL)), int(rng.integers(1, 40))
        J = random_chain(rng, FAMILIES[seed % len(FAMILIES)], steps, n)
        check(gp.singular_values(dense(J), group=group), mp_log_singular_values(J))
    J = random_chain(np.random.default_rng(24), "tanh", 9, 12)
    values = gp.singular_values(dense(J), lags=[1, 8, 9], group=group, anchor="end")
    for i, lag in enumerate((1, 8, 9)):
        assert check(values, mp_log_singular_values(J[9 - lag :]), at=i) == 0
    alone = gp.singular_values(dense(J), lags=[8], group=group, anchor="end")
    assert same(alone.log_sigma[0], values.log_sigma[1])


def test_grouped_steps_do_not_underflow():
    """Rows of 1e-200 twice: factored one by one, whatever the group."""
    J = np.array([np.diag([1.0, 1e-200, 1e-100])] * 4)
    for group in (1, 2, 4):
        values = gp.singular_values(dense(J), group=group)
        assert values.resolved.all()
        np.testing.assert_allclose(
            values.log_sigma[0], -math.log(10) * np.array([0.0, 400.0, 800.0]), rtol=4 * EPS
        )


# --- zeros and lost values -----------------------------------------------------------------------


def test_p028_structural_zeros():
    cases = {
        "zero column": ([[[0.0, 1.0], [0.0, 2.0]]], [math.log(5) / 2, -np.inf]),
        "identity": ([np.eye(2)], [0.0, 0.0]),
        "zero matrix": ([np.zeros((2, 2))], [-np.inf, -np.inf]),
        "product": ([np.diag([0.0, 1.0]), np.diag([1.0, 0.0])], [-np.inf, -np.inf]),
        "nilpotent": ([np.eye(3, k=1)] * 2, [0.0, -np.inf, -np.inf]),
    }
    for J, exact in cases.values():
        values = gp.singular_values(dense(J))
        assert values.resolved.all()
        np.testing.assert_allclose(values.log_sigma[0], exact, atol=4 * EPS)
        assert (values.error[np.isneginf(values.log_sigma)] == 0).all()
        assert bool(values.status & gp.Status.ZERO) == np.isneginf(exact).any()


def test_masked_units_give_exact_zeros_that_accumulate():
    rng = np.random.default_rng(7)
    W = rng.standard_normal((5, 5))
    dphi = np.ones((12, 5))
    dphi[3, 1] = dphi[8, 2] = dphi[8, 4] = 0.0
    values = gp.singular_values(gp.JacobianChain.row_scaled(W, dphi), lags=[3, 4, 8, 9, 12])
    assert np.isneginf(values.log_sigma).sum(axis=1).tolist() == [0, 1, 1, 2, 2]
    assert values.resolved.all()
    assert (gp.singular_values(gp.JacobianChain.row_scaled(W, 0 * dphi)).log_sigma == -np.inf).all()


def test_rank_one_without_a_zero_row_is_unresolved_never_noise():
    values = gp.singular_values(dense([np.ones((3, 3))] * 50))
    assert values.log_sigma[0, 0] == pytest.approx(50 * math.log(3), abs=1e-11)
    assert values.log_sigma[0, 0] == pytest.approx(54.93, abs=5e-3)
    assert values.resolved.tolist() == [[True, False, False]]
    assert np.isnan(values.log_sigma[0, 1:]).all()
    assert np.isinf(values.error[0, 1:]).all()
    assert values.messages() == [gp.Status.NOT_RESOLVED.text]


def test_what_is_one_ulp_from_singular_is_never_called_singular():
    # regression: a pivot that rounding makes exactly zero is no proof (266 of 3622 claimed)
    rng = np.random.default_rng(14)
    for _ in range(150):
        n = int(rng.integers(2, 5))
        J = np.array([nearly_singular(rng, n), rng.standard_normal((n, n))])
        exact = mp_log_singular_values(J)
        assert np.isfinite(exact).all()
        check(gp.singular_values(dense(J)), exact)
        assert not np.isneginf(gp.lyapunov_spectrum(dense(J)).exponents).any()


def test_singular_weights_without_zero_rows():
    rng = np.random.default_rng(8)
    for rank in (1, 2, 3):
        W = rng.integers(-4, 5, (4, rank)) @ rng.integers(-4, 5, (rank, 4)).astype(float)
        J = np.array([rng.integers(1, 9, (4, 1)) / 8 * W for _ in range(12)])
        exact = mp_log_singular_values(J)
        assert np.isfinite(exact).sum() <= rank
        check(gp.singular_values(dense(J)), exact)


def test_cancelling_products_are_refused():
    rng = np.random.default_rng(9)
    A = rng.standard_normal((4, 4))
    J = np.array([np.linalg.inv(A)] * 100 + [A] * 100)
    check(gp.singular_values(dense(J)), mp_log_singular_values(J))
    # known enough for who asks for less
    few = J[90:110]
    assert check(gp.singular_values(dense(few), tol=1e-3), mp_log_singular_values(few)) == 0


@pytest.mark.parametrize(("seed", "n", "half"), [(644, 5, 27), (1453, 2, 20)])
def test_noise_that_agrees_by_chance_is_not_believed(seed, n, half):
    # regression: three computations within 0.003 and 0.02 of each other, 1.4 and 2 nats off
    rng = np.random.default_rng([31, 8, seed])
    assert (rng.integers(2, 9), rng.integers(1, 31)) == (n, half)
    A = rng.standard_normal((n, n)) / math.sqrt(n)
    J = np.array([np.linalg.inv(A)] * half + [A] * half)
    values = gp.singular_values(dense(J), tol=10.0)
    check(values, mp_log_singular_values(J))
    assert not values.resolved[0, 0]
    assert values.error[0, 0] == np.inf


def test_rows_that_cancel_exactly_are_lost_not_a_crash():
    # regression: two rows of U came out opposite, a row of the triangle as zero
    rng = np.random.default_rng([31, 9, 421])
    n, steps, rank = int(rng.integers(2, 9)), 2 * int(rng.integers(1, 31)), int(rng.integers(1, 8))
    W = rng.integers(-4, 5, (n, rank)) @ rng.integers(-4, 5, (rank, n))
    J = rng.integers(1, 256, (steps, n, 1)) / 256.0 * W
    assert (n, steps, rank) == (8, 54, 2)
    for lag in (5, 54):
        assert check(gp.singular_values(dense(J[:lag])), mp_log_singular_values(J[:lag])) == 6


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sweep_over_parallel_rows(sign):
    rows, mantissa = np.array([[1.0, 0.0], [sign, 0.0]]), np.array([0.5, 0.5])
    exponent = np.array([1, 1], dtype=np.int64)
    assert jacobi_sweep(rows, mantissa, exponent) == 1.0
    # one row takes both, sqrt 2; the other is zero and stays so
    assert jacobi_sweep(rows, mantissa, exponent) == 0.0
    lost = int(np.flatnonzero(np.isnan(mantissa))[0])
    assert rows[lost].tolist() == [0.0, 0.0]
    assert np.ldexp(mantissa, exponent)[1 - lost] == pytest.approx(math.sqrt(2.0), rel=4 * EPS)


@pytest.mark.parametrize(
    ("U", "exponent", "exact"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], [1, 1], [0.5 * math.log(2.0), np.nan]),
        ([[1.0, 0.0], [-1.0, 0.0]], [1, -40], [0.0, np.nan]),
        ([[1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]], [5, 1, -29], [math.log(16), 0.0, np.nan]),
    ],
)
def test_parallel_rows_have_one_value_and_a_lost_one(U, exponent, exact):
    n = len(U)
    mantissa, exponents = np.full(n, 0.5), np.array(exponent, dtype=np.int64)
    got = finished(np.array(U), mantissa, exponents, n, n)
    np.testing.assert_allclose(got, exact, rtol=0, atol=4 * EPS * 3)


def test_strongly_non_normal_products_are_refused_or_right():
    # the one-pass method alone is off by 10 nats on both
    jordan = np.array([0.9 * np.eye(32) + np.eye(32, k=1)] * 100)
    W = np.random.default_rng(10).standard_normal((32, 32)) / math.sqrt(32)
    triangular = np.array([np.triu(W) + 5 * np.triu(np.ones((32, 32)), 1)] * 100)
    for J in (jordan, triangular):
        values = gp.singular_values(dense(J))
        assert values.resolved[0, 0]
        assert not values.resolved.all()
        assert np.isnan(values.log_sigma[~values.resolved]).all()
    # sigma_1 of the Jordan power: its norm is that of a Toeplitz matrix of binomials
    powers = [math.comb(100, k) * 0.9 ** (100 - k) for k in range(32)]
    P = sum(p * np.eye(32, k=k) for k, p in enumerate(powers))
    got = gp.singular_values(dense(jordan)).log_sigma[0, 0]
    assert got == pytest.approx(math.log(np.linalg.norm(P, 2)), abs=1e-11)


def test_rows_beyond_the_float_range_are_not_called_zero():
    values = gp.singular_values(dense([np.diag([1e200, 1e-200])]))
    check(values, np.array([200.0, -200.0]) * math.log(10))
    assert values.log_sigma[0, 0] == pytest.approx(200 * math.log(10))
    assert not np.isneginf(values.log_sigma).any()


# --- reports, special chains, arguments ----------------------------------------------------------


def test_p019_p021_nan_is_refused_at_once_with_its_place():
    with pytest.raises(
        ValueError, match=r"`J` must be finite; got nan at step 1, index \(0, 1, 0\)"
    ):
        dense([[[0.0, 0.0], [np.nan, np.nan]]])
    J = np.random.default_rng(11).standard_normal((3, 64, 64))
    J[1, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"finite; got nan at step 2, index \(1, 0, 0\)"):
        dense(J)


def test_p024_rows_that_are_powers_of_one_vector():
    v = np.linspace(0.1, 3, 13)
    A = np.zeros((16, 16))
    A[:, :13] = [v ** (k + 1) for k in range(16)]
    # its condition of 7e11 leaves the last value five digits
    values = gp.singular_values(dense([A]), tol=1e-5)
    sigma = np.exp(values.log_sigma[0])
    assert sigma[[0, 1, 12]] == pytest.approx([47306746.54, 442318.8687, 6.4999e-05], rel=1e-4)
    assert sigma[0] / sigma[12] == pytest.approx(7.278e11, rel=1e-4)
    assert np.isneginf(values.log_sigma[0, 13:]).all()
    assert values.resolved.all()


def test_p026_norm_and_radius_of_a_defective_matrix():
    J = [[[3.0, 3.0], [0.0, 3.0]]]
    values = gp.singular_values(dense(J)).log_sigma[0]
    assert math.exp(values[0]) == pytest.approx(4.854101966249685, rel=4 * EPS)
    assert values.sum() == pytest.approx(math.log(9), abs=8 * EPS)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_diagonal_chains(kind):
    rng = np.random.default_rng(12)
    a = rng.standard_normal((40, 5)) * 10.0 ** rng.uniform(-9, 9, (40, 5))
    a[17, 2] = 0.0
    exact = np.log(np.abs(np.where(a == 0, 1, a))).sum(axis=0)
    exact[2] = -np.inf
    exact = np.sort(exact)[::-1]
    if kind == "complex":
        a = a * np.exp(1j * rng.uniform(0, 6, a.shape))
    values = gp.singular_values(gp.JacobianChain.diagonal(a), lags=[40, 17])
    assert values.resolved.all()
    atol = 40 * 20 * 4 * EPS  # 40 logarithms of size up to 21, and as many moduli
    np.testing.assert_allclose(values.log_sigma[0], exact, atol=atol)
    assert np.isfinite(values.log_sigma[1]).all()
    end = gp.singular_values(gp.JacobianChain.diagonal(a), lags=[22], anchor="end")
    assert np.isfinite(end.log_sigma).all()


def test_diagonal_long_and_wide_costs_nothing():
    values = gp.singular_values(gp.JacobianChain.diagonal(np.full((2000, 512), 0.999)))
    np.testing.assert_allclose(values.log_sigma, 2000 * math.log(0.999), rtol=4 * EPS)


def test_padded_and_overflowed_sequences():
    rng = np.random.default_rng(13)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((2, 10, 3))
    x[1, 4:] = np.nan
    chain, short = gp.linearise(cell, x, lengths=[10, 4]), gp.linearise(cell, x[1, :4])
    start = gp.singular_values(chain, lags=[2, 4, 9])
    assert same(start.log_sigma[1], gp.singular_values(short, lags=[2, 4, 4]).log_sigma)
    assert start.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    end = gp.singular_values(chain, lags=[2, 4, 9], anchor="end")
    alone = gp.singular_values(short, lags=[2, 4], anchor="end")
    assert same(end.log_sigma[1, :2], alone.log_sigma)
    assert np.isnan(end.log_sigma[1, 2]).all()
    assert not end.resolved[1, 2].any()
    assert end.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    assert end.resolved[0].all()
    blown = gp.linearise(gp.RNN([[1e100]], activation="linear"), n_steps=5, h0=[1.0])
    values = gp.singular_values(blown, lags=[2, 5])
    assert values.log_sigma[0, 0] == pytest.approx(200 * math.log(10))
    assert np.isnan(values.log_sigma[1, 0])
    assert not values.resolved[1, 0]
    assert values.status & gp.Status.OVERFLOWED


def test_one_unit_and_no_steps():
    one = gp.singular_values(dense(np.full((7, 1, 1), -0.3)))
    assert one.log_sigma[0, 0] == pytest.approx(7 * math.log(0.3), abs=one.error[0, 0])
    none = gp.singular_values(dense(np.empty((0, 4, 4))))
    assert (none.log_sigma == 0).all()
    assert none.resolved.all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lags": [5]}, ValueError, r"`lags` must lie in 0\.\.4; got 5"),
        ({"lags": [1.5]}, TypeError, r"`lags` must hold integers"),
        ({"anchor": "both"}, ValueError, r"`anchor` must be one of"),
        ({"group": 0}, ValueError, r"`group` must be at least 1; got 0"),
        ({"group": 5}, ValueError, r"`group` must be at most 4; got 5"),
        ({"group": 1.5}, TypeError, r"`group` must be an integer"),
        ({"tol": 0.0}, ValueError, r"`tol` must be greater than 0"),
        ({"tol": np.inf}, ValueError, r"`tol` must be finite"),
        ({"tol": "small"}, TypeError, r"`tol` must be a real number"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.singular_values(dense(np.zeros((4, 2, 2))), **arguments)
