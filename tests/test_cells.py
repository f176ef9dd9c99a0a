"""Gated and composite cells: orbits, full-state Jacobians, batches, padding, overflow, counts."""

from __future__ import annotations

import naive_cells as twin
import numba
import numpy as np
import pytest
import tape
from helpers import same, tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp

LN10 = np.log(10.0)
D_X = 3


@numba.njit
def softsign(z):
    return z / (1 + abs(z))


@numba.njit
def softsign_slope(z):
    return 1 / (1 + abs(z)) ** 2


def rnn(rng, n=4, d=D_X, **settings):
    return gp.RNN(
        rng.normal(size=(n, n)) / 2, rng.normal(size=(n, d)), rng.normal(size=n), **settings
    )


def lstm(rng, n=4, d=D_X, **settings):
    rows = 4 * n
    W, U = rng.normal(size=(rows, n)) / 2, rng.normal(size=(rows, d))
    return gp.LSTM(W, U, rng.normal(size=rows), **settings)


def gru(rng, n=4, d=D_X, **settings):
    rows = 3 * n
    W, U = rng.normal(size=(rows, n)) / 2, rng.normal(size=(rows, d))
    return gp.GRU(W, U, rng.normal(size=rows), rng.normal(size=rows), **settings)


def bare(rng, n):
    """A layer without input weights."""
    return gp.RNN(rng.normal(size=(n, n)) / 2, b=rng.normal(size=n))


CELLS = {
    "lstm ifgo": lambda rng: lstm(rng),
    "lstm ifco": lambda rng: lstm(rng, gate_order="ifco"),
    "lstm iofc": lambda rng: lstm(rng, gate_order="iofc"),
    "lstm hard": lambda rng: lstm(rng, gate_activation="hard_sigmoid"),
    "lstm relu": lambda rng: lstm(rng, gate_order="iofc", activation="relu"),
    "gru rzn": lambda rng: gru(rng),
    "gru zrh": lambda rng: gru(rng, gate_order="zrh"),
    "gru hard": lambda rng: gru(rng, gate_order="zrh", gate_activation="hard_sigmoid"),
    "gru before": lambda rng: gru(rng, reset_after=False),
    "gru zrh before": lambda rng: gru(rng, gate_order="zrh", reset_after=False, activation="relu"),
    "gru hard before": lambda rng: gru(rng, reset_after=False, gate_activation="hard_sigmoid"),
    "rnn, lstm, gru before": lambda rng: gp.Stacked(
        [rnn(rng, 3, leak=0.7), lstm(rng, 4, 3), gru(rng, 2, 4, reset_after=False)]
    ),
    "lstm, gru, leaky rnn": lambda rng: gp.Stacked(
        [
            lstm(rng, 3, gate_order="iofc"),
            gru(rng, 2, 3, gate_order="zrh"),
            rnn(rng, 4, 2, leak=0.3),
        ]
    ),
    "gru before, bare rnn, lstm": lambda rng: gp.Stacked(
        [gru(rng, 3, reset_after=False, gate_order="zrh"), bare(rng, 3), lstm(rng, 2, 3)]
    ),
}
FEW = ("lstm iofc", "gru rzn", "gru before", "rnn, lstm, gru before")


def case(name, steps=6, replicas=()):
    rng = np.random.default_rng(sum(name.encode()))
    cell = CELLS[name](rng)
    x = rng.normal(size=(*replicas, steps, D_X))
    return cell, x, rng.normal(size=(*replicas, cell.n_state))


def largest(array):
    return float(np.abs(array).max())


# --- one step and its Jacobian -------------------------------------------------------------------


def check_steps(cell, x, h0):
    """Every step from the library's own state; every Jacobian by two other roads, to 1e-13."""
    run, J = gp.rollout(cell, x, h0=h0), gp.linearise(cell, x, h0=h0).to_dense()
    assert same(run.state[0], h0)
    for t in range(len(x)):
        state = run.state[t]
        # a few dozen roundings of sums of some ten terms, none above |z| or |state|
        size = 1 + largest(run.z[t]) + largest(state)
        atol = tolerance(np.float64, cell.n_state + D_X, 1) * size
        np.testing.assert_allclose(run.state[t + 1], twin.step(cell, state, x[t]).real, 0, atol)
        wanted = twin.complex_step_jacobian(cell, state, x[t])
        assert largest(J[t] - wanted) <= 1e-13 * largest(wanted)
        wanted = twin.tape_jacobian(cell, state, x[t])
        assert largest(J[t] - wanted) <= 1e-13 * largest(wanted)
        assert same(gp.step_jacobian(cell, state, x[t]), J[t])
    return run


