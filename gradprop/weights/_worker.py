"""Run as a script in a child process: parse one foreign file, write its arrays as ``.npz``.

Called with the kind of file, its path, that of the result, the bytes the result may have and the
seconds it may take. It imports nothing of this package, so that it starts fast; it never runs what
a file holds. The names of the arrays are percent-encoded.
"""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import numpy as np

REFUSED, NO_MEMORY = 3, 4
"""Exit codes: a sentence for the user is on stderr; the memory limit was met."""
EXTERNAL = 1
"""ONNX's mark of a tensor whose numbers stand in another file."""


def limit_resources(result_bytes: int, seconds: int) -> None:
    """Cap what this process may still take; a system without such limits has only the timeout."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (result_bytes, result_bytes))
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    # with what the result may have: four times the file and less than 100 MB
    address_space = used + 2 * result_bytes + 60 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))


def keras_arrays(path: str) -> dict[str, Any]:
    """Datasets of an HDF5 file, or of the one inside a ``.keras`` archive; texts under "@"."""
    import h5py

    texts: dict[str, Any] = {}
    source: Any = path
    if zipfile.is_zipfile(path):
        members = _keras_members(path)
        texts["@config"] = members["config.json"].decode()
        texts["@version"] = json.loads(members["metadata.json"])["keras_version"]
        source = io.BytesIO(members["model.weights.h5"])
    with h5py.File(source, "r") as file:
        for ours, theirs in (("@config", "model_config"), ("@version", "keras_version")):
            for holder in (file, file.get("model_weights", file)):
                value = holder.attrs.get(theirs)
                if value is not None:
                    texts[ours] = value.decode() if isinstance(value, bytes) else str(value)
        datasets = dict(_datasets(file, h5py))
    return {name: np.array(str(text)) for name, text in texts.items()} | datasets


def _keras_members(path: str) -> dict[str, bytes]:
    """The three members of a ``.keras`` archive, none larger than the archive can honestly hold."""
    limit, members = 2 * os.path.getsize(path) + 2**24, {}
    with zipfile.ZipFile(path) as archive:
        for name in ("config.json", "metadata.json", "model.weights.h5"):
            entry = archive.getinfo(name)
            stored_or_deflated = entry.compress_type in (0, 8)
            if entry.file_size > limit or not stored_or_deflated:
                raise ValueError(f"is damaged: its {name} of {entry.file_size} bytes.")
            with archive.open(entry) as member:
                members[name] = member.read(entry.file_size + 1)
    return members


def _datasets(file: Any, h5py: Any) -> Iterator[tuple[str, Any]]:
    """All arrays of numbers in the file itself: no links to others, no group twice."""
    pending, seen = [("", file)], {hash(file.id)}
    while pending:
        where, group = pending.pop(0)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item, path = group[name], f"{where}/{name}".lstrip("/")
            if isinstance(item, h5py.Group):
                if hash(item.id) not in seen and not path.startswith("optimizer"):
                    seen.add(hash(item.id))
                    pending.append((path, item))
            elif isinstance(item, h5py.Dataset) and _holds_numbers(item):
                yield path, item[()]


def _holds_numbers(dataset: Any) -> bool:
    """Whether its numbers stand in this very file."""
    return dataset.dtype.kind in "biuf" and not (dataset.external or dataset.is_virtual)


def onnx_arrays(path: str) -> dict[str, Any]:
    """Weights and attributes of every RNN, GRU and LSTM node, and all other initialisers.

    A node whose weights the graph computes has only its attributes here.
    """
    import onnx

    pending, nodes = [onnx.load(path, load_external_data=False).graph], []
    tensors: dict[str, Any] = {}
    while pending:
        graph = pending.pop()
        nodes += graph.node
        tensors |= {tensor.name: tensor for tensor in graph.initializer}
        for attribute in (a for node in graph.node for a in node.attribute):
            pending += [attribute.g] if attribute.HasField("g") else []
    for node in (node for node in nodes if node.op_type == "Constant"):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensors[node.output[0]] = attribute.t
    found: dict[str, Any] = {}
    used: set[str] = set()
    for index, node in enumerate(nodes):
        if node.op_type in ("RNN", "GRU", "LSTM"):
            name = node.name or f"{node.op_type}_{index}"
            found |= {f"{name}/{key}": v for key, v in _node(node, tensors, onnx).items()}
            used |= set(node.input)
        elif "LSTM" in node.op_type:
            raise ValueError(f"has a node {node.op_type}: only RNN, GRU and LSTM can be read.")
    others = (t for name, t in tensors.items() if name and name not in {*used, *found})
    here = (t for t in others if t.dims and t.data_location != EXTERNAL)
    return found | {tensor.name: _dense(tensor, onnx) for tensor in here}


def _node(node: Any, tensors: dict[str, Any], onnx: Any) -> dict[str, Any]:
    """Attributes of one node, and its weights if all of them are stored."""
    found: dict[str, Any] = {"kind": np.array(node.op_type)}
    for attribute in node.attribute:
        if attribute.name != "layout":  # only of the input and the output
            found[attribute.name] = _setting(onnx.helper.get_attribute_value(attribute))
    names = dict(zip(("X", "W", "R", "B", "lengths", "h", "c", "P"), node.input, strict=False))
    weights = {own: names[own] for own in "WRBP" if names.get(own)}
    if set(weights.values()) <= tensors.keys():
        found |= {own: _dense(tensors[name], onnx) for own, name in weights.items()}
    return found


def _setting(value: Any) -> Any:
    """An attribute as array; texts are bytes in ONNX."""
    if isinstance(value, bytes):
        return np.array(value.decode())
    if isinstance(value, list | tuple):
        return np.array([v.decode() if isinstance(v, bytes) else v for v in value])
    return np.array(value)


def _dense(tensor: Any, onnx: Any) -> Any:
    if tensor.data_location == EXTERNAL:
        raise ValueError(
            f"keeps tensor {tensor.name!r} in another file, which is not opened: save the model in "
            "one file (torch.onnx.export(..., external_data=False))."
        )
    array = onnx.numpy_helper.to_array(tensor)
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def torch_arrays(path: str) -> dict[str, Any]:
    """Tensors of a state dict, at any depth of nested dicts; never more than weights."""
    import torch

    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            "is damaged, or not a file of weights alone: save model.state_dict(), not the model."
        ) from error
    found: dict[str, Any] = {}
    pending = [("", stored)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, dict):
            pending += [(f"{where}.{key}".lstrip("."), value) for key, value in item.items()]
        elif hasattr(item, "detach") and not item.is_quantized and not item.is_sparse:
            item = item.detach()
            found[where] = (item.float() if item.dtype == torch.bfloat16 else item).numpy()
        elif hasattr(item, "detach"):
            raise ValueError(f"holds {where!r} quantised or sparse: make it dense float32 first.")
    return found


def write_arrays(result: str, arrays: dict[str, Any]) -> None:
    """Write ``.npz`` without objects, names percent-encoded."""
    with zipfile.ZipFile(result, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{quote(name, safe='')}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)


READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "keras": keras_arrays,
    "onnx": onnx_arrays,
    "torch": torch_arrays,
}
PARSERS = {"keras": ("h5py",), "onnx": ("onnx", "onnx.numpy_helper"), "torch": ("torch",)}
"""Imported before the memory is capped, for their own size is not the file's."""


def main(kind: str, path: str, result: str, result_bytes: str, seconds: str) -> None:
    """Read `path` and write `result`."""
    for name in PARSERS[kind]:
        __import__(name)
    limit_resources(int(result_bytes), int(seconds))
    try:
        arrays = READERS[kind](path)
        write_arrays(result, arrays)
    except MemoryError:
        sys.exit(NO_MEMORY)
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(*sys.argv[1:])
