"""One's own step: exact maps, how its derivative is found and doubted, and what bad input gets."""

from __future__ import annotations

import pickle

import numba
import numpy as np
import pytest
from helpers import same, tolerance

import gradprop as gp

W = np.array([[0.4, -0.9, 0.3], [0.8, 0.2, -0.5], [-0.1, 0.7, 0.6]])
GOLDEN = 0.9624236501192069  # ln of the square of the golden ratio


@numba.njit
def henon(h, x):
    return np.array([1 - 1.4 * h[0] ** 2 + h[1], 0.3 * h[0]])


@numba.njit
def henon_slopes(h, x):
    return np.array([[-2.8 * h[0], 1.0], [0.3, 0.0]])


@numba.njit
def cat(h, x):
    return np.array([2 * h[0] + h[1], h[0] + h[1]]) % 1.0


@numba.njit
def cat_slopes(h, x):
    return np.array([[2, 1], [1, 1]])


@numba.njit
def network(h, x):
    """tanh(W h + x); spoils what it is given, which must be copies."""
    after = np.tanh(W.astype(h.dtype) @ h + x)
    h[:] = x[:] = 7
    return after


@numba.njit
def real_network(h, x):
    """The same, but a real matrix times a complex vector does not compile."""
    return np.tanh(W @ h + x)


@numba.njit
def menu(h, x):
    """One of several steps, chosen by x: one function is compiled once."""
    out = np.empty_like(h)
    if x[0] == 0:
        out[:] = np.abs(h)
    elif x[0] == 1:
        out[:] = h.real * 0.5
    elif x[0] == 2:
        out[:] = h + 1 if np.iscomplexobj(h) else h
    elif x[0] == 3:
        out[:] = h * h
    elif x[0] == 4:
        return h[:1]
    else:
        return h[::-1]
    return out


@numba.njit
def menu_slopes(h, x):
    """Right for x = 3; for x = 1 with an entry that is wrong, for others something else still."""
    out = np.zeros((h.size, h.size))
    for i in range(h.size):
        out[i, i] = 0.5 if x[0] == 1 else 2 * h[i]
    if x[0] == 1:
        out[1, 0] = 0.01
    if x[0] == 0:
        out[0, 1] = np.nan
    return out if x[0] < 4 else out[:1]


HENON, MENU = gp.CustomCell(henon, 2), gp.CustomCell(menu, 2)
NETWORK, REAL_NETWORK = gp.CustomCell(network, 3), gp.CustomCell(real_network, 3)
CHECKED = gp.CustomCell(menu, 2, menu_slopes)


def inputs(*shape):
    return np.random.default_rng(0).normal(size=shape)


# --- maps whose exponents are known --------------------------------------------------------------


def test_henon_map():
    chain = gp.linearise(HENON, n_steps=50_000, h0=[0.1, 0.1])
    found = gp.lyapunov_spectrum(chain, burn_in=1000)
    assert found.exponents.sum() == pytest.approx(np.log(0.3), abs=1e-13)
    # 0.41922 and -1.62319 from the literature, to the error of time sampling here
    assert np.abs(found.exponents - [0.41922, -1.62319]).max() < 5 * found.std_error[0]
    assert found.std_error[0] < 0.005
    given = gp.linearise(gp.CustomCell(henon, 2, henon_slopes), n_steps=100, h0=[0.1, 0.1])
    np.testing.assert_allclose(chain.to_dense()[:100], given.to_dense(), rtol=1e-15)


def test_arnolds_cat_map():
    cell = gp.CustomCell(cat, 2, cat_slopes)
    assert cell.jacobian_kind == "given"
    # the step is discontinuous: where a difference straddles a jump it refutes nothing
    chain = gp.linearise(cell, n_steps=20_000, h0=[0.1, 0.1234])
    found = gp.lyapunov_spectrum(chain, burn_in=100).exponents
    np.testing.assert_allclose(found, [GOLDEN, -GOLDEN], rtol=1e-12)


