"""Spread kernel calls over replicas: no sum is shared, so results do not depend on threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba

from gradprop.environment import single_threaded_blas


def thread_count() -> int:
    """Threads that analyses may use: Numba's setting (NUMBA_NUM_THREADS, set_num_threads)."""
    return int(numba.get_num_threads())


def replica_slices(n_replicas: int, largest: int) -> list[slice]:
    """Cut replicas into slices of at most `largest`, evenly over the threads."""
    threads, least = thread_count(), -(-n_replicas // max(largest, 1))
    # as many for each thread: five slices keep the second of two waiting for a sixth of the time
    parts = min(-(-max(least, 1) // threads) * threads, n_replicas)
    edges = [n_replicas * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def spread(work: Callable[[slice], None], slices: list[slice]) -> None:
    """Call `work` once per slice, in threads if there are several, with BLAS at one thread."""
    with single_threaded_blas():
        if len(slices) == 1 or thread_count() == 1:
            for part in slices:
                work(part)
            return
        with ThreadPoolExecutor(min(thread_count(), len(slices))) as pool:
            list(pool.map(functools.partial(_alone, work), slices))


def _alone(work: Callable[[slice], None], part: slice) -> None:
    """In a thread of the pool: some BLAS builds keep the limit per thread."""
    with single_threaded_blas():
        work(part)
