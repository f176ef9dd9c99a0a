"""Effective rank of the long product: how many of its directions count."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from gradprop.blocks import Float, Int
from gradprop.results import REPLICAS, Result, Status, log_sum_exp
from gradprop.singular import SingularValues

AGREEMENT = 1e-9
"""Relative difference that unresolved singular values may make to an effective rank."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EffectiveRank(Result):
    """How many directions of the product count, by lag.

    Attributes
    ----------
    lags : int array, shape (L,)
    participation : float array, shape (..., L)
        (sum sigma^2)^2 / sum sigma^4: 1 for one direction, n for equal ones; 0 for a zero product.
    entropy : float array, shape (..., L)
        exp of the entropy of sigma / sum sigma.
    status : int array, shape (...,)
    anchor : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "participation": (REPLICAS, "lag"),
        "entropy": (REPLICAS, "lag"),
        "status": (REPLICAS,),
    }
    lags: Int
    participation: Float
    entropy: Float
    status: Int
    anchor: str


def effective_rank(singular_values: SingularValues) -> EffectiveRank:
    r"""Effective rank of the long product at every lag, from its singular values in log scale.

    .. math:: \frac{(\sum \sigma_i^2)^2}{\sum \sigma_i^4}, \qquad
       \exp\Big(-\sum p_i \ln p_i\Big),\quad p_i = \sigma_i / \sum \sigma_j

    Parameters
    ----------
    singular_values : SingularValues, batch shape (...), L lags

    Returns
    -------
    EffectiveRank
        ``participation`` and ``entropy``, each (..., L), between 1 and n; 0 where the product is
        exactly zero; nan, with status NOT_RESOLVED, where unresolved values could change them.

    Raises
    ------
    TypeError
        Something else than the result of :func:`singular_values`.

    Notes
    -----
    Nothing over- or underflows. An unresolved value lies between 0 and the last resolved one before
    it; where both ends give the same answer to 1e-9, that is the answer. Relative error otherwise
    about four times the error of the log singular values.

    References
    ----------
    .. [1] O. Roy, M. Vetterli, The effective rank: a measure of effective dimensionality, EUSIPCO
       2007, 606: the entropy of the normalised singular values.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.diagonal([[1.0, 1.0, 0.5]] * 60)
    >>> gp.effective_rank(gp.singular_values(chain, lags=[0, 60])).participation.round(6).tolist()
    [3.0, 2.0]
    """
    if not isinstance(singular_values, SingularValues):
        given = type(singular_values).__name__
        raise TypeError(f"`singular_values` must be the result of singular_values; got {given}.")
    logs = singular_values.log_sigma
    unknown = np.isnan(logs)
    lowest = np.where(unknown, -np.inf, logs)
    last = np.minimum.accumulate(np.where(unknown | np.isneginf(logs), np.inf, logs), axis=-1)
    highest = np.where(unknown, last, logs)
    ranks = [
        _agreed(rank(lowest), rank(highest), unknown[..., 0]) for rank in (_participation, _entropy)
    ]
    status = np.asarray(singular_values.status) & ~int(Status.NOT_RESOLVED)
    lost = (np.isnan(ranks[0]) | np.isnan(ranks[1])).any(axis=-1)
    return EffectiveRank(
        roles=singular_values.roles,
        lags=singular_values.lags,
        participation=ranks[0],
        entropy=ranks[1],
        status=status | np.where(lost, int(Status.NOT_RESOLVED), 0),
        anchor=singular_values.anchor,
    )


def _participation(logs: Float) -> Float:
    total = log_sum_exp(2.0 * logs)
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(total), 0.0, np.exp(2.0 * total - log_sum_exp(4.0 * logs)))


def _entropy(logs: Float) -> Float:
    total = log_sum_exp(logs)
    with np.errstate(invalid="ignore"):
        log_p = logs - total[..., None]
        terms = np.where(np.isneginf(log_p), 0.0, np.exp(log_p) * log_p)
        return np.where(np.isneginf(total), 0.0, np.exp(-terms.sum(axis=-1)))


def _agreed(low: Float, high: Float, nothing_known: Any) -> Float:
    same = np.abs(low - high) <= AGREEMENT * high
    return np.where(same & ~nothing_known, low, np.nan)
