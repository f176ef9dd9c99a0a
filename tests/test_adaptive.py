"""Few orthonormalisations instead of one a step: the same exponents, flags and bits."""

from __future__ import annotations

import importlib
import math

import mpmath
import numba
import numpy as np
import pytest
from chains import FAMILIES, random_chain, random_orthogonal
from exact import exact_product

import gradprop as gp
from gradprop._kernels import adaptive, factor
from gradprop.lyapunov.growth import in_strips

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


def state(n, k, edges, strips):
    """Q, sums, carry, zero, unsure and what follows them, as the kernels carry them."""
    basis = np.ascontiguousarray(np.eye(n)[:, :k])
    Q = (in_strips(basis) if strips else basis)[None].copy()
    flags = [np.zeros((1, k), int), np.zeros((1, k), int)]
    after = [
        np.zeros(1, int),
        np.array([edges]),
        np.zeros(1, int),
        np.full((1, len(edges), k), np.nan),
    ]
    return [Q, np.zeros((1, k)), np.zeros((1, k)), *flags], after


def run(J, edges, burn_in=0, k=None, longest=16):
    """History, zero, unsure and the periods seen, of a chain (T, n, n)."""
    T, n = J.shape[:2]
    block = dense(J).source.block(0, T)
    parts = (block.matrices, block.index, block.scales, block.exponents, block.identity)
    before, after = state(n, k or n, edges, longest is not None)
    if longest is None:
        factor.qr_exponent_steps(*parts, np.array([T]), 0, burn_in, *before, *after)
        return after[3][0], before[3][0], before[4][0], None
    pace, rate = np.array([[min(1, longest), 0, 1, 0]]), np.zeros((1, 1))
    before.insert(1, np.arange(before[0].shape[2])[None])
    adaptive.exponent_steps(*parts, np.array([T]), 0, burn_in, longest, *before, pace, rate, *after)
    before.pop(1)
    return after[3][0], before[3][0], before[4][0], int(pace[0, 0])


def exact_pivots(J):
    """ln R_ii of the whole product, from the leading minors of its Gram matrix in integers."""
    n = J.shape[-1]
    P, exponent = exact_product(J, n)
    gram = [[sum(P[h][i] * P[h][j] for h in range(n)) for j in range(n)] for i in range(n)]
    logs, previous = [], 1
    for i in range(n):
        # Bareiss: gram[i][i] is now the leading minor of size i + 1
        logs.append(0.5 * (mpmath.log(gram[i][i]) - mpmath.log(previous)))
        below = previous
        previous = gram[i][i]
        for h in range(i + 1, n):
            for j in range(i + 1, n):
                gram[h][j] = (gram[h][j] * gram[i][i] - gram[h][i] * gram[i][j]) // below
    return np.array([float(v + exponent * mpmath.log(2)) for v in logs])


# --- the same exponents --------------------------------------------------------------------------


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("cancelling", "triangular")])
@pytest.mark.parametrize("n", [3, 9, 40])
def test_against_householder_at_every_step(family, n):
    J = random_chain(np.random.default_rng(n), family, 240, n)
    edges = [40, 41, 240]
    for k in (n, 2):
        for burn_in in (0, 37):
            history, zero, unsure, period = run(J, edges, burn_in, k)
            expected, dead, doubtful, _ = run(J, edges, burn_in, k, longest=None)
            assert np.array_equal(zero, dead)
            assert np.array_equal(unsure, doubtful)
            safe = (zero == 0) & (np.cumsum(unsure) == 0)
            # 1e-12 (1 + |exponent|) nats a step
            for got, wanted, steps in zip(history, expected, edges, strict=True):
                np.testing.assert_allclose(got[safe], wanted[safe], rtol=1e-12, atol=steps * 1e-12)
            if family in ("orthogonal", "orthogonal_tanh"):
                # several steps at once, though the basis itself takes a part of the spread
                assert period >= 2
            if family == "relu" and k == n:
                assert period == 0


@pytest.mark.parametrize("family", ["gaussian", "tanh", "orthogonal_tanh", "graded"])
def test_against_integers(family):
    for seed in range(3):
        J = random_chain(np.random.default_rng(seed), family, 30, 4)
        history, zero, unsure, _ = run(J, [30])
        assert not zero.any()
        assert not unsure.any()
        np.testing.assert_allclose(history[0], exact_pivots(J), rtol=0, atol=30e-12)


