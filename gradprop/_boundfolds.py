"""Folds behind the trajectory bounds: step norms, blocked products, and what lies below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gradprop.blocks import Block, DiagonalBlock, Float, Int, scaled_rows
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values
from gradprop.measure import LagGrid
from gradprop.results import LN2, log_of_scaled
from gradprop.rotations import EPS, random_rotation

if TYPE_CHECKING:
    from gradprop.chain import JacobianChain

MARGIN = 1000.0
"""Measured rounding of a product is added to (or taken from) its norm this many times. The product
is formed from I and from a random rotation; all n or more entries of the difference would have to
lie a thousandfold below the error itself. Of 21 000 random products compared with exact norms, most
of them cancelling, n = 2 .. 4, none needed more than 10."""

N_VECTORS = 4
"""Dimension of the random subspace whose largest image is the lower bound."""

SURE = 4.0
"""Singular values are right to SURE n eps sigma_1; LAPACK's own constant is below 1 in practice."""

UNENDING = np.iinfo(np.int64).max


class RunningSums:
    """Compensated sums (R, q) of terms that come block by block."""

    def __init__(self, R: int, q: int, period: int = 0) -> None:
        self._sums, self._carry = np.zeros((2, R, q))
        self._period = period

    def add(self, terms: Float, part: slice, n_valid: Int, first: int) -> Float:
        """Sums after every term, for terms (r, m, q) of the replicas in `part`."""
        from gradprop._kernels import bounds

        out = np.empty(terms.shape)
        sums, carry = self._sums[part], self._carry[part]
        bounds.running_sums(
            np.ascontiguousarray(terms), n_valid, first, self._period, sums, carry, out
        )
        return out

    @property
    def now(self) -> Float:
        """Sums of what has come so far."""
        return np.asarray(self._sums + self._carry)


class _Blocks:
    """Products of `period` factors, begun anew after each: where they end, what is complete."""

    def __init__(self, chain: JacobianChain, grid: LagGrid, period: int, width: int) -> None:
        self.period = period
        ends = np.arange(period, chain.n_steps + 1, period)
        self.stops = LagGrid(chain, np.union1d(grid.unique, ends), "start")
        self.completed = RunningSums(chain.n_replicas, 1)
        self.inside = RunningSums(chain.n_replicas, width, period)


class _BoundFold:
    """Bounds by name, replica and lag; ``slope`` is the largest leak |phi'| of each replica.

    `periods` names the blocked bounds and the number of factors in a block of each.
    """

    reverse = False
    window: tuple[int, int]
    flops: float
    floats: float

    def __init__(
        self, chain: JacobianChain, grid: LagGrid, periods: Mapping[str, int], width: int
    ) -> None:
        R, n = chain.n_replicas, chain.n
        self.grid, self._n = grid, n
        self.window = grid.window(chain)
        self._n_valid = chain.lengths.ravel()
        names = ("step_norms", *periods, "lower")
        self.values = {name: np.full((R, len(grid.unique)), np.nan) for name in names}
        self.slope = np.zeros(R)
        self._blocks = {name: _Blocks(chain, grid, m, width) for name, m in periods.items()}
        if grid.column[0] >= 0:
            for values in self.values.values():
                values[:, 0] = 0.0

    def _record(self, name: str, part: slice, lags: Int, values: Float) -> None:
        """Keep values (r, m) of consecutive lags (m,) where they are asked for and exist."""
        columns = self.grid.column[lags]
        wanted = columns >= 0
        real = np.where(lags <= self._n_valid[part][:, None], values, np.nan)
        self.values[name][part, columns[wanted]] = real[:, wanted]

    def _record_blocked(self, name: str, part: slice, lags: Int, partial: Float) -> None:
        """Keep and sum up ln norms `partial` (r, C) of the blocks that the lags (C,) lie in."""
        own = self._blocks[name]
        before = own.completed.now[part]
        ended = (lags % own.period == 0) & (lags <= self._n_valid[part][:, None])
        done = own.completed.add(
            np.where(ended, partial, 0.0)[..., None], part, np.full(len(partial), UNENDING), 0
        )[..., 0]
        self._record(name, part, lags, np.hstack([before, done[:, :-1]]) + partial)


