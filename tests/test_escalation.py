"""What float64 cannot settle: right to the tolerance through arbitrary precision, or refused."""

from __future__ import annotations

import collections
import math

import flint
import naive
import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from exact import exact_log_norm, exact_product, integer_matrix, mp_log_singular_values
from helpers import same

import gradprop as gp
from gradprop import escalation, modular

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


def rng_of(seed):
    return np.random.default_rng([41, seed])


def jordan(n, lag=100):
    return np.array([0.9 * np.eye(n) + np.eye(n, k=1)] * lag)


def triangular(n, lag=100):
    W = rng_of(n).standard_normal((n, n)) / math.sqrt(n)
    return np.array([np.triu(W) + 5 * np.triu(np.ones((n, n)), 1)] * lag)


def cancelling(n, k, seed=0):
    """A^k A^-k, the eigenvalues of A spread over 3.4 to 4: a digit is lost every two steps."""
    rng = rng_of([seed, n])
    while True:
        A = rng.standard_normal((n, n))
        size = np.abs(np.linalg.eigvals(A))
        if 3.4 < size.max() / size.min() < 4.0:
            return np.array([np.linalg.inv(A)] * k + [A] * k)


def check(values, exact, *, at=0):
    """All resolved to the tolerance, all within the stated error, zeros where they are."""
    sigma, error = values.log_sigma[at], values.error[at]
    assert values.resolved[at].all(), (sigma, exact)
    gap = np.array([0.0 if a == b else abs(a - b) for a, b in zip(sigma, exact, strict=True)])
    assert (gap <= error).all(), (gap, error)
    assert error.max() <= values.tol
    assert same(np.isneginf(sigma), np.isneginf(exact))


# --- a proof of every value: Sylvester's law of inertia ------------------------------------------


def gram(A, lag):
    """Integer matrix G and exponent with (A^lag)^T A^lag = G 2**exponent, columns in reverse."""
    M, exponent = integer_matrix(A)
    # upper triangular products grow to the right: their last columns are to be pivots first
    P = flint.fmpz_mat([row[::-1] for row in (flint.fmpz_mat(M) ** lag).tolist()])
    return P.transpose() * P, 2 * lag * exponent


def count_above(G, exponent, log_x, bits):
    """How many singular values exceed exp(log_x): positive pivots of L D L^T of G - x^2."""
    n = G.nrows()
    with flint.ctx.workprec(bits):
        square = (2 * flint.arb(log_x) - exponent * flint.arb(2).log()).exp()
        A = [[flint.arb(G[i, j]) - (square if i == j else 0) for j in range(n)] for i in range(n)]
        positive = 0
        for k, row in enumerate(A):
            pivot = row[k]
            assert pivot > 0 or pivot < 0, "more bits are needed"
            positive += bool(pivot > 0)
            for i in range(k + 1, n):
                factor = row[i] / pivot
                for j in range(i, n):
                    A[i][j] -= factor * row[j]
    return positive


def prove(A, lag, values, indices, bits):
    """Each value of A^lag lies within its stated error: proven by counting on either side of it."""
    G, exponent = gram(A, lag)
    for i in indices:
        value, error = float(values.log_sigma[0, i]), float(values.error[0, i])
        assert count_above(G, exponent, value - error, bits) >= i + 1, i
        assert count_above(G, exponent, value + error, bits) <= i, i


@pytest.mark.parametrize(
    ("J", "indices", "bits"),
    [
        (jordan(16), range(16), 1500),
        (jordan(32), (0, 7, 8, 20, 31), 1500),
        (jordan(64), (0, 63), 1500),
        (triangular(16), range(16), 2500),
        (triangular(32), (0, 7, 8, 20, 31), 2500),
    ],
    ids=["jordan 16", "jordan 32", "jordan 64", "triangular 16", "triangular 32"],
)
def test_strongly_non_normal_products(J, indices, bits):
    values = gp.singular_values(dense(J))
    assert values.escalated.tolist() == [True]
    assert values.resolved.all()
    assert values.error.max() <= 1e-8
    assert (np.diff(values.log_sigma[0]) < 0).all()
    assert values.status == gp.Status.OK
    total = 100 * math.fsum(np.log(np.abs(np.diagonal(J[0]))))
    assert values.log_sigma.sum() == pytest.approx(total, abs=values.error.sum() + 1e-12)
    prove(J[0], len(J), values, indices, bits)


