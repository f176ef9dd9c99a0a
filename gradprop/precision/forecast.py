"""Where a product that grows or decays at a rate will leave a float format."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.precision.crossings import ABOVE, Limit, limits_of
from gradprop.precision.formats import Format, format_of
from gradprop.precision.lags import Lags
from gradprop.results import REPLICAS

NORMAL_QUANTILE = 1.6448536269514722
"""95 % quantile of the standard normal distribution: 90 % lie within so many deviations."""

FARTHEST = 2.0**53
"""Lags beyond are never: float64 does not tell them from their neighbours."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionForecast(Lags):
    """First lags (from 1; 0 for never) at which c + rate * lag passes the limits of a format.

    Attributes
    ----------
    n_eps : int array, shape (...,)
        ||P|| < eps ||P_0||.
    n_subnormal : int array, shape (...,)
        ||P|| below the smallest normal number.
    n_below_subnormal : int array, shape (...,)
        ||P|| below the smallest subnormal number.
    n_zero : int array, shape (...,)
        ||P|| at most half of that: it rounds to zero.
    n_overflow : int array, shape (...,)
        ||P|| above the largest number.
    n_eps_band, n_subnormal_band, n_below_subnormal_band : int array, shape (..., 2)
    n_zero_band, n_overflow_band : int array, shape (..., 2)
        First and last lag of the 90 % band; 0 for never.
    fmt : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "n_eps": (REPLICAS,),
        "n_subnormal": (REPLICAS,),
        "n_below_subnormal": (REPLICAS,),
        "n_zero": (REPLICAS,),
        "n_overflow": (REPLICAS,),
        "n_eps_band": (REPLICAS, "end"),
        "n_subnormal_band": (REPLICAS, "end"),
        "n_below_subnormal_band": (REPLICAS, "end"),
        "n_zero_band": (REPLICAS, "end"),
        "n_overflow_band": (REPLICAS, "end"),
    }
    _table: ClassVar[str] = "n_eps"
    n_eps: Int
    n_subnormal: Int
    n_below_subnormal: Int
    n_zero: Int
    n_overflow: Int
    n_eps_band: Int
    n_subnormal_band: Int
    n_below_subnormal_band: Int
    n_zero_band: Int
    n_overflow_band: Int
    fmt: str

    def band(self, name: str) -> tuple[int | None, int | None]:
        """90 % band of one event of a single rate.

        Parameters
        ----------
        name : str
            A field, such as "n_zero".

        Returns
        -------
        tuple of int or None
            First and last lag; None: never.

        Raises
        ------
        ValueError
            An unknown name; a result of several rates, whose arrays are to be read instead.
        """
        self.event(name)
        low, high = getattr(self, f"{name}_band")
        return int(low) or None, int(high) or None


def precision_forecast(
    rate: ArrayLike,
    fmt: str | Format,
    *,
    log_constant: ArrayLike = 0.0,
    spread: ArrayLike = 0.0,
) -> PrecisionForecast:
    r"""Lags at which a norm :math:`\|P_\ell\| = e^{c + \lambda\ell}` leaves a float format.

    Parameters
    ----------
    rate : float or array_like, shape (...)
        :math:`\lambda`, nats per step, such as a Lyapunov exponent. Where it is 0 nothing moves;
        nan is a rate that is not known: no event is foreseen. -inf is that of a zero product.
    fmt : str or Format
    log_constant : float or array_like, broadcastable, default: 0
        c, in nats: what the transient adds. ``n_eps`` is relative to a start of norm 1.
    spread : float or array_like, broadcastable, default: 0
        Standard deviation of :math:`\ln\|P_\ell\| - c - \lambda\ell`, in nats, at the lags in
        question.

    Returns
    -------
    PrecisionForecast
        Lags ``n_eps``, ``n_subnormal``, ``n_below_subnormal``, ``n_zero``, ``n_overflow`` (...,)
        and their bands (..., 2), all counted from 1, 0 for never; ``.event(name)`` and
        ``.band(name)`` of a single rate (None then).

    Raises
    ------
    ValueError, TypeError
        An unknown format, a constant or a spread that is not finite, a negative spread.

    Notes
    -----
    The band holds 90 % of the lags if the deviation from the line is normal with the given spread:
    its ends are the lags at which the lines :math:`c \pm 1.645\,s + \lambda\ell` pass. Limits that
    are met to within rounding count as met, not passed, but for half the smallest number, which
    rounds to zero. The plain product itself
    (:func:`precision_events`) rounds each entry and may stick above zero for ever.

    References
    ----------
    .. [1] IEEE 754-2019, section 7: underflow and overflow.

    Examples
    --------
    >>> import gradprop as gp
    >>> forecast = gp.precision_forecast(-0.5493061443340549, "float32", spread=1.0)
    >>> [forecast.event(name) for name in ("n_eps", "n_subnormal", "n_below_subnormal", "n_zero")]
    [30, 159, 189, 190]
    >>> forecast.band("n_eps"), forecast.event("n_overflow")
    ((27, 33), None)
    """
    known = format_of(fmt)
    given = checked_line(rate, log_constant, spread)
    roles = ("rate",) * given[0].ndim
    fields: dict[str, Any] = {}
    for limit in limits_of(known, np.zeros(1)):
        fields[limit.name], fields[f"{limit.name}_band"] = _passing(limit, *given)
    return PrecisionForecast(roles=roles, **fields, fmt=known.name)


def checked_line(rate: Any, log_constant: Any, spread: Any) -> list[Float]:
    """The line and its spread, broadcast against each other."""
    slope = _checks.real_array("rate", rate, finite=False)
    constant = _checks.real_array("log_constant", log_constant)
    width = _checks.real_array("spread", spread)
    if (width < 0).any():
        raise ValueError(f"`spread` must not be negative; got {width.min()}.")
    _checks.broadcast_shapes(rate=slope.shape, log_constant=constant.shape, spread=width.shape)
    return [np.asarray(part) for part in np.broadcast_arrays(slope, constant, width)]


def _passing(limit: Limit, rate: Float, constant: Float, spread: Float) -> tuple[Int, Int]:
    """First lag beyond a limit, and the band of it: first lags of the two outer lines."""
    outwards = 1.0 if limit.kind == ABOVE else -1.0
    half = outwards * NORMAL_QUANTILE * spread
    first, middle, last = (_first_lag(limit, rate, constant + c) for c in (half, 0.0, -half))
    return middle, np.stack([first, last], axis=-1)


def _first_lag(limit: Limit, rate: Float, constant: Float) -> Int:
    """First lag from 1 on at which the line is beyond the limit; 0 for never."""
    shape, rate, constant = rate.shape, rate.reshape(1, -1), constant.reshape(1, -1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.floor((limit.value[0] - constant) / rate)
        near = np.where(np.isfinite(near) & (near < FARTHEST), near, 0.0)
        # the quotient's rounding may be a lag off: let the limit decide among its neighbours
        around = [near + k for k in (-1, 0, 1, 2)]
        # a line so flat that these still lie within the limit's own slack passes it beyond that
        beyond = near + np.ceil(2 * limit.slack / np.abs(rate))
        around.append(np.where(beyond < FARTHEST, beyond, np.nan))
        lags = np.maximum(np.concatenate([np.ones_like(near), *around]), 1)
        passed = limit.passed(constant + rate * lags)
    first = np.where(passed, lags, np.inf).min(axis=0)
    return np.where(np.isfinite(first), first, 0).astype(np.int64).reshape(shape)
