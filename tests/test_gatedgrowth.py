"""Exponents of gated cells from their gates: those of the dense chain, and of the plain twin."""

from __future__ import annotations

import importlib

import naive
import naive_cells
import numpy as np
import pytest
from helpers import same, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gatevectors import KINDS, drawn

import gradprop as gp
from gradprop.lyapunov import growth

EPS = float(np.finfo(np.float64).eps)


def from_matrices(monkeypatch, chain, *arguments, **named):
    """The same spectrum where no fold is given gates."""
    with monkeypatch.context() as m:
        m.setattr(growth, "FEW", 10**9)
        return gp.lyapunov_spectrum(chain, *arguments, **named)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 6), T=st.integers(1, 8))
def test_growth_is_that_of_the_twin(kind, seed, n, T):
    """One vector along J_T ... J_1, with Jacobians by complex step of the twin's equations."""
    rng = np.random.default_rng(seed)
    cell = drawn(kind, rng, max(n, 4))
    x, h0 = rng.normal(size=(T, 2)), rng.normal(size=cell.n_state)
    spectrum = gp.lyapunov_spectrum(gp.linearise(cell, x, h0=h0), 1, rng=3)
    v = growth.random_rotation(cell.n_state, 1, 3)
    total, bound = 0.0, 0.0
    for state, x_t in zip(naive_cells.rollout(cell, x, h0)[:-1], x, strict=True):
        J = naive_cells.complex_step_jacobian(cell, state, x_t)
        w = J @ v
        size = np.linalg.norm(w)
        # rounding of the terms of J v, amplified by how much they cancel
        bound += (np.linalg.norm(J) + 1 + np.linalg.norm(cell.W_hh) / 4) / size
        total, v = total + np.log(size), w / size
    error = tolerance(np.float64, cell.n_state, T + 1) * bound * T
    assert abs(spectrum.exponents[0] * T - total) <= error


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_from_matrices(kind, monkeypatch):
    rng = np.random.default_rng(5)
    cell = drawn(kind, rng, 12, networks=(2, 1))
    chain = gp.linearise(cell, rng.normal(size=(3, 240, 2)), lengths=[240, 151, 0])
    for part in (chain, chain.tail(200)):
        for k in (1, 3):
            gates = gp.lyapunov_spectrum(part, k, burn_in=7)
            dense = from_matrices(monkeypatch, part, k, burn_in=7)
            assert same(gates.status, dense.status)
            # 1e-12 (1 + |exponent|) nats a step, the promise of both
            for name in ("exponents", "history"):
                np.testing.assert_allclose(
                    getattr(gates, name), getattr(dense, name), rtol=1e-12, atol=1e-12
                )


def test_two_vectors_against_the_twin():
    """Gram-Schmidt of J Q at every step."""
    rng = np.random.default_rng(8)
    cell = drawn("gru after", rng, 8)
    x = rng.normal(size=(30, 2))
    chain = gp.linearise(cell, x)
    found = gp.lyapunov_spectrum(chain, 2, rng=1)
    J = chain.to_dense()
    Q = growth.random_rotation(8, 2, 1)
    total = np.zeros(2)
    for J_t in J:
        Q, r = naive.gram_schmidt(J_t @ Q)
        total += np.log(r)
    np.testing.assert_allclose(found.exponents * 30, np.sort(total)[::-1], rtol=0, atol=30e-12)


@pytest.mark.parametrize("closed", ["first step", "always"])
def test_exact_zeros_are_found_as_from_matrices(closed, monkeypatch):
    """Gates that are shut exactly, and weights that are zero."""
    rng = np.random.default_rng(2)
    W = rng.normal(size=(24, 8))
    if closed == "always":
        W[:8] = W[16:] = 0.0
    b = np.zeros(24)
    x = np.full((40, 1), -1.0 if closed == "first step" else 0.0)
    x[0] = 1.0
    U = np.zeros((24, 1))
    U[8:16] = 2000.0 if closed == "always" else 0.0
    cell = gp.GRU(W, U, b, b)
    chain = gp.linearise(cell, x, h0=rng.normal(size=8))
    gates = gp.lyapunov_spectrum(chain, 2)
    dense = from_matrices(monkeypatch, chain, 2)
    assert same(gates.status, dense.status)
    np.testing.assert_allclose(gates.exponents, dense.exponents, rtol=1e-12, atol=1e-12)


def test_nothing_depends_on_blocks(monkeypatch):
    rng = np.random.default_rng(4)
    chain = gp.linearise(drawn("lstm", rng, 6), rng.normal(size=(120, 2)))
    whole = gp.lyapunov_spectrum(chain, 3)
    monkeypatch.setattr(importlib.import_module("gradprop.measure"), "CALL_FLOPS", 1e4)
    assert same(gp.lyapunov_spectrum(chain, 3).history, whole.history)
