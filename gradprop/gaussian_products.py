"""Products of Gaussian matrices: exact exponents at any n, and the largest singular value."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.results import LN2, Result

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewmanExponents(Result):
    """Exact Lyapunov exponents of products of Gaussian matrices (see :func:`newman_exponents`).

    Attributes
    ----------
    exponents : float array, shape (n,)
        Nats per step, descending.
    variance_per_step : float array, shape (n,)
        Variance of ln r_ii of one step of the QR recursion: estimates from T steps have this
        variance over T, independently over i and steps.
    sigma : float
        Standard deviation of one entry.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "exponents": ("index",),
        "variance_per_step": ("index",),
    }
    exponents: Float
    variance_per_step: Float
    sigma: float

    def std_error(self, n_steps: int) -> Float:
        """Exact standard deviation of each exponent as estimated by QR from so many steps.

        Parameters
        ----------
        n_steps : int, at least 1

        Returns
        -------
        float array, shape (n,)
            Nats per step.
        """
        n_steps = _checks.integer("n_steps", n_steps, minimum=1)
        return np.asarray(np.sqrt(self.variance_per_step / n_steps))

    @property
    def conditions(self) -> str:
        """What has to hold for ``exponents`` to be what a product shows."""
        return (
            "Every factor square, its entries independent N(0, sigma^2), fresh at each step, phi "
            "linear. Typical rates, exact at every n; QR estimates have this mean and variance at "
            "every number of steps. Powers of one W have these exponents as n goes to infinity "
            "only; ln(singular value)/lag differs from them by a term of order 1/lag."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProductEdge(Result):
    """Largest singular value of products of many large Gaussian matrices (:func:`product_edge`).

    Attributes
    ----------
    lags : int array, shape (L,)
        Numbers of factors.
    log_sigma : float array, shape (L,)
        ln of the largest singular value, nats.
    gain : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {"lags": ("lag",), "log_sigma": ("lag",)}
    _table: ClassVar[str] = "log_sigma"
    lags: Int
    log_sigma: Float
    gain: float

    def log_moment(self, k: int) -> Float:
        """Natural log of the mean of sigma_i^(2k) over all n singular values, per lag.

        Parameters
        ----------
        k : int, at least 1

        Returns
        -------
        float array, shape (L,)
            ln of g^(2kL) C((L+1)k, k) / (Lk+1), the Fuss-Catalan numbers: sigma^2 has the mean
            g^(2L) and the variance L g^(4L).
        """
        from scipy.special import gammaln

        k = _checks.integer("k", k, minimum=1)
        lags = self.lags.astype(np.float64)
        binomial = gammaln((lags + 1) * k + 1) - gammaln(k + 1) - gammaln(lags * k + 1)
        return np.asarray(binomial - np.log1p(lags * k) + 2 * k * lags * math.log(self.gain))

    @property
    def conditions(self) -> str:
        """What has to hold for ``log_sigma`` to be what a product shows."""
        return (
            "Entries of every factor independent, mean 0, variance gain^2/n, phi linear; fresh "
            "factors or the power of one W alike. n to infinity at a fixed lag, where typical and "
            "mean value are one; at finite n it holds for lags well below sqrt(n). For lags well "
            "above n the typical value grows as newman_exponents says, and the mean of sigma^2 as "
            "gain^(2 lag)."
        )


def newman_exponents(n: int, sigma: float) -> NewmanExponents:
    r"""Exact Lyapunov exponents of products of independent Gaussian n x n matrices, at any n.

    .. math:: \lambda_i = \tfrac12\left[\ln 2 + \psi\left(\tfrac{n-i+1}{2}\right)\right] + \ln\sigma

    Parameters
    ----------
    n : int, at least 1
    sigma : float, above 0
        Standard deviation of one entry: gain g means sigma = g / sqrt(n).

    Returns
    -------
    NewmanExponents
        ``exponents`` (n,), nats per step, descending; ``variance_per_step`` (n,);
        ``std_error(n_steps)`` of an estimate; ``conditions``.

    Raises
    ------
    ValueError, TypeError
        `n` is not an integer of at least 1, `sigma` not a positive finite number.

    Notes
    -----
    r_ii^2 of each step of the QR recursion is sigma^2 times chi-squared with n - i + 1 degrees of
    freedom, independently over i and steps: the estimate from T steps has exactly the mean
    lambda_i and the variance psi_1((n - i + 1)/2) / (4 T). Cost O(n); accuracy that of psi, a few
    eps.

    References
    ----------
    .. [1] C. M. Newman, The distribution of Lyapunov exponents: exact results for random matrices,
       Commun. Math. Phys. 103, 121 (1986), equation 7.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.newman_exponents(2, 1.0).exponents.round(10).tolist()
    [0.0579657578, -0.6351814227]
    """
    from scipy.special import digamma, polygamma

    n = _checks.integer("n", n, minimum=1)
    sigma = _checks.real("sigma", sigma, above=0.0)
    half_freedom = 0.5 * np.arange(n, 0, -1)
    return NewmanExponents(
        exponents=0.5 * (LN2 + digamma(half_freedom)) + math.log(sigma),
        variance_per_step=0.25 * polygamma(1, half_freedom),
        sigma=sigma,
    )


def product_edge(lags: ArrayLike, gain: float = 1.0) -> ProductEdge:
    r"""Largest singular value of a product of L large Gaussian matrices, for each L in `lags`.

    .. math:: \sigma_{\max}^2 = g^{2L}\,\frac{(L+1)^{L+1}}{L^L}

    Parameters
    ----------
    lags : array_like of int, shape (L,), each at least 0
    gain : float, above 0, default: 1
        g: entries have variance g^2 / n.

    Returns
    -------
    ProductEdge
        ``log_sigma`` (L,), nats; ``log_moment(k)`` of all singular values; ``conditions``.

    Raises
    ------
    ValueError, TypeError
        A negative lag, a gain that is not positive and finite.

    Notes
    -----
    The upper end of the Fuss-Catalan law, the limit of the singular values as n goes to infinity
    at a fixed lag. It lies about ln(e (L + 1))/2 above the rate ln g of one vector: a product of
    critical matrices still has gradients that grow as sqrt(L). Cost O(1) per lag; accuracy a few
    eps.

    References
    ----------
    .. [1] K. A. Penson, K. Zyczkowski, Product of Ginibre matrices: Fuss-Catalan and Raney
       distributions, Phys. Rev. E 83, 061118 (2011), arXiv:1103.3453, section I.
    .. [2] N. Alexeev, F. Goetze, A. Tikhomirov, Asymptotic distribution of singular values of
       powers of random matrices, Lith. Math. J. 50, 121 (2010), arXiv:1002.4442, section 1.
    .. [3] Universality for products of random matrices with i.i.d. entries and the Fuss-Catalan
       number, arXiv:2606.14450 (2026), abstract: norms of powers and of fresh products.

    Examples
    --------
    >>> import numpy as np
    >>> import gradprop as gp
    >>> np.exp(2 * gp.product_edge([1, 2]).log_sigma).round(12).tolist()
    [4.0, 6.75]
    """
    gain = _checks.real("gain", gain, above=0.0)
    asked = _checks.integer_array("lags", lags, minimum=0, maximum=2**53)
    L = asked.astype(np.float64)
    # (L+1) ln(L+1) - L ln L without its cancellation
    edge = np.log1p(L) + L * np.log1p(1.0 / np.maximum(L, 1.0))
    return ProductEdge(lags=asked, log_sigma=0.5 * edge + L * math.log(gain), gain=gain)
