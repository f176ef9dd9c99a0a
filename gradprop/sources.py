"""Where a chain's factors come from: arrays, callables, or an orbit run on demand."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop._laws import GatedLaw
from gradprop.blocks import (
    Block,
    DiagonalBlock,
    Float,
    GateBlock,
    Int,
    dense_block,
    row_scaled_block,
    scaled_rows,
)
from gradprop.orbit import Array, Orbit

KEPT_FLOATS = 2**23
"""phi' of a whole orbit is kept up to this many floats (64 MiB)."""


def flat_replicas(array: NDArray[Any], core: int) -> NDArray[Any]:
    """Merge all but the last `core` axes, none of which is empty (the core may be)."""
    leading = array.shape[: array.ndim - core]
    return array.reshape(int(np.prod(leading, dtype=np.int64)), *array.shape[len(leading) :])


class Source(abc.ABC):
    """Random access to factors; replicas are flat, steps count from 0."""

    @property
    def has_orbit(self) -> bool:
        """Whether the factors come from an orbit, which has a start that can be moved."""
        return False

    @property
    def has_gates(self) -> bool:
        """Whether `gate_block` gives the gates of a layer."""
        return False

    @abc.abstractmethod
    def block(self, start: int, stop: int) -> Block | DiagonalBlock:
        """Factors of steps ``start .. stop - 1`` of every replica."""

    def gate_block(self, start: int, stop: int) -> GateBlock | None:
        """The same steps by their gates, where the source knows them: cheaper for few vectors."""
        return None

    def valid_steps(self) -> tuple[Int, NDArray[np.bool_]] | None:
        """Valid steps (R,) and overflows (R,), where the source knows better than the chain."""
        return None

    def moved(self, ulps: int) -> Source:
        """The same along an orbit whose start lies `ulps` floats away."""
        raise ValueError("`perturbed` needs a chain made by linearise; this one has no start.")


@dataclasses.dataclass(frozen=True)
class RowScaledSource(Source):
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
class DenseSource(Source):
    """Jacobians (R, T, n, n) held in memory."""

    J: Float

    def block(self, start: int, stop: int) -> Block:
        """Factors of steps start .. stop - 1."""
        return dense_block(self.J[:, start:stop], start)


@dataclasses.dataclass(frozen=True)
class DiagonalSource(Source):
    """Diagonal factors (R, T, n) held in memory."""

    factors: NDArray[Any]

    def block(self, start: int, stop: int) -> DiagonalBlock:
        """Factors of steps start .. stop - 1."""
        return DiagonalBlock(start, self.factors[:, start:stop])


@dataclasses.dataclass(frozen=True)
class CallableSource(Source):
    """Jacobians known only by their action: jvp(k, V) with V (n, p), k counted from 1."""

    jvp: Callable[[int, Float], Any]
    vjp: Callable[[int, Float], Any]
    n: int

    def __post_init__(self) -> None:
        for name in ("jvp", "vjp"):
            if not callable(getattr(self, name)):
                given = type(getattr(self, name)).__name__
                raise TypeError(f"`{name}` must be callable as {name}(k, V); got {given}.")

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
        largest = max(np.abs(forward).max(), np.abs(backward).max(), np.finfo(float).tiny)
        forward, backward = forward / largest, backward / largest
        left, right = float(np.vdot(u, forward)), float(np.vdot(backward, v))
        size = np.linalg.norm(u) * np.linalg.norm(forward) + np.linalg.norm(
            backward
        ) * np.linalg.norm(v)
        if abs(left - right) > 1e-5 * size:
            raise ValueError(
                f"`vjp` must be the adjoint of `jvp`; at step {k} <u, J v> = {left * largest:.6g} "
                f"but <J^T u, v> = {right * largest:.6g}."
            )

    def act(self, name: str, k: int, V: Float) -> Float:
        """Call jvp or vjp and check what comes back."""
        out = _checks.real_array(f"{name}(k={k}, V)", getattr(self, name)(k, V))
        if out.shape != V.shape:
            raise ValueError(
                f"`{name}(k, V)` must return shape {V.shape}; got {out.shape} at k = {k}."
            )
        return out