@pytest.mark.parametrize("name", CELLS)
def test_steps_and_jacobians_of_the_full_state(name):
    run = check_steps(*case(name))
    assert same(run.h, run.state[:, run.output])
    assert run.status == gp.Status.OK


@pytest.mark.parametrize("name", FEW)
def test_saturated_gates(name):
    cell, x, h0 = case(name)
    check_steps(cell, 20 * x, h0)


@given(
    kind=st.sampled_from([rnn, lstm, gru]),
    n=st.integers(1, 4),
    d=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_jacobians_of_any_size(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    cell = kind(rng, n, d)
    state, x = rng.normal(size=cell.n_state), rng.normal(size=d)
    wanted = twin.complex_step_jacobian(cell, state, x)
    assert largest(gp.step_jacobian(cell, state, x) - wanted) <= 1e-13 * largest(wanted)


def test_ones_own_activation_in_gates():
    own = gp.Activation("softsign", softsign, softsign_slope, (0.0, 1.0))
    rng = np.random.default_rng(1)
    for cell in (lstm(rng, gate_activation=own), gru(rng, activation=own, reset_after=False)):
        check_steps(cell, rng.normal(size=(3, D_X)), rng.normal(size=cell.n_state))


@pytest.mark.parametrize("name", FEW)
def test_float32_orbit(name):
    cell, x, h0 = case(name)
    x, h0 = x.astype(np.float32), h0.astype(np.float32)
    run = gp.rollout(cell, x, h0=h0, dtype="float32")
    J = gp.linearise(cell, x, h0=h0, dtype="float32").to_dense()
    assert run.state.dtype == np.float32
    assert J.dtype == np.float64
    for t in range(len(x)):
        state = run.state[t].astype(float)
        size = 1 + largest(run.z[t]) + largest(state)
        # a few dozen roundings of z and of the new state, then slopes of order 1 times weights
        atol = tolerance(np.float32, cell.n_state + D_X, 1) * size
        np.testing.assert_allclose(run.state[t + 1], twin.step(cell, state, x[t]).real, 0, atol)
        wanted = twin.complex_step_jacobian(cell, state, x[t])
        assert 0 < largest(J[t] - wanted) <= atol * max(map(largest, cell.arrays().values()))


def test_both_biases_are_added_in_float64():
    rng = np.random.default_rng(2)
    W, U = np.zeros((3, 1), np.float32), np.zeros((3, 1), np.float32)
    b_x, b_h = np.float32([1e8, 0.3, 0]), np.float32([-1e8, 1e-8, 0])
    b_x[0], b_h[0] = np.float32(1e8), np.float32(-1e8 + 8)
    z = gp.rollout(gp.GRU(W, U, b_x, b_h), rng.normal(size=(1, 1)), dtype="float64").z[0]
    assert z[:2].tolist() == (b_x.astype(float) + b_h.astype(float))[:2].tolist()


def test_tape_against_complex_step():
    rng = np.random.default_rng(3)

    def value(W, h, b, ops, exp):
        t = ops.tanh(W @ h + b)
        c = ops.join([ops.sigmoid(t[1:, :] - 2 * t[:-1, :]), t * t / (3 + t), -t])
        quadratic = (c**2).sum() + (c.T @ c).sum() + (np.ones(c.shape[0]) @ c).sum()
        return quadratic + (2 - c[0]).sum() - exp(c[[0, 0, 1]]).sum(0)[0] + (1 / (3 + b)).sum()

    arrays = [rng.normal(size=shape) for shape in ((4, 3), (3, 5), (4, 1))]
    leaves = [tape.Var(a) for a in arrays]
    tape.backward(value(*leaves, twin.TAPE, tape.exp))
    for k, leaf in enumerate(leaves):
        for index in np.ndindex(leaf.shape):
            moved = [a.astype(complex) for a in arrays]
            moved[k][index] += 1e-30j
            slope = value(*moved, twin.ARRAYS, np.exp).imag / 1e-30
            assert leaf.grad[index] == pytest.approx(slope, rel=1e-13, abs=1e-13)


# --- known numbers -------------------------------------------------------------------------------

P088 = (
    [[0.3], [-0.6], [0.9]], [[0.5], [1.0], [-0.8]], [0.1, 0.2, -0.3], [0.05, -0.1, 0.4],
)  # fmt: skip


@pytest.mark.parametrize(("order", "slope"), [("rzn", 0.7277711393), ("zrh", 0.8756335561)])
def test_p088_the_order_of_gru_rows_shows_in_the_jacobian_alone(order, slope):
    cell = gp.GRU(*P088, gate_order=order)
    assert gp.rollout(cell, [1.0], h0=[0.5]).h[1, 0] == pytest.approx(0.1984429569, abs=1e-10)
    assert gp.step_jacobian(cell, [0.5], [1.0])[0, 0] == pytest.approx(slope, abs=1e-10)


def test_p091_hard_sigmoid_gates():
    arrays = ([[0.6], [-0.3], [0.8], [0.5]], [[0.4], [0.9], [-0.7], [0.2]], [0.1, 1, -0.2, 0])
    cell = gp.LSTM(*arrays, gate_activation="hard_sigmoid")
    after = gp.rollout(cell, [1.0], h0=[0.3, 0.7]).state[1]
    assert after == pytest.approx([0.1318401136, 0.2355608694], abs=1e-10)
    shut = gp.LSTM(
        np.ones((4, 1)), np.zeros((4, 1)), [2.6, 2.6, 0.5, -2.6], gate_activation="hard_sigmoid"
    )
    # i = f = 1, o = 0 and no slope of theirs is left: dc'/dh is tanh'(0.5) alone
    J = gp.step_jacobian(shut, [0.0, 0.7], [0.0])
    assert J.tolist() == [[0.0, 0.0], [pytest.approx(1 / np.cosh(0.5) ** 2, rel=1e-15), 1.0]]


@pytest.mark.parametrize(
    ("bias", "exact"), [(0.0, -30.1029995664), (1.0, -13.6047822281), (2.0, -5.5124134795)]
)
def test_p092_forget_bias_sets_the_cell_path(bias, exact):
    cell = gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0.0, bias, 0.0, 0.0])
    path = gp.jvp(gp.linearise(cell, np.zeros(100)), [0.0, 1.0])
    assert path.log_abs()[1] / LN10 == pytest.approx(exact, abs=1e-9)
    assert 100 * gp.gate_rates(bias).lstm / LN10 == pytest.approx(exact, abs=1e-9)


