"""Gradients of single outputs of one step, of each sequence by itself, never out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.gradients._paths import back, rescale
from gradprop.gradients._problem import Problem
from gradprop.gradients._scaled import NOTHING, ScaledSum
from gradprop.results import log_sum_exp

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

BLOCK = 32
"""Steps between two products of gradients at pre-activations with what they meet."""


class OutputGradients:
    """Sequences of one network, run, and u cotangents for the h of each.

    Parameters
    ----------
    problem : Problem
    network : int
    rows : int array (B,)
    cotangents : float array (u, n)
    """

    def __init__(self, problem: Problem, network: int, rows: Int, cotangents: Float) -> None:
        self._runs = problem.run(network, rows)
        self._lengths = problem.lengths[rows]
        self._cotangents = cotangents.astype(problem.dtype)
        self._copies, self._dtype = len(cotangents), problem.dtype

    def log_squares(self, t: int) -> Float:
        """Ln of the squared norms of the gradients of the h after step t, (B, 1 + arrays, u)."""
        ends = np.minimum(self._lengths, t)
        v = [self._zeros(1, run.n_state) for run in self._runs]
        power = np.full(len(ends), NOTHING, dtype=np.int64)
        sums = [ScaledSum(run, self._copies) for run in self._runs]
        for stop in range(int(ends.max(initial=0)), 0, -BLOCK):
            m = min(BLOCK, stop)
            met = np.empty((m, len(ends)), dtype=np.int64)
            deltas, recurrents = (
                [self._zeros(m, run.arrays.W_hh.shape[0]) for run in self._runs] for _ in range(2)
            )
            for j in reversed(range(m)):
                step = stop - m + j
                self._enter(v[-1], power, ends == step + 1)
                met[j] = power
                back(self._runs, v, step, _at(deltas, j), _at(recurrents, j), self._copies)
                rescale([self._by_sequence(a) for a in v], power)
            for own, delta, recurrent in zip(sums, deltas, recurrents, strict=True):
                own.add(stop - m, delta, recurrent, met)
        each = [log for own in sums for log in own.log_squares()]
        return np.stack([log_sum_exp(np.array(each), axis=0), *each], axis=1)

    def _zeros(self, m: int, width: int) -> Array:
        return np.zeros((m, len(self._lengths) * self._copies, width), dtype=self._dtype)

    def _by_sequence(self, a: Array) -> Array:
        return a.reshape(len(self._lengths), self._copies, -1)

    def _enter(self, v: Array, power: Int, here: NDArray[np.bool_]) -> None:
        """Set the cotangents of sequences whose step this is."""
        n = self._cotangents.shape[1]
        power[here] = 0
        self._by_sequence(v)[here, :, :n] = self._cotangents


def _at(layers: list[Array], j: int) -> list[Array]:
    """Views of step j of each layer's array, that axis kept."""
    return [a[j : j + 1] for a in layers]
