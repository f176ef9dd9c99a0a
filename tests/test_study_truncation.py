"""The recall task, and what truncation measures."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import ROOT


@pytest.fixture
def truncation(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import _truncation

    return _truncation


@pytest.fixture
def recall(truncation):
    import _tasks

    return _tasks.recall(30, 100, (17, 31), np.random.default_rng(0))


def test_queries_want_the_sign_last_stored(recall):
    assert recall.mask.sum(axis=1).min() >= 2
    for x, label, mask in zip(recall.x, recall.target, recall.mask, strict=True):
        stores, queries = np.flatnonzero(x[:, 1]), np.flatnonzero(mask)
        assert stores[0] < 16
        own = stores[: len(queries)]
        assert ((queries - own >= 17) & (queries - own <= 31)).all()
        assert (np.diff(np.sort(np.r_[own, queries])) >= 1).all()
        assert (label[queries] == (x[own, 0] > 0)).all()


def test_no_cause_within_sixteen_steps(truncation, recall):
    assert truncation.reach(recall, 16) == 0
    assert 0 < truncation.reach(recall, 32) < truncation.reach(recall, 64)
    assert truncation.reach(recall, 100) == 1


@pytest.mark.parametrize("window", [7, 40])
def test_pieces_are_truncated_backpropagation(truncation, recall, window):
    from _training import cross_entropy, loss_and_gradients, make

    model = make("lstm", 5, 3, 2, np.random.default_rng(1), dtype=np.float64)
    wanted = loss_and_gradients(model, recall, cross_entropy, window)[1]
    whole = loss_and_gradients(model, recall, cross_entropy)[1]
    found = truncation.in_pieces(model, recall, window)
    for name, g in wanted.items():
        np.testing.assert_allclose(found[name], g, rtol=0, atol=1e-12 * np.linalg.norm(g))
    assert np.linalg.norm(found["W_hh"] - whole["W_hh"]) > 0.01 * np.linalg.norm(whole["W_hh"])


def test_bias_is_that_of_the_gradients(truncation, recall):
    from _training import Batch, cross_entropy, loss_and_gradients, make

    few = Batch(recall.x[:3], recall.target[:3], mask=recall.mask[:3])
    model = make("lstm", 4, 3, 2, np.random.default_rng(1), dtype=np.float64)
    error, cosine = truncation.bias(model, few, np.array([20, 100]))[:, 0]
    flat = []
    for window in (20, None):
        grads = loss_and_gradients(model, few, cross_entropy, window)[1]
        flat.append(np.concatenate([grads[name].ravel() for name in ("W_hh", "W_xh", "b")]))
    cut, whole = flat
    norm = np.linalg.norm
    assert error == pytest.approx(norm(cut - whole) / norm(whole), rel=1e-9)
    assert cosine == pytest.approx(cut @ whole / norm(cut) / norm(whole), rel=1e-9)


def test_a_point_measured_twice_is_the_same_bytes(truncation):
    point = {
        "task": "text",
        "window": 4,
        "windows": [4, 8],
        "length": 8,
        "n_updates": 4,
        "every": 2,
    }
    first, second = (truncation.measure(point, np.random.default_rng(5)) for _ in range(2))
    for field, value in first.items():
        np.testing.assert_array_equal(value, second[field], err_msg=field)
    assert (first["loss"].shape, first["norm"].shape) == ((2,), (4,))
    assert first["bias_after"][0, 1] == 0
    assert not first["diverged"]
