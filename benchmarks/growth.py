"""How time and memory grow with n, T and R, beside what the algorithms promise; about 10 minutes.

Each quantity and axis runs in a process of its own, smallest size first, on one thread, until the
next size would take more than 15 s. Time is CPU time of the whole call, the orbit included (median
of several calls; one where it is long). Memory is the peak of the resident set during the call over
what was resident before the first one, as Linux tells it (VmHWM, set back before each size).
Powers of time are least squares of the logs over the upper half of the sizes, those of memory the
rise between the last two: blocks of steps grow with T up to about 50 MB, and no further. Sizes off
the axis are those of `BASE`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import _processes
import numpy as np
from _random_networks import networks

AXES = {
    "n": (16, 32, 64, 128, 256, 512, 1024),
    "T": (10**2, 10**3, 10**4, 10**5, 10**6),
    "R": (1, 10, 10**2, 10**3, 10**4),
}
BASE = {"n": 16, "T": 100, "R": 1}
LONGEST = 15.0
"""CPU seconds of a call beyond which an axis ends."""
STEEPEST = 3
"""Power at which the time of the next size is predicted along n; 1 along T and R."""
CALLS, ENOUGH = 5, 1.0
"""Calls a size, fewer once they took ENOUGH seconds."""
WARM_STEPS = 12
NOTICED = 8.0
"""MB below which no exponent of memory is fitted: a few blocks of an allocator."""
GAIN, D_X, PROBES = 1.2, 8, 8


@dataclasses.dataclass(frozen=True)
class Promise:
    """Expected powers of time and of memory along each axis."""

    time: Mapping[str, int]
    memory: Mapping[str, int]


def _promise(n: int, memory_t: int = 0) -> Promise:
    return Promise({"n": n, "T": 1, "R": 1}, {"n": 2, "T": memory_t, "R": 1})


PROMISES = {
    "log_norms": _promise(3),
    "log_norms, probe": _promise(2),
    "lyapunov_spectrum, k = 1": _promise(2),
    "lyapunov_spectrum": _promise(3),
    "singular_values": _promise(3),
    "backward": _promise(2, memory_t=1),
}


def call_of(quantity: str, n: int, T: int, R: int) -> Callable[[], Any]:
    """The whole call; only the last lag is asked for, so that the answer does not grow with T."""
    import gradprop as gp

    W, h0 = networks(n, R, GAIN)
    if quantity == "backward":
        rng = np.random.default_rng(0)
        own = gp.RNN(W[0], rng.standard_normal((n, D_X)))
        x, c = (rng.standard_normal((R, T, m)) for m in (D_X, n))
        return lambda: gp.backward(own, x, c)
    cell = gp.RNN(W)
    calls: dict[str, Callable[[Any], Any]] = {
        "log_norms": lambda chain: gp.log_norms(chain, ord="fro", lags=[T]),
        "log_norms, probe": lambda chain: gp.log_norms(
            chain, ord="fro", lags=[T], method="probe", probes=PROBES
        ),
        "lyapunov_spectrum, k = 1": lambda chain: gp.lyapunov_spectrum(chain, k=1),
        "lyapunov_spectrum": gp.lyapunov_spectrum,
        "singular_values": lambda chain: gp.singular_values(chain, lags=[T]),
    }
    analyse = calls[quantity]
    return lambda: analyse(gp.linearise(cell, h0=h0, n_steps=T))


def megabytes(field: str) -> float:
    """VmRSS or VmHWM of this process; nan where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    """Set VmHWM back to what is resident now."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def measure(call: Callable[[], Any]) -> float:
    """Median CPU seconds of a call."""
    times: list[float] = []
    while len(times) < CALLS and sum(times) < ENOUGH:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def points(quantity: str, axis: str) -> Iterator[dict[str, float]]:
    """Seconds and MB by size, in this process."""
    call_of(quantity, **BASE)()  # compiles, and fills the pools of the allocator
    before, last = megabytes("VmRSS"), (0, 0.0)
    for size in AXES[axis]:
        power = STEEPEST if axis == "n" else 1
        if last[0] and last[1] * (size / last[0]) ** power > LONGEST:
            return
        if axis == "n":  # some kernels are for large matrices only
            call_of(quantity, size, WARM_STEPS, 1)()
        call = call_of(quantity, **(BASE | {axis: size}))
        forget_peak()
        seconds = measure(call)
        last = size, seconds
        yield {"size": size, "s": seconds, "MB": megabytes("VmHWM") - before}


def slope(sizes: list[float], values: list[float]) -> float:
    """Power by least squares of the logs over the upper half, three sizes at least."""
    first = min(len(sizes) // 2, len(sizes) - 3)
    if first < 0 or min(values[first:]) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(sizes[first:]), np.log(values[first:]), 1)[0])


def rise(sizes: list[float], values: list[float]) -> float:
    """Power between the last two sizes."""
    return float(np.diff(np.log(values[-2:]))[0] / np.diff(np.log(sizes[-2:]))[0])


def child_points(quantity: str, axis: str) -> list[dict[str, float]]:
    command = [sys.executable, __file__, "--child", quantity, axis]
    environment = _processes.environment(1)
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def fitted(quantity: str, axis: str) -> dict[str, Any]:
    found = child_points(quantity, axis)
    sizes, seconds, memory = ([p[key] for p in found] for key in ("size", "s", "MB"))
    return {
        "quantity": quantity, "axis": axis, "points": found, "largest": sizes[-1],
        "time": slope(sizes, seconds), "time expected": PROMISES[quantity].time[axis],
        "memory": rise(sizes, memory) if memory[-1] >= NOTICED else None,
        "memory expected": PROMISES[quantity].memory[axis], "MB": memory[-1],
    }  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    memory = "-" if row["memory"] is None else f"{row['memory']:.2f}"
    return (
        f"{row['quantity']:<26} {row['axis']}  {row['largest']:>8.0f} {row['points'][-1]['s']:8.2f}"
        f"   {row['time']:5.2f} ({row['time expected']})  {row['MB']:8.1f}"
        f"   {memory:>5} ({row['memory expected']})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--only", choices=list(PROMISES), help="one quantity")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        for point in points(*given.child):
            print(json.dumps(point), flush=True)
        return
    print(
        "quantity                  axis largest        s   power (expected)   MB  power (expected)"
    )
    rows = []
    for quantity in [given.only] if given.only else PROMISES:
        for axis in AXES:
            rows.append(fitted(quantity, axis))
            print(shown(rows[-1]), flush=True)
    if given.json:
        sys.path.insert(0, str(_processes.ROOT))
        from gradprop.environment import describe

        text = json.dumps({"machine": describe(), "load": os.getloadavg(), "rows": rows}, indent=1)
        given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
