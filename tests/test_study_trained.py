"""Measuring of trained_networks: layers as published, known radii, the same bytes twice."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers import ROOT

import gradprop as gp

sys.path.insert(0, str(ROOT / "studies"))
import _networks
import _trained

SMALL = (
    "flipflop_rnn8",
    "rtneural_keras_lstm_1d",
    "rtneural_gru_torch_8x4/gru2.l1",
    "g2pM_bilstm/bwd",
)


def test_every_pair_of_files_is_there():
    stems = {name.partition("/")[0] for name in _networks.layers()}
    stored = {path.stem for path in _networks.FOLDER.glob("*.npz")}
    assert stems == stored
    assert set(_networks.layers(quick=True)) < set(_networks.layers())
    assert {"g2pM_bilstm/fwd", "g2pM_bilstm/bwd"} <= set(_networks.layers())


@pytest.mark.parametrize("name", SMALL)
def test_a_layer_reproduces_its_reference(name):
    point = {"layer": name}
    found = _trained.measure(point, np.random.default_rng(0))
    again = _trained.measure(point, np.random.default_rng(0))
    for key, value in found.items():
        assert np.array(value).tobytes() == np.array(again[key]).tobytes(), key
    assert found["gap"] < 1e-6  # biases are added in float32 by some references
    assert found["horizon_worst"] >= np.median(found["horizons"])


def test_radii_are_those_of_the_gates_in_the_packages_order():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((12, 4))
    cell = gp.GRU(W, np.zeros((12, 1)), np.zeros(12), np.zeros(12), gate_order="zrh")
    expected = [np.abs(np.linalg.eigvals(W[k : k + 4])).max() for k in (4, 0, 8)]
    np.testing.assert_allclose(_trained.block_radii(cell), expected, rtol=1e-12)
    meta = _networks.layer("flipflop_rnn8")
    assert _trained.block_radii(meta.cell)[0] == pytest.approx(2.0441270586464158, rel=1e-9)


def test_a_horizon_is_the_first_lag_below():
    assert _trained._first_below(np.log10(0.45) * np.arange(40)) == 20
    assert _trained._first_below(np.zeros(5)) == np.inf
