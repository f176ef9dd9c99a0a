"""One thread or several: the same bytes, for orbits and every analysis."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import joblib
import numba
import numpy as np
import pytest
import threadwork
from helpers import ROOT, same

import gradprop as gp
from gradprop import _threads


def numbers(R, n, steps):
    """Results of all analyses on R replicas, as one list of arrays."""
    rng = np.random.default_rng(R)
    cell = gp.RNN(2 * rng.standard_normal((R, n, n)) / np.sqrt(n), rng.standard_normal((n, 3)))
    x = rng.standard_normal((R, steps, 3))
    lengths = rng.integers(1, steps + 1, R)
    chain = gp.linearise(cell, x, lengths=lengths)
    dense = gp.JacobianChain.dense(rng.standard_normal((R, steps, n, n)))
    u = rng.standard_normal(n)
    out = [gp.rollout(cell, x, lengths=lengths).h, chain.to_dense(), chain.log_abs_det()]
    for c in (chain, dense):
        out += [
            gp.log_norms(c).log_norm,
            gp.log_norms(c, ord="fro", anchor="end").error,
            gp.singular_values(c, lags=[steps // 2, steps]).log_sigma,
            gp.lyapunov_spectrum(c).exponents,
            gp.lyapunov_spectrum(c, 1).std_error,
            gp.gradient_by_lag(c, u).log_norm,
            gp.jvp(c, u).mantissa,
        ]
    return out


@pytest.fixture
def threads():
    """Set Numba's thread count, and put it back."""
    before = numba.get_num_threads()
    yield numba.set_num_threads
    numba.set_num_threads(before)


@pytest.mark.parametrize(("R", "n", "steps"), [(1, 5, 30), (2, 5, 30), (7, 4, 60), (5, 40, 6)])
def test_one_and_two_threads_give_the_same_bytes(R, n, steps, threads):
    threads(1)
    single = numbers(R, n, steps)
    threads(min(2, numba.config.NUMBA_NUM_THREADS))
    assert all(same(a, b) for a, b in zip(numbers(R, n, steps), single, strict=True))


@pytest.mark.parametrize("count", [2, 3, 16])
def test_any_number_of_threads_gives_the_same_bytes(count, monkeypatch):
    """More threads than this machine may have cores."""
    monkeypatch.setattr(_threads, "thread_count", lambda: 1)
    single = numbers(6, 4, 40)
    monkeypatch.setattr(_threads, "thread_count", lambda: count)
    assert len(_threads.replica_slices(6, 100)) == min(count, 6)
    assert all(same(a, b) for a, b in zip(numbers(6, 4, 40), single, strict=True))


@pytest.mark.parametrize("replicas", [1, 2, 5, 17])
@pytest.mark.parametrize("largest", [1, 3, 100])
def test_slices_cover_every_replica_once(replicas, largest):
    slices = _threads.replica_slices(replicas, largest)
    covered = [r for part in slices for r in range(part.start, part.stop)]
    assert covered == list(range(replicas))
    assert max(part.stop - part.start for part in slices) <= largest


def test_p081_power_iteration_in_parallel_is_the_serial_one(threads):
    rng = np.random.default_rng(81)
    W, starts = rng.standard_normal((3, 3)), rng.standard_normal((27, 3))
    chain = gp.JacobianChain.dense(np.broadcast_to(W, (27, 50, 3, 3)))
    threads(1)
    serial = gp.jvp(chain, starts)
    threads(min(2, numba.config.NUMBA_NUM_THREADS))
    parallel = gp.jvp(chain, starts)
    assert same(parallel.mantissa, serial.mantissa)
    assert same(parallel.exponent, serial.exponent)


def in_a_process(count: int, n: int) -> str:
    """`digest` in a fresh interpreter of so many threads, which must leave BLAS as it was."""
    code = (
        "import numpy, scipy.linalg, threadpoolctl, threadwork\n"
        "def blas(): return [c['num_threads'] for c in threadpoolctl.threadpool_info()"
        " if c['user_api'] == 'blas']\n"
        f"before = blas()\nprint(threadwork.digest({n}))\n"
        "assert blas() == before, (before, blas())\n"
    )
    env = {**os.environ, "NUMBA_NUM_THREADS": str(count), "OPENBLAS_NUM_THREADS": str(count)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("n", [16, 64, 300])
def test_processes_of_one_and_two_threads_give_the_same_bytes(n):
    """300 is a size at which OpenBLAS itself gives other bytes on two threads."""
    assert in_a_process(1, n) == in_a_process(2, n)


@pytest.mark.parametrize("kind", ["spawn", "loky", "threading"])
def test_workers_of_any_kind_give_the_same_bytes(kind):
    """Several at once, each with threads of its own (dask: test_cluster.py)."""
    sizes = [16, 40, 16]
    if kind == "spawn":
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(threadwork.digest, sizes))
    else:
        found = joblib.Parallel(2, backend=kind)(
            joblib.delayed(threadwork.digest)(n) for n in sizes
        )
    assert found == [threadwork.digest(n) for n in sizes]


def test_an_error_in_a_thread_comes_out():
    def work(part):
        raise RuntimeError(f"replica {part.start}")

    with pytest.raises(RuntimeError, match="replica 0"):
        _threads.spread(work, [slice(0, 1), slice(1, 2)])
