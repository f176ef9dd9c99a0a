"""from_torch, from_jax, from_torch_step with stand-ins that have the frameworks' interfaces."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from helpers import ORACLES
from test_weights_conventions import GATES, assert_same_map, random_torch

import gradprop as gp

HOME = "torch.nn.modules.rnn"


class Tensor:
    """A torch tensor as far as this package looks at one."""

    is_sparse = False

    def __init__(self, values, dtype="torch.float32", is_quantized=False):
        self.values, self.dtype, self.is_quantized = np.asarray(values), dtype, is_quantized

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.values)

    def numpy(self):
        assert "bfloat16" not in self.dtype
        return self.values.astype(np.float32)


def stand_in(kind, n=2, d=3, layers=1, both=False, home=HOME, **changed):
    """A module with the attributes of torch.nn.KIND (or KINDCell, without layers)."""
    rng = np.random.default_rng(0)
    is_cell = kind.endswith("Cell")
    module = type(kind, (), {"__module__": home})()
    module.input_size, module.hidden_size, module.training = d, n, False
    if kind.startswith("RNN"):
        module.nonlinearity = "relu"
    ends = {"": d}
    if not is_cell:
        module.num_layers, module.bidirectional = layers, both
        module.dropout, module.proj_size = 0.0, 0
        ways = ("", "_reverse") if both else ("",)
        ends = {f"_l{k}{w}": n * len(ways) if k else d for k in range(layers) for w in ways}
    for end, width in ends.items():
        for name, value in random_torch(kind.removesuffix("Cell"), n, width, rng).items():
            setattr(module, name + end, Tensor(value.astype(np.float32)))
    for name, value in changed.items():
        setattr(module, name, value)
    return module


def arrays_of(module, ends):
    names = [f"{own}{end}" for end in ends for own in random_torch("RNN", 1, 1, np.random)]
    return {name: getattr(module, name).values for name in names}


@pytest.mark.parametrize("kind", [*GATES, *(f"{kind}Cell" for kind in GATES)])
def test_modules_and_cells(kind):
    module = stand_in(kind)
    cell = gp.from_torch(module)
    ends = [""] if kind.endswith("Cell") else ["_l0"]
    options = {"nonlinearity": "relu"} if kind.startswith("RNN") else None
    arrays = arrays_of(module, ends)
    assert_same_map(cell, gp.cell_from_arrays(arrays, convention="torch", options=options), 3)
    if kind.startswith("RNN"):
        assert cell.activation.name == "relu"


def test_layers_and_directions():
    module = stand_in("LSTM", layers=3)
    assert gp.from_torch(module).d_x == 3
    assert gp.from_torch(module, layer=2).d_x == 2
    assert len(gp.from_torch(module, layer=None).cells) == 3
    assert isinstance(gp.from_torch(stand_in("GRU", both=True), layer=None), gp.Bidirectional)
    deep = stand_in("GRU", layers=2, both=True)
    assert gp.from_torch(deep, layer=1).d_x == 4
    with pytest.raises(ValueError, match="no one chain"):
        gp.from_torch(deep, layer=None)
    with pytest.raises(ValueError, match="at most 1"):
        gp.from_torch(deep, layer=2)
    bare = stand_in("LSTM", bias_ih_l0=None, bias_hh_l0=None)
    assert not gp.from_torch(bare).b.any()


def test_modules_that_are_refused():
    for module, error, words in (
        (stand_in("LSTM", layers=2, dropout=0.1, training=True), ValueError, r"0\.1.*eval\(\)"),
        (stand_in("LSTM", proj_size=1), ValueError, "proj_size"),
        (
            stand_in("LSTM", home="torch.ao.nn.quantized.dynamic.modules.rnn"),
            TypeError,
            "quantised",
        ),
        (stand_in("LSTM", home="elsewhere"), TypeError, "got LSTM"),
        (
            stand_in("GRU", weight_hh_l0=Tensor(np.zeros((6, 2)), is_quantized=True)),
            TypeError,
            "deq",
        ),
        (stand_in("GRU", hidden_size=5), ValueError, r"5 units.* 2\b"),
        (3, TypeError, "got int"),
    ):
        with pytest.raises(error, match=words):
            gp.from_torch(module)
    outer = types.SimpleNamespace(
        named_modules=lambda: [("", None), ("encoder.rnn", stand_in("GRU"))]
    )
    with pytest.raises(TypeError, match=r"encoder\.rnn"):
        gp.from_torch(outer)
    idle = stand_in("LSTM", dropout=0.1)
    assert gp.from_torch(idle).n == 2


def test_bfloat16_is_widened():
    module = stand_in("RNN")
    module.weight_hh_l0 = Tensor(module.weight_hh_l0.values, dtype="torch.bfloat16")
    assert gp.from_torch(module).n == 2


def complex_step(function, point, direction):
    return np.imag(function(point + 1e-30j * direction)) / 1e-30


def jax_stand_in():
    """jvp by complex step, vjp through the matrix of all jvps, vmap and jit by their meaning."""

    def jvp(function, primals, tangents):
        return function(primals[0]), complex_step(function, primals[0], tangents[0])

    def vjp(function, point):
        columns = [complex_step(function, point, e) for e in np.eye(point.size)]
        return function(point), lambda u: (np.stack(columns, axis=1).T @ u,)

    def vmap(function, in_axis, out_axis):
        assert (in_axis, out_axis) == (1, 1)
        return lambda V: np.stack([function(v) for v in V.T], axis=1)

    def ravel_pytree(tree):
        leaves = tree if isinstance(tree, tuple) else (tree,)
        ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]

        def unravel(flat):
            parts = [
                p.reshape(np.shape(q)) for p, q in zip(np.split(flat, ends), leaves, strict=True)
            ]
            return tuple(parts) if isinstance(tree, tuple) else parts[0]

        return np.concatenate([np.ravel(leaf) for leaf in leaves]), unravel

    jax = types.ModuleType("jax")
    jax.jvp, jax.vjp, jax.vmap, jax.jit = jvp, vjp, vmap, lambda function: function
    jax.flatten_util = types.ModuleType("jax.flatten_util")
    jax.flatten_util.ravel_pytree = ravel_pytree
    return {"jax": jax, "jax.flatten_util": jax.flatten_util}


@pytest.fixture
def jax(monkeypatch):
    for name, module in jax_stand_in().items():
        monkeypatch.setitem(sys.modules, name, module)


W = np.random.default_rng(3).normal(size=(4, 4))
X = np.random.default_rng(4).normal(size=(6, 4))


def test_jax_step(jax):
    chain = gp.from_jax(lambda h, x: np.tanh(W @ h + x), np.zeros(4), X)
    wanted = gp.linearise(gp.RNN(W), X).to_dense()
    np.testing.assert_allclose(chain.to_dense(), wanted, rtol=0, atol=1e-13)
    assert gp.log_norms(chain).log_norm.shape == (7,)


def test_jax_step_of_a_tree(jax):
    """(h, c) of a cell that swaps them: two steps are two separate chains."""

    def step(state, x):
        return np.tanh(W @ state[1] + x), state[0]

    J = gp.from_jax(step, (np.zeros(4), np.zeros(4)), X).to_dense()
    assert np.array_equal(J[:, 4:, :4], np.broadcast_to(np.eye(4), (6, 4, 4)))
    assert not J[:, :4, :4].any()
    np.testing.assert_allclose(J[0, :4, 4:], W * (1 - np.tanh(X[0]) ** 2)[:, None], atol=1e-14)


def test_jax_refusals(jax, monkeypatch):
    with pytest.raises(ValueError, match="`x`"):
        gp.from_jax(lambda h, x: h, np.zeros(2), np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"4 numbers; got 8 after step 1"):
        gp.from_jax(lambda h, x: np.concatenate([h, h]), np.zeros(4), X)
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"gradprop\[jax\]"):
        gp.from_jax(lambda h, x: h, np.zeros(4), X)


class Vector(np.ndarray):
    """An array with the methods of a torch tensor that from_torch_step calls."""

    def numel(self):
        return self.size

    def split(self, sizes):
        return np.split(self, np.cumsum(sizes)[:-1])

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)


def torch_stand_in():
    torch = types.ModuleType("torch")
    torch.cat = lambda parts: np.concatenate(parts).view(Vector)
    torch.no_grad = lambda: np.errstate()

    def jacobian(function, point):
        columns = [complex_step(function, point, e) for e in np.eye(point.size)]
        return np.stack(columns, axis=1).view(Vector)

    torch.autograd = types.SimpleNamespace(functional=types.SimpleNamespace(jacobian=jacobian))
    return torch


def test_torch_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch_stand_in())
    start = np.zeros(4).view(Vector)
    chain = gp.from_torch_step(lambda h, x: np.tanh(W @ h + x), start, X)
    wanted = gp.linearise(gp.RNN(W), X).to_dense()
    np.testing.assert_allclose(chain.to_dense(), wanted, rtol=0, atol=1e-13)
    pair = gp.from_torch_step(lambda s, x: (np.tanh(W @ s[1] + x), s[0]), (start, start), X)
    assert pair.n == 8
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"gradprop\[torch\]"):
        gp.from_torch_step(lambda h, x: h, start, X)


def test_stored_modules_of_pytorch_by_their_attributes():
    """Weights written by torch itself, set on a stand-in: its own outputs."""
    folder = ORACLES / "frameworks"
    with np.load(folder / "outputs.npz") as stored:
        x, h = stored["x"], stored["torch/lstm/h"]
    stack = gp.load_cell(folder / "lstm.safetensors")
    module = stand_in("LSTM", n=3, d=2, layers=2)
    for k, cell in enumerate(stack.cells):
        for name, value in (
            ("weight_ih", cell.W_xh),
            ("weight_hh", cell.W_hh),
            ("bias_ih", cell.b),
        ):
            setattr(module, f"{name}_l{k}", Tensor(value))
        setattr(module, f"bias_hh_l{k}", Tensor(0 * cell.b))
    found = gp.rollout(gp.from_torch(module, layer=None), x).h[1:]
    # float32 sums of some ten terms around 1
    np.testing.assert_allclose(found, h, rtol=0, atol=1e-6)
