"""ln |det| of whole chains, the strongest check that exponents and singular values can have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gradprop.blocks import DiagonalBlock, Float
from gradprop.environment import single_threaded_blas
from gradprop.results import LN2

if TYPE_CHECKING:
    from gradprop.chain import JacobianChain


def log_abs_det(chain: JacobianChain) -> Float:
    """Sum of ln |det J_t| over each replica's valid steps, shape (R,)."""
    terms: list[Float] = []
    n_valid = chain.lengths.ravel()
    of_matrix = _SharedDeterminants()
    for block in chain.blocks():
        live = np.arange(block.first, block.first + block.n_steps) < n_valid[:, None]
        with np.errstate(divide="ignore"):
            if isinstance(block, DiagonalBlock):
                per_step = np.log(np.abs(block.factors)).sum(axis=-1)
            elif block.identity.any():
                with single_threaded_blas():
                    per_step = np.linalg.slogdet(block.mantissas())[1]
            else:
                per_step = of_matrix(block.matrices)[block.index]
                per_step = per_step + np.log(np.abs(block.scales)).sum(axis=-1)
        if not isinstance(block, DiagonalBlock):
            per_step = per_step + chain.n * block.exponents * LN2
        terms.append(np.where(live, per_step, 0.0))
    rows = np.concatenate([np.zeros((chain.n_replicas, 1)), *terms], axis=1)
    return np.array([-np.inf if np.isneginf(row).any() else math.fsum(row) for row in rows])


class _SharedDeterminants:
    """ln |det| of a block's matrices, computed once for the matrices that all blocks share."""

    def __init__(self) -> None:
        self._matrices: Float | None = None
        self._values: Float | None = None

    def __call__(self, matrices: Float) -> Float:
        if self._values is None or matrices is not self._matrices:
            with single_threaded_blas():
                self._values = np.asarray(np.linalg.slogdet(matrices)[1])
            self._matrices = matrices
        return self._values
