"""What truncated BPTT does to a gradient: its error by window, a bound and a forecast beside it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.chain import JacobianChain
from gradprop.environment import single_threaded_blas
from gradprop.gradients._named import ArrayResult
from gradprop.gradients._paths import Paths, ScaledGradient
from gradprop.gradients._problem import Problem
from gradprop.gradients.lags import ALL, log_curve, ratio, zero_status
from gradprop.linearise import linearise
from gradprop.lyapunov.spectrum import lyapunov_spectrum
from gradprop.results import log_sum_exp


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncationBias(ArrayResult):
    """Truncated gradients against the whole one.

    Attributes
    ----------
    windows : int array, shape (W,)
    chunked_error, sliding_error : float arrays, shape (W, A)
        ||G_K - G|| / ||G||, all arrays together first.
    chunked_cosine, sliding_cosine : float arrays, shape (W, A)
        Of the angle between G_K and G; nan where G_K is zero.
    bound : float array, shape (W, A)
        Sum of ||G_k||, k >= K, over ||G||: never below `sliding_error`, but for rounding. It bounds
        nothing of the chunked error: a chunk also drops short lags, those of its first steps.
    forecast : float array, shape (W,)
        min(1, exp(exponent K)): a model of `sliding_error` up to a factor, and no bound.
    exponent : float array, shape ()
        lambda_1 of the step Jacobians in nats per step, averaged over the steps of all sequences.
    advised_window : float array, shape ()
        Steps: ln(1/tol) / |lambda_1| where that is negative; in chaos ln 2 / lambda_1, within which
        a gradient doubles. inf where lambda_1 is 0.
    status : int array, shape (A,)
        ZERO_GRADIENT: the whole gradient is zero, and all ratios to it are nan; FAINT_GRADIENT: a
        layer's is, or lies below those above by more than the range of the cell's dtype.
    tol : float
    names : tuple of str
        "all", then the arrays as in `Gradients.names`.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "windows": ("window",),
        "chunked_error": ("window", "array"),
        "chunked_cosine": ("window", "array"),
        "sliding_error": ("window", "array"),
        "sliding_cosine": ("window", "array"),
        "bound": ("window", "array"),
        "forecast": ("window",),
        "exponent": (),
        "advised_window": (),
        "status": ("array",),
    }
    _table: ClassVar[str] = "sliding_error"
    windows: Int
    chunked_error: Float
    chunked_cosine: Float
    sliding_error: Float
    sliding_cosine: Float
    bound: Float
    forecast: Float
    exponent: Float
    advised_window: Float
    status: Int
    tol: float


