"""Lyapunov spectrum of wide random networks, from free probability."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks, activations
from gradprop.activations import Activation
from gradprop.results import REPLICAS, Result, Status
from gradprop.slopelaw import SlopeLaw
from gradprop.theory import mean_field

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MOST_UNITS = 10**7

NEAR = 20.0
"""Below it (gain over that of the onset - 1) sqrt(n) is too small for the theory. The leading
exponent of tanh networks, over what theory says, was 0.25 at 4 (gain 1.5, n = 64), 0.66 at 8 (1.5,
256), 0.30 at 13 (1.2, 4096), 0.94 at 16 (2, 256), 0.98 at 45 (3, 512): found by experiment with the
study spectrum_vs_theory, the one at 4096 by Clark's data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomNetworkSpectrum(Result):
    """Limit of the Lyapunov spectrum of wide random networks (:func:`random_network_spectrum`).

    Attributes
    ----------
    exponents : float array, shape (n,)
        lambda(u), nats per step, descending; -inf from the share of units on whose slope is not 0.
    u : float array, shape (n,)
        (i - 1/2) / n for the i-th of them.
    lambda_1 : float array, shape ()
        Limit of the leading exponent, lambda(0): ln(chi) / 2.
    mean_exponent : float array, shape ()
        Integral of lambda over u = 0 .. 1: ln(gain) - 1/2 + E ln |phi'|.
    unstable_fraction : float array, shape ()
        Share of exponents above 0.
    positive_sum : float array, shape ()
        Their sum per unit, nats per step: the limit of h/n, h being the entropy if its equality
        with that sum (Pesin) holds.
    dimension : float array, shape ()
        Limit of the Kaplan-Yorke dimension over n, the share of leading exponents whose sum is 0.
    q_star : float array, shape ()
        Stationary variance of a pre-activation.
    status : int array, shape ()
    activation : str
    gain, noise_variance : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "exponents": ("index",),
        "u": ("index",),
        "lambda_1": (),
        "mean_exponent": (),
        "unstable_fraction": (),
        "positive_sum": (),
        "dimension": (),
        "q_star": (),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "exponents"
    exponents: Float
    u: Float
    lambda_1: Float
    mean_exponent: Float
    unstable_fraction: Float
    positive_sum: Float
    dimension: Float
    q_star: Float
    status: Int
    activation: str
    gain: float
    noise_variance: float

    @property
    def conditions(self) -> str:
        """What has to hold for ``exponents`` to be what a network shows."""
        return (
            "Entries of W independent, mean 0, variance gain^2/n, the same W or a fresh one at "
            "each step; white noise of the given variance on every unit, or none; the stationary "
            "state. Typical exponents: first the number of steps goes to infinity, at given n, "
            "then n. At finite n the leading ones lie lower, by about 1/(2n) in linear and 2.5/n "
            "in tanh networks, by much more near the onset of chaos, and networks differ. At lags "
            "well below sqrt(n) the largest singular value still carries its factor "
            "sqrt(e (lag + 1)), that of product_edge. Not for orthogonal, sparse, low-rank or "
            "trained W."
        )


def random_network_spectrum(
    activation: str | Activation, gain: float, n: int, noise_variance: float = 0.0
) -> RandomNetworkSpectrum:
    r"""Lyapunov spectrum of h' = phi(W h + noise) with Gaussian W, in the limit of many units.

    .. math:: \lambda(u) = \tfrac12 \ln\frac{g^2 u}{s(u)}, \quad
       \mathrm E\,\frac{s\,\varphi'^2}{1 + s\,\varphi'^2} = u, \quad 0 < u < 1,

    with the slopes phi' at pre-activations of the stationary variance.

    Parameters
    ----------
    activation : str or Activation
    gain : float, above 0, at most 1e100
        g: entries of W have variance g^2 / n.
    n : int in 1 .. 10^7
        At how many u = (i - 1/2) / n the spectrum is given; the law itself has no n.
    noise_variance : float in 0 .. 1e100, default: 0
        Variance of biases, or of input drawn anew for each unit and step.

    Returns
    -------
    RandomNetworkSpectrum
        ``exponents`` (n,) in nats per step, and of the whole law ``lambda_1``, ``mean_exponent``,
        ``unstable_fraction``, ``positive_sum``, ``dimension``; ``conditions``. ``status``:
        NEAR_ONSET where finite networks of n units are far from the limit; ZERO where slopes of 0
        have exponents of -inf; UNBOUNDED and MARGINAL as in :func:`mean_field`.

    Raises
    ------
    ValueError, TypeError
        An unknown activation, a gain, n or variance outside its range.

    Notes
    -----
    The exponents of products of free operators are -1/2 ln S(-u), S the S-transform of their
    squared moduli [1]_; that of diag(phi') W is the product of S = 1 / (g^2 (1 - u)) of W and
    (1 - u) s / u of the squared slopes. For phi linear it is the triangle law [2]_; for tanh the
    leading exponent is that of [3]_. With Lambda(u) the integral of lambda from 0 to u,

    2 Lambda = u (ln(g^2 u) - 1 - ln s) + E ln(1 + s phi'^2)

    gives ``positive_sum`` and ``dimension`` without a grid. One set of nodes holds for all u to a
    few eps while slopes span up to some 2000 nats (tanh up to a gain of 100, erf up to 10), to 1e-7
    beyond; exponents to about 1e-13, worse by the width of a gap in the law of ln |phi'|
    (leaky_relu near u = 1/2). Some 20 ms, and 30 us per exponent, for gains up to 10; seconds at
    100.

    That slopes at different steps are free of one another is exact for fresh W, and for one W a
    limit: simulated tanh networks of n = 4096 [4]_ agree to 5e-4 in the leading exponent at a gain
    of 1.5, to 1.3e-3 at 5.

    References
    ----------
    .. [1] U. Haagerup, S. Moeller, The law of large numbers for the free multiplicative
       convolution, Springer Proc. Math. Stat. 58, 157 (2013), arXiv:1211.4457, theorem 2.
    .. [2] M. Isopi, C. M. Newman, The triangle law for Lyapunov exponents of large random matrices,
       Commun. Math. Phys. 143, 591 (1992), section 1.
    .. [3] L. Molgedey, J. Schuchhardt, H. G. Schuster, Suppressing chaos in neural networks by
       noise, Phys. Rev. Lett. 69, 3717 (1992).
    .. [4] D. G. Clark, Lyapunov spectrum of random neural networks, data of the package
       rnn-lyapunov, folder data/network.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.random_network_spectrum("linear", 1.0, 2).exponents.round(6).tolist()  # ln(3/4)/2, ...
    [-0.143841, -0.693147]
    """
    own = activations.activation(activation)
    gain = _checks.real("gain", gain, above=0.0, at_most=1e100)
    n = _checks.integer("n", n, minimum=1, maximum=MOST_UNITS)
    noise = _checks.real("noise_variance", noise_variance, at_least=0.0, at_most=1e100)
    field = mean_field(own, gain, math.sqrt(noise))
    q_star, status = float(field.q_star), Status(int(field.status))
    u = (np.arange(n) + 0.5) / n
    law = _Law(SlopeLaw(own, q_star, n), gain)
    exponents = law.exponents(u)
    status |= Status.ZERO if np.isneginf(exponents).any() else Status.OK
    status |= Status.NEAR_ONSET if _near_onset(own, gain, n, noise, q_star) else Status.OK
    crossing = law.crossing()
    return RandomNetworkSpectrum(
        exponents=exponents,
        u=u,
        lambda_1=np.array(law.leading),
        mean_exponent=np.array(law.mean()),
        unstable_fraction=np.array(law.slopes.share(crossing)),
        positive_sum=np.array(max(law.partial_sum(crossing), 0.0)),
        dimension=np.array(law.dimension(crossing)),
        q_star=field.q_star,
        status=np.array(int(status)),
        activation=own.name,
        gain=gain,
        noise_variance=noise,
    )


def _near_onset(own: Activation, gain: float, n: int, noise: float, q_star: float) -> bool:
    """Whether autonomous networks of n units are too close to where activity sets in."""
    if noise > 0 or not 0 < q_star < math.inf or float(own.evaluate(0.0)) != 0:
        return False
    excess = gain * abs(float(own.derivative(0.0))) - 1.0
    return 0.0 < excess < NEAR / math.sqrt(n)


class _Law:
    """lambda as a function of ln s, which runs from -inf to inf as u does from 0 to 1."""

    def __init__(self, slopes: SlopeLaw, gain: float) -> None:
        self.slopes = slopes
        self._log_square = 2.0 * math.log(gain)
        self.leading = 0.5 * (self._log_square + slopes.log_mean)

    def exponents(self, u: Float) -> Float:
        """Exponents at each u; -inf beyond the share of slopes other than 0."""
        return 0.5 * (self._log_square + np.log(u) - self.slopes.solve(u))

    def mean(self) -> float:
        """Integral of lambda over u from 0 to 1."""
        if self.slopes.mass < 1.0:
            return -math.inf
        return 0.5 * (self._log_square - 1.0 + self.slopes.mean_log)

    def rate(self, log_s: float) -> float:
        """Exponent at ln s."""
        return 0.5 * (self._log_square + math.log(self.slopes.share(log_s)) - log_s)

    def partial_sum(self, log_s: float) -> float:
        """Integral of lambda up to the u of ln s."""
        u = self.slopes.share(log_s)
        if u == 0.0:
            return 0.0
        log_growth = self._log_square + math.log(u) - 1.0 - log_s
        return 0.5 * (u * log_growth + self.slopes.mean_softplus(log_s))

    def crossing(self) -> float:
        """Value of ln s where lambda is 0; -inf if it is negative throughout."""
        from scipy.optimize import brentq

        low = self.slopes.lowest
        if self.leading <= 0 or self.rate(low) <= 0:
            return -math.inf
        # lambda > 0 means s < g^2 u < g^2
        return float(brentq(self.rate, low, max(self._log_square, low) + 1.0, xtol=1e-15))

    def dimension(self, crossing: float) -> float:
        """Share u at which the integral of lambda is 0 again; `mass` if it stays positive."""
        from scipy.optimize import brentq

        mass = self.slopes.mass
        if math.isinf(crossing):
            return 0.0
        whole = mass * (self._log_square - 1.0 + math.log(mass)) + self.slopes.mean_log
        if whole >= 0:
            return mass
        width = 1.0
        while self.partial_sum(crossing + width) > 0:
            width *= 2.0
        found = brentq(self.partial_sum, crossing, crossing + width, xtol=1e-15)
        return self.slopes.share(float(found))
