"""Import time of gradprop over what its core needs, in fresh interpreters (median of 7).

Prints a line per import and the difference to ``import numpy, numba``; the aim for
``import gradprop`` is at most 0.25 s over it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 7
ROOT = Path(__file__).resolve().parents[1]
BASE = "import numpy, numba"
CASES = {
    "nothing": "",
    BASE: BASE,
    f"{BASE}, gradprop": f"{BASE}, gradprop",
    "the same, and all public names": f"{BASE}, gradprop as g\nfor n in g.__all__: getattr(g, n)",
}


def seconds(code: str) -> float:
    """Wall time of one interpreter that runs `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return time.perf_counter() - start


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for code in CASES.values():
        seconds(code)  # fills the file cache and writes the byte code
    for _ in range(ROUNDS):  # interleaved, so that a busy spell hits all cases
        for name, code in CASES.items():
            times[name].append(seconds(code))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        spread = f"{min(times[name]):.3f}-{max(times[name]):.3f}"
        over = median - medians[BASE]
        print(
            f"{name:<32} {median:6.3f} s ({spread}), {over:+.3f} s, x {median / medians[BASE]:.2f}"
        )


if __name__ == "__main__":
    main()
