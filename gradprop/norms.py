"""Norms of the long product and of what it does to vectors, in log scale, each with its error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Block, Float, Int
from gradprop.chain import JacobianChain
from gradprop.environment import single_threaded_blas
from gradprop.escalation import doubtful_lags, exact_log_norm
from gradprop.largest import largest_singular_values
from gradprop.measure import DiagonalLogs, Fold, LagGrid, check_chain, measure
from gradprop.results import REPLICAS, Result, Status, log_of_scaled

EPS = float(np.finfo(np.float64).eps)

SPREAD = 10.0
"""Stated error of a norm over the difference of two computations; chosen by experiment. Over 40 000
norms of ten families, cancelling ones among them, no true error exceeded 0.51 of the stated one
(benchmarks/singular_value_errors.py)."""


TOLERANCE = 1e-8
"""Error above which a norm is computed again in arbitrary precision, where that is installed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogNorms(Result):
    """Growth of the product's norm with the lag.

    Attributes
    ----------
    lags : int array, shape (L,)
    log_norm : float array, shape (..., L)
        ln ||P_lag||, in nats; -inf only where the product is exactly zero.
    error : float array, shape (..., L)
        Estimate of the absolute error of ``log_norm``, given the Jacobians as float64 numbers.
    status : int array, shape (...,)
    ord, anchor : str
        Which norm ("2" or "fro") and where lags count from.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_norm": (REPLICAS, "lag"),
        "error": (REPLICAS, "lag"),
        "status": (REPLICAS,),
    }
    lags: Int
    log_norm: Float
    error: Float
    status: Int
    ord: str
    anchor: str


class Norms:
    """Quantity: ln ||P_lag|| (see :func:`log_norms`, whose arguments these are).

    Parameters
    ----------
    ord : {2, "fro"}, default: 2
    lags : array_like of int, optional
    anchor : {"start", "end"}, default: "start"
    """

    def __init__(
        self, ord: int | str = 2, lags: ArrayLike | None = None, anchor: str = "start"
    ) -> None:
        self._ord = str(_checks.choice("ord", ord, (2, "fro")))
        self._lags, self._anchor = lags, anchor

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold: the product beside its image of a random rotation."""
        grid = LagGrid(chain, self._lags, self._anchor)
        if chain.structure == "diagonal":
            return [DiagonalLogs(chain, grid)]
        return [_ProductFold(chain, grid, self._ord)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> LogNorms:
        """Norms by lag."""
        fold, grid = folds[0], folds[0].grid
        values, status = grid.settle(chain, *fold.log_norms(self._ord))
        error, _ = grid.settle(chain, *fold.errors(self._ord))
        if chain.structure != "diagonal":
            _escalate(chain, grid, values, error, self._ord)
        shape = (*chain.batch_shape, len(grid.lags))
        doubtful = np.isnan(values) & np.isposinf(error)
        status = status | np.where(np.isneginf(values).any(1), int(Status.ZERO), 0)
        status = status | np.where(doubtful.any(1), int(Status.NOT_RESOLVED), 0)
        return LogNorms(
            roles=chain.roles,
            lags=grid.lags,
            log_norm=grid.in_order(values).reshape(shape),
            error=grid.in_order(error).reshape(shape),
            status=status.reshape(chain.batch_shape),
            ord=self._ord,
            anchor=self._anchor,
        )


class _ProductFold:
    """Carries [P, P Q0] with Q0 a fixed random rotation: their difference is the error estimate.

    All roundings of the two halves differ, so that cancellation in the product shows itself.
    """

    def __init__(self, chain: JacobianChain, grid: LagGrid, ord: str) -> None:
        R, n, L = chain.n_replicas, chain.n, len(grid.unique)
        self.grid, self.reverse, self._ord = grid, grid.reverse, ord
        self.window = grid.window(chain)
        self.flops = 4.0 * n**3 + (12.0 if ord == "2" else 2.0) * n**3
        self.floats = 2.0 * n * n * (L / max(chain.n_steps, 1)) + 2.0 * n
        self._n_valid = chain.lengths.ravel()
        self._rotation = random_rotation(n)
        self._P = np.tile(np.hstack([np.eye(n), self._rotation]), (R, 1, 1))
        self._exponent = np.zeros(R, dtype=np.int64)
        self._age = np.zeros(R, dtype=np.int64)
        self._values = np.full((R, L), np.nan)
        self._errors = np.full((R, L), np.nan)
        if grid.column[0] >= 0:
            self._values[:, 0], self._errors[:, 0] = self._norms(self._P, self._exponent)

    def update(self, block: Block, part: slice) -> None:
        """Absorb a block."""
        from gradprop._kernels import products

        age = self._age[part]
        low, high = int(age.min(initial=2**62)), int(age.max(initial=0))
        first, last = self.grid.columns_between(low, high + block.n_steps)
        R, n = len(age), self._P.shape[1]
        kept = np.zeros((R, last - first, n, 2 * n))
        unset = np.iinfo(np.int64).min
        exponents = np.full((R, last - first), unset)
        products.product_steps(
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            self._n_valid[part], block.first, self.reverse, self._P[part], self._exponent[part],
            age, self.grid.column, first, kept, exponents,
        )  # fmt: skip
        values, errors = self._norms(kept, exponents)
        met = exponents != unset
        self._values[part, first:last][met] = values[met]
        self._errors[part, first:last][met] = errors[met]

    def _norms(self, panel: Float, exponent: Int) -> tuple[Float, Float]:
        """Log norms and their errors of scaled panels [P, P Q0], shape (..., n, 2n)."""
        n = panel.shape[-2]
        P, rotated = panel[..., :n], panel[..., n:]
        with single_threaded_blas():
            size = norm_of(P, self._ord)
            gap = np.linalg.norm(rotated - P @ self._rotation, axis=(-2, -1))
        column = np.linalg.norm(P, axis=-2).max(axis=-1)
        log_norm = log_of_scaled(size, exponent)
        zero, agreed = size == 0, gap == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = SPREAD * gap / column
            error = -np.log1p(-np.minimum(relative, 1.0)) + EPS * (2 * n + 2 * np.abs(log_norm))
        # an exact zero is believed only if both halves vanish; otherwise it is cancellation
        lost = (relative >= 1) | (zero & ~agreed)
        error = np.where(lost, np.inf, np.where(zero, 0.0, error))
        return np.where(lost, np.nan, log_norm), error

    def log_norms(self, ord: str) -> tuple[Float, Float]:
        """Values by column and the value after everything."""
        return self._values, self._norms(self._P, self._exponent)[0]

    def errors(self, ord: str) -> tuple[Float, Float]:
        """Errors by column and after everything."""
        # one unit has no other rotation than 1: a factor rounds once, by half an eps at most
        scalar = EPS * self.grid.unique * (self._P.shape[1] == 1)
        return self._errors + scalar, self._norms(self._P, self._exponent)[1] + scalar[-1]


def _escalate(chain: JacobianChain, grid: LagGrid, values: Float, error: Float, ord: str) -> None:
    """Replace norms known to less than TOLERANCE, in place, by arbitrary precision."""
    doubtful = error > TOLERANCE
    for r, steps, columns in doubtful_lags(chain, grid, doubtful):
        for lag, exact in exact_log_norm(steps, list(columns), chain.n, ord).items():
            if exact is not None:
                values[r, columns[lag]], error[r, columns[lag]] = exact


def random_rotation(n: int, k: int | None = None, rng: Any = 0) -> Float:
    """Haar-distributed orthonormal columns, shape (n, k), the same on every call by default."""
    Q, R = np.linalg.qr(np.random.default_rng(rng).standard_normal((n, n if k is None else k)))
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def norm_of(P: Float, ord: str) -> Float:
    """2-norm or Frobenius norm of each matrix, entries of order one."""
    if ord == "fro":
        return np.asarray(np.linalg.norm(P, axis=(-2, -1)))
    return largest_singular_values(P)


def log_norms(
    chain: JacobianChain,
    *,
    ord: int | str = 2,
    lags: ArrayLike | None = None,
    anchor: str = "start",
    method: str = "exact",
) -> LogNorms:
    r"""Natural log of the norm of the Jacobian product at every lag.

    .. math:: \ln \lVert P_\ell \rVert,\quad P_\ell = J_\ell \cdots J_1 \text{ ("start")}
       \text{ or } J_T \cdots J_{T-\ell+1} \text{ ("end")}

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    ord : {2, "fro"}, default: 2
        Spectral or Frobenius norm.
    lags : array_like of int, shape (L,), each in 0 .. T, default: all
    anchor : {"start", "end"}, default: "start"
        "start" follows a perturbation of h_0 forward; "end" looks back from a loss at step T.
    method : {"exact"}, default: "exact"
        Multiply all factors, with a power of two taken out at every step.

    Returns
    -------
    LogNorms
        ``log_norm`` (..., L) in nats with ``error`` (..., L); ``status``.

    Raises
    ------
    ValueError, TypeError
        A lag outside 0 .. T, an unknown norm, anchor or method.

    Notes
    -----
    Past its own length a padded sequence has identity Jacobians: with anchor "start" its last value
    stands at later lags (and the status says so), with "end" they are nan.

    Cost 4 n^3 flops a step, and the largest singular value at each lag for the 2-norm (at n = 64
    35 us at short lags, 5 to 9 us at long ones); memory does not grow with T beyond the answer.
    Nothing over- or underflows. Even norms can be lost to cancellation (A^30 A^-30): the product is
    therefore formed twice, from I and from a random rotation; `error` is ten times their difference
    plus the rounding of the logarithm.
    Where it exceeds 1e-8 the product is formed in ball arithmetic (extra ``exact``); without it,
    values of which no digit is certain are nan, their error inf.

    References
    ----------
    .. [1] Pascanu, Mikolov, Bengio, On the difficulty of training recurrent neural networks, ICML
       2013, section 2.1.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.9, 50.0], [0.0, 0.9]]] * 200)
    >>> import numpy as np
    >>> np.exp(gp.log_norms(chain, lags=[9, 50]).log_norm).round(3).tolist()
    [193.711, 14.316]
    """
    check_chain(chain)
    _checks.choice("method", method, ("exact",))
    return measure(chain, Norms(ord, lags, anchor))[0]  # type: ignore[no-any-return]
