"""Gated cells without recurrent weights: how fast the gates alone forget."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.activations import activation
from gradprop.results import REPLICAS, Result, Status
from gradprop.slopes import log_abs_slope

Float = NDArray[np.float64]
Int = NDArray[np.int64]

GATES = ("sigmoid", "hard_sigmoid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateRates(Result):
    """Growth rates that gates set without recurrent weights (see :func:`gate_rates`).

    Attributes
    ----------
    forget_bias, update_bias : float array, shape (...,)
    lstm : float array, shape (...,)
        ln of the forget gate, nats per step: n exponents of an LSTM; the other n are -inf.
    gru : float array, shape (...,)
        ln of the update gate, nats per step: all n exponents of a GRU.
    status : int array, shape (...,)
    gate_activation : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "forget_bias": (REPLICAS,),
        "update_bias": (REPLICAS,),
        "lstm": (REPLICAS,),
        "gru": (REPLICAS,),
        "status": (REPLICAS,),
    }
    forget_bias: Float
    update_bias: Float
    lstm: Float
    gru: Float
    status: Int
    gate_activation: str

    @property
    def conditions(self) -> str:
        """What has to hold for the rates to be what a cell shows."""
        return (
            "Recurrent weights zero and gates that no input moves: exact at every n and lag, "
            "typical and mean rate alike, every singular value of the product (of the cell path, "
            "for the LSTM) the same. Input to a gate makes the typical rate the mean of ln of the "
            "gate, which is smaller than ln of its mean; recurrent weights change all of them."
        )


def gate_rates(
    forget_bias: ArrayLike = 0.0,
    update_bias: ArrayLike = 0.0,
    *,
    gate_activation: str = "sigmoid",
) -> GateRates:
    r"""Rates at which an LSTM and a GRU with zero recurrent weights forget, in nats per step.

    .. math:: \lambda_{\mathrm{LSTM}} = \ln s(b_f), \quad \lambda_{\mathrm{GRU}} = \ln s(b_z)

    Parameters
    ----------
    forget_bias : array_like of float, shape (...), default: 0
        b_f of c' = s(b_f) c + ...; where there are two bias vectors, their sum.
    update_bias : array_like of float, shape (...), default: 0
        b_z of h' = (1 - z) new + z h, z = s(b_z); the negative of it where the roles of z and
        1 - z are swapped.
    gate_activation : str, default: "sigmoid"
        s: "sigmoid" or "hard_sigmoid".

    Returns
    -------
    GateRates
        ``lstm``, ``gru``, each of the broadcast shape; ``conditions``; ``status`` ZERO where a hard
        gate is shut and the rate -inf.

    Raises
    ------
    ValueError, TypeError
        A bias that is not finite, shapes that do not broadcast, another gate.

    Notes
    -----
    dc'/dc = diag(s(b_f)) and dh'/dh = diag(z) are constant: exponential decay, only slower than
    that of a plain network. Accuracy a few eps, also far in the tails.

    References
    ----------
    .. [1] F. A. Gers, J. Schmidhuber, F. Cummins, Learning to forget, Neural Comput. 12, 2451
       (2000), equation 9.
    .. [2] K. Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014,
       arXiv:1406.1078, equation 7.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.gate_rates(forget_bias=[0, 1, 2, 3]).lstm.round(7).tolist()
    [-0.6931472, -0.3132617, -0.126928, -0.0485874]
    """
    gate = _checks.choice("gate_activation", gate_activation, GATES)
    forget = _checks.real_array("forget_bias", forget_bias)
    update = _checks.real_array("update_bias", update_bias)
    shape = _checks.broadcast_shapes(forget_bias=forget.shape, update_bias=update.shape)
    lstm, gru = (np.broadcast_to(_log_gate(gate, b), shape) for b in (forget, update))
    closed = np.isneginf(lstm) | np.isneginf(gru)
    return GateRates(
        roles=("bias",) * len(shape),
        forget_bias=np.broadcast_to(forget, shape),
        update_bias=np.broadcast_to(update, shape),
        lstm=lstm,
        gru=gru,
        status=np.where(closed, int(Status.ZERO), 0),
        gate_activation=gate,
    )


def _log_gate(gate: str, bias: Float) -> Float:
    """Natural log of the gate; that of the sigmoid is the log slope of softplus."""
    if gate == "sigmoid":
        return log_abs_slope(activation("softplus"), bias)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(activation(gate).evaluate(bias)))
