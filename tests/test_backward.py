"""Backpropagation through time against PyTorch, a tape, differences, and its own laws."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import naive_cells
import numba
import numpy as np
import pytest
import tape
from helpers import ORACLES, same
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop.cells.base import Cell

Array = np.ndarray
STEPS, BATCHES = (1, 2, 3, 8), (1, 3)
BOUND = {"float64": 1e-12, "float32": 1e-5}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


@pytest.fixture(scope="module")
def torch_cases() -> MappingProxyType[str, dict[str, Array]]:
    """Stored runs of PyTorch's cells: arrays, input, output, gradients (PROVENANCE.md)."""
    cases: dict[str, dict[str, Array]] = {}
    with np.load(ORACLES / "torch_gradients.npz", allow_pickle=False) as stored:
        for name in stored.files:
            case, _, field = name.partition("/")
            cases.setdefault(case, {})[field] = stored[name]
    return MappingProxyType(cases)


def torch_cell(kind: str, case: dict[str, Array], suffix: str) -> Cell:
    """One layer and direction; biases are added in float64 and rounded back."""
    W_hh, W_xh = case[f"weight_hh_{suffix}"], case[f"weight_ih_{suffix}"]
    b_x, b_h = case[f"bias_ih_{suffix}"], case[f"bias_hh_{suffix}"]
    if kind == "gru":
        return gp.GRU(W_hh, W_xh, b_x, b_h)
    b = (b_x.astype(float) + b_h.astype(float)).astype(W_hh.dtype)
    return gp.RNN(W_hh, W_xh, b) if kind == "rnn" else gp.LSTM(W_hh, W_xh, b)


def torch_gradients(kind: str, case: dict[str, Array], suffix: str) -> dict[str, Array]:
    names = {"W_hh": "weight_hh", "W_xh": "weight_ih", "b": "bias_ih"}
    if kind == "gru":
        names = {"W_hh": "weight_hh", "W_xh": "weight_ih", "b_x": "bias_ih", "b_h": "bias_hh"}
    return {ours: case[f"d_{theirs}_{suffix}"] for ours, theirs in names.items()}


def start(kind: str, case: dict[str, Array], layer: int, prefix: str = "") -> Array:
    parts = [case[f"{prefix}h0"][layer]]
    if kind == "lstm":
        parts.append(case[f"{prefix}c0"][layer])
    return np.concatenate(parts, axis=-1)


def assert_close(ours: Array, theirs: Array, bound: float) -> None:
    """Norm-relative."""
    assert ours.shape == theirs.shape
    scale = np.linalg.norm(theirs.astype(float))
    assert np.linalg.norm(ours.astype(float) - theirs) <= bound * scale


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("B", BATCHES)
@pytest.mark.parametrize("T", STEPS)
def test_gradients_are_those_of_pytorch(torch_cases, kind, dtype, B, T):
    case = torch_cases[f"{kind}_{dtype}_{B}x{T}"]
    cell = torch_cell(kind, case, "l0")
    ours = gp.backward(cell, case["x"], case["grad_h"], h0=start(kind, case, 0))
    assert ours.x.dtype == ours.delta.dtype == ours.flat.dtype == np.dtype(dtype)
    for name, theirs in torch_gradients(kind, case, "l0").items():
        assert_close(ours.parameters[name], theirs, BOUND[dtype])
    assert_close(ours.x, case["d_x"], BOUND[dtype])
    assert_close(ours.h0, start(kind, case, 0, "d_"), BOUND[dtype])


@pytest.mark.parametrize("kind", GATES)
def test_a_stack_has_the_gradients_of_pytorch(torch_cases, kind):
    case = torch_cases[f"{kind}_float64_stack"]
    cell = gp.Stacked([torch_cell(kind, case, f"l{i}") for i in range(3)])
    h0 = np.concatenate([start(kind, case, i) for i in range(3)], axis=-1)
    ours = gp.backward(cell, case["x"], case["grad_h"], h0=h0)
    for i in range(3):
        for name, theirs in torch_gradients(kind, case, f"l{i}").items():
            assert_close(ours.parameters[f"{i}.{name}"], theirs, 1e-12)
    assert_close(ours.x, case["d_x"], 1e-12)
    d_h0 = np.concatenate([start(kind, case, i, "d_") for i in range(3)], axis=-1)
    assert_close(ours.h0, d_h0, 1e-12)


