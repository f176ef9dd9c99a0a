"""Checks of singular values: what grouping costs them is stated, and doubts are looked at again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from exact import mp_log_singular_values
from helpers import same

import gradprop as gp
from gradprop import agreement
from gradprop._kernels.jacobi import jacobi_sweep
from gradprop.graded import GradedFold, from_strips, in_strips
from gradprop.measure import LagGrid, run

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


@pytest.fixture(autouse=True)
def _float64_alone(monkeypatch):
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)


def looked_at(J, tol, lags=None):
    """The chain, the direct computation and its checks."""
    chain = dense(J)
    grid = LagGrid(chain, [len(J)] if lags is None else lags, "start")
    direct = GradedFold(chain, grid, False, None)
    others = agreement.checks(chain, grid, 1, agreement.reach(tol, 1))
    run(chain, [direct, *others])
    return chain, direct, others


@pytest.mark.parametrize("n", [1, 8, 11])
def test_strips_there_and_back(n):
    A = np.random.default_rng(n).standard_normal((n, n))
    strips = in_strips(A)
    assert same(from_strips(strips, n), A)
    for j in range(n):
        assert same(strips[j // 8, :n, j % 8], A[:, j])
    assert np.count_nonzero(strips) == n * n


def test_reach_follows_the_tolerance_and_the_group():
    assert agreement.reach(1e-8, 2) == -math.inf
    assert agreement.reach(1e-13, 1) < 0.0 < agreement.reach(1e-10, 1) < agreement.reach(1e-8, 1)
    assert agreement.reach(1.0, 1) == math.log(agreement.WIDEST)


@pytest.mark.parametrize("family", ["tanh", "orthogonal_tanh", "gaussian"])
def test_grouped_checks_state_their_own_rounding_at_most_a_tenth_of_the_tolerance(family):
    grouped = 0
    for seed in range(6):
        J = random_chain(np.random.default_rng([41, seed]), family, 40, 8)
        _, direct, others = looked_at(J, 1e-8)
        grouped += sum(int(fold.merged[0]) for fold in others)
        assert not direct.merged[0]
        value, error = agreement.compare(direct, others)
        true = np.abs(value[0, 0] - mp_log_singular_values(J))
        assert (true <= error[0, 0]).all()
        if family != "gaussian":
            assert error.max() <= 1e-9
    assert grouped >= (8 if family == "orthogonal_tanh" else 1)


def test_wide_panels_are_not_grouped():
    J = random_chain(np.random.default_rng(42), "saturated", 40, 6)
    _, _, others = looked_at(J, 1e-13)
    assert not any(fold.merged[0] for fold in others)


def stretched():
    """A tame start, then rows of sizes it does not let expect: right only if factored alone."""
    rng = np.random.default_rng(43)
    tame = np.linalg.qr(rng.standard_normal((6, 5, 5)))[0]
    wide = np.geomspace(1.0, 1e-11, 5)[:, None] * tame[:1]
    return np.concatenate([tame, wide, tame])


def test_doubts_of_grouped_checks_are_looked_at_once_more():
    J = stretched()
    chain, direct, others = looked_at(J, 1e-8, [6, 13])
    first, stated = agreement.compare(direct, others)
    doubts = agreement.doubtful(first, stated, 1e-8)
    assert doubts.tolist() == [[False, True]]
    value, error, within = agreement.agreement(chain, direct, others, 1, 1e-8)
    assert within == -math.inf
    assert same(error[0, 0], stated[0, 0])
    assert error[0, 1].max() <= 1e-8
    for column, lag in enumerate((6, 13)):
        true = np.abs(value[0, column] - mp_log_singular_values(J[:lag]))
        assert (true <= error[0, column]).all()
    alone = gp.singular_values(chain, lags=[13])
    assert same(alone.error[0], error[0, 1])
    assert alone.resolved.all()


def test_a_first_factor_without_its_matrix_says_nothing_about_the_spread():
    """Backwards D_T comes alone; its own spread would let the next Jacobians be grouped."""
    rng, sizes = np.random.default_rng(44), np.geomspace(1.0, 1e-5, 6)
    J = np.array([random_orthogonal(rng, 6) * sizes @ random_orthogonal(rng, 6) for _ in range(8)])
    _, _, others = looked_at(J, 1e-8, [2, 3, 8])
    assert [int(fold.merged[0]) for fold in others] == [0, 0, 0, 0]


def row_cyclic_sweep(rows):
    """One-sided Jacobi on rows, pair after pair; the largest |cosine| that it met."""
    worst = 0.0
    for p in range(len(rows) - 1):
        for q in range(p + 1, len(rows)):
            a, b, g = rows[p] @ rows[p], rows[q] @ rows[q], rows[p] @ rows[q]
            worst = max(worst, abs(g) / math.sqrt(a * b))
            if abs(g) > math.sqrt(len(rows)) * EPS * math.sqrt(a * b):
                z = (b - a) / (2 * g)
                t = math.copysign(1.0, z) / (abs(z) + math.hypot(1.0, z))
                c = 1 / math.hypot(1.0, t)
                rows[[p, q]] = c * np.array([rows[p] - t * rows[q], rows[q] + t * rows[p]])
    return worst


@pytest.mark.parametrize("n", [3, 8, 9, 20, 37])
def test_sweeps_by_blocks_are_as_few_as_row_by_row(n):
    rows = np.random.default_rng(n).standard_normal((n, n))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    sigma, twin, most, worst = np.linalg.svd(rows)[1], rows.copy(), 1, 1.0
    while row_cyclic_sweep(twin) > math.sqrt(n) * EPS:
        most += 1
    mantissa, exponent, sweeps = np.full(n, 0.5), np.ones(n, dtype=np.int64), 0
    while worst > math.sqrt(n) * EPS:
        worst, sweeps = jacobi_sweep(rows, mantissa, exponent), sweeps + 1
        assert sweeps <= most + 1
    found = np.sort(np.ldexp(mantissa, exponent))[::-1]
    np.testing.assert_allclose(found, sigma, atol=4 * n * EPS)
    np.testing.assert_allclose(rows @ rows.T, np.eye(n), atol=4 * n * EPS)