class MatrixBoundFold(_BoundFold):
    """Bounds of chains of full matrices: one SVD a step, one at every lag and end of a block."""

    def __init__(self, chain: JacobianChain, grid: LagGrid, periods: Mapping[str, int]) -> None:
        super().__init__(chain, grid, periods, 1)
        R, n, T = chain.n_replicas, chain.n, chain.n_steps
        self.flops, self.floats = (60.0 + 40.0 * len(periods)) * n**3, 8.0 * n**2
        self._total = RunningSums(R, 2)
        self._rotations = [random_rotation(n), random_rotation(min(n, N_VECTORS))]
        self._start = np.hstack([np.eye(n), self._rotations[0]])
        self._P = {name: np.tile(self._start, (R, 1, 1)) for name in periods}
        self._P_exponent = {name: np.zeros(R, dtype=np.int64) for name in periods}
        V = random_rotation(n, min(n, N_VECTORS), rng=1)
        self._V = np.tile(np.hstack([V, V @ self._rotations[1]]), (R, 1, 1))
        self._V_exponent, self._age = np.zeros((2, R), dtype=np.int64)
        self._rows: Int | None = None
        self._log_dets: Float | None = None
        if chain.recurrence is not None:
            self.window = (0, T)  # gamma belongs to the whole chain, whatever lags are asked for
            matrices, rows = scaled_rows(chain.recurrence.W)
            self._rows = rows[chain.recurrence.which]
            if chain.recurrence.leak == 1.0:
                self._log_dets = _log_det_below(_singular_values(matrices))

    def update(self, block: Block, part: slice) -> None:
        """Absorb a block."""
        n_valid = self._n_valid[part]
        self._note_slope(block, part)
        block = until(block, int(self.grid.unique[-1]))
        lags = np.arange(block.first + 1, block.first + block.n_steps + 1)
        J = block.mantissas()
        J[lags > n_valid[:, None]] = 0.0
        log_norms = log_of_scaled(largest_singular_values(J), block.exponents)
        terms = np.stack([log_norms, self._log_det_per_unit(block, J)], axis=-1)
        sums = self._total.add(terms, part, n_valid, block.first)
        self._record("step_norms", part, lags, sums[..., 0])
        for name, own in self._blocks.items():
            inside = own.inside.add(terms[..., :1], part, n_valid, block.first)[..., 0]
            self._multiply_blocks(name, block, part, inside)
        self._push_vectors(block, part, sums[..., 1])

    def _note_slope(self, block: Block, part: slice) -> None:
        """Raise ``slope`` to the largest leak |phi'| of the block's valid steps."""
        if self._rows is not None:
            live = (
                np.arange(block.first, block.first + block.n_steps) < self._n_valid[part][:, None]
            )
            power = block.exponents[..., None] - self._rows[part][:, None]
            slope = np.ldexp(np.abs(block.scales), power).max(axis=-1, initial=0.0)
            largest = np.where(live, slope, 0.0).max(axis=-1)
            self.slope[part] = np.maximum(self.slope[part], largest)

    def _log_det_per_unit(self, block: Block, J: Float) -> Float:
        """Lower bounds of ln |det J| / n, (r, m)."""
        if self._log_dets is None:
            log_det = _log_det_below(_singular_values(J))
        else:
            with np.errstate(divide="ignore"):
                log_det = self._log_dets[block.index] + np.log(np.abs(block.scales)).sum(axis=-1)
        return np.asarray(log_det / self._n + block.exponents * LN2)

    def _multiply_blocks(self, name: str, block: Block, part: slice, inside: Float) -> None:
        from gradprop._kernels import bounds

        own = self._blocks[name]
        first, last = own.stops.columns_between(block.first, block.first + block.n_steps)
        lags = own.stops.unique[first:last]
        kept = np.zeros((len(inside), len(lags), *self._start.shape))
        exponents = np.zeros(kept.shape[:2], dtype=np.int64)
        bounds.block_product_steps(
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            self._n_valid[part], block.first, own.period, self._start, self._P[name][part],
            self._P_exponent[name][part], own.stops.column, first, kept, exponents,
        )  # fmt: skip
        above = _log_norm(kept, exponents, self._rotations[0], MARGIN)
        smallest = np.minimum(above, inside[:, lags - block.first - 1])
        self._record_blocked(name, part, lags, smallest)

    def _push_vectors(self, block: Block, part: slice, log_dets: Float) -> None:
        from gradprop._kernels import products

        first, last = self.grid.columns_between(block.first, block.first + block.n_steps)
        lags = self.grid.unique[first:last]
        V = self._V[part]
        kept = np.zeros((len(V), len(lags), *V.shape[1:]))
        exponents = np.zeros(kept.shape[:2], dtype=np.int64)
        products.product_steps(
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            self._n_valid[part], block.first, False, V, self._V_exponent[part],
            self._age[part], self.grid.column, first, kept, exponents,
        )  # fmt: skip
        below = _log_norm(kept, exponents, self._rotations[1], -MARGIN)
        self._record("lower", part, lags, np.maximum(below, log_dets[:, lags - block.first - 1]))

    def final(self) -> dict[str, Float]:
        """Values after each replica's last step, (R,)."""
        step_norms, log_dets = self._total.now.T
        below = _log_norm(self._V, self._V_exponent, self._rotations[1], -MARGIN)
        # of no factors the norm is 1, whatever the rounding of a norm of orthonormal vectors
        lower = np.where(self._n_valid == 0, 0.0, np.maximum(below, log_dets))
        values = {"step_norms": step_norms, "lower": lower}
        for name, own in self._blocks.items():
            above = _log_norm(self._P[name], self._P_exponent[name], self._rotations[0], MARGIN)
            partial = np.minimum(above, own.inside.now[:, 0])
            values[name] = own.completed.now[:, 0] + partial
        return values


