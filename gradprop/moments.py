"""Moments of the gradient's norm over a population, lag by lag."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import check_chain
from gradprop.pullback import gradient_by_lag
from gradprop.results import Result, log_sum_exp


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrowthMoments(Result):
    """Moments over replicas of the pulled-back gradient.

    Attributes
    ----------
    lags : int array, shape (L,)
        1 .. T.
    rate : float array, shape (L,)
        (1/lag) ln E ||P^T u||^q, the generalised Lyapunov exponent at finite lag.
    log_mean : float array, shape (L,)
        (1/q) ln E ||P^T u||^q in nats: the typical value for q = 0, the annealed one for q = 2.
    status : int array, shape ()
    q : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "rate": ("lag",),
        "log_mean": ("lag",),
        "status": (),
    }
    lags: Int
    rate: Float
    log_mean: Float
    status: Int
    q: float


def growth_moments(
    chain: JacobianChain, q: float, *, u: ArrayLike | None = None, rng: Any = 0
) -> GrowthMoments:
    r"""Moments over replicas of the pulled-back gradient: typical and mean growth kept apart.

    .. math:: L(q) = \frac1\ell \ln \mathrm{E}\,\lVert P_\ell^\top u \rVert^q

    Parameters
    ----------
    chain : JacobianChain, batch shape (...) with at least two replicas
    q : float
        Order; 0 gives the typical (quenched) value E ln ||P^T u|| as ``log_mean``, 2 the annealed.
    u : array_like, shape (..., n), optional
        Cotangents; default: one random unit vector per replica.
    rng : seed or Generator, default: 0
        For those.

    Returns
    -------
    GrowthMoments
        ``rate`` (T,) in nats per step, ``log_mean`` (T,) in nats, for lags 1 .. T.

    Raises
    ------
    ValueError, TypeError
        Fewer than two replicas, q not finite.

    Notes
    -----
    For large lags the mean over any affordable number of networks is carried by a few of them: look
    at the share of the largest before quoting the annealed value.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[[1.0]]], [[[3.0]]]])  # two scalar networks, one step
    >>> import numpy as np
    >>> [round(float(np.exp(gp.growth_moments(chain, q).log_mean[0])), 4) for q in (0, 2)]
    [1.7321, 2.2361]
    """
    check_chain(chain)
    q = _checks.real("q", q)
    if chain.n_replicas < 2:
        raise ValueError(f"`chain` must have at least 2 replicas; got {chain.n_replicas}.")
    if u is None:
        v = _checks.generator("rng", rng).standard_normal((*chain.batch_shape, chain.n))
        u = v / np.linalg.norm(v, axis=-1, keepdims=True)
    by_lag = gradient_by_lag(chain, u)
    lags = by_lag.lags[1:]
    logs = by_lag.log_norm.reshape(chain.n_replicas, -1)[:, 1:]
    log_moment = log_sum_exp(q * logs, axis=0) - np.log(chain.n_replicas)
    return GrowthMoments(
        lags=lags,
        rate=log_moment / lags,
        log_mean=log_moment / q if q else logs.mean(axis=0),
        status=np.bitwise_or.reduce(by_lag.status, axis=None),
        q=q,
    )
