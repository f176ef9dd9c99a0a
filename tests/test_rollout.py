"""Orbits of cells: worked numbers, batches, lengths, overflow, and what bad input gets."""

from __future__ import annotations

import naive
import numba
import numpy as np
import pytest
from helpers import same, tolerance

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)


@numba.njit
def softsign(z):
    return z / (1 + abs(z))


@numba.njit
def softsign_slope(z):
    return 1 / (1 + abs(z)) ** 2


def contraction(rng, n):
    """Weights of spectral norm 1, under which rounding errors add up but never grow."""
    W = rng.standard_normal((n, n))
    return W / np.linalg.norm(W, 2)


def closeness(n, d, steps, z):
    """(n + d + 5) roundings a step of numbers not above |z|, added up over the steps."""
    return tolerance(np.float64, n + d + 5, steps, c=1) * (1 + np.nanmax(np.abs(z)))


# --- worked numbers ------------------------------------------------------------------------------


def test_worked_example_of_the_course(oracles):
    stored = oracles["worked_example"]
    run = gp.rollout(gp.RNN([[0.5]], W_xh=[[1.0]]), [1.0, 0.0, -1.0])
    exact = [float(stored[f"h{t}"]) for t in (1, 2, 3)]
    assert run.h[1:, 0] == pytest.approx(exact, rel=1e-15)
    assert exact == pytest.approx([0.7615941559557649, 0.3633994843890525, -0.6741436761583508])
    assert 2 * run.h[3, 0] == pytest.approx(-1.3482873523167017, rel=1e-15)
    assert run.h[0, 0] == 0.0
    assert run.h.shape == (4, 1)
    assert run.z.shape == (3, 1)
    assert run.n_valid == 3
    assert run.status == gp.Status.OK


def test_linear_map_of_the_truncation_example():
    run = gp.rollout(gp.RNN([[0.9]], W_xh=[[1.0]], activation="linear"), np.ones(10))
    # h_10 = (1 - 0.9^10) / 0.1
    assert run.h[10, 0] == pytest.approx((1 - 0.9**10) / 0.1, rel=20 * EPS)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("name", naive.ACTIVATIONS)
def test_driven_equals_the_twin(n, name):
    rng = np.random.default_rng(n)
    W, W_xh, b = contraction(rng, n), rng.standard_normal((n, 3)), rng.standard_normal(n)
    x, h0, leak = rng.standard_normal((12, 3)), rng.standard_normal(n), 0.6
    run = gp.rollout(gp.RNN(W, W_xh, b, activation=name, leak=leak), x, h0=h0)
    h, z = naive.rollout(W, x, W_xh=W_xh, b=b, activation=name, leak=leak, h0=h0)
    # slopes of gelu and selu reach 1.13 and 1.76: (1.76 * 0.6 + 0.4)^12 = 95
    growth = {"gelu": 3, "selu": 95}.get(name, 1)
    atol = closeness(n, 3, 12, z) * growth
    np.testing.assert_allclose(run.h, h, rtol=0, atol=atol)
    np.testing.assert_allclose(run.z, z, rtol=0, atol=atol)


def test_h_is_phi_of_z_and_leak_mixes_the_old_state():
    rng = np.random.default_rng(0)
    W, x = contraction(rng, 4), rng.standard_normal((6, 4))
    plain = gp.rollout(gp.RNN(W), x)
    assert same(plain.h[1:], gp.RNN(W).activation.evaluate(plain.z))
    leaky = gp.rollout(gp.RNN(W, leak=0.25), x)
    mixed = 0.75 * leaky.h[:-1] + 0.25 * gp.RNN(W).activation.evaluate(leaky.z)
    np.testing.assert_allclose(leaky.h[1:], mixed, rtol=0, atol=2 * EPS)
    assert same(leaky.h, leaky.state)


def test_input_without_weights_is_added_as_it_is():
    rng = np.random.default_rng(1)
    W, x = contraction(rng, 3), rng.standard_normal((5, 3))
    bare, eye = gp.rollout(gp.RNN(W), x), gp.rollout(gp.RNN(W, W_xh=np.eye(3)), x)
    assert same(bare.h, eye.h)
    assert same(bare.z[0], x[0])


