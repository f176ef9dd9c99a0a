"""Random orthonormal columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradprop.blocks import Float
from gradprop.environment import single_threaded_blas

EPS = float(np.finfo(np.float64).eps)


def random_rotation(n: int, k: int | None = None, rng: Any = 0) -> Float:
    """Haar-distributed orthonormal columns, shape (n, k), the same on every call by default."""
    drawn = np.random.default_rng(rng).standard_normal((n, n if k is None else k))
    with single_threaded_blas():  # two threads round another way from n = 300 on
        Q, R = np.linalg.qr(drawn)
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))
