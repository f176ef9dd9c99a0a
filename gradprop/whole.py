"""Whole chains at once: ln |det|, the strongest check of all else, and the dense form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, DiagonalBlock, Float, Int
from gradprop.environment import single_threaded_blas
from gradprop.results import LN2


def log_abs_det(blocks: Iterable[Block | DiagonalBlock], n_valid: Int, n: int) -> Float:
    """Sum of ln |det J_t| over each replica's valid steps, shape (R,), for n units."""
    terms: list[Float] = []
    of_matrix = _SharedDeterminants()
    for block in blocks:
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
            per_step = per_step + n * block.exponents * LN2
        terms.append(np.where(live, per_step, 0.0))
    rows = np.concatenate([np.zeros((len(n_valid), 1)), *terms], axis=1)
    return np.array([-np.inf if np.isneginf(row).any() else math.fsum(row) for row in rows])


def dense_form(
    blocks: Iterable[Block | DiagonalBlock], n_valid: Int, n_steps: int, n: int
) -> NDArray[Any]:
    """All Jacobians, shape (R, T, n, n), real or complex; the identity past each length."""
    J: NDArray[Any] = np.zeros((len(n_valid), n_steps, n, n))
    for block in blocks:
        steps = slice(block.first, block.first + block.n_steps)
        if isinstance(block, DiagonalBlock):
            J = J.astype(np.result_type(J, block.factors), copy=False)
            np.einsum("...ii->...i", J)[:, steps] = block.factors
        else:
            J[:, steps] = np.ldexp(block.mantissas(), block.exponents[..., None, None])
    J[np.arange(n_steps) >= n_valid[:, None]] = np.eye(n)
    return J


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