def test_autonomous_starts_at_random_and_repeats_with_its_rng():
    W = contraction(np.random.default_rng(2), 3)
    run = gp.rollout(gp.RNN(W), n_steps=4, rng=7)
    assert same(run.h[0], np.random.default_rng(7).standard_normal(3))
    assert same(run.h, gp.rollout(gp.RNN(W), n_steps=4, rng=np.random.default_rng(7)).h)
    assert not same(run.h, gp.rollout(gp.RNN(W), n_steps=4, rng=8).h)
    h, _ = naive.rollout(W, h0=run.h[0], n_steps=4)
    np.testing.assert_allclose(run.h, h, rtol=0, atol=closeness(3, 0, 4, run.z))


def test_custom_activation_equals_its_formula():
    own = gp.Activation("softsign", softsign, softsign_slope, (0.0, 1.0))
    rng = np.random.default_rng(3)
    W, x = contraction(rng, 3), rng.standard_normal((5, 3))
    run = gp.rollout(gp.RNN(W, activation=own), x)
    h = np.zeros(3)
    for t in range(5):
        z = W @ h + x[t]
        h = z / (1 + np.abs(z))
        np.testing.assert_allclose(run.h[t + 1], h, rtol=0, atol=closeness(3, 3, 5, run.z))
    slopes = gp.linearise(gp.RNN(W, activation=own), x).to_dense() / W
    np.testing.assert_allclose(slopes[..., 0], 1 / (1 + np.abs(run.z)) ** 2, rtol=20 * EPS)


# --- laws: batches, pieces, padding --------------------------------------------------------------


