"""Losses of sequences: value, and gradient by the network's outputs; padding has no say."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.gradients.masks import Bool, counting_steps, refuse
from gradprop.gradients.means import scaled_mean
from gradprop.results import REPLICAS, Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss(Result):
    """A loss and its gradient (see :func:`cross_entropy` and :func:`mean_squared_error`).

    Attributes
    ----------
    value : float
        Mean over the steps that count.
    gradient : float array, shape (..., T, d)
        Derivative of ``value`` by the network's outputs, in their dtype; exactly 0 at other steps.
    per_step : float array, shape (..., T)
        Loss of each step, of which ``value`` is the mean; 0 at steps that do not count.
    mask : bool array, shape (..., T)
        The steps that count.
    n_steps : int
        Their number.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "gradient": (REPLICAS, "step", "output"),
        "per_step": (REPLICAS, "step"),
        "mask": (REPLICAS, "step"),
    }
    _table: ClassVar[str] = "per_step"
    value: float
    gradient: NDArray[Any]
    per_step: Float
    mask: Bool
    n_steps: int


def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    lengths: ArrayLike | None = None,
) -> Loss:
    r"""Mean cross-entropy of a softmax, in nats per step, and its gradient.

    .. math::

        L = \frac1M \sum_t \Bigl(\ln \sum_j e^{z_{tj}} - z_{t y_t}\Bigr), \qquad
        \frac{\partial L}{\partial z_{tj}} = \frac{p_{tj} - \delta_{j y_t}}{M}

    Parameters
    ----------
    logits : array_like of float, shape (..., T, C)
        z; anything, nan included, at steps that do not count.
    labels : array_like of int, shape (..., T)
        y in 0 .. C-1; anything at steps that do not count.
    mask : array_like of bool, broadcastable to (..., T), optional
        True at the M steps that count. Default: all, or all inside `lengths`.
    lengths : array_like of int, broadcastable to (...), optional
        True lengths of padded sequences; a mask that is True beyond them is refused.

    Returns
    -------
    Loss
        ``gradient`` (..., T, C) in the dtype of the logits.

    Raises
    ------
    ValueError
        No step counts; a step on padding counts; at a step that counts, a logit is not finite or a
        label outside 0 .. C-1 (step, from 1, and index are named).
    TypeError
        Labels that are not integers, a mask that is not boolean.

    Notes
    -----
    Relative to the largest logit m, with the exponential of each difference corrected for its
    rounding: L = (m - z_y) + log1p(rest), where both terms are positive, and at the label the
    gradient is minus the sum of the other probabilities. So value and gradient are accurate to a
    few eps (and the log2(C) eps of a sum), also where the probability is within eps of 1 or 0 and
    for logits of any size. ``value`` is inf only above the largest float. The sum runs over the
    steps that count alone: padding changes no bit. O(M C), 25 ns per logit.

    Examples
    --------
    >>> import gradprop as gp
    >>> import numpy as np
    >>> loss = gp.cross_entropy([[0.0, np.log(3)], [0.0, 1e30]], [0, 1], mask=[True, False])
    >>> round(loss.value, 7)  # ln 4
    1.3862944
    >>> loss.gradient.round(12).tolist()
    [[-0.75, 0.75], [0.0, 0.0]]
    """
    z = _checks.real_array("logits", logits, shape=("T", "C"), finite=False)
    y = _labels(labels, z.shape[:-1])
    use = counting_steps(mask, lengths, z.shape[:-1])
    refuse("logits", "be finite", z, ~np.isfinite(z), use)
    refuse("labels", f"lie in 0..{z.shape[-1] - 1}", y, (y < 0) | (y >= z.shape[-1]), use)
    per_step, gradient = _softmax_loss(z[use], y[use].astype(np.int64))
    return _loss(scaled_mean(per_step), per_step, gradient, use, _dtype_of(logits))


