"""Random chains through the strip kernel, every array between canaries, against a plain loop.

Sizes, layouts, zero rows, leaks, lags, anchors, dtypes and cuts into blocks are drawn
(tests/strip_draws.py); integer arithmetic where the loop is in doubt. Aims: no canary touched, no
zero claimed that is none, no error above the stated one.

python benchmarks/fuzz_kernels.py [DRAWS] [SEED]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from strip_draws import check


def main(draws: int = 5000, seed: int = 0) -> None:
    start, worst, above = time.perf_counter(), 0.0, 0
    for i in range(draws):
        ratio = check(np.random.default_rng([51, seed, i]))
        worst, above = max(worst, ratio), above + (ratio > 1)
    seconds = time.perf_counter() - start
    print(f"{draws} draws, {above} above the stated error, worst {worst:.3f}; {seconds:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