def test_batch_equals_loop_bit_by_bit():
    rng = np.random.default_rng(4)
    W, W_xh = rng.standard_normal((2, 1, 5, 5)), rng.standard_normal((2, 1, 5, 3))
    x, h0, b = rng.standard_normal((4, 9, 3)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    for dtype in (np.float64, np.float32):
        batch = gp.rollout(gp.RNN(W, W_xh, b), x, h0=h0, dtype=dtype)
        assert batch.h.shape == (2, 4, 10, 5)
        assert batch.h.dtype == dtype
        assert batch.roles == ("weights", "inputs+starts")
        for i, j in np.ndindex(2, 4):
            cell = gp.RNN(W[i, 0], W_xh[i, 0], b)
            alone = gp.rollout(cell, x[j], h0=h0[j], dtype=dtype)
            assert same(batch.h[i, j], alone.h)
            assert same(batch.z[i, j], alone.z)


def test_two_pieces_are_one_run_bit_by_bit():
    # a wide product W_xh x rounds differently for another number of steps: a chaotic net shows it
    rng = np.random.default_rng(5)
    cell = gp.RNN(3 * rng.standard_normal((20, 20)), rng.standard_normal((20, 8)))
    x = rng.standard_normal((120, 8))
    whole = gp.rollout(cell, x)
    for cut in (1, 2, 37, 119):
        first = gp.rollout(cell, x[:cut])
        second = gp.rollout(cell, x[cut:], h0=first.h[-1])
        assert same(np.concatenate([first.h, second.h[1:]]), whole.h)
        assert same(np.concatenate([first.z, second.z]), whole.z)
        assert same(gp.rollout(cell, x, n_steps=cut).h, first.h)


@pytest.mark.parametrize("rubbish", [0.0, 1e30, -1e308, np.nan, np.inf])
def test_padding_changes_no_bit(rubbish):
    rng = np.random.default_rng(6)
    cell = gp.RNN(rng.standard_normal((4, 4)), rng.standard_normal((4, 2)), rng.standard_normal(4))
    lengths = np.array([7, 3, 0, 5])
    x = rng.standard_normal((4, 7, 2))
    for i, length in enumerate(lengths):
        x[i, length:] = rubbish
    run = gp.rollout(cell, x, lengths=lengths)
    for i, length in enumerate(lengths):
        alone = gp.rollout(cell, x[i, :length])
        assert same(run.h[i, : length + 1], alone.h)
        assert same(run.z[i, :length], alone.z)
        assert (run.h[i, length:] == run.h[i, length]).all()
        assert np.isnan(run.z[i, length:]).all()
    assert same(run.n_valid, lengths)
    assert (run.status == gp.Status.OK).all()


def test_lengths_of_an_autonomous_batch():
    W = contraction(np.random.default_rng(7), 3)
    run = gp.rollout(gp.RNN(W), n_steps=6, lengths=[6, 2], rng=0)
    assert run.h.shape == (2, 7, 3)
    assert run.roles == ("starts",)
    assert (run.h[1, 2:] == run.h[1, 2]).all()
    h, _ = naive.rollout(W, h0=run.h[1, 0], n_steps=6, length=2)
    np.testing.assert_allclose(run.h[1], h, rtol=0, atol=closeness(3, 0, 2, run.z))


def test_no_steps_and_one_unit():
    run = gp.rollout(gp.RNN([[2.0]]), n_steps=0, h0=[0.5])
    assert run.h.tolist() == [[0.5]]
    assert run.z.shape == (0, 1)
    assert run.n_valid == 0
    assert gp.rollout(gp.RNN([[2.0]], W_xh=[[1.0]]), np.zeros((0, 1))).h.tolist() == [[0.0]]
    assert gp.rollout(gp.RNN([[2.0]]), [1.0, 2.0], n_steps=0).h.shape == (1, 1)


def test_precision_of_the_orbit():
    rng = np.random.default_rng(8)
    W, x = contraction(rng, 5), rng.standard_normal((10, 5))
    cell = gp.RNN(W)
    fine, coarse = gp.rollout(cell, x), gp.rollout(cell, x, dtype="float32")
    assert coarse.h.dtype == coarse.z.dtype == np.float32
    # weights, input and each step round to float32: three errors of the same size
    atol = 3 * tolerance(np.float32, 10, 10, c=1) * (1 + np.abs(fine.z).max())
    np.testing.assert_allclose(coarse.h, fine.h, rtol=0, atol=atol)
    assert np.abs(coarse.h - fine.h).max() > 0
    single = gp.RNN(W.astype(np.float32))
    assert gp.rollout(single, x).h.dtype == np.float32
    assert gp.rollout(single, x, dtype=np.float64).h.dtype == np.float64
    assert gp.RNN(W.astype(np.float32), b=np.zeros(5)).dtype == np.float64


# --- overflow ------------------------------------------------------------------------------------


def test_overflow_keeps_what_came_before():
    cell = gp.RNN([[1e100]], activation="linear")
    run = gp.rollout(cell, n_steps=6, h0=[[1.0], [1e-200], [0.0]])
    assert run.n_valid.tolist() == [3, 5, 6]
    assert run.status.tolist() == [gp.Status.OVERFLOWED, gp.Status.OVERFLOWED, gp.Status.OK]
    assert run.h[0, :4, 0] == pytest.approx([1, 1e100, 1e200, 1e300], rel=4 * EPS)
    for r in (0, 1):
        assert np.isfinite(run.h[r, : run.n_valid[r] + 1]).all()
        assert np.isnan(run.h[r, run.n_valid[r] + 1 :]).all()
        assert np.isnan(run.z[r, run.n_valid[r] :]).all()
    assert (run.h[2] == 0).all()
    assert "n_valid is kept" in " ".join(run.messages())


def test_overflow_of_the_pre_activation_alone_is_overflow_too():
    # tanh(inf) = 1 would hide that z, and with it phi', is lost
    run = gp.rollout(gp.RNN([[1e200]]), [1e200, 0.0], h0=[1e200])
    assert run.n_valid == 0
    assert run.status == gp.Status.OVERFLOWED
    assert np.isnan(run.h[1:]).all()


def test_an_input_beyond_float32_overflows_a_float32_orbit():
    run = gp.rollout(gp.RNN([[0.5]], W_xh=[[1.0]]), [1.0, 1e60, 1.0], dtype="float32")
    assert run.n_valid == 1
    assert np.isfinite(run.h[1])
    assert run.status == gp.Status.OVERFLOWED


def test_overflow_inside_a_padded_batch_counts_from_its_own_start():
    cell = gp.RNN([[1e200]], W_xh=[[1.0]], activation="linear")
    x = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, np.nan, np.nan]])
    run = gp.rollout(cell, x[..., None], lengths=[4, 2])
    assert run.n_valid.tolist() == [2, 2]
    assert run.status.tolist() == [gp.Status.OVERFLOWED, gp.Status.OK]
    assert np.isfinite(run.h[1]).all()