def test_p092_forget_gate_of_two_biases():
    assert gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0, 2, 0, 0]).b[1] == 2
    J = gp.step_jacobian(gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0, 2, 0, 0]), [0, 0], [0])
    assert J[1, 1] == pytest.approx(0.8807970780, abs=1e-10)


def test_zero_weights_leave_the_gates():
    biases = np.arange(4.0)
    rates = gp.gate_rates(biases, biases)
    n = len(biases)
    b = np.zeros((4, n))
    b[1] = biases
    forget = gp.LSTM(np.zeros((4 * n, n)), np.zeros((4 * n, 1)), b.ravel())
    J = gp.step_jacobian(forget, np.zeros(2 * n), [0.0])
    np.testing.assert_allclose(np.log(np.diag(J)[n:]), rates.lstm, rtol=1e-14)
    for after in (True, False):
        keep = np.r_[np.zeros(n), biases, np.zeros(n)]
        zero = np.zeros((3 * n, n))
        cell = gp.GRU(zero, np.zeros((3 * n, 1)), keep, np.zeros(3 * n), reset_after=after)
        J = gp.linearise(cell, np.zeros(5), h0=np.ones(n)).to_dense()
        np.testing.assert_allclose(np.log(np.diagonal(J[3])), rates.gru, rtol=1e-14)
        assert (J[3] - np.diag(np.diag(J[3])) == 0).all()


def test_p099_the_backward_direction_starts_at_the_last_valid_step():
    cell = gp.RNN([[0.8]], [[0.5]], [0.3])
    both = gp.rollout(gp.Bidirectional(cell, cell), [1.0, -1.0, 0.0, 0.0], lengths=2)
    assert both.h[:2, 1] == pytest.approx([0.56632755, -0.19737532], abs=1e-8)
    padded = gp.rollout(gp.Bidirectional(cell, cell), [1.0, -1.0, 0.0, 0.0])
    assert padded.h[:2, 1] == pytest.approx([0.73993064, 0.18790762], abs=1e-8)