@pytest.mark.parametrize("kind", GATES)
def test_two_directions_have_the_gradients_of_pytorch(torch_cases, kind):
    case = torch_cases[f"{kind}_float64_both"]
    parts = {"forward": "l0", "backward": "l0_reverse"}
    cell = gp.Bidirectional(*(torch_cell(kind, case, suffix) for suffix in parts.values()))
    h0 = (start(kind, case, 0), start(kind, case, 1))
    np.testing.assert_allclose(gp.rollout(cell, case["x"], h0=h0).h, case["h"], atol=1e-14)
    ours = gp.backward(cell, case["x"], case["grad_h"], h0=h0)
    for part, suffix in parts.items():
        for name, theirs in torch_gradients(kind, case, suffix).items():
            assert_close(ours.parameters[f"{part}.{name}"], theirs, 1e-12)
    assert_close(ours.x, case["d_x"], 1e-12)
    d_h0 = np.concatenate([start(kind, case, i, "d_") for i in (0, 1)], axis=-1)
    assert_close(ours.h0, d_h0, 1e-12)


def weights(rng: np.random.Generator, kind: str, n: int, d_x: int) -> dict[str, Array]:
    rows = GATES[kind] * n
    arrays = {"W_hh": rng.normal(size=(rows, n)), "W_xh": rng.normal(size=(rows, d_x))}
    names = ("b_x", "b_h") if kind == "gru" else ("b",)
    return arrays | {name: rng.normal(size=rows) for name in names}


def made(kind: str, arrays: dict[str, Array], **options: Any) -> Cell:
    return {"rnn": gp.RNN, "lstm": gp.LSTM, "gru": gp.GRU}[kind](**arrays, **options)


VARIANTS = [
    ("rnn", {"leak": 0.3}),
    ("rnn", {"activation": "relu"}),
    ("lstm", {"gate_order": "iofc"}),
    ("lstm", {"gate_activation": "hard_sigmoid", "activation": "relu"}),
    ("gru", {"reset_after": False}),
    ("gru", {"reset_after": False, "gate_order": "zrh", "gate_activation": "hard_sigmoid"}),
]


def taped(cell: Cell, x: Array, grad_h: Array, h0: Array, lengths: Array) -> dict[str, Array]:
    """Gradients of sum(grad_h h) by the tape: arrays by name, h0, x (one network, B sequences)."""
    from copy import copy

    live = copy(cell)
    variables = {name: tape.Var(array) for name, array in cell.arrays().items()}
    if isinstance(cell, gp.Stacked):
        layers = []
        for i, layer in enumerate(cell.cells):
            layers.append(copy(layer))
            for name in layer.arrays():
                object.__setattr__(layers[-1], name, Taped(variables[f"{i}.{name}"]))
        object.__setattr__(live, "cells", tuple(layers))
    else:
        for name, variable in variables.items():
            object.__setattr__(live, name, Taped(variable))
    starts, inputs = [tape.Var(h) for h in h0], [[tape.Var(v) for v in row] for row in x]
    total = tape.Var(0.0)
    for b, state in enumerate(starts):
        for t in range(int(lengths[b])):
            state = naive_cells.step(live, state, inputs[b][t], ops=naive_cells.TAPE)
            total = total + (state[cell.output] * grad_h[b, t]).sum()
    tape.backward(total)
    found = {name: variable.grad for name, variable in variables.items()}
    return found | {
        "h0": np.array([v.grad for v in starts]),
        "x": np.array([[v.grad for v in row] for row in inputs]),
    }


class Taped(tape.Var):
    """A variable that passes for the array of a cell."""

    def __init__(self, variable: tape.Var) -> None:
        super().__init__(variable.value, (variable, lambda g: g))


