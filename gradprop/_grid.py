"""The grid of a sweep: its values, checked, in compact columns of which points are made."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradprop._checks import integer
from gradprop._files import canonical_json

Value = str | bool | int | float
Point = dict[str, Value]
Grid = Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]]
Values = Sequence[Value] | NDArray[Any]
SEED = "seed"
_INT64 = 2**63
_DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}


class Field(NamedTuple):
    """A field of the grid: its value at point i is ``values[i // stride % len(values)]``."""

    name: str
    values: Values
    stride: int

    def at(self, point: int) -> Value:
        """The plain value at a point."""
        values = self.values
        index = point // self.stride % len(values)
        if isinstance(values, np.ndarray):
            found: Value = values.item(index)
            return found
        return values[index]


class CheckedGrid:
    """Fields of a grid, 8 bytes a value and none a point; a product's last field varies fastest."""

    def __init__(self, columns: dict[str, Values], *, product: bool) -> None:
        self._product, self.fields, stride = product, list[Field](), 1
        for name in reversed(columns):
            self.fields.insert(0, Field(name, columns[name], stride))
            stride *= len(columns[name]) if product else 1
        self._n_points = stride if product or not columns else len(self.fields[0].values)

    def __len__(self) -> int:
        return self._n_points

    def __getitem__(self, index: int) -> Point:
        return {field.name: field.at(index) for field in self.fields}

    def plain(self) -> dict[str, list[Value]] | list[Point]:
        """What was given, in plain lists, numbers and texts."""
        if self._product:
            return {field.name: list(_plain_values(field.values)) for field in self.fields}
        return [self[i] for i in range(len(self))]


def _plain_values(values: Values) -> Iterable[Value]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def expand(grid: Any) -> CheckedGrid:
    """Check a grid: names, kinds of values, and that no point comes twice.

    The points of a list are told apart by digests of 16 bytes, held while they are checked.
    """
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            _check_values(name, values)
        _check_names(grid)
        columns = {name: _column(name, values) for name, values in grid.items()}
        return _without_repeated_values(CheckedGrid(columns, product=True))
    if not isinstance(grid, Sequence) or not all(isinstance(point, Mapping) for point in grid):
        raise TypeError(
            "`grid` must map fields to lists of values, or be a list of points (dicts); "
            f"got {type(grid).__name__}."
        )
    if not grid:
        raise ValueError("`grid` must have at least one point; got none.")
    fields = list(grid[0])
    _check_names(fields)
    for i, point in enumerate(grid):
        if point.keys() != grid[0].keys():
            raise ValueError(
                f"all points of `grid` must have the fields {fields}; point {i} has {list(point)}."
            )
    if not fields and len(grid) > 1:
        raise _twice({}, 0, 1)
    columns = {name: _column(name, (point[name] for point in grid)) for name in fields}
    return _without_repeated_points(CheckedGrid(columns, product=False))


def _check_values(name: Any, values: Any) -> None:
    """Check that the values of one field of a product are a list with an order, not empty."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.size:
        return
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(
            f"`grid[{name!r}]` must be a list of values; got {values!r} ({type(values).__name__})."
        )
    if not len(values):
        raise ValueError(f"`grid[{name!r}]` must hold at least one value; got none.")


def _check_names(names: Iterable[Any]) -> None:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or name == SEED:
            raise ValueError(
                f"fields of `grid` must be named by identifiers other than 'seed'; got {name!r}."
            )


def _column(name: str, values: Iterable[Any]) -> Values:
    """Checked values of one kind: an array where all are of one type, else a list."""
    plain = [_scalar(name, value) for value in values]
    other = next((value for value in plain if _kind(value) != _kind(plain[0])), None)
    if other is not None:
        raise TypeError(
            f"values of `grid[{name!r}]` must be of one kind; got {plain[0]!r} and {other!r}."
        )
    types = set(map(type, plain))
    if len(types) == 1 and (dtype := _DTYPES.get(types.pop())) is not None:
        return np.array(plain, dtype)
    return plain


def _scalar(name: Any, value: Any) -> Value:
    """Return one grid value as a plain Python string, bool, integer or finite float."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, str | bool | int | float):
        raise TypeError(
            f"values of `grid[{name!r}]` must be numbers, strings or bools; got {value!r} "
            f"({type(value).__name__})."
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"values of `grid[{name!r}]` must be finite; got {value}.")
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError(f"integers of `grid[{name!r}]` must fit in 64 bits; got {value}.")
    return value


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def _without_repeated_values(grid: CheckedGrid) -> CheckedGrid:
    """Return the grid; ValueError if a field of a product has a value twice."""
    repeats = []
    for field in grid.fields:
        if found := _first_repeat(*_words(field.values)):
            repeats.append((found[1] * field.stride, found[0] * field.stride))
    if repeats:
        i, before = min(repeats)
        raise _twice(grid[i], before, i)
    return grid


def _without_repeated_points(grid: CheckedGrid) -> CheckedGrid:
    """Return the grid; ValueError if a list has a point twice."""
    if found := _first_repeat(*_digests(grid[i] for i in range(len(grid)))):
        raise _twice(grid[found[1]], *found)
    return grid


def _twice(point: Point, before: int, i: int) -> ValueError:
    return ValueError(
        f"points of `grid` must differ; {canonical_json(point)} comes twice (points {before} "
        f"and {i})."
    )


def _words(values: Values) -> Sequence[NDArray[np.uint64]]:
    """Words that are equal where the canonical texts of two values are."""
    if not isinstance(values, np.ndarray):
        return _digests(values)
    if values.dtype == np.float64:
        values = values + 0.0  # -0.0 is 0
    return [values.astype(np.uint64) if values.dtype == bool else values.view(np.uint64)]


def _digests(items: Iterable[Any]) -> Sequence[NDArray[np.uint64]]:
    """Digests of canonical texts, two words each."""

    def digest(item: Any) -> bytes:
        return hashlib.blake2b(canonical_json(item).encode(), digest_size=16).digest()

    every = bytearray()
    for item in items:
        every += digest(item)
    words = np.frombuffer(every, np.uint64)
    return [words[::2], words[1::2]]


def _first_repeat(*words: NDArray[np.uint64]) -> tuple[int, int] | None:
    """The first position whose words came before, after the one where they did."""
    in_order = np.sort(words[0])
    if not np.any(in_order[1:] == in_order[:-1]):
        return None
    order = np.lexsort(words)
    same = np.ones(len(order) - 1, dtype=bool)
    for word in words:
        same &= word[order[1:]] == word[order[:-1]]
    if not same.any():
        return None
    first = np.flatnonzero(same)[np.argmin(order[1:][same])]
    return int(order[first]), int(order[first + 1])


def seed_list(seeds: Any) -> range | list[int]:
    """Return the seeds 0..K-1 of an integer K, or the checked seeds of a list."""
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        return range(integer("seeds", seeds, minimum=1))
    checked = [integer("seeds", seed, minimum=0, maximum=_INT64 - 1) for seed in seeds]
    if not checked:
        raise ValueError("`seeds` must hold at least one seed; got none.")
    if len(set(checked)) < len(checked):
        twice = next(seed for seed in checked if checked.count(seed) > 1)
        raise ValueError(f"`seeds` must differ; {twice} comes twice.")
    following = range(checked[0], checked[0] + len(checked))
    return following if checked == list(following) else checked
