"""Long short-term memory."""

from __future__ import annotations

import dataclasses

from numpy.typing import ArrayLike

from gradprop.activations import Activation
from gradprop.cells.base import Array, GatedCell, Shape, gated_size


@dataclasses.dataclass(frozen=True, eq=False)
class LSTM(GatedCell):
    r"""Long short-term memory; its state is [h; c], of width 2n.

    .. math::

        c_t = s(z^f_t) \odot c_{t-1} + s(z^i_t) \odot \varphi(z^g_t), \quad
        h_t = s(z^o_t) \odot \varphi(c_t), \quad z_t = W_{hh} h_{t-1} + W_{xh} x_t + b

    Parameters
    ----------
    W_hh : array_like, shape (..., 4n, n)
        Recurrent weights, one block of n rows per gate; row = to, column = from.
    W_xh : array_like, shape (..., 4n, d_x)
        Input weights.
    b : array_like, shape (..., 4n)
        Bias. A layer with two: cast both to float64 and add them first; a forget bias set in both
        counts twice.
    gate_order : {"ifgo", "ifco", "iofc"}, default: "ifgo"
        Order of the blocks of rows: PyTorch "ifgo", Keras "ifco" (the same), ONNX "iofc".
    gate_activation : str or Activation, default: "sigmoid"
        s of the three gates; "hard_sigmoid" (0.2 z + 0.5 in [0, 1]) in old Keras models.
    activation : str or Activation, default: "tanh"
        phi of the candidate g and of the output.

    Raises
    ------
    ValueError, TypeError
        Arrays that are not finite, not real, empty, or of shapes that contradict each other; an
        unknown gate order or activation.

    Notes
    -----
    Arrays stay float32 if all of them are; otherwise all become float64. Step Jacobian of the full
    state [h; c], with e = s(z^o) phi'(c'):

    .. math::

        \partial c'/\partial h &= \mathrm{diag}(f' c) W_f + \mathrm{diag}(i' g) W_i
            + \mathrm{diag}(i g') W_g, \quad \partial c'/\partial c = \mathrm{diag}(f) \\
        \partial h'/\partial h &= \mathrm{diag}(o' \varphi(c')) W_o
            + \mathrm{diag}(e)\,\partial c'/\partial h, \quad
            \partial h'/\partial c = \mathrm{diag}(e f)

    References
    ----------
    .. [1] F. A. Gers, J. Schmidhuber, F. Cummins, Learning to forget: continual prediction with
       LSTM, Neural Comput. 12, 2451 (2000).

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0.0, 1.0, 0.0, 0.0])
    >>> gp.step_jacobian(cell, [0.0, 1.0])[1].round(7).tolist()  # dc'/dh, dc'/dc = sigmoid(1)
    [0.0, 0.7310586]
    """

    PARAMETERS = ("W_hh", "W_xh", "b")
    GATES = "ifgo"
    ORDERS = {"ifgo": "ifgo", "ifco": "ifgo", "iofc": "iofg"}  # noqa: RUF012

    W_hh: Array
    W_xh: Array
    b: Array
    gate_order: str = "ifgo"
    gate_activation: Activation = "sigmoid"  # type: ignore[assignment]
    activation: Activation = "tanh"  # type: ignore[assignment]

    def __init__(
        self,
        W_hh: ArrayLike,
        W_xh: ArrayLike,
        b: ArrayLike,
        *,
        gate_order: str = "ifgo",
        gate_activation: str | Activation = "sigmoid",
        activation: str | Activation = "tanh",
    ) -> None:
        n = gated_size("W_hh", W_hh, 4)
        shapes: dict[str, Shape] = {"W_hh": (4 * n, n), "W_xh": (4 * n, "d_x"), "b": (4 * n,)}
        self._freeze({"W_hh": W_hh, "W_xh": W_xh, "b": b}, shapes)
        self._set_gates(gate_order, gate_activation, activation)

    @property
    def n_state(self) -> int:
        """Width of the state [h; c]."""
        return 2 * self.n
