"""Orbits of cells: driven or autonomous, one or many, in one direction or both."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.cells.base import Cell
from gradprop.cells.composite import Bidirectional
from gradprop.orbit import Array, Orbit
from gradprop.results import REPLICAS, Result, Status

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trajectory(Result):
    """An orbit with its pre-activations.

    Attributes
    ----------
    state : array, shape (..., T+1, m)
        Full states 0 … T: h; [h; c] for an LSTM; all layers, bottom first, for a stack. Past a
        sequence's length the last valid state stands; past an overflow nan.
    z : array, shape (..., T, rows)
        Pre-activations z_1 … z_T, gates in the order i f g o or r z n, layers side by side; nan
        past the length or an overflow.
    output : int array, shape (n,)
        Where h stands within the state.
    n_valid : int array, shape (...,)
        Steps that were really taken.
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "state": (REPLICAS, "step", "unit"),
        "z": (REPLICAS, "step_from_1", "row"),
        "output": ("output_unit",),
        "n_valid": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "state"
    state: Array
    z: Array
    output: NDArray[np.int64]
    n_valid: NDArray[np.int64]
    status: NDArray[np.int64]

    @property
    def h(self) -> Array:
        """Output part of the state, shape (..., T+1, n)."""
        first, last = int(self.output[0]), int(self.output[-1])
        return self.state[..., first : last + 1]

    def to_frame(self) -> pd.DataFrame:
        """Long table: one row per replica, step 0 .. T and unit of the state.

        Returns
        -------
        pandas.DataFrame
            Columns named by role, ``step``, ``unit``, ``state``, ``z`` (where the state has as
            many units as z has rows; nan at step 0), ``n_valid``, ``status``.
        """
        frame = super().to_frame()
        if self.z.shape[-1] == self.state.shape[-1]:
            before_the_first = np.full_like(self.state[..., :1, :], np.nan)
            z = np.concatenate([before_the_first, self.z], axis=-2)
            frame.insert(list(frame.columns).index("state") + 1, "z", z.ravel())
        return frame


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoWayTrajectory(Result):
    """Orbits of a :class:`Bidirectional` cell.

    Attributes
    ----------
    h : array, shape (..., T, n)
        Step t holds the forward h after reading x_1 … x_t, then the backward h after reading the
        valid steps from the last down to t. Past the length: the last forward h, and the start of
        the backward one, which has read nothing.
    forward_state, backward_state : array, shape (..., T+1, .)
        Full states, each in the order in which its direction reads.
    n_valid, status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "h": (REPLICAS, "step_from_1", "unit"),
        "forward_state": (REPLICAS, "step", "forward_unit"),
        "backward_state": (REPLICAS, "step", "backward_unit"),
        "n_valid": (REPLICAS,),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "h"
    h: Array
    forward_state: Array
    backward_state: Array
    n_valid: NDArray[np.int64]
    status: NDArray[np.int64]


@overload
def rollout(  # type: ignore[overload-overlap]
    cell: Bidirectional,
    x: ArrayLike | None = None,
    *,
    h0: Any = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    rng: Any = None,
    dtype: Any = None,
) -> TwoWayTrajectory: ...


@overload
def rollout(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: Any = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    rng: Any = None,
    dtype: Any = None,
) -> Trajectory: ...


def rollout(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: Any = None,
    n_steps: int | None = None,
    lengths: ArrayLike | None = None,
    rng: Any = None,
    dtype: Any = None,
) -> Trajectory | TwoWayTrajectory:
    """Run a cell and keep every state and pre-activation.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked, CustomCell or Bidirectional
        Its leading axes are replicas.
    x : array_like, shape (..., T, d_x) or (T,), optional
        Input; one-dimensional input means d_x = 1. None: autonomous.
    h0 : array_like, shape (..., m), optional
        Full state to start from ([h; c] for an LSTM; a pair for a Bidirectional). Default: zeros
        when driven; N(0, 1) from `rng` when autonomous, since zero is a fixed point of every odd
        map.
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
        ``state`` (..., T+1, m), ``h`` (..., T+1, n), ``z``, ``n_valid``, ``status``; for a
        Bidirectional a `TwoWayTrajectory` with ``h`` (..., T, n), one entry per input step.

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
    if isinstance(cell, Bidirectional):
        return _two_ways(cell, x, h0, n_steps, lengths, dtype)
    return _one_way(Orbit(cell, x, h0, n_steps, lengths, rng, dtype))


