"""What kind of file a path leads to, and its content as a mapping of arrays."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

from gradprop.weights._child import read_in_child
from gradprop.weights._keras import keras_mapping
from gradprop.weights._npz import read_npz
from gradprop.weights._safetensors import read_safetensors
from gradprop.weights._table import CONVENTIONS

HDF5, ZIP, NPY, PICKLE = b"\x89HDF\r\n\x1a\n", b"PK", b"\x93NUMPY", b"\x80"
TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
ALL = tuple(CONVENTIONS)
OF_KIND = {"keras": ("keras", "cudnn"), "onnx": ("onnx", "torch"), "torch": ("torch",)}
"""Conventions that are looked for in a file of a framework."""


def read_file(path: str | os.PathLike[str]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Content of a file, and the conventions it may be in."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"`path` must be a path; got {type(path).__name__}.")
    kind = _kind(path)
    if kind == "npz":
        return read_npz(path), ALL
    if kind == "safetensors":
        return read_safetensors(path), ALL
    stored = read_in_child(kind, path)
    if kind != "keras":
        return stored, OF_KIND[kind]
    try:
        return keras_mapping(stored), OF_KIND[kind]
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"`path` {os.fspath(path)!r} is damaged: its configuration is not Keras' ({error!r})."
        ) from error


def _kind(path: str | os.PathLike[str]) -> str:
    """Kind of a file by its first bytes; by its name only where those do not tell."""
    with open(path, "rb") as file:
        head = file.read(16)
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if head.startswith(HDF5):
        return "keras"
    if head.startswith(ZIP):
        return _kind_of_zip(path)
    if head.startswith(PICKLE) and ending in TORCH_ENDINGS:
        return "torch"
    if head[8:9] == b"{" or ending == ".safetensors":
        return "safetensors"
    if ending == ".onnx":
        return "onnx"
    if head.startswith(NPY):
        raise ValueError(f"`path` {os.fspath(path)!r} is one array: save all with np.savez.")
    if head.startswith(PICKLE):
        raise ValueError(
            f"`path` {os.fspath(path)!r} is a pickle, which this package never opens, for that "
            "runs what it holds: re-save the arrays with np.savez."
        )
    raise ValueError(
        f"`path` must be an npz, safetensors, PyTorch, Keras or ONNX file; "
        f"{os.fspath(path)!r} begins with {head!r}."
    )


def _kind_of_zip(path: str | os.PathLike[str]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # a damaged archive makes zipfile raise nearly anything
        raise ValueError(f"`path` {os.fspath(path)!r} is damaged: {error}.") from error
    if "model.weights.h5" in names:
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        return "torch"
    return "npz"
