"""One run of a sweep: what the store holds, what is missing, what failed, the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from os import PathLike
from typing import Any

from gradprop._code import code_digest
from gradprop._execution import (
    Accept,
    Cost,
    dearest_first,
    end_workers,
    equal_cost,
    run_here,
    run_in_executor,
    worker_pool,
)
from gradprop._files import canonical_json, digest
from gradprop._gather import Columns
from gradprop._interrupts import Interrupts
from gradprop._points import CHUNK, Point, Points, point_key
from gradprop._progress import Progress
from gradprop._records import Schema, schema, schema_difference
from gradprop._sweepresult import SweepResult
from gradprop._work import Measure, MeasureBatch, Outcome, Work, check_batch
from gradprop.environment import library_version, source_digest
from gradprop.store import Record, Store

_SHOWN_FAILURES = 5
_GATHERED_BYTES = 2**22  # of records that wait to be stacked


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


def _finished(states: Mapping[str, bool]) -> set[str]:
    return {key for key, failed in states.items() if not failed}


def _text(failed: Record) -> str:
    return failed.payload.decode(errors="replace")


class Run:
    """One call of ``Sweep.run``: computes the points that the store lacks and gathers all.

    Of the points it holds 4 bytes each where not all are missing, and 4 where they differ in
    cost; keys and records are made and looked up a part at a time.
    """

    def __init__(self, name: str, work: Work, points: Points, store: Store, *, show: bool) -> None:
        self.name, self.work, self.points, self.store, self.show = name, work, points, store, show
        shared = {"rng_keys": work.rng_keys, "constants": work.constants}
        settings = digest(canonical_json(shared))
        self.identity = (name, settings, code_version(work.measure, work.measure_batch))
        self.n_finished = 0  # in this store
        self.failures: dict[str, str] = {}
        self.schema: Schema | None = None

    def complete(
        self,
        executor: Executor | int | None,
        cost: Cost | None,
        *,
        retry_failed: bool,
        elsewhere: Store | None = None,
    ) -> None:
        """Compute what is missing here and elsewhere; raise what went wrong."""
        missing = dearest_first(self._missing(retry_failed, elsewhere), cost)
        n_all = len(self.points)
        n_before = n_all - len(missing) - len(self.failures)
        with (
            Progress(self.name, n_all, n_before, show=self.show) as progress,
            Interrupts() as interrupts,
        ):
            try:
                self._compute(missing, executor, cost, progress, lambda: interrupts.asked)
                if interrupts.asked:
                    raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise SweepInterrupted(self._resume_text()) from error
        if self.failures:
            kept = self.gathered() if self.n_finished else None
            raise SweepFailedError(self._failure_text(), self.failures, kept)

    def _missing(self, retry_failed: bool, elsewhere: Store | None) -> Points:
        """The points to be computed, in the order of the grid."""
        stores = (self.store,) if elsewhere is None else (self.store, elsewhere)
        if not any(store.holds(*self.identity) for store in stores):
            return self.points

        def lacking(keys: list[str]) -> Iterable[bool]:
            known = self._known(keys, retry_failed)
            if elsewhere is not None:
                known |= _finished(elsewhere.states(*self.identity, keys))
            return (key not in known for key in keys)

        return self.points.where(lacking)

    def _known(self, keys: list[str], retry_failed: bool) -> set[str]:
        """Which of some points need not be computed, for this store says what came of them."""
        states = self.store.states(*self.identity, keys)
        known = _finished(states)
        self.n_finished += len(known)
        if known and self.schema is None:
            first = next(key for key in keys if key in known)
            self.schema = schema(next(self.store.find(*self.identity, [first])).payload)
        if not retry_failed and len(known) < len(states):
            failed = [key for key in keys if states.get(key)]
            records = {record.key: record for record in self.store.find(*self.identity, failed)}
            self.failures |= {key: _text(records[key]) for key in failed}
            known |= set(failed)
        return known

    def _compute(
        self,
        missing: Sequence[Point],
        executor: Executor | int | None,
        cost: Cost | None,
        progress: Progress,
        asked: Callable[[], bool],
    ) -> None:
        accept = self._accepting(progress)
        if self.work.measure_batch is not None and missing:
            check_batch(self.work, list(missing[-2:]))
        how: Mapping[str, Any] = {"cost": cost or equal_cost, "asked_to_stop": asked}
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
            failed = {record.key: _text(record) for record in records if record.failed}
            self.failures.update(failed)
            self.n_finished += len(records) - len(failed)
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
        name, settings, code = self.identity
        return Record(name, settings, key, code, payload, failed)

    def gathered(self) -> SweepResult:
        """Stack the finished points in the order of the grid."""
        points = self.points
        if self.n_finished < len(points):
            points = points.where(self._are_finished)
        columns = Columns(len(points))
        for i, part in enumerate(points.parts()):
            self._gather(columns, i * CHUNK, part.keys())
        return SweepResult(self.name, points.columns(), dict(sorted(columns.arrays.items())))

    def _are_finished(self, keys: list[str]) -> Iterable[bool]:
        finished = _finished(self.store.states(*self.identity, keys))
        return (key in finished for key in keys)

    def _gather(self, columns: Columns, start: int, keys: list[str]) -> None:
        """Put the records of some keys into the rows from `start` on, a few MB at a time."""
        row_of = {key: start + i for i, key in enumerate(keys)}
        rows: list[int] = []
        payloads: list[bytes] = []
        n_bytes = 0
        for record in self.store.find(*self.identity, keys):
            rows.append(row_of[record.key])
            payloads.append(record.payload)
            n_bytes += len(record.payload)
            if n_bytes > _GATHERED_BYTES:
                columns.put_payloads(rows, payloads)
                rows, payloads, n_bytes = [], [], 0
        columns.put_payloads(rows, payloads)

    def _resume_text(self) -> str:
        state = f"{self.n_finished} of {len(self.points)} points of {self.name} are finished"
        if self.store.path is None:
            return f"interrupted: {state}, but nothing is kept: give `run` a store to go on later."
        return f"interrupted: {state} and kept in {self.store.path}; run it again to go on."

    def _failure_text(self) -> str:
        lines = [f"{len(self.failures)} of {len(self.points)} points of {self.name} failed:"]
        shown = list(self.failures.items())[:_SHOWN_FAILURES]
        lines += [f"  {key}: {text}" for key, text in shown]
        if len(self.failures) > len(shown):
            lines.append(f"  and {len(self.failures) - len(shown)} more")
        lines.append(
            "All others are finished and kept; the failed ones are tried again with --retry-failed "
            "(retry_failed=True)."
        )
        return "\n".join(lines)
