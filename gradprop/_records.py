"""What one point gave, as checked bytes: a line of JSON and the arrays behind it, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = dict[str, NDArray[Any]]
Schema = dict[str, tuple[str, tuple[int, ...]]]
_KINDS = "biufcU"


def as_values(measured: Any) -> Values:
    """Check what `measure` returned and turn every field into an array (a number into 0-d)."""
    if not isinstance(measured, Mapping):
        raise TypeError(
            f"`measure` must return a mapping of names to values; got {type(measured).__name__}."
        )
    if not measured:
        raise ValueError("`measure` must return at least one field; got an empty mapping.")
    values = {}
    for name, value in measured.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"a field of `measure` must be named by an identifier; got {name!r}.")
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"field `{name}` must be a regular array; got {error}") from error
        if array.dtype.kind not in _KINDS or array.dtype.char in "gG":
            raise TypeError(
                f"field `{name}` must be a number, string, bool or array of them; got "
                f"{type(value).__name__} of dtype {array.dtype}."
            )
        values[name] = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return values


def encode(values: Values) -> bytes:
    """Pack arrays behind a line of JSON with their names, dtypes and shapes."""
    ordered = [(name, np.ascontiguousarray(values[name])) for name in sorted(values)]
    head = [[name, array.dtype.str, values[name].shape] for name, array in ordered]
    parts = [json.dumps(head, separators=(",", ":")).encode(), b"\n"]
    parts += [array.tobytes() for _, array in ordered]
    return b"".join(parts)


def decode(payload: bytes) -> Values:
    """Unpack what :func:`encode` packed; the arrays are read-only."""
    head, _, body = payload.partition(b"\n")
    values, offset = {}, 0
    for name, dtype, shape in json.loads(head):
        count = int(np.prod(shape, dtype=np.int64))
        if count and np.dtype(dtype).itemsize:
            array = np.frombuffer(body, dtype, count, offset)
        else:
            array = np.zeros(count, dtype)
        values[name] = array.reshape(shape)
        offset += array.nbytes
    return values


def head(payload: bytes) -> bytes:
    """The line that describes a payload; payloads of one head are alike in their bytes."""
    return payload[: payload.index(b"\n")]


def row_dtype(head: bytes) -> np.dtype[Any]:
    """The dtype of what stands behind a head: one field for each array."""
    return np.dtype([(name, dtype, tuple(shape)) for name, dtype, shape in json.loads(head)])


def schema(payload: bytes) -> Schema:
    """Names, dtypes and shapes of a payload; texts may differ in length between points."""
    head = json.loads(payload.partition(b"\n")[0])
    return {
        name: (dtype if "U" not in dtype else "text", tuple(shape)) for name, dtype, shape in head
    }


def schema_difference(first: Schema, other: Schema) -> str:
    """Say in which field two points differ; empty if they agree."""
    for name in sorted(first.keys() | other.keys()):
        if name not in other:
            return f"field `{name}` of other points is missing here"
        if name not in first:
            return f"field `{name}` is not among those of other points"
        if first[name] != other[name]:
            (kind, shape), (here, shape_here) = first[name], other[name]
            return (
                f"field `{name}` has dtype {here} and shape {shape_here} here, {kind} and {shape} "
                f"at other points (return one kind always: 12.0 where others give 0.5)"
            )
    return ""
