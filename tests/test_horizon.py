"""The horizon in steps: worst case and one loss direction, over starts and replicas."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from chains import random_chain
from helpers import same

import gradprop as gp

dense = gp.JacobianChain.dense


def test_powers_of_one_half():
    chain = dense(np.full((60, 1, 1), 0.5))
    default = gp.horizon(chain)
    assert default.tol == 2.0**-23
    # 0.5^23 equals the tolerance and still counts
    assert (int(default.last_above), int(default.first_below)) == (23, 24)
    assert default.kind == "worst"
    assert default.quantiles.tolist() == [24.0, 24.0, 24.0]
    eighth = gp.horizon(chain, tol=0.125)
    assert (int(eighth.last_above), int(eighth.first_below)) == (3, 4)
    one = gp.horizon(chain, tol=1.0)
    assert (int(one.last_above), int(one.first_below)) == (0, 1)


def test_samples_set_the_statistical_tolerance():
    chain = dense(np.full((60, 1, 1), 0.5))
    by_samples = gp.horizon(chain, samples=10_000)
    assert by_samples.tol == pytest.approx(0.01, rel=1e-15)
    # 2^-6 > 0.01 > 2^-7
    assert (int(by_samples.last_above), int(by_samples.first_below)) == (6, 7)
    # 2^-23 belongs to 7e13 sequences
    assert gp.horizon(chain, samples=2**46).tol == 2.0**-23


def test_norms_that_come_back_up():
    # 8, then 1/64, then 8 again: the first lag below is not the last above
    sizes = np.array([1 / 64, 64.0, 1 / 64, 1 / 64])
    back = gp.horizon(dense(sizes[::-1, None, None]), tol=0.1)
    assert (int(back.first_below), int(back.last_above)) == (1, 2)
    # "start" counts from the other end
    start = gp.horizon(dense(sizes[:, None, None]), tol=0.1, anchor="start")
    assert (int(start.first_below), int(start.last_above)) == (1, 2)


def test_a_gradient_that_stays_has_no_first_lag_below():
    chain = dense(np.broadcast_to(np.eye(2), (3, 50, 2, 2)))
    never = gp.horizon(chain)
    assert (never.first_below == 0).all()
    assert (never.last_above == 50).all()
    assert (never.quantiles == np.inf).all()


def test_exact_zeros_end_it():
    J = np.array([np.eye(2), np.diag([0.0, 1.0]), np.diag([1.0, 0.0]), np.eye(2)])
    h = gp.horizon(dense(J))
    assert (int(h.last_above), int(h.first_below)) == (2, 3)
    assert h.status & gp.Status.ZERO


@pytest.mark.parametrize("anchor", ["start", "end"])
def test_worst_case_against_plain_norms(anchor):
    rng = np.random.default_rng(1)
    J = np.array([random_chain(rng, "tanh", 60, 4) for _ in range(5)])
    h = gp.horizon(dense(J), tol=1e-4, anchor=anchor)
    for r in range(5):
        last, first = naive.horizon(naive.log_norms(J[r], anchor=anchor), 1e-4)
        assert (int(h.last_above[r]), int(h.first_below[r])) == (last, first or 0)
    reached = np.sort(np.where(h.first_below > 0, h.first_below, np.inf))
    # the smallest value that at least 5, 50, 95 % of the replicas do not exceed
    assert h.quantiles.tolist() == reached[[0, 2, 4]].tolist()


def test_one_cotangent_is_relative_to_itself():
    rng = np.random.default_rng(2)
    J = random_chain(rng, "gaussian", 40, 3) / 2
    u = rng.standard_normal(3)
    own = gp.horizon(dense(J), tol=1e-3, cotangent=u)
    relative = naive.gradient_by_lag(J, u) - math.log(np.linalg.norm(u))
    last, first = naive.horizon(relative, 1e-3)
    assert (int(own.last_above), int(own.first_below)) == (last, first)
    assert own.kind == "cotangent"
    scaled = gp.horizon(dense(J), tol=1e-3, cotangent=1e200 * u)
    assert same(scaled.first_below, own.first_below)
    # no direction outlives the worst case
    assert own.first_below <= gp.horizon(dense(J), tol=1e-3).first_below


def test_padded_sequences_stop_at_their_own_length():
    cell = gp.RNN([[0.9]], activation="linear")
    chain = gp.linearise(cell, np.zeros((2, 60, 1)), lengths=[60, 10])
    h = gp.horizon(chain, tol=0.1)
    # 0.9^21 > 0.1 > 0.9^22
    assert h.first_below.tolist() == [22, 0]
    assert h.last_above.tolist() == [21, 10]
    assert h.status.tolist() == [gp.Status.OK, gp.Status.PADDED]
    assert h.quantiles[0] == 22
    assert h.quantiles[2] == np.inf


def test_no_steps():
    h = gp.horizon(dense(np.empty((0, 2, 2))))
    assert (int(h.last_above), int(h.first_below)) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"tol": 0.1, "samples": 5},
            ValueError,
            r"give `tol` or `samples`, not both; got 0.1 and 5",
        ),
        ({"tol": 0.0}, ValueError, r"`tol` must be greater than 0"),
        ({"tol": 2.0}, ValueError, r"`tol` must be at most 1"),
        ({"tol": "1"}, TypeError, r"`tol` must be a real number"),
        ({"samples": 0}, ValueError, r"`samples` must be at least 1"),
        ({"samples": 2.5}, TypeError, r"`samples` must be an integer"),
        ({"anchor": "mid"}, ValueError, r"`anchor` must be one of"),
        ({"cotangent": [0.0, 0.0]}, ValueError, r"`cotangent` must not be zero"),
        ({"cotangent": [1.0]}, ValueError, r"`(cotangent|u)` must have shape"),
        ({"cotangent": [1.0, 0.0], "anchor": "start"}, ValueError, r"`anchor` must be .*'end'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.horizon(dense(np.ones((4, 2, 2))), **arguments)
