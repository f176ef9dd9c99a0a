"""Means that leave the range of floats only if they themselves do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float, Int


def scaled_mean(values: Float, *, power: int = 1, count: Int | None = None) -> NDArray[np.float64]:
    """Mean of values**power over the last axis, summed in units of a power of two.

    `count` (...) replaces the number of entries where some of them only stand for missing ones (0).
    The result is inf or 0 only where the mean is outside the range of float64, or an entry is inf.
    """
    exponent = np.frexp(np.abs(values).max(axis=-1, initial=0.0))[1]
    with np.errstate(over="ignore", under="ignore"):
        total = (np.ldexp(values, -exponent[..., None]) ** power).sum(axis=-1)
        mean = total / (values.shape[-1] if count is None else count)
        return np.asarray(np.ldexp(mean, power * exponent))
