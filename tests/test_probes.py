"""Frobenius norms from random vectors: estimates, their band, gates instead of dense Jacobians."""

from __future__ import annotations

import importlib
import math

import naive
import numba
import numpy as np
import pytest
from chains import FAMILIES, random_chain
from exact import exact_log_norm
from helpers import same, tolerance
from hypothesis import given
from hypothesis import strategies as st
from test_gatevectors import KINDS, drawn

import gradprop as gp
from gradprop._probefold import probe_band
from gradprop.rotations import random_rotation

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


def probed(chain, probes=8, **arguments):
    return gp.log_norms(chain, ord="fro", method="probe", probes=probes, **arguments)


def twin(J, probes, seed, anchor):
    """The estimate of every lag of one replica, from the definition."""
    T, n = J.shape[:2]
    k = min(probes, n)
    Q = random_rotation(n, k, np.random.default_rng(seed))
    found = []
    for lag in range(T + 1):
        P = naive.product(J, lag) if anchor == "start" else naive.product(J[T - lag :], lag).T
        found.append(0.5 * np.log(n / k * np.sum((P @ Q) ** 2)))
    return np.array(found)


# --- the estimate --------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), n=st.integers(1, 6), k=st.integers(1, 7), T=st.integers(0, 8))
def test_the_estimate_is_that_of_the_definition(seed, n, k, T):
    J = np.random.default_rng(seed).standard_normal((T, n, n))
    size = np.prod([np.linalg.norm(step) for step in J])
    for anchor in ("start", "end"):
        found = probed(dense(J), k, rng=seed, anchor=anchor)
        expected = twin(J, k, seed, anchor)
        # rounding is relative to the sizes of the factors, which may cancel
        rtol = tolerance(np.float64, n, T + 1) * max(size / np.exp(expected.min()), 1.0)
        np.testing.assert_allclose(found.log_norm, expected, rtol=0, atol=min(rtol, 1.0) + 1e-14)


@pytest.mark.parametrize("family", FAMILIES)
def test_as_many_probes_as_units_give_the_norm(family):
    for seed in range(8):
        rng = np.random.default_rng([11, seed])
        n, steps = int(rng.integers(1, 8)), 2 * int(rng.integers(1, 21))
        J = random_chain(rng, family, steps, n)
        norms = probed(dense(J), probes=8, lags=[steps], anchor=("start", "end")[seed % 2])
        value, error = norms.log_norm[0], norms.error[0]
        exact = exact_log_norm(J, "fro")
        if error == np.inf:
            assert np.isnan(value)
            assert family == "cancelling"
        else:
            assert value == exact or abs(value - exact) <= error
        if family != "cancelling":
            assert error < 1e-11


def test_mean_of_squares_over_replicas():
    """Replicas have probes of their own: pooled, they come nearer."""
    J = np.random.default_rng(0).standard_normal((3, 10, 10))
    exact = gp.log_norms(dense(J), ord="fro", lags=[3]).log_norm[0]
    norms = probed(dense(np.tile(J, (3000, 1, 1, 1))), probes=2, lags=[3]).log_norm[:, 0]
    assert len(np.unique(norms)) == 3000
    ratio = np.exp(2 * (norms - exact))
    assert abs(ratio.mean() - 1) <= 4 * ratio.std() / math.sqrt(3000)


# --- the band ------------------------------------------------------------------------------------


def test_band_in_closed_form():
    # n = 2, k = 1: cos^2 of a uniform angle; the upper end, ln 2 / 2, is never passed
    x = math.sin(0.05 * math.pi / 2) ** 2
    assert probe_band(2, 1) == pytest.approx(-0.5 * math.log(2 * x), rel=1e-12)
    # n = 4, k = 2: a uniform variable
    assert probe_band(4, 2) == pytest.approx(-0.5 * math.log(2 * 0.05), rel=1e-12)
    assert probe_band(7, 7) == probe_band(1, 3) == 0.0
    # many units: chi-square, whose tails for two degrees of freedom are exponential
    e = probe_band(10**7, 2)
    tails = 1 - math.exp(-math.exp(-2 * e)) + math.exp(-math.exp(2 * e))
    assert tails == pytest.approx(0.05, abs=1e-6)
    assert probe_band(64, 8) == pytest.approx(0.5, abs=0.05)
    widths = [probe_band(64, k) for k in range(1, 65)]
    assert (np.diff(widths) < 0).all()


