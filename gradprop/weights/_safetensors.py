"""Tensors of a ``.safetensors`` file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.weights._child import missing

_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BF16": "<u2"},
}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read every tensor whose format NumPy has; bfloat16 becomes float32, exactly."""
    try:
        import safetensors
    except ImportError:
        raise missing("safetensors") from None
    with open(path, "rb") as file:
        content = file.read()
    try:
        read: Any = safetensors.deserialize
        entries = read(content)
    except Exception as error:
        raise ValueError(f"`path` {os.fspath(path)!r} is damaged: {error}.") from error
    return {name: _array(entry) for name, entry in entries if entry["dtype"] in _DTYPES}


def _array(entry: dict[str, Any]) -> NDArray[Any]:
    array = np.frombuffer(entry["data"], dtype=_DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(entry["shape"])
