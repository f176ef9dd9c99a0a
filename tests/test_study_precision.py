"""Measuring of precision_floor: what is known in closed form, and reproducibility."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import ROOT

STEPS = {f"steps_{name}": T for name, T in (("random", 60), ("ring", 700), ("flipflop", 120))}


@pytest.fixture
def floor(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import _precision_floor

    return _precision_floor


def test_a_vector_follows_the_exact_one_until_it_is_zero(floor):
    """In float32, relative to it, to n lag eps; from the event on the log is -inf."""
    point = {"n": 8, "fmt": "float32", "n_steps": 60}
    found, again = (floor.measure_vector(point, np.random.default_rng(0)) for _ in range(2))
    error = np.abs(found["log_norm"] - found["exact"])
    assert (error <= 8 * np.maximum(np.arange(61), 1) * 2.0**-23).all()
    assert all(np.array_equal(found[k], again[k]) for k in found)
    short = floor.measure_vector({**point, "fmt": "float8_e4m3"}, np.random.default_rng(0))
    assert np.isneginf(short["log_norm"][short["n_zero"] :]).all()
    assert np.isfinite(short["log_norm"][: short["n_zero"]]).all()


def test_the_budget_of_a_ring_is_that_of_its_decays(floor):
    """Two decays, 0.9 and 0.999: the norm is sqrt((0.9^2k + 0.999^2k) / 2)."""
    point = {"network": "ring", "fmt": "bfloat16", "n": 2, **STEPS, "steps_ring": 5000}
    found = floor.measure_budget(point, np.random.default_rng(1))
    lags = np.arange(5000)
    norm = np.sqrt((0.9 ** (2 * lags) + 0.999 ** (2 * lags)) / 2)
    assert found["statistical"] == np.flatnonzero(norm < 1e-2)[0]
    assert found["ceiling"] == pytest.approx(-np.log(100) / np.log(0.99609375), rel=1e-12)
    # 0.999 is stored as 1
    assert found["statistical_rounded"] == np.inf
    assert found["underflow"] == np.inf
    assert 0 < found["absorption"] < found["statistical"]


def test_the_trained_network_ends_where_its_product_does(floor):
    """Its gradient falls ten-fold in less than two steps: below 1e-2 within some; no ceiling."""
    point = {"network": "flipflop", "fmt": "float32", "n": 0, **STEPS}
    found = floor.measure_budget(point, np.random.default_rng(2))
    assert 2 <= found["statistical"] <= 10
    assert found["statistical"] < found["absorption"] < found["underflow"] <= 100
    assert np.isnan(found["ceiling"])


def test_shares_are_those_of_the_recurrent_weights(floor):
    point = {"n": 6, "fmt": "bfloat16", "order": "backward", "n_steps": 40}
    found = floor.measure_absorbed(point, np.random.default_rng(3))
    assert found["absorbed"].shape == (40,)
    assert found["absorbed"][0] < 0.1
    assert found["absorbed"][-1] == 1.0