# --- a network written by hand -------------------------------------------------------------------


def test_a_network_by_hand_is_the_rnn():
    x, h0 = inputs(20, 3), inputs(3)
    own, rnn = gp.rollout(NETWORK, x, h0=h0), gp.rollout(gp.RNN(W), x, h0=h0)
    assert own.z.shape == (20, 0)
    assert same(own.h, own.state)
    np.testing.assert_allclose(own.h, rnn.h, rtol=0, atol=tolerance(np.float64, 6, 20))
    J, wanted = (gp.linearise(c, x, h0=h0).to_dense() for c in (NETWORK, gp.RNN(W)))
    assert NETWORK.jacobian_kind == "complex step"
    assert np.abs(J - wanted).max() <= tolerance(np.float64, 6, 20) * np.abs(wanted).max()
    J = gp.step_jacobian(NETWORK, rnn.h[:-1], x)
    np.testing.assert_allclose(J, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())
    assert (NETWORK.jacobian_error(rnn.h[:-1], x) == 0).all()


def test_differences_state_an_error_that_holds():
    assert REAL_NETWORK.jacobian_kind == "differences"
    h, x = inputs(200, 3), inputs(200, 3)[::-1]
    J, exact = gp.step_jacobian(REAL_NETWORK, h, x), gp.step_jacobian(gp.RNN(W), h, x)
    error = REAL_NETWORK.jacobian_error(h, x)
    assert (np.abs(J - exact) <= error).all()
    assert np.median(error) < 1e-9
    # 1e6 steps away differences of width 1 say nothing of tanh, and know it
    with pytest.raises(ValueError, match="pass `jacobian`"):
        gp.step_jacobian(REAL_NETWORK, [1e6, 0, 0], -1e6 * W[:, 0])


def test_float32_orbit():
    x, h0 = inputs(5, 3), inputs(3)
    run = gp.rollout(NETWORK, x, h0=h0, dtype="float32")
    assert run.state.dtype == np.float32
    for t in range(5):
        z = W @ run.h[t].astype(float) + np.float32(x[t])
        assert np.abs(run.h[t + 1] - np.tanh(z)).max() <= tolerance(np.float32, 6, 1)
    J = gp.linearise(NETWORK, x, h0=h0, dtype="float32").to_dense()
    exact = gp.step_jacobian(NETWORK, run.h[:-1].astype(float), np.float32(x).astype(float))
    assert same(J, exact)
    far = gp.rollout(NETWORK, [[1.0, 0, 0], [1e60, 0, 0]], dtype="float32")
    assert far.n_valid == 1


# --- derivatives that are not what they seem -----------------------------------------------------


@pytest.mark.parametrize(("choice", "slopes"), [(0, [1, -1]), (1, [0.5, 0.5]), (2, [1, 1])])
def test_a_step_that_is_not_analytic_falls_back_on_differences(choice, slopes):
    assert MENU.jacobian_kind == "complex step"
    J = gp.step_jacobian(MENU, [0.5, -0.25], [choice])
    error = MENU.jacobian_error([0.5, -0.25], [choice])
    assert (error.diagonal() > 0).all()
    assert (np.abs(J - np.diag(slopes)) <= error).all()
    assert error.max() < 1e-9


def test_a_step_may_return_a_view_of_its_state():
    assert gp.rollout(MENU, [[5.0]], h0=[1.0, 2.0]).h[1].tolist() == [2, 1]
    assert gp.step_jacobian(MENU, [1.0, 2.0], [5.0]).tolist() == [[0, 1], [1, 0]]


def test_only_the_steps_that_need_it_fall_back():
    x = np.array([[3.0], [0.0], [3.0]])
    assert (MENU.jacobian_error([0.5, 0.25], x) > 0).any(axis=(1, 2)).tolist() == [0, 1, 0]
    J = gp.linearise(MENU, x, h0=[0.5, -0.5]).to_dense()
    np.testing.assert_allclose(J[[0, 2]], [np.diag([1, -1]), np.diag([0.5, 0.5])], atol=0)


