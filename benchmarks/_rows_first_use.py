"""What a new process waits for: import, first calls with an empty and a filled cache, a study."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from _cases import OURS, Case
from _processes import ROOT, search_path
from _timing import spread

STUDY = str(ROOT / "studies" / "decay_vs_rho.py")
BASE = "import numpy, numba"
IMPORT_ROUNDS, WARM_ROUNDS = 9, 3

_SETUP = """
import time, numpy as np, gradprop as gp
rng = np.random.default_rng(0)
n, T = 64, 100
W, U, x = rng.standard_normal((n, n)) / 8, rng.standard_normal((n, 4)), rng.standard_normal((T, 4))
cell, c = gp.RNN(W, U), rng.standard_normal((T, n))
start = time.perf_counter()
{call}
print(time.perf_counter() - start)
"""
CALLS = {
    "log_norms": "gp.log_norms(gp.linearise(cell, x))",
    "lyapunov_spectrum": "gp.lyapunov_spectrum(gp.linearise(cell, x))",
    "singular_values": "gp.singular_values(gp.linearise(cell, x))",
    "backward": "gp.backward(cell, x, c)",
}


def _python(*arguments: str, cache: str | None = None) -> str:
    """Standard output of a fresh interpreter, threads as the user has them."""
    environment = dict(os.environ, PYTHONPATH=search_path())
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def _cpu() -> float:
    """CPU seconds of all children so far: beside wall time it tells of a busy machine."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime


def imports() -> Iterator[Case]:
    codes = {BASE: BASE, OURS: f"{BASE}, gradprop"}
    codes["all names"] = f"{codes[OURS]} as g\nfor n in g.__all__: getattr(g, n)"
    times: dict[str, list[float]] = {name: [] for name in codes}
    for code in codes.values():
        _python("-c", code)  # fills the file cache and writes the byte code
    for _ in range(IMPORT_ROUNDS):
        for name, code in codes.items():
            start = time.perf_counter()
            _python("-c", code)
            times[name].append(time.perf_counter() - start)
    spreads = {name: spread(own) for name, own in times.items()}
    over = {name: spreads[name]["median"] - spreads[BASE]["median"] for name in spreads}
    yield Case(
        group="import", n=0, unit="s", clock="wall", times=spreads, measured=over[OURS],
        details={"all public names": over["all names"]},
    )  # fmt: skip


def first_calls() -> Iterator[Case]:
    """Each call in a process of its own, imports not counted; every one from an empty cache."""
    for name, call in CALLS.items():
        code = _SETUP.format(call=call)
        with tempfile.TemporaryDirectory() as cache:
            before = _cpu()
            cold = float(_python("-c", code, cache=cache))
            details = {"CPU s of the first process": _cpu() - before}
            warm = [float(_python("-c", code, cache=cache)) for _ in range(WARM_ROUNDS)]
        times = {OURS: spread([cold]), "again": spread(warm)}
        yield Case(
            group=f"first {name}", n=0, unit="s", clock="wall", times=times, measured=cold,
            details=details, note=f"{times['again']['median']:.2f} s from a filled cache",
        )  # fmt: skip


def _study(group: str, rounds: int, cache: str | None, *flags: str) -> Case:
    """Wall time, from an empty folder each time: a finished point is never computed again."""
    times, before = [], _cpu()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            _python(STUDY, *flags, "--out", folder, cache=cache)
            times.append(time.perf_counter() - start)
    own = spread(times)
    return Case(
        group=group, n=0, unit="s", clock="wall", times={OURS: own}, measured=own["median"],
        details={"CPU s a run": (_cpu() - before) / rounds},
    )  # fmt: skip


def study() -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as cache:
        yield _study("study, quick, cold", 1, cache, "--quick")
        yield _study("study, quick, warm", WARM_ROUNDS, cache, "--quick")
        yield _study("study", 1, cache)
