"""Backpropagation through time for every cell, with truncation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.cells.base import Cell
from gradprop.cells.composite import Bidirectional
from gradprop.gradients._problem import ParameterSums, Problem, layer_prefixes, pulled_layers
from gradprop.orbit import Orbit
from gradprop.results import REPLICAS, Result
from gradprop.rollout import reversed_within

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
Int = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gradients(Result):
    """Gradients of a loss by BPTT.

    Attributes
    ----------
    flat : array, shape (P,)
        Gradients of all arrays of the cell in the order of `names`, one after the other.
    names : tuple of str
        As `Cell.arrays`: "W_hh", ...; "0.W_hh" in a stack, "forward.W_hh" in two directions.
    shapes : tuple of shapes
    h0 : array, shape (..., m)
        With respect to the full start.
    x : array, shape (..., T, d_x)
        With respect to the input; 0 in padded steps; d_x = 0 without input.
    delta : array, shape (..., T, rows)
        At the pre-activations, ordered as `Trajectory.z`; 0 in padded steps.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "flat": ("parameter",),
        "h0": (REPLICAS, "unit"),
        "x": (REPLICAS, "step_from_1", "input"),
        "delta": (REPLICAS, "step_from_1", "row"),
    }
    flat: Array
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    h0: Array
    x: Array
    delta: Array

    @functools.cached_property
    def parameters(self) -> Mapping[str, Array]:
        """Gradients by the name of the array, views of `flat`."""
        ends = np.cumsum([int(np.prod(s)) for s in self.shapes])[:-1]
        parts = np.split(self.flat, ends)
        named = zip(self.names, parts, self.shapes, strict=True)
        return MappingProxyType({name: part.reshape(shape) for name, part, shape in named})

    def to_frame(self) -> pd.DataFrame:
        """One row per array of the cell.

        Returns
        -------
        pandas.DataFrame
            Columns ``name``, ``size``, ``norm`` (2-norm of its gradient), ``largest``.
        """
        import pandas as pd

        arrays = self.parameters
        return pd.DataFrame(
            {
                "name": list(arrays),
                "size": [a.size for a in arrays.values()],
                "norm": [float(np.linalg.norm(a.astype(np.float64))) for a in arrays.values()],
                "largest": [float(np.abs(a).max(initial=0.0)) for a in arrays.values()],
            }
        )