def test_the_counting_itself():
    J = random_chain(rng_of(1), "orthogonal_tanh", 1, 4)
    exact = mp_log_singular_values(np.repeat(J, 10, axis=0))
    G, exponent = gram(J[0], 10)
    counts = [count_above(G, exponent, float(x) + d, 300) for x in exact for d in (-1e-9, 1e-9)]
    assert counts == [1, 0, 2, 1, 3, 2, 4, 3]


# --- against exact integers and mpmath -----------------------------------------------------------


@pytest.mark.parametrize(("n", "k", "seed"), [(6, 30, 3), (6, 30, 4), (4, 100, 5)])
def test_cancelling_products(n, k, seed):
    J = cancelling(n, k, seed)
    exact = mp_log_singular_values(J)
    values, norms = gp.singular_values(dense(J)), gp.log_norms(dense(J), lags=[2 * k])
    assert values.escalated.all()
    check(values, exact)
    assert abs(norms.log_norm[0] - exact[0]) <= norms.error[0] <= 1e-12
    fro = gp.log_norms(dense(J), lags=[2 * k], ord="fro")
    assert abs(fro.log_norm[0] - exact_log_norm(J, "fro")) <= fro.error[0] <= 1e-12


def test_norm_of_a_cancelling_product_that_float64_gets_wrong():
    J = cancelling(6, 30)
    exact = exact_log_norm(J)
    # a well conditioned A, yet the rescaled float64 product is off in the first digits
    assert np.linalg.cond(J[0]) < 100
    assert abs(naive.log_norms(J)[60] - exact) > 0.01
    norms = gp.log_norms(dense(J), lags=[30, 60])
    assert abs(norms.log_norm[1] - exact) <= norms.error[1] <= 1e-12
    assert abs(norms.log_norm[0] - exact_log_norm(J[:30])) <= norms.error[0]
    assert norms.status == gp.Status.OK


@pytest.mark.parametrize("family", ["triangular", "jordan", "cancelling", "graded"])
def test_agreement_with_independent_integers(family):
    escalated = 0
    for seed in range(5):
        rng = rng_of([2, seed])
        J = random_chain(rng, family, 60, int(rng.integers(4, 8)))
        values = gp.singular_values(dense(J))
        check(values, mp_log_singular_values(J))
        escalated += int(values.escalated.sum())
    assert escalated >= (2 if family == "cancelling" else 0)


def test_balls_alone_agree_with_float64():
    """Where float64 is sure, balls give the same within both errors; at every lag, both anchors."""
    J = random_chain(rng_of(3), "tanh", 30, 5)
    for anchor in ("start", "end"):
        expected = gp.singular_values(dense(J), lags=range(31), anchor=anchor)
        assert not expected.escalated.any()
        steps = modular.Steps(dense(J), 0, anchor == "end")
        found = escalation.exact_log_singular_values(steps, list(range(31)), 5)
        norms = escalation.exact_log_norm(steps, list(range(31)), 5, "2")
        for lag in range(31):
            log_sigma, error = found[lag]
            assert (
                np.abs(log_sigma - expected.log_sigma[lag]) <= error + expected.error[lag]
            ).all()
            assert abs(norms[lag][0] - log_sigma[0]) <= norms[lag][1] + error[0]


def test_permutations_of_any_scale():
    rng = rng_of(4)
    J = np.array(
        [10.0 ** rng.uniform(-8, 8, (6, 1)) * np.eye(6)[rng.permutation(6)] for _ in range(60)]
    )
    check(gp.singular_values(dense(J)), mp_log_singular_values(J))
    mixed = np.array([J_k @ random_orthogonal(rng, 6) for J_k in J[:30]])
    check(gp.singular_values(dense(mixed)), mp_log_singular_values(mixed))