@pytest.mark.parametrize(("n", "k"), [(2, 1), (16, 8), (12, 3)])
def test_rank_one_is_covered_as_often_as_stated(n, k):
    rng, R = np.random.default_rng(n), 4000
    u, v = rng.standard_normal((2, R, n))
    norms = probed(dense((u[:, :, None] * v[:, None, :])[:, None]), k, lags=[1], rng=1)
    exact = np.log(np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1))
    inside = np.mean(np.abs(norms.log_norm[:, 0] - exact) <= norms.error[:, 0])
    assert abs(inside - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / R)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ("cancelling", "diagonal")])
def test_many_networks_are_covered_at_every_lag(family):
    R, n, steps, k = 400, 12, 12, 4
    rng = np.random.default_rng(5)
    J = np.array([random_chain(rng, family, steps, n) for _ in range(R)])
    for anchor in ("start", "end"):
        exact = gp.log_norms(dense(J), ord="fro", anchor=anchor)
        norms = probed(dense(J), k, anchor=anchor)
        zero = np.isneginf(exact.log_norm)
        assert np.array_equal(zero, np.isneginf(norms.log_norm))
        with np.errstate(invalid="ignore"):
            inside = zero | (np.abs(norms.log_norm - exact.log_norm) <= norms.error)
        lowest = 0.95 - 4 * math.sqrt(0.95 * 0.05 / R)
        assert inside.mean(axis=0).min() >= lowest


@pytest.mark.parametrize("ranks", [(1, 1), (1, 0.5), (1, 0.3, 0.1), (1, 0.9, 0.8, 0.7)])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_no_spectrum_is_covered_less_than_rank_one(ranks, k):
    R, n = 4000, 8
    sigma = np.array([*ranks, *[0.0] * (n - len(ranks))])
    chain = dense(np.tile(np.diag(sigma), (R, 1, 1, 1)))
    norms = probed(chain, k, lags=[1], rng=2)
    inside = np.abs(norms.log_norm - math.log(np.linalg.norm(sigma))) <= norms.error
    assert inside.mean() >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / R)


# --- zeros, cancellation -------------------------------------------------------------------------


def test_what_float64_loses_is_not_given_as_a_number():
    rng, lost = np.random.default_rng(5), 0
    for _ in range(6):
        A = rng.standard_normal((6, 6))
        # in floats the inverse is not quite one: what is left is neither 1 nor what rounding makes
        J = np.array([np.linalg.inv(A)] * 60 + [A] * 60)
        exact = exact_log_norm(J, "fro")
        for probes in (1, 3, 4, 6):
            norms = probed(dense(J), probes)
            assert np.isfinite(norms.log_norm[:60]).all()
            if np.isnan(norms.log_norm[120]):
                lost += 1
                assert norms.error[120] == np.inf
                assert norms.status & gp.Status.NOT_RESOLVED
            else:
                assert abs(norms.log_norm[120] - exact) <= norms.error[120]
    assert lost >= 12


def test_exact_zeros_and_what_only_looks_like_them():
    for J in (
        [[[1.0, -1.0], [1.0, -1.0]]] * 2,
        [np.diag([0.0, 1.0]), np.diag([1.0, 0.0])],
        np.eye(3, k=1)[None].repeat(3, axis=0),
    ):
        norms = probed(dense(J), probes=1)
        assert norms.log_norm[-1] == -np.inf
        assert norms.error[-1] == 0
        assert norms.status == gp.Status.ZERO
    J = np.array([np.diag([2.0, 0.4])] * 900 + [np.diag([0.0, 1.0])])
    for probes in (1, 2):
        norms = probed(dense(J), probes, lags=[901])
        assert norms.log_norm[0] != -np.inf
        assert np.isnan(norms.log_norm[0]) or abs(norms.log_norm[0] - 900 * math.log(0.4)) < 3


def test_far_beyond_the_range_of_floats():
    W = 3.0 * random_rotation(10)
    norms = probed(dense(np.broadcast_to(W, (3000, 10, 10))))
    lags = np.arange(3001)
    expected = 0.5 * math.log(10) + lags * math.log(3)
    # an isotropic product is known from any orthonormal vectors, without error
    np.testing.assert_allclose(norms.log_norm, expected, atol=tolerance(np.float64, 10, 3000))


