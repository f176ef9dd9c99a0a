"""Damaged weight files: is each refused, or read with the shapes it had, fast and in little memory?

Bits, bytes, digits, eight-byte numbers and whole pieces of files are changed (tests/mutations.py).
Aims: no crash, no hang, memory within 4 x size + 100 MB, no wrong shape accepted. 20 000 ``.npz``
and ``.safetensors`` files are read in this process, 500 each of HDF5 and ONNX in child processes.

python benchmarks/fuzz_weights.py [SEED]
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mutations import outcomes

COUNTS = {("npz", "safetensors"): 20_000, ("keras",): 500, ("onnx",): 500}
WARM_UP = 50
MEMORY = 100 * 10**6
"""The files are of a few KiB, so that their own size does not matter."""


def peak() -> int:
    """Most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(seed: int = 0) -> None:
    for kinds, count in COUNTS.items():
        seen: Counter[str] = Counter()
        slowest, before = 0.0, 0
        start = time.perf_counter()
        for i, (what, _) in enumerate(outcomes(kinds, count, seed)):
            before = peak() if i == WARM_UP else before
            slowest = max(slowest, time.perf_counter() - start) if i >= WARM_UP else 0.0
            seen[what] += 1
            start = time.perf_counter()
        grown = peak() - before
        counted = ", ".join(f"{n} {what}" for what, n in seen.most_common())
        print(
            f"{' '.join(kinds)}: {sum(seen.values())} files, {counted}; slowest {slowest:.3f} s, "
            f"memory grew by {grown / 1e6:.1f} MB",
            flush=True,
        )
        if grown > MEMORY:
            sys.exit(f"more than {MEMORY / 1e6:.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
