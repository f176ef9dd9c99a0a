"""Layers of the networks in data/weights, each with the input that its recipe gives it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp

Array = NDArray[Any]
FOLDER = Path(__file__).parent / "data" / "weights"
WORD = "pneumonoultramicroscopicsilicovolcanoconiosis"


@dataclasses.dataclass(frozen=True)
class Layer:
    """One chain: a cell, its input, what another program found along it, and where it is from."""

    name: str
    cell: Any
    x: Array
    reference: Mapping[str, Any]
    trained: bool


def layers(quick: bool = False) -> list[str]:
    """Names of all layers; of the quick form those of files below 50 kB."""
    return [layer.name for file in files(quick) for layer in of_file(file)]


def files(quick: bool = False) -> list[str]:
    """Stems of all pairs of npz and json."""
    pairs = [p for p in sorted(FOLDER.glob("*.npz")) if p.with_suffix(".json").exists()]
    return [p.stem for p in pairs if not quick or p.stat().st_size < 50_000]


def layer(name: str) -> Layer:
    """A layer by its name."""
    found = [one for one in of_file(name.partition("/")[0]) if one.name == name]
    return found[0]


@functools.lru_cache(maxsize=4)
def of_file(stem: str) -> tuple[Layer, ...]:
    """Layers of a file, bottom up: each reads the h of the one below."""
    path = FOLDER / f"{stem}.npz"
    meta = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    with np.load(path, allow_pickle=False) as stored:
        x = sequence({name: stored[name] for name in stored.files})
    trained = not str(meta.get("trained", "")).startswith("no")
    found: list[Layer] = []
    for part, cell in _cells(path, meta):
        way = x[::-1] if part.endswith("bwd") else x
        reference = _reference(meta["reference"], part, len(found), len(x))
        name = stem if not part else f"{stem}/{part}"
        found.append(Layer(name, cell, way, reference, trained))
        if not part.endswith(("fwd", "bwd")):
            x = gp.rollout(cell, x).h[1:]
    return tuple(found)


def sequence(arrays: Mapping[str, Array]) -> Array:
    """The input that the json describes, (T, d)."""
    if "x_raw" in arrays:
        return np.asarray((arrays["x_raw"] - arrays["x_mean"]) / arrays["x_std"])
    if "emb_used" in arrays:
        rows = np.searchsorted(arrays["ids_used"], arrays["ids"])
        return arrays["emb_used"][rows].astype(np.float64)
    if "emb" in arrays:
        letters = [3 + ord(letter) - ord("a") for letter in WORD]
        return arrays["emb"][[*letters, 2]].astype(np.float64)
    x = arrays["U"] if "U" in arrays else arrays["x"]
    return np.asarray(x.reshape(len(x), -1), dtype=np.float64)


def _cells(path: Path, meta: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    hard = "hard_sigmoid" in str(meta.get("recurrent_activation"))
    options = {"recurrent_activation": "hard_sigmoid"} if hard else None
    table = gp.list_cells(path)
    for prefix, convention in zip(table.prefix.tolist(), table.convention.tolist(), strict=True):
        cell: Any = gp.load_cell(
            path, convention=convention, prefix=prefix or None, options=options
        )
        if isinstance(cell, gp.Bidirectional):
            yield "fwd", cell.forward
            yield "bwd", cell.backward
        elif isinstance(cell, gp.Stacked):
            yield from ((f"{prefix}.l{i}", one) for i, one in enumerate(cell.cells))
        else:
            yield (prefix if len(table.prefix) > 1 else ""), cell


def _reference(known: Mapping[str, Any], part: str, index: int, n_steps: int) -> Mapping[str, Any]:
    """The entry of the json that belongs to a layer; empty if there is none."""
    if "log10_norm_lag" in known:
        return known
    for key in (part, f"{part}.l0", f"layer{index + 1}_hard_sigmoid", WORD, "pulses_T500"):
        if key in known and known[key]["T"] == n_steps:
            found: Mapping[str, Any] = known[key]
            return found
    return {}
