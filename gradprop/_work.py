"""What a worker does: measure points, singly or in batches, and encode what came out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradprop._points import Point, point_generator
from gradprop._records import as_values, decode, encode
from gradprop.environment import PACKAGE, single_threaded_blas

# Points that one call of `measure_batch` gets at most: bounds its memory, and what a kill loses.
BATCH = 64
Measure = Callable[[dict[str, Any], Any], Mapping[str, Any]]
MeasureBatch = Callable[[list[dict[str, Any]], list[Any]], Sequence[Mapping[str, Any]]]
Outcome = tuple[bytes, bool]


class BatchDiffersError(ValueError):
    """``measure_batch`` gives other bytes than ``measure``."""


@dataclass(frozen=True)
class Work:
    """What every point of a sweep has in common; travels to workers with each group."""

    measure: Measure
    constants: Mapping[str, Any]
    rng_keys: tuple[str, ...]
    measure_batch: MeasureBatch | None = None


def compute(work: Work, point: Point) -> Outcome:
    """Measure one point: its encoded values and False, or the text of its error and True."""
    try:
        generator = point_generator(point, work.rng_keys)
        return _encoded(point, work.measure({**point, **work.constants}, generator)), False
    except Exception as error:
        return _error_text(error).encode(), True


def _encoded(point: Point, measured: Any) -> bytes:
    values = as_values(measured)
    if taken := sorted(values.keys() & point.keys()):
        raise ValueError(f"field `{taken[0]}` of `measure` is already a field of the grid.")
    return encode(values)


def _error_text(error: Exception) -> str:
    """The message of an error and the last line outside this package that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if PACKAGE not in Path(frame.filename).parents]
    where = f" ({outside[-1].name}, line {outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{where}"


def compute_batch(work: Work, points: Sequence[Point]) -> list[Outcome]:
    """Measure points in one call if there is a `measure_batch`, singly if it fails or is absent."""
    if work.measure_batch is not None and len(points) > 1:
        try:
            return [(payload, False) for payload in _batch_payloads(work, points)]
        except Exception:
            pass  # one by one, the failing point is told from the others
    return [compute(work, point) for point in points]


def _batch_payloads(work: Work, points: Sequence[Point]) -> list[bytes]:
    assert work.measure_batch is not None
    generators = [point_generator(point, work.rng_keys) for point in points]
    measured = work.measure_batch([{**point, **work.constants} for point in points], generators)
    return [_encoded(point, values) for point, values in zip(points, measured, strict=True)]


def check_batch(work: Work, points: Sequence[Point]) -> None:
    """Raise unless `measure_batch` gives what `measure` gives, byte for byte, at these points."""
    singly = [compute(work, point) for point in points]
    if any(failed for _, failed in singly):
        return
    try:
        together = _batch_payloads(work, points)
    except Exception as error:
        raise BatchDiffersError(
            f"`measure_batch` fails where `measure` does not: {_error_text(error)}."
        ) from error
    for point, (payload, _), other in zip(points, singly, together, strict=True):
        if payload != other:
            one, two = decode(payload), decode(other)
            fields = [
                name
                for name in sorted(one.keys() | two.keys())
                if name not in one
                or name not in two
                or encode({name: one[name]}) != encode({name: two[name]})
            ]
            raise BatchDiffersError(
                f"`measure_batch` must give the same bytes as `measure`; at {point} they differ in "
                f"{', '.join(f'`{name}`' for name in fields)}."
            )


def compute_group(
    work: Work, points: Sequence[Point], most_seconds: float
) -> tuple[list[Outcome], float]:
    """Measure points in order until the time is over: outcomes so far, and seconds."""
    outcomes: list[Outcome] = []
    size = 1 if work.measure_batch is None else BATCH
    start = time.perf_counter()
    with _one_thread():
        for first in range(0, len(points), size):
            outcomes += compute_batch(work, points[first : first + size])
            if time.perf_counter() - start >= most_seconds:
                break
    return outcomes, time.perf_counter() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep BLAS and Numba to one thread: workers fill the cores already."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with single_threaded_blas():
            yield
    finally:
        numba.set_num_threads(before)
