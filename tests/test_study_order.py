"""The order task and what order_task measures on it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import ROOT

POINT = {"length": 12, "n_train": 200, "n_test": 100, "passes": 2, "each": 1, "seed": 0}


@pytest.fixture
def order(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import _order

    return _order


@pytest.fixture
def tasks(order):
    import _tasks

    return _tasks


def marks(x: np.ndarray) -> list[list[int]]:
    """Symbols 0 and 1 of each sequence in their order."""
    return [[int(s) for s in row.argmax(axis=-1) if s < 2] for row in x]


@pytest.mark.parametrize("each", [1, 3])
def test_label_says_which_symbol_is_first(tasks, each):
    batch = tasks.order_of_several(200, 17, each, np.random.default_rng(1))
    assert batch.x.shape == (200, 17, 8)
    assert (batch.x.sum(axis=-1) == 1).all()
    assert batch.target.sum() == 100
    for row, label in zip(marks(batch.x), batch.target, strict=True):
        assert sorted(row) == [0] * each + [1] * each
        assert label == (row[0] == 0)


def test_order_is_the_case_of_one(tasks):
    batch = tasks.order(200, 17, np.random.default_rng(1))
    assert [row[0] == 0 for row in marks(batch.x)] == batch.target.astype(bool).tolist()
    assert all(sorted(row) == [0, 1] for row in marks(batch.x))


def test_conflicting_rules_give_opposite_answers(order):
    batch = order.conflicting(150, 20, np.random.default_rng(2))
    assert len(batch.x) == 150
    for row, label in zip(marks(batch.x), batch.target, strict=True):
        assert row[0] == row[-1]
        assert (row[0] == 0, row[-1] == 1) == (label == 1, label == 0)


def test_order_is_linear_in_positions(order, tasks):
    batch = tasks.order(300, 20, np.random.default_rng(3))
    seen = order.features("counts and ramps", batch.x)
    ramp = seen[:, 8:]
    assert ((ramp[:, 1] - ramp[:, 0] > 0) == batch.target).all()
    np.testing.assert_array_equal(seen[:, :8], order.features("bag of words", batch.x))
    assert (seen[:, :2] == 1).all()
    flat = order.features("every position", batch.x)
    weights = np.zeros((20, 8))
    weights[:, 0], weights[:, 1] = -np.arange(20), np.arange(20)
    assert ((flat @ weights.ravel() > 0) == batch.target).all()


def test_sizes_of_the_models(order):
    found = {
        name: order.measure({**POINT, "model": name}, np.random.default_rng(0))["n_parameters"]
        for name in order.MODELS
    }
    # 16 (16 + 8 + 1) + 2 (16 + 1); 3 . 8 (8 + 8 + 2) + 2 (8 + 1); 12 . 8 + 1
    assert found == {
        "bag of words": 9,
        "counts and ramps": 17,
        "every position": 97,
        "RNN": 434,
        "GRU": 450,
    }


@pytest.mark.parametrize("name", ["every position", "RNN"])
def test_a_point_measured_twice_is_the_same_bytes(order, name):
    point = {**POINT, "model": name}
    first, second = (order.measure(point, np.random.default_rng(5)) for _ in range(2))
    for field, value in first.items():
        np.testing.assert_array_equal(value, second[field], err_msg=field)
    assert first["accuracy"].shape == (2,)
    assert 0.5 < first["accuracy"][-1] <= 1


def test_f1_of_known_answers(order):
    # precision 2/3, recall 1/2: 2 . 2 / (3 + 4)
    found, wanted = np.array([1, 1, 1, 0, 0, 0]), np.array([1, 1, 0, 1, 1, 0])
    assert order.f1_score(found, wanted) == 4 / 7
    assert order.f1_score(np.zeros(2), np.ones(2)) == 0.0
