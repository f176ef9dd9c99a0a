"""A measurement over a grid of points and seeds: resumable, the same bytes however it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import Any

import numpy as np

from gradprop._checks import integer
from gradprop._execution import CannotTravelError, Measure, Work, WorkersLostError, check_travels
from gradprop._files import plain
from gradprop._points import SEED, Grid, Point, expand, point_generator, seed_list
from gradprop._run import Run, SweepFailedError, SweepInterrupted, code_version, opened_store
from gradprop._sweepresult import SweepResult
from gradprop.store import Store

__all__ = [
    "CannotTravelError",
    "Sweep",
    "SweepFailedError",
    "SweepInterrupted",
    "SweepResult",
    "WorkersLostError",
]


class Sweep:
    """A function to be measured at every point of a grid, for every seed.

    Parameters
    ----------
    name : str
        An identifier; names the sweep in its store.
    measure : callable (point, rng) -> mapping of str to number, str, bool or array
        ``point`` is a dict of the grid's fields, ``seed`` and the constants; ``rng`` a numpy
        Generator. Every point must give the same fields, with the same dtypes and array shapes.
        For worker processes it must be defined at the top of a module.
    grid : mapping of str to sequence, or sequence of mappings
        Values of each field, of which all combinations are taken (the last field varies fastest),
        or the points themselves. Values are strings, bools, integers and finite floats; 1 and 1.0
        are the same value.
    seeds : int or sequence of int
        K stands for 0, ..., K - 1.
    rng_keys : sequence of str
        Fields on which, with the seed, the random numbers of a point depend: points that differ
        in other fields only see the same random numbers.
    constants : mapping of str to anything with a canonical form, optional
        Passed to ``measure`` within ``point``, the same at every point: arrays, or what is no
        field of the table. Part of the settings.

    Raises
    ------
    ValueError, TypeError
        A value is nan, of another kind or comes twice; there are no points; a name is unknown.

    Notes
    -----
    The generator of a point is seeded by ``SeedSequence(seed, spawn_key=words)``, words being those
    of the sha256 of the canonical JSON of the ``rng_keys`` fields [1]_: it does not depend on the
    grid, on other points, on workers or on order.

    References
    ----------
    .. [1] NumPy reference, "Parallel random number generation", section "SeedSequence spawning";
       RFC 8785, "JSON Canonicalization Scheme", section 3.2.2.3 (numbers).

    Examples
    --------
    >>> def measure(point, rng):
    ...     return {"twice": 2.0 * point["x"]}
    >>> result = Sweep("demo", measure, {"x": [1.0, 2.5]}, seeds=1, rng_keys=()).run()
    >>> result["twice"].tolist()
    [2.0, 5.0]
    """

    def __init__(
        self,
        name: str,
        measure: Measure,
        grid: Grid,
        *,
        seeds: int | Sequence[int],
        rng_keys: Sequence[str],
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"`name` must be an identifier; got {name!r}.")
        if not callable(measure):
            raise TypeError(f"`measure` must be a function; got {measure!r}.")
        grid_points = expand(grid)
        self.name, self.measure = name, measure
        self.seeds = seed_list(seeds)
        self.rng_keys = _checked_keys(rng_keys, grid_points[0])
        self.constants = _checked_constants(constants or {}, grid_points[0])
        self.points = [{**point, SEED: seed} for point in grid_points for seed in self.seeds]
        if isinstance(grid, Mapping):
            self._grid: Any = {field: list(values) for field, values in grid.items()}
        else:
            self._grid = grid_points

    def settings(self) -> dict[str, Any]:
        """All that fixes the sweep's results but the code: grid, seeds, rng_keys, constants.

        Returns
        -------
        dict
            Plain lists, dicts, strings and numbers; an array is shown by its hash.
        """
        return {
            "fields": list(self.points[0]),
            "grid": plain(self._grid),
            "seeds": self.seeds,
            "rng_keys": list(self.rng_keys),
            "constants": plain(self.constants),
        }

    def code(self) -> str:
        """Version of the library and hash of the code that would compute the sweep now.

        Returns
        -------
        str
            ``VERSION+SOURCES.MEASURE``; records of another code are computed again.
        """
        return code_version(self.measure)

    def generator(self, point: Mapping[str, Any]) -> np.random.Generator:
        """The random generator that ``measure`` gets at a point.

        Parameters
        ----------
        point : mapping of str to value
            At least the ``rng_keys`` fields and ``seed``.

        Returns
        -------
        numpy.random.Generator
        """
        return point_generator(point, self.rng_keys)

    def run(
        self,
        store: Store | str | PathLike[str] | None = None,
        executor: Executor | int | None = None,
        progress: bool = True,
    ) -> SweepResult:
        """Measure every point that the store does not hold yet, and return them all.

        Parameters
        ----------
        store : Store or path, default: in memory
            Where finished points are kept; they are never computed again while the settings and
            the code stay the same.
        executor : int or concurrent.futures.Executor, default: this process
            A number of worker processes (used if the work takes more than about 3 s), or any
            executor. The result is the same, byte for byte.
        progress : bool, default: True
            A bar on a terminal, a line now and then elsewhere, on stderr.

        Returns
        -------
        SweepResult
            In the order of the grid.

        Raises
        ------
        SweepFailedError
            Points failed; raised after all others were finished.
        SweepInterrupted
            Ctrl-C; what is finished is kept.
        StoreError, StoreBusyError
            The store cannot be used.
        WorkersLostError
            A worker process died.
        CannotTravelError
            ``measure`` cannot be sent to worker processes (a TypeError).
        ValueError
            The executor would fork this process.
        """
        work = Work(self.measure, dict(self.constants), self.rng_keys)
        if isinstance(executor, int):
            integer("executor", executor, minimum=1)
            executor = None if executor == 1 else executor
        elif executor is not None and not isinstance(executor, Executor):
            raise TypeError(
                f"`executor` must be None, a number of processes or an Executor; got {executor!r}."
            )
        if executor is not None:
            check_travels(work, executor)
        with opened_store(store) as opened:
            run = Run(self.name, work, self.points, opened, show=progress)
            return run.complete(executor)


def _checked_keys(rng_keys: Any, point: Point) -> tuple[str, ...]:
    if isinstance(rng_keys, str) or not isinstance(rng_keys, Sequence):
        raise TypeError(f"`rng_keys` must be a list of fields of `grid`; got {rng_keys!r}.")
    for key in rng_keys:
        if key not in point:
            raise ValueError(
                f"`rng_keys` must name fields of `grid` ({', '.join(point)}; the seed always "
                f"counts); got {key!r}."
            )
    return tuple(rng_keys)


def _checked_constants(constants: Mapping[str, Any], point: Point) -> dict[str, Any]:
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
