"""Blocks of step Jacobians in the kernels' normal form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Block:
    """Steps ``first + 1 .. first + m`` of all R replicas, as the kernels want them.

    The Jacobian of replica r at its step t (from 0) is
    ``2**exponents[r, t] * (identity[r, t] I + diag(scales[r, t]) matrices[index[r, t]])``.
    Every row of a matrix has largest magnitude in [1/2, 1), or is zero.
    """

    first: int
    matrices: Float
    index: Int
    scales: Float
    exponents: Int
    identity: Float

    @property
    def n_steps(self) -> int:
        """Steps in the block."""
        return int(self.index.shape[1])

    def replicas(self, part: slice) -> Block:
        """The same steps of some replicas (views)."""
        return dataclasses.replace(
            self,
            index=self.index[part],
            scales=self.scales[part],
            exponents=self.exponents[part],
            identity=self.identity[part],
        )

    def mantissas(self) -> Float:
        """The Jacobians divided by 2**exponents, shape (R, m, n, n)."""
        first = self.index[:, :1]
        # one matrix for all steps of a replica, as an RNN has, need not be copied for each
        index = first if (self.index == first).all() else self.index
        J = self.scales[..., None] * self.matrices[index]
        diagonal = np.einsum("...ii->...i", J)
        diagonal += self.identity[..., None]
        return np.asarray(J)

    def without_identity(self) -> Block:
        """The same Jacobians with the identity part (leak) multiplied out."""
        if not self.identity.any():
            return self
        block = dense_block(self.mantissas(), self.first)
        return dataclasses.replace(block, exponents=block.exponents + self.exponents)


@dataclasses.dataclass(frozen=True)
class GateBlock:
    """Steps ``first + 1 .. first + m`` of a gated layer, known by its gates.

    ``coefs`` (R, m, q) are what the Jacobians need beside the weights ``W`` (K, rows, n), of which
    ``which`` (R,) says who uses which; ``kind`` is the kernels' number of the cell.
    """

    first: int
    kind: int
    W: Float
    which: Int
    coefs: Float

    @property
    def n_steps(self) -> int:
        """Steps in the block."""
        return int(self.coefs.shape[1])

    def replicas(self, part: slice) -> GateBlock:
        """The same steps of some replicas (views)."""
        return dataclasses.replace(self, which=self.which[part], coefs=self.coefs[part])


@dataclasses.dataclass(frozen=True)
class DiagonalBlock:
    """Steps ``first + 1 .. first + m`` of a diagonal chain: factors (R, m, n), real or complex."""

    first: int
    factors: NDArray[Any]

    @property
    def n_steps(self) -> int:
        """Steps in the block."""
        return int(self.factors.shape[1])


def scaled_rows(A: Float) -> tuple[Float, Int]:
    """Scale every row by a power of two: largest magnitude in [1/2, 1); returns the exponents."""
    top = np.maximum(A.max(axis=-1, initial=0.0), -A.min(axis=-1, initial=0.0))
    exponent = np.frexp(top)[1].astype(np.int64)
    if np.abs(exponent).max(initial=0) < 1000:  # much faster, and as exact
        return A * np.ldexp(1.0, -exponent)[..., None], exponent
    return np.ldexp(A, -exponent[..., None]), exponent


def row_scaled_block(
    matrices: Float, row_exponents: Int, which: Int, dphi: Float, leak: float, first: int
) -> Block:
    """Normal form of (1 - leak) I + leak diag(dphi) W, W given as `scaled_rows` of each network."""
    from gradprop._kernels.normalform import row_scales

    (R, m, _), keep = dphi.shape, math.frexp(1.0 - leak)
    scales, units = np.empty(dphi.shape), np.empty((R, m), dtype=np.int64)
    row_scales(np.ascontiguousarray(dphi), which, row_exponents, leak, *keep, scales, units)
    return Block(
        first=first,
        matrices=matrices,
        index=np.ascontiguousarray(np.broadcast_to(which[:, None], (R, m))),
        scales=scales,
        exponents=units,
        identity=np.ldexp(np.full((R, m), keep[0]), keep[1] - units),
    )


def dense_block(J: Float, first: int) -> Block:
    """Normal form of dense Jacobians (R, m, n, n): rows scaled by powers of two."""
    R, m, n, _ = J.shape
    matrices, rows = scaled_rows(J)
    live = np.abs(J).max(axis=-1) > 0
    unit = _common_exponent(rows, live)
    return Block(
        first=first,
        matrices=matrices.reshape(R * m, n, n),
        index=np.arange(R * m, dtype=np.int64).reshape(R, m),
        scales=np.where(live, np.ldexp(1.0, np.where(live, rows - unit[..., None], 0)), 0.0),
        exponents=unit,
        identity=np.zeros((R, m)),
    )


def _common_exponent(rows: NDArray[Any], live: NDArray[np.bool_]) -> Int:
    """Power of two to take out of rows of sizes 2**rows, (R, m): the largest, 0 if there is none.

    Where the sizes of rows differ by more than 2**900, the unit lies amid them, so that the
    smallest are normal numbers too.
    """
    rows = rows.astype(np.int64)
    far = np.iinfo(np.int64).max // 4
    top = np.where(live, rows, -far).max(axis=-1)
    low = np.where(live, rows, far).min(axis=-1)
    top = np.where(top == -far, 0, top)
    spread = top - np.minimum(low, top)
    return np.asarray(top - np.where(spread > 900, np.minimum(spread // 2, 1000), 0))


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """What certificates need to know: J_t = (1-leak) I + leak D_t W with |D_t| <= gamma.

    ``W`` (K, n, n) are the distinct networks, ``which`` (R,) says who uses which; ``gamma`` is None
    where only the factors at hand are known.
    """

    W: Float
    which: Int
    leak: float
    gamma: float | None


def axis_roles(shape: tuple[int, ...], parts: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Name each replica axis after the inputs that vary along it, joined by "+"."""
    roles = []
    for axis in range(-len(shape), 0):
        names = [k for k, own in parts.items() if len(own) >= -axis and own[axis] > 1]
        roles.append(
            "+".join(names) or next((k for k, own in parts.items() if len(own) >= -axis), "starts")
        )
    return tuple(roles)


def who_uses(own: tuple[int, ...], shape: tuple[int, ...]) -> Int:
    """Index of the array (leading axes `own`, flattened) that each flat replica of `shape` uses."""
    if not own:
        return np.zeros(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    index = np.arange(int(np.prod(own, dtype=np.int64))).reshape(own)
    return np.array(np.broadcast_to(index, shape).ravel(), dtype=np.int64)
