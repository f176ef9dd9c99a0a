"""Where test data lives, and the one law by which tests set tolerances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

ROOT = Path(__file__).resolve().parents[1]
ORACLES = ROOT / "tests" / "oracles"
FLIPFLOP = ROOT / "studies" / "data" / "weights" / "flipflop_rnn8.npz"


def tolerance(dtype: DTypeLike, n: int, lag: int, c: float = 10.0) -> float:
    """Return c·n·lag·eps: relative error of a product of `lag` n × n factors, in nats for its log.

    Each of the `lag` products adds at most about n·eps relative to the norms at hand. The constant
    is stated by the test and never exceeds 10, so that it cannot be fitted to what came out.
    """
    if not 0 < c <= 10:
        raise ValueError(f"`c` must lie in (0, 10]; got {c}.")
    return c * max(n, 1) * max(lag, 1) * float(np.finfo(np.dtype(dtype)).eps)
