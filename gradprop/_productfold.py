"""The fold behind spectral norms: strips of the product, put together at every lag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop._stripfold import StripFold
from gradprop._threads import replica_slices, spread
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.largest import largest_singular_values
from gradprop.measure import LagGrid

FAINTEST = -2000
"""Strips further below the largest one, as a power of two, are zero beside it."""


class ProductFold(StripFold):
    """Takes the largest singular value of P at every lag; the check columns bound it as well."""

    roundings = 4.0

    def __init__(self, chain: JacobianChain, grid: LagGrid) -> None:
        super().__init__(chain, grid)
        self.floats += 2.0 * chain.n**2 * len(self._stops.unique) / max(chain.n_steps, 1)

    def norm_at_start(self) -> float:
        """The value at lag 0."""
        return 1.0

    def see(
        self, P: Float, exponents: Int, met: NDArray[np.bool_], part: slice, columns: slice
    ) -> None:
        """Look at products (r, C, n, n), to be times 2**exponents, of some replicas and lags."""

    def _room(self, n_replicas: int, n_lags: int) -> Float:
        return np.zeros((n_replicas, n_lags, self._n, self._n))

    def _sizes(
        self, fro: Float, kept: Float, exponents: Int, top: Int, met: Any, columns: slice
    ) -> Float:
        sizes = np.zeros_like(fro)
        own = self._tiles * self._width

        def work(part: slice) -> None:
            P = kept[part]
            for g in range(self._G if self._G > 1 else 0):
                power = np.clip(exponents[part, g] - top[part], FAINTEST, 0).astype(np.int32)
                P[..., g * own : (g + 1) * own] *= np.ldexp(1.0, power)[..., None, None]
            sizes[part] = largest_singular_values(P)
            self.see(P, top[part], met[part], part, columns)

        spread(work, replica_slices(len(kept), len(kept)))
        return sizes