def _one_way(orbit: Orbit) -> Trajectory:
    """Run an orbit and keep all of it."""
    state, n_valid, law = orbit.start.copy(), orbit.lengths.copy(), orbit.law
    states = np.empty((orbit.n_replicas, orbit.n_steps + 1, law.n_state), dtype=orbit.dtype)
    zs = np.empty((orbit.n_replicas, orbit.n_steps, len(law.z_columns)), dtype=orbit.dtype)
    states[:, 0] = state
    for first in range(0, orbit.n_steps, orbit.chunk):
        last = min(first + orbit.chunk, orbit.n_steps)
        states[:, first + 1 : last + 1], tapes = orbit.advance(state, n_valid, first, last)
        zs[:, first:last] = tapes[..., law.z_columns]
    shape = orbit.batch_shape
    status = np.where(n_valid < orbit.lengths, Status.OVERFLOWED, Status.OK)
    return Trajectory(
        roles=orbit.roles,
        state=states.reshape(*shape, *states.shape[1:]),
        z=zs.reshape(*shape, *zs.shape[1:]),
        output=np.arange(law.n_state)[orbit.cell.output],
        n_valid=n_valid.reshape(shape),
        status=status.astype(np.int64).reshape(shape),
    )


def _two_ways(
    cell: Bidirectional, x: Any, h0: Any, n_steps: int | None, lengths: Any, dtype: Any
) -> TwoWayTrajectory:
    if x is None:
        raise ValueError("`x` must be given for a Bidirectional cell; got None.")
    starts = (None, None) if h0 is None else h0
    if not isinstance(starts, tuple) or len(starts) != 2:
        raise ValueError("`h0` of a Bidirectional cell must be a pair (forward, backward).")
    dtype = cell.dtype if dtype is None else dtype
    ahead = Orbit(cell.forward, x, starts[0], n_steps, lengths, None, dtype)
    assert ahead.x is not None
    x = reversed_within(ahead.x[..., : ahead.n_steps, :], ahead.lengths.reshape(ahead.batch_shape))
    back = Orbit(cell.backward, x, starts[1], None, lengths, None, dtype)
    forward, backward = _one_way(ahead), _one_way(back)
    n_steps = ahead.n_steps
    last_first = reversed_within(backward.h[..., 1:, :], back.lengths.reshape(back.batch_shape))
    past = np.arange(n_steps)[:, None] >= back.lengths.reshape(*back.batch_shape, 1, 1)
    last_first = np.where(past, backward.h[..., :1, :], last_first)
    shape = _checks.broadcast_shapes(forward=ahead.batch_shape, backward=back.batch_shape)
    parts = [
        np.broadcast_to(h, (*shape, *h.shape[-2:])) for h in (forward.h[..., 1:, :], last_first)
    ]
    wide = ahead if len(ahead.batch_shape) == len(shape) else back
    return TwoWayTrajectory(
        roles=wide.roles,
        h=np.concatenate(parts, axis=-1),
        forward_state=np.broadcast_to(forward.state, (*shape, *forward.state.shape[-2:])),
        backward_state=np.broadcast_to(backward.state, (*shape, *backward.state.shape[-2:])),
        n_valid=np.minimum(forward.n_valid, backward.n_valid),
        status=forward.status | backward.status,
    )


def reversed_within(x: Array, lengths: NDArray[np.int64]) -> Array:
    """Turn each sequence (..., T, d) around within its length; padding stays where it is."""
    step, n_steps = np.arange(x.shape[-2]), lengths[..., None]
    index = np.where(step < n_steps, n_steps - 1 - step, step)
    shape = (*np.broadcast_shapes(x.shape[:-2], index.shape[:-1]), *x.shape[-2:])
    return np.take_along_axis(np.broadcast_to(x, shape), index[..., None], axis=-2)
