"""What the long product does to vectors: pushed forward, pulled back, lag by lag."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Block, DiagonalBlock, Float, GateBlock, Int
from gradprop.chain import JacobianChain
from gradprop.measure import Fold, LagGrid, check_chain, measure
from gradprop.results import REPLICAS, Result, ScaledArray, Status, log_of_scaled


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorNorms(Result):
    """Norm of a vector under the product, by lag.

    Attributes
    ----------
    lags : int array, shape (L,)
    log_norm : float array, shape (..., L)
        ln of the 2-norm, in nats; -inf where the vector is exactly zero.
    status : int array, shape (...,)
    anchor : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_norm": (REPLICAS, "lag"),
        "status": (REPLICAS,),
    }
    lags: Int
    log_norm: Float
    status: Int
    anchor: str


class Pullback:
    """Quantity: ln ||P_lag^T u|| (see :func:`gradient_by_lag`, whose arguments these are).

    Parameters
    ----------
    u : array_like, shape (..., n)
    lags : array_like of int, optional
    anchor : {"end"}, default: "end"
    """

    def __init__(self, u: ArrayLike, lags: ArrayLike | None = None, anchor: str = "end") -> None:
        _checks.choice("anchor", anchor, ("end",))
        self._u, self._lags = u, lags

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold, running backwards."""
        return [_VectorFold(chain, "u", self._u, reverse=True, lags=self._lags)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> VectorNorms:
        """Norms by lag."""
        fold: _VectorFold = folds[0]
        grid = fold.grid
        values, status = grid.settle(chain, fold.log_norm, fold.log_norm[:, -1])
        zero = np.isneginf(values).any(axis=1)
        return VectorNorms(
            roles=chain.roles,
            lags=grid.lags,
            log_norm=grid.in_order(values).reshape(*chain.batch_shape, len(grid.lags)),
            status=(status | np.where(zero, int(Status.ZERO), 0)).reshape(chain.batch_shape),
            anchor="end",
        )


class _Applied:
    """Quantity: the image of a vector under the whole product or its transpose."""

    def __init__(self, vector: ArrayLike, name: str, reverse: bool) -> None:
        self._vector, self._name, self._reverse = vector, name, reverse

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold."""
        return [_VectorFold(chain, self._name, self._vector, self._reverse, lags=[chain.n_steps])]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> ScaledArray:
        """Mantissas and exponents; nan past an overflow."""
        fold: _VectorFold = folds[0]
        overflowed = chain.overflowed.ravel()
        mantissa = np.where(overflowed[:, None], np.nan, fold.vector)
        status: Int = np.where(overflowed, int(Status.OVERFLOWED), 0)
        status = status | np.where(~fold.vector.any(axis=1), int(Status.ZERO), 0)
        return ScaledArray(
            roles=chain.roles,
            mantissa=mantissa.reshape(*chain.batch_shape, chain.n),
            exponent=fold.exponent.reshape(*chain.batch_shape, 1),
            status=status.reshape(chain.batch_shape),
        )


class _VectorFold:
    """One vector per replica, renormalised by powers of two at every step."""

    takes_gates = True

    def __init__(
        self, chain: JacobianChain, name: str, vector: ArrayLike, reverse: bool, lags: Any
    ) -> None:
        self.grid = LagGrid(chain, lags, "end" if reverse else "start")
        self.reverse, self.window = reverse, self.grid.window(chain)
        self.flops, self.floats = 2.0 * chain.n**2, 2.0 * chain.n
        self._n_valid = chain.lengths.ravel()
        mantissa, self.exponent = _scaled_vector(chain, name, vector)
        self.vector = mantissa
        self._age = np.zeros(chain.n_replicas, dtype=np.int64)
        self.log_norm = np.full((chain.n_replicas, len(self.grid.unique)), np.nan)
        if self.grid.column[0] >= 0:
            self.log_norm[:, 0] = log_of_scaled(np.linalg.norm(mantissa, axis=1), self.exponent)

    def update(self, block: Block | DiagonalBlock | GateBlock, part: slice) -> None:
        """Absorb a block."""
        if isinstance(block, DiagonalBlock):
            self._update_diagonal(block)
            return
        if isinstance(block, GateBlock):
            self._update_gates(block, part)
            return
        from gradprop._kernels import products

        products.vector_steps(
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            self._n_valid[part], block.first, self.reverse, self.vector[part],
            self.exponent[part], self._age[part], self.grid.column, self.log_norm[part],
        )  # fmt: skip

    def _update_gates(self, block: GateBlock, part: slice) -> None:
        from gradprop._kernels import gatevectors

        gatevectors.gated_vector_steps(
            block.kind, block.W, block.which, block.coefs, self._n_valid[part], block.first,
            self.reverse, self.vector[part], self.exponent[part], self._age[part],
            self.grid.column, self.log_norm[part],
        )  # fmt: skip

    def _update_diagonal(self, block: DiagonalBlock) -> None:
        from gradprop._kernels import products

        factors = np.ascontiguousarray(block.factors)
        if np.iscomplexobj(factors):
            self.vector = self.vector.astype(np.complex128)
        products.diagonal_vector_steps(
            factors, self._n_valid, block.first, self.reverse, self.vector, self.exponent,
            self._age, self.grid.column, self.log_norm,
        )  # fmt: skip


