"""What the product does to vectors: adjoints, gradients lag by lag, moments over replicas."""

from __future__ import annotations

import math

import mpmath
import naive
import numpy as np
import pytest
from chains import FAMILIES, random_chain, unit_vector
from exact import exact_product
from helpers import same, tolerance
from test_norms import flipflop_chain

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


def log_of_exact_image(J, v, transpose=False):
    """ln of the 2-norm of the exact product (or its transpose) applied to v."""
    M, exponent = exact_product(J, J.shape[-1])
    rows = [list(column) for column in zip(*M, strict=True)] if transpose else M
    shifts = [float(x).as_integer_ratio() for x in v]
    common = max(d for _, d in shifts)
    w = [n * (common // d) for n, d in shifts]
    image = [sum(a * b for a, b in zip(row, w, strict=True)) for row in rows]
    square = sum(x * x for x in image)
    if square == 0:
        return -math.inf
    with mpmath.workdps(40):
        return float(mpmath.log(square) / 2 + exponent * mpmath.log(2) - mpmath.log(common))


def growth_bound(J):
    """Sum of ln ‖J_k‖ minus ln ‖J v‖ bounds how much relative rounding grows: its first part."""
    with np.errstate(divide="ignore"):
        return np.log(np.linalg.norm(J, 2, axis=(-2, -1))).sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_jvp_and_vjp_against_exact_integers(family):
    for seed in range(6):
        rng = np.random.default_rng([31, seed])
        n, steps = int(rng.integers(1, 7)), 2 * int(rng.integers(1, 16))
        J = random_chain(rng, family, steps, n)
        v = rng.standard_normal(n)
        for verb, transpose in ((gp.jvp, False), (gp.vjp, True)):
            image = verb(dense(J), v)
            exact = log_of_exact_image(J, v, transpose)
            if exact == -math.inf:
                assert image.log_norm() == -math.inf
                assert image.status == gp.Status.ZERO
                continue
            # backward stable: factors perturbed by (n + 2) eps of their norm each
            amplified = math.exp(min(growth_bound(J) + math.log(np.linalg.norm(v)) - exact, 700))
            relative = tolerance(np.float64, n + 2, steps, c=1) * amplified
            if relative < 0.1:
                assert abs(image.log_norm() - exact) <= 2 * relative + 4 * EPS * abs(exact)
            mantissa = np.abs(image.mantissa).max()
            assert 0.5 <= mantissa < 1


def test_p051_order_of_the_factors():
    chain = dense([[[1.0, 2.0], [0.0, 1.0]], np.diag([1.0, 3.0])])
    columns = [gp.jvp(chain, e).to_float() for e in np.eye(2)]
    assert np.transpose(columns).tolist() == [[1.0, 2.0], [0.0, 3.0]]
    rows = [gp.vjp(chain, e).to_float() for e in np.eye(2)]
    assert np.array(rows).tolist() == [[1.0, 2.0], [0.0, 3.0]]


def test_worked_example_of_the_course(oracles):
    stored = oracles["worked_example"]
    chain = gp.linearise(gp.RNN([[0.5]], W_xh=[[1.0]]), [1.0, 0.0, -1.0])
    assert gp.jvp(chain, [1.0]).to_float()[0] == pytest.approx(float(stored["dh3/dh0"]), rel=1e-15)
    assert gp.jvp(chain.tail(2), [1.0]).to_float()[0] == pytest.approx(
        0.1183720041079364, rel=1e-15
    )
    by_lag = np.exp(gp.gradient_by_lag(chain, [1.0]).log_norm)
    exact = [1.0] + [float(stored[f"dh3/dh{t}"]) for t in (2, 1, 0)]
    assert by_lag == pytest.approx(exact, rel=4e-15)


@pytest.mark.parametrize("structure", ["dense", "leaky", "diagonal", "complex"])
def test_gradient_by_lag_is_the_pullback_of_each_tail(structure):
    rng = np.random.default_rng(3)
    if structure in ("diagonal", "complex"):
        a = rng.standard_normal((20, 3)) * np.exp(1j * (structure == "complex"))
        chain = gp.JacobianChain.diagonal(a if structure == "complex" else a.real)
    elif structure == "leaky":
        W, dphi = rng.standard_normal((3, 3)), rng.uniform(0, 1, (20, 3))
        chain = gp.JacobianChain.row_scaled(W, dphi, leak=0.2)
    else:
        chain = dense(random_chain(rng, "tanh", 20, 3))
    u = rng.standard_normal(3)
    pulled = gp.gradient_by_lag(chain, u)
    assert pulled.lags.tolist() == list(range(21))
    J = chain.to_dense()
    # pulled back by plain products; cond about 100 here
    expected = naive.gradient_by_lag(J, u)
    np.testing.assert_allclose(pulled.log_norm, expected, atol=100 * tolerance(np.float64, 3, 20))
    some = gp.gradient_by_lag(chain, u, lags=[20, 3, 3, 0])
    assert same(some.log_norm, pulled.log_norm[[20, 3, 3, 0]])
    assert pulled.log_norm[20] == pytest.approx(gp.vjp(chain, u).log_norm(), abs=20 * EPS)
    assert pulled.anchor == "end"


def test_it_never_passes_the_norm_and_reaches_it_for_some_vector():
    J = random_chain(np.random.default_rng(4), "gaussian", 15, 4)
    norms = gp.log_norms(dense(J), anchor="end")
    rng = np.random.default_rng(5)
    for _ in range(10):
        pulled = gp.gradient_by_lag(dense(J), unit_vector(rng, 4)).log_norm
        assert (pulled <= norms.log_norm + norms.error + 1e-13 * 16).all()
    left = np.linalg.svd(naive.product(J, 15))[0][:, 0]
    best = gp.gradient_by_lag(dense(J), left, lags=[15]).log_norm[0]
    assert best == pytest.approx(norms.log_norm[15], abs=1e-10)


def test_flip_flop_gradient_outlives_the_float_range(flipflop):
    chain = flipflop_chain(flipflop)
    u = np.ones(8)
    pulled = gp.vjp(chain, u)
    assert pulled.log_norm() < -700
    assert pulled.to_float().any() or pulled.log_norm() < -744
    by_lag = gp.gradient_by_lag(chain, u)
    norms = gp.log_norms(chain, anchor="end")
    assert (by_lag.log_norm <= norms.log_norm + math.log(8) / 2 + 1e-9).all()


def test_scaled_arrays_say_what_floats_cannot():
    chain = dense([1e-200 * np.eye(2)] * 3)
    image = gp.jvp(chain, [1.0, -2.0])
    assert (image.to_float() == 0).all()
    expected = -600 * math.log(10)
    assert image.log_abs() == pytest.approx([expected, expected + math.log(2)], rel=4 * EPS)
    assert image.log_norm() == pytest.approx(expected + math.log(5) / 2, rel=4 * EPS)
    grown = gp.jvp(dense([1e200 * np.eye(2)] * 3), [1.0, -2.0])
    assert grown.to_float().tolist() == [np.inf, -np.inf]
    exact = gp.jvp(dense([0.5 * np.eye(2)] * 60), [3.0, 5e-324])
    assert exact.to_float()[0] == 3.0 * 0.5**60


def test_zero_vectors_and_lost_ones():
    chain = dense([np.diag([0.0, 1.0]), np.eye(2)])
    for verb in (gp.jvp, gp.vjp):
        assert verb(chain, [3.0, 0.0]).log_norm() == -np.inf
        assert verb(chain, [0.0, 0.0]).status == gp.Status.ZERO
        assert verb(chain, [0.0, 1.0]).status == gp.Status.OK
    pulled = gp.gradient_by_lag(chain, [1.0, 0.0])
    assert pulled.log_norm.tolist() == [0.0, 0.0, -np.inf]
    assert pulled.status == gp.Status.ZERO


def test_batches_broadcast_vectors_and_equal_loops():
    rng = np.random.default_rng(6)
    J = rng.standard_normal((2, 3, 8, 4, 4))
    u, v = rng.standard_normal((3, 4)), rng.standard_normal(4)
    chain = dense(J)
    for vector in (u, v):
        pulled, pushed = gp.gradient_by_lag(chain, vector), gp.jvp(chain, vector)
        assert pulled.log_norm.shape == (2, 3, 9)
        assert pushed.mantissa.shape == (2, 3, 4)
        assert pushed.exponent.shape == (2, 3, 1)
        for i, j in np.ndindex(2, 3):
            own = np.broadcast_to(vector, (3, 4))[j]
            assert same(pulled.log_norm[i, j], gp.gradient_by_lag(dense(J[i, j]), own).log_norm)
            assert same(pushed.mantissa[i, j], gp.jvp(dense(J[i, j]), own).mantissa)


def test_padded_and_overflowed_sequences():
    rng = np.random.default_rng(7)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((2, 9, 3))
    x[1, 4:] = np.nan
    u = rng.standard_normal(3)
    chain, short = gp.linearise(cell, x, lengths=[9, 4]), gp.linearise(cell, x[1, :4])
    pulled = gp.gradient_by_lag(chain, u)
    assert same(pulled.log_norm[1, :5], gp.gradient_by_lag(short, u).log_norm)
    assert np.isnan(pulled.log_norm[1, 5:]).all()
    assert pulled.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    for verb in (gp.jvp, gp.vjp):
        assert same(verb(chain, u).mantissa[1], verb(short, u).mantissa)
    blown = gp.linearise(gp.RNN([[1e100]], activation="linear"), n_steps=5, h0=[1.0])
    for verb in (gp.jvp, gp.vjp):
        assert np.isnan(verb(blown, [1.0]).mantissa).all()
        assert verb(blown, [1.0]).status == gp.Status.OVERFLOWED
    assert gp.gradient_by_lag(blown, [1.0]).status == gp.Status.OVERFLOWED


@pytest.mark.parametrize("q", [0, 1, 2, -1])
def test_growth_moments_against_plain_means(q):
    rng = np.random.default_rng(8)
    J = rng.standard_normal((40, 6, 3, 3)) / 2
    u = rng.standard_normal((40, 3))
    logs = gp.gradient_by_lag(dense(J), u).log_norm
    moments = gp.growth_moments(dense(J), q, u=u)
    assert moments.lags.tolist() == [1, 2, 3, 4, 5, 6]
    for lag in (1, 6):
        rate = naive.growth_moment(logs[:, lag], lag, q)
        typical = logs[:, lag].mean()
        if q:
            assert moments.rate[lag - 1] == pytest.approx(rate, abs=1e-13)
        expected = rate * lag / q if q else typical
        assert moments.log_mean[lag - 1] == pytest.approx(expected, abs=1e-13)
    # Jensen: higher orders are larger
    orders = [gp.growth_moments(dense(J), p, u=u).log_mean[5] for p in (-1, 0, 1, 2)]
    assert orders == sorted(orders)
    own = gp.growth_moments(dense(J), q)
    assert same(own.log_mean, gp.growth_moments(dense(J), q, rng=0).log_mean)


@pytest.mark.parametrize(
    ("verb", "arguments", "error", "message"),
    [
        (gp.jvp, ([1.0, 2.0],), ValueError, r"`v` must have shape \(\.\.\., 3\); got shape \(2,\)"),
        (gp.vjp, ([1.0, 2.0],), ValueError, r"`u` must have shape"),
        (gp.jvp, ([1.0, np.nan, 0.0],), ValueError, r"`v` must be finite; got nan at index \(1,\)"),
        (gp.jvp, ([1j, 0, 0],), TypeError, r"`v` must be real"),
        (gp.vjp, (np.ones((4, 3)),), ValueError, r"`u` \(4,\), `chain` \(2,\)"),
        (gp.vjp, (np.ones((5, 2, 3)),), ValueError, r"`u` must broadcast to the chain's .*\(2,\)"),
        (gp.gradient_by_lag, (["a", "b", "c"],), TypeError, r"`u` must hold numbers"),
        (gp.growth_moments, (np.nan,), ValueError, r"`q` must be finite"),
        (gp.growth_moments, ("2",), TypeError, r"`q` must be a real number"),
    ],
)
def test_bad_arguments_are_refused_by_name(verb, arguments, error, message):
    with pytest.raises(error, match=message):
        verb(dense(np.ones((2, 4, 3, 3))), *arguments)


def test_bad_lags_anchors_and_single_networks_are_refused():
    chain = dense(np.ones((4, 3, 3)))
    with pytest.raises(ValueError, match=r"`lags` must lie in 0\.\.4"):
        gp.gradient_by_lag(chain, np.ones(3), lags=[5])
    with pytest.raises(ValueError, match=r"`anchor` must be one of 'end'"):
        gp.gradient_by_lag(chain, np.ones(3), anchor="start")
    with pytest.raises(ValueError, match=r"at least 2 replicas; got 1"):
        gp.growth_moments(chain, 2)


def test_the_smallest_subnormal_keeps_its_bit():
    """5e-324 cubed: -2233.3 nats, not zero."""
    tiny = np.nextafter(0.0, 1.0)
    for chain in (
        gp.JacobianChain.diagonal(np.full((3, 2), tiny)),
        gp.JacobianChain.diagonal(np.full((3, 2), 1j * tiny)),
    ):
        value = gp.gradient_by_lag(chain, [1.0, 0.0], lags=[3]).log_norm
        np.testing.assert_allclose(value, -3 * 1074 * np.log(2), rtol=1e-14)
