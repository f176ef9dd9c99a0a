"""Step Jacobians along an orbit: kept if they fit, else recomputed from checkpoints."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, Float, Int
from gradprop.rollout import Array, Orbit

KEPT_FLOATS = 2**23
"""phi' of a whole orbit is kept up to this many floats (64 MiB)."""

CHUNK_FLOATS = 2**20
"""Floats of one chunk between two checkpoints (8 MiB)."""


class OrbitSource:
    """Factors of a cell along one orbit; random access to any range of steps."""

    def __init__(self, orbit: Orbit) -> None:
        self.orbit = orbit
        width = max(orbit.n_replicas * orbit.cell.n, 1)
        self._chunk = int(np.clip(CHUNK_FLOATS // width, 1, 4096))
        self._keep = orbit.n_steps * width <= KEPT_FLOATS

    @functools.cached_property
    def _first_run(self) -> tuple[list[Array], Float | None, Int]:
        """Checkpointed states, phi' of the whole orbit if it fits, and valid steps."""
        orbit = self.orbit
        h, n_valid = orbit.start.copy(), orbit.lengths.copy()
        checkpoints, kept = [], []
        for start in range(0, orbit.n_steps, self._chunk):
            checkpoints.append(h.copy())
            _, zs = orbit.advance(h, n_valid, start, min(start + self._chunk, orbit.n_steps))
            if self._keep:
                kept.append(orbit.derivatives(zs))
        empty = np.empty((orbit.n_replicas, 0, orbit.cell.n))
        return checkpoints, np.concatenate([empty, *kept], axis=1) if self._keep else None, n_valid

    @property
    def n_valid(self) -> Int:
        """Steps of each replica before its length or an overflow."""
        return self._first_run[2]

    @property
    def overflowed(self) -> NDArray[np.bool_]:
        """Replicas whose orbit overflowed."""
        return np.asarray(self.n_valid < self.orbit.lengths)

    def block(self, start: int, stop: int) -> Block:
        """Factors of steps start .. stop - 1."""
        checkpoints, kept, n_valid = self._first_run
        if kept is not None:
            return self.orbit.block_of(kept[:, start:stop], start)
        at = start // self._chunk
        h, parts = checkpoints[at].copy(), []
        for first in range(at * self._chunk, stop, self._chunk):
            last = min(first + self._chunk, stop)
            _, zs = self.orbit.advance(h, n_valid.copy(), first, last)
            parts.append(zs[:, max(start - first, 0) :])
        return self.orbit.block_of(self.orbit.derivatives(np.concatenate(parts, axis=1)), start)
