"""Running the sweeps of a study: store, workers, parts, and what to say when it cannot go on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from gradprop._shards import shard_stores
from gradprop._storemerge import merge_store
from gradprop.cluster import OtherLibraryError, SchedulerError, dask_executor
from gradprop.store import Store, StoreBusyError, StoreError
from gradprop.sweep import (
    BatchDiffersError,
    CannotTravelError,
    Sweep,
    SweepFailedError,
    WorkersLostError,
)

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
T = TypeVar("T")


class StudyError(Exception):
    """A run that cannot go on; the text is for the user, the code for the shell."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def running(path: Path, options: argparse.Namespace) -> Iterator[tuple[Store, Executor | int]]:
    """The store of a run and its workers; what goes wrong with them becomes a message."""
    try:
        with Store(path) as store, _workers(options) as executor:
            yield store, executor
    except (StoreBusyError, CannotTravelError, SchedulerError, BatchDiffersError) as error:
        raise StudyError(str(error), MISTAKE) from error
    except (StoreError, WorkersLostError, OtherLibraryError) as error:
        raise StudyError(str(error), FAILED) from error


def _workers(options: argparse.Namespace) -> AbstractContextManager[Executor | int]:
    if options.scheduler is None:
        return nullcontext(options.jobs)
    return dask_executor(options.scheduler, options.jobs)


@contextmanager
def read_only(path: Path) -> Iterator[Store | None]:
    """A store to look up what is finished; None if there is none yet."""
    if path.exists():
        with Store(path, read_only=True) as store:
            yield store
    else:
        yield None


@contextmanager
def whole_disk(folder: Path) -> Iterator[None]:
    """Say what to do when the results cannot be written, though all points are finished."""
    try:
        yield
    except OSError as error:
        raise StudyError(
            f"cannot write to {folder} ({error.strerror or error}): free some space or mend its "
            "permissions and run the same command again. Everything finished is kept.",
            FAILED,
        ) from error


def all_of(sweeps: Sequence[Sweep], run: Callable[[Sweep], T], otherwise: str) -> list[T]:
    """Run every sweep, going on past failed points; a StudyError at the end if there were any."""
    results, failures = [], []
    for sweep in sweeps:
        try:
            results.append(run(sweep))
        except SweepFailedError as error:
            failures.append(str(error))
    if failures:
        raise StudyError("\n".join([*failures, otherwise]), FAILED)
    return results


def merge_shards(store: Store, path: Path, codes: Collection[str]) -> None:
    """Take over what the parts of a study computed with its present code."""
    parts = list(shard_stores(path))
    if not parts:
        raise StudyError(
            f"there are no parts beside {path}: compute them with --shard 1/k to k/k and the same "
            "--out, or leave out --merge.",
            MISTAKE,
        )
    for part in parts:
        n_taken, fault = merge_store(store, part, codes)
        damage = f" ({fault} Its sound records were taken.)" if fault else ""
        say(f"{shown_path(part)}: {n_taken} records taken over{damage}")


def say(text: str) -> None:
    """Tell the user something that is no result."""
    print(text, file=sys.stderr, flush=True)


def shown_path(path: Path) -> Path:
    """A path as seen from the current folder, if it lies below it."""
    here = Path.cwd()
    return path.resolve().relative_to(here) if here in path.resolve().parents else path