# --- replicas, padding, pieces, overflow ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["lstm", "gru", "gru before", "stack"])
def test_batch_equals_loop_bit_by_bit(kind):
    rng = np.random.default_rng(4)
    W, U, b = rng.normal(size=(2, 1, 8, 2)), rng.normal(size=(1, 8, 3)), rng.normal(size=(3, 8))
    V, A = rng.normal(size=(6, 2)), rng.normal(size=(2, 1, 2, 2))

    def make(i, j):
        w, c = (W[i, 0] if i is not None else W), (b[j] if j is not None else b)
        u = U if i is None else U[0]
        if kind == "lstm":
            return gp.LSTM(w, u, c)
        after = gp.GRU(
            w[..., :6, :], u[..., :6, :], c[..., :6], c[..., 2:], reset_after=kind == "gru"
        )
        if kind != "stack":
            return after
        leaky = gp.RNN(A if i is None else A[i, 0], V[:2], leak=0.5)
        return gp.Stacked([gp.LSTM(w, u, c), after_of(V, c), leaky])

    def after_of(V, c):
        return gp.GRU(V, V, c[..., :6], c[..., 2:], reset_after=False)

    whole = make(None, None)
    x, h0 = rng.normal(size=(3, 5, 3)), rng.normal(size=(3, whole.n_state))
    batch, chain = gp.rollout(whole, x, h0=h0), gp.linearise(whole, x, h0=h0)
    J = chain.to_dense()
    assert batch.state.shape == (2, 3, 6, whole.n_state)
    assert chain.roles == batch.roles == ("weights", "weights+inputs+starts")
    for i, j in np.ndindex(2, 3):
        alone = gp.rollout(make(i, j), x[j], h0=h0[j])
        assert same(batch.state[i, j], alone.state)
        assert same(batch.z[i, j], alone.z)
        assert same(J[i, j], gp.linearise(make(i, j), x[j], h0=h0[j]).to_dense())


@pytest.mark.parametrize("rubbish", [1e30, np.nan])
@pytest.mark.parametrize("name", FEW)
def test_padding_changes_no_bit(name, rubbish):
    cell, x, h0 = case(name, replicas=(4,))
    lengths = np.array([6, 3, 0, 5])
    for i, length in enumerate(lengths):
        x[i, length:] = rubbish
    run, chain = (
        gp.rollout(cell, x, h0=h0, lengths=lengths),
        gp.linearise(cell, x, h0=h0, lengths=lengths),
    )
    J = chain.to_dense()
    for i, length in enumerate(lengths):
        alone = gp.rollout(cell, x[i, :length], h0=h0[i])
        assert same(run.state[i, : length + 1], alone.state)
        assert same(run.z[i, :length], alone.z)
        assert (run.state[i, length:] == run.state[i, length]).all()
        assert np.isnan(run.z[i, length:]).all()
        assert same(J[i, :length], gp.linearise(cell, x[i, :length], h0=h0[i]).to_dense())
        assert (J[i, length:] == np.eye(cell.n_state)).all()
    assert same(run.n_valid, lengths)
    assert same(chain.lengths, lengths)
    assert (run.status == gp.Status.OK).all()


@pytest.mark.parametrize("name", FEW)
def test_two_pieces_are_one_run_bit_by_bit(name):
    cell, x, h0 = case(name, steps=30)
    whole = gp.rollout(cell, x, h0=h0)
    first = gp.rollout(cell, x[:11], h0=h0)
    second = gp.rollout(cell, x[11:], h0=first.state[-1])
    assert same(np.concatenate([first.state, second.state[1:]]), whole.state)


@pytest.mark.parametrize("name", FEW)
def test_a_chain_from_checkpoints_is_the_kept_one_bit_by_bit(name, monkeypatch):
    cell, x, h0 = case(name, steps=23, replicas=(2,))
    lengths = [23, 9]
    kept = gp.linearise(cell, x, h0=h0, lengths=lengths).to_dense()
    monkeypatch.setattr("gradprop.sources.KEPT_FLOATS", 0)
    monkeypatch.setattr("gradprop.orbit.CHUNK_FLOATS", 400)
    chain = gp.linearise(cell, x, h0=h0, lengths=lengths)
    assert 1 < chain.source.orbit.chunk < 23
    for _ in range(2):
        assert same(chain.to_dense(), kept)
    assert same(chain.tail(8).to_dense(), kept[:, -8:])