# --- exact zeros ---------------------------------------------------------------------------------


def test_rank_one():
    values = gp.singular_values(dense([np.ones((3, 3))] * 50))
    check(values, np.array([50 * math.log(3), -np.inf, -np.inf]))
    assert values.escalated.all()
    assert (values.error[0, 1:] == 0).all()
    assert values.status == gp.Status.ZERO


def test_a_nilpotent_matrix_without_a_zero_row():
    J = np.array([1.5 * np.array([[1.0, -1.0], [1.0, -1.0]])] * 3)
    values = gp.singular_values(dense(J), lags=[0, 1, 2, 3])
    expected = [[0.0, 0.0], [math.log(3.0), -np.inf], [-np.inf, -np.inf], [-np.inf, -np.inf]]
    for at, exact in enumerate(expected):
        check(values, np.array(exact), at=at)
    assert values.escalated.tolist() == [False, True, True, True]
    norms = gp.log_norms(dense(J))
    assert norms.log_norm.tolist() == [
        0.0,
        pytest.approx(math.log(3.0), abs=4 * EPS),
        *[-np.inf] * 2,
    ]
    assert (norms.error[2:] == 0).all()


def deficient(rng, n, ranks):
    """Integer factors of the given ranks, scaled row by row: no entry rounds."""
    return np.array(
        [
            rng.integers(1, 9, (n, 1)) / 8.0
            * (rng.integers(-4, 5, (n, r)) @ rng.integers(-4, 5, (r, n)))
            for r in ranks
        ]
    )  # fmt: skip


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_products_of_deficient_factors(anchor):
    ranks = [5, 4, 5, 3, 4, 3, 5, 2, 3, 5]
    J = deficient(rng_of(5), 5, ranks)
    # generic factors: the rank of a product is the least of its factors'
    lags = [10, 1, 4, 0, 8, 4]
    values = gp.singular_values(dense(J), lags=lags, anchor=anchor)
    for at, lag in enumerate(lags):
        part = J[:lag] if anchor == "start" else J[len(J) - lag :]
        exact = mp_log_singular_values(part) if lag else np.zeros(5)
        used = ranks[:lag] if anchor == "start" else ranks[len(J) - lag :]
        assert np.isfinite(exact).sum() == min(used, default=5)
        check(values, exact, at=at)
    assert values.status == gp.Status.ZERO


def test_rank_falls_below_that_of_every_factor():
    u, v = np.array([1.0, 2.0, -3.0]), np.array([2.0, -1.0, 0.0])  # v . u = 0
    J = np.array([np.outer(u, v), np.outer(u, v), np.eye(3)])
    values = gp.singular_values(dense(J), lags=[1, 2, 3])
    check(values, np.array([0.5 * math.log(14 * 5), -np.inf, -np.inf]), at=0)
    for at in (1, 2):
        check(values, np.full(3, -np.inf), at=at)


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_rank_depends_on_the_order_of_the_factors(anchor):
    u, v = np.array([1.0, 2.0, -3.0]), np.array([2.0, -1.0, 4.0])
    x, y = np.array([1.0, 1.0, 1.0]), np.array([2.0, -1.0, 0.0])
    # y . u = 0 but v . x is not: x y^T u v^T vanishes, u v^T x y^T does not
    zero = gp.singular_values(dense([np.outer(u, v), np.outer(x, y)]), anchor=anchor)
    check(zero, np.full(3, -np.inf))
    other = gp.singular_values(dense([np.outer(x, y), np.outer(u, v)]), anchor=anchor)
    check(other, np.array([0.5 * math.log(14 * 5 * 25), -np.inf, -np.inf]))


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_leak_that_makes_a_singular_jacobian(anchor):
    # I/2 + (ones - I)/2 has rank one, ones - I alone has not
    W = np.ones((3, 3)) - np.eye(3)
    chain = gp.JacobianChain.row_scaled(W, np.ones((6, 3)), leak=0.5)
    check(gp.singular_values(chain, anchor=anchor), np.array([6 * math.log(1.5), -np.inf, -np.inf]))