@pytest.mark.parametrize("other", [0.5, 0.0])
@pytest.mark.parametrize("place", [0.0, 3e-6, -1e-5])
def test_a_kink_within_reach_of_the_differences_is_refused(place, other):
    error = MENU.jacobian_error([other, place], [0])
    # the true slope is 1 or -1, or none
    assert error[1, 1] >= 0.3
    with pytest.raises(ValueError, match=r"`step` must have a derivative.*pass `jacobian`"):
        gp.step_jacobian(MENU, [other, place], [0])
    assert gp.rollout(MENU, [[0.0]], h0=[other, place]).h[1, 1] == abs(place)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (1, r"derivative of `step`; entry \(1, 0\) is 0.01, central differences give 0,"),
        (0, r"entry \(0, 1\) is nan"),
        (4, r"`jacobian` must return shape \(2, 2\)|`step` must return shape \(2,\)"),
    ],
)
def test_a_given_jacobian_is_checked_at_every_step(choice, message):
    x = np.array([[3.0], [3.0], [choice]])
    chain = gp.linearise(CHECKED, x, h0=[0.5, 0.4])
    with pytest.raises(ValueError, match=message):
        chain.to_dense()
    assert (CHECKED.jacobian_error([0.5, 0.4], [3.0]) == 0).all()


# --- replicas, padding, checkpoints, overflow ----------------------------------------------------


def test_batch_equals_loop_bit_by_bit():
    x, h0 = inputs(2, 1, 6, 3), inputs(4, 3)
    batch, J = gp.rollout(NETWORK, x, h0=h0), gp.linearise(NETWORK, x, h0=h0).to_dense()
    assert batch.state.shape == (2, 4, 7, 3)
    assert batch.roles == ("inputs", "starts")
    for i, j in np.ndindex(2, 4):
        assert same(batch.state[i, j], gp.rollout(NETWORK, x[i, 0], h0=h0[j]).state)
        assert same(J[i, j], gp.linearise(NETWORK, x[i, 0], h0=h0[j]).to_dense())


@pytest.mark.parametrize("rubbish", [1e30, np.nan])
def test_padding_changes_no_bit(rubbish):
    x, lengths = inputs(3, 6, 3), [6, 2, 0]
    for i, length in enumerate(lengths):
        x[i, length:] = rubbish
    run = gp.rollout(NETWORK, x, lengths=lengths)
    J = gp.linearise(NETWORK, x, lengths=lengths).to_dense()
    for i, length in enumerate(lengths):
        assert same(run.h[i, : length + 1], gp.rollout(NETWORK, x[i, :length]).h)
        assert (run.h[i, length:] == run.h[i, length]).all()
        assert same(J[i, :length], gp.linearise(NETWORK, x[i, :length]).to_dense())
        assert (J[i, length:] == np.eye(3)).all()
    blocks = gp.linearise(NETWORK, x, lengths=lengths).blocks(4)
    assert all(np.isfinite(block.mantissas()).all() for block in blocks)
    autonomous = gp.linearise(HENON, n_steps=4, lengths=[4, 1], rng=0).to_dense()
    assert (autonomous[1, 1:] == np.eye(2)).all()


def test_a_chain_from_checkpoints_is_the_kept_one_bit_by_bit(monkeypatch):
    kept = gp.linearise(HENON, n_steps=50, h0=[0.1, 0.1]).to_dense()
    monkeypatch.setattr("gradprop.sources.KEPT_FLOATS", 0)
    monkeypatch.setattr("gradprop.orbit.CHUNK_FLOATS", 40)
    chain = gp.linearise(HENON, n_steps=50, h0=[0.1, 0.1])
    assert chain.source.orbit.chunk == 10
    assert same(chain.to_dense(), kept)
    assert not same(chain.perturbed().to_dense(), kept)