@pytest.mark.parametrize("name", FEW)
def test_perturbed_moves_every_entry_of_the_full_state(name):
    cell, x, h0 = case(name)
    moved = np.nextafter(h0, np.sign(h0) * np.inf)
    J = gp.linearise(cell, x, h0=h0).perturbed().to_dense()
    assert same(J, gp.linearise(cell, x, h0=moved).to_dense())


def overflowing():
    """(cell, steps that are finite): each multiplies its state by 1e100 or so a step."""
    big = gp.RNN([[1e100]], [[1.0]], activation="linear")
    calm = gp.LSTM(np.zeros((4, 1)), np.ones((4, 1)), np.zeros(4))
    # forget gate one, input gate and candidate grow with h: c' = c + 1e100 h
    W = [[0.0], [0.0], [1e100], [0.0]]
    lstm = gp.LSTM(W, np.zeros((4, 1)), [50.0] * 4, activation="linear")
    yield lstm, [1.0, 1.0]
    W = [[0.0], [0.0], [1e100]]
    yield gp.GRU(W, np.zeros((3, 1)), [50, -50, 0], np.zeros(3), activation="linear"), [1.0]
    yield (
        gp.GRU(
            W, np.zeros((3, 1)), [50, -50, 0], np.zeros(3), activation="linear", reset_after=False
        ),
        [1.0],
    )
    yield gp.Stacked([big, calm]), [1.0, 0.0, 0.0]
    yield gp.Stacked([calm, big]), [0.0, 0.0, 1.0]


@pytest.mark.parametrize("i", range(5))
def test_overflow_keeps_what_came_before(i):
    cell, h0 = list(overflowing())[i]
    x = np.full((2, 7), 0.0)[..., None]
    run = gp.rollout(cell, x, h0=[h0, np.zeros(len(h0))])
    chain = gp.linearise(cell, x, h0=[h0, np.zeros(len(h0))])
    n = int(run.n_valid[0])
    assert n == 3  # 1e100, 1e200, 1e300
    assert run.status[0] == gp.Status.OVERFLOWED
    assert np.isfinite(run.state[0, : n + 1]).all()
    assert np.isnan(run.state[0, n + 1 :]).all()
    assert np.isnan(run.z[0, n:]).all()
    assert chain.overflowed[0]
    assert chain.lengths[0] == n
    assert np.isfinite(chain.to_dense()[0, :n]).all()


# --- analyses of whole chains --------------------------------------------------------------------


@pytest.mark.parametrize("name", FEW)
def test_analyses_equal_those_of_the_twins_jacobians(name):
    cell, x, h0 = case(name, steps=12)
    chain, run = gp.linearise(cell, x, h0=h0), gp.rollout(cell, x, h0=h0)
    factors = [twin.complex_step_jacobian(cell, run.state[t], x[t]) for t in range(12)]
    dense = gp.JacobianChain.dense(factors)
    lags = [1, 5, 12]
    norms, wanted = (gp.log_norms(c, lags=lags).log_norm for c in (chain, dense))
    # factors differ by 1e-13 of their norm, and products lose at most e^10 against their bound
    np.testing.assert_allclose(norms, wanted, rtol=0, atol=12 * 1e-13 * np.exp(10))
    sigma, wanted = (gp.singular_values(c, lags=[5]).log_sigma[0] for c in (chain, dense))
    spread = np.exp(wanted[0] - wanted[-1]) if np.isfinite(wanted[-1]) else 1e9
    np.testing.assert_allclose(sigma[:2], wanted[:2], rtol=0, atol=5e-13 * min(spread, 1e5))
    rates, wanted = (gp.lyapunov_spectrum(c, 2).exponents for c in (chain, dense))
    np.testing.assert_allclose(rates, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [k for k in CELLS if "," in k])