@dataclasses.dataclass(frozen=True)
class SliceSource(Source):
    """Some consecutive steps of another source, counted anew."""

    source: Source
    offset: int

    @property
    def has_orbit(self) -> bool:
        """Whether what is sliced has one."""
        return self.source.has_orbit

    def moved(self, ulps: int) -> SliceSource:
        """The same steps along the moved orbit."""
        return SliceSource(self.source.moved(ulps), self.offset)

    def block(self, start: int, stop: int) -> Block | DiagonalBlock:
        """Factors of steps start .. stop - 1 of the slice."""
        block = self.source.block(start + self.offset, stop + self.offset)
        return dataclasses.replace(block, first=start)

    @property
    def has_gates(self) -> bool:
        """As the whole."""
        return self.source.has_gates

    def gate_block(self, start: int, stop: int) -> GateBlock | None:
        """Gates of steps start .. stop - 1 of the slice."""
        block = self.source.gate_block(start + self.offset, stop + self.offset)
        return None if block is None else dataclasses.replace(block, first=start)


class OrbitSource(Source):
    """Factors of a cell along one orbit; random access to any range of steps."""

    @property
    def has_orbit(self) -> bool:
        """Yes."""
        return True

    def __init__(self, orbit: Orbit) -> None:
        self.orbit = orbit
        width = max(orbit.n_replicas * orbit.law.coef_width, 1)
        self._chunk = orbit.chunk
        self._keep = orbit.n_steps * width <= KEPT_FLOATS

    @functools.cached_property
    def _first_run(self) -> tuple[list[Array], Float | None, Int]:
        """Checkpointed states, coefficients of the whole orbit if they fit, and valid steps."""
        orbit = self.orbit
        state, n_valid = orbit.start.copy(), orbit.lengths.copy()
        checkpoints, kept = [], []
        for start in range(0, orbit.n_steps, self._chunk):
            checkpoints.append(state.copy())
            stop = min(start + self._chunk, orbit.n_steps)
            coefs = orbit.coefficients(state, n_valid, start, stop)
            if self._keep:
                kept.append(coefs)
        if not self._keep:
            return checkpoints, None, n_valid
        empty = np.empty((orbit.n_replicas, 0, orbit.law.coef_width))
        whole = kept[0] if len(kept) == 1 else np.concatenate([empty, *kept], axis=1)
        return checkpoints, whole, n_valid

    def valid_steps(self) -> tuple[Int, NDArray[np.bool_]]:
        """Steps of each replica before its length or an overflow, and who overflowed."""
        n_valid = self._first_run[2]
        return n_valid, np.asarray(n_valid < self.orbit.lengths)

    def moved(self, ulps: int) -> OrbitSource:
        """The same along an orbit whose start lies `ulps` floats away."""
        return OrbitSource(self.orbit.moved(ulps))

    def coefficients(self, start: int, stop: int) -> Float:
        """What the Jacobians of steps start .. stop - 1 need beside the weights."""
        checkpoints, kept, n_valid = self._first_run
        if kept is not None:
            return np.asarray(kept[:, start:stop])
        at = start // self._chunk
        state, parts = checkpoints[at].copy(), []
        for first in range(at * self._chunk, stop, self._chunk):
            last = min(first + self._chunk, stop)
            coefs = self.orbit.coefficients(state, n_valid.copy(), first, last)
            parts.append(coefs[:, max(start - first, 0) :])
        return np.concatenate(parts, axis=1)

    @property
    def has_gates(self) -> bool:
        """For an LSTM or a GRU."""
        return isinstance(self.orbit.law, GatedLaw)

    def gate_block(self, start: int, stop: int) -> GateBlock | None:
        """Gates of steps start .. stop - 1, for an LSTM or a GRU."""
        law = self.orbit.law
        if not isinstance(law, GatedLaw):
            return None
        W = law.W.astype(np.float64)
        return GateBlock(start, law.kind, W, law.which, self.coefficients(start, stop))

    def block(self, start: int, stop: int) -> Block:
        """Factors of steps start .. stop - 1."""
        coefs = self.coefficients(start, stop)
        return self.orbit.law.block(coefs, self._first_run[2], start)
