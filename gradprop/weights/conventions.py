"""A cell from a mapping of arrays, in the convention of the framework that wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradprop import _checks
from gradprop.activations import Activation
from gradprop.cells.base import Cell
from gradprop.cells.composite import Bidirectional, Stacked
from gradprop.cells.gru import GRU
from gradprop.cells.lstm import LSTM
from gradprop.cells.rnn import RNN
from gradprop.weights._groups import Group, chosen, leftover, listed
from gradprop.weights._parts import Part, parts
from gradprop.weights._settings import activations, canonical, checked
from gradprop.weights._table import CONVENTIONS, Convention


def cell_from_arrays(
    mapping: Mapping[str, Any],
    *,
    convention: str,
    prefix: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Cell:
    """Build a cell from arrays under the names, layout and gate order of a framework.

    Parameters
    ----------
    mapping : mapping of str to array_like
        A state dict, an open ``.npz``, a dict. Names may have a prefix that ends in ".", "/", "_"
        or "__". Settings may stand among the arrays.
    convention : {"torch", "keras", "onnx", "cudnn"}
        ======== ====================================== ============ ========= =================
        name     arrays                                 shape        LSTM, GRU biases
        ======== ====================================== ============ ========= =================
        torch    weight_ih_l0 weight_hh_l0 bias_ih_l0   (4n, d)      ifgo, rzn two, (4n,)
                 bias_hh_l0, ..._l1, ..._reverse; cells
                 without _l0; also W_ih W_hh b_ih b_hh
        keras    kernel recurrent_kernel bias, under    (d, 4n)      ifco, zrh (4n,); GRU with
                 forward/ backward/; also 0 1 2                        reset after (2, 3n)
        onnx     W R B, first axis directions           (D, 4n, d)   iofc, zrh (D, 8n)
        cudnn    those of Keras' CuDNNLSTM, CuDNNGRU    (d, 4n), as  ifco, zrh (8n,), (6n,)
                                                        blocks W
        ======== ====================================== ============ ========= =================
    prefix : str, optional
        Of the layer; needed where the arrays hold several.
    options : mapping, optional
        What the arrays do not say: "kind" ("RNN", "GRU", "LSTM"; else by the shape of the recurrent
        matrix), "hidden_size" or "units" (checked), "layer" (only this one of several),
        "orientation" ("rows" or "columns": a matrix stored the other way round); torch
        "nonlinearity"; keras "activation", "recurrent_activation" ("hard_sigmoid" in models of
        Keras before 2.3), "reset_after" (only needed without bias), "keras_version"; onnx
        "direction", "activations", "activation_alpha", "activation_beta", "linear_before_reset".

    Returns
    -------
    RNN, LSTM, GRU, Stacked or Bidirectional
        In float64, into which every stored format goes exactly; two biases are cast, then added.
        Several layers make a `Stacked`, two directions a `Bidirectional`. A layer that reads the
        sequence backwards is the same cell: give it the sequence reversed.

    Raises
    ------
    ValueError, TypeError
        Missing or unknown arrays (named); shapes that contradict each other or a declared size
        (both numbers named); nan (array and index); object or quantised arrays; peepholes,
        projections, clipping, activations that no cell has. Several layers of two directions: their
        second layer reads both directions of the first, so there is no one chain; ask for one
        "layer".

    Notes
    -----
    Orientation is a matter of convention, never guessed from a shape: a (36, 2) matrix is (4n, d)
    in "torch"; in (d, 4n) it is refused there unless "orientation" says so.

    Examples
    --------
    >>> import gradprop as gp
    >>> arrays = {"weight_ih": [[0.5], [1.0], [-0.8]], "weight_hh": [[0.3], [-0.6], [0.9]],
    ...           "bias_ih": [0.1, 0.2, -0.3], "bias_hh": [0.05, -0.1, 0.4]}
    >>> cell = gp.cell_from_arrays(arrays, convention="torch")
    >>> gp.step_jacobian(cell, [0.5], [1.0]).round(10).tolist()
    [[0.7277711393]]
    """
    table = CONVENTIONS[_checks.choice("convention", convention, CONVENTIONS)]
    if not isinstance(mapping, Mapping):
        raise TypeError(f"`mapping` must map names to arrays; got {type(mapping).__name__}.")
    for name in mapping:
        if not isinstance(name, str):
            raise TypeError(f"`mapping` must have names as keys; got {name!r}.")
    if prefix is not None and not isinstance(prefix, str):
        raise TypeError(f"`prefix` must be a string; got {prefix!r}.")
    group = chosen(mapping, table, prefix)
    extra = leftover(mapping, table, group.prefix)
    if extra:
        raise ValueError(
            f"`mapping` must hold only arrays of a layer (convention {table.name!r}); "
            f"{listed(extra)} is none of them."
        )
    return cell_of(group, table, canonical(table, options))


def cell_of(group: Group, table: Convention, options: Mapping[str, Any]) -> Cell:
    """The cell of one group; `options` (canonical names) go before the group's own settings."""
    settings = checked({**group.settings, **options})
    layers = parts(group, table, settings)
    if len(layers) > 1 and len(layers[0]) > 1:
        raise ValueError(
            f"{len(layers)} layers of two directions are no one chain: the second reads both "
            "directions of the first; say options={'layer': 0}, or another."
        )
    cells = [_layer(layer, table, settings) for layer in layers]
    return cells[0] if len(cells) == 1 else Stacked(cells)


def _layer(ways: list[Part], table: Convention, settings: Mapping[str, Any]) -> Cell:
    kinds = activations(table, ways[0].kind, len(ways), settings)
    built = [_cell(part, table, settings, *pair) for part, pair in zip(ways, kinds, strict=True)]
    return built[0] if len(built) == 1 else Bidirectional(*built)


def _cell(
    part: Part,
    table: Convention,
    settings: Mapping[str, Any],
    gate: str | Activation,
    activation: str | Activation,
) -> Cell:
    with np.errstate(over="ignore"):  # the cell refuses a sum that is not finite
        b = part.b_x + part.b_h
    if part.kind == "RNN":
        return RNN(part.W_hh, part.W_xh, b, activation=activation)
    order = table.orders[part.kind]
    if part.kind == "LSTM":
        return LSTM(
            part.W_hh, part.W_xh, b,
            gate_order=order, gate_activation=gate, activation=activation,
        )  # fmt: skip
    return GRU(
        part.W_hh, part.W_xh, part.b_x, part.b_h, gate_order=order,
        reset_after=_reset_after(part, table, settings),
        gate_activation=gate, activation=activation,
    )  # fmt: skip


def _reset_after(part: Part, table: Convention, settings: Mapping[str, Any]) -> bool:
    """Where the reset gate stands: told, by the convention, or in Keras by the bias's shape."""
    told: bool | None = settings.get("reset_after")
    if table.name == "onnx":
        return bool(told)
    if table.name != "keras":
        return True
    if part.two_biases is None and told is None:
        raise ValueError(
            "`reset_after` must be told for a Keras GRU without bias: options={'reset_after': ...}."
        )
    if told is not None and part.two_biases is not None and told != part.two_biases:
        raise ValueError(
            f"`reset_after` must fit the bias: {told} is declared, but the bias is that of "
            f"{part.two_biases}."
        )
    return bool(part.two_biases if told is None else told)