def test_determinant_of_a_stack_is_the_product_of_its_layers(name):
    cell, x, h0 = case(name, steps=20)
    run, total, below = gp.rollout(cell, x, h0=h0), 0.0, x
    for layer, start in zip(cell.cells, cell.offsets, strict=True):
        own = slice(start, start + layer.n_state)
        total += gp.linearise(layer, below, h0=h0[own]).log_abs_det()
        alone = gp.rollout(layer, below, h0=h0[own])
        assert same(alone.state, run.state[:, own])
        below = alone.h[1:]
    found = gp.linearise(cell, x, h0=h0).log_abs_det()
    assert found == pytest.approx(total, abs=20 * 1e-12 * cell.n_state)


def test_a_stack_of_one_and_a_stack_of_stacks():
    cell, x, h0 = case("rnn, lstm, gru before")
    nested = gp.Stacked([gp.Stacked(cell.cells[:2]), cell.cells[2]])
    assert same(gp.rollout(nested, x, h0=h0).state, gp.rollout(cell, x, h0=h0).state)
    assert list(nested.arrays()) == list(cell.arrays())
    assert list(cell.arrays())[:4] == ["0.W_hh", "0.W_xh", "0.b", "1.W_hh"]
    one = gp.Stacked(cell.cells[:1])
    assert same(gp.linearise(one, x).to_dense(), gp.linearise(cell.cells[0], x).to_dense())


# --- both directions -----------------------------------------------------------------------------


def test_bidirectional_equals_two_runs():
    rng = np.random.default_rng(5)
    ahead, back = lstm(rng, 3), gru(rng, 2)
    x, lengths = rng.normal(size=(3, 6, D_X)), np.array([6, 4, 0])
    for i, length in enumerate(lengths):
        x[i, length:] = np.nan
    h0 = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    both = gp.rollout(gp.Bidirectional(ahead, back), x, h0=h0, lengths=lengths)
    assert both.h.shape == (3, 6, 5)
    assert both.n_valid.tolist() == [6, 4, 0]
    for i, length in enumerate(lengths):
        valid = x[i, :length]
        forward = gp.rollout(ahead, valid, h0=h0[0][i])
        backward = gp.rollout(back, valid[::-1], h0=h0[1][i])
        assert same(both.h[i, :length, :3], forward.h[1:])
        assert same(both.h[i, :length, 3:], backward.h[:0:-1])
        assert (both.h[i, length:, :3] == forward.h[-1]).all()
        assert (both.h[i, length:, 3:] == h0[1][i]).all()
        assert same(both.forward_state[i, : length + 1], forward.state)
        assert same(both.backward_state[i, : length + 1], backward.state)


def test_bidirectional_overflow_and_steps():
    big, calm = gp.RNN([[1e200]], [[1.0]], activation="linear"), gp.RNN([[0.5]], [[1.0]])
    both = gp.rollout(gp.Bidirectional(calm, big), np.ones(5), n_steps=4)
    assert both.h.shape == (4, 2)
    assert both.status == gp.Status.OVERFLOWED
    assert both.n_valid == 2
    assert np.isfinite(both.h[:, 0]).all()
    assert np.isfinite(both.h[-2:, 1]).all()
    assert np.isnan(both.h[0, 1])


# --- counts --------------------------------------------------------------------------------------


def test_parameter_counts_of_the_course():
    small = gp.RNN(np.eye(4), np.ones((4, 3)), np.zeros(4))
    count = gp.parameter_count(small, output_size=2)
    assert count.by_name == {"W_hh": 16, "W_xh": 12, "b": 4, "W_hy": 8, "b_y": 2}
    assert count.total == 42
    assert gp.parameter_count(small).total == 32
    wide = gp.RNN(np.eye(1024), np.zeros((1024, 512)), np.zeros(1024))
    count = gp.parameter_count(wide, output_size=512)
    assert (count.weights, count.biases) == (2097152, 1536)
    assert count.to_frame()["sizes"].sum() == count.total


