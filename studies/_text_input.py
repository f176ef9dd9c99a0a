"""Real input: English text, one character a step, through a random input matrix."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEXT = Path(__file__).parent / "data" / "python_topics.txt"


@functools.lru_cache(maxsize=1)
def characters() -> tuple[NDArray[np.int64], int]:
    """Codes 0 .. K-1 of the characters of the excerpt, and K."""
    alphabet, codes = np.unique(np.frombuffer(TEXT.read_bytes(), np.uint8), return_inverse=True)
    return codes.astype(np.int64), len(alphabet)


def drive(
    rng: np.random.Generator, n: int, n_steps: int, std: float, size: tuple[int, ...] = ()
) -> NDArray[np.float64]:
    """Input currents W_xh x_t, shape (*size, n_steps, n), for one-hot characters x_t.

    Entries of W_xh are N(0, std^2); each network reads from a random place in the text.
    """
    codes, n_characters = characters()
    W_xh = std * rng.standard_normal((*size, n_characters, n))
    start = rng.integers(0, len(codes) - n_steps, size=size)
    read = codes[start[..., None] + np.arange(n_steps)]
    return np.take_along_axis(W_xh, read[..., None], axis=-2)
