"""The vanilla recurrent cell."""

from __future__ import annotations

import dataclasses

from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.activations import Activation
from gradprop.activations import activation as resolve_activation
from gradprop.cells.base import Array, Shape, WeightedCell


@dataclasses.dataclass(frozen=True, eq=False)
class RNN(WeightedCell):
    r"""Vanilla recurrent cell, optionally leaky.

    .. math:: h_t = (1 - \alpha) h_{t-1} + \alpha\,\varphi(W_{hh} h_{t-1} + W_{xh} x_t + b)

    Parameters
    ----------
    W_hh : array_like, shape (..., n, n)
        Recurrent weights, row = to, column = from; leading axes are replicas.
    W_xh : array_like, shape (..., n, d_x), optional
        Input weights. Without them an input is added to the pre-activation as it is.
    b : array_like, shape (..., n), optional
        Bias. A layer with two biases: cast both to float64 and add them first.
    activation : str or Activation, default: "tanh"
        A built-in name or one's own pair of functions.
    leak : float in (0, 1], default: 1
        :math:`\alpha`; 1 is the plain cell.

    Raises
    ------
    ValueError, TypeError
        Weights that are not finite (argument and index are named), not square, not real, empty, of
        shapes that contradict each other; an unknown activation; a leak outside (0, 1].

    Notes
    -----
    Arrays stay float32 if all of them are; otherwise all become float64. The step Jacobian is
    :math:`(1-\alpha) I + \alpha\,\mathrm{diag}(\varphi'(z_t)) W_{hh}`, with :math:`\varphi'` taken
    at :math:`z_t`, never at :math:`h_{t-1}`.

    References
    ----------
    .. [1] Pascanu, Mikolov, Bengio, On the difficulty of training recurrent neural networks, ICML
       2013, equations 2 and 5.

    Examples
    --------
    >>> import gradprop as gp
    >>> cell = gp.RNN([[0.5]], W_xh=[[1.0]])
    >>> gp.rollout(cell, [1.0, 0.0, -1.0]).h[1:, 0].round(6).tolist()
    [0.761594, 0.363399, -0.674144]
    """

    PARAMETERS = ("W_hh", "W_xh", "b")

    W_hh: Array
    W_xh: Array | None = None
    b: Array | None = None
    activation: Activation = "tanh"  # type: ignore[assignment]
    leak: float = 1.0

    def __init__(
        self,
        W_hh: ArrayLike,
        W_xh: ArrayLike | None = None,
        b: ArrayLike | None = None,
        *,
        activation: str | Activation = "tanh",
        leak: float = 1.0,
    ) -> None:
        n = _checks.real_array("W_hh", W_hh, shape=("n", "n"), keep_float32=True).shape[-1]
        shapes: dict[str, Shape] = {"W_hh": (n, n), "W_xh": (n, "d_x"), "b": (n,)}
        self._freeze({"W_hh": W_hh, "W_xh": W_xh, "b": b}, shapes)
        object.__setattr__(self, "activation", resolve_activation(activation))
        object.__setattr__(self, "leak", _checks.real("leak", leak, above=0.0, at_most=1.0))