def test_parameter_counts_of_all_cells(tmp_path):
    rng = np.random.default_rng(6)
    n, d = 4, D_X
    for make, blocks, biases in ((rnn, 1, 1), (lstm, 4, 4), (gru, 3, 6)):
        count = gp.parameter_count(make(rng))
        assert (count.weights, count.biases) == (blocks * n * (n + d), biases * n)
    both = gp.parameter_count(gp.Bidirectional(rnn(rng), lstm(rng)), output_size=2)
    assert both.by_name["backward.W_hh"] == 64
    assert both.by_name["W_hy"] == 2 * 8
    stack = gp.parameter_count(gp.Stacked([lstm(rng, 3), rnn(rng, 2, 3)]))
    assert stack.by_name["1.b"] == 2
    assert stack.total == 12 * 6 + 12 + 4 + 6 + 2
    replicas = gp.RNN(np.zeros((5, 7, 2, 2)), b=np.zeros((7, 2)))
    assert gp.parameter_count(replicas).by_name == {"W_hh": 4, "b": 2}
    stack.save(tmp_path / "count.npz")
    assert gp.ParameterCount.load(tmp_path / "count.npz").by_name == stack.by_name


# --- bad input -----------------------------------------------------------------------------------

Z = np.zeros
L, G = (Z((8, 2)), Z((8, 3)), Z(8)), (Z((6, 2)), Z((6, 3)), Z(6), Z(6))
OUT = (Z((2, 2)), Z((2, 3)))
BAD = [
    (
        lambda: gp.LSTM(Z((2, 8)), *L[1:]),
        ValueError,
        r"`W_hh` .*\(\.\.\., 4 n, n\).*\(2, 8\) is the transpose",
    ),
    (
        lambda: gp.LSTM(Z((7, 2)), *L[1:]),
        ValueError,
        r"`W_hh` .*4 gates of n units; got shape \(7, 2\)",
    ),
    (lambda: gp.LSTM(Z(8), *L[1:]), ValueError, r"`W_hh` must have shape"),
    (lambda: gp.LSTM(Z((0, 0)), *L[1:]), ValueError, r"`W_hh` must have shape"),
    (
        lambda: gp.LSTM(L[0], Z((6, 3)), L[2]),
        ValueError,
        r"`W_xh` must have shape \(\.\.\., 8, d_x\)",
    ),
    (lambda: gp.LSTM(L[0], Z((8, 0)), L[2]), ValueError, r"`W_xh` must not be empty"),
    (lambda: gp.LSTM(L[0], L[1], Z(2)), ValueError, r"`b` must have shape \(\.\.\., 8\)"),
    (lambda: gp.LSTM(L[0], L[1], np.full(8, np.inf)), ValueError, r"`b` must be finite; got inf"),
    (lambda: gp.LSTM(L[0] * 1j, *L[1:]), TypeError, r"`W_hh` must be real"),
    (lambda: gp.LSTM(Z((5, 8, 2)), L[1], Z((4, 8))), ValueError, r"`W_hh` \(5,\).*`b` \(4,\)"),
    (
        lambda: gp.LSTM(*L, gate_order="ifog"),
        ValueError,
        r"`gate_order` must be one of 'ifgo'.*'ifog'",
    ),
    (lambda: gp.LSTM(L[0], None, L[2]), TypeError, r"`W_xh` must be an array; got None"),
    (lambda: gp.GRU(*G[:3], None), TypeError, r"`b_h` must be an array; got None"),
    (lambda: gp.LSTM(*L, gate_order=None), ValueError, r"`gate_order` must be one of"),
    (lambda: gp.LSTM(*L, gate_activation="hard"), ValueError, r"must be one of"),
    (lambda: gp.LSTM(*L, activation=3), TypeError, r"must be a name or an Activation"),
    (lambda: gp.GRU(Z((2, 6)), *G[1:]), ValueError, r"`W_hh` .*\(2, 6\) is the transpose"),
    (lambda: gp.GRU(Z((8, 2)), *G[1:]), ValueError, r"`W_hh` .*3 gates of n units"),
    (lambda: gp.GRU(*G[:2], Z(2), G[3]), ValueError, r"`b_x` must have shape \(\.\.\., 6\)"),
    (lambda: gp.GRU(*G[:3], Z(2)), ValueError, r"`b_h` must have shape \(\.\.\., 6\)"),
    (
        lambda: gp.GRU(*G, gate_order="ifgo"),
        ValueError,
        r"`gate_order` must be one of 'rzn', 'zrh'",
    ),
    (
        lambda: gp.GRU(*G, reset_after=1),
        ValueError,
        r"`reset_after` must be one of True, False; got 1",
    ),
    (
        lambda: gp.GRU(*G, reset_after="yes"),
        ValueError,
        r"`reset_after` must be one of True, False",
    ),
    (lambda: gp.Stacked([]), ValueError, r"`cells` must hold at least one"),
    (lambda: gp.Stacked(gp.RNN(*OUT)), TypeError, r"`cells` must be a sequence of cells; got RNN"),
    (lambda: gp.Stacked([gp.RNN(*OUT), 3]), TypeError, r"member 1 is int"),
    (
        lambda: gp.Stacked([gp.RNN(*OUT), gp.RNN(*OUT)]),
        ValueError,
        r"member 0 gives 2 units, member 1 takes 3",
    ),
    (
        lambda: gp.Stacked([gp.Bidirectional(gp.RNN(*OUT), gp.RNN(*OUT))]),
        TypeError,
        r"one direction.*member 0 is Bidirectional",
    ),
    (
        lambda: gp.Stacked([gp.RNN(Z((2, 3, 3))), gp.RNN(Z((4, 3, 3)))]),
        ValueError,
        r"`cells\[0\]` \(2,\), `cells\[1\]` \(4,\)",
    ),
    (
        lambda: gp.Bidirectional(gp.RNN(*OUT), 3),
        TypeError,
        r"`backward` must be a cell of one direction; got int",
    ),
    (
        lambda: gp.Bidirectional(gp.Bidirectional(gp.RNN(*OUT), gp.RNN(*OUT)), gp.RNN(*OUT)),
        TypeError,
        r"`forward` must be",
    ),
    (lambda: gp.Bidirectional(gp.RNN(*OUT), gp.RNN(Z((2, 2)))), ValueError, r"widths 3 and 2"),
    (lambda: gp.parameter_count(3), TypeError, r"`cell` must be a cell of known weights; got int"),
    (
        lambda: gp.parameter_count(gp.RNN(*OUT), output_size=0),
        ValueError,
        r"`output_size` must be at least 1",
    ),
    (
        lambda: gp.parameter_count(gp.RNN(*OUT), output_size=2**62),
        ValueError,
        r"`output_size` must be at most 2147483648",
    ),
    (
        lambda: gp.parameter_count(gp.RNN(*OUT), output_size=2.0),
        TypeError,
        r"`output_size` must be an integer",
    ),
]


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_cells_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