def _shifted(vector: NDArray[Any], shift: Int) -> NDArray[Any]:
    """Multiply row r by 2**shift[r], real or complex."""
    if np.iscomplexobj(vector):
        return np.asarray(
            np.ldexp(vector.real, shift[:, None]) + 1j * np.ldexp(vector.imag, shift[:, None])
        )
    return np.asarray(np.ldexp(vector, shift[:, None]))


def _scaled_vector(chain: JacobianChain, name: str, vector: ArrayLike) -> tuple[Float, Int]:
    """One vector per replica, largest magnitude in [1/2, 1), and its powers of two."""
    array = _checks.real_array(name, vector, shape=(chain.n,))
    _checks.broadcast_shapes(**{name: array.shape[:-1], "chain": chain.batch_shape})
    if np.broadcast_shapes(array.shape[:-1], chain.batch_shape) != chain.batch_shape:
        raise ValueError(
            f"`{name}` must broadcast to the chain's replica axes {chain.batch_shape}; "
            f"got shape {array.shape}."
        )
    full = np.broadcast_to(array, (*chain.batch_shape, chain.n)).reshape(-1, chain.n)
    exponent = np.frexp(np.abs(full).max(axis=1))[1].astype(np.int64)
    return np.ascontiguousarray(_shifted(full, -exponent)), exponent


def jvp(chain: JacobianChain, v: ArrayLike) -> ScaledArray:
    """Apply the whole product to a vector: J_T ... J_1 v.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units
    v : array_like, shape (..., n)
        Leading axes broadcast to the chain's replica axes.

    Returns
    -------
    ScaledArray
        ``mantissa`` (..., n), ``exponent`` (..., 1).

    Raises
    ------
    ValueError, TypeError
        A wrong width, entries that are not finite.

    Notes
    -----
    Cost 2 n^2 flops a step. The result is exact for factors perturbed by about n eps relative to
    the norm of each; what that means for the vector depends on how much the chain cancels.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[1, 2], [0, 1]], [[1, 0], [0, 3]]])
    >>> gp.jvp(chain, [0.0, 1.0]).to_float().tolist()
    [2.0, 3.0]
    """
    return measure(check_chain(chain), _Applied(v, "v", reverse=False))[0]  # type: ignore[no-any-return]


def vjp(chain: JacobianChain, u: ArrayLike) -> ScaledArray:
    """Apply the transposed product to a cotangent: J_1^T ... J_T^T u, as BPTT does.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units
    u : array_like, shape (..., n)
        Gradient of a loss with respect to the last valid state.

    Returns
    -------
    ScaledArray
        Gradient with respect to the first state: ``mantissa`` (..., n), ``exponent`` (..., 1).

    Raises
    ------
    ValueError, TypeError
        A wrong width, entries that are not finite.

    Notes
    -----
    Cost and accuracy as :func:`jvp`; the factors act last first. Complex diagonal chains: the plain
    transpose, not the conjugate one.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[1, 2], [0, 1]], [[1, 0], [0, 3]]])
    >>> gp.vjp(chain, [0.0, 1.0]).to_float().tolist()
    [0.0, 3.0]
    """
    return measure(check_chain(chain), _Applied(u, "u", reverse=True))[0]  # type: ignore[no-any-return]


def gradient_by_lag(
    chain: JacobianChain, u: ArrayLike, *, lags: ArrayLike | None = None, anchor: str = "end"
) -> VectorNorms:
    """Norm of the gradient that a loss at the last step sends back, lag by lag.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    u : array_like, shape (..., n)
        Gradient of the loss with respect to the last valid state.
    lags : array_like of int, shape (L,), each in 0 .. T, default: all
    anchor : {"end"}, default: "end"
        Lags count back from the last valid step.

    Returns
    -------
    VectorNorms
        ``log_norm`` (..., L): ln ||P_lag^T u||_2 in nats.

    Raises
    ------
    ValueError, TypeError
        A wrong width, entries that are not finite, lags outside 0 .. T.

    Notes
    -----
    Cost 2 n^2 flops a step. Lags beyond a padded sequence's own length do not exist: nan, status.

    References
    ----------
    .. [1] Pascanu, Mikolov, Bengio, ICML 2013, equation 5.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.5]]] * 3)
    >>> gp.gradient_by_lag(chain, [1.0]).log_norm.round(4).tolist()
    [0.0, -0.6931, -1.3863, -2.0794]
    """
    return measure(check_chain(chain), Pullback(u, lags, anchor))[0]  # type: ignore[no-any-return]
