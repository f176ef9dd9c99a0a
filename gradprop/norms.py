"""Norms of the long product and of what it does to vectors, in log scale, each with its error."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop._probefold import GateProbeFold, ProbeFold
from gradprop._productfold import ProductFold
from gradprop._stripfold import StripFold
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.escalation import doubtful_lags, exact_log_norm
from gradprop.measure import DiagonalLogs, Fold, LagGrid, check_chain, measure
from gradprop.results import REPLICAS, Result, Status

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
        Estimate of the absolute error of ``log_norm``, given the Jacobians as float64 numbers; with
        method "probe" half the width of a 95 % band, lag by lag.
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
    method : {"exact", "probe"}, default: "exact"
    probes : int, default: 8
    rng : seed or Generator, optional
    dtype : {"float64", "float32"}, default: "float64"
    """

    def __init__(
        self,
        ord: int | str = 2,
        lags: ArrayLike | None = None,
        anchor: str = "start",
        *,
        method: str = "exact",
        probes: int = 8,
        rng: Any = None,
        dtype: Any = "float64",
    ) -> None:
        self._ord = str(_checks.choice("ord", ord, (2, "fro")))
        self._lags, self._anchor = lags, anchor
        self._method = _checks.choice("method", method, ("exact", "probe"))
        self._probes = _checks.integer("probes", probes, minimum=1)
        self._rng = 0 if rng is None else rng
        self._dtype = _product_dtype(dtype)
        if self._dtype == np.float32 and (self._ord, method) != ("fro", "exact"):
            raise ValueError(
                f"`dtype` must be float64 unless `ord` is 'fro' and `method` 'exact'; got float32 "
                f"with ord {ord!r} and method {method!r}."
            )
        if method == "probe" and ord == 2:
            raise ValueError(
                "`ord` must be 'fro' with method 'probe', which cannot tell ||P||_2 from other "
                "values between ||P||_F / sqrt(n) and ||P||_F; got 2."
            )

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold: the product in strips beside check columns, or probes alone."""
        _checks.generator("rng", self._rng)
        grid = LagGrid(chain, self._lags, self._anchor)
        if chain.structure == "diagonal":
            return [DiagonalLogs(chain, grid)]
        if self._method == "probe":
            probing = GateProbeFold if chain.source.has_gates else ProbeFold
            return [probing(chain, grid, self._probes, self._rng)]
        if self._ord == "2":
            return [ProductFold(chain, grid)]
        return [StripFold(chain, grid, self._dtype)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> LogNorms:
        """Norms by lag."""
        fold, grid = folds[0], folds[0].grid
        values, status = grid.settle(chain, *fold.log_norms(self._ord))
        error, _ = grid.settle(chain, *fold.errors(self._ord))
        exact = self._method == "exact" and self._dtype == np.float64
        if exact and chain.structure != "diagonal":
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


def _product_dtype(dtype: Any) -> np.dtype[Any]:
    """float64 or float32, from anything that NumPy takes for it."""
    try:
        chosen: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"`dtype` must be float32 or float64; got {dtype!r}.") from error
    if chosen not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"`dtype` must be float32 or float64; got {chosen}.")
    return chosen


def _escalate(chain: JacobianChain, grid: LagGrid, values: Float, error: Float, ord: str) -> None:
    """Replace norms known to less than TOLERANCE, in place, by arbitrary precision."""
    doubtful = error > TOLERANCE
    for r, steps, columns in doubtful_lags(chain, grid, doubtful):
        for lag, exact in exact_log_norm(steps, list(columns), chain.n, ord).items():
            if exact is not None:
                values[r, columns[lag]], error[r, columns[lag]] = exact


def log_norms(
    chain: JacobianChain,
    *,
    ord: int | str = 2,
    lags: ArrayLike | None = None,
    anchor: str = "start",
    method: str = "exact",
    probes: int = 8,
    rng: Any = None,
    dtype: Any = "float64",
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
    method : {"exact", "probe"}, default: "exact"
        "exact" multiplies all factors, with a power of two taken out at every step; "probe" follows
        random vectors and estimates the Frobenius norm (of diagonal chains: exactly).
    probes : int, default: 8
        How many vectors; n or more give the norm to rounding.
    rng : seed or Generator, optional
        For the probes. Default: the same on every call.
    dtype : {"float64", "float32"}, default: "float64"
        What products are multiplied in; float32 only with ord "fro" and method "exact".

    Returns
    -------
    LogNorms
        ``log_norm`` (..., L) in nats with ``error`` (..., L); ``status``.

    Raises
    ------
    ValueError, TypeError
        A lag outside 0 .. T, an unknown norm, anchor or method; method "probe" with ord 2.

    Notes
    -----
    Past its own length a padded sequence has identity Jacobians: with anchor "start" its last value
    stands at later lags (and the status says so), with "end" they are nan.

    Nothing over- or underflows. Even norms can be lost to cancellation (A^30 A^-30): products are
    checked against a second way, and `error` is a multiple of the difference plus the rounding of
    the logarithm. Where it exceeds 1e-8 the product is formed in ball arithmetic (extra ``exact``);
    without it, values of which no digit is certain are nan, their error inf.

    P goes in strips of up to 128 columns, and of each strip S four fixed combinations S x of its
    columns are carried on their own: 40 times the estimate of ||dP||_F from S x of both is stated,
    and 2 sqrt(lag) eps. Cost 2 n^3 flops a step, an eighth (n up to 16: a half) more for the check;
    columns of W that meet a row of zeros (phi' = 0) are left out where these are an eighth or more.
    Threads share replicas and strips: a single network of up to 128 units keeps to one thread.
    The 2-norm costs the largest singular value at each lag as well (at n = 64 35 us at short lags,
    5 to 9 us at long ones). Memory does not grow with T beyond the answer.

    With `dtype` float32, W and phi' (or each given Jacobian) are rounded to float32 once, products
    are multiplied in float32 with exponents kept apart, and the combinations still in float64 from
    the float64 Jacobians: `error` then says what float32 cost, the rounding of the Jacobians
    included. Nothing is computed again in arbitrary precision.

    With method "probe" k vectors, orthonormal and random, of each replica its own, give
    ln ||P||_F, at any one lag within `error` with probability 0.95 or more: 0.53 nats for k = 8,
    0.23 for 32 (n = 256). That is the case of rank one, which long products approach; lags share
    their vectors, so errors of a curve go together. Of ||P||_2 it knows only that it lies between
    ||P||_F / sqrt(n) and ||P||_F, and refuses it. Cost 2 n^2 (k + 1) flops a step, from the gates
    for an LSTM or a GRU: 2.5, 5 and 10 times less time than "exact" at n = 64, 128, 256 (k = 8).
    Cancellation shows in one more vector, a sum of the others.

    References
    ----------
    .. [1] Pascanu, Mikolov, Bengio, On the difficulty of training recurrent neural networks, ICML
       2013, section 2.1.
    .. [2] F. Roosta-Khorasani, G. J. Szekely, U. M. Ascher, SIAM/ASA J. Uncertain. Quantif. 3
       (2015) 61 (rank one is the worst case of such estimates).

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.9, 50.0], [0.0, 0.9]]] * 200)
    >>> import numpy as np
    >>> np.exp(gp.log_norms(chain, lags=[9, 50]).log_norm).round(3).tolist()
    [193.711, 14.316]
    """
    check_chain(chain)
    quantity = Norms(ord, lags, anchor, method=method, probes=probes, rng=rng, dtype=dtype)
    return measure(chain, quantity)[0]  # type: ignore[no-any-return]
