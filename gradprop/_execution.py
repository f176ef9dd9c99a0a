"""Computing the points of a sweep: here, in worker processes, or in any executor."""

from __future__ import annotations

import io
import math
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradprop._points import Point, point_generator
from gradprop._records import as_values, encode
from gradprop.environment import PACKAGE, available_cores, single_threaded_blas

GROUP_SECONDS = 1.0
# Starting two workers and their imports takes about 2 s: shorter work stays in this process.
_WORTH_A_POOL = 3.0
_LONG_POINT = 10.0
_IDLE_SECONDS = 60
Measure = Callable[[dict[str, Any], Any], Mapping[str, Any]]
Outcome = tuple[bytes, bool]
Accept = Callable[[Sequence[tuple[Point, Outcome]]], None]


class WorkersLostError(RuntimeError):
    """A worker process ended without an answer."""


class CannotTravelError(TypeError):
    """A function cannot be sent to worker processes."""


@dataclass(frozen=True)
class Work:
    """What every point of a sweep has in common; travels to workers with each group."""

    measure: Measure
    constants: Mapping[str, Any]
    rng_keys: tuple[str, ...]


def compute(work: Work, point: Point) -> Outcome:
    """Measure one point: its encoded values and False, or the text of its error and True."""
    try:
        generator = point_generator(point, work.rng_keys)
        values = as_values(work.measure({**point, **work.constants}, generator))
        if taken := sorted(values.keys() & point.keys()):
            raise ValueError(f"field `{taken[0]}` of `measure` is already a field of the grid.")
        return encode(values), False
    except Exception as error:
        return _error_text(error).encode(), True


def _error_text(error: Exception) -> str:
    """The message of an error and the last line outside this package that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if PACKAGE not in Path(frame.filename).parents]
    where = f" ({outside[-1].name}, line {outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{where}"


def compute_group(work: Work, points: Sequence[Point]) -> tuple[list[Outcome], float]:
    """Measure points in order until a group's time is over: outcomes so far, and seconds."""
    outcomes: list[Outcome] = []
    start = time.perf_counter()
    with _one_thread():
        for point in points:
            outcomes.append(compute(work, point))
            if time.perf_counter() - start >= 1.5 * GROUP_SECONDS:
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


def run_here(
    work: Work, points: Sequence[Point], accept: Accept, *, may_hand_over: bool = False
) -> Sequence[Point]:
    """Measure points one after the other, handing on about a second's worth at a time.

    Returns what is left: nothing, or, if it may hand over, the points that are worth a pool of
    workers, judged by the time of the last one. At least two are measured first, so that kernels
    are compiled once and lie in the cache before workers ask for them.
    """
    group: list[tuple[Point, Outcome]] = []
    group_start = time.perf_counter()
    try:
        with single_threaded_blas():
            for n_done, point in enumerate(points, 1):
                start = time.perf_counter()
                group.append((point, compute(work, point)))
                now = time.perf_counter()
                if now - group_start >= GROUP_SECONDS:
                    accept(group)
                    group, group_start = [], now
                seconds = now - start
                warm = n_done >= 2 or seconds > _LONG_POINT
                if may_hand_over and warm and seconds * (len(points) - n_done) > _WORTH_A_POOL:
                    return points[n_done:]
    finally:
        # Also after Ctrl-C: what is finished is kept.
        if group:
            accept(group)
    return []


def run_in_executor(
    work: Work, points: Sequence[Point], accept: Accept, executor: Executor
) -> None:
    """Measure points in an executor, in groups of about a second, at most two a worker waiting."""
    n_workers = int(getattr(executor, "_max_workers", 0) or available_cores())
    queue = deque(points)
    waiting: dict[Future[tuple[list[Outcome], float]], list[Point]] = {}
    seconds = math.inf
    try:
        while queue or waiting:
            while queue and len(waiting) < 2 * n_workers:
                group = [queue.popleft() for _ in range(_size(seconds, len(queue), n_workers))]
                waiting[executor.submit(compute_group, work, group)] = group
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                outcomes, spent = future.result()
                group = waiting.pop(future)
                queue.extendleft(reversed(group[len(outcomes) :]))
                accept(list(zip(group, outcomes, strict=False)))
                latest = spent / len(outcomes)
                seconds = latest if math.isinf(seconds) else (seconds + latest) / 2
    except BrokenExecutor as error:
        raise WorkersLostError(
            f"a worker process ended without an answer ({error}): perhaps memory ran out; try "
            "fewer workers (--jobs). What is finished is kept."
        ) from error
    finally:
        # Only after an error or Ctrl-C is anything left: keep what has arrived.
        for future, group in waiting.items():
            if not future.cancel() and future.done() and future.exception() is None:
                accept(list(zip(group, future.result()[0], strict=False)))


def _size(seconds: float, n_left: int, n_workers: int) -> int:
    """Points in a group: a second's worth, but leaving work for all workers towards the end."""
    worth = max(GROUP_SECONDS / max(seconds, 1e-6), 1.0)
    share = max(n_left / (2 * n_workers), worth / 20)
    return max(1, min(int(min(worth, share)), n_left))


def worker_pool(n_workers: int) -> Executor:
    """Processes of joblib's loky, one thread each; kept for the next sweep, ended when idle."""
    from joblib.externals.loky import get_reusable_executor

    names = ("NUMBA", "OMP", "OPENBLAS", "MKL")
    pool: Executor = get_reusable_executor(
        max_workers=n_workers,
        timeout=_IDLE_SECONDS,
        initializer=_leave_interrupts_to_the_driver,
        env={f"{name}_NUM_THREADS": "1" for name in names},
    )
    return pool


def end_workers(pool: Executor) -> None:
    """End a loky pool at once, whatever it is doing."""
    pool.shutdown(wait=False, kill_workers=True)  # type: ignore[call-arg]


def _leave_interrupts_to_the_driver() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_travels(work: Work, executor: Executor | int) -> None:
    """Raise before any work if `measure` cannot reach the workers of this executor."""
    if isinstance(executor, ThreadPoolExecutor):
        return
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "`executor` must not fork, for OpenMP and BLAS threads do not survive it; pass "
            'mp_context=multiprocessing.get_context("spawn") to ProcessPoolExecutor.'
        )
    try:
        if isinstance(executor, ProcessPoolExecutor):
            pickle.dumps(work)
        else:
            from joblib.externals.loky.backend.reduction import dumps

            _Probe(io.BytesIO(dumps(work))).load()
    except Exception as error:
        raise CannotTravelError(
            f"`measure` cannot travel to worker processes ({error}): define it with def at the top "
            "of a module, its cached helpers in a module that can be imported, or run without "
            "workers (executor=None, --jobs 1)."
        ) from error


class _Probe(pickle.Unpickler):
    """Read a pickle as a worker would: there, nothing can be imported from a script."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse references into the script that is running."""
        if module == "__main__":
            raise pickle.PicklingError(f"it uses {name} of the script, which workers cannot import")
        return super().find_class(module, name)
