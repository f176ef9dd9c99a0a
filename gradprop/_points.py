"""Points of a sweep: a checked grid times seeds, the key of each and its random generator."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from gradprop._checks import integer
from gradprop._files import canonical_json, plain

Value = str | bool | int | float
Point = dict[str, Value]
Grid = Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]]
Positions = Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]
SEED = "seed"
_INT64 = 2**63


class Points(Sequence[Point]):
    """Points of a grid times seeds, or some of them, made when asked for: millions fit in memory.

    The grid point varies slowest; `chosen` are positions among all, in the order wanted.
    """

    def __init__(
        self, grid_points: list[Point], seeds: list[int], chosen: Positions | None = None
    ) -> None:
        self._grid, self._seeds = grid_points, seeds
        every = range(len(grid_points) * len(seeds))
        self._chosen: Positions = every if chosen is None else chosen

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> Points: ...

    def __getitem__(self, index: int | slice) -> Point | Points:
        if isinstance(index, slice):
            return Points(self._grid, self._seeds, self._chosen[index])
        position, seed = divmod(self._chosen[index], len(self._seeds))
        return {**self._grid[position], SEED: self._seeds[seed]}

    def choose(self, positions: Iterable[int]) -> Points:
        """Those at some positions of this sequence, in that order."""
        chosen = np.fromiter((self._chosen[i] for i in positions), dtype=np.int64)
        return Points(self._grid, self._seeds, chosen)


def expand(grid: Any) -> list[Point]:
    """Check a grid and list its points, the last field of a product varying fastest."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            _check_values(name, values)
        names = list(grid)
        points = [
            dict(zip(names, map(_scalar, names, combination), strict=True))
            for combination in itertools.product(*grid.values())
        ]
    elif isinstance(grid, Sequence) and all(isinstance(point, Mapping) for point in grid):
        points = [{name: _scalar(name, value) for name, value in p.items()} for p in grid]
    else:
        raise TypeError(
            "`grid` must map fields to lists of values, or be a list of points (dicts); "
            f"got {type(grid).__name__}."
        )
    if not points:
        raise ValueError("`grid` must have at least one point; got none.")
    _check_fields(points)
    return points


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


def _check_fields(points: list[Point]) -> None:
    """Check names, that all points have the same fields and kinds, and that none comes twice."""
    fields = list(points[0])
    for name in fields:
        if not isinstance(name, str) or not name.isidentifier() or name == SEED:
            raise ValueError(
                f"fields of `grid` must be named by identifiers other than 'seed'; got {name!r}."
            )
    kinds = {name: _kind(value) for name, value in points[0].items()}
    seen: dict[str, int] = {}
    for i, point in enumerate(points):
        if point.keys() != kinds.keys():
            raise ValueError(
                f"all points of `grid` must have the fields {fields}; point {i} has {list(point)}."
            )
        for name, value in point.items():
            if _kind(value) != kinds[name]:
                raise TypeError(
                    f"values of `grid[{name!r}]` must be of one kind; got {points[0][name]!r} and "
                    f"{value!r}."
                )
        if (before := seen.setdefault(point_key(point), i)) != i:
            raise ValueError(
                f"points of `grid` must differ; {point_key(point)} comes twice (points {before} "
                f"and {i})."
            )


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def seed_list(seeds: Any) -> list[int]:
    """Return the seeds 0..K-1 of an integer K, or the checked seeds of a list."""
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        return list(range(integer("seeds", seeds, minimum=1)))
    checked = [integer("seeds", seed, minimum=0, maximum=_INT64 - 1) for seed in seeds]
    if not checked:
        raise ValueError("`seeds` must hold at least one seed; got none.")
    if len(set(checked)) < len(checked):
        twice = next(seed for seed in checked if checked.count(seed) > 1)
        raise ValueError(f"`seeds` must differ; {twice} comes twice.")
    return checked


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


def columns(points: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Turn points into one array per field; whole numbers among floats become floats."""
    return {name: np.array([point[name] for point in points]) for name in points[0]}


def checked_keys(rng_keys: Any, point: Point) -> tuple[str, ...]:
    """Check the fields that random numbers depend on."""
    if isinstance(rng_keys, str) or not isinstance(rng_keys, Sequence):
        raise TypeError(f"`rng_keys` must be a list of fields of `grid`; got {rng_keys!r}.")
    for key in rng_keys:
        if key not in point:
            raise ValueError(
                f"`rng_keys` must name fields of `grid` ({', '.join(point)}; the seed always "
                f"counts); got {key!r}."
            )
    return tuple(rng_keys)


def checked_constants(constants: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """Check names and values of what is the same at every point."""
    for name, value in constants.items():
        if not isinstance(name, str) or name in point or name == SEED:
            raise ValueError(
                f"`constants` must have names other than the fields of `grid` and 'seed'; got "
                f"{name!r}."
            )
        try:
            plain(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"`constants[{name!r}]` cannot be recorded: {error}") from error
    return dict(constants)
