"""Orbits of cells: driven or autonomous, one or many."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop.cells import RNN
from gradprop.orbit import Array, Orbit
from gradprop.results import REPLICAS, Result, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trajectory(Result):
    """An orbit with its pre-activations.

    Attributes
    ----------
    state, h : array, shape (..., T+1, n)
        States h_0 … h_T; for this cell the state is h. Past a sequence's length the last valid h
        stands; past an overflow nan.
    z : array, shape (..., T, n)
        Pre-activations z_1 … z_T; nan past the length or an overflow.
    n_valid : int array, shape (...,)
        Steps that were really taken.
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "state": (REPLICAS, "step", "unit"),
        "z": (REPLICAS, "step_from_1", "unit"),
        "n_valid": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "state"
    state: Array
    z: Array
    n_valid: NDArray[np.int64]
    status: NDArray[np.int64]

    @property
    def h(self) -> Array:
        """Output part of the state."""
        return self.state

    def to_frame(self) -> pd.DataFrame:
        """Long table: one row per replica, step 0 .. T and unit; z is nan at step 0.

        Returns
        -------
        pandas.DataFrame
            Columns named by role, ``step``, ``unit``, ``state``, ``z``, ``n_valid``, ``status``.
        """
        frame = super().to_frame()
        before_the_first = np.full_like(self.state[..., :1, :], np.nan)
        z = np.concatenate([before_the_first, self.z], axis=-2)
        frame.insert(list(frame.columns).index("state") + 1, "z", z.ravel())
        return frame


def rollout(
    cell: RNN,
    x: ArrayLike | None = None,
    *,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    rng: Any = None,
    dtype: Any = None,
) -> Trajectory:
    """Run a cell and keep every state and pre-activation.

    Parameters
    ----------
    cell : RNN
        Its leading axes are replicas.
    x : array_like, shape (..., T, d_x) or (T,), optional
        Input; one-dimensional input means d_x = 1. None: autonomous.
    h0 : array_like, shape (..., n), optional
        Start. Default: zeros when driven; N(0, 1) from `rng` when autonomous, since zero is a fixed
        point of every odd map.
    n_steps : int, optional
        Number of steps; at most T when x is given, required when it is not.
    lengths : array_like of int, shape (...,), optional
        True lengths of padded sequences: later steps keep the state and have z = nan.
    rng : seed or Generator, optional
        Only for the random start.
    dtype : float32 or float64, optional
        Precision of the orbit; weights and input are rounded to it. Default: that of the weights.

    Returns
    -------
    Trajectory
        ``state`` (..., T+1, n), ``h``, ``z`` (..., T, n), ``n_valid``, ``status``.

    Raises
    ------
    ValueError, TypeError
        Input that is not finite inside the sequences (which index), of the wrong width, lengths out
        of range, replica axes that do not broadcast.

    Notes
    -----
    Cost 2 n^2 flops and n evaluations of phi a step and replica; memory 2 T n a replica. An orbit
    that overflows keeps its shape, with nan from that step on, `n_valid` and a status.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.rollout(gp.RNN([[0.9]], activation="linear"), n_steps=2, h0=[1.0]).h[:, 0].tolist()
    [1.0, 0.9, 0.81]
    """
    orbit = Orbit(cell, x, h0, n_steps, lengths, rng, dtype)
    h, n_valid = orbit.start.copy(), orbit.lengths.copy()
    states = np.empty((orbit.n_replicas, orbit.n_steps + 1, cell.n), dtype=orbit.dtype)
    zs = np.empty_like(states[:, 1:])
    states[:, 0] = h
    for first in range(0, orbit.n_steps, orbit.chunk):
        last = min(first + orbit.chunk, orbit.n_steps)
        states[:, first + 1 : last + 1], zs[:, first:last] = orbit.advance(h, n_valid, first, last)
    shape = orbit.batch_shape
    status = np.where(n_valid < orbit.lengths, Status.OVERFLOWED, Status.OK)
    return Trajectory(
        roles=orbit.roles,
        state=states.reshape(*shape, *states.shape[1:]),
        z=zs.reshape(*shape, *zs.shape[1:]),
        n_valid=n_valid.reshape(shape),
        status=status.astype(np.int64).reshape(shape),
    )