def truncation_bias(
    cell: Cell,
    x: ArrayLike | None,
    grad_h: Any,
    windows: ArrayLike,
    *,
    h0: Any = None,
    lengths: ArrayLike | None = None,
    tol: float = 0.01,
) -> TruncationBias:
    r"""Error of truncated gradients, measured, bounded and forecast.

    Chunked: steps 1 .. K, K + 1 .. 2K, ... each by themselves, as ``backward(window=K)``. Sliding:
    every loss sees the last K steps, :math:`\sum_{k<K} G_k` of :func:`lag_decomposition`, so that

    .. math:: \frac{\lVert G^{(K)} - G \rVert}{\lVert G \rVert}
        \le \sum_{k \ge K} \frac{\lVert G_k \rVert}{\lVert G \rVert}
        \sim e^{\lambda_1 K} \quad (\lambda_1 < 0).

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
    x, grad_h : array_like
        As :func:`backward`.
    windows : array_like of int >= 1, shape (W,)
        K; those above T are the whole gradient.
    h0, lengths : array_like, optional
        As :func:`backward`.
    tol : float in (0, 1), default: 0.01
        Error for which a window is advised.

    Returns
    -------
    TruncationBias

    Raises
    ------
    ValueError, TypeError
        As :func:`lag_decomposition`; a window below 1.

    Notes
    -----
    That of :func:`lag_decomposition` over all lags, and one pass of T steps for each window. The
    forecast knows neither the loss nor the end of the sequence: losses of all lags make the error
    smaller by a factor, growth before decay makes it larger, and chaos leaves no error small.

    References
    ----------
    .. [1] R. J. Williams, J. Peng, An efficient gradient-based algorithm for on-line training of
       recurrent network trajectories, Neural Comput. 2, 490 (1990).
    .. [2] J. M. Mikhaeil, Z. Monfared, D. Durstewitz, On the difficulty of learning chaotic
       dynamics with RNNs, NeurIPS 2022: the time ln 2 / lambda_1.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.9]], b=[1.0], activation="linear")
    >>> bias = gp.truncation_bias(cell, np.zeros((10, 1)), np.eye(10)[:, -1:], [3])  # L = h_10
    >>> kept = 26.39010709 * (1 - np.array([bias.chunked_error[0, 1], bias.sliding_error[0, 1]]))
    >>> kept.round(7).tolist()
    [6.1257951, 15.4773853]
    """
    lags = _checks.integer_array("windows", windows, minimum=1, maximum=2**53)
    tol = _checks.real("tol", tol, above=0.0, below=1.0)
    problem = Problem(cell, x, grad_h, h0, lengths)
    n_steps = problem.n_steps if x is None else None
    chain = linearise(cell, x, h0=h0, n_steps=n_steps, lengths=lengths)
    with single_threaded_blas():
        paths = Paths(problem)
        logs = _lag_norms(paths)
        within = np.minimum(lags, paths.n_steps)
        whole, tails = _tails(paths, within)
        cuts = [_chunked(paths, K) for K in within.tolist()]
    log_whole = whole.log_norms()
    exponent = _exponent(chain)
    return TruncationBias(
        windows=lags,
        chunked_error=_errors(whole, [whole.minus(cut) for cut in cuts]),
        chunked_cosine=np.array([whole.cosines(cut) for cut in cuts]),
        sliding_error=_errors(whole, tails),
        sliding_cosine=np.array([whole.cosines(whole.minus(tail)) for tail in tails]),
        bound=ratio(np.array([log_sum_exp(logs[K:], axis=0) for K in within]), log_whole),
        forecast=np.exp(np.minimum(exponent * lags, 0.0)),
        exponent=np.array(exponent),
        advised_window=np.array(advised_window(exponent, tol)),
        status=zero_status(paths, log_whole),
        tol=tol,
        names=(ALL, *cell.arrays()),
    )


def _lag_norms(paths: Paths) -> Float:
    """Ln ||G_k|| at all lags, (T, A)."""
    return log_curve(paths.from_losses(), max(paths.n_steps, 1))


def _tails(paths: Paths, windows: Int) -> tuple[ScaledGradient, list[ScaledGradient]]:
    """The whole gradient, and what each window leaves out."""
    walk, found = paths.from_totals(), {}
    wanted = {0, *windows.tolist()}
    for lag in range(max(wanted) + 1):
        walk.back()
        if lag in wanted:
            found[lag] = walk.gradient()
    return found[0], [found[K] for K in windows.tolist()]


def _chunked(paths: Paths, window: int) -> ScaledGradient:
    """Gradient of truncated BPTT."""
    walk = paths.from_totals(window if window < paths.n_steps else 0)
    walk.back()
    return walk.gradient()


def _errors(whole: ScaledGradient, differences: list[ScaledGradient]) -> Float:
    return ratio(np.array([each.log_norms() for each in differences]), whole.log_norms())


def _exponent(chain: JacobianChain) -> float:
    """lambda_1, averaged over the steps of all replicas."""
    steps = chain.lengths.ravel()
    if not steps.any():
        return math.nan
    own = lyapunov_spectrum(chain, 1).exponents.ravel()
    return float(own[steps > 0] @ (steps[steps > 0] / steps.sum()))


def advised_window(exponent: float, tol: float) -> float:
    """Steps within which a gradient decays to `tol`, or in chaos doubles."""
    if exponent == 0:
        return math.inf
    return math.log(2.0) / exponent if exponent > 0 else math.log(tol) / exponent