def assert_gradients(ours: gp.Gradients, theirs: dict[str, Array], bound: float) -> None:
    for name, array in theirs.items():
        mine = getattr(ours, name) if name in ("h0", "x") else ours.parameters[name]
        assert_close(mine, array, bound)


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
@pytest.mark.parametrize("T", STEPS)
def test_every_variant_has_the_gradients_of_the_tape(kind, options, T):
    rng = np.random.default_rng(T)
    cell = made(kind, weights(rng, kind, 4, 3), **options)
    x, h0 = rng.normal(size=(3, T, 3)), rng.normal(size=(3, cell.n_state))
    lengths = np.array([T, max(T - 2, 0), T])
    grad_h = rng.normal(size=(3, T, 4)) * (np.arange(T) < lengths[:, None])[..., None]
    ours = gp.backward(cell, x, grad_h, h0=h0, lengths=lengths)
    assert_gradients(ours, taped(cell, x, grad_h, h0, lengths), 1e-12)


@pytest.mark.parametrize(("kind", "options"), [*VARIANTS, ("lstm", {}), ("gru", {})])
def test_sizes_beyond_one_tile_have_the_gradients_of_the_tape(kind, options):
    """Rows, units and inputs that fill tiles of products and leave some; sums of several parts."""
    rng = np.random.default_rng(13)
    B, T, n, d_x = 17, 11, 37, 19
    arrays = {k: v / np.sqrt(n) for k, v in weights(rng, kind, n, d_x).items()}
    cell = made(kind, arrays, **options)
    x, h0 = rng.normal(size=(B, T, d_x)), rng.normal(size=(B, cell.n_state))
    lengths = rng.integers(0, T + 1, size=B)
    lengths[:2] = 0, T
    grad_h = rng.normal(size=(B, T, n)) * (np.arange(T) < lengths[:, None])[..., None]
    ours = gp.backward(cell, x, grad_h, h0=h0, lengths=lengths)
    assert_gradients(ours, taped(cell, x, grad_h, h0, lengths), 1e-12)
    whole = gp.backward(cell, x, grad_h, h0=h0)  # no padding: the other way of checking
    assert_gradients(whole, taped(cell, x, grad_h, h0, np.full(B, T)), 1e-12)


def mixed_stack(rng: np.random.Generator) -> gp.Stacked:
    return gp.Stacked(
        [
            made("rnn", weights(rng, "rnn", 4, 3), leak=0.6),
            made("lstm", weights(rng, "lstm", 3, 4)),
            made("gru", weights(rng, "gru", 5, 3), reset_after=False),
        ]
    )


def test_a_mixed_stack_has_the_gradients_of_the_tape():
    rng = np.random.default_rng(5)
    cell = mixed_stack(rng)
    x, h0 = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, cell.n_state))
    lengths = np.array([6, 4])
    grad_h = rng.normal(size=(2, 6, 5)) * (np.arange(6) < lengths[:, None])[..., None]
    ours = gp.backward(cell, x, grad_h, h0=h0, lengths=lengths)
    assert_gradients(ours, taped(cell, x, grad_h, h0, lengths), 1e-12)


@pytest.mark.parametrize("kind", GATES)
def test_central_differences(kind):
    """Exercise 6: h = 1e-6, |difference|/max(1, |g|) < 1e-6, in float64."""
    rng = np.random.default_rng(1)
    arrays = {k: v / 2 for k, v in weights(rng, kind, 3, 2).items()}
    x, grad_h, h = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 3)), 1e-6
    ours = gp.backward(made(kind, arrays), x, grad_h)

    def loss(changed: dict[str, Array]) -> float:
        return float((gp.rollout(made(kind, changed), x).h[:, 1:] * grad_h).sum())

    for name, array in arrays.items():
        for index in np.ndindex(array.shape):
            ends = []
            for sign in (1, -1):
                moved = array.copy()
                moved[index] += sign * h
                ends.append(loss({**arrays, name: moved}))
            g = ours.parameters[name][index]
            assert abs((ends[0] - ends[1]) / (2 * h) - g) / max(1.0, abs(g)) < 1e-6


def by_hand(cell: gp.RNN, x: Array, grad_h: Array, fault: str = "") -> Array:
    """dL/dW_hh of one sequence in explicit loops, right or with one of three known faults."""
    orbit = gp.rollout(cell, x)
    slope = 1 / np.cosh(orbit.h[1:] if fault == "slope at h" else orbit.z) ** 2
    T, total = len(x), np.zeros_like(cell.W_hh)
    for s in range(T):
        for t in range(s + 1):  # the loss of step s through the weights of step t
            order = range(s, t, -1)
            if fault == "forward order":
                order = range(t + 1, s + 1)
            v = grad_h[s]
            for k in order:
                v = (slope[k][:, None] * cell.W_hh).T @ v
            if fault != "last step only" or t == s:
                total += np.outer(slope[t] * v, orbit.h[t])
    return total