def mean_squared_error(
    prediction: ArrayLike,
    target: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    lengths: ArrayLike | None = None,
) -> Loss:
    r"""Mean squared error and its gradient by the prediction.

    .. math::

        L = \frac1{M d} \sum_{t,i} (p_{ti} - q_{ti})^2, \qquad
        \frac{\partial L}{\partial p_{ti}} = \frac{2 (p_{ti} - q_{ti})}{M d}

    Parameters
    ----------
    prediction, target : array_like of float, shape (..., T, d)
        p and q, of one shape; anything, nan included, at steps that do not count.
    mask : array_like of bool, broadcastable to (..., T), optional
        True at the M steps that count. Default: all, or all inside `lengths`.
    lengths : array_like of int, broadcastable to (...), optional
        True lengths of padded sequences; a mask that is True beyond them is refused.

    Returns
    -------
    Loss
        ``gradient`` (..., T, d) in the dtype of the prediction.

    Raises
    ------
    ValueError
        Shapes differ; no step counts; a step on padding counts; an entry at a step that counts is
        not finite (step, from 1, and index are named).
    TypeError
        A mask that is not boolean.

    Notes
    -----
    The mean is over the steps that count *and* the d features, without a factor 1/2. Relative
    error a few eps (and the log2 of a sum); no square over- or underflows that the mean does not:
    ``value`` is inf only above the largest float. Padding changes no bit. O(M d), 25 ns per entry.

    Examples
    --------
    >>> import gradprop as gp
    >>> prediction, target = [[3.0, 0.0], [9.0, 9.0]], [[0.0, 4.0], [0.0, 0.0]]
    >>> loss = gp.mean_squared_error(prediction, target, mask=[True, False])
    >>> loss.value, loss.gradient.tolist()
    (12.5, [[3.0, -4.0], [0.0, 0.0]])
    """
    p = _checks.real_array("prediction", prediction, shape=("T", "d"), finite=False)
    q = _checks.real_array("target", target, finite=False)
    if q.shape != p.shape:
        raise ValueError(f"`target` must have the prediction's shape {p.shape}; got {q.shape}.")
    use = counting_steps(mask, lengths, p.shape[:-1])
    for name, array in (("prediction", p), ("target", q)):
        refuse(name, "be finite", array, ~np.isfinite(array), use)
    with np.errstate(over="ignore", under="ignore"):
        residual = p[use] - q[use]
        gradient = residual / (0.5 * residual.size)
        beyond = np.isinf(residual)  # the gradient need not be
        gradient[beyond] = (0.5 * p[use] - 0.5 * q[use])[beyond] / (0.25 * residual.size)
    value = scaled_mean(residual.ravel(), power=2)
    return _loss(value, scaled_mean(residual, power=2), gradient, use, _dtype_of(prediction))


def _softmax_loss(z: Float, y: Int) -> tuple[Float, Float]:
    """Loss (M,) of each row of logits (M, C), and the gradient of their mean."""
    rows = np.arange(len(z))
    best = z.argmax(axis=1)
    top = z[rows, best]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        distance = z - top[:, None]
        # what rounding took from each difference: else exp is off by |distance| eps
        back = distance - z
        slip = (z - (distance - back)) - (top[:, None] + back)
        weight = np.exp(distance) * (1.0 + np.where(np.isfinite(slip), slip, 0.0))
        weight[rows, best] = 0.0
        rest = weight.sum(axis=1)
        per_step = (top - z[rows, y]) + np.log1p(rest)
        weight[rows, best] = 1.0
        weight[rows, y] = 0.0
        weight[rows, y] = -weight.sum(axis=1)
        return per_step, weight / ((1.0 + rest) * len(z))[:, None]


def _loss(value: Any, per_step: Float, gradient: Float, use: Bool, dtype: np.dtype[Any]) -> Loss:
    """Lay out what was computed at the steps that count among zeros."""
    steps = np.zeros(use.shape)
    steps[use] = per_step
    full = np.zeros((*use.shape, gradient.shape[-1]), dtype=dtype)
    with np.errstate(over="ignore", under="ignore"):
        full[use] = gradient
    return Loss(
        roles=("inputs",) * (use.ndim - 1),
        value=float(value),
        gradient=full,
        per_step=steps,
        mask=use,
        n_steps=int(use.sum()),
    )


def _labels(labels: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    array = _checks.plain_array("labels", labels)
    if array.dtype.kind not in "iu":
        raise TypeError(f"`labels` must hold integers; got dtype {array.dtype}.")
    if array.shape != shape:
        raise ValueError(f"`labels` must have the logits' shape {shape}; got {array.shape}.")
    return array


def _dtype_of(outputs: ArrayLike) -> np.dtype[Any]:
    """Dtype of the gradient: that of floating outputs, else float64."""
    dtype = np.asarray(outputs).dtype
    return dtype.newbyteorder("=") if dtype.kind == "f" else np.dtype(np.float64)
