"""Networks that all candidates of a case share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def networks(n: int, R: int, gain: float, dtype: str = "float64") -> tuple[Array, Array]:
    """R different W (R, n, n) of variance gain^2 / n, and starts (R, n)."""
    rng = np.random.default_rng(n)
    W = gain * rng.standard_normal((R, n, n)) / np.sqrt(n)
    return W.astype(dtype), rng.standard_normal((R, n)).astype(dtype)