@pytest.mark.parametrize("fault", ["", "last step only", "forward order", "slope at h"])
def test_the_checks_see_the_classic_faults(fault):
    """The right hand-written BPTT passes the test that each faulty one must fail."""
    rng = np.random.default_rng(2)
    arrays = weights(rng, "rnn", 4, 3)
    cell = made("rnn", arrays)
    x, grad_h = rng.normal(size=(1, 8, 3)), rng.normal(size=(1, 8, 4))
    theirs = taped(cell, x, grad_h, np.zeros((1, 4)), np.array([8]))["W_hh"]
    difference = np.linalg.norm(by_hand(cell, x[0], grad_h[0], fault) - theirs)
    assert (difference <= 1e-12 * np.linalg.norm(theirs)) == (fault == "")
    if fault:
        assert difference > 1e-3 * np.linalg.norm(theirs)


def test_unrolled_feed_forward_network_with_tied_layers():
    """T layers with weights of their own: the recurrent gradient is the sum of theirs."""
    rng = np.random.default_rng(3)
    arrays = weights(rng, "rnn", 4, 3)
    x, grad_h = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    layers = [{name: tape.Var(a) for name, a in arrays.items()} for _ in range(5)]
    h, total = tape.Var(np.zeros(4)), tape.Var(0.0)
    for t, layer in enumerate(layers):
        h = tape.tanh(layer["W_hh"] @ h + layer["W_xh"] @ x[t] + layer["b"])
        total = total + (h * grad_h[t]).sum()
    tape.backward(total)
    ours = gp.backward(made("rnn", arrays), x, grad_h)
    for name in arrays:
        assert_close(ours.parameters[name], sum(layer[name].grad for layer in layers), 1e-13)


TRUNCATED = {None: 26.39010709, 1: 6.12579511, 2: 11.25159022, 3: 6.12579511, 5: 21.57997555,
             10: 26.39010709, 99: 26.39010709}  # fmt: skip


@pytest.mark.parametrize("window", TRUNCATED)
def test_truncated_worked_example(window):
    """h_t = 0.9 h_{t-1} + 1, h_0 = 0, T = 10, loss h_10, derivative by the 0.9."""
    cell = gp.RNN([[0.9]], b=[1.0], activation="linear")
    last = np.eye(10)[:, -1:]
    ours = gp.backward(cell, np.zeros((10, 1)), last, window=window)
    assert abs(ours.parameters["W_hh"].item() - TRUNCATED[window]) < 1e-8


def test_scalar_worked_example():
    """h_t = tanh(x_t + 0.5 h_{t-1}), x = (1, 0, -1), d h_3 / d h_0, to 1e-12."""
    cell = gp.RNN([[0.5]], [[1.0]])
    ours = gp.backward(cell, [1.0, 0.0, -1.0], [[0.0], [0.0], [1.0]])
    assert abs(ours.h0.item() - 0.02485660224538170) < 1e-12


@pytest.mark.parametrize("kind", GATES)
def test_window_is_chunks_that_pass_the_state_and_no_gradient(kind):
    rng = np.random.default_rng(4)
    cell = made(kind, weights(rng, kind, 4, 3))
    x, grad_h = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 7, 4))
    ours = gp.backward(cell, x, grad_h, window=3)
    states = gp.rollout(cell, x).state
    chunks = [
        gp.backward(cell, x[:, a:b], grad_h[:, a:b], h0=states[:, a])
        for a, b in ((0, 3), (3, 6), (6, 7))
    ]
    assert_close(ours.flat, sum(chunk.flat for chunk in chunks), 1e-12)
    assert_close(ours.x, np.concatenate([chunk.x for chunk in chunks], axis=1), 1e-12)
    assert_close(ours.h0, chunks[0].h0, 1e-12)


CELLS = [(kind, {}) for kind in GATES] + [("gru", {"reset_after": False})]


