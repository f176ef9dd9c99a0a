"""Gated recurrent unit, in both conventions."""

from __future__ import annotations

import dataclasses

from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.activations import Activation
from gradprop.cells.base import Array, GatedCell, Shape, gated_size


@dataclasses.dataclass(frozen=True, eq=False)
class GRU(GatedCell):
    r"""Gated recurrent unit.

    .. math::

        h_t = (1 - u_t) \odot \tilde h_t + u_t \odot h_{t-1}, \quad
        r_t = s(z^r_t), \quad u_t = s(z^z_t)

    with the reset gate after the recurrent product (PyTorch, CuDNN, Keras' default),

    .. math::

        \tilde h_t = \varphi\bigl(W_{xn} x_t + b_{xn} + r_t \odot (W_{hn} h_{t-1} + b_{hn})\bigr),

    or before it, :math:`\tilde h_t = \varphi(W_{xn} x_t + b_{xn} + b_{hn} + W_{hn} (r_t \odot
    h_{t-1}))`.

    Parameters
    ----------
    W_hh : array_like, shape (..., 3n, n)
        Recurrent weights, one block of n rows per gate; row = to, column = from.
    W_xh : array_like, shape (..., 3n, d_x)
        Input weights.
    b_x, b_h : array_like, shape (..., 3n)
        Biases of the input and of the recurrent product; they differ only in what the reset gate
        multiplies.
    gate_order : {"rzn", "zrh"}, default: "rzn"
        Order of the blocks of rows: PyTorch "rzn", Keras and ONNX "zrh".
    reset_after : bool, default: True
        ONNX calls it linear_before_reset.
    gate_activation : str or Activation, default: "sigmoid"
        s.
    activation : str or Activation, default: "tanh"
        phi.

    Raises
    ------
    ValueError, TypeError
        Arrays that are not finite, not real, empty, or of shapes that contradict each other; an
        unknown gate order or activation; `reset_after` that is no bool.

    Notes
    -----
    Arrays stay float32 if all of them are; otherwise all become float64. Rows in another order
    may give the same h and another Jacobian: the order has to be known. Step Jacobian, reset after,
    with k = (1 - u) phi'(z^n) and m = W_hn h + b_hn (1 - u is taken from z^z, so that a gate near 1
    keeps the digits of what it lets through; of a gate activation of one's own it is not):

    .. math::

        \mathrm{diag}(u) + \mathrm{diag}\bigl((h - \tilde h) u'\bigr) W_z + \mathrm{diag}(k r) W_n
        + \mathrm{diag}(k m r') W_r

    References
    ----------
    .. [1] K. Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014,
       arXiv:1406.1078, section 2.3.

    Examples
    --------
    >>> import gradprop as gp
    >>> cell = gp.GRU([[0.3], [-0.6], [0.9]], [[0.5], [1.0], [-0.8]],
    ...               [0.1, 0.2, -0.3], [0.05, -0.1, 0.4])
    >>> gp.rollout(cell, [1.0], h0=[0.5]).h[1].round(10).tolist()
    [0.1984429569]
    """

    PARAMETERS = ("W_hh", "W_xh", "b_x", "b_h")
    GATES = "rzn"
    ORDERS = {"rzn": "rzn", "zrh": "zrn"}  # noqa: RUF012

    W_hh: Array
    W_xh: Array
    b_x: Array
    b_h: Array
    gate_order: str = "rzn"
    reset_after: bool = True
    gate_activation: Activation = "sigmoid"  # type: ignore[assignment]
    activation: Activation = "tanh"  # type: ignore[assignment]

    def __init__(
        self,
        W_hh: ArrayLike,
        W_xh: ArrayLike,
        b_x: ArrayLike,
        b_h: ArrayLike,
        *,
        gate_order: str = "rzn",
        reset_after: bool = True,
        gate_activation: str | Activation = "sigmoid",
        activation: str | Activation = "tanh",
    ) -> None:
        n = gated_size("W_hh", W_hh, 3)
        shapes: dict[str, Shape] = {
            "W_hh": (3 * n, n),
            "W_xh": (3 * n, "d_x"),
            "b_x": (3 * n,),
            "b_h": (3 * n,),
        }
        self._freeze({"W_hh": W_hh, "W_xh": W_xh, "b_x": b_x, "b_h": b_h}, shapes)
        self._set_gates(gate_order, gate_activation, activation)
        object.__setattr__(
            self, "reset_after", bool(_checks.choice("reset_after", reset_after, (True, False)))
        )
