"""Populations of networks: what is typical, what is the mean, and where the spread comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.lyapunov.intervals import student_quantile
from gradprop.lyapunov.spectrum import LyapunovSpectrum
from gradprop.norms import LogNorms
from gradprop.pullback import VectorNorms
from gradprop.results import Result, Status, log_sum_exp

ROLES = ("weights", "inputs", "starts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pooled(Result):
    """Summary of a result over replicas; every array has the shape of one replica's values.

    Attributes
    ----------
    mean, median, std : float arrays, shape (k,)
        Over all pooled replicas. Of log norms the mean is the *typical* (quenched) value.
    annealed : float array, shape (k,)
        ½ ln of the mean square, for log norms; nan for exponents.
    interval : float array, shape (k, 2)
        Student t interval of the mean over independent units: replicas that differ in weights or
        inputs. Starts of one network on one input are averaged first, for they are not independent;
        nan where there is but one unit.
    variance_weights, variance_inputs, variance_starts : float arrays, shape (k,)
        Part of the variance that enters with each role (0 for an axis that is not there).
    n_attractors : int array, shape ()
        Largest number of different attractors that starts of one network on one input reach.
    status : int array, shape ()
    n_units : int
        Independent units behind the interval.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "mean": ("k",),
        "median": ("k",),
        "std": ("k",),
        "annealed": ("k",),
        "interval": ("k", "end"),
        "variance_weights": ("k",),
        "variance_inputs": ("k",),
        "variance_starts": ("k",),
        "n_attractors": (),
        "status": (),
    }
    _table: ClassVar[str] = "mean"
    mean: Float
    median: Float
    std: Float
    annealed: Float
    interval: Float
    variance_weights: Float
    variance_inputs: Float
    variance_starts: Float
    n_attractors: Int
    status: Int
    n_units: int


def pool(
    result: LyapunovSpectrum | LogNorms | VectorNorms,
    over: Sequence[str] = ROLES,
    *,
    confidence: float = 0.95,
) -> Pooled:
    """Summarise a result over its replica axes.

    Parameters
    ----------
    result : LyapunovSpectrum, LogNorms or VectorNorms, batch shape (...)
        With at least one replica axis.
    over : sequence of {"weights", "inputs", "starts"}, default: all
        Roles to pool over; all axes of the result must be among them.
    confidence : float in (0, 1), default: 0.95

    Returns
    -------
    Pooled

    Raises
    ------
    ValueError, TypeError
        A result without replicas, an unknown role, an axis whose role is not in `over`.

    Notes
    -----
    Variances are those of nested means: of starts within network and input, of inputs within
    network, of networks, each minus what the level below contributes to it; negative estimates are
    set to 0. Attractors: exponents of two starts that differ by more than 4 standard errors and 5/T
    nats (finite-time averages carry a bias of order 1/T) lie on different ones. If a network has
    several, no interval is given: counting is all that can honestly be done.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[[0.5]]] * 40, [[[2.0]]] * 40])
    >>> pooled = gp.pool(gp.lyapunov_spectrum(chain))
    >>> float(pooled.mean[0]), pooled.n_units
    (0.0, 2)
    """
    if not isinstance(result, LyapunovSpectrum | LogNorms | VectorNorms):
        raise TypeError(f"`result` must hold exponents or log norms; got {type(result).__name__}.")
    if not isinstance(over, Sequence):
        raise TypeError(f"`over` must be a sequence of roles; got {over!r}.")
    wanted = [_checks.choice("over", role, ROLES) for role in over]
    confidence = _checks.real("confidence", confidence, above=0.0, below=1.0)
    if not result.roles:
        raise ValueError("`result` must have replica axes to pool over; got a single network.")
    left = [role for role in result.roles if not set(role.split("+")) & set(wanted)]
    if left:
        raise ValueError(f"`over` must name every replica axis; left out: {', '.join(left)}.")
    is_spectrum = isinstance(result, LyapunovSpectrum)
    values = result.exponents if isinstance(result, LyapunovSpectrum) else result.log_norm
    levels = _by_level(values, result.roles)
    attractors = _count_attractors(result) if isinstance(result, LyapunovSpectrum) else 1
    flat = values.reshape(-1, values.shape[-1])
    units = _units(levels)
    interval = _interval(units, confidence)
    status = int(np.bitwise_or.reduce(result.status, axis=None))
    if attractors > 1:
        interval = np.full_like(interval, np.nan)
        status |= int(Status.SEVERAL_ATTRACTORS)
    parts = _variance_parts(levels)
    with np.errstate(invalid="ignore"):
        return Pooled(
            mean=flat.mean(axis=0),
            median=np.median(flat, axis=0),
            std=flat.std(axis=0, ddof=1) if len(flat) > 1 else np.full(flat.shape[1], np.nan),
            annealed=np.full(flat.shape[1], np.nan) if is_spectrum else annealed_log_norm(flat),
            interval=interval,
            variance_weights=parts[0],
            variance_inputs=parts[1],
            variance_starts=parts[2],
            n_attractors=np.array(attractors),
            status=np.array(status),
            n_units=len(units),
        )


