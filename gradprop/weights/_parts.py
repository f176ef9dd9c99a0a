"""A layer's arrays brought to one form: z = W x, a block of rows per gate, two biases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradprop.orbit import Array
from gradprop.weights._groups import Group, listed
from gradprop.weights._stored import Stored
from gradprop.weights._table import Convention


@dataclasses.dataclass(frozen=True)
class Part:
    """One layer in one direction; rows in the convention's own gate order, biases in float64.

    ``two_biases``: whether the recurrent product had one of its own, None if there was none at all.
    """

    kind: str
    W_hh: Array
    W_xh: Array
    b_x: Array
    b_h: Array
    two_biases: bool | None


def parts(group: Group, table: Convention, settings: Mapping[str, Any]) -> list[list[Part]]:
    """Layers, bottom first, each of one or two directions (forward first)."""
    _refuse(group, table)
    columns = settings.get("orientation", table.orientation) == "columns"
    declared = settings.get("kind"), settings.get("hidden_size")
    if table.name == "onnx":
        return [[_onnx(Stored(*way, columns, *declared)) for way in _directions(group)]]
    unpack = {"torch": _torch, "keras": _keras, "cudnn": _cudnn}[table.name]
    n_layers = 1 + max(slot.layer for slot in group.names)
    ways = sorted({slot.back for slot in group.names})
    only = settings.get("layer")
    if only is not None and only >= n_layers:
        raise ValueError(f"`layer` must be at most {n_layers - 1}; got {only}.")
    return [
        [unpack(Stored(*_arrays(group, table, layer, back), columns, *declared)) for back in ways]
        for layer in (range(n_layers) if only is None else [only])
    ]


def _refuse(group: Group, table: Convention) -> None:
    """What cannot be read, before any array is looked at."""
    for name in group.refused:
        own = table.pattern.search(name)
        what = table.refused[own["array"]] if own else ""
        raise ValueError(
            f"`{name}` is {what}; cells of this package have none: linearise such a step with "
            "CustomCell or JacobianChain.from_products."
        )
    if group.twice:
        raise ValueError(f"`mapping` must hold each array once; got {listed(group.twice)}.")


def _arrays(
    group: Group, table: Convention, layer: int, back: bool
) -> tuple[dict[str, str], dict[str, Array]]:
    """Names and arrays of one layer and direction; what is missing is named."""
    names = {s.role: name for s, name in group.names.items() if (s.layer, s.back) == (layer, back)}
    wanted = {"W_xh", "W_hh"}
    if {"b_x", "b_h"} & names.keys():
        wanted |= {"b_x", "b_h"}
    missing = [table.spell(role, layer, back) for role in wanted - names.keys()]
    if missing:
        beside = listed(group.names.values())
        raise ValueError(f"`mapping` lacks {listed(missing)} beside {beside}.")
    if "b" in names and "b_x" in names:
        raise ValueError(f"`mapping` must hold one bias or two; got {listed(names.values())}.")
    return names, {role: group.array(name) for role, name in names.items()}


def _matrices(stored: Stored) -> tuple[str, Array, Array, Array]:
    """Kind, both matrices in rows, and a bias of zeros."""
    kind, _ = stored.size()
    W_hh = stored.rows("W_hh")
    return kind, W_hh, stored.input_weights(len(W_hh)), np.zeros(len(W_hh))


def _torch(stored: Stored) -> Part:
    kind, W_hh, W_xh, zeros = _matrices(stored)
    if "b" in stored.names and kind == "GRU":
        raise ValueError(f"`mapping` lacks the second bias of a GRU; got {stored.describe('b')}.")
    if "b" in stored.names:
        return Part(kind, W_hh, W_xh, stored.vector("b", zeros.shape), zeros, False)
    if "b_x" not in stored.names:
        return Part(kind, W_hh, W_xh, zeros, zeros, None)
    b_x, b_h = (stored.vector(role, zeros.shape) for role in ("b_x", "b_h"))
    return Part(kind, W_hh, W_xh, b_x, b_h, True)


def _keras(stored: Stored) -> Part:
    kind, W_hh, W_xh, zeros = _matrices(stored)
    if "b" not in stored.names:
        return Part(kind, W_hh, W_xh, zeros, zeros, None)
    if stored.arrays["b"].shape == (2 * len(zeros),):
        raise ValueError(
            f"{stored.describe('b')} has {2 * len(zeros)} entries, twice the {len(zeros)} of "
            "Keras: the layout of CuDNN layers. Say convention='cudnn'."
        )
    if kind == "GRU" and stored.arrays["b"].ndim == 2:
        b_x, b_h = stored.vector("b", (2, len(zeros)))
        return Part(kind, W_hh, W_xh, b_x, b_h, True)
    return Part(kind, W_hh, W_xh, stored.vector("b", zeros.shape), zeros, False)


def _cudnn(stored: Stored) -> Part:
    """As Keras saves CuDNN layers: every gate's block is the matrix W itself, row by row."""
    kind, W_hh, W_xh, _ = _matrices(stored)
    n_rows, n = W_hh.shape
    if "b" not in stored.names:
        raise ValueError(f"`mapping` lacks `bias` beside {stored.describe('W_hh')}.")
    by_rows = stored.arrays["b"].shape == (2, n_rows)
    b_x, b_h = stored.vector("b", (2, n_rows) if by_rows else (2 * n_rows,)).reshape(2, n_rows)
    gates = range(0, n_rows, n)
    W_xh = np.concatenate([W_xh[g : g + n].T.reshape(n, -1) for g in gates])
    W_hh = np.concatenate([W_hh[g : g + n].T for g in gates])
    return Part(kind, W_hh, W_xh, b_x, b_h, True)


def _directions(group: Group) -> list[tuple[dict[str, str], dict[str, Array]]]:
    """Names and arrays of each direction of an ONNX layer: the first axis of all its arrays."""
    names = {slot.role: name for slot, name in group.names.items()}
    if "W_xh" not in names:
        raise ValueError(f"`mapping` lacks `W` beside {listed(names.values())}.")
    arrays = {role: group.array(name) for role, name in names.items()}
    for role, array in arrays.items():
        n_axes = 2 if role == "b" else 3
        if array.ndim != n_axes or len(array) not in (1, 2):
            raise ValueError(
                f"`{names[role]}` must have {n_axes} axes, the first of 1 or 2 directions; got "
                f"shape {array.shape}."
            )
        if len(array) != len(arrays["W_hh"]):
            raise ValueError(
                f"`{names[role]}` must have as many directions as `{names['W_hh']}` "
                f"{arrays['W_hh'].shape}; got shape {array.shape}."
            )
    ways = range(len(arrays["W_hh"]))
    return [(names, {role: array[way] for role, array in arrays.items()}) for way in ways]


def _onnx(stored: Stored) -> Part:
    kind, W_hh, W_xh, zeros = _matrices(stored)
    if "b" not in stored.names:
        return Part(kind, W_hh, W_xh, zeros, zeros, None)
    b_x, b_h = stored.vector("b", (2 * len(zeros),)).reshape(2, -1)
    return Part(kind, W_hh, W_xh, b_x, b_h, True)
