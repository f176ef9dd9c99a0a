"""Blocks of step Jacobians in the kernels' normal form."""

from __future__ import annotations

import dataclasses
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
        J = self.scales[..., None] * self.matrices[self.index]
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
    exponent = np.frexp(np.abs(A).max(axis=-1))[1].astype(np.int64)
    return np.ldexp(A, -exponent[..., None]), exponent


def row_scaled_block(
    matrices: Float, row_exponents: Int, which: Int, dphi: Float, leak: float, first: int
) -> Block:
    """Normal form of (1 - leak) I + leak diag(dphi) W, W given as `scaled_rows` of each network."""
    R, m, _ = dphi.shape
    scales, exponents = np.frexp(leak * dphi)
    total = exponents + row_exponents[which][:, None, :]
    lowest = np.iinfo(np.int32).min
    top = np.where(scales != 0, total, lowest).max(axis=-1)
    keep, keep_exponent = np.frexp(1.0 - leak)
    if keep != 0:
        top = np.maximum(top, keep_exponent)
    top = np.where(top == lowest, 0, top)
    shift = np.maximum(total - top[..., None], -2200)
    return Block(
        first=first,
        matrices=matrices,
        index=np.ascontiguousarray(np.broadcast_to(which[:, None], (R, m))),
        scales=np.ldexp(scales, shift),
        exponents=top.astype(np.int64),
        identity=np.ldexp(np.full((R, m), keep), np.maximum(keep_exponent - top, -2200)),
    )


def dense_block(J: Float, first: int) -> Block:
    """Normal form of dense Jacobians (R, m, n, n): rows scaled by powers of two."""
    R, m, n, _ = J.shape
    matrices, rows = scaled_rows(J)
    live = np.abs(J).max(axis=-1) > 0
    lowest = np.iinfo(np.int64).min
    top = np.where(live, rows, lowest).max(axis=-1)
    top = np.where(top == lowest, 0, top)
    scales = np.where(live, np.ldexp(1.0, np.minimum(rows - top[..., None], 0)), 0.0)
    return Block(
        first=first,
        matrices=matrices.reshape(R * m, n, n),
        index=np.arange(R * m, dtype=np.int64).reshape(R, m),
        scales=scales,
        exponents=top.astype(np.int64),
        identity=np.zeros((R, m)),
    )


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
    index = np.arange(int(np.prod(own, dtype=np.int64))).reshape(own)
    return np.array(np.broadcast_to(index, shape).ravel(), dtype=np.int64)