def test_nearly_singular_is_not_singular():
    A = np.array([[1.0, 1.0], [1.0, 1.0 + EPS]])
    J = np.array([A] * 40)
    exact = mp_log_singular_values(J)
    values = gp.singular_values(dense(J))
    assert values.escalated.all()
    check(values, exact)
    assert values.log_sigma[0, 1] == pytest.approx(40 * math.log(EPS / 2) + math.log(1), abs=1.0)


def test_modular_ranks_against_bareiss():
    from exact import rank_and_minor

    J = deficient(rng_of(6), 4, [4, 3, 4, 2, 4])
    for reverse in (False, True):
        found = modular.modular_ranks(modular.Steps(dense(J), 0, reverse), [1, 3, 5], 4)
        for lag in (1, 3, 5):
            part = J[len(J) - lag :] if reverse else J[:lag]
            assert found[lag] == rank_and_minor(exact_product(part, 4)[0])[0]


# --- lags, anchors, padding, leak ----------------------------------------------------------------


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_lags_and_anchors(anchor):
    J = np.concatenate([random_chain(rng_of(7), "gaussian", 6, 5), cancelling(5, 20, 8)])
    lags = [46, 0, 3, 3, 26, 45]
    values = gp.singular_values(dense(J), lags=lags, anchor=anchor)
    assert values.lags.tolist() == lags
    assert values.escalated.any()
    assert not values.escalated[1]
    norms = gp.log_norms(dense(J), lags=lags, anchor=anchor)
    for at, lag in enumerate(lags):
        part = J[:lag] if anchor == "start" else J[len(J) - lag :]
        exact = mp_log_singular_values(part) if lag else np.zeros(5)
        check(values, exact, at=at)
        assert abs(norms.log_norm[at] - exact[0]) <= norms.error[at] <= 1e-8
        alone = gp.singular_values(dense(J), lags=[lag], anchor=anchor)
        assert same(alone.log_sigma[0], values.log_sigma[at])


def test_padded_sequences():
    """A non-normal linear map: a short sequence's product stands at every later lag."""
    cell = gp.RNN(0.9 * np.eye(12) + 2 * np.eye(12, k=1), activation="linear")
    x = np.zeros((2, 40, 12))
    chain = gp.linearise(cell, x, lengths=[40, 25])
    values = gp.singular_values(chain, lags=[2, 25, 40])
    assert values.escalated.tolist() == [[False, True, True]] * 2
    for r, lag in ((0, 25), (0, 40), (1, 25)):
        exact = mp_log_singular_values(np.array([cell.W_hh] * lag))
        at = values.lags.tolist().index(lag)
        assert (np.abs(values.log_sigma[r, at] - exact) <= values.error[r, at]).all()
    assert same(values.log_sigma[1, 2], values.log_sigma[1, 1])
    assert values.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    end = gp.singular_values(chain, lags=[25, 40], anchor="end")
    assert same(end.log_sigma[1, 0], values.log_sigma[1, 1])
    assert np.isnan(end.log_sigma[1, 1]).all()
    assert end.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    # the same Jacobian at every step: moving the start moves nothing
    assert np.nanmax(values.orbit_error) <= 40 * 12 * EPS


def leaky_factors(W, dphi, leak):
    """(1 - leak) I + leak diag(dphi) W where every product and sum is exact."""
    J = leak * dphi[:, :, None] * W
    return J + (1 - leak) * np.eye(W.shape[-1])


def test_leak():
    rng = rng_of(9)
    # short integers over powers of two: no entry of the Jacobians rounds
    W = np.triu(rng.integers(-8, 9, (9, 9)) / 4.0) + 64 * np.triu(np.ones((9, 9)), 1)
    W += 3 * np.eye(9)
    dphi = rng.integers(1, 9, (50, 9)) / 8.0
    for leak in (1.0, 0.25):
        chain = gp.JacobianChain.row_scaled(W, dphi, leak=leak)
        J = leaky_factors(W, dphi, leak)
        assert same(J, chain.to_dense())
        for anchor in ("start", "end"):
            values = gp.singular_values(chain, lags=[50, 30], anchor=anchor)
            assert values.escalated[0]
            part = J[:30] if anchor == "start" else J[20:]
            check(values, mp_log_singular_values(J), at=0)
            check(values, mp_log_singular_values(part), at=1)


