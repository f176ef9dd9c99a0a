"""Files of every format: written by the frameworks themselves, damaged, hostile."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import zipfile
from collections import Counter

import numpy as np
import pytest
from helpers import ORACLES
from mutations import outcomes

import gradprop as gp
from gradprop.weights import _child, _npz

FOLDER = ORACLES / "frameworks"
ATOL = 1e-6
"""float32 networks of a few units over five steps: some ten roundings of numbers around 1."""


@pytest.fixture(scope="module")
def outputs():
    with np.load(FOLDER / "outputs.npz") as stored:
        return {name: stored[name] for name in stored.files}


def run(cell, x):
    h = gp.rollout(cell, x).h
    return h if isinstance(cell, gp.Bidirectional) else h[1:]


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.weights.h5"])
def test_keras(file, outputs):
    last = "last" if file == "model.h5" else "gru"  # the other formats count layers of a class
    names = {"lstm": "lstm", "bidirectional": "bidirectional", "simple_rnn": "simple_rnn"}
    found = gp.list_cells(FOLDER / file)
    assert sorted(found.prefix) == sorted([*names, last])
    assert found.recognised.all()
    for prefix, layer in (names | {last: "last"}).items():
        # weights alone do not say that this layer has relu
        alone = file == "model.weights.h5" and layer == "simple_rnn"
        options = {"activation": "relu"} if alone else None
        cell = gp.load_cell(FOLDER / file, prefix=prefix, options=options)
        wanted = outputs[f"keras/{layer}/h"]
        np.testing.assert_allclose(run(cell, outputs[f"keras/{layer}/x"]), wanted, atol=ATOL)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_safetensors_of_pytorch(name, outputs):
    options = {"nonlinearity": "relu"} if name == "rnn" else None
    cell = gp.load_cell(FOLDER / f"{name}.safetensors", options=options)
    np.testing.assert_allclose(run(cell, outputs["x"]), outputs[f"torch/{name}/h"], atol=ATOL)
    assert "head.weight" in gp.list_cells(FOLDER / f"{name}.safetensors").others


def test_bfloat16_tensors_are_those_numbers():
    exact = gp.load_cell(FOLDER / "lstm.safetensors").cells[0].W_hh
    stored = gp.load_cell(FOLDER / "lstm_bfloat16.safetensors").cells[0].W_hh
    assert (stored != exact).any()
    assert (np.abs(stored - exact) <= 2.0**-8 * np.abs(exact)).all()
    mantissa, _ = np.frexp(stored)
    assert (mantissa * 2**8 == np.round(mantissa * 2**8)).all()


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_onnx_of_pytorch(name, outputs):
    found = gp.list_cells(FOLDER / f"{name}.onnx")
    h = outputs["x"]
    for prefix in found.prefix:
        h = run(gp.load_cell(FOLDER / f"{name}.onnx", prefix=str(prefix)), h)
    np.testing.assert_allclose(h, outputs[f"torch/{name}/h"], atol=ATOL)


def torch_stand_in(folder):
    """A package whose load() gives tensors of numbers, and only if weights_only is asked for."""
    (folder / "torch.py").write_text(
        "import numpy as np\n"
        "bfloat16 = 'bfloat16'\n"
        "class Tensor:\n"
        "    is_quantized = is_sparse = False\n"
        "    dtype = 'float32'\n"
        "    def __init__(self, shape): self.shape = shape\n"
        "    def detach(self): return self\n"
        "    def numpy(self): return np.ones(self.shape, dtype=np.float32)\n"
        "def load(path, map_location, weights_only):\n"
        "    assert weights_only is True and map_location == 'cpu'\n"
        "    if b'module' in open(path, 'rb').read(): raise RuntimeError('code')\n"
        "    rnn = {'weight_ih_l0': Tensor((8, 3)), 'weight_hh_l0': Tensor((8, 2))}\n"
        "    return {'epoch': 3, 'model': {f'rnn.{k}': v for k, v in rnn.items()}}\n"
    )


def test_pytorch_files_give_up_nothing_but_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    torch_stand_in(tmp_path)
    cell = gp.load_cell(FOLDER / "lstm.pt")
    assert cell.W_xh.shape == (8, 3)
    assert gp.list_cells(FOLDER / "lstm.pt").prefix.tolist() == ["model.rnn"]
    old = tmp_path / "old.pt"
    old.write_bytes(pickle.dumps("module"))
    with pytest.raises(ValueError, match=r"state_dict\(\)"):
        gp.load_cell(old)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(_child.importlib.util, "find_spec", lambda name: None)
    for file, extra in (("lstm.pt", "torch"), ("model.h5", "keras"), ("lstm.onnx", "onnx")):
        with pytest.raises(ImportError, match=rf"gradprop\[{extra}\]"):
            gp.load_cell(FOLDER / file)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"gradprop\[safetensors\]"):
        gp.load_cell(FOLDER / "lstm.safetensors")


ROWS = {"weight_ih_l0": np.ones((8, 3)), "weight_hh_l0": np.ones((8, 2))}


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz_recognises_what_it_can(tmp_path):
    path = saved(tmp_path / "a.npz", **ROWS, x=np.zeros(3), note=np.array("text"))
    assert gp.load_cell(path).n == 2
    found = gp.list_cells(path)
    assert found.others == ("note", "x")
    assert (found.kind[0], found.units[0], found.inputs[0]) == ("LSTM", 2, 3)
    assert len(found.to_frame()) == 1
    named = {f"net.{name}": value for name, value in ROWS.items()}
    assert gp.load_cell(saved(path, **named)).n == 2
    with pytest.raises(ValueError, match=r"`net\.gain`"):
        gp.load_cell(saved(path, **named, **{"net.gain": np.ones(2)}))
    with pytest.raises(ValueError, match=r"`prefix`.*'more'.*'net'"):
        gp.load_cell(saved(path, **named, **{f"more.{k}": v for k, v in ROWS.items()}))
    unclear = saved(path, W_ih=ROWS["weight_ih_l0"], W_hh=ROWS["weight_hh_l0"])
    with pytest.raises(ValueError, match=r"`convention` must be told.*'torch'"):
        gp.load_cell(unclear)
    assert not gp.list_cells(unclear).recognised.any()
    assert gp.load_cell(unclear, convention="torch").n == 2
    with pytest.raises(ValueError, match="`q`"):
        gp.load_cell(saved(path, q=np.ones(2)))


def test_list_says_why_a_layer_cannot_be_read(tmp_path):
    path = saved(tmp_path / "a.npz", **ROWS, weight_hr_l0=np.ones((1, 2)))
    found = gp.list_cells(path)
    assert "projection" in found.note[0]
    assert found.units[0] == 0


def test_npz_of_objects_is_not_unpickled(tmp_path):
    path = saved(tmp_path / "a.npz", weight_hh_l0=np.array({"a": 1}, dtype=object))
    for reader in (gp.load_cell, gp.list_cells):
        with pytest.raises(ValueError, match=r"never unpickles.*np\.savez"):
            reader(path)


def member(name, shape, payload, descr="<f8"):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return f"{name}.npy", header.getvalue() + payload


@pytest.mark.parametrize(
    ("shape", "payload", "descr"),
    [
        ((10**12,), b"\0" * 64, "<f8"),
        ((-1,), b"\0" * 64, "<f8"),
        ((4,), b"\0" * 64, "<f8"),
        ((0, 10**30), b"\0" * 8, "<f8"),
        ((8,), b"\0" * 64, "|V8"),
    ],
)
def test_npz_shapes_account_for_every_byte(tmp_path, shape, payload, descr):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(*member("weight_hh_l0", shape, payload, descr))
    with pytest.raises(ValueError, match=r"a\.npz"):
        gp.load_cell(path)


def test_an_archive_that_unpacks_to_too_much(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(*member("weight_hh_l0", (2**22,), bytes(2**25)))
    assert _npz.unpacked_limit(path.stat().st_size) < 2**25
    with pytest.raises(ValueError, match=r"33554432|33554560"):
        gp.load_cell(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(*member("weight_hh_l0", (2,), bytes(16)))
    with pytest.raises(ValueError, match="compressed in a way"):
        gp.load_cell(path)


def test_files_that_are_none_of_these(tmp_path):
    path = tmp_path / "weights.bin"
    for content, words in (
        (b"", "must be an npz"),
        (b"hello world, these are weights", "must be an npz"),
        (b"\x93NUMPY\x01\x00", r"np\.savez"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            gp.load_cell(path)
    other = tmp_path / "weights.pkl"
    other.write_bytes(pickle.dumps({"weight_hh": 1}))
    with pytest.raises(ValueError, match="pickle"):
        gp.load_cell(other)
    with pytest.raises(FileNotFoundError):
        gp.load_cell(tmp_path / "none.npz")
    with pytest.raises(TypeError, match="`path`"):
        gp.load_cell(3)
    with pytest.raises(ValueError, match="`convention`"):
        gp.load_cell(path, convention="caffe")
    with pytest.raises(TypeError, match="`prefix`"):
        gp.load_cell(path, prefix=3)


def test_a_child_that_takes_too_long_or_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(_child, "SECONDS", 0.01)
    with pytest.raises(ValueError, match=r"within 0\.01 s"):
        gp.load_cell(FOLDER / "model.h5")
    monkeypatch.undo()
    h5py = __import__("h5py")
    path = tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("kernel", shape=(2**28,), dtype="f4", fillvalue=1.0)
    with pytest.raises(ValueError, match="memory"):
        gp.load_cell(path)


def test_hdf5_follows_no_link_and_no_cycle(tmp_path):
    h5py = __import__("h5py")
    path = tmp_path / "linked.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("lstm")
        group["kernel"], group["recurrent_kernel"] = np.ones((3, 8)), np.ones((2, 8))
        group["bias"] = np.ones(8)
        group["again"] = group
        file["elsewhere"] = h5py.ExternalLink("/etc/other.h5", "/x")
        file["soft"] = h5py.SoftLink("/lstm")
    assert gp.load_cell(path).n == 2
    assert gp.list_cells(path).others == ()


def test_a_layer_that_the_configuration_does_not_know(tmp_path):
    h5py = __import__("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"config": {"layers": []}})
        file["lstm/kernel"], file["lstm/recurrent_kernel"] = np.ones((3, 8)), np.ones((2, 8))
    with pytest.raises(ValueError, match="not found in this file's configuration"):
        gp.load_cell(path)
    assert gp.load_cell(path, options={"activation": "tanh"}).n == 2
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = "[1, 2"
    with pytest.raises(ValueError, match="damaged"):
        gp.load_cell(path)


def test_onnx_names_what_is_elsewhere_or_computed(tmp_path):
    onnx = __import__("onnx")
    model = onnx.load(FOLDER / "rnn.onnx")
    node = next(node for node in model.graph.node if node.op_type == "RNN")
    weights = next(t for t in model.graph.initializer if t.name == node.input[1])
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="other.data")
    path = tmp_path / "a.onnx"
    onnx.save(model, path)
    with pytest.raises(ValueError, match="another file"):
        gp.load_cell(path)
    model = onnx.load(FOLDER / "rnn.onnx")
    node = next(node for node in model.graph.node if node.op_type == "RNN")
    node.input[1] = "computed"
    onnx.save(model, path)
    with pytest.raises(ValueError, match="recurrent matrix"):
        gp.load_cell(path)


def test_damaged_npz_and_safetensors():
    """A small part of benchmarks/fuzz_weights.py: refused, or read with the shapes it had."""
    seen = Counter(what for what, _ in outcomes(("npz", "safetensors"), 600, seed=0))
    assert set(seen) <= {"read", "ValueError", "TypeError"}
    assert seen["ValueError"] > 100
    assert seen["read"] > 10


@pytest.mark.parametrize("kind", ["keras", "onnx"])
def test_damaged_files_of_foreign_parsers(kind):
    seen = Counter(what for what, _ in outcomes((kind,), 6, seed=1))
    assert sum(seen.values()) == 6
