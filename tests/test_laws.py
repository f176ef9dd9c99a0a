"""Laws that hold for every chain, on chains that Hypothesis makes up."""

from __future__ import annotations

import math

import numpy as np
from chains import FAMILIES, random_chain, random_orthogonal
from exact import exact_log_abs_det
from helpers import same, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense
TAME = [f for f in FAMILIES if f not in ("cancelling", "jordan", "triangular")]


@st.composite
def chains(draw, families=FAMILIES, max_n=6, max_steps=24):
    """(factors (T, n, n), generator): small, of any family, reproducible from what is drawn."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, half = draw(st.integers(1, max_n)), draw(st.integers(1, max_steps // 2))
    family = draw(st.sampled_from(families))
    return random_chain(rng, family, 2 * half, n), rng


def step_norm_sum(J):
    """Sum of ln ‖J_k‖: the scale that rounding is relative to; -inf if a factor is zero."""
    with np.errstate(divide="ignore"):
        return float(np.log(np.linalg.norm(J, 2, axis=(-2, -1))).sum())


def scaled_dot(a, image, log_scale):
    """<a, image> divided by exp(log_scale), where image may be beyond the float range."""
    shift = image.exponent[0] - round(log_scale / math.log(2))
    return float(np.ldexp(a @ image.mantissa, int(np.clip(shift, -3000, 900))))


def amplification(J, log_norm):
    """How much larger rounding relative to Π‖J_k‖ is relative to the product itself."""
    return math.exp(min(step_norm_sum(J) - log_norm, 700.0))


@given(chains())
def test_adjoint(case):
    J, rng = case
    n, steps = J.shape[-1], len(J)
    u, v = rng.standard_normal((2, n))
    left = scaled_dot(u, gp.jvp(dense(J), v), step_norm_sum(J)) if step_norm_sum(J) > -1e4 else 0
    right = scaled_dot(v, gp.vjp(dense(J), u), step_norm_sum(J)) if step_norm_sum(J) > -1e4 else 0
    # both sides are exact for factors off by (n + 2) eps of their norms
    size = 2 * np.linalg.norm(u) * np.linalg.norm(v)
    assert abs(left - right) <= 2 * tolerance(np.float64, n + 2, steps, c=1) * size


@given(chains(), st.integers(0, 24))
def test_chain_rule(case, at):
    J, rng = case
    cut = min(at, len(J))
    v = rng.standard_normal(J.shape[-1])
    half = gp.jvp(dense(J[:cut]), v)
    rest, whole = gp.jvp(dense(J[cut:]), half.mantissa), gp.jvp(dense(J), v)
    assert same(rest.mantissa, whole.mantissa)
    if whole.mantissa.any():
        assert rest.exponent[0] + half.exponent[0] == whole.exponent[0]
    # and norms are submultiplicative
    parts = [gp.log_norms(dense(part), lags=[len(part)]) for part in (J[:cut], J[cut:], J)]
    if not any(np.isnan(p.log_norm[0]) for p in parts):
        slack = sum(p.error[0] for p in parts)
        assert parts[2].log_norm[0] <= parts[0].log_norm[0] + parts[1].log_norm[0] + slack


@given(chains())
def test_sum_of_log_singular_values_is_the_log_determinant(case):
    J, _ = case
    chain = dense(J)
    values, det = gp.singular_values(chain), chain.log_abs_det()
    if values.resolved.all():
        total = values.log_sigma.sum()
        if np.isneginf(total) or np.isneginf(det):
            # LU may meet a rounded zero where the structure has an exact one, never the reverse
            assert np.isneginf(total)
            return
        rows = np.abs(J).max(axis=-1, keepdims=True)
        lu = tolerance(np.float64, J.shape[-1], len(J)) * np.linalg.cond(J / rows).max()
        assert (
            abs(total - det) <= values.error.sum() + lu + 8 * EPS * np.abs(values.log_sigma).sum()
        )


@given(chains())
def test_sum_of_exponents_is_the_log_determinant(case):
    J, _ = case
    spectrum, det = gp.lyapunov_spectrum(dense(J)), dense(J).log_abs_det()
    if np.isfinite(spectrum.exponents).all() and np.isfinite(det):
        total = spectrum.exponents.sum() * len(J)
        rows = np.abs(J).max(axis=-1, keepdims=True)
        rounding = tolerance(np.float64, J.shape[-1], len(J)) * np.linalg.cond(J / rows).max()
        assert abs(total - det) <= 2 * rounding + 8 * EPS * abs(det)


def test_exponents_of_nearly_parallel_columns_add_up():
    """Several steps at once may not cost digits that QR at every step keeps."""
    J = np.array(
        [
            [[1.12557423, -1.40945845, 0.23058302], [-0.18746036, -0.14945112, -0.07118367],
             [-1.10708034, -0.12711363, -0.47419157]],
            [[0.03171406, -0.03971275, 0.00649688], [-0.21055428, -0.16786254, -0.07995304],
             [-0.92447847, -0.10614751, -0.39597839]],
            [[0.16507309, -0.20670663, 0.03381656], [-0.3265711, -0.26035591, -0.1240077],
             [-0.51703463, -0.05936529, -0.2214595]],
            [[0.6965317, -0.8722059, 0.14269017], [-0.02168123, -0.01728517, -0.00823294],
             [-0.5561358, -0.06385484, -0.23820756]],
            [[0.73927593, -0.92573077, 0.15144667], [-0.10746127, -0.08567255, -0.04080589],
             [-0.06066058, -0.00696497, -0.02598252]],
            [[0.92836873, -1.1625152, 0.19018387], [-0.29491533, -0.23511864, -0.11198716],
             [-0.82164623, -0.09434043, -0.35193264]],
        ]
    )  # fmt: skip
    total = gp.lyapunov_spectrum(dense(J)).exponents.sum() * len(J)
    rows = np.abs(J).max(axis=-1, keepdims=True)
    rounding = tolerance(np.float64, 3, len(J)) * np.linalg.cond(J / rows).max()
    assert abs(total - exact_log_abs_det(J)) <= 2 * rounding


@given(chains())
def test_largest_singular_value_is_the_norm(case):
    J, _ = case
    for anchor in ("start", "end"):
        norms = gp.log_norms(dense(J), lags=[len(J)], anchor=anchor)
        values = gp.singular_values(dense(J), anchor=anchor)
        first = values.log_sigma[0, 0]
        if values.resolved[0, 0] and not np.isnan(norms.log_norm[0]):
            if np.isneginf(first):
                assert np.isneginf(norms.log_norm[0])
            else:
                assert abs(first - norms.log_norm[0]) <= values.error[0, 0] + norms.error[0]


@given(chains())
def test_values_descend_and_the_frobenius_norm_collects_them(case):
    J, _ = case
    values = gp.singular_values(dense(J))
    sigma = values.log_sigma[0][values.resolved[0]]
    assert (np.diff(sigma[np.isfinite(sigma)]) <= 0).all()
    assert (np.diff(np.isneginf(sigma).astype(int)) >= 0).all()
    frobenius = gp.log_norms(dense(J), lags=[len(J)], ord="fro")
    if values.resolved.all() and np.isfinite(frobenius.log_norm[0]):
        collected = sigma[0] + 0.5 * math.log(np.exp(2 * (sigma - sigma[0])).sum())
        slack = values.error.max() + frobenius.error[0] + len(sigma) * EPS
        assert abs(collected - frobenius.log_norm[0]) <= slack


@given(st.lists(chains(max_n=3, max_steps=6), min_size=2, max_size=4))
@settings(max_examples=40)
def test_batch_equals_loop_bit_by_bit(cases):
    n, steps = 3, 6
    J = np.zeros((len(cases), steps, n, n))
    for r, (own, rng) in enumerate(cases):
        J[r] = rng.standard_normal((steps, n, n))
        J[r, : len(own), : own.shape[-1], : own.shape[-1]] = own[:steps]
    together = dense(J)
    u = np.array([1.0, -2.0, 0.5])

    def numbers(chain):
        yield gp.log_norms(chain).log_norm
        yield gp.log_norms(chain, ord="fro", anchor="end").error
        yield gp.singular_values(chain, lags=[3, 6]).log_sigma
        yield gp.singular_values(chain, lags=[3, 6], anchor="end").error
        yield gp.lyapunov_spectrum(chain).exponents
        yield gp.lyapunov_spectrum(chain, 1).exponents
        yield gp.gradient_by_lag(chain, u).log_norm
        yield gp.jvp(chain, u).mantissa
        yield gp.horizon(chain, tol=0.1).first_below
        yield chain.log_abs_det()
        yield chain.to_dense()

    alone = [list(numbers(dense(J_r))) for J_r in J]
    for i, batch in enumerate(numbers(together)):
        for r in range(len(J)):
            assert same(batch[r], alone[r][i])


@given(chains(TAME))
def test_orthogonal_change_of_basis_changes_nothing(case):
    J, rng = case
    n, steps = J.shape[-1], len(J)
    Q = random_orthogonal(rng, n)
    turned = Q @ J @ Q.T
    norms = [gp.log_norms(dense(x), lags=[steps]) for x in (J, turned)]
    values = [x.log_norm[0] for x in norms]
    if not np.isfinite(values).all():
        return
    # turning rounds each factor by 3 n eps of its norm
    relative = 3 * tolerance(np.float64, n, steps, c=2) * amplification(J, values[0])
    if relative < 0.1:
        assert abs(values[0] - values[1]) <= 2 * relative + norms[0].error[0] + norms[1].error[0]


@given(chains(["orthogonal", "orthogonal_tanh"]))
def test_change_of_basis_keeps_all_singular_values(case):
    J, rng = case
    n, steps = J.shape[-1], len(J)
    Q = random_orthogonal(rng, n)
    first, second = gp.singular_values(dense(J)), gp.singular_values(dense(Q @ J @ Q.T))
    assert first.resolved.all()
    # factors are this close to orthogonal, so each turns rounding into cond(J_k) more at most
    growth = np.linalg.cond(J).prod()
    slack = 3 * tolerance(np.float64, n, steps, c=2) * min(growth, 1e6)
    if growth < 1e6:
        gap = np.abs(first.log_sigma - second.log_sigma)
        assert (gap <= slack + first.error + second.error).all()


@given(chains(), st.integers(-900, 900))
def test_powers_of_two_only_shift_the_logarithm(case, power):
    J, _ = case
    if np.abs(J)[J != 0].size and abs(power) + abs(np.log2(np.abs(J)[J != 0])).max() > 1000:
        return
    scaled = np.ldexp(J, power)
    plain, moved = gp.log_norms(dense(J)), gp.log_norms(dense(scaled))
    shift = np.arange(len(J) + 1) * power * math.log(2)
    finite = np.isfinite(plain.log_norm)
    assert same(finite, np.isfinite(moved.log_norm))
    np.testing.assert_allclose(
        moved.log_norm[finite], (plain.log_norm + shift)[finite], rtol=8 * EPS, atol=8 * EPS
        + 4 * EPS * np.abs(shift).max(),
    )  # fmt: skip
    v = np.ones(J.shape[-1])
    assert same(gp.jvp(dense(J), v).mantissa, gp.jvp(dense(scaled), v).mantissa)


@given(chains(), st.integers(0, 2**32 - 1))
def test_one_pass_measures_many_quantities_bit_for_bit(case, seed):
    J, _ = case
    chain, rng = dense(J), np.random.default_rng(seed)
    lags = rng.integers(0, len(J) + 1, 3)
    u = rng.standard_normal(J.shape[-1])
    both = gp.measure(
        chain,
        gp.Norms(lags=lags), gp.Spectrum(lags=lags, anchor="end"), gp.Exponents(),
        gp.Pullback(u, lags=lags), gp.Norms("fro", lags=lags, anchor="end"),
    )  # fmt: skip
    assert same(both[0].log_norm, gp.log_norms(chain, lags=lags).log_norm)
    assert same(both[1].log_sigma, gp.singular_values(chain, lags=lags, anchor="end").log_sigma)
    assert same(both[2].exponents, gp.lyapunov_spectrum(chain).exponents)
    assert same(both[3].log_norm, gp.gradient_by_lag(chain, u, lags=lags).log_norm)
    frobenius = gp.log_norms(chain, ord="fro", lags=lags, anchor="end")
    assert same(both[4].log_norm, frobenius.log_norm)
