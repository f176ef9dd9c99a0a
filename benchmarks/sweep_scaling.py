"""What does a point of a sweep cost beside its own time, and what breaks first at ten millions?

python benchmarks/sweep_scaling.py [LARGEST]      (default: 100000 points; 5 min)

Every row is a process of its own. Memory is the peak of the driver, of a run and of one that finds
all finished, above what it held after a first sweep of 10000 points and beyond the arrays that the
sweep returns (``answer``). Linux alone tells it. The sweep has a cost, so that points are ordered.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Executor, wait
from contextlib import nullcontext
from pathlib import Path

from gradprop import _execution
from gradprop.cluster import dask_executor
from gradprop.store import Store
from gradprop.sweep import Sweep, SweepResult

TARGET, N_WORKERS = 10**7, 100
FIRST, N_CALLS = 10**4, 2000
PROCESS = Path("/proc/self")
KINDS = {"serial": 0, "dask, 1": 1, "dask, 2": 2}
Row = dict[str, float]


def nothing(point, rng):
    return {"x": rng.random(), "y": 2.0 * point["rho"]}


def cost(point) -> float:
    return 1.0 + point["rho"]


def held() -> float:
    """Bytes in use now; from here on, the peak is counted anew."""
    (PROCESS / "clear_refs").write_text("5")
    return int((PROCESS / "statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> float:
    lines = (PROCESS / "status").read_text().splitlines()
    return next(1024 * float(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def sweep(n_points: int) -> Sweep:
    grid = {"kind": ["a", "b"], "rho": [i / 7 for i in range(n_points // 20)]}
    return Sweep("main", nothing, grid, seeds=10, rng_keys=["kind"], cost=cost)


def run(made: Sweep, path: Path, executor: Executor | None) -> SweepResult:
    with Store(path) as store:
        return made.run(store, executor, progress=False)


def size(result: SweepResult) -> int:
    return sum(array.nbytes for array in (*result.points.values(), *result.values.values()))


def measured(n_points: int, executor: Executor | None, folder: Path) -> Row:
    """ms a point to build, to run and to find finished; bytes a point of file and of memory."""
    for first in (executor, None):
        run(sweep(FIRST), folder / "first.sqlite", first)
    path, before = folder / "a.sqlite", held()
    start = time.perf_counter()
    made = sweep(n_points)
    built = time.perf_counter()
    result = run(made, path, executor)
    ran, answer = time.perf_counter(), size(result)
    assert len(result) == n_points
    del result
    found = time.perf_counter()
    run(made, path, None)
    again = time.perf_counter()
    total = {"file": path.stat().st_size, "answer": answer, "memory": peak() - before - answer}
    times = {"build": built - start, "run": ran - built, "again": again - found}
    found = {k: 1e3 * t / n_points for k, t in times.items()} | {
        k: b / n_points for k, b in total.items()
    }
    return found


def calls(executor: Executor) -> Row:
    """Empty calls that scheduler and workers settle in a second, and what each leaves behind."""
    wait([executor.submit(int) for _ in range(N_CALLS)])
    before, start = held(), time.perf_counter()
    for _ in range(10):
        wait([executor.submit(int) for _ in range(N_CALLS)])
    seconds = time.perf_counter() - start
    return {"calls": 10 * N_CALLS / seconds, "left": (peak() - before) / (10 * N_CALLS)}


def one(kind: str, n_points: int) -> None:
    """A row of the table, as JSON on stdout; without points, of empty calls."""
    workers = dask_executor("local", KINDS[kind]) if KINDS[kind] else nullcontext()
    with tempfile.TemporaryDirectory() as folder, workers as executor:
        print(
            json.dumps(measured(n_points, executor, Path(folder)) if n_points else calls(executor))
        )


def row(kind: str, n_points: int) -> Row:
    command = [sys.executable, __file__, kind, str(n_points)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Row = json.loads(done.stdout)
    return found


def table(largest: int) -> Row:
    print("  points  run by      build   run  again ms/point;  file  answer  memory bytes/point")
    last = {}
    for n in (n for n in (10**4, 10**5, 10**6) if n <= largest):
        for kind in KINDS:
            last[kind] = found = row(kind, n)
            times = "".join(f"{found[k]:7.3f}" for k in ("build", "run", "again"))
            sizes = "".join(f"{found[k]:8.0f}" for k in ("file", "answer", "memory"))
            print(f"{n:8d}  {kind:8}{times}         {sizes}", flush=True)
    return last["dask, 2"] | row("dask, 2", 0)


def groups_a_worker(seconds: float) -> int:
    """Groups into which a sweep cuts what a worker has to do, of points of a second."""
    count = 0
    while seconds > 0:
        long = min(seconds / _execution._GROUPS_A_WORKER, _execution._LONGEST_GROUP)
        seconds -= max(1.0, long)
        count += 1
    return count


def project(found: Row) -> None:
    """Ten million points of a second each on a hundred workers, the tightest limit first."""
    work = TARGET / N_WORKERS
    calls = N_WORKERS * groups_a_worker(work)
    groups = f"it settles {found['calls']:.0f} groups a second, of {calls:.1e}"
    hours = f"{TARGET * found['run'] / 3.6e6:.2f} h"
    shares = {
        "scheduler": (calls / work / found["calls"], groups),
        "driver": (N_WORKERS * found["run"] / 1e3, hours),
    }
    print(f"\n{TARGET:.0e} points of 1 s on {N_WORKERS} workers: {work / 3600:.1f} h of work")
    for name, (share, text) in sorted(shares.items(), key=lambda item: -item[1][0]):
        print(f"  {name} busy {100 * share:.1f} % of the time ({text})")
    beside = TARGET * max(found["memory"], 0.0) / 1e9
    left = calls * max(found["left"], 0.0) / 1e9
    print(f"  memory of the driver: {TARGET * found['answer'] / 1e9:.2f} GB returned,")
    print(f"    {beside:.2f} GB beside it, {left:.2f} GB left by calls of a scheduler of its own")
    print(f"  file {TARGET * found['file'] / 1e9:.1f} GB")
    print(f"  found finished in {TARGET * found['again'] / 6e4:.0f} min")
    print(f"  grid built in {TARGET * found['build'] / 1e3:.1f} s")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in KINDS:
        one(sys.argv[1], int(sys.argv[2]))
    else:
        project(table(int(sys.argv[1]) if len(sys.argv) > 1 else 10**5))