def test_cancelling_chains_are_as_wrong_as_with_householder():
    ratios = []
    for seed in range(20):
        J = random_chain(np.random.default_rng(seed), "cancelling", 16, 4)
        truth = exact_pivots(J)
        errors = [np.abs(run(J, [16], longest=m)[0][0] - truth).max() for m in (16, None)]
        ratios.append(errors[0] / max(errors[1], 16 * 4 * EPS))
    assert np.median(ratios) <= 2  # measured 0.4


def test_a_bad_step_in_a_calm_chain_is_taken_back():
    rng = np.random.default_rng(1)
    n = 4
    J = np.array([random_orthogonal(rng, n) for _ in range(80)])
    for at, size in ((20, 1e-9), (41, 1e-13), (60, 1e-5)):
        J[at] = J[at] @ np.diag([1.0, 1.0, 1.0, size]) @ random_orthogonal(rng, n)
    history, zero, unsure, period = run(J, [80])
    assert period == 16
    assert not zero.any()
    assert not unsure.any()
    expected = exact_pivots(J)
    # the bad steps lose eps over their smallest pivot, however they are taken
    np.testing.assert_allclose(history[0], expected, atol=1e-2)
    np.testing.assert_allclose(history[0, :3], expected[:3], atol=1e-2)
    best = np.abs(run(J, [80], longest=None)[0][0] - expected).max()
    assert np.abs(history[0] - expected).max() <= max(10 * best, 80e-12)


def test_panels_that_leave_the_range_of_floats():
    for J in (
        np.array([[[0.0, 1.0], [1e-300, 0.0]]] * 40),
        np.array([np.diag([1.0, 1.0, 1e-150, 1e-150])] * 40),
        np.array([np.diag([1e290, 1e-290])] * 40),
    ):
        n = J.shape[-1]
        for k in range(2, n + 1):
            got, zero, unsure, _ = run(J, [40], k=k)
            expected, dead, doubtful, _ = run(J, [40], k=k, longest=None)
            assert np.array_equal(zero, dead)
            assert np.array_equal(unsure, doubtful)
            np.testing.assert_allclose(got, expected, rtol=1e-13)


# --- the same bits -------------------------------------------------------------------------------


def test_bits_do_not_depend_on_blocks_or_threads(monkeypatch):
    rng = np.random.default_rng(2)
    module = importlib.import_module("gradprop.measure")
    cell = gp.RNN(1.5 * rng.standard_normal((3, 12, 12)) / math.sqrt(12))
    x = rng.standard_normal((3, 150, 12))
    driven = gp.linearise(cell, x, lengths=[150, 97, 3])
    products = dense(rng.standard_normal((3, 150, 6, 6)))
    before = numba.get_num_threads()
    for chain in (driven, products, gp.linearise(cell, x[0], lengths=[150, 97, 3]).tail(140)):
        reference = None
        for threads in (1, 2):
            numba.set_num_threads(min(threads, before))
            for flops in (2e9, 1.0, 3e5, 1.1e6):
                monkeypatch.setattr(module, "CALL_FLOPS", flops)
                for k in (None, 3):
                    spectrum = gp.lyapunov_spectrum(chain, k, burn_in=11)
                    bits = spectrum.exponents.tobytes() + spectrum.history.tobytes()
                    if reference is None or k not in reference:
                        reference = {**(reference or {}), k: bits}
                    assert bits == reference[k]
        numba.set_num_threads(before)


def test_exponents_do_not_depend_on_what_else_is_recorded():
    J = random_chain(np.random.default_rng(3), "tanh", 300, 6)
    alone = run(J, [300])[0][-1]
    for edges in ([7, 300], list(range(1, 301)), [299, 300]):
        history = run(J, edges)[0]
        assert history[-1].tobytes() == alone.tobytes()
        # and each of them is right
        np.testing.assert_allclose(history, run(J, edges, longest=None)[0], rtol=0, atol=300e-12)


def test_spectrum_is_fast_where_it_can_be():
    # not a clock: the number of orthonormalisations shows in the periods
    J = random_chain(np.random.default_rng(4), "tanh", 400, 32) * 0.9
    assert run(J, [400])[3] >= 1
    assert run(J, [400], k=8)[3] >= 4
