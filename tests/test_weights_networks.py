"""Published networks through load_cell: outputs of their frameworks, stored product norms."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from helpers import FLIPFLOP

import gradprop as gp

FOLDER = FLIPFLOP.parent
TORCH = {"convention": "torch"}


@functools.cache
def network(name):
    """Path, stored reference and arrays in float64."""
    path = FOLDER / f"{name}.npz"
    with np.load(path) as stored:
        arrays = {k: stored[k].astype(float) for k in stored.files}
    return path, json.loads(path.with_suffix(".json").read_text())["reference"], arrays


def check_product(cell, x, reference):
    """Norms of the last k Jacobians and top exponents: 1e-6, the floor of float32 bias sums."""
    chain = gp.linearise(cell, x)
    lags = [int(lag) for lag in reference["log10_norm_lag"]]
    norms = gp.log_norms(chain, lags=lags, anchor="end").log_norm / np.log(10)
    wanted = np.array(list(reference["log10_norm_lag"].values()))
    assert (np.abs(norms - wanted) <= 1e-6 * np.maximum(1, np.abs(wanted))).all()
    # all exponents, for only then does the QR start from the identity, as the stored ones do
    found = gp.lyapunov_spectrum(chain).exponents[:3]
    np.testing.assert_allclose(found, reference["lyap_top3"], rtol=0, atol=1e-6)
    return gp.rollout(cell, x).h[1:]


def test_flip_flop():
    path, reference, arrays = network("flipflop_rnn8")
    cell = gp.load_cell(path, **TORCH)
    h = check_product(cell, arrays["U"], reference["pulses_T500"])
    bits = np.sign(h @ arrays["W_out"].T + arrays["b_out"])
    assert (bits == arrays["target"]).all()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_pytorch_layer_under_three_more(kind):
    path, reference, arrays = network(f"rtneural_{kind}_torch_8x4")
    h = check_product(gp.load_cell(path, prefix=kind), arrays["x"], reference[f"{kind}.l0"])
    stack = gp.load_cell(path, prefix=f"{kind}2")
    assert len(stack.cells) == 3
    through = gp.rollout(stack, h).h[1:]
    for k in range(3):
        cell = gp.load_cell(path, prefix=f"{kind}2", options={"layer": k})
        h = check_product(cell, h, reference[f"{kind}2.l{k}"])
    np.testing.assert_allclose(through, h, rtol=0, atol=1e-13)
    y = h @ arrays["dense__weight"].T + arrays["dense__bias"]
    np.testing.assert_allclose(y[:, 0], arrays["y_ref"], rtol=0, atol=5e-8)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_keras_layer(kind):
    path, reference, arrays = network(f"rtneural_keras_{kind}_1d")
    with pytest.raises(ValueError, match=r"`convention`.*'keras'"):
        gp.load_cell(path)
    y = check_product(gp.load_cell(path, convention="keras"), arrays["x"], reference)
    y = y @ arrays["layer1_dense_0"] + arrays["layer1_dense_1"]
    if kind == "gru":  # a sigmoid dense layer, then a linear one
        y = 1 / (1 + np.exp(-y)) @ arrays["layer2_dense_0"] + arrays["layer2_dense_1"]
    np.testing.assert_allclose(y[:, 0], arrays["y_ref"], rtol=0, atol=2e-7)


def test_two_directions():
    path, reference, arrays = network("g2pM_bilstm")
    cell, x = gp.load_cell(path), arrays["x"]
    check_product(cell.forward, x, reference["fwd"])
    check_product(cell.backward, x[::-1], reference["bwd"])
    h = gp.rollout(cell, x).h
    wanted = np.concatenate([arrays["h_fwd_ref"], arrays["h_bwd_ref"]], axis=1)
    np.testing.assert_allclose(h, wanted, rtol=0, atol=2e-7)


def test_keras_layers_with_hard_sigmoid_gates():
    path, reference, arrays = network("chars2vec_eng50_lstm50x2")
    h = arrays["x"]
    for k in (1, 2):
        said = {"recurrent_activation": "hard_sigmoid", "units": 50}
        cell = gp.load_cell(path, prefix=f"lstm_{k}", options=said)
        h = check_product(cell, h, reference[f"layer{k}_hard_sigmoid"])
        np.testing.assert_allclose(h, arrays[f"h{k}_ref"], rtol=0, atol=1e-13)
    unsaid = gp.load_cell(path, prefix="lstm_1")
    check_product(unsaid, arrays["x"], reference["layer1_if_plain_sigmoid_wrong"])


def test_hydrology():
    path, reference, arrays = network("noaa_hydrology_lstm126")
    x = (arrays["x_raw"] - arrays["x_mean"]) / arrays["x_std"]
    cell = gp.load_cell(path, **TORCH)
    check_product(cell, x, reference)
    last = gp.rollout(cell, x).state[-1]
    wanted = np.concatenate([arrays["h_T_ref"], arrays["c_T_ref"]])
    np.testing.assert_allclose(last, wanted, rtol=0, atol=1e-9)


def test_letters_to_phonemes():
    path, reference, arrays = network("g2p_en_encoder_gru256")
    cell = gp.load_cell(path, **TORCH)
    for word in ("gradient", "antidisestablishmentarianism"):
        ids = [3 + ord(letter) - ord("a") for letter in word] + [2]
        check_product(cell, arrays["emb"][ids], reference[word])


def test_text_in_the_layout_of_cudnn():
    path, reference, arrays = network("textgenrnn_lstm128_layer1")
    rows = [list(arrays["ids_used"]).index(i) for i in arrays["ids"]]
    found = gp.list_cells(path)
    assert found.convention.tolist() == ["cudnn"]
    check_product(gp.load_cell(path), arrays["emb_used"][rows], reference)


def test_notices_stand_beside_the_files():
    files = {path.name for path in FOLDER.iterdir()}
    notice = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in files:
        if name.endswith(".npz"):
            assert name.replace(".npz", ".json") in files
            assert f"`{name.removesuffix('.npz')}`" in notice
    assert {name for name in files if name.startswith("LICENSE")} <= set(notice.split("`"))
    assert sum((FOLDER / name).stat().st_size for name in files) <= 3_000_000
