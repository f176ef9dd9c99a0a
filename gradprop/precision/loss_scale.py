"""Loss scales that keep a gradient inside the range of a float format."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.precision.crossings import EPS
from gradprop.precision.forecast import NORMAL_QUANTILE, checked_line
from gradprop.precision.formats import Format, format_of
from gradprop.results import LN2, REPLICAS, Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossScaleWindow(Result):
    """Loss scales for which a gradient neither underflows nor overflows on its way back.

    Attributes
    ----------
    log_low, log_high : float array, shape (...,)
        Natural logs of the smallest and the largest such scale; the first is the larger one where
        there is none, by the nats that the format's range is short of. nan for an unknown rate.
    exists : bool array, shape (...,)
    n_steps : int
    fmt : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "log_low": (REPLICAS,),
        "log_high": (REPLICAS,),
        "exists": (REPLICAS,),
    }
    log_low: Float
    log_high: Float
    exists: NDArray[np.bool_]
    n_steps: int
    fmt: str

    @property
    def powers_of_two(self) -> tuple[int, int] | None:
        """Smallest and largest k with 2**k in the window of a single rate; None if there is none.

        Returns
        -------
        tuple of int or None

        Raises
        ------
        ValueError
            A result of several rates, whose arrays are to be read instead.
        """
        if self.roles:
            raise ValueError(
                f"`powers_of_two` is for single rates; this result has {len(self.roles)} axes: "
                "read the arrays .log_low, .log_high and .exists."
            )
        if not self.exists:
            return None
        ends = np.array([self.log_low, self.log_high]) / LN2
        slack = 8 * EPS * (1 + np.abs(ends))
        low, high = math.ceil(ends[0] - slack[0]), math.floor(ends[1] + slack[1])
        return (low, high) if low <= high else None


def loss_scale_window(
    rate: ArrayLike,
    n_steps: int,
    fmt: str | Format = "float16",
    *,
    log_constant: ArrayLike = 0.0,
    spread: ArrayLike = 0.0,
    subnormals: bool = False,
) -> LossScaleWindow:
    r"""Loss scales for which a gradient over L steps neither underflows nor overflows.

    Parameters
    ----------
    rate : float or array_like, shape (...)
        :math:`\lambda` of :math:`\ln\|g_\ell\| = c + \lambda\ell \pm s`, nats per step.
    n_steps : int, 0 .. 2^53
        L: lags 0 .. L count.
    fmt : str or Format, default: "float16"
    log_constant : float or array_like, broadcastable, default: 0
        c, in nats: ln of the gradient at the loss, and the transient. For the typical entry of a
        vector take :math:`\tfrac12\ln n` off.
    spread : float or array_like, broadcastable, default: 0
        s, standard deviation in nats: 1.645 of it are kept clear at both ends.
    subnormals : bool, default: False
        Whether numbers below the smallest normal one will do, down to the smallest of all.

    Returns
    -------
    LossScaleWindow
        ``log_low``, ``log_high``, ``exists``, each (...,); ``.powers_of_two`` of a single rate,
        None if there is none.

    Raises
    ------
    ValueError, TypeError
        An unknown format, a number of steps out of range, a constant or spread that is not finite.

    Notes
    -----
    A gradient that changes by more nats than the format has between its smallest and its largest
    number (20.8 in float16) fits no loss scale; a wider exponent (bfloat16: 176) or fewer steps do.

    References
    ----------
    .. [1] P. Micikevicius et al., Mixed precision training, ICLR 2018, section 3.2.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.loss_scale_window(-0.6931471805599453, 20).powers_of_two
    (6, 15)
    >>> gp.loss_scale_window(-0.6931471805599453, 40).powers_of_two is None
    True
    """
    known = format_of(fmt)
    steps = _checks.integer("n_steps", n_steps, minimum=0, maximum=2**53)
    _checks.choice("subnormals", subnormals, (True, False))
    slope, constant, width = checked_line(rate, log_constant, spread)
    with np.errstate(over="ignore"):
        total = slope * steps if steps else np.where(np.isnan(slope), np.nan, 0.0)
    floor = known.log_min_subnormal if subnormals else known.log_min_normal
    margin = NORMAL_QUANTILE * width
    low = floor - constant - np.minimum(total, 0.0) + margin
    high = known.log_max - constant - np.maximum(total, 0.0) - margin
    return LossScaleWindow(
        roles=("rate",) * slope.ndim,
        log_low=low,
        log_high=high,
        exists=low <= high,
        n_steps=steps,
        fmt=known.name,
    )
