"""Graded factorisation P = Q diag(s) U of a running product, one fold over the chain."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import LagGrid
from gradprop.results import LN2

EPS = float(np.finfo(np.float64).eps)
MOST = 4
"""Jacobians in one factor; six were off by 1e-9, ten by 4e-5 (tanh, n = 32, 100 steps)."""

CLOSED = 0.1
"""Spread over 1 of a panel that Gram-Schmidt leaves orthonormal to rounding."""

MAX_SWEEPS = 40
"""Jacobi sweeps before giving up; at most 11 were ever needed (n = 512)."""


@dataclasses.dataclass
class Graded:
    """P = Q diag(mantissa 2**exponent) U of many products, along the first axis.

    Q and U are kept in strips of eight columns, (S, 8 S, 8), filled up with zeros.
    """

    Q: Float
    mantissa: Float
    exponent: Int
    U: Float
    rank: Int
    sure: Int
    bound: Int
    alive: NDArray[np.bool_]
    pending: Int
    waiting: Int
    merged: Int
    pace: Float

    @classmethod
    def start(cls, R: int, n: int, Q: Float | None) -> Graded:
        """The rotation Q (None: the identity), written as Q diag(1) I."""
        basis = np.eye(n) if Q is None else Q
        full = np.full(R, n, dtype=np.int64)
        return cls(
            np.tile(in_strips(basis), (R, 1, 1, 1)), np.full((R, n), 0.5),
            np.ones((R, n), dtype=np.int64), np.tile(in_strips(np.eye(n)), (R, 1, 1, 1)),
            full.copy(), full.copy(), full.copy(), np.ones((R, n), dtype=bool), np.full(R, -1),
            np.zeros(R, dtype=np.int64), np.zeros(R, dtype=np.int64), np.full(R, np.inf),
        )  # fmt: skip

    def of(self, r: int) -> tuple[NDArray[Any], ...]:
        """Views of one replica for the kernel; numbers are arrays of one."""
        fields = (getattr(self, f.name) for f in dataclasses.fields(self))
        return tuple(x[r] if x.ndim > 1 else x[r : r + 1] for x in fields)

    def copy_of(self, r: int) -> Graded:
        """A copy of one replica."""
        return Graded(
            *(np.array(getattr(self, f.name)[r : r + 1]) for f in dataclasses.fields(self))
        )

    def finish(self, r: int, panel: Float, shift: int) -> None:
        """Fold in a panel by Householder QR, as the kernel could not otherwise."""
        from gradprop._kernels import gradedhouse

        k = int(self.rank[r])
        self.rank[r], self.sure[r] = gradedhouse.householder_strips(
            panel[: -(-k // 8)], shift, self.Q[r], self.mantissa[r], self.exponent[r], self.U[r],
            k, int(self.sure[r]), int(self.bound[r]),
        )  # fmt: skip


def in_strips(A: Float) -> Float:
    """A (n, n) as (S, 8 S, 8): strips of eight columns, zeros where there are none."""
    S = -(-len(A) // 8)
    padded = np.zeros((8 * S, 8 * S))
    padded[: len(A), : len(A)] = A
    return np.ascontiguousarray(padded.reshape(8 * S, S, 8).transpose(1, 0, 2))


def from_strips(strips: Float, n: int) -> Float:
    """The reverse of `in_strips`."""
    S = len(strips)
    return np.ascontiguousarray(strips.transpose(1, 0, 2).reshape(8 * S, 8 * S)[:n, :n])


class GradedFold:
    """Graded Q D U of the running product (of its transpose, if it runs backwards).

    `group` Jacobians are multiplied before each factorisation; up to MOST where `reach`, the
    largest ln of the spread of such a panel, allows it. `only`: one lag of the grid. Where
    `replicas` is not true nothing is computed.
    """

    def __init__(
        self,
        chain: JacobianChain,
        grid: LagGrid,
        reverse: bool,
        Q: Float | None,
        group: int = 1,
        *,
        reach: float = -np.inf,
        only: int | None = None,
        replicas: NDArray[np.bool_] | None = None,
    ) -> None:
        R, n = chain.n_replicas, chain.n
        self.grid, self.reverse = grid, reverse
        self.flops, self.floats = 12.0 * n**3, 2.0 * n + 1.0
        self._group, self._reach = group, reach
        if chain.recurrence is None or chain.recurrence.leak != 1.0:
            self.floats += n * n
        self._lengths = chain.lengths.ravel()
        self._lags = grid.unique if only is None else np.array([only])
        longest = int(self._lags.max())
        # a lag counts from the start (of each replica) or from its end, whichever way the fold runs
        self._low, self._high = np.zeros(R, dtype=np.int64), np.minimum(self._lengths, longest)
        if grid.reverse:
            self._low, self._high = np.maximum(self._lengths - longest, 0), self._lengths.copy()
        if replicas is not None:
            self._high = np.where(replicas, self._high, self._low)
        self.window = (int(self._low.min(initial=chain.n_steps)), int(self._high.max(initial=0)))
        # past its length a sequence's Jacobians are the identity: its last product stands
        self._targets = np.minimum(self._lags[None, :], self._lengths[:, None])
        self._state = Graded.start(R, n, Q)
        self._last_matrix = np.zeros((R, n, n))
        self._whole = np.zeros(R, dtype=bool)
        shape = (R, len(self._lags), n)
        self.log_sigma: Float = np.full(shape, np.nan)
        self.sure = np.zeros(shape[:2], dtype=np.int64)
        self.bound = np.zeros(shape[:2], dtype=np.int64)
        self._age = np.zeros(R, dtype=np.int64)
        for r in range(R):
            self._record(r)

    @property
    def merged(self) -> NDArray[np.bool_]:
        """Replicas (R,) of which Jacobians were multiplied before a factorisation."""
        return np.asarray(self._state.merged > 0)

    def update(self, block: Block, part: slice) -> None:
        """Absorb a block, stopping at every lag asked for."""
        whole = block.without_identity()
        for r in range(part.start, part.stop):
            low, high = (
                max(self._low[r], block.first),
                min(self._high[r], block.first + block.n_steps),
            )
            while low < high:
                ahead = self._targets[r][self._targets[r] > self._age[r]]
                step = min(high - low, ahead[0] - self._age[r]) if len(ahead) else 0
                if step == 0:
                    break
                window = (high - step, high) if self.reverse else (low, low + step)
                self._steps(whole, r - part.start, r, *window)
                low, high = (low, high - step) if self.reverse else (low + step, high)
                self._record(r)

    def _steps(self, block: Block, row: int, r: int, low: int, high: int) -> None:
        state, pending = self._state.of(r), self._state.pending[r : r + 1]
        matrices = block.matrices
        if self.reverse and pending[0] >= 0:
            # the matrix that waits belongs to an earlier block: hand it over as an extra one
            matrices = np.concatenate([matrices, self._last_matrix[r][None]])
            pending[0] = len(matrices) - 1
        steps = matrices, block.index[row], block.scales[row], block.exponents[row]
        self._take(steps, state, r, low - block.first, high - block.first)
        if self.reverse:
            self._last_matrix[r] = matrices[pending[0]] if pending[0] >= 0 else 0.0
        self._age[r] += high - low

    def _take(
        self, steps: tuple[Any, ...], state: tuple[Any, ...], r: int, low: int, high: int
    ) -> None:
        """Run the kernel; the whole one from the first panel on that needs Householder QR."""
        from gradprop._kernels import graded
        from gradprop._kernels.tiles import ROWS

        (S, N, _), n = state[0].shape, state[1].size
        work = (
            np.empty((n, n)), np.zeros((N // ROWS, n, ROWS)), np.full(2, -1),
            np.zeros((2, S, N, 8)),
        )  # fmt: skip
        while low < high:
            kernel = graded.graded_steps_whole if self._whole[r] else graded.graded_steps
            done = kernel(
                *steps, low, high, self.reverse, self._group, MOST, self._reach, *work, *state
            )
            if done < 0:
                self._whole[r], t = True, high + done if self.reverse else low - done - 1
                self._state.finish(r, work[3][0], int(steps[3][t]))
            low, high = (low, high - abs(done)) if self.reverse else (low + abs(done), high)

    def _record(self, r: int) -> None:
        at = np.flatnonzero(self._targets[r] == self._age[r])
        if not len(at):
            return
        state = self._state.copy_of(r)
        U = _close(state, self._last_matrix[r])
        self.log_sigma[r, at] = finished(
            U, state.mantissa[0], state.exponent[0], int(state.rank[0]), len(U)
        )
        self.sure[r, at], self.bound[r, at] = state.sure[0], state.bound[0]


def _close(state: Graded, matrix: Float) -> Float:
    """Apply the last transposed matrix of a backward run; leave Q orthonormal. Returns U."""
    from gradprop._kernels import graded, structure

    n, Q, U = len(matrix), state.Q[0], state.U[0]
    B, owed = Q, bool(np.isfinite(state.pace[0]) or state.waiting[0])
    if state.pending[0] >= 0:
        turned = np.ascontiguousarray(matrix.T)
        most = structure.follow(turned, np.ones(n), 0.0, state.alive[0])
        state.bound[0] = min(state.bound[0], most)
        B, owed = in_strips(turned @ from_strips(Q, n)), True
    while state.rank[0] > 0 and owed:
        k, work = int(state.rank[0]), np.empty_like(Q)
        panel = B[: -(-k // 8)].copy()
        state.sure[0], spread = graded.graded_step(
            panel, 0, Q, state.mantissa[0], state.exponent[0], U, work, k, int(state.sure[0]),
            int(state.bound[0]),
        )  # fmt: skip
        if spread == np.inf:
            state.finish(0, panel, 0)
        # once more over a Q that is well conditioned already: R takes what it lacked
        B, owed = Q, 1.0 + CLOSED < spread < np.inf
    return from_strips(U, n)


def finished(U: Float, mantissa: Float, exponent: Int, r: int, n: int) -> Float:
    """Ln sigma of diag(mantissa 2**exponent) U[:r], descending, padded with -inf to n values.

    All nan if Jacobi did not converge, the last ones where U is singular in floating point. The
    three arrays are overwritten.
    """
    from gradprop._kernels import jacobi

    out = np.full(n, -np.inf)
    if r == 0:
        return out
    rows = jacobi.graded_finish(U, mantissa, exponent, r)
    for _ in range(MAX_SWEEPS):
        if jacobi.jacobi_sweep(rows, mantissa[:r], exponent[:r]) <= np.sqrt(n) * EPS:
            # values lost in rounding are nan, and last
            out[:r] = -np.sort(-(np.log(mantissa[:r]) + exponent[:r] * LN2))
            return out
    return np.full(n, np.nan)
