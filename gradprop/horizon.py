"""How far back a loss can be felt: the answer in steps."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import check_chain
from gradprop.norms import log_norms
from gradprop.pullback import gradient_by_lag
from gradprop.results import REPLICAS, Result

QUANTILES = (0.05, 0.5, 0.95)
FLOAT32_EPS = 2.0**-23


@dataclasses.dataclass(frozen=True, kw_only=True)
class Horizon(Result):
    """Lags at which the gradient passes a tolerance.

    Attributes
    ----------
    last_above : int array, shape (...,)
        Last lag at which the relative norm is at least ``tol``; the whole length if it always is.
    first_below : int array, shape (...,)
        First lag at which it is below; 0 where that does not happen within the chain.
    quantiles : float array, shape (3,)
        5 %, 50 % and 95 % of ``first_below`` over all replicas; inf: not within the chain.
    status : int array, shape (...,)
    tol : float
    kind : {"worst", "cotangent"}
        Norm of the whole product, or of one loss direction.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "last_above": (REPLICAS,),
        "first_below": (REPLICAS,),
        "status": (REPLICAS,),
        "quantiles": ("quantile",),
    }
    _table: ClassVar[str] = "first_below"
    last_above: Int
    first_below: Int
    quantiles: Float
    status: Int
    tol: float
    kind: str


def horizon(
    chain: JacobianChain,
    *,
    tol: float | None = None,
    samples: int | None = None,
    cotangent: ArrayLike | None = None,
    anchor: str = "end",
) -> Horizon:
    """Lag beyond which the gradient is smaller than a tolerance.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    tol : float in (0, 1], optional
        Relative norm that still counts. Default: 2**-23, the relative spacing of float32, unless
        `samples` is given.
    samples : int, optional
        Number N of training sequences: sets tol = N**-0.5, below which a gradient is lost in the
        noise of its own estimate.
    cotangent : array_like, shape (..., n), optional
        A loss direction; default: the worst case over all directions, the 2-norm of the product.
    anchor : {"start", "end"}, default: "end"
        Where lags count from; a cotangent needs "end".

    Returns
    -------
    Horizon

    Raises
    ------
    ValueError, TypeError
        Both tol and samples given; a tolerance outside (0, 1]; a cotangent that is zero.

    Notes
    -----
    Cost that of :func:`log_norms` (or :func:`gradient_by_lag`) at all lags. Norms may come back up
    after ``first_below``: ``last_above`` tells. Neither speaks of the network's memory: a trained
    flip-flop network keeps its bits for ever while its gradient falls ten-fold every 1.6 steps.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.5]]] * 40)
    >>> h = gp.horizon(chain)
    >>> int(h.last_above), int(h.first_below)
    (23, 24)
    """
    check_chain(chain)
    tol = tolerance(tol, samples)
    _checks.choice("anchor", anchor, ("start", "end"))
    if cotangent is None:
        curve = log_norms(chain, anchor=anchor)
        relative, status = curve.log_norm, curve.status
    else:
        pulled = gradient_by_lag(chain, cotangent, anchor=anchor)
        if np.isneginf(pulled.log_norm[..., 0]).any():
            raise ValueError("`cotangent` must not be zero; it is for at least one replica.")
        relative, status = pulled.log_norm - pulled.log_norm[..., :1], pulled.status
    kind = "worst" if cotangent is None else "cotangent"
    return passing(relative, tol, kind=kind, roles=chain.roles, status=status)


def passing(
    relative: Float, tol: float, *, kind: str, roles: tuple[str, ...], status: Int
) -> Horizon:
    """Where curves of ln ||P_lag|| relative to lag 0, at lags 0, 1, ..., pass a tolerance.

    Parameters
    ----------
    relative : float array, shape (..., L)
    tol : float
    kind, roles, status
        As in :class:`Horizon`.

    Returns
    -------
    Horizon
    """
    with np.errstate(invalid="ignore"):
        above = relative >= np.log(tol)
        below = relative < np.log(tol)
    last = np.where(above, np.arange(relative.shape[-1]), 0).max(axis=-1)
    first = np.where(below.any(axis=-1), below.argmax(axis=-1), 0)
    reached = np.where(first > 0, first.astype(np.float64), np.inf)
    return Horizon(
        roles=roles,
        last_above=last,
        first_below=first,
        quantiles=np.quantile(reached, QUANTILES, method="inverted_cdf"),
        status=status,
        tol=tol,
        kind=kind,
    )


def tolerance(tol: float | None, samples: int | None) -> float:
    """The relative norm that still counts: given, N**-0.5, or that of float32."""
    if tol is not None and samples is not None:
        raise ValueError(f"give `tol` or `samples`, not both; got {tol} and {samples}.")
    if samples is not None:
        return float(_checks.integer("samples", samples, minimum=1) ** -0.5)
    return FLOAT32_EPS if tol is None else _checks.real("tol", tol, above=0.0, at_most=1.0)
