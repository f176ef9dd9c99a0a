"""What does a point of a sweep cost beside its own time, and what breaks first at ten millions?

python benchmarks/sweep_scaling.py [LARGEST]      (default: 100000 points; 3 min)
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from concurrent.futures import wait
from pathlib import Path

from gradprop.cluster import dask_executor
from gradprop.store import Store
from gradprop.sweep import Sweep

TARGET, N_WORKERS = 10**7, 100


def nothing(point, rng):
    return {"x": rng.random(), "y": 2.0 * point["rho"]}


def memory() -> float:
    """MB in use now (Linux), or at most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def sweep(n_points: int) -> Sweep:
    grid = {"kind": ["a", "b"], "rho": [i / 7 for i in range(n_points // 20)]}
    return Sweep("main", nothing, grid, seeds=10, rng_keys=["kind"])


def timed(n_points: int, executor, path: Path) -> list[float]:
    """ms a point to build, to run and to find finished; bytes of file and of memory a point."""
    before, start = memory(), time.perf_counter()
    made = sweep(n_points)
    built = time.perf_counter()
    with Store(path) as store:
        result = made.run(store, executor, progress=False)
    ran, after = time.perf_counter(), memory()
    with Store(path) as store:
        made.run(store, progress=False)
    again = time.perf_counter()
    assert len(result) == n_points
    times = [1e3 * t / n_points for t in (built - start, ran - built, again - ran)]
    return [*times, path.stat().st_size / n_points, 1e6 * (after - before) / n_points]


def rate(executor, n_calls: int = 1000) -> float:
    """Empty calls that scheduler and workers settle in a second."""
    start = time.perf_counter()
    wait([executor.submit(int) for _ in range(n_calls)])
    return n_calls / (time.perf_counter() - start)


def table(largest: int) -> tuple[dict[str, list[float]], float]:
    sizes = [n for n in (10**2, 10**3, 10**4, 10**5, 10**6) if n <= largest]
    print("points   run by        build   run  again  ms/point;  file  memory  bytes/point")
    last = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask_executor("local", 2) as two,
        dask_executor("local", 1) as one,
    ):
        for n in sizes:
            for name, executor in (("serial", None), ("dask, 1", one), ("dask, 2", two)):
                found = timed(n, executor, Path(folder) / f"{name}{n}.sqlite")
                last[name] = found
                shown = f"{found[0]:7.3f}{found[1]:7.3f}{found[2]:7.3f}"
                print(f"{n:7d}  {name:10}{shown}            {found[3]:7.0f}{found[4]:7.0f}")
        return last, rate(two)


def project(costs: dict[str, list[float]], calls: float) -> None:
    """Ten million points of a second each on a hundred workers."""
    build, run, again, file, held = costs["dask, 2"]
    work = TARGET / N_WORKERS / 3600
    driver = TARGET * run / 1e3 / 3600
    print(f"\n{TARGET:.0e} points of 1 s on {N_WORKERS} workers: {work:.1f} h of work")
    print(f"  driver busy {driver:.2f} h of these ({100 * driver / work:.1f} %)")
    print(f"  scheduler: {N_WORKERS} groups a second (here it settles {calls:.0f})")
    print(f"  file {TARGET * file / 1e9:.1f} GB, memory of the driver {TARGET * held / 1e9:.1f} GB")
    print(f"  found finished in {TARGET * again / 6e4:.0f} min")
    print(f"  grid built in {TARGET * build / 6e4:.1f} min")


if __name__ == "__main__":
    project(*table(int(sys.argv[1]) if len(sys.argv) > 1 else 10**5))
