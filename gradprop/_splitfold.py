"""Fold behind the adaptive blocked bound: norms of dyadic windows, and the best cut into them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gradprop._boundfolds import SURE, until
from gradprop._enclosures import EPS, gamma_of
from gradprop.blocks import Block, DiagonalBlock, Float, Int
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values
from gradprop.measure import LagGrid
from gradprop.results import log_of_scaled

if TYPE_CHECKING:
    from gradprop.chain import JacobianChain

N_LENGTHS = 6
"""Windows have 1, 2, 4, 8, 16 and 32 steps."""


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Products of windows of steps; every field has the axes replica, window, ..."""

    def some(self, windows: slice) -> Self:
        """Some of the windows."""
        return self._mapped(lambda name: getattr(self, name)[:, windows])

    def before(self, later: Self) -> Self:
        """These windows, then others."""
        return self._mapped(
            lambda name: np.concatenate([getattr(self, name), getattr(later, name)], axis=1)
        )

    def _mapped(self, field: Any) -> Self:
        return type(self)(**{f.name: field(f.name) for f in dataclasses.fields(self)})


@dataclasses.dataclass(frozen=True)
class _Products(_Windows):
    """2**exponent (matrix + E) with ||E|| <= error; norm is above ||matrix + E||."""

    matrix: Float
    exponent: Int
    error: Float
    norm: Float

    @classmethod
    def of(cls, matrix: Float, exponent: Int, error: Float, relative: float = 0.0) -> _Products:
        """Scale each matrix to a largest entry of order one, and bound its norm.

        ||E|| is at most error + relative ||matrix||_F.
        """
        shift = np.frexp(np.abs(matrix).max(axis=(-2, -1)))[1].astype(np.int64)
        matrix = np.ldexp(matrix, -shift[..., None, None])
        error = np.ldexp(error, -shift) + relative * np.linalg.norm(matrix, axis=(-2, -1))
        sigma = largest_singular_values(matrix)
        norm = sigma * (1 + SURE * matrix.shape[-1] * EPS) + error
        return cls(matrix, exponent + shift, error, norm)

    def log_norms(self) -> Float:
        """Upper bounds of the logs of the norms, (r, c)."""
        return log_of_scaled(self.norm, self.exponent)

    def pairs(self) -> _Products:
        """Each window but the first times the one before it."""
        late, early = self.some(slice(1, None)), self.some(slice(-1))
        size = np.linalg.norm(self.matrix, axis=(-2, -1))
        rounding = gamma_of(self.matrix.shape[-1] + 2) * size[:, 1:] * size[:, :-1]
        error = late.norm * early.error + late.error * early.norm + rounding
        return _Products.of(late.matrix @ early.matrix, late.exponent + early.exponent, error)


@dataclasses.dataclass(frozen=True)
class _Sums(_Windows):
    """Products of diagonal factors: sums of ln |a| by unit, (r, c, n)."""

    logs: Float

    def log_norms(self) -> Float:
        """Logs of the norms, (r, c)."""
        return np.asarray(self.logs.max(axis=-1))

    def pairs(self) -> _Sums:
        """Each window but the first times the one before it."""
        return _Sums(self.logs[:, 1:] + self.logs[:, :-1])


class SplitFold:
    """The least product of norms over all cuts into windows, by dynamic programming over lags.

    A window of m = 2**k steps begins at a multiple of m / 2: it is a pair of consecutive windows
    of m / 2 steps that begin at multiples of their length.
    """

    reverse = False
    name, special_cases = "blocked_adaptive", ("blocked", "blocked_2", "blocked_5")

    def __init__(self, chain: JacobianChain, grid: LagGrid) -> None:
        R, n = chain.n_replicas, chain.n
        self.grid, self.window = grid, grid.window(chain)
        dense = chain.structure != "diagonal"
        self.flops, self.floats = (60.0 * n**3, 10.0 * n**2) if dense else (40.0 * n, 10.0 * n)
        self._n_valid = chain.lengths.ravel()
        self._high, self._low = np.zeros((2, R, 2 ** (N_LENGTHS - 1) + 1))
        self._last: dict[tuple[int, int], Any] = {}
        self.final = np.zeros(R)
        self.values = np.full((R, len(grid.unique)), np.nan)
        if grid.column[0] >= 0:
            self.values[:, 0] = 0.0

    def update(self, block: Block | DiagonalBlock, part: slice) -> None:
        """Absorb a block."""
        from gradprop._kernels.splits import cheapest_splits

        block = until(block, int(self.grid.unique[-1])) if isinstance(block, Block) else block
        n_valid = self._n_valid[part]
        lags = np.arange(block.first + 1, block.first + block.n_steps + 1)
        live = lags <= n_valid[:, None]
        with single_threaded_blas():
            logs = self._window_norms(_steps(block, live), block.first, block.n_steps, part.start)
        out = np.full(live.shape, np.nan)
        cheapest_splits(
            logs, n_valid, block.first, self._high[part], self._low[part], self.final[part], out
        )
        columns = self.grid.column[lags]
        self.values[part, columns[columns >= 0]] = out[:, columns >= 0]

    def _window_norms(self, windows: Any, first: int, n_steps: int, key: int) -> Float:
        """Ln norms by length of the windows that end in a block: (r, N_LENGTHS, m), else inf."""
        steps = windows.log_norms()
        logs = np.full((len(steps), N_LENGTHS, n_steps), np.inf)
        logs[:, 0] = steps
        begin = first  # of the first window at hand, in units of its length
        for k in range(1, N_LENGTHS):
            half = 2 ** (k - 1)
            if (key, k) in self._last:
                windows, begin = self._last[key, k].before(windows), begin - 1
            if windows.log_norms().shape[1] == 0:
                break
            self._last[key, k] = windows.some(slice(-1, None))
            pairs = windows.pairs()
            n_pairs = pairs.log_norms().shape[1]
            logs[:, k, (begin + 2) * half - first - 1 :: half][:, :n_pairs] = pairs.log_norms()
            windows = pairs.some(slice(begin % 2, None, 2))
            begin = (begin + 1) // 2
        return logs


def _steps(block: Block | DiagonalBlock, live: Any) -> _Products | _Sums:
    """The steps of a block as windows of length one; steps that do not exist become zero."""
    if isinstance(block, DiagonalBlock):
        with np.errstate(divide="ignore"):
            return _Sums(np.where(live[..., None], np.log(np.abs(block.factors)), 0.0))
    J = block.mantissas()
    J[~live] = 0.0
    return _Products.of(J, block.exponents, np.zeros(live.shape), 2 * EPS)