def backward(
    cell: Cell,
    x: ArrayLike | None,
    grad_h: ArrayLike | Callable[[Array], ArrayLike],
    *,
    h0: Any = None,
    lengths: ArrayLike | None = None,
    window: int | None = None,
) -> Gradients:
    r"""Gradients of a loss with respect to everything, by backpropagation through time.

    With :math:`g_t = \partial L / \partial h_t` taken at fixed later states, and the step Jacobian
    :math:`J_t`,

    .. math:: v_t = g_t + J_{t+1}^T v_{t+1}, \quad
        \delta_t = (\partial h_t / \partial z_t)^T v_t, \quad
        \frac{\partial L}{\partial W_{hh}} = \sum_t \delta_t h_{t-1}^T .

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or Bidirectional
        Arrays shared by several sequences get the sum of their gradients.
    x : array_like, shape (..., T, d_x) or (T,), or None
        Input; padded steps may hold anything. None: autonomous, `h0` must be given.
    grad_h : array_like, shape (..., T, n), or callable
        Derivative of the loss by h_1 … h_T (the direct part); must be 0 in padded steps, where
        there is no loss. For a loss of the last state only, zero but at each sequence's last step.
        A callable gets h (..., T, n), in one pass with the rest, and returns that derivative.
    h0 : array_like, shape (..., m), optional
        Full start, [h; c] for an LSTM, a pair for a Bidirectional. Default: zeros.
    lengths : array_like of int, shape (...,), optional
        True lengths of padded sequences.
    window : int, 1 .. 2^53, optional
        Truncated BPTT: chunks start at steps 1, K + 1, ...; the state passes from chunk to chunk
        and the gradient does not (of an LSTM, neither that of h nor that of c). Default: none.

    Returns
    -------
    Gradients
        ``parameters`` by name, ``h0``, ``x``, ``delta``, in the dtype of the cell.

    Raises
    ------
    ValueError, TypeError
        As :func:`rollout`; `grad_h` of the wrong shape, not finite, or not zero in a padded step;
        `window` out of range; an orbit that overflows (the step is named); for a float32 cell, `x`
        beyond float32, or `grad_h` all of whose entries are beyond or below it; a CustomCell.

    Notes
    -----
    Two products a step and direction, for the input and the recurrent part, and one for each weight
    gradient over every 128 rows or more, all by tiles kept in registers: about
    6 T (rows n + rows d_x) flops a sequence, and at most 3 T (rows + m) + 2 T d_x floats. Relative
    error (norm-wise) a few n eps of the cell's dtype, T and the growth of the product permitting:
    what leaves the range of that dtype on its way back is inf, nan or 0
    (:func:`lag_decomposition` has no such range). The order of sums differs from that of one
    sequence at a time: gradients of a batch are those of its sequences, added, to rounding.

    References
    ----------
    .. [1] P. J. Werbos, Backpropagation through time: what it does and how to do it, Proc. IEEE 78,
       1550 (1990).
    .. [2] R. J. Williams, J. Peng, An efficient gradient-based algorithm for on-line training of
       recurrent network trajectories, Neural Comput. 2, 490 (1990).

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.9]], b=[1.0], activation="linear")
    >>> last = np.eye(10)[:, -1:]  # L = h_10
    >>> x = np.zeros((10, 1))
    >>> gp.backward(cell, x, last).parameters["W_hh"].round(8).item()
    26.39010709
    >>> gp.backward(cell, x, last, window=5).parameters["W_hh"].round(8).item()
    21.57997555
    """
    cut = 0 if window is None else _checks.integer("window", window, minimum=1, maximum=2**53)
    if isinstance(cell, Bidirectional):
        return _both_ways(cell, x, grad_h, h0, lengths, window)
    problem = Problem(cell, x, grad_h, h0, lengths, late=True)
    sums = ParameterSums(cell, problem.dtype)
    groups: list[Int] = []
    found: list[tuple[Array, Array, Array]] = []
    for network, rows in problem.groups():
        runs = problem.run(network, rows)
        grads = problem.loss_gradient(runs, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            layers, input_grad = pulled_layers(runs, grads, cut)
        problem.confirm(runs, layers, rows)
        for prefix, run, layer in zip(layer_prefixes(cell), runs, layers, strict=True):
            parts = (layer.W_hh, layer.W_xh, layer.bias, layer.b_h)
            sums.add(prefix, run.cell, network, parts)
        start_grad = _side_by_side([layer.h0[None] for layer in layers])
        groups.append(rows)
        found.append((start_grad, input_grad, _side_by_side([layer.delta for layer in layers])))
    start, x_grad, delta = (
        problem.batch(_by_replica(groups, parts)) for parts in zip(*found, strict=True)
    )
    return _gradients(problem.roles, sums.values, start[..., 0, :], x_grad, delta)


def _side_by_side(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)


def _by_replica(groups: list[Int], parts: tuple[Array, ...]) -> Array:
    """(., R, .) from the replicas (., B, .) of each network."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(groups))]


def _gradients(
    roles: tuple[str, ...], arrays: Mapping[str, Array], h0: Array, x: Array, delta: Array
) -> Gradients:
    flat = np.concatenate([a.ravel() for a in arrays.values()])
    for own in (flat, h0, x, delta):
        own.flags.writeable = False
    return Gradients(
        roles=roles,
        flat=flat,
        names=tuple(arrays),
        shapes=tuple(a.shape for a in arrays.values()),
        h0=h0,
        x=x,
        delta=delta,
    )


def _shared_input(
    cell: Bidirectional, x: Any, starts: tuple[Any, Any], lengths: Any
) -> tuple[Array, Int]:
    """Input (..., T, d_x) and lengths (...) with the replica axes of both directions."""
    pairs = zip((cell.forward, cell.backward), starts, strict=True)
    ahead, back = (Orbit(own, x, start, None, lengths, None, None) for own, start in pairs)
    assert ahead.x is not None
    shape = np.broadcast_shapes(ahead.batch_shape, back.batch_shape)
    sequences = np.broadcast_to(ahead.x, (*shape, *ahead.x.shape[-2:]))
    return sequences, np.broadcast_to(ahead.lengths.reshape(ahead.batch_shape), shape)


def _both_ways(
    cell: Bidirectional, x: Any, grad_h: Any, h0: Any, lengths: Any, window: int | None
) -> Gradients:
    """Each direction on its own sequence; gradients of the input are added."""
    if x is None:
        raise ValueError("`x` must be given for a Bidirectional cell; got None.")
    starts = (None, None) if h0 is None else h0
    if not isinstance(starts, tuple) or len(starts) != 2:
        raise ValueError("`h0` of a Bidirectional cell must be a pair (forward, backward).")
    if callable(grad_h):
        raise TypeError("`grad_h` must be an array for a Bidirectional cell; got a callable.")
    grads = _checks.real_array("grad_h", grad_h, shape=("T", cell.n), keep_float32=True)
    sequences, own = _shared_input(cell, x, starts, lengths)
    shape, n = (*sequences.shape[:-1], cell.n), cell.forward.n
    if grads.shape != shape:
        raise ValueError(
            f"`grad_h` must have shape {shape}, one entry per sequence, step and unit of both "
            f"directions; got {grads.shape}."
        )
    ahead = backward(
        cell.forward, sequences, grads[..., :n], h0=starts[0], lengths=own, window=window
    )
    back = backward(
        cell.backward, reversed_within(sequences, own), reversed_within(grads[..., n:], own),
        h0=starts[1], lengths=own, window=window,
    )  # fmt: skip
    parts = {"forward": ahead, "backward": back}
    arrays = {f"{k}.{name}": a for k, g in parts.items() for name, a in g.parameters.items()}
    return _gradients(
        ahead.roles, arrays, np.concatenate([ahead.h0, back.h0], axis=-1),
        ahead.x + reversed_within(back.x, own),
        np.concatenate([ahead.delta, reversed_within(back.delta, own)], axis=-1),
    )  # fmt: skip
