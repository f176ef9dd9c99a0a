"""What a clipping threshold would do to a run: shares, coefficients and quantiles of its norms."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.gradients.means import scaled_mean
from gradprop.results import REPLICAS, Result

LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
FIXED, MULTIPLES = (1.0, 5.0), (2.0, 3.0)
"""Conventional thresholds: by themselves, and in units of the mean norm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipStatistics(Result):
    """What thresholds do to the gradient norms of a run (see :func:`clip_statistics`).

    Attributes
    ----------
    thresholds : float array, shape (..., K)
    share_clipped : float array, shape (..., K)
        Share of the updates whose norm is above the threshold.
    mean_coefficient : float array, shape (..., K)
        Mean of min(1, threshold/norm), 1 where both are 0.
    levels : float array, shape (7,)
        0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.
    quantiles : float array, shape (..., 7)
        Of the norms at those levels, the smallest first, interpolated linearly between ranks.
    mean : float array, shape (...,)
        Of the norms.
    n_finite, n_non_finite : int arrays, shape (...,)
        Updates counted in everything above, and those left out: their norm was nan or inf.
    labels : tuple of str
        How each threshold came about: a number, or "2 x mean".
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "thresholds": (REPLICAS, "threshold"),
        "share_clipped": (REPLICAS, "threshold"),
        "mean_coefficient": (REPLICAS, "threshold"),
        "levels": ("level",),
        "quantiles": (REPLICAS, "level"),
        "mean": (REPLICAS,),
        "n_finite": (REPLICAS,),
        "n_non_finite": (REPLICAS,),
    }
    _table: ClassVar[str] = "share_clipped"
    thresholds: Float
    share_clipped: Float
    mean_coefficient: Float
    levels: Float
    quantiles: Float
    mean: Float
    n_finite: Int
    n_non_finite: Int
    labels: tuple[str, ...]


def clip_statistics(norms: ArrayLike, thresholds: ArrayLike | None = None) -> ClipStatistics:
    """What clipping at given thresholds would do to a run, from its gradient norms.

    Parameters
    ----------
    norms : array_like of float >= 0, shape (..., N)
        Global norm at each of N updates; leading axes are runs. nan and inf are counted apart.
    thresholds : float or array_like of float >= 0, shape (K,), optional
        Default: the conventional 1 and 5, and 2 and 3 times the mean norm of each run.

    Returns
    -------
    ClipStatistics

    Raises
    ------
    ValueError, TypeError
        A negative norm or threshold, a threshold that is not finite, a run without one finite norm.

    Notes
    -----
    Shares, means and quantiles are over the updates with a finite norm. The mean coefficient is
    not threshold over mean norm: a few large norms move the latter alone. O(N K).

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013, arXiv:1211.5063, section 3.2: thresholds from the mean norm.

    Examples
    --------
    >>> import gradprop as gp
    >>> run = gp.clip_statistics([1.0, 2.0, 4.0, 5.0, float("inf")], [2.0])
    >>> run.share_clipped.tolist(), run.mean_coefficient.round(12).tolist()
    ([0.5], [0.725])
    >>> float(run.mean), int(run.n_non_finite)
    (3.0, 1)
    """
    values = _checks.real_array("norms", norms, shape=("N",), finite=False)
    limits = None if thresholds is None else _given_thresholds(thresholds)
    finite = np.isfinite(values)
    _check_norms(values, finite)
    n_finite = finite.sum(axis=-1)
    mean = scaled_mean(np.where(finite, values, 0.0), count=n_finite)
    labels, limits = _labelled(limits, mean)
    clipped, coefficient = np.empty_like(limits), np.empty_like(limits)
    for k in range(limits.shape[-1]):
        limit = limits[..., k : k + 1]
        above = finite & (values > limit)
        factor = np.divide(limit, values, out=finite.astype(np.float64), where=above)
        clipped[..., k] = above.sum(axis=-1) / n_finite
        coefficient[..., k] = factor.sum(axis=-1) / n_finite
    quantiles = np.nanquantile(np.where(finite, values, np.nan), LEVELS, axis=-1)
    return ClipStatistics(
        roles=("runs",) * (values.ndim - 1),
        thresholds=limits,
        share_clipped=clipped,
        mean_coefficient=coefficient,
        levels=np.array(LEVELS),
        quantiles=np.moveaxis(quantiles, 0, -1),
        mean=mean,
        n_finite=n_finite,
        n_non_finite=values.shape[-1] - n_finite,
        labels=labels,
    )


def _check_norms(values: Float, finite: Any) -> None:
    if (values < 0).any():
        index = tuple(int(i) for i in np.argwhere(values < 0)[0])
        raise ValueError(f"`norms` must be at least 0; got {values[index]} at index {index}.")
    none = ~finite.any(axis=-1)
    if none.any():
        run = tuple(int(i) for i in np.argwhere(none)[0])
        where = f" in run {run}" if run else ""
        raise ValueError(f"`norms` must hold at least one finite norm; got none{where}.")


def _given_thresholds(thresholds: ArrayLike) -> Float:
    given = np.atleast_1d(_checks.plain_array("thresholds", thresholds))
    array = _checks.real_array("thresholds", given, shape=("K",))
    if array.ndim > 1 or (array < 0).any():
        raise ValueError(f"`thresholds` must be one row of numbers >= 0; got {array.tolist()}.")
    return array


def _labelled(limits: Float | None, mean: Float) -> tuple[tuple[str, ...], Float]:
    """Names and values (..., K) of the thresholds."""
    if limits is not None:
        return tuple(f"{v:g}" for v in limits), np.tile(limits, (*mean.shape, 1))
    labels = [f"{v:g}" for v in FIXED] + [f"{v:g} x mean" for v in MULTIPLES]
    with np.errstate(over="ignore"):
        columns = [np.full_like(mean, v) for v in FIXED] + [v * mean for v in MULTIPLES]
    return tuple(labels), np.stack(columns, axis=-1)
