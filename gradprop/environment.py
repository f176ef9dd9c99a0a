"""The machine a result came from: versions, BLAS, threads, how its floats behave."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = Path(__file__).parent
_PACKAGES = ("numpy", "scipy", "numba", "pandas", "matplotlib", "joblib", "threadpoolctl")
# These move, keep and draw numbers but never make one, so a change in them outdates no record.
_NOT_NUMERIC = {
    *("__init__", "_code", "_execution", "_files", "_gather", "_interrupts", "_manifest"),
    *("_progress", "_run", "_series", "_shards", "_storecli", "_storefile", "_storemerge"),
    *("_sweepresult", "_travel", "cli", "cluster", "environment", "figures", "report", "store"),
    *("_studyflags", "_studyrun", "study", "sweep"),
}


def library_version() -> str:
    """Version of the gradprop that is imported.

    Returns
    -------
    str
        For example ``"0.1.0"``.
    """
    from gradprop import __version__

    return __version__


@functools.cache
def source_digest() -> str:
    """Hash of the sources that make numbers, so that a mended kernel outdates stored records.

    Returns
    -------
    str
        16 hexadecimal digits over every module but those that only store, run or draw.
    """
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent != PACKAGE or path.stem not in _NOT_NUMERIC:
            digest.update(path.relative_to(PACKAGE).as_posix().encode())
            digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:16]


def available_cores() -> int:
    """Cores this process may run on (its affinity where the system has one).

    Returns
    -------
    int
        At least 1.
    """
    if hasattr(os, "process_cpu_count"):
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def flushes_subnormals() -> bool:
    """Whether float64 or float32 arithmetic of this thread turns subnormal numbers into zeros.

    Found by arithmetic: half of the smallest normal number is a subnormal number, or 0 in a thread
    whose processor was told to flush (some libraries do so when loaded).

    Returns
    -------
    bool
        False on an ordinary machine.

    Examples
    --------
    >>> flushes_subnormals()
    False
    """
    halves = [
        np.array([np.finfo(dtype).smallest_normal]) * dtype(0.5)
        for dtype in (np.float64, np.float32)
    ]
    # Compared as integers: a flushing comparison would call every subnormal number zero.
    return any(not half.view(np.uint8).any() for half in halves)


def describe() -> dict[str, Any]:
    """What a reader needs to know to judge whether another machine should give the same bits.

    Returns
    -------
    dict
        ``gradprop``, ``python``, ``packages`` (name to version), ``blas`` (a list: each copy's
        library, version, core, threading layer, threads), ``threads`` (of Numba), ``cores``,
        ``cpu``, ``system``, ``flushes_subnormals``. No paths, no host names, no times.
    """
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "gradprop": library_version(),
        "source_digest": source_digest(),
        "python": platform.python_version(),
        "packages": packages,
        "blas": _blas_copies(),
        "threads": _numba_threads(),
        "cores": available_cores(),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "flushes_subnormals": flushes_subnormals(),
    }


def _blas_copies() -> list[dict[str, Any]]:
    copies = [
        {
            "library": library["internal_api"],
            "prefix": library["prefix"],
            "version": library["version"],
            "core": library.get("architecture"),
            "threading": library.get("threading_layer"),
            "threads": library["num_threads"],
        }
        for library in _LIMITS.controller().info()
    ]
    return sorted(copies, key=lambda copy: (copy["library"], str(copy["version"])))


def _numba_threads() -> int:
    import numba

    return int(numba.get_num_threads())


def _cpu() -> str:
    """Model name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


class _BlasLimit(threading.local):
    """Depth of nested limits in this thread, so that all but the outermost cost nothing."""

    depth = 0


class _BlasLimits:
    """The limits of all threads on all BLAS copies of the process.

    Most copies have one setting for the process, which comes back when the last thread leaves;
    MKL and those built on OpenMP have one for each thread, which comes back when it leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = _BlasLimit()
        self._n_users = 0
        self._n_modules = -1
        self._controller: Any = None
        self._before: list[tuple[Any, int]] = []

    def controller(self) -> Any:
        """The controller of every BLAS loaded by now; looked up again after any new import."""
        import scipy.linalg  # noqa: F401  Numba calls SciPy's BLAS: unloaded, it escapes the limit
        from threadpoolctl import ThreadpoolController

        if len(sys.modules) != self._n_modules:
            self._controller = ThreadpoolController().select(user_api="blas")
            self._n_modules = len(sys.modules)
        return self._controller

    def enter(self) -> None:
        """Limit BLAS to one thread unless this thread already did."""
        self._here.depth += 1
        if self._here.depth > 1:
            return
        with self._lock:
            if self._n_users == 0:
                copies = self.controller().lib_controllers
                self._before = [(copy, copy.num_threads) for copy in copies]
                self._take_control()
            self._n_users += 1
            for copy, _ in self._before:
                copy.set_num_threads(1)

    def leave(self) -> None:
        """Restore the thread counts that no other thread needs limited."""
        self._here.depth -= 1
        if self._here.depth > 0:
            return
        with self._lock:
            self._n_users -= 1
            last = self._n_users == 0
            if last:
                self._take_control()
            for copy, number in self._before:
                if last or _has_setting_per_thread(copy):
                    copy.set_num_threads(number)
            if last:
                self._take_control()

    def _take_control(self) -> None:
        """Let this thread set counts: threadpoolctl 3.8 heeds only the first thread that did."""
        for copy, _ in self._before:
            if hasattr(copy, "clear_controlling_thread"):
                copy.clear_controlling_thread(force=True)


def _has_setting_per_thread(copy: Any) -> bool:
    return bool(copy.internal_api != "openblas" or copy.threading_layer == "openmp")


_LIMITS = _BlasLimits()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run BLAS at one thread inside: sums keep their order, pools do not fight for cores.

    All copies are limited (NumPy's, and SciPy's, which Numba calls); the old thread counts come
    back on leaving. It may be nested, and used by several threads at once: the limit lasts until
    the last of them leaves.

    Notes
    -----
    About 50 microseconds for the outermost use, 1 for a nested one; a few milliseconds after new
    modules were imported, when the list of libraries is looked up again.
    """
    _LIMITS.enter()
    try:
        yield
    finally:
        _LIMITS.leave()