@pytest.mark.parametrize(("kind", "options"), CELLS)
@given(seed=st.integers(0, 2**32), B=st.integers(1, 4), T=st.integers(1, 9), n=st.integers(1, 5))
def test_laws_of_batches_and_pieces(kind, options, seed, B, T, n):
    """Batch = one by one; two pieces, the gradient handed over at the seam, = one run."""
    rng = np.random.default_rng(seed)
    cell = made(kind, weights(rng, kind, n, 2), **options)
    x, grad_h = rng.normal(size=(B, T, 2)), rng.normal(size=(B, T, n))
    h0 = rng.normal(size=(B, cell.n_state))
    whole = gp.backward(cell, x, grad_h, h0=h0)
    alone = [gp.backward(cell, x[b], grad_h[b], h0=h0[b]) for b in range(B)]
    # cancellation between sequences counts against the sum of their norms
    scale = sum(np.linalg.norm(g.flat) for g in alone)
    assert np.linalg.norm(whole.flat - sum(g.flat for g in alone)) <= 1e-12 * scale
    assert_close(whole.x, np.array([g.x for g in alone]), 1e-12)
    assert_close(whole.delta, np.array([g.delta for g in alone]), 1e-12)
    cut = T // 2
    if cut == 0 or kind == "lstm":  # the seam of an LSTM carries c, which no grad_h reaches
        return
    seam = gp.rollout(cell, x[:, :cut], h0=h0).state[:, -1]
    late = gp.backward(cell, x[:, cut:], grad_h[:, cut:], h0=seam)
    handed = grad_h[:, :cut].copy()
    handed[:, -1] += late.h0
    early = gp.backward(cell, x[:, :cut], handed, h0=h0)
    scale = np.linalg.norm(early.flat) + np.linalg.norm(late.flat)
    assert np.linalg.norm(whole.flat - early.flat - late.flat) <= 1e-12 * scale
    assert_close(whole.h0, early.h0, 1e-12)