def test_only_the_replicas_that_need_it():
    J = np.stack([random_chain(rng_of(10), "tanh", 40, 6), cancelling(6, 20, 11)])
    values = gp.singular_values(dense(J), lags=[20, 40])
    assert values.escalated[:, 1].tolist() == [False, True]
    for r in range(2):
        alone = gp.singular_values(dense(J[r]), lags=[20, 40])
        assert same(values.log_sigma[r], alone.log_sigma)
        check(alone, mp_log_singular_values(J[r]), at=1)


# --- where it must say no ------------------------------------------------------------------------


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    J = cancelling(6, 30, 3)
    values, norms = gp.singular_values(dense(J)), gp.log_norms(dense(J), lags=[60])
    assert np.isnan(values.log_sigma[~values.resolved]).all()
    assert not values.resolved.all()
    assert not values.escalated.any()
    assert values.status == gp.Status.NOT_RESOLVED
    assert "gradprop[exact]" in " ".join(values.messages())
    assert (values.error[~values.resolved] > values.tol).all()
    assert norms.error[0] > 1e-8
    lost = gp.log_norms(dense(cancelling(4, 100, 5)), lags=[200])
    assert np.isnan(lost.log_norm[0])
    assert lost.error[0] == np.inf
    assert "gradprop[exact]" in " ".join(lost.messages())


def test_available_tells_whether_flint_can_be_imported(monkeypatch):
    assert escalation.available()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not escalation.available()


def test_the_cap_of_bits(monkeypatch):
    J = jordan(16)
    monkeypatch.setattr("gradprop.escalation.LAST_BITS", 64)
    monkeypatch.setattr("gradprop.escalation.FIRST_BITS", 64)
    values = gp.singular_values(dense(J))
    assert not values.resolved.all()
    assert np.isnan(values.log_sigma[~values.resolved]).all()
    assert values.status == gp.Status.NOT_RESOLVED
    assert "cap" in " ".join(values.messages())
    norms = gp.log_norms(dense(cancelling(4, 100, 5)), lags=[200])
    assert np.isnan(norms.log_norm[0])
    assert norms.status == gp.Status.NOT_RESOLVED
    # a rank below n is proven whatever the cap
    monkeypatch.setattr("gradprop.escalation.LAST_BITS", 128)
    assert np.isneginf(gp.singular_values(dense([np.ones((3, 3))] * 5)).log_sigma[0, 1:]).all()


def test_precision_doubles_until_every_pivot_is_known(monkeypatch):
    tried = collections.Counter()
    products = escalation._products

    def counting(steps, lags, n, bits):
        tried[bits] += 1
        return products(steps, lags, n, bits)

    monkeypatch.setattr("gradprop.escalation._products", counting)
    monkeypatch.setattr("gradprop.escalation.FIRST_BITS", 64)
    J = cancelling(6, 60, 12)
    steps = modular.Steps(dense(J), 0, False)
    log_sigma, error = escalation.exact_log_singular_values(steps, [120], 6, 64)[120]
    assert (np.abs(log_sigma - mp_log_singular_values(J)) <= error).all()
    # twice at the first: once more after the rank became known
    assert tried == {64: 2, 128: 1, 256: 1, 512: 1}


@pytest.mark.parametrize("precision", [10, 53, 3000])
def test_global_precision_of_flint_is_neither_used_nor_changed(precision):
    chains = [dense(cancelling(5, 20, 8)), dense([np.ones((3, 3))] * 5), dense(jordan(12))]
    expected = [gp.singular_values(chain) for chain in chains]
    norm = gp.log_norms(chains[0])
    before = flint.ctx.prec
    try:
        flint.ctx.prec = precision
        for chain, values in zip(chains, expected, strict=True):
            again = gp.singular_values(chain)
            assert values.escalated.all()
            assert same(again.log_sigma, values.log_sigma)
            assert same(again.error, values.error)
        assert same(gp.log_norms(chains[0]).log_norm, norm.log_norm)
        assert flint.ctx.prec == precision
    finally:
        flint.ctx.prec = before


