"""ln of the product's norm, and its stated error, against integer arithmetic and closed forms."""

from __future__ import annotations

import math

import mpmath
import naive
import numpy as np
import pytest
from chains import FAMILIES, random_chain
from exact import exact_log_norm
from helpers import same, tolerance

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


@pytest.fixture(autouse=True)
def _float64_alone(monkeypatch):
    """What float64 cannot settle stays open here; arbitrary precision has its own tests."""
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)


def inline_product(case):
    """Factors of an oracle whose two matrices are given in hexadecimal."""
    A = [
        np.array([[float.fromhex(x) for x in row] for row in case[name]])
        for name in ("A0_hex", "A1_hex")
    ]
    return np.array([A[(k * k + k // 3) % 2] for k in range(1, case["n"] + 1)])


def flipflop_chain(flipflop):
    _, arrays = flipflop
    b = arrays["b_ih"].astype(float) + arrays["b_hh"].astype(float)
    cell = gp.RNN(arrays["W_hh"].astype(float), arrays["W_ih"].astype(float), b)
    return gp.linearise(cell, arrays["U"].astype(float))


def claimed_or_right(value, error, exact):
    """Within the stated error if that is finite, else nan."""
    if error == np.inf:
        return bool(np.isnan(value))
    return value == exact or abs(value - exact) <= error


# --- stored references ---------------------------------------------------------------------------


def test_oracle_products(oracles, oracle_products):
    cases = [(case, oracle_products[case["key"]]) for case in oracles["products"]["cases"]]
    cases += [(case, inline_product(case)) for case in oracles["products"]["inline"]]
    assert len(cases) == 12
    for case, J in cases:
        norms = gp.log_norms(dense(J), lags=[len(J)])
        exact = float(case["ln_sigma"][0])
        assert abs(norms.log_norm[0] - exact) <= norms.error[0]
        # the norm of a product is well conditioned in all of them
        assert norms.error[0] <= tolerance(np.float64, J.shape[-1], len(J)) + 4 * EPS * abs(exact)


def test_trained_flip_flop_network(flipflop):
    reference = flipflop[0]["reference"]["pulses_T500"]
    stored = {int(lag): value for lag, value in reference["log10_norm_lag"].items()}
    norms = gp.log_norms(flipflop_chain(flipflop), lags=list(stored), anchor="end")
    np.testing.assert_allclose(norms.log_norm / np.log(10), list(stored.values()), atol=1e-9)
    assert stored[500] == -308.5693418673229
    assert norms.error.max() < 1e-10
    # measured from the start it is another number
    start = gp.log_norms(flipflop_chain(flipflop), lags=[1, 100]).log_norm / np.log(10)
    np.testing.assert_allclose(start, [-0.2967528432, -63.2529625101], atol=1e-9)


def test_powers(oracles):
    for base, steps in ((0.9, 99), (0.9, 195), (1.1, 195), (0.5, 50)):
        exact = float(oracles["powers"][f"{base}^{steps}"])
        for chain in (dense(np.full((steps, 1, 1), base)), dense([base * np.eye(3)] * steps)):
            norms = gp.log_norms(chain, lags=[steps])
            # the float64 next to the base is half an eps off, and so is each factor
            assert norms.log_norm[0] == pytest.approx(math.log(exact), abs=steps * EPS)


def test_p059_radius_below_one_does_not_mean_decay():
    norms = gp.log_norms(dense([[[0.9, 50.0], [0.0, 0.9]]] * 200))
    size = np.exp(norms.log_norm)
    assert size[[9, 50]] == pytest.approx([193.711, 14.316], abs=5e-4)
    assert size[200] == pytest.approx(7.839e-6, abs=5e-10)
    assert size[:80].argmax() == 9
    assert 75 <= np.flatnonzero(size < 1)[0] <= 85


def test_p051_order_of_the_factors():
    J = np.array([[[1.0, 2.0], [0.0, 1.0]], np.diag([1.0, 3.0])])
    for anchor in ("start", "end"):
        norms = gp.log_norms(dense(J), anchor=anchor)
        assert math.exp(norms.log_norm[2]) == pytest.approx(3.6502815, abs=5e-8)
        assert math.exp(norms.log_norm[2]) != pytest.approx(6.7678289, abs=1)
    assert gp.log_norms(dense(J), anchor="start").log_norm[1] == pytest.approx(
        math.log(np.linalg.norm(J[0], 2)), abs=4 * EPS
    )
    assert gp.log_norms(dense(J), anchor="end").log_norm[1] == pytest.approx(math.log(3), rel=EPS)


def test_p016_norms_that_only_seem_to_leave_the_float_range():
    big = dense([[[1e200, 1e200], [0.0, 0.0]]])
    small = dense(np.full((1, 2, 2), 1e-200))
    half = dense(np.full((1, 3, 3), 100, dtype=np.float16))
    huge = 200 * math.log(10)
    expected = [math.log(2) / 2 + huge, math.log(2) - huge, math.log(300)]
    for chain, value in zip((big, small, half), expected, strict=True):
        for order in (2, "fro"):
            norms = gp.log_norms(chain, ord=order)
            assert norms.log_norm[1] == pytest.approx(value, rel=4 * EPS)
    for entry in (1.7e308, 5e-324):
        assert gp.log_norms(dense([[[entry]]])).log_norm[1] == pytest.approx(math.log(entry))


def test_p032_powers_of_matrices_whose_determinant_leaves_the_range():
    for scale in (0.1, 10.0):
        chain = dense(np.broadcast_to(scale * np.eye(4), (800, 4, 4)))
        got = gp.log_norms(chain, lags=[800])
        assert got.log_norm[0] == pytest.approx(800 * math.log(scale), abs=got.error[0])
        assert got.error[0] < 1e-10


@pytest.mark.parametrize("rho", [0.5, 0.9, 1.0, 1.1])
def test_scaled_rotations_have_norm_rho_to_the_lag(rho):
    Q = naive.gram_schmidt(np.random.default_rng(1).standard_normal((6, 6)))[0]
    norms = gp.log_norms(dense([rho * Q] * 300))
    lags = np.arange(301)
    # Q is orthogonal to 6 eps, and each product adds its rounding
    atol = tolerance(np.float64, 6, 300)
    np.testing.assert_allclose(norms.log_norm, lags * math.log(rho), atol=atol)
    frobenius = gp.log_norms(dense([rho * Q] * 300), ord="fro").log_norm
    np.testing.assert_allclose(frobenius, lags * math.log(rho) + math.log(6) / 2, atol=atol)


# --- against exact integers ----------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, "fro"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_stated_error_holds_on_random_products(family, order):
    known, largest = 0, 0.0
    for seed in range(24):
        rng = np.random.default_rng([7, seed])
        n, steps = int(rng.integers(1, 9)), 2 * int(rng.integers(1, 31))
        J = random_chain(rng, family, steps, n)
        anchor = ("start", "end")[seed % 2]
        norms = gp.log_norms(dense(J), ord=order, lags=[steps], anchor=anchor)
        value, error = norms.log_norm[0], norms.error[0]
        exact = exact_log_norm(J, order)
        assert claimed_or_right(value, error, exact)
        if np.isnan(value):
            assert family == "cancelling"
            assert norms.status & gp.Status.NOT_RESOLVED
            continue
        known += 1
        largest = max(largest, error)
    assert known >= (8 if family == "cancelling" else 24)
    if family != "cancelling":
        # nothing cancels: a few roundings a step, and those of the logarithm
        assert largest < 1e-11


def test_one_unit_rounds_at_every_factor():
    # a scalar has no other rotation to compare with, so its error is a bound
    for seed in range(40):
        J = random_chain(np.random.default_rng([8, seed]), "cancelling", 200, 1)
        norms = gp.log_norms(dense(J), lags=[200])
        assert abs(norms.log_norm[0] - exact_log_norm(J)) <= norms.error[0] <= 210 * EPS


def test_cancellation_is_stated_not_hidden():
    rng = np.random.default_rng(5)
    A = rng.standard_normal((6, 6))
    J = np.array([np.linalg.inv(A)] * 100 + [A] * 100)
    norms = gp.log_norms(dense(J))
    exact = [exact_log_norm(J[:lag]) for lag in (100, 110, 200)]
    for lag, value in zip((100, 110, 200), exact, strict=True):
        got, error = norms.log_norm[lag], norms.error[lag]
        assert claimed_or_right(got, error, value)
    # what float64 makes of A^100 A^-100 is noise: it must not come back as a number
    assert abs(naive.log_norms(J)[200] - exact[2]) > 0.1
    assert np.isnan(norms.log_norm[200])
    assert norms.status & gp.Status.NOT_RESOLVED


# --- zeros ---------------------------------------------------------------------------------------


def test_exact_zeros_are_minus_infinity():
    for J in (
        [[[1.0, -1.0], [1.0, -1.0]]] * 2,
        [np.diag([0.0, 1.0]), np.diag([1.0, 0.0])],
        np.eye(3, k=1)[None].repeat(3, axis=0),
        np.zeros((1, 2, 2)),
    ):
        for order in (2, "fro"):
            norms = gp.log_norms(dense(J), ord=order)
            assert norms.log_norm[-1] == -np.inf
            assert norms.error[-1] == 0
            assert np.isfinite(norms.log_norm[:-1]).all()
            assert norms.status == gp.Status.ZERO
    assert gp.log_norms(gp.JacobianChain.diagonal([[1.0, 0], [0, 1]])).log_norm[2] == -np.inf


def test_claim_of_the_nilpotent_matrix_with_gates():
    # W = 1.5 [[1, -1], [1, -1]] has radius 0; under diag(1, 0) the norm is sqrt 2 1.5^n exactly
    W = 1.5 * np.array([[1.0, -1.0], [1.0, -1.0]])
    chain = gp.JacobianChain.row_scaled(W, np.tile([1.0, 0.0], (60, 1)))
    norms = gp.log_norms(chain)
    lags = np.arange(1, 61)
    expected = math.log(2) / 2 + lags * math.log(1.5)
    np.testing.assert_allclose(norms.log_norm[1:], expected, atol=60 * EPS)


def test_what_underflows_is_never_called_zero():
    # the leading direction hides the other one below the float range, then dies
    J = np.array([np.diag([2.0, 0.4])] * 900 + [np.diag([0.0, 1.0])])
    norms = gp.log_norms(dense(J), lags=[900, 901])
    assert norms.log_norm[0] == pytest.approx(900 * math.log(2), abs=norms.error[0])
    assert claimed_or_right(norms.log_norm[1], norms.error[1], 900 * math.log(0.4))
    diagonal = gp.JacobianChain.diagonal(np.einsum("kii->ki", J))
    assert gp.log_norms(diagonal).log_norm[901] == pytest.approx(900 * math.log(0.4), rel=EPS)


def test_rows_that_differ_by_the_whole_float_range():
    for back in (1e200, 1e250, 1e100):
        # the second unit falls out of the range of floats beside the first, and comes back
        J = np.array([np.diag([1e200, 1e-200]), np.diag([1e-200, back])])
        truth = [0, 200 * math.log(10), max(math.log(back) - 200 * math.log(10), 0)]
        for ord, more in ((2, 0.0), ("fro", 0.5 * math.log(2))):
            norms = gp.log_norms(dense(J), ord=ord)
            log_norm, error = norms.log_norm, norms.error
            assert log_norm[1] == pytest.approx(truth[1], rel=1e-14)
            assert claimed_or_right(log_norm[2], error[2], truth[2] + more * (back == 1e200))
    assert dense(J).log_abs_det() == pytest.approx(-100 * math.log(10), rel=1e-14)
    scaled = gp.JacobianChain.row_scaled([[1e-150, 0], [0, 1.0]], [[1e-150, 1e150]])
    assert scaled.log_abs_det() == pytest.approx(-150 * math.log(10), rel=1e-14)


# --- arguments -----------------------------------------------------------------------------------


def test_lags_in_any_order_and_repeated():
    J = random_chain(np.random.default_rng(2), "tanh", 12, 3)
    for anchor in ("start", "end"):
        full = gp.log_norms(dense(J), anchor=anchor)
        assert full.lags.tolist() == list(range(13))
        some = gp.log_norms(dense(J), lags=[7, 0, 12, 7, 1], anchor=anchor)
        assert some.lags.tolist() == [7, 0, 12, 7, 1]
        assert same(some.log_norm, full.log_norm[[7, 0, 12, 7, 1]])
        assert same(some.error, full.error[[7, 0, 12, 7, 1]])
        np.testing.assert_allclose(
            full.log_norm, naive.log_norms(J, anchor=anchor), atol=tolerance(np.float64, 3, 12)
        )
    assert gp.log_norms(dense(J), lags=5).log_norm.shape == (1,)


def test_lag_zero_is_the_identity():
    for order, value in ((2, 0.0), ("fro", math.log(3) / 2)):
        norms = gp.log_norms(dense(np.empty((0, 3, 3))), ord=order)
        assert norms.lags.tolist() == [0]
        assert norms.log_norm[0] == pytest.approx(value, abs=EPS)
        assert norms.status == gp.Status.OK


def test_padded_sequences():
    rng = np.random.default_rng(3)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((2, 10, 3))
    x[1, 4:] = np.nan
    chain, short = gp.linearise(cell, x, lengths=[10, 4]), gp.linearise(cell, x[1, :4])
    start, end = gp.log_norms(chain), gp.log_norms(chain, anchor="end")
    assert same(start.log_norm[1, :5], gp.log_norms(short).log_norm)
    assert (start.log_norm[1, 4:] == start.log_norm[1, 4]).all()
    assert start.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    assert same(end.log_norm[1, :5], gp.log_norms(short, anchor="end").log_norm)
    assert np.isnan(end.log_norm[1, 5:]).all()
    assert end.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    # a lag that only the longer sequence has
    assert same(gp.log_norms(chain, lags=[6], anchor="end").log_norm[:, 0], end.log_norm[:, 6])
    assert same(gp.log_norms(chain, lags=[6]).log_norm[:, 0], start.log_norm[:, 6])


def test_past_an_overflow_nothing_is_known():
    chain = gp.linearise(gp.RNN([[1e100]], activation="linear"), n_steps=5, h0=[[1.0], [0.0]])
    for anchor in ("start", "end"):
        norms = gp.log_norms(chain, anchor=anchor)
        # three steps have a finite state
        assert np.isfinite(norms.log_norm[0, :4]).all()
        assert np.isnan(norms.log_norm[0, 4:]).all()
        assert norms.log_norm[1] == pytest.approx(np.arange(6) * math.log(1e100))
        assert norms.status.tolist() == [gp.Status.OVERFLOWED, gp.Status.OK]


def test_diagonal_chains_are_exact():
    rng = np.random.default_rng(4)
    a = rng.standard_normal((50, 3)) * 10.0 ** rng.uniform(-5, 5, (50, 3))
    for order in (2, "fro"):
        norms = gp.log_norms(gp.JacobianChain.diagonal(a), ord=order)
        for lag in (1, 20, 50):
            exact = exact_log_norm(a[:lag, :, None] * np.eye(3), order)
            assert abs(norms.log_norm[lag] - exact) <= norms.error[lag]
    unit = np.exp(1j * rng.uniform(0, 6, (2000, 1)))
    norms = gp.log_norms(gp.JacobianChain.diagonal(unit), lags=[2000])
    with mpmath.workdps(40):
        squares = [mpmath.mpf(z.real) ** 2 + mpmath.mpf(z.imag) ** 2 for z in unit[:, 0].tolist()]
        exact = float(sum(mpmath.log(square) for square in squares) / 2)
    # the modulus rounds, though its logarithm is next to nothing
    assert 0 < abs(norms.log_norm[0] - exact) <= norms.error[0] < 1e-11


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"lags": [-1]}, ValueError, r"`lags` must lie in 0\.\.4; got -1"),
        ({"lags": [5]}, ValueError, r"`lags` must lie in 0\.\.4; got 5"),
        ({"lags": [1.0]}, TypeError, r"`lags` must hold integers"),
        ({"lags": []}, ValueError, r"`lags` must not be empty"),
        ({"lags": [[1, 2]]}, ValueError, r"`lags` must be one-dimensional"),
        ({"lags": ["1"]}, TypeError, r"`lags` must hold numbers"),
        ({"lags": [True]}, TypeError, r"`lags` must hold integers"),
        ({"ord": 1}, ValueError, r"`ord` must be one of 2, 'fro'; got 1"),
        ({"ord": "2"}, ValueError, r"`ord` must be one of"),
        ({"ord": True}, ValueError, r"`ord` must be one of"),
        ({"anchor": "middle"}, ValueError, r"`anchor` must be one of 'start', 'end'; got 'middle'"),
        ({"method": "fast"}, ValueError, r"`method` must be one of 'exact'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.log_norms(dense(np.zeros((4, 2, 2))), **arguments)
