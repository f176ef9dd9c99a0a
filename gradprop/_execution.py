"""Computing the points of a sweep: here, in worker processes, or in any executor."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)

import numpy as np

from gradprop._interrupts import held_back
from gradprop._points import Point, Points
from gradprop._work import BATCH, Outcome, Work, compute_batch, compute_group
from gradprop.environment import available_cores, single_threaded_blas

GROUP_SECONDS = 1.0
# A scheduler settles some hundred groups a second and keeps about a kilobyte of each: where days
# are left, groups last a thousandth of them, but never so long that a lost one is missed.
_LONGEST_GROUP = 60.0
_GROUPS_A_WORKER = 1000
# Starting two workers and their imports takes about 2 s: shorter work stays in this process.
_WORTH_A_POOL = 3.0
_LONG_POINT = 10.0
_IDLE_SECONDS = 60
# Bounds what lies in memory at a time, and is still 0.1 s of points without work of their own.
_MOST_IN_GROUP = 1000
_LOOK_UP_SECONDS = 1.0  # how often a request to stop is looked for while workers are at work
Accept = Callable[[Sequence[tuple[Point, Outcome]]], None]
Cost = Callable[[Point], float]
Answer = tuple[list[Outcome], float]


class WorkersLostError(RuntimeError):
    """Worker processes ended without an answer, and no others took their place."""


class WorkerDiedError(RuntimeError):
    """A group of points ended its worker, several times; other workers go on."""


def equal_cost(point: Point) -> float:
    """The cost where none is known."""
    return 1.0


def dearest_first(points: Points, cost: Cost | None) -> Points:
    """Order points by cost; for a while this takes 16 bytes a point, then 4."""
    if cost is None or not points:
        return points
    # Logs, for a ratio of costs that float32 cannot hold is one that matters.
    logs = np.fromiter((math.log(cost(point)) for point in points), np.float32, len(points))
    if (logs == logs[0]).all():
        return points
    return points.choose(np.argsort(np.negative(logs, out=logs), kind="stable"))


def _total(points: Sequence[Point], cost: Cost) -> float:
    return float(len(points)) if cost is equal_cost else math.fsum(map(cost, points))


def _never() -> bool:
    return False


def run_here(
    work: Work,
    points: Sequence[Point],
    accept: Accept,
    *,
    cost: Cost = equal_cost,
    asked_to_stop: Callable[[], bool] = _never,
    may_hand_over: bool = False,
) -> Sequence[Point]:
    """Measure points one after the other, handing on about a second's worth at a time.

    Returns what is left: nothing, or, if it may hand over, the points that are worth a pool of
    workers, judged by the time and cost of the last one. At least two are measured first, so that
    kernels are compiled once and lie in the cache before workers ask for them.
    """
    group: list[tuple[Point, Outcome]] = []
    group_start = time.perf_counter()
    n_done, size, left = 0, 1, _total(points, cost)
    try:
        with single_threaded_blas():
            while n_done < len(points):
                if asked_to_stop():
                    raise KeyboardInterrupt
                batch, start = list(points[n_done : n_done + size]), time.perf_counter()
                group.extend(zip(batch, compute_batch(work, batch), strict=True))
                n_done, now = n_done + len(batch), time.perf_counter()
                if now - group_start >= GROUP_SECONDS or len(group) >= _MOST_IN_GROUP:
                    accept(group)
                    group, group_start = [], now
                seconds, done = now - start, math.fsum(map(cost, batch))
                left -= done
                warm = n_done >= 2 or seconds > _LONG_POINT
                if may_hand_over and warm and seconds / done * left > _WORTH_A_POOL:
                    return points[n_done:]
                if work.measure_batch is not None and seconds < GROUP_SECONDS / 4:
                    size = min(2 * size, BATCH)
    finally:
        # Also after Ctrl-C: what is finished is kept.
        if group:
            accept(group)
    return []


def run_in_executor(
    work: Work,
    points: Sequence[Point],
    accept: Accept,
    executor: Executor,
    *,
    cost: Cost = equal_cost,
    asked_to_stop: Callable[[], bool] = _never,
) -> None:
    """Measure points in an executor, in groups of a second or more, at most two a worker waiting.

    Everything that has arrived is accepted at once: with many workers, one transaction for many
    groups. Groups that were lost with a scheduler are sent again. Those that ended their workers
    are sent once more when nothing else is under way, in halves, until the guilty point is alone:
    it counts as failed.
    """
    groups = _Groups(points, cost)
    waiting: dict[Future[Answer], list[Point]] = {}
    try:
        while groups or waiting:
            n_workers = int(getattr(executor, "_max_workers", 0) or available_cores())
            while not asked_to_stop() and groups.may_send(len(waiting), 2 * n_workers):
                limit = 1.5 * groups.seconds(n_workers)
                group = groups.take(n_workers)
                with held_back():
                    answer = executor.submit(compute_group, work, group, limit)
                waiting[answer] = group
            done = wait(waiting, timeout=_LOOK_UP_SECONDS, return_when=FIRST_COMPLETED).done
            arrived = [pair for f in done for pair in groups.outcomes(waiting.pop(f), f)]
            if arrived:
                accept(arrived)
            if asked_to_stop():
                waiting = {f: group for f, group in waiting.items() if not f.cancel()}
                if not waiting:
                    raise KeyboardInterrupt
    except BrokenExecutor as error:
        if asked_to_stop():  # Ctrl-C ends workers that have only begun to start
            raise KeyboardInterrupt from error
        raise WorkersLostError(
            f"a worker process ended without an answer ({error}): perhaps memory ran out; try "
            "fewer workers (--jobs). What is finished is kept."
        ) from error
    finally:
        # Only after an error or Ctrl-C is anything left: keep what has arrived.
        for future, group in waiting.items():
            if not future.cancel() and future.done() and future.exception() is None:
                accept(list(zip(group, future.result()[0], strict=False)))


class _Groups:
    """The points that wait, cut into groups by what the last ones took for their cost."""

    def __init__(self, points: Sequence[Point], cost: Cost) -> None:
        self._points, self._next = points, 0
        self._again, self._suspects = deque[Point](), deque[list[Point]]()
        self._on_trial: list[Point] = []
        self._cost = cost
        self._left = _total(points, cost)
        self._rate = math.inf  # seconds per unit of cost

    def __bool__(self) -> bool:
        return self._has_plain() or bool(self._suspects)

    def _has_plain(self) -> bool:
        return bool(self._again) or self._next < len(self._points)

    def _first(self) -> Point:
        if not self._again:
            self._again.append(self._points[self._next])
            self._next += 1
        return self._again[0]

    def _pop(self) -> Point:
        self._first()
        return self._again.popleft()

    def may_send(self, n_waiting: int, most: int) -> bool:
        """Whether another group may go out: suspects only when no other is under way."""
        return n_waiting < most if self._has_plain() else bool(self._suspects) and not n_waiting

    def seconds(self, n_workers: int) -> float:
        """How long a group should take, from what the last ones took."""
        left = self._rate * self._left / n_workers if math.isfinite(self._rate) else 0.0
        return max(GROUP_SECONDS, min(left / _GROUPS_A_WORKER, _LONGEST_GROUP))

    def take(self, n_workers: int) -> list[Point]:
        """About that much, but leaving work for all workers towards the end."""
        if not self._has_plain():
            self._on_trial = self._suspects.popleft()
            return self._on_trial
        share = self._rate * self._left / (2 * n_workers)
        worth = max(min(self.seconds(n_workers), share), GROUP_SECONDS / 20)
        group = [self._pop()]
        total = self._cost(group[0])
        while self._has_plain() and len(group) < _MOST_IN_GROUP:
            more = self._cost(self._first())
            if self._rate * (total + more) > worth:
                break
            group.append(self._pop())
            total += more
        self._left -= total
        return group

    def outcomes(
        self, group: list[Point], answer: Future[Answer]
    ) -> Sequence[tuple[Point, Outcome]]:
        """What came of a group; what did not come waits again."""
        try:
            outcomes, seconds = answer.result()
        except CancelledError:
            self._put_back(group)
            return []
        except WorkerDiedError as error:
            # Not on trial, it may have died of another's fault: of points on the same worker.
            if len(group) == 1 and group is self._on_trial:
                return [(group[0], (str(error).encode(), True))]
            half = len(group) // 2
            self._suspects.extend(part for part in (group[:half], group[half:]) if part)
            return []
        self._put_back(group[len(outcomes) :])
        latest = seconds / math.fsum(map(self._cost, group[: len(outcomes)]))
        self._rate = latest if math.isinf(self._rate) else (self._rate + latest) / 2
        return list(zip(group, outcomes, strict=False))

    def _put_back(self, points: Sequence[Point]) -> None:
        self._again.extendleft(reversed(points))
        self._left += math.fsum(map(self._cost, points))


def worker_pool(n_workers: int) -> Executor:
    """Processes of joblib's loky, one thread each; kept for the next sweep, ended when idle."""
    from joblib.externals.loky import get_reusable_executor

    names = ("NUMBA", "OMP", "OPENBLAS", "MKL")
    pool: Executor = get_reusable_executor(
        max_workers=n_workers,
        timeout=_IDLE_SECONDS,
        initializer=leave_interrupts_to_the_driver,
        env={f"{name}_NUM_THREADS": "1" for name in names},
    )
    return pool


def end_workers(pool: Executor) -> None:
    """End a loky pool at once, whatever it is doing."""
    pool.shutdown(wait=False, kill_workers=True)  # type: ignore[call-arg]


def leave_interrupts_to_the_driver() -> None:
    """Ignore Ctrl-C in a worker: a terminal sends it to every process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