def test_diagonal_chains_stay_exact():
    chain = gp.JacobianChain.diagonal(np.random.default_rng(0).uniform(0.5, 1, (40, 5)))
    exact = gp.log_norms(chain, ord="fro")
    norms = probed(chain, probes=1)
    assert same(norms.log_norm, exact.log_norm)
    assert same(norms.error, exact.error)


# --- gates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anchor", ["start", "end"])
def test_gated_cells_from_their_gates(kind, anchor, monkeypatch):
    """The same as with dense Jacobians, which are not formed; replicas, lengths, tails, padding."""
    rng = np.random.default_rng(3)
    cell = drawn(kind, rng, 5, networks=(2, 1))
    chain = gp.linearise(cell, rng.normal(size=(3, 30, 2)), lengths=[30, 7, 0])
    for part in (chain, chain.tail(11)):
        J = part.to_dense()
        found = probed(part, 3, anchor=anchor)
        for r, length in enumerate(part.lengths[0]):
            for network in range(2):
                lags = np.arange(length + 1)
                # each replica has its own probes: that of the flat index
                alone = np.tile(np.eye(cell.n_state), (6, length, 1, 1))
                alone[3 * network + r] = J[network, r, :length]
                expected = probed(dense(alone), 3, anchor=anchor).log_norm[3 * network + r]
                got = found.log_norm[network, r]
                atol = tolerance(np.float64, 10, 31)
                np.testing.assert_allclose(got[lags], expected, rtol=0, atol=atol)
                rest = got[length + 1 :]
                assert np.isnan(rest).all() if anchor == "end" else (rest == got[length]).all()
    forbidden = importlib.import_module("gradprop.sources").OrbitSource
    monkeypatch.setattr(forbidden, "block", lambda *_: pytest.fail("a dense Jacobian was formed"))
    probed(chain, 3, anchor=anchor)


# --- arguments and bits --------------------------------------------------------------------------


def test_bits_do_not_depend_on_blocks_or_threads(monkeypatch):
    rng = np.random.default_rng(2)
    module = importlib.import_module("gradprop.measure")
    x = rng.standard_normal((3, 60, 2))
    cells = (
        gp.RNN(rng.standard_normal((12, 12)) / 3, rng.normal(size=(12, 2))),
        drawn("lstm", rng, 7),
    )
    before = numba.get_num_threads()
    for cell in cells:
        chain, seen = gp.linearise(cell, x, lengths=[60, 41, 3]), set()
        for threads in (1, 2):
            numba.set_num_threads(min(threads, before))
            for flops in (2e9, 1.0, 3e5):
                monkeypatch.setattr(module, "CALL_FLOPS", flops)
                norms = probed(chain)
                seen.add(norms.log_norm.tobytes() + norms.error.tobytes())
        numba.set_num_threads(before)
        assert len(seen) == 1


def test_the_seed():
    chain = dense(np.random.default_rng(0).standard_normal((5, 9, 9)))
    assert same(probed(chain, 2).log_norm, probed(chain, 2).log_norm)
    assert same(probed(chain, 2, rng=7).log_norm, probed(chain, 2, rng=7).log_norm)
    assert not same(probed(chain, 2, rng=7).log_norm, probed(chain, 2).log_norm)
    found = gp.measure(chain, gp.Norms("fro", method="probe", probes=2), gp.Exponents())[0]
    assert same(found.log_norm, probed(chain, 2).log_norm)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ord": 2}, ValueError, r"`ord` must be 'fro' with method 'probe'.*sqrt\(n\).*; got 2"),
        ({"probes": 0}, ValueError, "`probes` must be at least 1; got 0"),
        ({"probes": 2.0}, TypeError, "`probes` must be an integer"),
        ({"rng": "seed"}, TypeError, "`rng` must be None, a seed or a numpy Generator"),
        ({"method": "probes"}, ValueError, "`method` must be one of 'exact', 'probe'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.log_norms(dense(np.zeros((4, 2, 2))), **{"ord": "fro", "method": "probe", **arguments})
