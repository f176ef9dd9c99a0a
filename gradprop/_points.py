"""Points of a sweep: a checked grid times seeds, the key of each and its random generator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gradprop._files import canonical_json, plain
from gradprop._grid import SEED, CheckedGrid, Field, Grid, Point, Value

__all__ = ["SEED", "Grid", "Point", "Points", "Value"]

CHUNK = 500  # points whose keys are in memory, and looked up in a store, at a time
_PART = 2**16  # entries of a column that are made at a time
Positions = range | NDArray[Any]


class Points(Sequence[Point]):
    """Points of a grid times seeds, or some of them, made when asked for: millions fit in memory.

    The grid point varies slowest; `chosen` are positions among all, in the order wanted, 4 bytes
    each below 2**32 points; none are held while all are wanted.
    """

    def __init__(
        self, fields: Sequence[Field], total: int, chosen: Positions | None = None
    ) -> None:
        self._fields, self._total = fields, total
        self._chosen: Positions = range(total) if chosen is None else chosen

    @classmethod
    def of(cls, grid: CheckedGrid, seeds: Sequence[int]) -> Points:
        """Every point of a grid at every seed."""
        fields = [field._replace(stride=field.stride * len(seeds)) for field in grid.fields]
        return cls([*fields, Field(SEED, seeds, 1)], len(grid) * len(seeds))

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> Points: ...

    def __getitem__(self, index: int | slice) -> Point | Points:
        if isinstance(index, slice):
            return Points(self._fields, self._total, self._chosen[index])
        return self._at(int(self._chosen[index]))

    def __iter__(self) -> Iterator[Point]:
        return map(self._at, map(int, self._chosen))

    def _at(self, position: int) -> Point:
        return {field.name: field.at(position) for field in self._fields}

    def parts(self) -> Iterator[Points]:
        """All in their order, `CHUNK` of them at a time."""
        return (self[start : start + CHUNK] for start in range(0, len(self), CHUNK))

    def keys(self) -> list[str]:
        """The key of each: for parts, not for millions."""
        return [point_key(point) for point in self]

    def choose(self, chosen: Sequence[int] | NDArray[Any]) -> Points:
        """Those at some positions of this sequence, in that order."""
        positions = np.asarray(chosen, None if len(chosen) else np.int64)
        if isinstance(self._chosen, range) and self._chosen == range(self._total):
            return Points(self._fields, self._total, positions.astype(self._dtype, copy=False))
        return Points(self._fields, self._total, self._positions(slice(None))[positions])

    def where(self, wanted: Callable[[list[str]], Iterable[bool]]) -> Points:
        """Those whose keys are wanted, asked for a part at a time; itself if all are."""
        found = [self._positions(slice(0, 0))]
        for part in self.parts():
            flags = np.fromiter(wanted(part.keys()), dtype=bool, count=len(part))
            found.append(part._positions(slice(None))[flags])
        chosen = np.concatenate(found)
        if len(chosen) == len(self):
            return self
        return Points(self._fields, self._total, chosen)

    @property
    def _dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint32 if self._total <= 2**32 else np.uint64

    def _positions(self, part: slice) -> NDArray[Any]:
        """Positions of some among all points."""
        some = self._chosen[part]
        if isinstance(some, range):
            return np.arange(some.start, some.stop, some.step, dtype=self._dtype)
        return some

    def columns(self) -> dict[str, NDArray[Any]]:
        """One array per field; whole numbers among floats become floats."""
        return {field.name: self._column(field) for field in self._fields}

    def _column(self, field: Field) -> NDArray[Any]:
        values = np.asarray(field.values)
        column = np.empty(len(self), self._dtype_of(field, values))
        for start in range(0, len(self), _PART):
            part = slice(start, start + _PART)
            column[part] = values[self._indices(field, part)]
        return column

    def _dtype_of(self, field: Field, values: NDArray[Any]) -> np.dtype[Any]:
        """That of an array of the values that occur, which may be shorter texts or whole."""
        if not isinstance(field.values, list) or len(self) == self._total:
            return values.dtype
        occurs = np.zeros(len(values), dtype=bool)
        for start in range(0, len(self), _PART):
            occurs[self._indices(field, slice(start, start + _PART))] = True
        return np.array([field.values[i] for i in np.flatnonzero(occurs)]).dtype

    def _indices(self, field: Field, part: slice) -> NDArray[Any]:
        return self._positions(part) // field.stride % len(field.values)


def point_key(point: Mapping[str, Value]) -> str:
    """The canonical text of a point: equal for equal points, whatever the order of their fields."""
    return canonical_json(point)


def point_generator(point: Mapping[str, Any], rng_keys: Sequence[str]) -> np.random.Generator:
    """Return the generator of a point, fixed by its seed and its `rng_keys` fields alone."""
    words = np.frombuffer(
        hashlib.sha256(canonical_json({name: point[name] for name in rng_keys}).encode()).digest(),
        dtype="<u4",
    )
    sequence = np.random.SeedSequence(point[SEED], spawn_key=tuple(int(word) for word in words))
    return np.random.default_rng(sequence)


def checked_keys(rng_keys: Any, fields: Sequence[str]) -> tuple[str, ...]:
    """Check the fields that random numbers depend on."""
    if isinstance(rng_keys, str) or not isinstance(rng_keys, Sequence):
        raise TypeError(f"`rng_keys` must be a list of fields of `grid`; got {rng_keys!r}.")
    for key in rng_keys:
        if key not in fields:
            raise ValueError(
                f"`rng_keys` must name fields of `grid` ({', '.join(fields)}; the seed always "
                f"counts); got {key!r}."
            )
    return tuple(rng_keys)


def checked_constants(constants: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Check names and values of what is the same at every point."""
    for name, value in constants.items():
        if not isinstance(name, str) or name in fields or name == SEED:
            raise ValueError(
                f"`constants` must have names other than the fields of `grid` and 'seed'; got "
                f"{name!r}."
            )
        try:
            plain(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"`constants[{name!r}]` cannot be recorded: {error}") from error
    return dict(constants)