def annealed_log_norm(log_norm: ArrayLike) -> Float:
    """Half the log of the mean square over the first axis, for log norms of shape (R, L)."""
    logs = np.asarray(log_norm, dtype=np.float64)
    return np.asarray(0.5 * (log_sum_exp(2 * logs, axis=0) - np.log(logs.shape[0])))


def _by_level(values: Float, roles: tuple[str, ...]) -> Float:
    """Values as (weights, inputs, starts, k): replica axes gathered by their first role."""
    level = [next(i for i, role in enumerate(ROLES) if role in r.split("+")) for r in roles]
    order = np.argsort(level, kind="stable")
    moved = np.transpose(values, [*order, len(roles)])
    sizes = [int(np.prod([values.shape[a] for a in order if level[a] == i])) for i in range(3)]
    return moved.reshape(*sizes, values.shape[-1])


def _units(levels: Float) -> Float:
    """Independent units, (U, k): networks, or inputs if there is one network; never starts."""
    by_input = levels.mean(axis=2)
    return np.asarray(by_input.mean(axis=1) if levels.shape[0] > 1 else by_input[0])


def _interval(units: Float, confidence: float) -> Float:
    mean = units.mean(axis=0)
    if len(units) < 2:
        return np.stack([np.full_like(mean, np.nan)] * 2, axis=-1)
    with np.errstate(invalid="ignore"):
        error = units.std(axis=0, ddof=1) / np.sqrt(len(units))
    half = student_quantile(confidence, len(units) - 1) * error
    return np.stack([mean - half, mean + half], axis=-1)


def _variance_parts(levels: Float) -> tuple[Float, Float, Float]:
    """Components of nested sampling: weights, inputs within, starts within those."""

    def spread(values: Float, axis: int) -> Float:
        if values.shape[axis] < 2:
            return np.zeros(values.shape[-1])
        other = tuple(a for a in range(values.ndim - 1) if a != axis)
        with np.errstate(invalid="ignore"):
            return np.asarray(values.var(axis=axis, ddof=1).mean(axis=tuple(range(len(other)))))

    starts = spread(levels, 2)
    inputs = spread(levels.mean(axis=2), 1) - starts / levels.shape[2]
    weights = spread(levels.mean(axis=(1, 2)), 0)
    weights = weights - np.maximum(inputs, 0.0) / levels.shape[1]
    weights = weights - starts / (levels.shape[1] * levels.shape[2])
    return np.maximum(weights, 0.0), np.maximum(inputs, 0.0), starts


def _count_attractors(result: LyapunovSpectrum) -> int:
    """Largest number of groups of leading exponents among the starts of one network and input."""
    k = result.exponents.shape[-1]
    leading = _by_level(result.exponents, result.roles)[..., 0]
    error = _by_level(np.nan_to_num(result.std_error), result.roles)[..., 0]
    steps = _by_level(np.repeat(result.n_steps[..., None], k, axis=-1), result.roles)[..., 0]
    if "starts" not in "+".join(result.roles).split("+"):
        return 1
    groups = 1
    for cell in np.ndindex(leading.shape[:2]):
        order = np.argsort(leading[cell])
        value, sigma = leading[cell][order], error[cell][order]
        floor = 5.0 / np.maximum(steps[cell][order], 1)
        gap = np.diff(value)
        limit = np.maximum(4 * np.hypot(sigma[1:], sigma[:-1]), np.maximum(floor[1:], floor[:-1]))
        groups = max(groups, 1 + int(np.sum(gap > limit)))
    return groups