def test_overflow_keeps_what_came_before():
    starts = [[1e100, 0.0], [0.1, 0.1]]
    for cell, x in ((HENON, None), (CHECKED, np.full((5, 1), 3.0))):
        run = gp.rollout(cell, x, n_steps=5, h0=starts)
        chain = gp.linearise(cell, x, n_steps=5, h0=starts)
        assert run.n_valid.tolist() == [1, 5]
        assert run.status.tolist() == [gp.Status.OVERFLOWED, gp.Status.OK]
        assert np.isfinite(run.state[0, :2]).all()
        assert np.isnan(run.state[0, 2:]).all()
        assert chain.overflowed.tolist() == [True, False]
        assert chain.to_dense()[0, 0, 0, 0] != 0


def test_in_both_directions_and_through_pickle():
    x = inputs(6, 3)
    both = gp.rollout(gp.Bidirectional(NETWORK, NETWORK), x)
    assert same(both.h[0, 3:], gp.rollout(NETWORK, x[::-1]).h[-1])
    copy = pickle.loads(pickle.dumps(NETWORK))
    assert same(gp.rollout(copy, x).h, gp.rollout(NETWORK, x).h)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((henon.py_func, 2), TypeError, r"`step` must be compiled by numba.njit; got <function"),
        ((3, 2), TypeError, r"`step` must be compiled by numba.njit; got 3 \(int\)"),
        ((henon, 2.0), TypeError, r"`n` must be an integer; got 2.0"),
        ((henon, 0), ValueError, r"`n` must be at least 1; got 0"),
        ((henon, 2, henon_slopes.py_func), TypeError, r"`jacobian` must be compiled"),
        (
            (henon, 2, henon),
            TypeError,
            r"`jacobian` must return a real array of shape \(n, n\); it",
        ),
        ((henon_slopes, 2), TypeError, r"`step` must return a real array of shape \(n,\); it"),
        ((numba.njit(lambda h: h), 2), TypeError, r"`step` must compile for float64 arrays"),
        ((numba.njit(lambda h, x: h[0]), 2), TypeError, r"`step` must return .*returns float64"),
        ((numba.njit(lambda h, x: h * 1j), 2), TypeError, r"`step` must return .*complex128"),
    ],
)
def test_bad_functions_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.CustomCell(*arguments)


def test_what_a_step_reads_and_returns_is_checked_when_it_runs():
    with pytest.raises(ValueError, match=r"`step` reads outside h, of width 2, or x, of width 0"):
        gp.rollout(MENU, n_steps=3)
    with pytest.raises(ValueError, match=r"`step` reads outside h, of width 1"):
        gp.rollout(gp.CustomCell(henon, 1), n_steps=3)
    with pytest.raises(ValueError, match=r"`step` must return shape \(3,\); got shape \(2,\)"):
        gp.rollout(gp.CustomCell(henon, 3), n_steps=3)
    with pytest.raises(ValueError, match=r"`step` must return shape \(2,\) at every step"):
        gp.rollout(MENU, [[3.0], [4.0]])
    with pytest.raises(ValueError, match=r"`jacobian` must return shape \(3, 3\); got"):
        gp.step_jacobian(gp.CustomCell(network, 3, henon_slopes), [0.0, 0, 0], [0.0, 0, 0])


def test_where_a_custom_cell_has_no_place():
    with pytest.raises(TypeError, match="of known weights; member 1 is CustomCell"):
        gp.Stacked([gp.RNN(W), NETWORK])
    with pytest.raises(TypeError, match="`cell` must be a cell of known weights; got CustomCell"):
        gp.parameter_count(NETWORK)
    with pytest.raises(ValueError, match=r"`h` must have shape \(\.\.\., 3\)"):
        NETWORK.jacobian_error([0.0])
    with pytest.raises(ValueError, match=r"`x` must be finite"):
        NETWORK.jacobian_error([0.0] * 3, [np.nan] * 3)
