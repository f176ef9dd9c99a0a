"""What a spectrum says about the attractor: its dimension, and a bound of its entropy."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.lyapunov.intervals import N_BATCHES, SHORTEST, batch_means, student_quantile
from gradprop.lyapunov.spectrum import LyapunovSpectrum
from gradprop.results import REPLICAS, Result, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class KaplanYorke(Result):
    """Kaplan-Yorke (Lyapunov) dimension.

    Attributes
    ----------
    dimension : float array, shape (...,)
    std_error : float array, shape (...,)
        Time sampling only, from ten batch means; nan for bare exponents or too few steps.
    interval : float array, shape (..., 2)
        Student t interval with 9 degrees of freedom at the confidence of the spectrum.
    n_whole : int array, shape (...,)
        j: the leading exponents whose sum is not negative.
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "dimension": (REPLICAS,),
        "std_error": (REPLICAS,),
        "interval": (REPLICAS, "end"),
        "n_whole": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "dimension"
    dimension: Float
    std_error: Float
    interval: Float
    n_whole: Int
    status: Int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositiveSum(Result):
    """Sum of the positive exponents.

    Attributes
    ----------
    value : float array, shape (...,)
        Nats per step.
    std_error : float array, shape (...,)
        Time sampling only, from ten batch means; nan for bare exponents or too few steps.
    interval : float array, shape (..., 2)
        Student t interval with 9 degrees of freedom at the confidence of the spectrum.
    n_positive : int array, shape (...,)
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": (REPLICAS,),
        "std_error": (REPLICAS,),
        "interval": (REPLICAS, "end"),
        "n_positive": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "value"
    value: Float
    std_error: Float
    interval: Float
    n_positive: Int
    status: Int


def kaplan_yorke(exponents: LyapunovSpectrum | ArrayLike) -> KaplanYorke:
    r"""Kaplan-Yorke dimension: where the sum of the leading exponents passes through zero.

    .. math:: D = j + \frac{\lambda_1 + \dots + \lambda_j}{|\lambda_{j+1}|},\quad
       j = \max\{i : \lambda_1 + \dots + \lambda_i \ge 0\}

    Parameters
    ----------
    exponents : LyapunovSpectrum, or array_like of shape (..., k)
        In any order; -inf counts, nan stands for an exponent below those that are known.

    Returns
    -------
    KaplanYorke
        ``dimension`` (...,): 0 if all exponents are negative; j if the next one is -inf; k, with
        status NO_CROSSING, if all k never sum to less than 0; nan, with status NOT_RESOLVED, if an
        exponent that decides is nan. ``std_error``, ``interval`` for a spectrum.

    Raises
    ------
    ValueError, TypeError
        Entries that are +inf, no exponent.

    Notes
    -----
    The conjecture that it equals the information dimension of the attractor's natural measure holds
    in two dimensions under conditions and for typical systems as far as is known [1]_; for driven
    chains it belongs to the measure conditional on that input. The interval is that of the formula
    made linear around the estimate, from batch means.

    References
    ----------
    .. [1] J. D. Farmer, E. Ott, J. A. Yorke, The dimension of chaotic attractors, Physica D 7
       (1983) 153, section 3.

    Examples
    --------
    >>> import gradprop as gp
    >>> round(float(gp.kaplan_yorke([0.41922, -1.62319]).dimension), 5)  # Henon map
    1.25827
    """
    lam = _sorted_exponents(exponents)
    k = lam.shape[-1]
    sums = np.concatenate([np.zeros((*lam.shape[:-1], 1)), np.cumsum(lam, axis=-1)], axis=-1)
    # sums rise and then fall: those that are not negative come first
    j = np.asarray((sums[..., 1:] >= 0).sum(axis=-1))
    whole = np.take_along_axis(sums, j[..., None], axis=-1)[..., 0]
    next_one = np.take_along_axis(lam, np.minimum(j, k - 1)[..., None], axis=-1)[..., 0]
    crossing = j < k
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.where(crossing, 1.0 / np.abs(next_one), 0.0)
    dimension = np.where(crossing, j + whole * slope, k)
    leading = np.arange(k) < j[..., None]
    at_next = np.arange(k) == np.where(crossing, j, -1)[..., None]
    weights = np.where(leading, slope[..., None], 0.0)
    weights = np.where(at_next, (whole * slope**2)[..., None], weights)
    error, interval = _linear_error(exponents, weights, np.where(crossing, dimension, np.nan))
    return KaplanYorke(
        roles=_roles(exponents, j.ndim),
        dimension=dimension,
        std_error=error,
        interval=interval,
        n_whole=j,
        status=_status(exponents, ~np.isnan(dimension), ~crossing),
    )


def positive_sum(exponents: LyapunovSpectrum | ArrayLike) -> PositiveSum:
    r"""Sum of the positive exponents, an upper bound of the entropy rate.

    .. math:: h \le \sum_{\lambda_i > 0} \lambda_i

    Parameters
    ----------
    exponents : LyapunovSpectrum, or array_like of shape (..., k)
        In any order; -inf counts, nan stands for an exponent below those that are known.

    Returns
    -------
    PositiveSum
        ``value`` (...,) in nats per step; 0 if no exponent is positive; nan, with status
        NOT_RESOLVED, if all that are known are positive and others are nan. If all k are positive,
        status NO_CROSSING: there may be more. ``std_error``, ``interval`` for a spectrum.

    Raises
    ------
    ValueError, TypeError
        Entries that are +inf, no exponent.

    Notes
    -----
    The metric entropy is at most this sum (Ruelle's inequality); it is equal to it if and only if
    the measure is smooth along unstable directions (SRB, Pesin's formula) [1]_, which is known for
    hardly any network. For a driven chain it bounds the entropy conditional on the input. Exponents
    that are 0 and estimated with noise add about 0.4 of their standard error each.

    References
    ----------
    .. [1] J.-P. Eckmann, D. Ruelle, Ergodic theory of chaos and strange attractors, Rev. Mod. Phys.
       57 (1985) 617, section IV.

    Examples
    --------
    >>> import gradprop as gp
    >>> float(gp.positive_sum([0.5, 0.25, -1.0]).value)
    0.75
    """
    lam = _sorted_exponents(exponents)
    positive = lam > 0
    value = np.where(positive, lam, 0.0).sum(axis=-1)
    unknown = np.isnan(lam)
    open_end = (positive | unknown).all(axis=-1)
    known = ~(open_end & unknown.any(axis=-1))
    value = np.where(known, value, np.nan)
    error, interval = _linear_error(exponents, positive.astype(np.float64), value)
    return PositiveSum(
        roles=_roles(exponents, value.ndim),
        value=value,
        std_error=error,
        interval=interval,
        n_positive=positive.sum(axis=-1),
        status=_status(exponents, known, known & open_end),
    )


def _sorted_exponents(exponents: LyapunovSpectrum | ArrayLike) -> Float:
    """Descending, nan last."""
    given = exponents.exponents if isinstance(exponents, LyapunovSpectrum) else exponents
    lam = _checks.real_array("exponents", given, shape=("k",), finite=False)
    if np.isposinf(lam).any():
        raise ValueError("`exponents` must be finite or -inf; got inf.")
    return np.asarray(-np.sort(-lam, axis=-1))


def _linear_error(
    exponents: LyapunovSpectrum | ArrayLike, weights: Float, value: Float
) -> tuple[Float, Float]:
    """Standard error and interval of a weighted sum of a spectrum's exponents, from its history."""
    error = np.full(value.shape, np.nan)
    half = np.full(value.shape, np.nan)
    if isinstance(exponents, LyapunovSpectrum) and exponents.history.shape[-2] >= N_BATCHES:
        counts = exponents.history_steps.astype(np.float64)
        running = np.where(weights[..., None, :] != 0, exponents.history, 0.0)
        sums = (running * weights[..., None, :]).sum(axis=-1) * counts
        with np.errstate(invalid="ignore", divide="ignore"):
            error = batch_means(sums[..., None], counts)[1][..., 0]
        known = (exponents.n_steps >= SHORTEST) & ~np.isnan(value)
        error = np.where(known, error, np.nan)
        half = student_quantile(exponents.confidence, N_BATCHES - 1) * error
    return error, np.stack([value - half, value + half], axis=-1)


def _roles(exponents: LyapunovSpectrum | ArrayLike, n_axes: int) -> tuple[str, ...]:
    return exponents.roles if isinstance(exponents, LyapunovSpectrum) else ("starts",) * n_axes


def _status(exponents: LyapunovSpectrum | ArrayLike, known: Any, open_end: Any) -> Int:
    """Statuses of the spectrum that matter here, and those of the answer."""
    own = np.zeros(np.shape(known), dtype=np.int64)
    if isinstance(exponents, LyapunovSpectrum):
        own = exponents.status & int(Status.TOO_SHORT | Status.OVERFLOWED)
    own = own | np.where(known, 0, int(Status.NOT_RESOLVED))
    return np.asarray(own | np.where(open_end, int(Status.NO_CROSSING), 0))