@pytest.mark.parametrize(("kind", "options"), CELLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("junk", [1e30, np.nan, np.inf])
def test_padding_changes_no_bit(kind, options, dtype, junk):
    rng = np.random.default_rng(6)
    arrays = {k: v.astype(dtype) for k, v in weights(rng, kind, 4, 3).items()}
    cell = made(kind, arrays, **options)
    lengths = np.array([6, 2, 0])
    inside = (np.arange(6) < lengths[:, None])[..., None]
    x = rng.normal(size=(3, 6, 3)).astype(dtype)
    grad_h = np.where(inside, rng.normal(size=(3, 6, 4)), 0).astype(dtype)
    clean, dirty = np.where(inside, x, 0).astype(dtype), np.where(inside, x, junk).astype(dtype)
    a, b = (gp.backward(cell, v, grad_h, lengths=lengths) for v in (clean, dirty))
    for name in ("flat", "h0", "x", "delta"):
        assert same(getattr(a, name), getattr(b, name)), name
    assert same(gp.rollout(cell, clean, lengths=lengths).state,
                gp.rollout(cell, dirty, lengths=lengths).state)  # fmt: skip
    outside = ~np.broadcast_to(inside, a.x.shape)
    assert not a.x[outside].any()


def test_networks_on_replica_axes_get_gradients_of_their_own():
    rng = np.random.default_rng(7)
    shared = weights(rng, "lstm", 3, 2)
    W_hh = rng.normal(size=(4, 1, 12, 3))
    cell = gp.LSTM(W_hh, shared["W_xh"], shared["b"])
    x, grad_h = rng.normal(size=(5, 6, 2)), rng.normal(size=(4, 5, 6, 3))
    ours = gp.backward(cell, x, grad_h)
    assert ours.parameters["W_hh"].shape == (4, 1, 12, 3)
    singles = [
        gp.backward(gp.LSTM(W_hh[k, 0], shared["W_xh"], shared["b"]), x, grad_h[k])
        for k in range(4)
    ]
    for k, single in enumerate(singles):
        assert_close(ours.parameters["W_hh"][k, 0], single.parameters["W_hh"], 1e-13)
    for name in ("W_xh", "b"):
        assert_close(ours.parameters[name], sum(g.parameters[name] for g in singles), 1e-12)
    assert_close(ours.x, np.array([g.x for g in singles]), 1e-13)


def test_networks_of_one_direction_are_as_one_at_a_time():
    rng = np.random.default_rng(5)
    ahead = gp.RNN(rng.normal(size=(3, 3)) / 2, rng.normal(size=(3, 2)))
    back = [gp.GRU(**weights(rng, "gru", 4, 2)) for _ in range(5)]
    stacked = {name: np.stack([b.arrays()[name] for b in back]) for name in back[0].arrays()}
    x, grad_h = rng.normal(size=(6, 2)), rng.normal(size=(5, 6, 7))
    both = gp.backward(gp.Bidirectional(ahead, gp.GRU(**stacked)), x, grad_h)
    alone = [
        gp.backward(gp.Bidirectional(ahead, b), x, g) for b, g in zip(back, grad_h, strict=True)
    ]
    assert_close(both.x, np.stack([one.x for one in alone]), 1e-14)
    for name, total in both.parameters.items():
        each = np.stack([one.parameters[name] for one in alone])
        assert_close(total, each.sum(axis=0) if name.startswith("forward") else each, 1e-13)
    with pytest.raises(ValueError, match=r"`grad_h` must have shape \(5, 6, 7\).*\(6, 7\)"):
        gp.backward(gp.Bidirectional(ahead, gp.GRU(**stacked)), x, grad_h[0])


def test_networks_whose_sequences_lie_between_those_of_others():
    rng = np.random.default_rng(12)
    W, x, grad_h = (
        rng.normal(size=(2, 3, 3)),
        rng.normal(size=(4, 1, 6, 3)),
        rng.normal(size=(4, 2, 6, 3)),
    )
    ours = gp.backward(gp.RNN(W), x, grad_h)
    for k in range(2):
        alone = gp.backward(gp.RNN(W[k]), x[:, 0], grad_h[:, k])
        for name in ("x", "h0", "delta"):
            assert_close(getattr(ours, name)[:, k], getattr(alone, name), 1e-13)


def test_ones_own_activation():
    phi = numba.njit(lambda z: z / (1 + abs(z)))
    dphi = numba.njit(lambda z: 1 / (1 + abs(z)) ** 2)
    softsign = gp.Activation("softsign", phi, dphi, (0.0, 1.0))
    rng = np.random.default_rng(8)
    x, grad_h = rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 4))
    for kind, options in CELLS:
        cell = made(kind, weights(rng, kind, 4, 3), activation=softsign, **options)
        h0 = rng.normal(size=(2, cell.n_state))
        ours = gp.backward(cell, x, grad_h, h0=h0)
        assert_gradients(ours, taped(cell, x, grad_h, h0, np.array([5, 5])), 1e-12)
    # gates that are not one's own keep 1 - u, of which 1 - float(u) has no digit
    beside = gp.GRU(
        np.zeros((3, 1)), np.zeros((3, 1)), [0, 40, 1], np.zeros(3), activation=softsign
    )
    b_x, passed = gp.backward(beside, [[0.0]], [[1.0]]).parameters["b_x"], 1 / (1 + np.exp(40))
    assert b_x.tolist() == pytest.approx([0, -passed / 2, passed / 4], rel=1e-14, abs=0)


@pytest.mark.parametrize("reset_after", [True, False])
@pytest.mark.parametrize(("dtype", "z"), [("float64", 40.0), ("float64", 700.0), ("float32", 80.0)])
def test_an_update_gate_near_one_leaves_what_it_lets_through(reset_after, dtype, z):
    # h = (1 - u) phi(c) from h = 0: 1 - u = 1 / (1 + e^z), which 1 - float(u) has no digit of
    zeros, b = np.zeros((3, 1), dtype), np.array([0.0, z, 0.5], dtype)
    cell = gp.GRU(zeros, zeros, b, 0 * b, reset_after=reset_after)
    ours = gp.backward(cell, np.zeros((1, 1), dtype), np.ones((1, 1), dtype))
    passed, rel = 1 / (1 + np.exp(z)), 20 * float(np.finfo(dtype).eps)
    h = gp.rollout(cell, np.zeros((1, 1), dtype)).h[1, 0]
    assert h == pytest.approx(passed * np.tanh(0.5), rel=rel, abs=0)
    _, b_z, b_n = ours.parameters["b_x"]
    assert b_n == pytest.approx(passed / np.cosh(0.5) ** 2, rel=rel, abs=0)
    assert b_z == pytest.approx(-passed * np.tanh(0.5), rel=rel, abs=0)


