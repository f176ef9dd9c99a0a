"""The lazy, batched, structured chain of step Jacobians that all analyses fold over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Block, DiagonalBlock, Float, Int, Recurrence, axis_roles, who_uses
from gradprop.sources import (
    CallableSource,
    DenseSource,
    DiagonalSource,
    RowScaledSource,
    SliceSource,
    Source,
    flat_replicas,
)
from gradprop.whole import dense_form, log_abs_det

BLOCK_FLOATS = 2**22
"""Floats that one block of a lazy chain may hold (32 MiB), whatever the length of the chain."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class JacobianChain:
    """A product of step Jacobians J_T ... J_1, never multiplied out until asked.

    Built by :func:`linearise` from a cell, or by :meth:`row_scaled`, :meth:`dense`,
    :meth:`diagonal`, :meth:`from_products`. Leading axes of the input are replicas.

    Parameters
    ----------
    source : Source
        Where the factors come from.
    n, n_steps : int
        Units and steps T.
    structure : {"row_scaled", "dense", "diagonal", "products"}
    batch_shape : tuple of int
        Replica axes.
    roles : tuple of str
        What varies along each replica axis: "weights", "inputs", "starts", joined by "+".
    recurrence : Recurrence, optional
        W, leak and sup |phi'|, where they are known.
    valid : int array, shape (R,), optional
        Valid steps of each flat replica, where fewer than T.
    """

    source: Source
    n: int
    n_steps: int
    structure: str
    batch_shape: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    recurrence: Recurrence | None = None
    valid: Int | None = None

    @property
    def n_replicas(self) -> int:
        """Product of the batch shape."""
        return int(np.prod(self.batch_shape, dtype=np.int64))

    @property
    def lengths(self) -> Int:
        """Valid steps, shape ``batch_shape``; later Jacobians are the identity."""
        return self._validity()[0].reshape(self.batch_shape)

    @property
    def overflowed(self) -> NDArray[np.bool_]:
        """Orbits that left the range of their floats after ``lengths`` steps."""
        return self._validity()[1].reshape(self.batch_shape)

    def _validity(self) -> tuple[Int, NDArray[np.bool_]]:
        """Flat lengths and overflows; an orbit is run for them once."""
        known = self.source.valid_steps()
        if known is not None:
            return known
        full = np.full(self.n_replicas, self.n_steps, dtype=np.int64)
        return full if self.valid is None else self.valid, np.zeros(self.n_replicas, dtype=bool)

    def __repr__(self) -> str:
        size = f"n={self.n}, n_steps={self.n_steps}, batch_shape={self.batch_shape}"
        return f"JacobianChain({self.structure}, {size})"

    @classmethod
    def row_scaled(cls, W: ArrayLike, dphi: ArrayLike, *, leak: float = 1.0) -> JacobianChain:
        """Chain of J_k = (1 - leak) I + leak diag(dphi[k-1]) W.

        Parameters
        ----------
        W : array_like, shape (..., n, n)
        dphi : array_like, shape (..., T, n)
            phi'(z) of every step.
        leak : float in (0, 1], default: 1

        Returns
        -------
        JacobianChain

        Raises
        ------
        ValueError, TypeError
            Entries that are not finite (the step is named), shapes that do not agree.

        Examples
        --------
        >>> JacobianChain.row_scaled([[0.5]], [[1.0], [1.0]]).to_dense().ravel().tolist()
        [0.5, 0.5]
        """
        weights = _checks.real_array("W", W, shape=("n", "n"))
        n = weights.shape[-1]
        slopes = _checks.real_array("dphi", dphi, shape=("T", n), step_axis=-2)
        leak = _checks.real("leak", leak, above=0.0, at_most=1.0)
        parts = {"weights": weights.shape[:-2], "starts": slopes.shape[:-2]}
        shape = _checks.broadcast_shapes(**parts)
        source = RowScaledSource(
            flat_replicas(weights, 2),
            who_uses(parts["weights"], shape),
            flat_replicas(slopes, 2),
            who_uses(parts["starts"], shape),
            leak,
        )
        recurrence = Recurrence(source.W, source.which, leak, None)
        roles = axis_roles(shape, parts)
        return cls(source, n, slopes.shape[-2], "row_scaled", shape, roles, recurrence)

    @classmethod
    def dense(cls, J: ArrayLike) -> JacobianChain:
        """Chain of given Jacobians, J[..., 0, :, :] = J_1.

        Parameters
        ----------
        J : array_like, shape (..., T, n, n)

        Returns
        -------
        JacobianChain

        Raises
        ------
        ValueError, TypeError
            A factor that is not finite (its step is named) or not square.

        Examples
        --------
        >>> import gradprop as gp
        >>> chain = gp.JacobianChain.dense([[[1, 2], [0, 1]], [[1, 0], [0, 3]]])
        >>> round(float(gp.log_norms(chain, lags=[2]).log_norm[0]), 7)  # ln 3.6502815
        1.2948043
        """
        factors = _checks.real_array("J", J, shape=("T", "n", "n"), step_axis=-3)
        shape, source = factors.shape[:-3], DenseSource(flat_replicas(factors, 3))
        n_steps, n = factors.shape[-3:-1]
        return cls(source, n, n_steps, "dense", shape, axis_roles(shape, {"weights": shape}))

    @classmethod
    def diagonal(cls, a: ArrayLike) -> JacobianChain:
        """Chain of diagonal Jacobians: LRU, S4D, Mamba, RG-LRU, minGRU.

        Parameters
        ----------
        a : array_like, shape (..., T, n), real or complex

        Returns
        -------
        JacobianChain
            Its products are elementwise; singular values are exact at any n.

        Raises
        ------
        ValueError, TypeError
            Entries that are not finite (the step is named).

        Examples
        --------
        >>> import gradprop as gp
        >>> chain = gp.JacobianChain.diagonal([[0.5j, 2.0], [0.5j, 2.0]])
        >>> gp.singular_values(chain).log_sigma[0].round(6).tolist()
        [1.386294, -1.386294]
        """
        factors = _checks.real_or_complex_array("a", a, shape=("T", "n"), step_axis=-2)
        shape = factors.shape[:-2]
        source = DiagonalSource(flat_replicas(factors, 2))
        n_steps, n = factors.shape[-2:]
        return cls(source, n, n_steps, "diagonal", shape, axis_roles(shape, {"weights": shape}))

    @classmethod
    def from_products(
        cls,
        jvp: Callable[[int, Float], ArrayLike],
        vjp: Callable[[int, Float], ArrayLike],
        n: int,
        n_steps: int,
    ) -> JacobianChain:
        """Chain known by its action: torch, JAX, low-rank updates.

        Parameters
        ----------
        jvp, vjp : callable (k, V) -> array, V and result of shape (n, p)
            J_k V and J_k^T V, for k = 1 .. n_steps. They must be deterministic.
        n, n_steps : int

        Returns
        -------
        JacobianChain

        Raises
        ------
        ValueError
            If vjp is not the adjoint of jvp at the first and the last step (to 1e-5 relative, so
            that float32 code passes), or a result has the wrong shape or is not finite.

        Notes
        -----
        Jacobians are formed a block of steps at a time, by jvp on the identity.
        """
        n = _checks.integer("n", n, minimum=1)
        n_steps = _checks.integer("n_steps", n_steps, minimum=0)
        source = CallableSource(jvp, vjp, n)
        for k in sorted({1, n_steps}) if n_steps else ():
            source.check_adjoint(k)
        return cls(source, n, n_steps, "products")

    def blocks(
        self, size: int | None = None, reverse: bool = False
    ) -> Iterator[Block | DiagonalBlock]:
        """Factors in blocks of at most `size` steps, computed as they are asked for.

        Parameters
        ----------
        size : int, optional
            Steps in a block; default: as many as fit 32 MiB.
        reverse : bool, default: False
            Last block first (inside a block steps still run forwards).
        """
        own = self.block_size if size is None else _checks.integer("size", size, minimum=1)
        starts = range(0, self.n_steps, own)
        for start in reversed(starts) if reverse else starts:
            yield self.source.block(start, min(start + own, self.n_steps))

    @property
    def block_size(self) -> int:
        """Default number of steps in a block."""
        width = self.n * (self.n if self.structure in ("dense", "products") else 1)
        return int(np.clip(BLOCK_FLOATS // max(self.n_replicas * width, 1), 1, 2**16))

    def tail(self, k: int) -> JacobianChain:
        """The chain of the last k steps, T - k + 1 .. T.

        Parameters
        ----------
        k : int in 0 .. T

        Returns
        -------
        JacobianChain
        """
        k = _checks.integer("k", k, minimum=0, maximum=self.n_steps)
        offset = self.n_steps - k
        if self.overflowed.any():
            raise ValueError("`tail` of a chain whose orbit overflowed; shorten the run first.")
        lengths = np.maximum(self.lengths.ravel() - offset, 0)
        source = SliceSource(self.source, offset)
        return dataclasses.replace(self, source=source, n_steps=k, valid=lengths)

    def log_abs_det(self) -> Float:
        """Ln |det J_T ... J_1| of every replica, shape ``batch_shape``.

        Notes
        -----
        Row-scaled chains: the determinant of W once, then sums of ln |phi'|, compensated; others:
        one LU a step. -inf only where that meets an exact zero: singular values tell more.
        """
        total = log_abs_det(self.blocks(), self.lengths.ravel(), self.n)
        return total.reshape(self.batch_shape)

    def perturbed(self, ulps: int = 1) -> JacobianChain:
        """The chain along the orbit whose start lies `ulps` units in the last place away.

        Parameters
        ----------
        ulps : int, default: 1
            Every entry of h_0 moves by so many floats of the orbit's dtype, away from zero.

        Raises
        ------
        ValueError
            The chain was built from factors.
        """
        moved = self.source.moved(_checks.integer("ulps", ulps, minimum=1, maximum=1000))
        return dataclasses.replace(self, source=moved)

    def to_dense(self) -> NDArray[Any]:
        """All Jacobians, shape (..., T, n, n); past a sequence's length the identity."""
        J = dense_form(self.blocks(), self.lengths.ravel(), self.n_steps, self.n)
        return J.reshape(*self.batch_shape, self.n_steps, self.n, self.n)
