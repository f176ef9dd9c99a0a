"""Tasks with a known answer and a known memory: the adding problem, and which symbol came first."""

from __future__ import annotations

import numpy as np
from _training import Batch

CONSTANT_GUESS = 1.0 / 6.0
"""Mean squared error of the best constant on the adding task: the variance of two U(0, 1)."""


def adding(size: int, length: int, rng: np.random.Generator) -> Batch:
    """Sum of the two marked values of a sequence, one mark in each half.

    x (B, T, 2) holds values U(0, 1) and marks; S. Hochreiter, J. Schmidhuber, Long short-term
    memory, Neural Comput. 9, 1735 (1997), section 5.4, with values in [0, 1].
    """
    values = rng.random((size, length))
    half = length // 2
    marks = np.zeros((size, length))
    rows = np.arange(size)
    for low, high in ((0, half), (half, length)):
        marks[rows, rng.integers(low, high, size)] = 1.0
    total = (values * marks).sum(axis=1, keepdims=True)
    x = np.stack([values, marks], axis=-1)
    return Batch(x.astype(np.float32), total.astype(np.float32))


def order(size: int, length: int, rng: np.random.Generator, symbols: int = 8) -> Batch:
    """Does symbol 0 come before symbol 1? Sequences of other symbols with one of each.

    x (B, T, symbols) one-hot; label 1 if 0 comes first, exactly half of the sequences. The bag of
    words is the same for both labels: it holds no answer.
    """
    rest = rng.integers(2, symbols, (size, length))
    first, second = np.sort(
        np.stack([rng.choice(length, 2, replace=False) for _ in range(size)]), axis=1
    ).T
    label = rng.permutation(np.arange(size) % 2)
    rows = np.arange(size)
    rest[rows, first] = 1 - label
    rest[rows, second] = label
    return Batch(np.eye(symbols, dtype=np.float32)[rest], label.astype(np.int64))


def order_of_several(
    size: int, length: int, each: int, rng: np.random.Generator, symbols: int = 8
) -> Batch:
    """Which of symbols 0 and 1 comes first, in sequences that hold `each` of both?

    With each = 1 the task of :func:`order`. Label 1 if 0 comes first, exactly half of the
    sequences, and the bag of words holds no answer.
    """
    rest = rng.integers(2, symbols, (size, length))
    where = np.sort(np.argsort(rng.random((size, length)), axis=1)[:, : 2 * each], axis=1)
    label = rng.permutation(np.arange(size) % 2)
    marks = rng.permuted(np.tile(np.arange(2 * each) % 2, (size, 1)), axis=1)
    marks = np.where((marks[:, 0] == label)[:, None], 1 - marks, marks)
    np.put_along_axis(rest, where, marks, axis=1)
    return Batch(np.eye(symbols, dtype=np.float32)[rest], label.astype(np.int64))


def recall(size: int, length: int, delay: tuple[int, int], rng: np.random.Generator) -> Batch:
    """Say at each query the sign that stood at the last store, `delay` steps back (both ends in).

    x (B, T, 3) holds random signs, store flags and query flags; the next store comes 1 to 16 steps
    after a query, the first within the first 16 steps. Labels count at queries alone.
    """
    x = np.zeros((size, length, 3), dtype=np.float32)
    x[..., 0] = rng.choice((-1.0, 1.0), (size, length))
    label = np.zeros((size, length), dtype=np.int64)
    for row, wanted in zip(x, label, strict=True):
        store = int(rng.integers(16))
        while (query := store + int(rng.integers(delay[0], delay[1] + 1))) < length:
            row[store, 1] = row[query, 2] = 1.0
            wanted[query] = row[store, 0] > 0
            store = query + int(rng.integers(1, 17))
    return Batch(x, label, mask=x[..., 2] > 0)
