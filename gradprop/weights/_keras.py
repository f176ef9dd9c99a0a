"""What a Keras file calls its layers, and what its configuration says about them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

_KINDS = {"SimpleRNN": "RNN", "GRU": "GRU", "LSTM": "LSTM", "CuDNNGRU": "GRU", "CuDNNLSTM": "LSTM"}
_KEPT = ("units", "activation", "recurrent_activation", "reset_after")
_NUMBERED = {"0": "kernel", "1": "recurrent_kernel", "2": "bias"}
_CONTAINERS = {"layers", "cell", "vars", "model_weights", "_layer_checkpoint_dependencies"}
_WAY = re.compile(r"(forward|backward)_")
UNKNOWN = "not found in this file's configuration"
"""Stands for the activation of a layer whose settings could not be attributed to it."""


def keras_mapping(stored: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Arrays as ``layer/kernel`` or ``layer/backward/kernel``, and each layer's settings.

    Weights saved alone have no configuration: their layers have Keras' defaults.
    """
    arrays = {name: value for name, value in stored.items() if not name.startswith("@")}
    short = {name: _short(name) for name in arrays}
    # two cells in one layer: only the whole path tells them apart
    count = Counter(short.values())
    mapping: dict[str, Any] = {
        own if count[own] == 1 else name: arrays[name] for name, own in short.items()
    }
    if "@config" not in stored:
        return mapping
    model, version = json.loads(str(stored["@config"])), str(stored.get("@version", ""))
    counted = any(name.startswith("layers/") for name in arrays)
    settings = dict(_layers(model, counted, ""))
    recurrent = {
        name.removesuffix("/recurrent_kernel")
        for name in mapping
        if name.endswith("/recurrent_kernel")
    }
    for layer in {re.sub(r"/(forward|backward)$", "", name) for name in recurrent}:
        said = settings.get(layer, {"activation": UNKNOWN}) | {"keras_version": version}
        mapping |= {f"{layer}/{key}": value for key, value in said.items()}
    return mapping


def _short(name: str) -> str:
    """``layers/lstm/cell/vars/0`` and ``lstm/lstm/lstm_cell/kernel:0`` are ``lstm/kernel``."""
    *path, own = name.removesuffix(":0").split("/")
    numbered = path[-1:] == ["vars"]
    if path[-2:] == ["cell", "vars"]:  # those of a dense layer stand in no cell
        own = _NUMBERED.get(own, own)
    parts = [part for part in path if part not in _CONTAINERS]
    ways = [match[1] for part in parts if (match := _WAY.match(part))]
    layer = [part for part in parts if not _WAY.match(part)]
    # elsewhere the first part is the layer's name, and the rest repeats it
    return "/".join([*(layer if numbered else layer[:1]), *ways[:1], own])


def _layers(model: Any, counted: bool, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name in the file, and settings, of every recurrent layer at any depth of the model.

    Keras 3 names a layer in its own formats by class and count; HDF5 models by the layer's name.
    """
    counts: Counter[str] = Counter()
    for layer in model["config"]["layers"]:
        kind, inner = layer["class_name"], layer["config"]
        snake = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)
        snake = re.sub("([a-z])([A-Z])", r"\1_\2", snake).lower()
        number = counts[snake]
        counts[snake] += 1
        own_name = f"{snake}_{number}" if number else snake
        name = where + (own_name if counted else str(inner.get("name", layer.get("name"))))
        if "layers" in inner:
            yield from _layers(layer, counted, f"{name}/")
        own = inner["layer"] if kind == "Bidirectional" else layer
        own = own["config"].get("cell", own)
        if own["class_name"].removesuffix("Cell") in _KINDS:
            said = {key: own["config"][key] for key in _KEPT if key in own["config"]}
            yield name, said | {"kind": _KINDS[own["class_name"].removesuffix("Cell")]}
