"""What analyses return: tables, files, statuses with a remedy, read-only arrays, pickles."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from helpers import same

import gradprop as gp
from gradprop.results import LN2, Result, log_of_scaled, log_sum_exp

dense = gp.JacobianChain.dense


def padded_batch():
    rng = np.random.default_rng(0)
    cell, x = gp.RNN(rng.standard_normal((2, 1, 3, 3))), rng.standard_normal((4, 30, 3))
    return cell, x, {"lengths": [30, 25, 22, 1]}


def results_of(chain, run):
    u = np.ones(chain.n)
    return [
        run,
        gp.log_norms(chain, lags=[0, 5]),
        gp.singular_values(chain, lags=[5, 5, 1]),
        gp.lyapunov_spectrum(chain, min(2, chain.n)),
        gp.gradient_by_lag(chain, u),
        gp.jvp(chain, u),
        gp.horizon(chain),
    ]


def all_results():
    cell, x, lengths = padded_batch()
    batch = results_of(gp.linearise(cell, x, **lengths), gp.rollout(cell, x, **lengths))
    one = gp.RNN([[0.5, 0.1], [0.0, 0.5]])
    single = results_of(gp.linearise(one, n_steps=30, rng=1), gp.rollout(one, n_steps=30, rng=1))
    spiral = gp.JacobianChain.diagonal(np.full((3, 2), 0.5j))
    return [*batch, *single, gp.jvp(spiral, [1.0, 2.0]), gp.singular_values(spiral)]


RESULTS = all_results()
IDS = [f"{type(r).__name__}{np.shape(r.status)}" for r in RESULTS]


@pytest.mark.parametrize("result", RESULTS, ids=IDS)
def test_arrays_are_read_only_and_fields_frozen(result):
    for name in result._axes:
        array = getattr(result, name)
        assert isinstance(array, np.ndarray)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, array)


def equal(a, b):
    assert type(a) is type(b)
    for field in dataclasses.fields(a):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, field.name
            assert same(left, right), field.name
            assert not right.flags.writeable
        else:
            assert left == right, field.name
            assert type(left) is type(right), field.name


@pytest.mark.parametrize("result", RESULTS, ids=IDS)
def test_save_and_load(result, tmp_path):
    result.save(tmp_path / "result.npz")
    equal(result, type(result).load(tmp_path / "result.npz"))
    with np.load(tmp_path / "result.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype.kind != "O" for name in stored.files)


@pytest.mark.parametrize("result", RESULTS, ids=IDS)
def test_pickle(result):
    equal(result, pickle.loads(pickle.dumps(result)))


@pytest.mark.parametrize("result", RESULTS, ids=IDS)
def test_table(result):
    frame = result.to_frame()
    main = next(
        name
        for name in ("log_norm", "log_sigma", "exponents", "state", "mantissa", "first_below")
        if name in result._axes
    )
    values = getattr(result, main)
    assert len(frame) == values.size
    # rows are in the order of the array, so that the column is the array
    assert same(frame[main].to_numpy(), values.ravel())
    for axis, role in enumerate(result.roles):
        shape = [1] * values.ndim
        shape[axis] = values.shape[axis]
        index = np.broadcast_to(np.arange(values.shape[axis]).reshape(shape), values.shape)
        assert same(frame[role].to_numpy(), index.ravel())
    assert "status" in frame
    assert frame.attrs["result"] == type(result).__name__


def test_what_tables_hold_beside_the_main_field():
    cell, x, lengths = padded_batch()
    run, chain = gp.rollout(cell, x, **lengths), gp.linearise(cell, x, **lengths)
    frame = run.to_frame()
    assert same(frame["z"].to_numpy().reshape(2, 4, 31, 3)[:, :, 1:], run.z)
    assert frame["step"].max() == 30
    spectrum = gp.lyapunov_spectrum(chain)
    frame = spectrum.to_frame()
    assert same(frame["interval_low"].to_numpy(), spectrum.interval[..., 0].ravel())
    assert same(frame["interval_high"].to_numpy(), spectrum.interval[..., 1].ravel())
    frame = gp.log_norms(chain, lags=[7, 2]).to_frame()
    assert frame["lags"].tolist() == [7, 2] * 8
    frame = gp.jvp(chain, np.ones(3)).to_frame()
    assert same(frame["exponent"].to_numpy()[::3], gp.jvp(chain, np.ones(3)).exponent.ravel())


def test_repeated_roles_get_numbers():
    J = np.zeros((2, 3, 4, 1, 1)) + 0.5
    frame = gp.log_norms(dense(J)).to_frame()
    assert list(frame.columns[:2]) == ["weights_0", "weights_1"]
    assert len(frame) == 30


def test_loading_the_wrong_thing_is_refused(tmp_path):
    norms = gp.log_norms(dense(np.eye(2)[None]))
    norms.save(tmp_path / "norms.npz")
    with pytest.raises(ValueError, match="holds a LogNorms, not a Horizon"):
        gp.Horizon.load(tmp_path / "norms.npz")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    with pytest.raises(ValueError, match=r"must be a file written by save\(\)"):
        gp.LogNorms.load(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", np.arange(3))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "norms.npz").read_bytes()[:200])
    for name in ("array.npy", "text.npz", "empty.npz", "cut.npz"):
        with pytest.raises(ValueError, match=r"must be a file written by save\(\)"):
            gp.LogNorms.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        gp.LogNorms.load(tmp_path / "none.npz")


# --- statuses ------------------------------------------------------------------------------------


def test_every_status_has_a_text_that_says_something():
    assert gp.Status.OK.text == "ok"
    texts = {flag: flag.text for flag in gp.Status if flag}
    assert len(set(texts.values())) == len(texts)
    for text in texts.values():
        assert len(text) > 30
        assert text.endswith(".")
    both = gp.Status.ZERO | gp.Status.OVERFLOWED
    assert both.text == f"{gp.Status.ZERO.text} {gp.Status.OVERFLOWED.text}"


def test_statuses_of_the_core_can_be_provoked():
    padded = gp.linearise(gp.RNN([[0.5]]), np.zeros((2, 30, 1)), lengths=[30, 8])
    blown = gp.linearise(gp.RNN([[1e200]], activation="linear"), n_steps=30, h0=[1.0])
    cases = {
        gp.Status.ZERO: gp.log_norms(dense(np.zeros((1, 2, 2)))),
        gp.Status.OVERFLOWED: gp.log_norms(blown),
        gp.Status.NOT_RESOLVED: gp.lyapunov_spectrum(dense([np.diag([1e200, 1e-200])] * 30)),
        gp.Status.PADDED: gp.log_norms(padded, anchor="end"),
        gp.Status.TOO_SHORT: gp.lyapunov_spectrum(dense(np.full((5, 1, 1), 2.0))),
    }
    for flag, result in cases.items():
        assert np.bitwise_or.reduce(result.status, axis=None) == flag
        assert result.messages() == [flag.text]
    both = gp.lyapunov_spectrum(padded)
    assert both.status.tolist() == [gp.Status.OK, gp.Status.TOO_SHORT]
    assert gp.log_norms(dense(np.eye(2)[None])).messages() == []


def test_a_jacobi_iteration_that_does_not_end_is_nan_and_said(monkeypatch):
    monkeypatch.setattr("gradprop.graded.MAX_SWEEPS", 0)
    values = gp.singular_values(dense(np.random.default_rng(1).standard_normal((4, 3, 3))))
    assert np.isnan(values.log_sigma).all()
    assert not values.resolved.any()
    assert values.status & (gp.Status.NOT_RESOLVED | gp.Status.NOT_CONVERGED)


# --- small helpers -------------------------------------------------------------------------------


def test_p073_log_sum_exp():
    assert log_sum_exp([-np.inf, -np.inf]) == -np.inf
    assert log_sum_exp([np.inf, 0.0]) == np.inf
    assert log_sum_exp([]) == -np.inf
    assert np.isnan(log_sum_exp([np.nan, 0.0]))
    assert log_sum_exp([1000.0, 1000.0]) == pytest.approx(1000 + LN2, rel=4e-16)
    assert log_sum_exp([-1000.0, -1001.0]) == pytest.approx(-1000 + np.log1p(np.exp(-1)), rel=4e-16)
    table = log_sum_exp([[0.0, 0.0], [-np.inf, 1.0]], axis=0)
    assert table == pytest.approx([0.0, 1 + np.log1p(np.exp(-1))], rel=4e-16)
    assert log_sum_exp(np.empty((0, 2)), axis=0).tolist() == [-np.inf, -np.inf]


def test_log_of_scaled():
    assert log_of_scaled([0.0, 0.5], [7, 7]).tolist() == [-np.inf, pytest.approx(6 * LN2)]
    assert log_of_scaled(0.5, -(10**6)) == pytest.approx(-(10**6 + 1) * LN2, rel=4e-16)


def test_scaled_array_of_complex_numbers():
    spiral = gp.JacobianChain.diagonal(np.full((3, 2), 0.5j))
    image = gp.jvp(spiral, [1.0, 2.0])
    assert image.to_float().tolist() == [-0.125j, -0.25j]
    assert image.log_norm() == pytest.approx(0.5 * np.log(5) - 3 * LN2, rel=4e-16)
    far = gp.jvp(gp.JacobianChain.diagonal(np.full((3, 2), 1e200j)), [1.0, 0.0])
    assert far.to_float()[0] == complex(0.0, -np.inf)
    assert far.to_float()[1] == 0


def test_the_base_of_results_needs_no_arrays():
    assert Result().messages() == []