BOTH = gp.Bidirectional(gp.LSTM(*L), gp.GRU(*G))
X = Z((4, 3))
BAD_RUNS = [
    (
        gp.LSTM(*L),
        X,
        {"h0": Z(2)},
        ValueError,
        r"`h0` must have shape \(\.\.\., 4\); got shape \(2,\)",
    ),
    (gp.GRU(*G), X, {"h0": Z(4)}, ValueError, r"`h0` must have shape \(\.\.\., 2\)"),
    (gp.Stacked([gp.LSTM(*L)]), X, {"h0": Z(2)}, ValueError, r"`h0` must have shape \(\.\.\., 4\)"),
    (gp.LSTM(*L), Z((4, 2)), {}, ValueError, r"`x` must have shape \(\.\.\., T, 3\)"),
    (gp.GRU(*G), Z(4), {}, ValueError, r"`x` must have shape \(\.\.\., T, 3\)"),
    (
        gp.LSTM(1e60 + L[0], *L[1:]),
        X,
        {"dtype": "float32"},
        ValueError,
        r"`W_hh` must lie in the range",
    ),
    (BOTH, None, {"n_steps": 3}, ValueError, r"`x` must be given for a Bidirectional"),
    (BOTH, X, {"h0": Z(4)}, ValueError, r"`h0` of a Bidirectional cell must be a pair"),
    (BOTH, X, {"h0": (Z(2), Z(2))}, ValueError, r"`h0` must have shape \(\.\.\., 4\)"),
    (BOTH, Z((4, 2)), {}, ValueError, r"`x` must have shape \(\.\.\., T, 3\)"),
]


@pytest.mark.parametrize(("cell", "x", "settings", "error", "message"), BAD_RUNS)
def test_bad_runs_are_refused_by_name(cell, x, settings, error, message):
    with pytest.raises(error, match=message):
        gp.rollout(cell, x, **settings)


def test_two_directions_have_no_one_chain():
    for verb in (lambda: gp.linearise(BOTH, X), lambda: gp.step_jacobian(BOTH, Z(6), Z(3))):
        with pytest.raises(TypeError, match=r"two chains: take \.forward"):
            verb()
