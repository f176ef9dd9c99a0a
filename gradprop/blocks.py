"""Blocks of step Jacobians in the kernels' normal form, and where they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

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
        return self.index.shape[1]

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
        return self.factors.shape[1]


class Source(Protocol):
    """Where a chain's factors come from; replicas are flat, steps count from 0."""

    def block(self, start: int, stop: int) -> Block | DiagonalBlock:
        """Factors of steps ``start .. stop - 1`` of every replica."""
        ...


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
class RowScaledSource:
    """diag(dphi) W held in memory: W (K, n, n), dphi (K', T, n), and who uses which."""

    W: Float
    which: Int
    dphi: Float
    which_dphi: Int
    leak: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "_normal", scaled_rows(self.W))

    def block(self, start: int, stop: int) -> Block:
        """Factors of steps start .. stop - 1."""
        matrices, rows = self._normal  # type: ignore[attr-defined]
        dphi = self.dphi[self.which_dphi, start:stop]
        return row_scaled_block(matrices, rows, self.which, dphi, self.leak, start)


@dataclasses.dataclass(frozen=True)
class DenseSource:
    """Jacobians (R, T, n, n) held in memory."""

    J: Float

    def block(self, start: int, stop: int) -> Block:
        """Factors of steps start .. stop - 1."""
        return dense_block(self.J[:, start:stop], start)


@dataclasses.dataclass(frozen=True)
class DiagonalSource:
    """Diagonal factors (R, T, n) held in memory."""

    factors: NDArray[Any]

    def block(self, start: int, stop: int) -> DiagonalBlock:
        """Factors of steps start .. stop - 1."""
        return DiagonalBlock(start, self.factors[:, start:stop])


@dataclasses.dataclass(frozen=True)
class CallableSource:
    """Jacobians known only by their action: jvp(k, V) with V (n, p), k counted from 1."""

    jvp: Callable[[int, Float], Any]
    vjp: Callable[[int, Float], Any]
    n: int

    def block(self, start: int, stop: int) -> Block:
        """Form the factors of steps start .. stop - 1 by acting on the identity."""
        J = np.empty((1, stop - start, self.n, self.n))
        for k in range(start, stop):
            J[0, k - start] = self.act("jvp", k + 1, np.eye(self.n))
        return dense_block(J, start)

    def check_adjoint(self, k: int) -> None:
        """Refuse a vjp that is not the transpose of jvp at step k (tolerance for float32 code)."""
        rng = np.random.default_rng(k)
        u, v = rng.standard_normal((2, self.n, 1))
        forward, backward = self.act("jvp", k, v), self.act("vjp", k, u)
        left, right = float(np.vdot(u, forward)), float(np.vdot(backward, v))
        size = np.linalg.norm(u) * np.linalg.norm(forward) + np.linalg.norm(backward) * np.linalg.norm(v)
        if abs(left - right) > 1e-5 * size:
            raise ValueError(
                f"`vjp` must be the adjoint of `jvp`; at step {k} <u, J v> = {left:.6g} but "
                f"<J^T u, v> = {right:.6g}."
            )

    def act(self, name: str, k: int, V: Float) -> Float:
        """Call jvp or vjp and check what comes back."""
        from gradprop import _checks

        out = _checks.real_array(f"{name}(k={k}, V)", getattr(self, name)(k, V))
        if out.shape != V.shape:
            raise ValueError(
                f"`{name}(k, V)` must return shape {V.shape}; got {out.shape} at k = {k}."
            )
        return out


@dataclasses.dataclass(frozen=True)
class SliceSource:
    """Some consecutive steps of another source, counted anew."""

    source: Source
    offset: int

    def block(self, start: int, stop: int) -> Block | DiagonalBlock:
        """Factors of steps start .. stop - 1 of the slice."""
        block = self.source.block(start + self.offset, stop + self.offset)
        return dataclasses.replace(block, first=start)