class DiagonalBoundFold(_BoundFold):
    """Bounds of diagonal chains, exact sums of ln |a| by unit; the lower one is the norm itself."""

    def __init__(self, chain: JacobianChain, grid: LagGrid, periods: Mapping[str, int]) -> None:
        R, n = chain.n_replicas, chain.n
        super().__init__(chain, grid, periods, n)
        self.flops, self.floats = 40.0 * n, 6.0 * n
        self._steps, self._total = RunningSums(R, 1), RunningSums(R, n)

    def update(self, block: DiagonalBlock, part: slice) -> None:
        """Absorb a block."""
        n_valid = self._n_valid[part]
        lags = np.arange(block.first + 1, block.first + block.n_steps + 1)
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(block.factors))
        largest = logs.max(axis=-1, keepdims=True)
        steps = self._steps.add(largest, part, n_valid, block.first)
        total = self._total.add(logs, part, n_valid, block.first)
        self._record("step_norms", part, lags, steps[..., 0])
        for name, own in self._blocks.items():
            inside = own.inside.add(logs, part, n_valid, block.first)
            self._record_blocked(name, part, lags, inside.max(axis=-1))
        self._record("lower", part, lags, total.max(axis=-1))

    def final(self) -> dict[str, Float]:
        """Values after each replica's last step, (R,)."""
        values = {"step_norms": self._steps.now[:, 0], "lower": self._total.now.max(axis=-1)}
        for name, own in self._blocks.items():
            values[name] = own.completed.now[:, 0] + own.inside.now.max(axis=-1)
        return values


def until(block: Block, lag: int) -> Block:
    """The steps of a block up to a lag."""
    keep = max(lag - block.first, 0)
    if keep >= block.n_steps:
        return block
    return Block(
        first=block.first,
        matrices=block.matrices,
        index=np.ascontiguousarray(block.index[:, :keep]),
        scales=np.ascontiguousarray(block.scales[:, :keep]),
        exponents=np.ascontiguousarray(block.exponents[:, :keep]),
        identity=np.ascontiguousarray(block.identity[:, :keep]),
    )


def _singular_values(A: Float) -> Float:
    """Singular values of each matrix, descending, entries of order one."""
    with single_threaded_blas():
        return np.asarray(np.linalg.svd(A, compute_uv=False))


def _log_det_below(sigma: Float) -> Float:
    """A lower bound of ln |det| from computed singular values; -inf where one may be zero."""
    unsure = SURE * sigma.shape[-1] * EPS * sigma[..., :1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(sigma - unsure, 0.0)).sum(axis=-1))


def _log_norm(panel: Float, exponents: Int, rotation: Float, margin: float) -> Float:
    """Ln ||P||_2 of panels [P, P rotation] 2**exponents, `margin` times their rounding added."""
    k = len(rotation)
    P, rotated = panel[..., :k], panel[..., k:]
    sigma = largest_singular_values(P)
    with single_threaded_blas():
        gap = np.linalg.norm(rotated - P @ rotation, axis=(-2, -1))
    return log_of_scaled(np.maximum(sigma + margin * gap, 0.0), exponents)
