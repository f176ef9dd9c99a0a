"""A measurement over a grid of points and seeds: resumable, the same bytes however it is run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import Any

import numpy as np

from gradprop._checks import integer
from gradprop._execution import WorkersLostError
from gradprop._files import plain
from gradprop._grid import expand, seed_list
from gradprop._points import (
    Grid,
    Point,
    Points,
    checked_constants,
    checked_keys,
    point_generator,
)
from gradprop._run import Run, SweepFailedError, SweepInterrupted, code_version, opened_store
from gradprop._shards import Shard
from gradprop._sweepresult import SweepResult
from gradprop._travel import CannotTravelError, check_travels
from gradprop._work import BatchDiffersError, Measure, MeasureBatch, Work
from gradprop.store import Store

__all__ = [
    "BatchDiffersError",
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
    measure_batch : callable (points, rngs) -> sequence of mappings, optional
        What ``measure`` gives at each of up to 64 points, byte for byte, in one call: for kernels
        that are faster on a batch. Compared with ``measure`` at two points at the start of a run.
    cost : callable (point) -> float, optional
        Relative time that a point (without constants) takes: the dearest are measured first, and
        groups for workers are cut by it. It changes no result.

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
        measure_batch: MeasureBatch | None = None,
        cost: Callable[[Point], float] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"`name` must be an identifier; got {name!r}.")
        functions = {"measure": measure, "measure_batch": measure_batch, "cost": cost}
        for role, function in functions.items():
            if not callable(function) and (function is not None or role == "measure"):
                raise TypeError(f"`{role}` must be a function; got {function!r}.")
        self._grid = expand(grid)
        fields = [field.name for field in self._grid.fields]
        self.name, self.measure, self.measure_batch = name, measure, measure_batch
        self._cost = cost
        self.seeds = seed_list(seeds)
        self.rng_keys = checked_keys(rng_keys, fields)
        self.constants = checked_constants(constants or {}, fields)
        self.points = Points.of(self._grid, self.seeds)

    def settings(self) -> dict[str, Any]:
        """All that fixes the sweep's results but the code: grid, seeds, rng_keys, constants.

        Returns
        -------
        dict
            Plain lists, dicts, strings and numbers; an array is shown by its hash.
        """
        return {
            "fields": list(self.points[0]),
            "grid": plain(self._grid.plain()),
            "seeds": list(self.seeds),
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
        return code_version(self.measure, self.measure_batch)

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
        *,
        retry_failed: bool = False,
    ) -> SweepResult:
        """Measure every point that the store does not hold yet, and return them all.

        Parameters
        ----------
        store : Store or path, default: in memory
            Where finished points are kept; they are never computed again while the settings and
            the code stay the same.
        executor : int or concurrent.futures.Executor, default: this process
            A number of worker processes (used if the work takes more than about 3 s), or any
            executor, as that of :func:`gradprop.cluster.dask_executor`. The result is the same,
            byte for byte.
        progress : bool, default: True
            A bar on a terminal, a line now and then elsewhere, on stderr.
        retry_failed : bool, default: False
            Measure those points again that failed before, with the same settings and code.

        Returns
        -------
        SweepResult
            In the order of the grid.

        Raises
        ------
        SweepFailedError
            Points failed, now or before; raised after all others were finished.
        SweepInterrupted
            Ctrl-C; what is finished is kept. The first one waits for what is in hand.
        StoreError, StoreBusyError
            The store cannot be used.
        WorkersLostError
            A worker process died, or a scheduler went away.
        CannotTravelError
            ``measure`` cannot be sent to worker processes (a TypeError).
        BatchDiffersError, ValueError
            ``measure_batch`` is not ``measure``; the executor would fork this process.

        Notes
        -----
        On one core, a point costs about 0.2 ms beside the time of ``measure``. Memory is that of
        the result and at most some 24 bytes a point beside it, if the records have a file; without
        ``store`` they are in memory too, some 400 bytes each.
        """
        work, workers = self._work(executor)
        with opened_store(store) as opened:
            run = Run(self.name, work, self.points, opened, show=progress)
            run.complete(workers, self._cost and self.cost, retry_failed=retry_failed)
            return run.gathered()

    def run_shard(
        self,
        shard: Shard,
        store: Store,
        executor: Executor | int | None = None,
        *,
        retry_failed: bool = False,
        elsewhere: Store | None = None,
    ) -> None:
        """Measure the points of one part that neither this store nor another has finished.

        Parameters
        ----------
        shard : Shard
            Which part.
        store : Store
            That of the part.
        executor, retry_failed
            As for :meth:`run`, which also says what is raised.
        elsewhere : Store, optional
            Another store whose finished points need not be measured.
        """
        work, workers = self._work(executor)
        points = self.points.where(lambda keys: map(shard.has, keys))
        run = Run(self.name, work, points, store, show=True)
        cost = self._cost and self.cost
        run.complete(workers, cost, retry_failed=retry_failed, elsewhere=elsewhere)

    def cost(self, point: Point) -> float:
        """Relative time that a point takes; 1 unless the sweep was given a ``cost``.

        Parameters
        ----------
        point : mapping of str to value

        Returns
        -------
        float

        Raises
        ------
        ValueError
            It is not a positive number.
        """
        if self._cost is None:
            return 1.0
        found = float(self._cost(point))
        if not (math.isfinite(found) and found > 0):
            raise ValueError(f"`cost` must give positive numbers; got {found} at {point}.")
        return found

    def _work(self, executor: Executor | int | None) -> tuple[Work, Executor | int | None]:
        """What is to be done and by whom, after a check that the one can reach the other."""
        work = Work(self.measure, dict(self.constants), self.rng_keys, self.measure_batch)
        if (workers := _processes(executor)) is not None:
            check_travels(work, workers)
        return work, workers


def _processes(executor: Executor | int | None) -> Executor | int | None:
    """Check an executor; one process is this one."""
    if isinstance(executor, int):
        return None if integer("executor", executor, minimum=1) == 1 else executor
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            f"`executor` must be None, a number of processes or an Executor; got {executor!r}."
        )
    return executor
