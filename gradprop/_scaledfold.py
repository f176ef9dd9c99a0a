"""Fold behind the scaled step norms: products of ||S J S^-1|| for several diagonal S at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradprop._boundcurves import Scalings
from gradprop._boundfolds import RunningSums, until
from gradprop.blocks import Block, Float, Int
from gradprop.largest import largest_singular_values
from gradprop.measure import LagGrid
from gradprop.results import log_of_scaled

if TYPE_CHECKING:
    from gradprop.chain import JacobianChain


class ScaledFold:
    """ln cond(S) + sum of ln ||S J_k S^-1||, the lowest over all S but I of each replica's W."""

    reverse = False
    name, special_cases = "scaled_steps", ("step_norms",)

    def __init__(self, chain: JacobianChain, grid: LagGrid, scalings: Scalings) -> None:
        self.scalings, self._which = scalings, scalings.which
        real = scalings.x.any(axis=(0, 2))
        self._factors, self._constants = np.exp(scalings.x[:, real]), scalings.constants[:, real]
        R, n, K = chain.n_replicas, chain.n, int(real.sum())
        self.grid, self.window = grid, grid.window(chain)
        self.flops, self.floats = 20.0 * K * n**3, 4.0 * n**2
        self._n_valid = chain.lengths.ravel()
        self._sums = RunningSums(R, K)
        self.values = np.full((R, len(grid.unique)), np.nan)
        if grid.column[0] >= 0:
            self.values[:, 0] = 0.0

    def update(self, block: Block, part: slice) -> None:
        """Absorb a block."""
        block = until(block, int(self.grid.unique[-1]))
        which, n_valid = self._which[part], self._n_valid[part]
        lags = np.arange(block.first + 1, block.first + block.n_steps + 1)
        live = lags <= n_valid[:, None]
        J = block.mantissas()
        J[~live] = 0.0
        terms = np.empty((*live.shape, self._factors.shape[1]))
        for k in range(terms.shape[-1]):
            e = self._factors[which, k, None]
            sigma = largest_singular_values(J * e[..., None] / e[..., None, :])
            terms[..., k] = log_of_scaled(sigma, block.exponents)
        sums = self._sums.add(terms, part, n_valid, block.first)
        lowest = (sums + self._constants[which, None]).min(axis=-1, initial=np.inf)
        columns = self.grid.column[lags]
        real = np.where(live, lowest, np.nan)
        self.values[part, columns[columns >= 0]] = real[:, columns >= 0]

    @property
    def final(self) -> Float:
        """Values after each replica's last step, (R,)."""
        lowest = (self._sums.now + self._constants[self._which]).min(axis=-1, initial=np.inf)
        return np.where(self._n_valid == 0, 0.0, lowest)


def scaling_lags(largest: int, count: int) -> Int:
    """`count` lags from the largest down to 1, evenly spaced in their logarithm, and 1 itself."""
    spaced = np.rint(np.geomspace(max(largest, 1), 1, count)).astype(np.int64)
    return np.union1d(spaced, [1])
