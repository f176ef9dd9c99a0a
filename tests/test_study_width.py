"""Splits of the text, early stopping, and what width_and_rate measures."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import ROOT


@pytest.fixture
def width(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import _width

    return _width


def test_splits_share_no_character(width):
    import _characters
    import _text_input

    parts = _characters.splits()
    assert [len(part) for part in parts] == [80_000, 10_000, 10_000]
    np.testing.assert_array_equal(np.concatenate(parts), _text_input.characters()[0])
    batch = _characters.whole(parts[2], 30)
    assert batch.x.shape == (333, 30, _characters.size())
    # the wanted character is the next input
    np.testing.assert_array_equal(batch.x[:, 1:].argmax(axis=-1), batch.target[:, :-1])
    np.testing.assert_array_equal(batch.x[1:, 0].argmax(axis=-1), batch.target[:-1, -1])


def test_early_stopping_waits_for_its_patience(width):
    falling = [3.0, 2.9, 2.8, 2.7, 2.6]
    assert not width.stops(falling)
    assert not width.stops([*falling, 2.599, 2.598])
    assert width.stops([*falling, 2.599, 2.598, 2.597])
    assert not width.stops([*falling, 2.599, 2.598, 2.594])
    assert not width.stops([np.inf, np.inf])


def test_a_run_passes_both_places(width):
    point = {"n": 4, "rate": 0.0, "fixed": 12, "most": 20, "every": 2, "n_characters": 400}
    first, second = (width.measure(point, np.random.default_rng(5)) for _ in range(2))
    for field, value in first.items():
        np.testing.assert_array_equal(value, second[field], err_msg=field)
    # at rate 0 nothing improves: stopped after 1 + PATIENCE evaluations, then on to the budget
    assert first["stopped"]
    assert first["updates"] == 2 * (1 + width.PATIENCE)
    assert np.isfinite(first["validation"]).tolist() == 6 * [True] + 4 * [False]
    assert first["test_early"] == first["test_fixed"]


def test_the_limit_ends_what_early_stopping_does_not(width):
    point = {"n": 4, "rate": 0.03, "fixed": 2, "most": 8, "every": 2, "n_characters": 400}
    found = width.measure(point, np.random.default_rng(5))
    assert (found["stopped"], found["updates"], found["diverged"]) == (False, 8, False)
    assert found["test_early"] < found["test_fixed"]
    assert np.isfinite(found["validation"]).all()
