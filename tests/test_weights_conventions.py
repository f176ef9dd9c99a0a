"""Arrays of every convention against formulas written out, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import ORACLES
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ORDERS = {  # blocks of PyTorch's i f g o, r z n in the order of the others
    ("keras", "LSTM"): (0, 1, 2, 3),
    ("keras", "GRU"): (1, 0, 2),
    ("keras", "RNN"): (0,),
    ("onnx", "LSTM"): (0, 3, 1, 2),
    ("onnx", "GRU"): (1, 0, 2),
    ("onnx", "RNN"): (0,),
}
ROW = {"weight_ih": [[0.5], [1.0], [-0.8]], "weight_hh": [[0.3], [-0.6], [0.9]]}
GRU_ROWS = ROW | {"bias_ih": [0.1, 0.2, -0.3], "bias_hh": [0.05, -0.1, 0.4]}
LSTM_ROWS = {
    "weight_ih": np.array([[0.4], [0.9], [-0.7], [0.2]]),
    "weight_hh": np.array([[0.6], [-0.3], [0.8], [0.5]]),
    "bias": np.array([0.1, 1.0, -0.2, 0.0]),
}


def random_torch(kind, n, d, rng):
    rows = GATES[kind] * n
    return {
        "weight_ih": rng.normal(size=(rows, d)),
        "weight_hh": rng.normal(size=(rows, n)),
        "bias_ih": rng.normal(size=rows),
        "bias_hh": rng.normal(size=rows),
    }


def reordered(array, convention, kind):
    """Blocks of rows in the order of another convention."""
    blocks = np.split(array, GATES[kind])
    return np.concatenate([blocks[i] for i in ORDERS[convention, kind]])


def as_keras(arrays, kind):
    W_ih, W_hh, b_ih, b_hh = (reordered(a, "keras", kind) for a in arrays.values())
    bias = np.stack([b_ih, b_hh]) if kind == "GRU" else b_ih + b_hh
    return {"kernel": W_ih.T, "recurrent_kernel": W_hh.T, "bias": bias}


def as_onnx(arrays, kind):
    W_ih, W_hh, b_ih, b_hh = (reordered(a, "onnx", kind) for a in arrays.values())
    found = {"W": W_ih[None], "R": W_hh[None], "B": np.concatenate([b_ih, b_hh])[None]}
    return found | ({"linear_before_reset": 1} if kind == "GRU" else {})


def as_cudnn(arrays, kind):
    """The inverse of Keras' own conversion, gate by gate, number by number."""
    W_ih, W_hh, b_ih, b_hh = (reordered(a, "keras", kind) for a in arrays.values())
    n, d = W_hh.shape[1], W_ih.shape[1]
    kernel, recurrent = np.empty((d, len(W_ih))), np.empty((n, len(W_hh)))
    for gate in range(GATES[kind]):
        rows = slice(gate * n, (gate + 1) * n)
        run = [W_ih[rows][a, b] for a in range(n) for b in range(d)]
        for place, value in enumerate(run):
            kernel[place // n, gate * n + place % n] = value
        recurrent[:, rows] = W_hh[rows]
    return {
        "kernel": kernel,
        "recurrent_kernel": recurrent,
        "bias": np.concatenate([b_ih, b_hh]),
    }


def assert_same_map(cell, other, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, d))
    J = gp.linearise(cell, x).to_dense()
    # the same numbers in sums of other orders: a few dozen roundings of terms around 1
    np.testing.assert_allclose(J, gp.linearise(other, x).to_dense(), rtol=0, atol=1e-13)


