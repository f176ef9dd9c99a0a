"""From how far back a gradient comes: its parts by lag."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.environment import single_threaded_blas
from gradprop.gradients._named import ArrayResult
from gradprop.gradients._paths import Paths, Walk
from gradprop.gradients._problem import Problem
from gradprop.results import Status

ALL = "all"
"""Name of all arrays of a cell together, which come first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LagDecomposition(ArrayResult):
    """Parts of a gradient by the number of steps from a parameter's use to the loss.

    Attributes
    ----------
    lags : int array, shape (L,)
        0 .. L - 1.
    log_norm : float array, shape (L, A)
        ln ||G_k|| in nats, all arrays together first; -inf for an exact zero.
    log_tail : float array, shape (L, A)
        ln ||sum of G_j, j >= k||; that of the whole gradient at lag 0.
    share : float array, shape (L, A)
        ||sum of G_j, j >= k|| / ||G||: what a window of k steps misses. Not bounded by 1, since
        parts can cancel; nan where the whole gradient is zero.
    status : int array, shape (A,)
        ZERO_GRADIENT where that is so; FAINT_GRADIENT where a layer's may be, or may lie below
        those of the layers above by more than the range of the cell's dtype.
    names : tuple of str
        "all", then the arrays as in `Gradients.names`.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_norm": ("lag", "array"),
        "log_tail": ("lag", "array"),
        "share": ("lag", "array"),
        "status": ("array",),
    }
    _table: ClassVar[str] = "share"
    lags: Int
    log_norm: Float
    log_tail: Float
    share: Float
    status: Int


def lag_decomposition(
    cell: Cell,
    x: ArrayLike | None,
    grad_h: Any,
    *,
    h0: Any = None,
    lengths: ArrayLike | None = None,
    max_lag: int | None = None,
) -> LagDecomposition:
    r"""Split the gradient of a loss by the lag between a parameter's use and the loss.

    With :math:`L = \sum_t L_t` and :math:`\partial^+ h_s` the derivative of step s alone,

    .. math:: G_k = \sum_t \frac{\partial L_t}{\partial h_t}
        \frac{\partial h_t}{\partial h_{t-k}} \frac{\partial^+ h_{t-k}}{\partial\theta}, \quad
        \frac{\partial L}{\partial\theta} = \sum_{k=0}^{T-1} G_k .

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
        Lags of a stack are those of time: a path may pass several layers within one step.
    x, grad_h, h0, lengths : array_like
        As :func:`backward`.
    max_lag : int in 0 .. T - 1, optional
        Default: T - 1.

    Returns
    -------
    LagDecomposition
        ``log_norm``, ``log_tail`` and ``share`` (L, A), by lag and array, over all sequences.

    Raises
    ------
    ValueError, TypeError
        As :func:`backward`; TypeError also for a Bidirectional, whose lags run both ways: take its
        directions one by one.

    Notes
    -----
    Two passes of L T steps each, T of them at once: about 8 L T (rows n + rows d_x) flops a
    sequence, and memory for two gradients at every pre-activation. Tails are carried through the
    Jacobians by themselves, not summed or subtracted: small ones keep their digits. At every lag
    and step a power of two is taken out, and of every array's sum another one: lost is only what,
    on its way through one step, lies below the largest there by more than the range of the cell's
    dtype. Computed in that dtype, norms in float64.

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013, equations 3 to 5.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.9]], b=[1.0], activation="linear")
    >>> by_lag = gp.lag_decomposition(cell, np.zeros((10, 1)), np.eye(10)[:, -1:])  # L = h_10
    >>> whole, missed = np.exp(by_lag.log_tail[[0, 3], 1]).round(8)
    >>> float(whole), float((whole - missed).round(8))  # a window of 3 steps sees 15.47738533
    (26.39010709, 15.47738533)
    """
    problem = Problem(cell, x, grad_h, h0, lengths)
    largest = max(problem.n_steps - 1, 0)
    if max_lag is not None:
        largest = _checks.integer("max_lag", max_lag, minimum=0, maximum=largest)
    with single_threaded_blas():
        paths = Paths(problem)
        log_norm = log_curve(paths.from_losses(), largest + 1)
        log_tail = log_curve(paths.from_totals(), largest + 1)
    return LagDecomposition(
        lags=np.arange(largest + 1),
        log_norm=log_norm,
        log_tail=log_tail,
        share=ratio(log_tail, log_tail[0]),
        status=zero_status(paths, log_tail[0]),
        names=_names(cell),
    )


def log_curve(walk: Walk, n_lags: int) -> Float:
    """Log norms of what parameters meet at lags 0 .. n_lags - 1, (n_lags, A)."""
    logs = []
    for _ in range(n_lags):
        walk.back()
        logs.append(walk.gradient().log_norms())
    return np.array(logs)


def ratio(log_part: Float, log_whole: Float) -> Float:
    """Part over whole from their logs; nan where the whole is zero."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.exp(log_part - np.where(np.isneginf(log_whole), np.nan, log_whole))


def zero_status(paths: Paths, log_whole: Float) -> Int:
    """Flags of arrays without a gradient: exactly zero if the whole is, or if they multiply 0."""
    zero, silent = np.isneginf(log_whole), paths.silent_arrays()
    proven = np.array([zero[0] or name in silent for name in _names(paths.cell)])
    flags = np.where(proven, int(Status.ZERO_GRADIENT), int(Status.FAINT_GRADIENT))
    return np.where(zero, flags, 0).astype(np.int64)


def _names(cell: Cell) -> tuple[str, ...]:
    return ALL, *cell.arrays()
