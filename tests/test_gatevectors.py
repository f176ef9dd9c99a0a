"""Vectors pushed and pulled through gated cells from their gates, against dense Jacobians."""

from __future__ import annotations

import naive_cells
import numpy as np
import pytest
from helpers import same, tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop.cells.base import Cell

KINDS = ("lstm", "gru after", "gru before")


def drawn(kind: str, rng: np.random.Generator, n: int, networks: tuple[int, ...] = ()) -> Cell:
    rows = (4 if kind == "lstm" else 3) * n
    W, U = rng.normal(size=(*networks, rows, n)), rng.normal(size=(rows, 2))
    if kind == "lstm":
        return gp.LSTM(W, U, rng.normal(size=rows))
    b_x, b_h = rng.normal(size=(2, rows))
    return gp.GRU(W, U, b_x, b_h, reset_after=kind == "gru after")


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 6), T=st.integers(0, 6))
def test_products_with_vectors_are_those_of_the_twin(kind, seed, n, T):
    """J_T ... J_1 v and its transpose, with Jacobians by complex step of the twin's equations."""
    rng = np.random.default_rng(seed)
    cell = drawn(kind, rng, n)
    x, h0 = rng.normal(size=(T, 2)), rng.normal(size=cell.n_state)
    v, u = rng.normal(size=(2, cell.n_state))
    chain = gp.linearise(cell, x, h0=h0)
    states = naive_cells.rollout(cell, x, h0)
    forward, backward, scale = v, u, 1.0
    jacobians = [
        naive_cells.complex_step_jacobian(cell, s, x_t)
        for s, x_t in zip(states[:-1], x, strict=True)
    ]
    for J in jacobians:
        # rounding is that of the terms of J, which cancel: gates are at most 1, their slopes 1/4
        scale *= np.linalg.norm(J) + 1 + np.linalg.norm(cell.W_hh) / 4
        forward = J @ forward
    for J in reversed(jacobians):
        backward = J.T @ backward
    bound = tolerance(np.float64, cell.n_state, T + 1) * scale
    found = gp.jvp(chain, v).to_float(), gp.vjp(chain, u).to_float()
    assert np.linalg.norm(found[0] - forward) <= bound * np.linalg.norm(v)
    assert np.linalg.norm(found[1] - backward) <= bound * np.linalg.norm(u)
    # adjoint law
    assert abs(u @ found[0] - found[1] @ v) <= bound * np.linalg.norm(u) * np.linalg.norm(v)


@pytest.mark.parametrize("kind", KINDS)
def test_lags_lengths_replicas_and_tails(kind):
    """The same as the dense chain of the same Jacobians, where no gates are known."""
    rng = np.random.default_rng(3)
    cell = drawn(kind, rng, 4, networks=(2, 1))
    chain = gp.linearise(cell, rng.normal(size=(3, 30, 2)), lengths=[30, 7, 0])
    u = rng.normal(size=cell.n_state)
    for part in (chain, chain.tail(11)):
        dense = gp.JacobianChain.dense(part.to_dense())
        from_gates = gp.gradient_by_lag(part, u).log_norm
        for r, length in enumerate(part.lengths[0]):
            alone = gp.gradient_by_lag(
                gp.JacobianChain.dense(part.to_dense()[:, r, :length]), u
            ).log_norm
            np.testing.assert_allclose(
                from_gates[:, r, : length + 1], alone, rtol=0, atol=tolerance(np.float64, 8, 31)
            )
            assert np.isnan(from_gates[:, r, length + 1 :]).all()
        # past its length a sequence's factors are I: nothing is lost or gained
        for ours, theirs in (
            (gp.jvp(part, u), gp.jvp(dense, u)),
            (gp.vjp(part, u), gp.vjp(dense, u)),
        ):
            error = np.linalg.norm(ours.to_float() - theirs.to_float(), axis=-1)
            assert (error <= 1e-12 * np.linalg.norm(theirs.to_float(), axis=-1)).all()


def test_a_product_below_every_float_keeps_its_log():
    """Zero weights: every lag costs ln sigmoid(b), 10^5 of them 10^-30103."""
    cell = gp.GRU(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3), np.zeros(3))
    chain = gp.linearise(cell, np.zeros(100_000))
    found = gp.gradient_by_lag(chain, [1.0], lags=[100, 100_000]).log_norm
    np.testing.assert_allclose(found, -np.log(2) * np.array([100, 100_000]), rtol=1e-13)


def test_several_quantities_in_one_pass_are_those_of_single_calls():
    """Folds that take gates and folds that take dense blocks, over the same blocks."""
    rng = np.random.default_rng(4)
    chain = gp.linearise(drawn("lstm", rng, 3), rng.normal(size=(40, 2)))
    u = rng.normal(size=6)
    norms, pulled = gp.measure(chain, gp.Norms(anchor="end"), gp.Pullback(u))
    assert same(norms.log_norm, gp.log_norms(chain, anchor="end").log_norm)
    assert same(pulled.log_norm, gp.gradient_by_lag(chain, u).log_norm)
