"""One run of a sweep: what the store holds, what is missing, what failed, the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np

from gradprop._code import code_digest
from gradprop._execution import (
    Accept,
    Cost,
    end_workers,
    run_here,
    run_in_executor,
    worker_pool,
)
from gradprop._files import canonical_json, digest
from gradprop._gather import gather
from gradprop._interrupts import Interrupts
from gradprop._points import Point, Points, point_key
from gradprop._progress import Progress
from gradprop._records import Schema, schema, schema_difference
from gradprop._sweepresult import SweepResult
from gradprop._work import Measure, MeasureBatch, Outcome, Work, check_batch
from gradprop.environment import library_version, source_digest
from gradprop.store import Record, Store

_SHOWN_FAILURES = 5


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a sweep; the text says what is kept and how to go on."""


class SweepFailedError(RuntimeError):
    """Some points failed; all others are finished and kept.

    Attributes
    ----------
    failures : dict
        Key of each failed point to the text of its error.
    partial : SweepResult or None
        The finished points, None if there are none.
    """

    def __init__(self, text: str, failures: dict[str, str], partial: SweepResult | None) -> None:
        super().__init__(text)
        self.failures = failures
        self.partial = partial


def code_version(measure: Measure, measure_batch: MeasureBatch | None = None) -> str:
    """What a record must match to be served: library version, its sources, the study's code."""
    code = code_digest(measure)
    if measure_batch is not None:
        code = digest(code + code_digest(measure_batch))
    return f"{library_version()}+{source_digest()}.{code[:16]}"


@contextmanager
def opened_store(store: Store | str | PathLike[str] | None) -> Iterator[Store]:
    """Use a store as it is, or open one for the time of a run."""
    if isinstance(store, Store):
        yield store
    else:
        with Store(store) as opened:
            yield opened


class Run:
    """One call of ``Sweep.run``: computes the points that the store lacks and gathers all."""

    def __init__(self, name: str, work: Work, points: Points, store: Store, *, show: bool) -> None:
        self.name, self.work, self.points, self.store, self.show = name, work, points, store, show
        shared = {"rng_keys": work.rng_keys, "constants": work.constants}
        self.settings = digest(canonical_json(shared))
        self.code = code_version(work.measure, work.measure_batch)
        self.keys = [point_key(point) for point in points]
        self.failures: dict[str, str] = {}
        self.schema: Schema | None = None

    def complete(
        self,
        executor: Executor | int | None,
        cost: Cost,
        *,
        retry_failed: bool,
        elsewhere: Store | None = None,
    ) -> None:
        """Compute what is missing here and elsewhere; raise what went wrong."""
        finished = self._finished()
        if finished:
            self.schema = schema(self._payload(next(key for key in self.keys if key in finished)))
        if elsewhere is not None:
            finished |= elsewhere.finished(self.name, self.settings, self.code)
        if not retry_failed:
            known = self.store.failures(self.name, self.settings, self.code)
            self.failures = {key: known[key] for key in self.keys if key in known}
        missing = self._missing(finished, cost)
        n_before = len(self.keys) - len(missing) - len(self.failures)
        with (
            Progress(self.name, len(self.keys), n_before, show=self.show) as progress,
            Interrupts() as interrupts,
        ):
            try:
                self._compute(missing, executor, cost, progress, lambda: interrupts.asked)
                if interrupts.asked:
                    raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise SweepInterrupted(self._resume_text()) from error
        if self.failures:
            kept = self.gathered() if self._finished() else None
            raise SweepFailedError(self._failure_text(), self.failures, kept)

    def _missing(self, finished: set[str], cost: Cost) -> Points:
        """The points to be computed, the dearest first."""
        known = (finished, self.failures)
        missing = self.points.choose(
            i for i, key in enumerate(self.keys) if not any(key in some for some in known)
        )
        costs = np.fromiter(map(cost, missing), dtype=np.float64)
        return missing.choose(np.argsort(-costs, kind="stable"))

    def _finished(self) -> set[str]:
        return self.store.finished(self.name, self.settings, self.code).intersection(self.keys)

    def _payload(self, key: str) -> bytes:
        return self.store.payload(self.name, self.settings, key)

    def _compute(
        self,
        missing: Sequence[Point],
        executor: Executor | int | None,
        cost: Cost,
        progress: Progress,
        asked: Callable[[], bool],
    ) -> None:
        accept = self._accepting(progress)
        if self.work.measure_batch is not None and missing:
            check_batch(self.work, missing[-2:])
        how: Mapping[str, Any] = {"cost": cost, "asked_to_stop": asked}
        if executor is None:
            run_here(self.work, missing, accept, **how)
        elif isinstance(executor, Executor):
            run_in_executor(self.work, missing, accept, executor, **how)
        elif rest := run_here(self.work, missing, accept, **how, may_hand_over=True):
            pool = worker_pool(executor)
            try:
                run_in_executor(self.work, rest, accept, pool, **how)
            except BaseException:
                end_workers(pool)
                raise

    def _accepting(self, progress: Progress) -> Accept:
        """How a group of outcomes is taken in: checked, committed, counted."""

        def accept(group: Sequence[tuple[Point, Outcome]]) -> None:
            records = [self._record(point_key(point), *outcome) for point, outcome in group]
            self.store.put(records)
            failed = {record.key: record.payload.decode() for record in records if record.failed}
            self.failures.update(failed)
            progress.add(len(records), len(failed))

        return accept

    def _record(self, key: str, payload: bytes, failed: bool) -> Record:
        if not failed:
            found = schema(payload)
            if self.schema is None:
                self.schema = found
            if difference := schema_difference(self.schema, found):
                text = f"`measure` must give the same fields at every point: {difference}."
                payload, failed = text.encode(), True
        return Record(self.name, self.settings, key, self.code, payload, failed)

    def gathered(self) -> SweepResult:
        """Stack the finished points in the order of the grid."""
        finished = self._finished()
        there = [i for i, key in enumerate(self.keys) if key in finished]
        payloads = (self._payload(self.keys[i]) for i in there)
        return gather(self.name, self.points.choose(there), payloads)

    def _resume_text(self) -> str:
        state = f"{len(self._finished())} of {len(self.keys)} points of {self.name} are finished"
        if self.store.path is None:
            return f"interrupted: {state}, but nothing is kept: give `run` a store to go on later."
        return f"interrupted: {state} and kept in {self.store.path}; run it again to go on."

    def _failure_text(self) -> str:
        lines = [f"{len(self.failures)} of {len(self.keys)} points of {self.name} failed:"]
        shown = list(self.failures.items())[:_SHOWN_FAILURES]
        lines += [f"  {key}: {text}" for key, text in shown]
        if len(self.failures) > len(shown):
            lines.append(f"  and {len(self.failures) - len(shown)} more")
        lines.append(
            "All others are finished and kept; the failed ones are tried again with --retry-failed "
            "(retry_failed=True)."
        )
        return "\n".join(lines)