@given(
    kind=st.sampled_from(sorted(GATES)),
    n=st.integers(1, 4),
    d=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_every_convention_says_the_same_network(kind, n, d, seed):
    arrays = random_torch(kind, n, d, np.random.default_rng(seed))
    cell = gp.cell_from_arrays(arrays, convention="torch")
    assert type(cell).__name__ == kind
    assert (cell.n, cell.d_x) == (n, d)
    others = {"keras": as_keras, "onnx": as_onnx, "cudnn": as_cudnn}
    for convention, spelled in others.items():
        other = gp.cell_from_arrays(spelled(arrays, kind), convention=convention)
        assert_same_map(cell, other, d)


def test_outputs_of_pytorch():
    """Stored outputs of torch.nn: one layer, a stack of three, two directions."""
    with np.load(ORACLES / "torch_gradients.npz") as stored:
        cases = sorted({name.rpartition("/")[0] for name in stored.files})
        for case in (c for c in cases if "float64" in c):
            arrays = {k: stored[f"{case}/{k}"] for k in ("x", "h", "h0")}
            names = [n for n in stored.files if n.startswith((f"{case}/weight_", f"{case}/bias_"))]
            cell = gp.cell_from_arrays({n: stored[n] for n in names}, convention="torch")
            h0 = list(arrays["h0"])
            if "lstm" in case:
                pairs = zip(arrays["h0"], stored[f"{case}/c0"], strict=True)
                h0 = [np.concatenate(pair, axis=-1) for pair in pairs]
            if isinstance(cell, gp.Bidirectional):
                h = gp.rollout(cell, arrays["x"], h0=tuple(h0)).h
            else:
                h = gp.rollout(cell, arrays["x"], h0=np.concatenate(h0, axis=-1)).h[..., 1:, :]
            # at most 8 steps of 3 layers, sums of 8 terms: 24 * 8 * 10 * eps
            np.testing.assert_allclose(h, arrays["h"], rtol=0, atol=5e-13, err_msg=case)


def test_gru_rows_in_the_wrong_order_give_the_same_h_and_another_jacobian():
    right = gp.cell_from_arrays(GRU_ROWS, convention="torch")
    as_read = {
        "kernel": np.transpose(GRU_ROWS["weight_ih"]),
        "recurrent_kernel": np.transpose(GRU_ROWS["weight_hh"]),
        "bias": np.stack([GRU_ROWS["bias_ih"], GRU_ROWS["bias_hh"]]),
    }
    wrong = gp.cell_from_arrays(as_read, convention="keras")
    h = [gp.rollout(cell, [1.0], h0=[0.5]).h[1, 0] for cell in (right, wrong)]
    J = [gp.step_jacobian(cell, [0.5], [1.0])[0, 0] for cell in (right, wrong)]
    assert h[0] == pytest.approx(0.1984429569, abs=1e-9)
    assert J[0] == pytest.approx(0.7277711393, abs=1e-9)
    assert J[1] == pytest.approx(0.8756335561, abs=1e-9)


@pytest.mark.parametrize("convention", ["keras", "onnx"])
def test_hard_sigmoid_gates(convention):
    W_ih, W_hh, b = LSTM_ROWS.values()
    if convention == "keras":
        mapping = {"kernel": W_ih.T, "recurrent_kernel": W_hh.T, "bias": b}
        options = {"recurrent_activation": "hard_sigmoid"}
    else:
        W_ih, W_hh, b = (reordered(a, "onnx", "LSTM") for a in (W_ih, W_hh, b))
        mapping = {"W": W_ih[None], "R": W_hh[None], "B": np.concatenate([b, 0 * b])[None]}
        options = {"activations": ["HardSigmoid", "Tanh", "Tanh"]}
    cell = gp.cell_from_arrays(mapping, convention=convention, options=options)
    state = gp.rollout(cell, [1.0], h0=[0.3, 0.7]).state[1]
    np.testing.assert_allclose(state, [0.1318401136, 0.2355608694], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("b_ih", "b_hh", "log10"),
    [(1.0, 1.0, -5.5124134795), (1.0, 0.0, -13.6047822281), (0.0, 0.0, -30.1029995664)],
)
def test_a_forget_bias_in_both_vectors_counts_twice(b_ih, b_hh, log10):
    zeros = {"weight_ih": np.zeros((4, 1)), "weight_hh": np.zeros((4, 1))}
    biases = {"bias_ih": [0.0, b_ih, 0.0, 0.0], "bias_hh": [0.0, b_hh, 0.0, 0.0]}
    cell = gp.cell_from_arrays(zeros | biases, convention="torch")
    path = np.log10(gp.linearise(cell, np.zeros(100)).to_dense()[:, 1, 1]).sum()
    assert path == pytest.approx(log10, abs=1e-9)


def test_two_biases_are_cast_before_they_are_added():
    one = np.float32(1.0)
    small = np.float32(2.0**-25)
    arrays = {"weight_ih": [[1.0]], "weight_hh": [[0.5]], "bias_ih": [one], "bias_hh": [small]}
    cell = gp.cell_from_arrays(arrays, convention="torch")
    assert cell.b[0] == 1.0 + 2.0**-25


def refusal(mapping, *, error=ValueError, **keywords):
    with pytest.raises(error) as caught:
        gp.cell_from_arrays(mapping, **({"convention": "torch"} | keywords))
    return str(caught.value)


def test_a_transposed_matrix_is_taken_only_when_told():
    rng = np.random.default_rng(0)
    arrays = random_torch("LSTM", 9, 2, rng)
    cell = gp.cell_from_arrays(arrays, convention="torch")
    turned = arrays | {name: arrays[name].T for name in ("weight_ih", "weight_hh")}
    assert "(9, 36)" in refusal(turned)
    assert "36" in refusal(arrays | {"weight_ih": arrays["weight_ih"].T})
    assert "'orientation': 'columns'" in refusal(turned)
    told = gp.cell_from_arrays(turned, convention="torch", options={"orientation": "columns"})
    assert_same_map(cell, told, 2)


def test_a_square_matrix_is_read_as_the_convention_says():
    """(4n, 4n): nothing tells its orientation, so it is never chosen by shape."""
    arrays = random_torch("LSTM", 2, 8, np.random.default_rng(0))
    cell = gp.cell_from_arrays(arrays, convention="torch")
    assert np.array_equal(cell.W_xh, arrays["weight_ih"])
    keras = as_keras(arrays, "LSTM")
    assert np.array_equal(gp.cell_from_arrays(keras, convention="keras").W_xh, arrays["weight_ih"])


@pytest.mark.parametrize("name", ["units", "hidden_size"])
def test_a_declared_size_that_contradicts_the_arrays(name):
    keras = {"kernel": np.zeros((1, 80)), "recurrent_kernel": np.zeros((20, 80))}
    keras["bias"] = np.zeros(80)
    text = refusal(keras, convention="keras", options={name: 16})
    assert "16" in text
    assert re.search(r"has 20\b", text)
    text = refusal(keras | {name: np.array(16)}, convention="keras")
    assert "16" in text


def test_missing_and_extra_arrays_are_named():
    arrays = random_torch("LSTM", 2, 3, np.random.default_rng(0))
    for name in ("weight_ih", "bias_ih", "bias_hh"):
        partial = {k: v for k, v in arrays.items() if k != name}
        assert f"`{name}_l0`" in refusal(partial)
    assert "`weight_hh_l0`" in refusal({"weight_ih": arrays["weight_ih"]})
    assert "`more`" in refusal(arrays | {"more": np.zeros(3)})
    prefixed = {f"net.{name}": value for name, value in arrays.items()}
    assert "`net.gain`" in refusal(prefixed | {"net.gain": np.zeros(3)})
    assert "once" in refusal(prefixed | {"net/weight_ih": arrays["weight_ih"]})
    two_layers = {f"{k}_l{i}": v for i in (0, 2) for k, v in arrays.items()}
    assert "`weight_hh_l1`" in refusal(two_layers)
    one_way = {f"{k}_l{i}": v for i in (0, 1) for k, v in arrays.items()}
    assert "`weight_hh_l1_reverse`" in refusal(
        one_way | {f"{k}_l0_reverse": v for k, v in arrays.items()}
    )
    assert "`W`" in refusal({"R": np.zeros((1, 8, 2))}, convention="onnx")
    assert "nothing" in refusal({})


def test_shapes_that_contradict_each_other_are_named_with_both_numbers():
    arrays = random_torch("GRU", 2, 3, np.random.default_rng(0))
    text = refusal(arrays | {"weight_ih": np.zeros((8, 3))})
    assert "`weight_ih` (8, 3)" in text
    assert "6" in text
    assert "8" in text
    assert "(6,)" in refusal(arrays | {"bias_hh": np.zeros(5)})
    text = refusal(arrays | {"weight_hh": np.zeros((10, 5))})
    assert "n = 5" in text
    assert "10" in text
    assert "matrix" in refusal(arrays | {"weight_hh": np.zeros(6)})
    text = refusal(arrays, options={"kind": "LSTM"})
    assert "4" in text
    assert "3" in text
    onnx = as_onnx(arrays, "GRU")
    assert "`R`" in refusal(onnx | {"R": np.zeros((2, 6, 2))}, convention="onnx")
    assert "`B`" in refusal(onnx | {"B": np.zeros((1, 6))}, convention="onnx")


def test_refused_by_name():
    arrays = random_torch("LSTM", 2, 3, np.random.default_rng(0))
    text = refusal(arrays | {"weight_hr": np.zeros((1, 2))})
    assert "`weight_hr`" in text
    assert "projection" in text
    text = refusal(arrays | {"weight_ch": np.zeros((6, 2))})
    assert "peephole" in text
    text = refusal(as_onnx(arrays, "LSTM") | {"P": np.zeros((1, 6))}, convention="onnx")
    assert "`P`" in text
    assert "peephole" in text


def test_what_arrays_must_not_hold():
    arrays = random_torch("LSTM", 2, 3, np.random.default_rng(0))
    spoilt = arrays["weight_hh"].copy()
    spoilt[5, 1] = np.nan
    text = refusal(arrays | {"weight_hh": spoilt})
    assert "`weight_hh`" in text
    assert "(5, 1)" in text
    text = refusal(arrays | {"weight_ih": np.array({"a": 1}, dtype=object)})
    assert "np.savez" in text
    for dtype in (np.int8, np.uint8, np.int32):
        text = refusal(arrays | {"weight_ih": np.zeros((8, 3), dtype)}, error=TypeError)
        assert "quantised" in text
    masked = np.ma.masked_less(arrays["weight_hh"], 0.0)
    assert "masked" in refusal(arrays | {"weight_hh": masked}, error=TypeError)
    huge = {name: np.full(8, 1.7e308) for name in ("bias_ih", "bias_hh")}
    assert "`b` must be finite; got inf" in refusal(arrays | huge)


def test_layers_and_directions():
    rng = np.random.default_rng(0)

    def layer(k, d, way=""):
        return {f"{a}_l{k}{way}": v for a, v in random_torch("GRU", 2, d, rng).items()}

    stack = gp.cell_from_arrays(layer(0, 3) | layer(1, 2), convention="torch")
    assert isinstance(stack, gp.Stacked)
    both = layer(0, 3) | layer(0, 3, "_reverse") | layer(1, 4) | layer(1, 4, "_reverse")
    assert "layer" in refusal(both)
    top = gp.cell_from_arrays(both, convention="torch", options={"layer": 1})
    assert isinstance(top, gp.Bidirectional)
    assert (top.n, top.d_x) == (4, 4)
    assert np.array_equal(top.backward.W_hh, both["weight_hh_l1_reverse"])
    assert "at most 1" in refusal(both, options={"layer": 2})
    ways = {w: random_torch("LSTM", 2, 3, rng) for w in ("forward", "backward")}
    keras = {f"lstm/{w}/{k}": v for w in ways for k, v in as_keras(ways[w], "LSTM").items()}
    onnx = {
        k: np.concatenate([as_onnx(ways[w], "LSTM")[k] for w in ("forward", "backward")])
        for k in "WRB"
    } | {"direction": "bidirectional"}
    for mapping, convention in ((keras, "keras"), (onnx, "onnx")):
        cell = gp.cell_from_arrays(mapping, convention=convention)
        for way in ways:
            own = gp.cell_from_arrays(ways[way], convention="torch")
            assert_same_map(getattr(cell, way), own, 3)
    assert "direction" in refusal(onnx | {"direction": "forward"}, convention="onnx")


@pytest.mark.parametrize("separator", [".", "/", "__", "_"])
def test_prefixes(separator):
    arrays = random_torch("RNN", 2, 3, np.random.default_rng(0))
    mapping = {f"enc{separator}{k}": v for k, v in arrays.items()}
    other = {f"dec{separator}{k}": v for k, v in arrays.items()}
    assert gp.cell_from_arrays(mapping, convention="torch").n == 2
    text = refusal(mapping | other)
    assert "'dec', 'enc'" in text
    for prefix in ("enc", f"enc{separator}"):
        cell = gp.cell_from_arrays(mapping | other, convention="torch", prefix=prefix)
        assert np.array_equal(cell.W_hh, arrays["weight_hh"])
    assert "'none'" in refusal(mapping, prefix="none")


def test_where_the_reset_gate_stands():
    arrays = random_torch("GRU", 2, 3, np.random.default_rng(0))
    keras, onnx = as_keras(arrays, "GRU"), as_onnx(arrays, "GRU")
    before = keras | {"bias": keras["bias"].sum(axis=0)}
    assert gp.cell_from_arrays(keras, convention="keras").reset_after
    assert not gp.cell_from_arrays(before, convention="keras").reset_after
    del onnx["linear_before_reset"]
    assert not gp.cell_from_arrays(onnx, convention="onnx").reset_after
    assert_same_map(
        gp.cell_from_arrays(before, convention="keras"),
        gp.cell_from_arrays(onnx, convention="onnx"),
        3,
    )
    del keras["bias"]
    assert "`reset_after`" in refusal(keras, convention="keras")
    told = gp.cell_from_arrays(keras, convention="keras", options={"reset_after": True})
    assert told.reset_after
    assert "bias" in refusal(before, convention="keras", options={"reset_after": True})


def test_settings_that_no_cell_has():
    arrays = random_torch("LSTM", 2, 3, np.random.default_rng(0))
    keras, onnx = as_keras(arrays, "LSTM"), as_onnx(arrays, "LSTM")
    for options, word in (
        ({"activations": ["Sigmoid", "Tanh", "Relu"]}, "candidate and output"),
        ({"activations": ["Sigmoid", "Tanh"]}, "3"),
        ({"activations": ["Sigmoid", "Softsign", "Softsign"]}, "Softsign"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.5]}, "0.2"),
        ({"clip": 3.0}, "clip"),
        ({"input_forget": 1}, "input_forget"),
        ({"colour": 1}, "colour"),
    ):
        assert word in refusal(onnx, convention="onnx", options=options)
    assert "swish" in refusal(keras, convention="keras", options={"activation": "swish"})
    modern = {"recurrent_activation": "hard_sigmoid", "keras_version": "3.1.0"}
    assert "Keras 3" in refusal(keras, convention="keras", options=modern)
    cell = gp.cell_from_arrays(
        keras, convention="keras", options=modern | {"keras_version": "2.2.0"}
    )
    assert cell.gate_activation.name == "hard_sigmoid"
    own = gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), np.zeros(4)).activation
    options = {"recurrent_activation": own}
    assert gp.cell_from_arrays(keras, convention="keras", options=options).gate_activation is own


def test_cudnn_and_keras_are_told_apart_by_the_bias():
    arrays = random_torch("LSTM", 2, 3, np.random.default_rng(0))
    assert "cudnn" in refusal(as_cudnn(arrays, "LSTM"), convention="keras")
    assert "(16,)" in refusal(as_keras(arrays, "LSTM"), convention="cudnn")


def test_arguments():
    assert "'torch'" in refusal({}, convention="caffe")
    assert "mapping" in refusal([1], error=TypeError)
    assert "names" in refusal({1: 2}, error=TypeError)
    assert "prefix" in refusal(GRU_ROWS, prefix=3, error=TypeError)
    assert "options" in refusal(GRU_ROWS, options=[1], error=TypeError)
    cell = gp.cell_from_arrays(ROW, convention="torch")
    assert not cell.b_x.any()
    assert not cell.b_h.any()