def test_what_float32_cannot_hold_is_refused():
    cell = gp.RNN(np.eye(1, dtype="f4"), np.ones((1, 1), "f4"))
    one = np.ones((2, 1))
    for grad_h, word in ((1e60 * one, "1e\\+60"), (1e-60 * one, "1e-60")):
        with pytest.raises(ValueError, match=f"`grad_h` must lie in the range of float32.*{word}"):
            gp.backward(cell, one, grad_h)
    with pytest.raises(ValueError, match="`x` must lie in the range of float32"):
        gp.backward(cell, 1e60 * one, one)
    assert gp.backward(cell, one, [[1e-60], [1.0]]).flat.dtype == np.float32


def test_a_gradient_out_of_range_is_not_finite():
    huge = gp.LSTM(np.full((4, 1), 1e200), np.zeros((4, 1)), np.zeros(4))
    assert not np.isfinite(gp.backward(huge, np.zeros((3, 1)), np.ones((3, 1))).h0).all()


def test_autonomous_and_input_without_weights():
    rng = np.random.default_rng(9)
    W, h0, grad_h = rng.normal(size=(3, 3)), rng.normal(size=(1, 3)), rng.normal(size=(1, 4, 3))
    free = gp.backward(gp.RNN(W), None, grad_h, h0=h0)
    zero = gp.backward(gp.RNN(W), np.zeros((1, 4, 3)), grad_h, h0=h0)
    assert free.x.shape == (1, 4, 0)
    assert same(free.flat, zero.flat)
    # without W_xh the input is added to z: its gradient is delta
    assert same(zero.x, zero.delta)


def test_loss_gradient_as_a_function_of_h():
    rng = np.random.default_rng(10)
    cell = mixed_stack(rng)
    x, target = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 5))
    h = gp.rollout(cell, x).h[:, 1:]
    given_h = gp.backward(cell, x, lambda h: h - target)
    assert_close(given_h.flat, gp.backward(cell, x, h - target).flat, 1e-13)


@pytest.mark.parametrize(("kind", "options"), CELLS)
def test_a_loss_function_sees_the_last_valid_h_in_padded_steps(kind, options):
    rng, seen = np.random.default_rng(13), []
    cell = made(kind, weights(rng, kind, 4, 3), **options)
    x, lengths = rng.normal(size=(3, 6, 3)), [6, 2, 0]

    def loss_gradient(h):
        seen.append(h.copy())
        h[:] = 0.0  # its own copy: the states of the pass stay as they are
        return h

    gp.backward(cell, x, loss_gradient, lengths=lengths)
    assert_close(seen[0], gp.rollout(cell, x, lengths=lengths).h[:, 1:], 1e-13)


def test_result_is_read_only_and_survives_a_file(tmp_path):
    cell = gp.RNN(np.eye(2), np.eye(2))
    ours = gp.backward(cell, np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="read-only"):
        ours.parameters["W_hh"][0, 0] = 1.0
    ours.save(tmp_path / "g.npz")
    back = gp.Gradients.load(tmp_path / "g.npz")
    assert list(back.parameters) == ["W_hh", "W_xh"]
    assert same(back.parameters["W_xh"], ours.parameters["W_xh"])
    frame = ours.to_frame()
    assert frame["name"].tolist() == ["W_hh", "W_xh"]
    assert frame["size"].tolist() == [4, 4]


