"""Growth of an orthonormal basis under the chain, summed up to chosen steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, Float, GateBlock, Int, dense_block
from gradprop.chain import JacobianChain
from gradprop.lyapunov.intervals import distinct_edges
from gradprop.measure import DiagonalLogs
from gradprop.rotations import random_rotation

LONGEST = 16
"""Most steps between two eliminations; 0 is Householder QR at every step."""

FEW = 4
"""Vectors are few up to 1 / FEW of the units: beyond it dense Jacobians pay."""


def diagonal_history(fold: DiagonalLogs, edges: Int) -> tuple[Float, Any, Any]:
    """Cumulative sums since the end of the burn-in, units ordered by their total."""
    columns = fold.grid.column[edges]
    with np.errstate(invalid="ignore"):
        sums = fold.logs[:, columns] - fold.logs[:, :1]
    zero = np.isneginf(fold.final)
    total = np.where(zero, -np.inf, sums[:, -1])
    order = np.argsort(-total, axis=-1, kind="stable")
    sums = np.where(zero[:, None, :], 0.0, sums)
    sums = np.take_along_axis(sums, order[:, None, :], axis=-1)
    zero = np.take_along_axis(zero, order, axis=-1)
    return sums, zero, np.zeros_like(zero)


class ExponentFold:
    """Tangent vectors, made independent again as often as accuracy needs it.

    ``history`` (R, H, k) holds the sums of ln |R_ii| since the burn-in at the steps `edges` (R, H);
    ``zero`` and ``unsure`` (R, k) mark directions with a pivot of zero, or one lost in rounding;
    ``bound`` (R,) is the largest rank that exact zeros leave the product.
    """

    reverse = False

    def __init__(
        self,
        chain: JacobianChain,
        k: int | None,
        burn_in: int,
        edges: Int,
        rng: Any,
        longest: int = LONGEST,
    ) -> None:
        R, n = chain.n_replicas, chain.n
        width = n if k is None else k
        self.window = (0, chain.n_steps)
        self.flops = 2.0 * n * n * width + (4.0 * n * width**2 if width > 1 else 0.0)
        self.floats = 2.0 * n
        self._burn_in, self._longest = burn_in, longest
        self._edges, self._slot = distinct_edges(edges, burn_in)
        self._n_valid = chain.lengths.ravel()
        # the full spectrum does not depend on the basis in the long run; k leading ones need a
        # random one, since coordinate axes can miss directions for ever
        basis = np.eye(n) if k is None or k == n else random_rotation(n, k, rng)
        self._Q = np.tile(in_strips(basis), (R, 1, 1, 1))
        self._order = np.tile(np.arange(self._Q.shape[2]), (R, 1))
        # few vectors go through gates alone, which is cheaper than to form dense Jacobians
        self.takes_gates = width * FEW <= n
        self._rows = np.tile(
            np.ascontiguousarray(basis.T), (R if width * FEW <= n or width == 1 else 0, 1, 1)
        )
        self._sums, self._carry = np.zeros((R, width)), np.zeros((R, width))
        self.zero = np.zeros((R, width), dtype=np.int64)
        self.unsure = np.zeros((R, width), dtype=np.int64)
        self._alive, self.bound = np.ones((R, n), dtype=bool), np.full(R, n)
        self._age, self._met = np.zeros(R, dtype=np.int64), np.zeros(R, dtype=np.int64)
        self._pace = np.tile(np.array([min(longest, 1), 0, 1, 0], dtype=np.int64), (R, 1))
        self._rate = np.zeros((R, 1))
        self._recorded = np.full((R, edges.shape[1], width), np.nan)
        self._waiting: dict[int, Block] = {}

    @property
    def history(self) -> Float:
        """Sums at every edge asked for, (R, H, k); 0 at those before the first step."""
        before = np.zeros_like(self._recorded[:, :1])
        known = np.concatenate([before, self._recorded], axis=1)
        return np.asarray(np.take_along_axis(known, self._slot[..., None], axis=1))

    def lost(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Directions lost exactly, and those that may be (R, k): a zero pivot can be luck."""
        proven = np.arange(self.zero.shape[1]) >= self.bound[:, None]
        return proven, (self.unsure > 0) | (self.zero > 0) & ~proven

    def update(self, block: Block | GateBlock, part: slice) -> None:
        """Absorb a block."""
        if isinstance(block, GateBlock):
            self._update_from_gates(block, part)
        else:
            self._update_from_matrices(block, part)

    def _update_from_gates(self, block: GateBlock, part: slice) -> None:
        from gradprop._kernels import gatedgrowth

        before = self._alive[part].copy(), self.bound[part].copy()
        zero = (block.coefs == 0.0).any(axis=(0, 2))
        if not before[0].all() or (block.W == 0.0).any():
            zero[:] = True
        if zero.any():
            self._follow_gates(block, part, np.flatnonzero(zero))
        if not self._alive[part].all() and not zero.all():
            # what died does so in steps without zeros too
            self._alive[part], self.bound[part] = before
            self._follow_gates(block, part, np.arange(block.n_steps))
        gatedgrowth.gated_exponent_steps(
            block.kind, block.W, block.which, block.coefs, self._n_valid[part], block.first,
            self._burn_in, self._rows[part], self._sums[part], self._carry[part], self.zero[part],
            self.unsure[part], self._age[part], self._edges[part], self._met[part],
            self._recorded[part],
        )  # fmt: skip

    def _follow_gates(self, block: GateBlock, part: slice, steps: Int) -> None:
        """Follow exact zeros through some steps of a block, whose Jacobians are formed for that."""
        from gradprop._kernels import gated

        n_valid = np.searchsorted(block.first + steps, self._n_valid[part])
        coefs = np.ascontiguousarray(block.coefs[:, steps])
        J = np.zeros((*coefs.shape[:2], *[self._alive.shape[1]] * 2))
        gated.form_own(block.kind, 0.0, block.W, block.which, coefs, n_valid, 0, 0, J)
        self._follow_zeros(dense_block(J, 0), part, n_valid)

    def _follow_zeros(self, block: Block, part: slice, n_valid: Int) -> None:
        from gradprop._kernels import structure

        if not (self._alive[part].all() and block.scales.all() and block.matrices.all()):
            structure.follow_steps(
                block.matrices, block.index, block.scales, block.identity, n_valid, block.first,
                self._alive[part], self.bound[part],
            )  # fmt: skip

    def _update_from_matrices(self, block: Block, part: slice) -> None:
        from gradprop._kernels import adaptive, products

        self._follow_zeros(block, part, self._n_valid[part])
        if part.start in self._waiting:
            block = _joined(self._waiting.pop(part.start), block)
        age, n_valid = self._age[part], self._n_valid[part]
        before = (
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            n_valid, block.first, self._burn_in,
        )  # fmt: skip
        sums = (self._sums[part], self._carry[part], self.zero[part])
        after = (age, self._edges[part], self._met[part], self._recorded[part])
        if self._sums.shape[1] == 1:
            products.leading_exponent_steps(*before, self._rows[part, 0], *sums, *after)
            return
        adaptive.exponent_steps(
            *before, self._longest, self._Q[part], self._order[part], *sums, self.unsure[part],
            self._pace[part], self._rate[part], *after,
        )  # fmt: skip
        done = int(np.where(age < n_valid, age, block.first + block.n_steps).min())
        if done < block.first + block.n_steps:
            self._waiting[part.start] = _steps_from(block, done)


