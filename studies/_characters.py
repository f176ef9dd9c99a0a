"""Prediction of the next character of the English text: splits, batches, one-hot inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import _text_input
import numpy as np
from _training import Batch
from numpy.typing import NDArray

Array = NDArray[Any]
TRAINING, VALIDATION = 80_000, 90_000
"""Ends of the first two parts of the text; the rest is the test set."""


def splits() -> tuple[Array, Array, Array]:
    """Codes of the training, validation and test text, one after the other in the excerpt."""
    codes, _ = _text_input.characters()
    return codes[:TRAINING], codes[TRAINING:VALIDATION], codes[VALIDATION:]


def size() -> int:
    """Number of different characters."""
    return _text_input.characters()[1]


def read(codes: Array, starts: Array, length: int) -> Batch:
    """Sequences of `length` characters from given places; at each step the next one is wanted."""
    read = codes[starts[:, None] + np.arange(length + 1)]
    x = np.eye(size(), dtype=np.float32)[read[:, :-1]]
    return Batch(x, read[:, 1:], mask=np.ones((len(starts), length), dtype=bool))


def whole(codes: Array, length: int) -> Batch:
    """All of a text, cut into sequences; what is left over is dropped."""
    return read(codes, np.arange(0, len(codes) - length, length), length)


def batches(codes: Array, number: int, length: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches of sequences from random places, for ever."""
    while True:
        yield read(codes, rng.integers(0, len(codes) - length, number), length)
