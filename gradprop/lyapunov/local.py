"""Local (finite-time) exponents: growth in consecutive windows, and how it is distributed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.lyapunov.growth import LONGEST, ExponentFold, diagonal_history
from gradprop.measure import DiagonalLogs, Fold, LagGrid, check_chain, measure
from gradprop.results import REPLICAS, Result, Status

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
FEWEST_POOLED = 8
"""Pooled windows from which a variance is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalExponents(Result):
    """Exponents of consecutive windows, in nats per step, and their statistics.

    Attributes
    ----------
    exponents : float array, shape (..., K, k)
        Mean growth in each window; columns in descending order of their mean over windows. A
        direction that is lost exactly is -inf throughout, one lost in rounding nan.
    mean : float array, shape (..., k)
    covariance : float array, shape (..., k, k)
        Of the exponents of one window; nan where they are not finite, or for one window.
    widths : int array, shape (J,)
        Steps of 1, 2, 4 ... windows taken as one, while there are at least 8 of them.
    variance_growth : float array, shape (..., J, k)
        Width times variance of the exponents at that width: constant if windows are independent,
        growing with the width as long as it is below the correlation time, and then constant, the
        variance per step that governs the error of long averages.
    levels : float array, shape (5,)
        0.05, 0.25, 0.5, 0.75, 0.95.
    quantiles : float array, shape (..., 5, k)
    autocorrelation_time : float array, shape (..., k)
        Integrated, in steps; one window for independent windows; nan where windows are too few.
    n_windows : int array, shape (...,)
        Windows that each replica fills; later ones are nan.
    status : int array, shape (...,)
    window, burn_in : int
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "exponents": (REPLICAS, "part", "i"),
        "mean": (REPLICAS, "i"),
        "covariance": (REPLICAS, "i", "j"),
        "widths": ("width",),
        "variance_growth": (REPLICAS, "width", "i"),
        "levels": ("level",),
        "quantiles": (REPLICAS, "level", "i"),
        "autocorrelation_time": (REPLICAS, "i"),
        "n_windows": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "exponents"
    exponents: Float
    mean: Float
    covariance: Float
    widths: Int
    variance_growth: Float
    levels: Float
    quantiles: Float
    autocorrelation_time: Float
    n_windows: Int
    status: Int
    window: int
    burn_in: int


class _Windows:
    """Quantity: growth in consecutive windows (see :func:`local_exponents`)."""

    def __init__(self, k: int | None, window: int, burn_in: int, rng: Any) -> None:
        self._k = k if k is None else _checks.integer("k", k, minimum=1)
        self._window = _checks.integer("window", window, minimum=1)
        self._burn_in = _checks.integer("burn_in", burn_in, minimum=0)
        self._rng = 0 if rng is None else rng

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One forward fold that records at the end of each window."""
        if self._k is not None and self._k > chain.n:
            raise ValueError(f"`k` must be at most n = {chain.n}; got {self._k}.")
        if self._burn_in + self._window > chain.n_steps:
            raise ValueError(
                f"`burn_in` and one `window` must fit into the {chain.n_steps} steps of the chain; "
                f"got {self._burn_in} and {self._window}."
            )
        edges = np.arange(self._burn_in, chain.n_steps + 1, self._window)
        if chain.structure == "diagonal":
            return [DiagonalLogs(chain, LagGrid(chain, edges, "start"))]
        _checks.generator("rng", self._rng)
        asked = np.tile(edges[1:], (chain.n_replicas, 1))
        # every recorded step costs a Householder QR: in short windows it may as well be the step's
        longest = LONGEST if self._window > 4 else 0
        return [ExponentFold(chain, self._k, self._burn_in, asked, self._rng, longest)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> LocalExponents:
        """Differences of the recorded sums, and statistics of each replica."""
        K = (chain.n_steps - self._burn_in) // self._window
        history: Float
        zero: Any
        unsure: Any
        if chain.structure == "diagonal":
            edges = self._burn_in + self._window * np.arange(1, K + 1)
            history, zero, unsure = (a[..., : self._k] for a in diagonal_history(folds[0], edges))
        else:
            history = folds[0].history
            zero, unsure = folds[0].lost()
        lost = np.maximum.accumulate(unsure, axis=-1) & ~zero
        local = np.diff(history, axis=1, prepend=0.0) / self._window
        filled = np.clip((chain.lengths.ravel() - self._burn_in) // self._window, 0, K)
        local[np.arange(K) >= filled[:, None]] = np.nan
        local[np.broadcast_to(lost[:, None], local.shape)] = np.nan
        local[np.broadcast_to(zero[:, None], local.shape)] = -np.inf
        status = np.where(zero.any(axis=-1), int(Status.ZERO), 0)
        status |= np.where(lost.any(axis=-1), int(Status.NOT_RESOLVED), 0)
        status |= np.where(chain.overflowed.ravel(), int(Status.OVERFLOWED), 0)
        return self._packed(chain, local, filled, status)

    def _packed(
        self, chain: JacobianChain, local: Float, filled: Int, status: Int
    ) -> LocalExponents:
        widths = self._window * 2 ** np.arange(_doublings(local.shape[1]))
        parts: list[dict[str, Float]] = []
        for r, count in enumerate(filled):
            own = local[r, :count]
            mean = own.mean(axis=0) if count else np.full(local.shape[2], np.nan)
            order = np.argsort(-np.where(np.isnan(mean), -np.inf, mean), kind="stable")
            local[r] = local[r][:, order]
            parts.append(_statistics(local[r, :count], self._window, len(widths)))
            times = np.nan_to_num(parts[-1]["autocorrelation_time"])
            short = count < 50 * times / self._window
            status[r] |= int(Status.FEW_WINDOWS) if short.any() or count < 50 else 0
        shape = chain.batch_shape
        stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        return LocalExponents(
            roles=chain.roles,
            exponents=local.reshape(*shape, *local.shape[1:]),
            widths=widths,
            levels=np.array(LEVELS),
            n_windows=filled.reshape(shape),
            status=status.reshape(shape),
            window=self._window,
            burn_in=self._burn_in,
            **{name: value.reshape(*shape, *value.shape[1:]) for name, value in stacked.items()},
        )


def _doublings(n_windows: int) -> int:
    """How often windows can be pooled in pairs, the unpooled ones included."""
    return max(1, int(np.log2(max(n_windows, 1) / FEWEST_POOLED)) + 1)


def _statistics(local: Float, window: int, doublings: int) -> dict[str, Float]:
    """Statistics of one replica's windows (K, k)."""
    K, k = local.shape
    finite: Any = np.isfinite(local).all(axis=0)
    values = np.where(finite, local, 0.0)
    growth = np.full((doublings, k), np.nan)
    for j in range(doublings):
        pooled = values[: K // 2**j * 2**j].reshape(-1, 2**j, k).mean(axis=1)
        if len(pooled) >= FEWEST_POOLED:
            growth[j] = window * 2**j * pooled.var(axis=0, ddof=1)
    centred = values - values.mean(axis=0) if K else values
    # what varies by the rounding of running sums only does not vary
    noise = 4 * K * np.finfo(np.float64).eps * np.abs(values).max(axis=0, initial=0.0)
    centred = np.where(np.abs(centred).max(axis=0, initial=0.0) > noise, centred, 0.0)
    covariance = centred.T @ centred / (K - 1) if K > 1 else np.full((k, k), np.nan)
    mean = local.mean(axis=0) if K else np.full(k, np.nan)
    quantiles = np.quantile(values, LEVELS, axis=0) if K else np.full((len(LEVELS), k), np.nan)
    return {
        "mean": mean,
        "covariance": np.where(finite[:, None] & finite, covariance, np.nan),
        "variance_growth": np.where(finite, growth, np.nan),
        "quantiles": np.where(finite, quantiles, mean),
        "autocorrelation_time": np.where(finite, window * _integrated_time(centred), np.nan),
    }


def _integrated_time(centred: Float) -> Float:
    """1 + 2 sum of autocorrelations up to the first lag of 5 such times, per column of (K, k)."""
    K, k = centred.shape
    if K < 2:
        return np.full(k, np.nan)
    spectrum = np.abs(np.fft.rfft(centred, 2 * K, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, 2 * K, axis=0)[:K]
    # what never varies has no correlations: one window
    scale = np.where(covariance[0] > 0, covariance[0], np.inf)
    times = 2.0 * np.cumsum(covariance / scale, axis=0) - 1.0
    times[:, np.isinf(scale)] = 1.0
    enough = np.arange(K)[:, None] >= 5.0 * times
    stop = np.where(enough.any(axis=0), enough.argmax(axis=0), K - 1)
    time = times[stop, np.arange(k)]
    # too few windows can make the sum negative, which is no time
    return np.asarray(np.where(time > 0, time, np.nan))


def local_exponents(
    chain: JacobianChain,
    k: int | None = None,
    *,
    window: int,
    burn_in: int = 0,
    rng: Any = None,
) -> LocalExponents:
    r"""Finite-time Lyapunov exponents of consecutive windows, in nats per step.

    .. math:: \lambda_i^{(j)} = \frac1w \sum_{t = b + (j-1)w + 1}^{b + jw} \ln |R_{t,ii}|

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    k : int in 1 .. n, optional
        How many leading exponents; default: all n.
    window : int in 1 .. T - burn_in
        Steps w of one window; what is left over at the end is dropped.
    burn_in : int, default: 0
        Steps b carried but not counted: the tangent basis turns into place.
    rng : seed or Generator, optional
        For the random basis from which k < n exponents start. Default: always the same basis.

    Returns
    -------
    LocalExponents
        ``exponents`` (..., K, k) with K = (T - burn_in) // window, and their ``mean``,
        ``covariance``, ``variance_growth`` with the width, ``quantiles`` and
        ``autocorrelation_time``; ``status``.

    Raises
    ------
    ValueError, TypeError
        k > n; burn-in and one window longer than the chain.

    Notes
    -----
    Growth of the QR basis, not of singular values: those of a window restart from a sphere and
    carry O(1)/w. A column follows one direction of the basis throughout; columns are ordered once.
    Cost as :func:`lyapunov_spectrum`, and an orthonormalisation at the end of every window. Values
    are differences of running sums: error about eps times the sum over w.

    For independent Gaussian matrices with entries of variance s^2, R_ii^2 of a step is s^2
    chi-squared with n - i + 1 degrees of freedom, independently over i and steps [1]_. The
    autocorrelation time is the integrated one with the automatic window of [2]_, factor 5.

    References
    ----------
    .. [1] C. M. Newman, Commun. Math. Phys. 103 (1986) 121, section 2.
    .. [2] A. Sokal, Monte Carlo methods in statistical mechanics, in Functional Integration, NATO
       ASI Series 361 (1997) 131, section 3.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.diagonal([[0.5], [2.0], [4.0], [1.0]])
    >>> gp.local_exponents(chain, window=2).exponents[:, 0].round(6).tolist()
    [0.0, 0.693147]
    """
    quantity = _Windows(k, window, burn_in, rng)
    return measure(check_chain(chain), quantity)[0]  # type: ignore[no-any-return]