def test_scales_beyond_the_float_range():
    J = np.array([1e150 * A for A in cancelling(4, 40, 13)])
    J[:40] *= 1e-300
    scaled = np.array([np.ldexp(A, 900) for A in cancelling(4, 40, 13)])
    for factors in (J, scaled):
        values = gp.singular_values(dense(factors))
        assert values.escalated.all()
        check(values, mp_log_singular_values(factors))
    M, exponent = integer_matrix(scaled[0])
    assert exponent + max(abs(m).bit_length() for row in M for m in row) > 890


# --- another thing: how far the orbit moves ------------------------------------------------------


def net(gain, n=16, seed=12):
    rng = rng_of(seed)
    return gp.RNN(gain * rng.standard_normal((n, n)) / math.sqrt(n)), rng.standard_normal(n)


def test_orbit_error_grows_with_the_lag_on_a_chaotic_net():
    cell, h0 = net(4.0)
    lags = np.arange(0, 201, 20)
    chain = gp.linearise(cell, n_steps=200, h0=h0)
    rate = gp.lyapunov_spectrum(gp.linearise(cell, n_steps=4000, h0=h0), 1).exponents[0]
    assert rate > 0.1
    error = gp.singular_values(chain, lags=lags, tol=1e-6).orbit_error[:, 0]
    assert error[0] == 0
    # one ulp times exp(rate lag), until the two orbits have parted
    grown = np.log(error[1:7]) - math.log(EPS)
    assert (np.abs(grown - rate * lags[1:7]) <= 0.35 * rate * lags[1:7] + 6).all()
    assert error[-1] > 0.01


def test_orbit_error_is_the_distance_to_the_neighbouring_orbit():
    cell, h0 = net(4.0, 6, seed=45)  # one whose start is not forgotten at once
    values = gp.singular_values(gp.linearise(cell, n_steps=100, h0=h0))
    exact = []
    for start in (h0, np.nextafter(h0, np.copysign(np.inf, h0))):
        J = gp.linearise(cell, n_steps=100, h0=start).to_dense()
        exact.append(mp_log_singular_values(J))
    # the Jacobians' entries round once: 100 steps of condition up to 1e4
    slack = 4 * values.error[0] + 1e-9
    assert (np.abs(values.orbit_error[0] - np.abs(exact[0] - exact[1])) <= slack).all()
    assert values.orbit_error.max() > 1e2 * slack.max()


def test_orbit_error_is_small_on_a_contracting_net():
    cell, h0 = net(0.7, 8)
    values = gp.singular_values(gp.linearise(cell, n_steps=60, h0=h0), lags=[1, 30, 60])
    assert values.orbit_error.max() <= 60 * 8 * EPS * 50
    assert not np.isnan(values.orbit_error).any()


def test_chains_from_arrays_have_no_orbit():
    J = cancelling(4, 10)
    assert np.isnan(gp.singular_values(dense(J)).orbit_error).all()
    W, dphi = np.eye(3), np.ones((4, 3))
    assert np.isnan(gp.singular_values(gp.JacobianChain.row_scaled(W, dphi)).orbit_error).all()
    assert np.isnan(gp.singular_values(gp.JacobianChain.diagonal(dphi)).orbit_error).all()


def test_orbit_error_of_a_product_that_float64_cannot_settle():
    # regression: the moved orbit was left in float64, whose noise then counted as its motion
    cell = gp.RNN(0.9 * np.eye(16) + np.eye(16, k=1), activation="linear")
    values = gp.singular_values(gp.linearise(cell, n_steps=100, h0=np.ones(16)))
    assert values.escalated.all()
    assert (values.orbit_error == 0).all()
