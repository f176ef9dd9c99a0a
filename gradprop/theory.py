"""Mean field of wide random recurrent networks: stationary variance and growth of gradients."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.activations import Activation, activation
from gradprop.quadrature import gaussian_mean
from gradprop.results import REPLICAS, Result, Status

Float = NDArray[np.float64]
Int = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)

SMALL, LARGE = 1e-280, 1e280
"""Variances between which fixed points are looked for; at the ends phi is a slope on each side."""

SAME = 2e-14
"""Relative growth of a variance that quadrature cannot tell from none."""

STEP = 2.0**0.25
"""Factor between the variances at which the search for a fixed point looks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanField(Result):
    """Mean-field state of a wide random recurrent network (see :func:`mean_field`).

    Attributes
    ----------
    sigma_w, sigma_b : float array, shape (...,)
    q_star : float array, shape (...,)
        Stationary variance of a pre-activation; inf where it grows without bound; nan where every
        variance is stationary.
    chi : float array, shape (...,)
        Growth per step of the mean squared gradient norm there.
    rate : float array, shape (...,)
        ln(chi) / 2, nats per step: the annealed rate, not the typical one.
    status : int array, shape (...,)
    activation : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "sigma_w": (REPLICAS,),
        "sigma_b": (REPLICAS,),
        "q_star": (REPLICAS,),
        "chi": (REPLICAS,),
        "rate": (REPLICAS,),
        "status": (REPLICAS,),
    }
    sigma_w: Float
    sigma_b: Float
    q_star: Float
    chi: Float
    rate: Float
    status: Int
    activation: str

    @property
    def conditions(self) -> str:
        """What has to hold for ``rate`` to be what a network shows."""
        return (
            "Entries of W independent, mean 0, variance sigma_w^2/n; biases (or white input, drawn "
            "anew at each step) of variance sigma_b^2; n to infinity with the lag well below "
            "sqrt(n); the stationary state. The rate is annealed: half the log growth of the mean "
            "of ||g||^2 over networks; at finite n a typical network grows more slowly. It does "
            "not hold for orthogonal, sparse, low-rank or trained W."
        )


def mean_field(
    activation: str | Activation, sigma_w: ArrayLike, sigma_b: ArrayLike = 0.0
) -> MeanField:
    r"""Stationary variance and gradient growth of a wide network with independent random weights.

    .. math:: q^* = \sigma_w^2\,\mathrm E\,\varphi(\sqrt{q^*} z)^2 + \sigma_b^2,\quad
       \chi = \sigma_w^2\,\mathrm E\,\varphi'(\sqrt{q^*} z)^2,\quad z \sim N(0, 1)

    Parameters
    ----------
    activation : str or Activation
    sigma_w : array_like of float, shape (...), in 0 .. 1e100
        W_ij has variance sigma_w**2 / n: sigma_w is the gain g.
    sigma_b : array_like of float, shape (...), default: 0
        Standard deviation of biases, or of white input to each unit.

    Returns
    -------
    MeanField
        ``q_star``, ``chi``, ``rate`` = ln(chi)/2 in nats per step, each of the broadcast shape;
        ``conditions`` says what has to hold. ``status``: UNBOUNDED where the variance grows without
        bound (q_star inf, chi its limit), MARGINAL where every variance is stationary (relu at
        sigma_w = sqrt(2) without bias: q_star nan, chi that of all of them).

    Raises
    ------
    ValueError, TypeError
        An unknown activation, a negative, huge or non-finite sigma, shapes that do not broadcast.

    Notes
    -----
    Of several fixed points the one is taken that the recursion reaches from a state of variance 1,
    where q = sigma_w^2 + sigma_b^2, for E phi^2 increasing in q, as it is for all built-ins. It is
    bracketed on a grid of ratio 1.19 (two fixed points closer than that may be passed over) and
    polished by bisection and interpolation, so that slow convergence of the recursion near
    criticality costs nothing.

    Gaussian means by quadrature that finds kinks itself; relative error about 1e-15. That of q_star
    is larger by 1/|1 - slope| of the recursion: near the onset at sigma_w = 1 of tanh about
    1e-15/(sigma_w - 1). A fixed point within 2e-14 of marginality cannot be told from a marginal
    one. About 1 ms per point, 10 to 30 where q_star is 0 or inf.

    References
    ----------
    .. [1] B. Poole et al., Exponential expressivity in deep neural networks through transient
       chaos, NeurIPS 29 (2016), arXiv:1606.05340, section 2.
    .. [2] S. Schoenholz et al., Deep information propagation, ICLR 2017, arXiv:1611.01232,
       section 5.
    .. [3] L. Molgedey, J. Schuchhardt, H. G. Schuster, Suppressing chaos in neural networks by
       noise, Phys. Rev. Lett. 69, 3717 (1992).

    Examples
    --------
    >>> import gradprop as gp
    >>> field = gp.mean_field("tanh", 1.5)
    >>> [round(float(value), 8) for value in (field.q_star, field.chi, field.rate)]
    [0.79335404, 1.13932322, 0.06521721]
    """
    own = _activation(activation)
    weights, biases = deviations("sigma_w", sigma_w), deviations("sigma_b", sigma_b)
    shape = _checks.broadcast_shapes(sigma_w=weights.shape, sigma_b=biases.shape)
    weights, biases = np.broadcast_to(weights, shape), np.broadcast_to(biases, shape)
    q_star, chi = np.empty(shape), np.empty(shape)
    status = np.zeros(shape, dtype=np.int64)
    for at in np.ndindex(shape):
        point = _Recursion(own, float(weights[at]), float(biases[at]))
        q_star[at], status[at] = point.fixed_point()
        chi[at] = point.chi(float(q_star[at]))
    with np.errstate(divide="ignore"):
        rate = 0.5 * np.log(chi)
    return MeanField(
        roles=("sigma",) * len(shape),
        sigma_w=weights,
        sigma_b=biases,
        q_star=q_star,
        chi=chi,
        rate=rate,
        status=status,
        activation=own.name,
    )


def deviations(name: str, value: ArrayLike) -> Float:
    """Check standard deviations: 0 .. 1e100, so that variances stay in range."""
    array = _checks.real_array(name, value)
    if ((array < 0) | (array > 1e100)).any():
        raise ValueError(f"`{name}` must lie in 0 .. 1e100; got {array.min()} .. {array.max()}.")
    if name == "sigma_w" and ((array > 0) & (array < 1e-150)).any():
        raise ValueError(f"`{name}` must be 0 or at least 1e-150; got {array[array > 0].min()}.")
    return array


_activation = activation  # the argument of `mean_field` hides it


class _Recursion:
    """q -> sigma_w^2 E phi(sqrt(q) z)^2 + sigma_b^2 of one network."""

    def __init__(self, own: Activation, sigma_w: float, sigma_b: float) -> None:
        self._own = own
        self._weight, self._bias = sigma_w**2, sigma_b**2

    def growth(self, q: float) -> float:
        """Next variance over q > 0, minus 1."""
        return (self._weight * gaussian_mean(self._own.evaluate, q) + self._bias) / q - 1.0

    def chi(self, q: float) -> float:
        """Growth of squared gradients; at 0, inf and nan from the slopes on either side."""
        if self._weight == 0.0:
            return 0.0
        at = q if SMALL < q < LARGE else (LARGE if np.isinf(q) else SMALL)
        return self._weight * gaussian_mean(self._own.derivative, at)

    def fixed_point(self) -> tuple[float, Status]:
        """The variance reached from sigma_w^2 + sigma_b^2, and a status."""
        q = self._weight + self._bias
        if self._weight == 0.0 or q <= SMALL:
            return self._bias, Status.OK
        way = self._sign(q)
        if way == 0:
            everywhere = self._sign(q / 4.0) == self._sign(4.0 * q) == 0
            return (np.nan, Status.MARGINAL) if everywhere else (q, Status.OK)
        moving, flat = q, None
        while SMALL < q < LARGE:
            q *= (STEP if 1e-16 < q < 1e16 else 1e10) ** way
            sign = self._sign(q)
            if sign == -way:
                return self._between(moving, q), Status.OK
            if sign == 0:
                flat = q if flat is None else flat
            elif flat is not None:
                return flat, Status.OK  # growth vanishes there and has the same sign beyond
            else:
                moving = q
        return (0.0, Status.OK) if way < 0 else (np.inf, Status.UNBOUNDED)

    def _sign(self, q: float) -> int:
        growth = self.growth(q)
        return 0 if abs(growth) <= SAME else (1 if growth > 0 else -1)

    def _between(self, a: float, b: float) -> float:
        from scipy.optimize import brentq

        ends = (min(a, b), max(a, b))
        return float(brentq(self.growth, *ends, xtol=1e-300, rtol=4 * EPS, maxiter=1000))