# --- bad input -----------------------------------------------------------------------------------

GOOD = {"W_hh": np.eye(2), "W_xh": np.ones((2, 3)), "b": np.zeros(2)}
BAD_CELLS = [
    ({"W_hh": np.ones((2, 3))}, ValueError, r"`W_hh` must be square; got shape \(2, 3\)"),
    ({"W_hh": np.ones(3)}, ValueError, r"`W_hh` must have shape"),
    ({"W_hh": np.ones((0, 0))}, ValueError, r"`W_hh` must not be empty"),
    ({"W_hh": np.ones((0, 2, 2))}, ValueError, r"`W_hh` must not be empty"),
    (
        {"W_hh": [[1.0, np.nan], [0, 1]]},
        ValueError,
        r"`W_hh` must be finite; got nan at .*\(0, 1\)",
    ),
    (
        {"W_hh": [[1.0, 2], [np.inf, 1]]},
        ValueError,
        r"`W_hh` must be finite; got inf at .*\(1, 0\)",
    ),
    ({"W_hh": np.eye(2) * 1j}, TypeError, r"`W_hh` must be real; got dtype complex128"),
    ({"W_hh": np.eye(2, dtype=object)}, TypeError, r"`W_hh` must hold numbers; got dtype object"),
    ({"W_hh": [["1,5", "2"], ["3", "4"]]}, TypeError, r"`W_hh` must hold numbers.*decimal commas"),
    ({"W_hh": np.eye(2, dtype=np.longdouble)}, TypeError, r"`W_hh` must be at most double"),
    ({"W_hh": [[1.0, 2.0], [3.0]]}, ValueError, r"`W_hh` must be a regular array"),
    (
        {"W_xh": np.ones((3, 3))},
        ValueError,
        r"`W_xh` must .*\(\.\.\., 2, d_x\).*got shape \(3, 3\)",
    ),
    ({"W_xh": [[1, 2, np.nan], [0, 0, 0]]}, ValueError, r"`W_xh` must be finite"),
    ({"b": np.zeros(3)}, ValueError, r"`b` must have shape \(\.\.\., 2\); got shape \(3,\)"),
    ({"b": ["a", "b"]}, TypeError, r"`b` must hold numbers"),
    ({"b": np.zeros((5, 2)), "W_hh": np.ones((4, 2, 2))}, ValueError, r"`W_hh` \(4,\).*`b` \(5,\)"),
    ({"activation": "tanhh"}, ValueError, r"(?s)tanhh.*|.*tanh.*relu.*tanhh"),
    ({"activation": 3}, TypeError, r"activation"),
    ({"leak": 0.0}, ValueError, r"`leak` must be greater than 0"),
    ({"leak": 1.5}, ValueError, r"`leak` must be at most 1"),
    ({"leak": np.nan}, ValueError, r"`leak` must be finite"),
    ({"leak": "1"}, TypeError, r"`leak` must be a real number"),
    ({"leak": True}, TypeError, r"`leak` must be a real number"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD_CELLS)
def test_bad_cells_are_refused_by_name(change, error, message):
    with pytest.raises(error, match=message):
        gp.RNN(**(GOOD | change))


X = np.zeros((4, 3))
BAD_RUNS = [
    ({"x": np.zeros((4, 2))}, ValueError, r"`x` must have shape \(\.\.\., T, 3\).*\(4, 2\)"),
    ({"x": np.zeros(4)}, ValueError, r"`x` must have shape \(\.\.\., T, 3\).*\(4,\)"),
    ({"x": 1.0}, ValueError, r"`x` must have shape"),
    ({"x": np.zeros((0, 4, 3))}, ValueError, r"`x` must not be empty"),
    ({"x": X + 1j}, TypeError, r"`x` must be real"),
    ({"x": [["a"] * 3] * 4}, TypeError, r"`x` must hold numbers"),
    ({"x": np.where(np.arange(4)[:, None] == 2, np.nan, X)}, ValueError, r"`x` .*finite.*step 3"),
    ({"x": np.full((2, 4, 3), np.inf), "lengths": [0, 2]}, ValueError, r"`x` .*finite.*\(1, 0"),
    ({"n_steps": 5}, ValueError, r"`n_steps` must be at most 4; got 5"),
    ({"n_steps": -1}, ValueError, r"`n_steps` must be at least 0; got -1"),
    ({"n_steps": 2.0}, TypeError, r"`n_steps` must be an integer; got 2.0 \(float\)"),
    ({"n_steps": True}, TypeError, r"`n_steps` must be an integer"),
    ({"x": None}, ValueError, r"`n_steps` must be given when `x` is None"),
    ({"h0": np.zeros(3)}, ValueError, r"`h0` must have shape \(\.\.\., 2\); got shape \(3,\)"),
    ({"h0": [0.0, np.nan]}, ValueError, r"`h0` must be finite; got nan at index \(1,\)"),
    ({"h0": [0.0, 1j]}, TypeError, r"`h0` must be real"),
    ({"h0": [0.0, 1e60], "dtype": "float32"}, ValueError, r"`h0` .*float32"),
    ({"h0": np.zeros((0, 2))}, ValueError, r"`h0` must not be empty"),
    ({"x": np.zeros((2, 4, 3)), "h0": np.zeros((3, 2))}, ValueError, r"`inputs` .*`starts` "),
    ({"lengths": [5]}, ValueError, r"`lengths` must lie in 0\.\.4; got 5"),
    ({"lengths": [-1]}, ValueError, r"`lengths` must lie in 0\.\.4; got -1"),
    ({"lengths": [1.5]}, TypeError, r"`lengths` must hold integers"),
    ({"lengths": [[1, 2], [3]]}, ValueError, r"`lengths` must be a regular array"),
    ({"lengths": ["2"]}, TypeError, r"`lengths` must hold numbers"),
    ({"x": None, "n_steps": 2**70}, ValueError, r"`n_steps` must be at most"),
    ({"lengths": []}, ValueError, r"`lengths` must not be empty"),
    ({"x": np.zeros((2, 4, 3)), "lengths": [1, 2, 3]}, ValueError, r"`lengths` \(3,\)"),
    ({"dtype": "float16"}, ValueError, r"`dtype` must be float32 or float64; got float16"),
    ({"dtype": "no such"}, (TypeError, ValueError), r"`dtype` must be float32 or float64"),
    ({"dtype": np.longdouble}, ValueError, r"`dtype` must be float32 or float64"),
    ({"x": None, "n_steps": 3, "rng": "seed"}, TypeError, r"`rng` must be None, a seed"),
    ({"x": None, "n_steps": 3, "rng": -1}, ValueError, r"`rng` must be None, a seed"),
]  # fmt: skip


@pytest.mark.parametrize("verb", [gp.rollout, gp.linearise])
@pytest.mark.parametrize(("change", "error", "message"), BAD_RUNS)
def test_bad_runs_are_refused_by_name(verb, change, error, message):
    arguments = {"x": X} | change
    with pytest.raises(error, match=message):
        verb(gp.RNN(**GOOD), arguments.pop("x"), **arguments)


def test_what_is_not_a_cell_is_refused():
    with pytest.raises(TypeError, match="`cell` must be a recurrent cell such as RNN; got ndarray"):
        gp.rollout(np.eye(2), n_steps=1)
    with pytest.raises(ValueError, match=r"`W_hh` must lie in the range of float32"):
        gp.rollout(gp.RNN([[1e60]]), n_steps=1, dtype="float32")


def test_integers_are_cast_and_cells_are_frozen():
    cell = gp.RNN([[1, 0], [0, 1]], b=[1, 2])
    assert cell.dtype == np.float64
    assert gp.rollout(cell, [[1, 2]], h0=[0, 0]).h[1] == pytest.approx(np.tanh([2.0, 4.0]))
    with pytest.raises(AttributeError):
        cell.leak = 0.5
    with pytest.raises(ValueError, match="read-only"):
        cell.W_hh[0, 0] = 2
    given = np.eye(2)
    kept = gp.RNN(given)
    given[0, 0] = 5
    assert kept.W_hh[0, 0] == 1
