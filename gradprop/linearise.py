"""From a cell and its input to the chain of its step Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gradprop.blocks import Recurrence
from gradprop.cells import RNN
from gradprop.chain import JacobianChain
from gradprop.orbit import Orbit
from gradprop.sources import OrbitSource


def linearise(
    cell: RNN,
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
    cell : RNN
    x : array_like, shape (..., T, d_x) or (T,), optional
    h0 : array_like, shape (..., n), optional
    n_steps : int, optional
    lengths : array_like of int, shape (...,), optional
    rng : seed or Generator, optional
    dtype : float32 or float64, optional
        Precision of the *orbit*. The factors are upcast exactly and analysed in float64.

    Returns
    -------
    JacobianChain
        A recipe: the orbit is run when the chain is first used, and phi' is kept only if it fits
        64 MiB; otherwise blocks are recomputed from checkpoints, so memory does not grow with T.

    Raises
    ------
    ValueError, TypeError
        As :func:`rollout`.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.linearise(gp.RNN([[0.5]], W_xh=[[1.0]]), [1.0, 0.0, -1.0])
    >>> gp.log_norms(chain).log_norm.round(6).tolist()  # dh_1/dh_0, dh_2/dh_0, dh_3/dh_0
    [0.0, -1.560709, -2.395488, -3.694632]
    """
    orbit = Orbit(cell, x, h0, n_steps, lengths, rng, dtype)
    recurrence = Recurrence(
        orbit.W.astype(np.float64), orbit.which, cell.leak, cell.activation.gamma
    )
    return JacobianChain(
        OrbitSource(orbit), cell.n, orbit.n_steps, "row_scaled",
        orbit.batch_shape, orbit.roles, recurrence,
    )  # fmt: skip