X = np.zeros((2, 5, 3))
G = np.zeros((2, 5, 4))
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("shape", {"grad_h": np.zeros((2, 5, 3))}, r"`grad_h` must have shape .*T, 4"),
    ("steps", {"grad_h": np.zeros((2, 4, 4))}, r"`grad_h` must have shape \(2, 5, 4\)"),
    ("nan", {"grad_h": np.full((2, 5, 4), np.nan)}, "`grad_h` must be finite"),
    ("lengths", {"lengths": [6, 1]}, r"`lengths` must lie in 0\.\.5; got 6"),
    ("fraction", {"lengths": [1.5, 1]}, "`lengths` must hold integers"),
    ("window", {"window": 0}, "`window` must be at least 1; got 0"),
    ("wide", {"window": 10**30}, "`window` must be at most 9007199254740992"),
    ("padded", {"grad_h": np.ones((2, 5, 4)), "lengths": [5, 2]},
     r"zero in padded steps; it is not at step 3 of sequence \(1,\), which has length 2"),
    ("batch", {"x": np.zeros((0, 5, 3)), "grad_h": np.zeros((0, 5, 4))}, "must not be empty"),
    ("start", {"h0": np.zeros((2, 3))}, "`h0` must have shape"),
    ("x", {"x": None, "h0": None}, "`x` None needs `h0`"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input(changes, message):
    cell = gp.RNN(np.eye(4), np.ones((4, 3)))
    arguments = {"x": X, "grad_h": G, **changes}
    x, grad_h = arguments.pop("x"), arguments.pop("grad_h")
    with pytest.raises((ValueError, TypeError), match=message):
        gp.backward(cell, x, grad_h, **arguments)


def test_an_orbit_that_overflows_names_the_step():
    cell = gp.RNN([[1e200]], activation="linear")
    with pytest.raises(ValueError, match=r"overflows float64 at step 2 of sequence \(\)"):
        gp.backward(cell, np.ones((4, 1)), np.ones((4, 1)), h0=[1.0])


def test_cells_without_known_parameters_are_refused():
    step = numba.njit(lambda h, x: 0.5 * h)
    with pytest.raises(TypeError, match="made of RNN, LSTM and GRU"):
        gp.backward(gp.CustomCell(step, 1), np.ones((4, 1)), np.ones((4, 1)))


def test_the_result_does_not_depend_on_threads():
    rng = np.random.default_rng(11)
    cell = made("gru", weights(rng, "gru", 16, 3))
    x, grad_h = rng.normal(size=(9, 20, 3)), rng.normal(size=(9, 20, 16))
    before = numba.get_num_threads()
    found = []
    try:
        for threads in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(threads)
            found.append(gp.backward(cell, x, grad_h).flat)
    finally:
        numba.set_num_threads(before)
    assert same(*found)


@pytest.mark.parametrize(("kind", "options"), [*CELLS, ("rnn", {"activation": "relu"})])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", [0, 3, 6])
def test_what_is_not_finite_is_refused_wherever_it_stands(kind, options, bad, step):
    """Found by the sums over steps, and named as by a look at every entry."""
    rng = np.random.default_rng(14)
    arrays = weights(rng, kind, 4, 3)
    arrays[{"gru": "b_x"}.get(kind, "b")] -= 50  # units that are dead or shut: slopes of zero
    cell = made(kind, arrays, **options)
    x, grad_h = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 7, 4))
    spoilt, broken = x.copy(), grad_h.copy()
    spoilt[1, step, 2] = broken[1, step, 2] = bad
    with pytest.raises(ValueError, match=rf"`x` must be finite; it is not at step {step + 1}"):
        gp.backward(cell, spoilt, grad_h)
    with pytest.raises(
        ValueError, match=rf"`grad_h` must be finite; got {bad} at index \(1, {step}"
    ):
        gp.backward(cell, x, broken)
    with pytest.raises(ValueError, match="`grad_h` must be finite"):
        gp.backward(cell, spoilt, broken)


@pytest.mark.parametrize("last", [False, True])
def test_an_orbit_that_overflows_is_refused(last):
    rng = np.random.default_rng(15)
    cell = gp.RNN([[1e200]], [[1.0]], activation="linear")
    steps, h0 = 2 if last else 5, [[1e100]] * 3
    match = "the orbit must stay finite; it overflows float64 at step 2 of sequence"
    with pytest.raises(ValueError, match=match):
        gp.backward(cell, np.ones((3, steps, 1)), rng.normal(size=(3, steps, 1)), h0=h0)
    lstm = gp.LSTM(
        np.zeros((4, 1)), np.ones((4, 1)), [50.0, 50.0, 1e308, 50.0], activation="linear"
    )
    with pytest.raises(ValueError, match="it overflows float64 at step 2 "):
        gp.backward(lstm, np.ones((1, steps, 1)), np.zeros((1, steps, 1)))


def test_gradients_that_overflow_are_no_error():
    cell = gp.RNN([[1e30]], [[1.0]], activation="linear")
    zeros = np.zeros((1, 20, 1))
    found = gp.backward(cell, zeros, zeros + 1.0)
    assert np.isinf(found.h0).all()
    assert np.isinf(found.x[0, 0]).all()
