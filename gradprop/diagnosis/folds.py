"""What a diagnosis measures of its own: norms by path, norms of single steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop._productfold import ProductFold
from gradprop.blocks import Block, DiagonalBlock, Float, Int
from gradprop.cells.base import Cell
from gradprop.cells.composite import Stacked
from gradprop.cells.lstm import LSTM
from gradprop.chain import JacobianChain
from gradprop.largest import largest_singular_values
from gradprop.measure import Fold, LagGrid
from gradprop.norms import LogNorms, Norms
from gradprop.results import LN2, REPLICAS, Result, log_of_scaled

Path = tuple[slice, slice]
"""Rows and columns of the product: where a perturbation arrives, and where it began."""


def paths_of(cell: Cell) -> dict[str, Path]:
    """Ways through the product that have a name: gate paths of an LSTM, layers of a stack."""
    if isinstance(cell, LSTM):
        return _lstm_paths(cell.n, 0, "")
    if not isinstance(cell, Stacked):
        return {}
    paths: dict[str, Path] = {}
    wholes = [
        slice(start, start + layer.n_state)
        for start, layer in zip(cell.offsets, cell.cells, strict=True)
    ]
    for i, (layer, own) in enumerate(zip(cell.cells, wholes, strict=True)):
        paths[f"layer {i}"] = (own, own)
        if isinstance(layer, LSTM):
            within = _lstm_paths(layer.n, own.start, f"layer {i} ")
            paths |= {name: within[name] for name in list(within)[:2]}
    if len(wholes) > 1:
        paths[f"layer 0 to {len(wholes) - 1}"] = (wholes[-1], wholes[0])
    return paths


def _lstm_paths(n: int, start: int, prefix: str) -> dict[str, Path]:
    h, c = slice(start, start + n), slice(start + n, start + 2 * n)
    ways = {"h to h": (h, h), "c to c": (c, c), "h to c": (c, h), "c to h": (h, c)}
    return {prefix + name: way for name, way in ways.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathLogNorms(LogNorms):
    """Norms of the product, and of its blocks.

    Attributes
    ----------
    path_log_norm : float array, shape (..., L, P)
        ln of the 2-norm of each block, in nats.
    paths : tuple of str
        Their names: from and to.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        **LogNorms._axes,
        "path_log_norm": (REPLICAS, "lag", "path"),
    }
    _table: ClassVar[str] = "log_norm"
    path_log_norm: Float
    paths: tuple[str, ...]


class PathNorms:
    """Quantity: ln ||P_lag|| and that of named blocks of P_lag, from one product.

    Parameters
    ----------
    paths : mapping of str to (rows, columns)
    lags : array_like of int
    """

    def __init__(self, paths: Mapping[str, Path], lags: ArrayLike) -> None:
        self._paths, self._lags = dict(paths), lags
        self._norms = Norms(2, lags, "end")

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold."""
        grid = LagGrid(chain, self._lags, "end")
        return [_PathFold(chain, grid, list(self._paths.values()))]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> PathLogNorms:
        """Norms by lag."""
        fold: _PathFold = folds[0]
        whole = self._norms.result(chain, folds)
        values, _ = fold.grid.settle(chain, fold.blocks)
        shape = (*chain.batch_shape, *values.shape[1:])
        return PathLogNorms(
            **{field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)},
            path_log_norm=fold.grid.in_order(values).reshape(shape),
            paths=tuple(self._paths),
        )


class _PathFold(ProductFold):
    """Looks at blocks of the products that the norms are taken of."""

    def __init__(self, chain: JacobianChain, grid: LagGrid, paths: Sequence[Path]) -> None:
        super().__init__(chain, grid)
        self._paths = paths
        self.blocks = np.full((chain.n_replicas, len(grid.unique), len(paths)), np.nan)
        if grid.column[0] >= 0:
            start = np.eye(chain.n)[None, None]
            self.blocks[:, :1] = self._block_norms(start, np.zeros((1, 1), dtype=np.int64))

    def see(
        self, kept: Float, exponents: Int, met: NDArray[np.bool_], part: slice, columns: slice
    ) -> None:
        """Norms of the blocks at the lags that were met."""
        if self._paths:
            values = self._block_norms(kept, exponents)
            self.blocks[part, columns][met] = values[met]

    def _block_norms(self, panel: Float, exponents: Int) -> Float:
        """Ln of the 2-norm of each path's block, shape (..., P)."""
        # counted from the end it is the transposed product that is carried
        sizes = [largest_singular_values(panel[..., cols, rows]) for rows, cols in self._paths]
        if not sizes:
            return np.empty((*exponents.shape, 0))
        return np.stack([log_of_scaled(size, exponents) for size in sizes], axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepLogNorms(Result):
    """Norms of single step Jacobians.

    Attributes
    ----------
    log_norm : float array, shape (..., T)
        ln ||J_t||_2, nats; nan past a sequence's length.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {"log_norm": (REPLICAS, "step_from_1")}
    log_norm: Float


class StepNorms:
    """Quantity: ln ||J_t||_2 of every step."""

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold, forwards."""
        return [_StepFold(chain)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> StepLogNorms:
        """Norms by step."""
        values = folds[0].log_norm
        values[np.arange(chain.n_steps) >= chain.lengths.reshape(-1, 1)] = np.nan
        shape = (*chain.batch_shape, chain.n_steps)
        return StepLogNorms(roles=chain.roles, log_norm=values.reshape(shape))


class _StepFold:
    """Forms each Jacobian and takes its norm."""

    reverse = False

    def __init__(self, chain: JacobianChain) -> None:
        self.window = (0, chain.n_steps)
        self.flops, self.floats = 12.0 * chain.n**3, float(chain.n**2)
        self.log_norm = np.full((chain.n_replicas, chain.n_steps), np.nan)

    def update(self, block: Block | DiagonalBlock, part: slice) -> None:
        """Absorb a block."""
        assert isinstance(block, Block)  # no cell's Jacobians are known to be diagonal
        with np.errstate(invalid="ignore"):
            J = np.nan_to_num(block.mantissas())
        steps = slice(block.first, block.first + block.n_steps)
        with np.errstate(divide="ignore"):
            self.log_norm[part, steps] = np.log(largest_singular_values(J)) + block.exponents * LN2
