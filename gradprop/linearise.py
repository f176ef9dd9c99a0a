"""From a cell and its input to the chain of its step Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._layouts import flat_networks
from gradprop.blocks import Recurrence
from gradprop.cells.base import Cell
from gradprop.cells.rnn import RNN
from gradprop.chain import JacobianChain
from gradprop.orbit import Orbit
from gradprop.sources import OrbitSource


def linearise(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    rng: Any = None,
    dtype: Any = None,
) -> JacobianChain:
    """Chain of a cell's step Jacobians along its orbit; arguments are those of :func:`rollout`.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or CustomCell
    x : array_like, shape (..., T, d_x) or (T,), optional
    h0 : array_like, shape (..., n_state), optional
    n_steps : int, optional
    lengths : array_like of int, shape (...,), optional
    rng : seed or Generator, optional
    dtype : float32 or float64, optional
        Precision of the *orbit*. The factors are upcast exactly and analysed in float64.

    Returns
    -------
    JacobianChain
        Of the full state: h; [h; c] for an LSTM; all layers' states, bottom first, for a stack. A
        recipe: the orbit is run when the chain is first used, and what its Jacobians need (phi',
        gates) is kept only if it fits 64 MiB; otherwise blocks are recomputed from checkpoints, so
        memory does not grow with T.

    Raises
    ------
    ValueError, TypeError
        As :func:`rollout`; TypeError for a Bidirectional, which has two chains.

    Notes
    -----
    Slopes and gates below the range of `dtype` lose digits, then are 0, and so are the norms of
    what they alone multiply: tanh' from |z| = 355 on, a sigmoid from z = -709 down; in float32 from
    44 and -88 on.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.linearise(gp.RNN([[0.5]], W_xh=[[1.0]]), [1.0, 0.0, -1.0])
    >>> gp.log_norms(chain).log_norm.round(6).tolist()  # dh_1/dh_0, dh_2/dh_0, dh_3/dh_0
    [0.0, -1.560709, -2.395488, -3.694632]
    """
    orbit = Orbit(cell, x, h0, n_steps, lengths, rng, dtype)
    recurrence = None
    if isinstance(cell, RNN):
        rounded = cell.W_hh.astype(orbit.dtype, copy=False).astype(np.float64, copy=False)
        W, which = flat_networks(rounded, 2, orbit.batch_shape)
        recurrence = Recurrence(W, which, cell.leak, cell.activation.gamma)
    return JacobianChain(
        OrbitSource(orbit), cell.n_state, orbit.n_steps, orbit.law.structure,
        orbit.batch_shape, orbit.roles, recurrence,
    )  # fmt: skip


def step_jacobian(cell: Cell, state: ArrayLike, x: ArrayLike | None = None) -> NDArray[np.float64]:
    """Jacobian of one step at a given state: d state_1 / d state_0.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or CustomCell
    state : array_like, shape (..., n_state)
        Full state before the step: h; [h; c] for an LSTM; all layers, bottom first, for a stack.
    x : array_like, shape (..., d_x), optional
        Input of the step. None: none.

    Returns
    -------
    float64 array, shape (..., n_state, n_state)
        Row = to, column = from; leading axes are those of cell, state and x, broadcast.

    Raises
    ------
    ValueError, TypeError
        As :func:`rollout`; a step that overflows.

    Notes
    -----
    Accurate to a few eps of its largest terms, whatever the size of the pre-activations.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.step_jacobian(gp.RNN([[0.5]]), [0.0]).tolist()
    [[0.5]]
    """
    steps = None
    if x is not None:
        steps = _checks.real_array("x", x, shape=("d_x",), keep_float32=True)[..., None, :]
    chain = linearise(cell, steps, h0=state, n_steps=1)
    if chain.overflowed.any():
        raise ValueError("`state` and `x` must keep the step finite; it overflows.")
    return np.asarray(chain.to_dense()[..., 0, :, :], dtype=np.float64)
