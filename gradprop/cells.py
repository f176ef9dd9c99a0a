"""Frozen descriptions of recurrent cells: weights and activation, no behaviour of their own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.activations import Activation
from gradprop.activations import activation as resolve_activation


@dataclasses.dataclass(frozen=True, eq=False)
class RNN:
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

    W_hh: NDArray[Any]
    W_xh: NDArray[Any] | None = None
    b: NDArray[Any] | None = None
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
        arrays: dict[str, NDArray[Any]] = {
            "W_hh": _checks.real_array("W_hh", W_hh, shape=("n", "n"), keep_float32=True)
        }
        n = arrays["W_hh"].shape[-1]
        if W_xh is not None:
            arrays["W_xh"] = _checks.real_array("W_xh", W_xh, shape=(n, "d_x"), keep_float32=True)
        if b is not None:
            arrays["b"] = _checks.real_array("b", b, shape=(n,), keep_float32=True)
        dtype = np.result_type(*arrays.values())
        for name in ("W_hh", "W_xh", "b"):
            array = arrays.get(name)
            if array is not None:
                array = np.array(array, dtype=dtype)
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "activation", resolve_activation(activation))
        object.__setattr__(self, "leak", _checks.real("leak", leak, above=0.0, at_most=1.0))
        _ = self.batch_shape

    @property
    def n(self) -> int:
        """Number of units."""
        return int(self.W_hh.shape[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, that of every weight."""
        return self.W_hh.dtype

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the weights, broadcast together."""
        shapes = {"W_hh": self.W_hh.shape[:-2]}
        if self.W_xh is not None:
            shapes["W_xh"] = self.W_xh.shape[:-2]
        if self.b is not None:
            shapes["b"] = self.b.shape[:-1]
        return _checks.broadcast_shapes(**shapes)
