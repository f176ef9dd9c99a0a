"""ln |phi'| of an activation, also where phi' itself underflows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gradprop.activations import Activation

Float = NDArray[np.float64]

VANISHED = -1e100
"""Logarithms below stand for exact zeros: slopes at the ends of the float range."""

TAIL = -5.0
"""Argument from which on the slope of gelu is taken from its tail."""


def log_abs_slope(own: Activation, x: Float) -> Float:
    """Natural log of |phi'(x)|; -inf where phi' is 0.

    Parameters
    ----------
    own : Activation
    x : float array, shape S

    Returns
    -------
    float array, shape S
        Error a few eps of its size (of 1, where it is smaller; of 1 over the distance to the zero
        at -0.7518 of the slope of gelu). Of one's own activation it is the log of what ``dphi``
        gives, and -inf where that underflows.

    Notes
    -----
    tanh, sigmoid, softplus, erf, gelu and selu have tails in which phi' leaves the float range
    (erf from |x| = 27 on) long before its logarithm means anything less.

    Examples
    --------
    >>> import numpy as np
    >>> from gradprop.activations import activation
    >>> log_abs_slope(activation("erf"), np.array([100.0])).round(6).tolist()
    [-9999.879218]
    """
    tail = _TAILS.get(own.name) if own.code is not None else None
    with np.errstate(divide="ignore"):
        log = np.log(np.abs(own.derivative(x))) if tail is None else tail(own, x)
    return np.asarray(np.where(log < VANISHED, -np.inf, log))


def _tanh(own: Activation, x: Float) -> Float:
    y = 2.0 * np.abs(x)
    return math.log(4.0) - y - 2.0 * np.log1p(np.exp(-y))


def _sigmoid(own: Activation, x: Float) -> Float:
    y = np.abs(x)
    return -y - 2.0 * np.log1p(np.exp(-y))


def _softplus(own: Activation, x: Float) -> Float:
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def _erf(own: Activation, x: Float) -> Float:
    with np.errstate(over="ignore"):
        return math.log(2.0 / math.sqrt(math.pi)) - x * x


def _selu(own: Activation, x: Float) -> Float:
    below_zero = math.log(own.derivative(-np.finfo(float).tiny))
    return np.where(x < 0, below_zero + x, np.log(own.derivative(np.abs(x))))


def _gelu(own: Activation, x: Float) -> Float:
    """Beyond TAIL: |Phi(x) + x pdf(x)| = pdf(x) (|x| - Mills ratio)."""
    from scipy.special import erfcx

    far = np.minimum(x, TAIL)
    with np.errstate(over="ignore"):
        mills = math.sqrt(0.5 * math.pi) * erfcx(-far / math.sqrt(2.0))
        log = np.log(-far - mills) - 0.5 * far * far - 0.5 * math.log(2.0 * math.pi)
    return np.where(x < TAIL, log, np.log(np.abs(own.derivative(np.maximum(x, TAIL)))))


_TAILS: dict[str, Callable[[Activation, Float], Float]] = {
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "erf": _erf,
    "selu": _selu,
    "gelu": _gelu,
}
