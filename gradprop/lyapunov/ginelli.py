"""Ginelli's two passes: QR forwards between checkpoints, triangular solves backwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradprop._threads import replica_slices, spread
from gradprop.blocks import Block, Float, Int
from gradprop.chain import JacobianChain
from gradprop.environment import single_threaded_blas
from gradprop.measure import CALL_FLOPS
from gradprop.rotations import random_rotation


class Ginelli:
    """Forward QR from checkpoint to checkpoint, then backward solves from the last one.

    ``since`` (R,) is the time from which on columns have kept their places: those of directions
    that are lost stand last.
    """

    def __init__(self, chain: JacobianChain, k: int, ends: tuple[int, int], rng: Any) -> None:
        R, n = chain.n_replicas, chain.n
        self._chain, self._ends = chain, ends
        self._n_valid = chain.lengths.ravel()
        self._Q = np.tile(random_rotation(n, k, rng), (R, 1, 1))
        self._slices = replica_slices(R, R)
        widest = max(part.stop - part.start for part in self._slices)
        self._per_call = max(1, int(CALL_FLOPS // (widest * (2 * n * n * k + 8 * n * k * k))))
        self._zero, self._unsure, self.since = _no_flags(R, k)
        self._alive_rows, self._bound = np.ones((R, n), dtype=bool), np.full(R, n)
        self._total, self._carry = np.zeros((2, R, k))
        self._counted = np.zeros(R, dtype=np.int64)

    def lost(self) -> tuple[Any, Any]:
        """Directions that exact zeros take away, and those behind a pivot that is lost, (R, k)."""
        proven = np.arange(self._zero.shape[1]) >= self._bound[:, None]
        doubtful = (self._unsure > 0) | (self._zero > 0) & ~proven
        return proven, np.maximum.accumulate(doubtful, axis=1) & ~proven

    @property
    def alive(self) -> Int:
        """How many leading directions are not lost, (R,)."""
        proven, doubtful = self.lost()
        return np.asarray((~(proven | doubtful)).sum(axis=1))

    @property
    def mean_growth(self) -> Float:
        """Of the steps between the two ends, (R, k)."""
        with np.errstate(invalid="ignore"):
            return np.asarray((self._total + self._carry) / self._counted[:, None])

    def run(self, times: Int, splits: Int) -> tuple[Float, Float, Float]:
        """Both passes; vectors, growth and angles at `times`."""
        R, n, k = self._Q.shape
        flags = self._zero, self._unsure, self.since
        length = max(1, math.isqrt(self._chain.n_steps - self._ends[0]))
        starts = range(self._ends[0], self._chain.n_steps, length)
        self._advance(0, self._ends[0], flags)
        checkpoints = []
        for start in starts:
            checkpoints.append(self._Q.copy())
            self._advance(start, start + length, flags)
        vectors, growth = (
            np.full((R, len(times), n, k), np.nan),
            np.full((R, len(times), k), np.nan),
        )
        angles = np.full((R, len(times), len(splits)), np.nan)
        C = np.tile(np.eye(k), (R, 1, 1))
        for start, self._Q in zip(reversed(starts), reversed(checkpoints), strict=True):
            pieces = list(self._forward(start, start + length, _no_flags(R, k)))
            while pieces:
                block, bases, uppers = pieces.pop()
                coordinates, grown = self._backward(block, uppers, C)
                low, high = np.searchsorted(times, [block.first, block.first + block.n_steps])
                at = times[low:high] - block.first
                growth[:, low:high] = grown[:, at]
                with single_threaded_blas():
                    vectors[:, low:high] = bases[:, at] @ coordinates[:, at]
                    for r, alive in enumerate(self.alive):
                        angles[r, low:high] = splitting_angles(coordinates[r, at], splits, alive)
        return vectors, growth, angles

    def _advance(self, start: int, stop: int, flags: tuple[Int, Int, Int]) -> None:
        """First pass: only the basis, flags and zeros that are proven are carried on."""
        from gradprop._kernels import structure

        for block, _, _ in self._forward(start, stop, flags):
            structure.follow_steps(
                block.matrices, block.index, block.scales, block.identity, self._n_valid,
                block.first, self._alive_rows, self._bound,
            )  # fmt: skip

    def _forward(
        self, start: int, stop: int, flags: tuple[Int, Int, Int]
    ) -> Iterator[tuple[Block, Float, Float]]:
        """Blocks of the steps from start on, with the Q before and the R of each step."""
        from gradprop._kernels import covariant

        R, n, k = self._Q.shape
        stop = min(stop, self._chain.n_steps)
        for first in range(start, stop, self._per_call):
            block = self._chain.source.block(first, min(first + self._per_call, stop))
            bases, uppers = (np.zeros((R, block.n_steps, rows, k)) for rows in (n, k))

            def work(part: slice, block: Any = block, kept: Any = (bases, uppers)) -> None:
                own = block.replicas(part)
                covariant.forward_steps(
                    own.matrices, own.index, own.scales, own.exponents, own.identity,
                    self._n_valid[part], own.first, self._Q[part],
                    *(array[part] for array in (*flags, *kept)),
                )  # fmt: skip

            spread(work, self._slices)
            yield block, bases, uppers  # type: ignore[misc]

    def _backward(self, block: Block, uppers: Float, C: Float) -> tuple[Float, Float]:
        """Coordinates before each step of the block, and growth through it; C is carried on."""
        from gradprop._kernels import covariant

        R, m, k, _ = uppers.shape
        coordinates, growth = np.empty((R, m, k, k)), np.zeros((R, m, k))
        until = self._n_valid - self._ends[1]

        def work(part: slice) -> None:
            covariant.backward_steps(
                uppers[part], block.exponents[part], self._n_valid[part], self.since[part],
                until[part], block.first, C[part], coordinates[part], growth[part],
                self._total[part], self._carry[part], self._counted[part],
            )  # fmt: skip

        spread(work, self._slices)
        return coordinates, growth


def _no_flags(R: int, k: int) -> tuple[Int, Int, Int]:
    """Fresh zero (R, k), unsure (R, k), since (R,)."""
    zero, unsure = np.zeros((2, R, k), dtype=np.int64)
    return zero, unsure, np.zeros(R, dtype=np.int64)


def splitting_angles(coordinates: Float, splits: Int, alive: int) -> Float:
    """Smallest principal angle between the first j columns and the others, (W, S).

    coordinates (W, k, k) are upper triangular with unit columns, in an orthonormal basis; only the
    first `alive` columns count. The first j columns span the first j axes: the sine of the angle is
    the smallest singular value of what an orthonormal basis of the others has beyond those axes.
    """
    angles = np.full((len(coordinates), len(splits)), np.nan)
    for s, j in enumerate(splits):
        if j < alive and len(coordinates):
            basis = np.linalg.qr(coordinates[:, :alive, j:alive])[0]
            sine = np.linalg.svd(basis[:, j:], compute_uv=False)[..., -1]
            angles[:, s] = np.arcsin(np.minimum(sine, 1.0))
    return angles
