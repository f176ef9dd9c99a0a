"""The critical line: weights at which the mean squared gradient neither grows nor decays."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import activations
from gradprop.activations import Activation
from gradprop.quadrature import gaussian_mean
from gradprop.results import REPLICAS, Result, Status
from gradprop.theory import LARGE, SMALL, deviations, mean_field

Float = NDArray[np.float64]
Int = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)

VARIANCES = 2.0 ** np.arange(-40, 41)
"""Where the search for a critical state looks."""

SAME_STATE = 0.1
"""Largest |ln| of the ratio of two variances taken for one: other states are far away."""

ASIDE = 1e-6
"""Relative distance from a critical weight at which both sides of it are looked at."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticalLine(Result):
    """Points at which chi = 1 (see :func:`critical_line`).

    Attributes
    ----------
    sigma_b : float array, shape (...,)
    sigma_w : float array, shape (...,)
        Standard deviation of the weights times sqrt(n), the critical gain; nan where there is none.
    q_star : float array, shape (...,)
        Stationary variance of a pre-activation there; inf if it grows without bound; nan where
        every variance is stationary or there is no critical point.
    status : int array, shape (...,)
    activation : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "sigma_b": (REPLICAS,),
        "sigma_w": (REPLICAS,),
        "q_star": (REPLICAS,),
        "status": (REPLICAS,),
    }
    sigma_b: Float
    sigma_w: Float
    q_star: Float
    status: Int
    activation: str

    @property
    def conditions(self) -> str:
        """What has to hold for ``sigma_w`` to be critical in a network."""
        return (
            "Entries of W independent, mean 0, variance sigma_w^2/n; biases or white input of "
            "variance sigma_b^2; n to infinity, lags well below sqrt(n), the stationary state. "
            "There the mean of ||g||^2 over networks neither grows nor decays. At finite n a "
            "typical network still contracts: its own critical gain lies higher, most where "
            "sigma_b is 0; edge_of_chaos finds it."
        )


def critical_line(activation: str | Activation, sigma_b: ArrayLike = 0.0) -> CriticalLine:
    r"""Weights at which the mean squared gradient neither grows nor decays: chi = 1.

    .. math:: \sigma_w^2 = 1 / \mathrm E\,\varphi'(\sqrt q z)^2, \quad
       q - \sigma_w^2\,\mathrm E\,\varphi(\sqrt q z)^2 = \sigma_b^2, \quad z \sim N(0, 1)

    Parameters
    ----------
    activation : str or Activation
    sigma_b : array_like of float, shape (...), in 0 .. 1e100, default: 0
        Standard deviation of biases, or of white input to each unit.

    Returns
    -------
    CriticalLine
        ``sigma_w``, ``q_star`` of the shape of `sigma_b`; ``conditions``. ``status``: MARGINAL
        where every variance is stationary at sigma_w (relu without bias: q_star nan), UNBOUNDED
        where the variance grows without bound from sigma_w on (relu with bias: q_star inf),
        NOT_APPLICABLE where chi passes 1 by a jump from one state to another (gelu without bias)
        or not at all: sigma_w nan.

    Raises
    ------
    ValueError, TypeError
        An unknown activation, a negative, huge or non-finite sigma_b.

    Notes
    -----
    The second equation is solved for q, looked for between 1e-12 and 1e12 on a grid of ratio 2, and
    each solution is kept only if :func:`mean_field` ends in that state; of several the one with the
    smallest sigma_w is given. About 0.2 s, and 20 ms per point. Relative error of sigma_w about
    1e-14; for tanh and erf with small sigma_b, where q is about sigma_b^(2/3) and comes from a
    difference that cancels, up to 1e-15 / q, and never more than q itself.

    References
    ----------
    .. [1] S. Schoenholz et al., Deep information propagation, ICLR 2017, arXiv:1611.01232,
       section 3 and figure 1.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.critical_line("tanh", [0.0, 0.1**0.5]).sigma_w.round(6).tolist()
    [1.0, 1.409281]
    """
    own = activations.activation(activation)
    biases = deviations("sigma_b", sigma_b)
    sigma_w, q_star = np.empty(biases.shape), np.empty(biases.shape)
    status = np.zeros(biases.shape, dtype=np.int64)
    search = _Search(own)
    for at in np.ndindex(biases.shape):
        sigma_w[at], q_star[at], status[at] = search.point(float(biases[at]))
    return CriticalLine(
        roles=("sigma",) * biases.ndim,
        sigma_b=biases,
        sigma_w=sigma_w,
        q_star=q_star,
        status=status,
        activation=own.name,
    )


class _Search:
    """Critical states of one activation, as a curve over their variance q."""

    def __init__(self, own: Activation) -> None:
        self._own = own
        self._biases = np.array([self.bias(q) for q in VARIANCES])

    def weight(self, q: float) -> float:
        """sigma_w at which chi is 1 if the variance is q."""
        slope = gaussian_mean(self._own.derivative, q)
        return 1.0 / math.sqrt(slope) if slope > 0 else math.inf

    def bias(self, q: float) -> float:
        """sigma_b^2 that makes q stationary at that sigma_w; may be negative."""
        weight = self.weight(q)
        return q - weight**2 * gaussian_mean(self._own.evaluate, q) if weight < 1e100 else -math.inf

    def point(self, sigma_b: float) -> tuple[float, float, Status]:
        """sigma_w, q_star and a status of a candidate that a network ends up in."""
        for candidates in (self._at_rest, self._finite, self._unbounded):
            if found := candidates(sigma_b):
                return min(found)
        return math.nan, math.nan, Status.NOT_APPLICABLE

    def _at_rest(self, sigma_b: float) -> list[tuple[float, float, Status]]:
        """The state of variance 0, or every state where nothing depends on it."""
        weight = self.weight(SMALL)
        if sigma_b > 0 or float(self._own.evaluate(0.0)) != 0 or not weight < 1e100:
            return []
        field = mean_field(self._own, weight)
        if Status.MARGINAL in Status(int(field.status)):
            return [(weight, math.nan, Status.MARGINAL)]
        return [(weight, 0.0, Status.OK)] if float(field.q_star) == 0 else []

    def _finite(self, sigma_b: float) -> list[tuple[float, float, Status]]:
        from scipy.optimize import brentq

        gap = self._biases - sigma_b**2
        found = []
        for i in np.flatnonzero(np.sign(gap[:-1]) * np.sign(gap[1:]) < 0):
            if not np.isfinite(gap[i : i + 2]).all():
                continue
            ends = float(VARIANCES[i]), float(VARIANCES[i + 1])
            q = float(brentq(lambda q: self.bias(q) - sigma_b**2, *ends, xtol=1e-300, rtol=4 * EPS))
            weight = self.weight(q)
            reached = float(mean_field(self._own, weight, sigma_b).q_star)
            if 0 < reached < math.inf and abs(math.log(reached / q)) < SAME_STATE:
                found.append((weight, q, Status.OK))
        return found

    def _unbounded(self, sigma_b: float) -> list[tuple[float, float, Status]]:
        """Where variances stop being bounded, if chi is 1 there."""
        weight = self.weight(LARGE)
        if not 0 < weight < 1e99:
            return []
        field = mean_field(self._own, [weight * (1 - ASIDE), weight * (1 + ASIDE)], sigma_b)
        grows = Status.UNBOUNDED in Status(int(field.status[1]))
        passes = field.chi[0] < 1 and not Status(int(field.status[0]))
        return [(weight, math.inf, Status.UNBOUNDED)] if grows and passes else []