def in_strips(basis: Float) -> Float:
    """Columns (n, k) in strips, as `tiles` keeps them."""
    from gradprop._kernels import stripqr, tiles

    n, k = basis.shape
    P = np.zeros((-(-k // tiles.WIDTH), -(-n // tiles.WIDTH) * tiles.WIDTH, tiles.WIDTH))
    stripqr.to_strips(np.ascontiguousarray(basis), P)
    return P


def _steps_from(block: Block, step: int) -> Block:
    """The last steps of a block; its matrices stay as they are."""
    tail = (getattr(block, name)[:, step - block.first :].copy() for name in _BY_STEP)
    return Block(step, block.matrices, *tail)


def _joined(a: Block, b: Block) -> Block:
    """Two consecutive blocks as one."""
    if a.matrices is not b.matrices:
        used, place = np.unique(a.index, return_inverse=True)
        a = dataclasses.replace(a, matrices=a.matrices[used], index=place.reshape(a.index.shape))
        b = dataclasses.replace(
            b, matrices=np.concatenate([a.matrices, b.matrices]), index=b.index + len(used)
        )
    parts = (np.concatenate([getattr(a, name), getattr(b, name)], axis=1) for name in _BY_STEP)
    return Block(a.first, b.matrices, *parts)


_BY_STEP = ("index", "scales", "exponents", "identity")
"""Arrays (R, m, ...) of a block."""
