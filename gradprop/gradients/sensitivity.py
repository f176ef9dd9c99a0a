"""How much the state itself depends on the parameters, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.environment import single_threaded_blas
from gradprop.gradients._named import ArrayResult
from gradprop.gradients._outputs import OutputGradients
from gradprop.gradients._problem import Problem
from gradprop.gradients.lags import ALL
from gradprop.orbit import Orbit
from gradprop.results import REPLICAS, Status, log_sum_exp

DEFAULT_STEPS = 64
KEPT_FLOATS = 2**22
"""Derivatives held at a time, of several sequences if they fit (32 MiB)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterSensitivity(ArrayResult):
    """Size of the derivative of h_t by each array of a cell.

    Attributes
    ----------
    steps : int array, shape (S,)
        t.
    log_norm : float array, shape (..., S, A)
        ln ||dh_t/dtheta||_F in nats, all arrays together first; -inf for an exact zero.
    error : float array, shape (..., S, A)
        Standard error of `log_norm` from the spread of the probes; 0 where all units were taken.
    status : int array, shape (...,)
        ZERO, PADDED: some step is beyond the sequence's own length, where h_t stays.
    names : tuple of str
        "all", then the arrays as in `Gradients.names`.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "steps": ("step",),
        "log_norm": (REPLICAS, "step", "array"),
        "error": (REPLICAS, "step", "array"),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "log_norm"
    steps: Int
    log_norm: Float
    error: Float
    status: Int


def parameter_sensitivity(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    steps: ArrayLike | None = None,
    probes: int | None = None,
    rng: Any = 0,
) -> ParameterSensitivity:
    r"""Norm of the derivative of the state by the parameters, and its growth.

    .. math:: S_t = \frac{\partial h_t}{\partial\theta}
        = \frac{\partial h_t}{\partial h_{t-1}} S_{t-1} + \frac{\partial^+ h_t}{\partial\theta},
        \quad \ln \lVert S_t \rVert_F

    Near the edge of stability it grows where neither states nor step Jacobians do.

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
        h is the output part of the state, of a stack that of its top layer.
    x : array_like, shape (..., T, d_x) or (T,), optional
        None: autonomous; then `h0` and `n_steps` must be given.
    h0 : array_like, shape (..., m), optional
        As :func:`backward`.
    n_steps : int, optional
        T where `x` is None.
    lengths : array_like of int, shape (...,), optional
        As :func:`backward`.
    steps : array_like of int, shape (S,), each in 0 .. T, optional
        Default: all, or 64 spread evenly up to T where there are more.
    probes : int >= 2, optional
        Estimate from so many random directions u ~ N(0, I) instead of all n units:
        :math:`\lVert S \rVert_F^2 = \mathrm{E} \lVert u^\top S \rVert^2`.
    rng : seed or Generator, default: 0
        For those.

    Returns
    -------
    ParameterSensitivity
        ``log_norm`` (..., S, A) of each sequence by itself, with ``error``.

    Raises
    ------
    ValueError, TypeError
        As :func:`backward`; steps outside 0 .. T; `n_steps` beside `x`.

    Notes
    -----
    Exact, but for rounding, without `probes`: n pulls back from each step, about
    4 n t (rows n + rows d_x) flops for step t of a sequence; memory n times that of the parameters.
    A power of two is taken out at every step, and for every array: nothing over- or underflows but
    the states of the orbit. With k probes cost and memory are those of n = k, and the estimate of
    the square is unbiased with a relative standard deviation of at most sqrt(2/k): half of that in
    `log_norm`. The same probes serve all steps, so that curves are smooth and their errors go
    together.

    References
    ----------
    .. [1] R. J. Williams, D. Zipser, A learning algorithm for continually running fully recurrent
       neural networks, Neural Comput. 1, 270 (1989).
    .. [2] N. Zucchet, A. Orvieto, Recurrent neural networks: vanishing and exploding gradients are
       not the end of the story, NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.5]], activation="linear")
    >>> grown = gp.parameter_sensitivity(cell, [1.0, 1.0, 1.0])  # h = 1, 1.5, 1.75
    >>> np.exp(grown.log_norm[:, 1]).round(12).tolist()  # 0; 1; 0.5 + 1.5
    [0.0, 1.0, 2.0]
    """
    problem = _problem(cell, x, h0, n_steps, lengths)
    T, n = problem.n_steps, cell.n
    chosen = _chosen_steps(steps, T)
    cotangents = np.eye(n)
    if probes is not None:
        k = _checks.integer("probes", probes, minimum=2)
        cotangents = _checks.generator("rng", rng).standard_normal((k, n)) / np.sqrt(k)
    shape = (len(problem.lengths), len(chosen), 1 + len(cell.arrays()))
    log_norm, error = np.empty(shape), np.zeros(shape)
    with single_threaded_blas():
        for network, rows in _portions(problem, len(cotangents)):
            pull = OutputGradients(problem, network, rows, cotangents)
            for i, t in enumerate(chosen):
                squares = pull.log_squares(int(t))
                log_norm[rows, i] = 0.5 * log_sum_exp(squares)
                if probes is not None:
                    error[rows, i] = _standard_error(squares)
    zero = np.isneginf(log_norm).any(axis=(1, 2))
    padded = problem.lengths < chosen.max()
    status = int(Status.ZERO) * zero.astype(np.int64) + int(Status.PADDED) * padded
    return ParameterSensitivity(
        roles=problem.roles,
        steps=chosen,
        log_norm=log_norm.reshape(*problem.batch_shape, *shape[1:]),
        error=error.reshape(*problem.batch_shape, *shape[1:]),
        status=status.reshape(problem.batch_shape),
        names=(ALL, *cell.arrays()),
    )


def _problem(cell: Cell, x: Any, h0: Any, n_steps: int | None, lengths: Any) -> Problem:
    """The sequences, without a loss."""
    if (x is None) != (n_steps is not None):
        raise ValueError("`n_steps` must be given where `x` is None, and only there.")
    if x is None and h0 is None:
        raise ValueError("`h0` must be given when `x` is None; got None.")
    orbit = Orbit(cell, x, h0, n_steps, lengths, None, None)
    no_loss = np.zeros((*orbit.batch_shape, orbit.n_steps, cell.n))
    return Problem(cell, x, no_loss, h0, lengths)


def _chosen_steps(steps: ArrayLike | None, n_steps: int) -> Int:
    if steps is not None:
        return np.unique(_checks.integer_array("steps", steps, minimum=0, maximum=n_steps))
    first = min(1, n_steps)
    spread = np.linspace(first, n_steps, min(n_steps - first + 1, DEFAULT_STEPS))
    return np.unique(spread.round()).astype(np.int64)


def _portions(problem: Problem, copies: int) -> Iterator[tuple[int, Int]]:
    """Sequences of each network, as many at a time as memory allows."""
    size = sum(a.size for a in problem.cell.arrays().values())
    at_once = max(KEPT_FLOATS // max(copies * size, 1), 1)
    for network, rows in problem.groups():
        for start in range(0, len(rows), at_once):
            yield network, rows[start : start + at_once]


def _standard_error(log_squares: Float) -> Float:
    """Of half the log of a sum over the last axis, from the spread of its terms."""
    k = log_squares.shape[-1]
    top = log_squares.max(axis=-1, keepdims=True)
    terms = np.exp(log_squares - np.where(np.isfinite(top), top, 0.0))
    mean = terms.mean(axis=-1)
    spread = terms.std(axis=-1, ddof=1) / np.sqrt(k)
    return np.asarray(0.5 * np.divide(spread, mean, out=np.zeros_like(mean), where=mean > 0))
