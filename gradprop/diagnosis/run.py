"""The call: prepare the data, measure in two passes, put the findings together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.bounds import Bounds
from gradprop.cells.base import Cell
from gradprop.cells.composite import Bidirectional
from gradprop.cells.rnn import RNN
from gradprop.chain import JacobianChain
from gradprop.diagnosis.activity import activity
from gradprop.diagnosis.clips import clip_norms
from gradprop.diagnosis.data import Data, describe, describe_data, positions, prepare
from gradprop.diagnosis.folds import PathNorms, StepNorms, paths_of
from gradprop.diagnosis.limits import (
    EDGE_STATE,
    budget,
    edge,
    leading_exponent,
    stored_limits,
)
from gradprop.diagnosis.memory import memory
from gradprop.diagnosis.result import Diagnosis
from gradprop.gradients.truncation import advised_window
from gradprop.horizon import passing, tolerance
from gradprop.lyapunov.spectrum import Exponents
from gradprop.measure import measure
from gradprop.orbit import Orbit
from gradprop.precision.events import Events
from gradprop.precision.formats import Format, format_of
from gradprop.precision.loss_scale import loss_scale_window
from gradprop.pullback import Pullback
from gradprop.rollout import reversed_within

PRODUCT_FLOPS = 2.5e11
"""Work that whole products may take at 20 n^3 a step, about 15 s on one core; beyond it fewer
sequences are multiplied out, then fewer lags."""

EXPONENTS = 4
"""Leading exponents measured."""


def diagnose(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    lengths: ArrayLike | None = None,
    fmt: str | Format = "float32",
    samples: int | None = None,
    cotangent: ArrayLike | None = None,
    grad_h: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    find_edge: bool = True,
    rng: Any = 0,
) -> Diagnosis:
    """How far back a network can learn, in this precision, with so much data; what limits it.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked, CustomCell or Bidirectional
        One network, without replica axes. The two directions of a Bidirectional are diagnosed
        apart: the second is ``.backward`` of the result.
    x : array_like, shape (B, T, d_x), (T, d_x) or (T,), optional
        Sequences as the network meets them. Default: white noise of variance 1, 1000 steps.
    lengths : array_like of int, shape (B,), optional
        True lengths of padded sequences, at least 1.
    fmt : str or Format, default: "float32"
        Format of gradients (see :class:`Format`).
    samples : int, optional
        Number of training sequences: a gradient smaller than its own sampling noise, samples**-0.5
        of that at lag 0, teaches nothing.
    cotangent : array_like, shape (n,), optional
        Loss direction at the outputs. Default: one at random.
    grad_h : array_like, shape (B, T, n), or callable, optional
        Derivative of the real loss by all outputs, as :func:`backward` takes it, for the norms to
        clip at. Default: a loss of slope 1 at the last step.
    find_edge : bool, default: True
        Whether to look for the gain of the recurrent weights at which lambda_1 is 0.
    rng : seed or Generator, default: 0
        For white noise and for the start of a network without input.

    Returns
    -------
    Diagnosis
        ``.summary()``, ``.to_frame()``, ``.to_html(path)``, ``gp.plot(diagnosis)``.

    Raises
    ------
    ValueError, TypeError
        A cell with replica axes; an empty sequence; input of another width (both are named), with a
        gap (its step is named); as :func:`rollout`.

    Notes
    -----
    Whole products and norms of steps come in one pass, at about 20 n^3 flops a step (n the width of
    the state), vectors in another, at 2 n^2; where products would take more than some 15 s fewer
    sequences, then fewer lags are multiplied out, and a note says so. A single sequence gives
    quantiles over 16 positions of the loss along it, several give quantiles over sequences. The
    search for the edge takes about 15 runs of up to 500 steps of the same input; it is left out for
    states wider than 600.

    State memory is another thing than the reach of gradients: states that the network visits are
    put in place of each other and followed forward, under the same input and under its median.

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.5]], W_xh=[[0.0]])  # the gradient halves at every step: 2**-23 at lag 23
    >>> found = gp.diagnose(cell, np.zeros(60), samples=100, find_edge=False)
    >>> print(found.verdict)
    Gradients reach 3 steps back (sampling noise binds): ten-fold weaker every 3.3 steps.
    >>> int(found.worst.first_below), found.budget.of("resolution")
    (4, 24.0)
    """
    known = format_of(fmt)
    if not isinstance(cell, Cell):
        raise TypeError(f"`cell` must be a recurrent cell such as RNN; got {type(cell).__name__}.")
    if cell.batch_shape:
        raise ValueError(
            f"`cell` must be one network; got replica axes {cell.batch_shape}: take one of them."
        )
    tol = known.eps if samples is None else tolerance(None, samples)
    data = prepare(cell, x, lengths, rng)
    settings: dict[str, Any] = {"fmt": known, "samples": samples, "tol": tol, "edge": find_edge}
    if not isinstance(cell, Bidirectional):
        return _one_way(cell, data, settings, cotangent, grad_h)
    if callable(grad_h):
        raise TypeError("`grad_h` must be an array for a Bidirectional cell; got a callable.")
    n = cell.forward.n
    own = [None if a is None else np.asarray(a) for a in (cotangent, grad_h)]
    ahead, behind = ([None if a is None else a[..., part] for a in own] for part in np.s_[:n, n:])
    turned = None if data.x is None else reversed_within(data.x, data.lengths)
    if behind[1] is not None:
        many = behind[1] if behind[1].ndim > 2 else behind[1][None]
        behind[1] = reversed_within(many, data.lengths)
    other = dataclasses.replace(data, x=turned)
    back = _one_way(cell.backward, other, settings, *behind)
    return dataclasses.replace(_one_way(cell.forward, data, settings, *ahead), backward=back)


def _one_way(
    cell: Cell, data: Data, settings: dict[str, Any], cotangent: Any, grad_h: Any
) -> Diagnosis:
    notes = list(data.notes)
    u = _cotangent(cell, cotangent)
    found = _products(cell, data, settings, u, notes)
    which, ends = positions(data)
    gradient = measure(data.chain(cell, which, ends), Pullback(u))[0]
    relative = gradient.log_norm - gradient.log_norm[..., :1]
    if settings["edge"] and cell.n_state > EDGE_STATE:
        notes.append(f"the edge of chaos is not looked for in states wider than {EDGE_STATE}")
    found |= _limits(cell, data, settings, found, relative, u)
    clip, broken = clip_norms(cell, data, which, ends, u[cell.output], grad_h, notes)
    n_first = int(data.lengths[0])
    first = data.sequence(0, n_first)
    return Diagnosis(
        network=describe(cell),
        data=describe_data(data),
        n_steps=data.n_steps,
        n_sequences=len(data.lengths),
        fmt=settings["fmt"].name,
        samples=settings["samples"],
        tol=settings["tol"],
        gradient=gradient,
        direction=_horizon(relative, "cotangent", settings["tol"], gradient),
        activity=activity(Orbit(cell, data.x, None, data.n_steps, data.lengths, data.rng, None)),
        memory=memory(cell, first, n_first, data.rng),
        clipping=clip,
        broken=broken,
        edge=edge(cell, first, n_first, found["leading"]) if settings["edge"] else None,
        notes=tuple(notes),
        **found,
    )


def _products(
    cell: Cell, data: Data, settings: dict[str, Any], u: Float, notes: list[str]
) -> dict[str, Any]:
    """What needs whole products: one pass over the orbit for all of it."""
    chain, n_lags = _products_chain(cell, data, notes)
    k, burn_in = min(EXPONENTS, chain.n), min(100, int(chain.lengths.min()) // 10)
    scalings = 3 if isinstance(cell, RNN) and cell.n <= 64 else 0
    by_vectors: list[Any] = [Exponents(k, burn_in), Events(settings["fmt"], "vector", u=u)]
    by_products: list[Any] = [
        PathNorms(paths_of(cell), np.arange(n_lags + 1)),
        StepNorms(),
        Bounds([n_lags], splits=False, scalings=scalings),
    ]
    if n_lags == chain.n_steps:
        exponents, events, norms, steps, bounds = measure(chain, *by_vectors, *by_products)
    else:
        # the steps before the last n_lags belong to the same orbit, which is run once
        exponents, events = measure(chain, *by_vectors)
        norms, steps, bounds = measure(chain.tail(n_lags), *by_products)
    if chain.overflowed.any():
        notes.append("the orbit overflows: findings are those of the steps before")
    return {
        "norms": norms,
        "exponents": exponents,
        "steps": steps,
        "bounds": bounds,
        "events": events,
        "worst": _horizon(norms.log_norm, "worst", settings["tol"], norms),
        "leading": leading_exponent(exponents),
    }


def _limits(
    cell: Cell,
    data: Data,
    settings: dict[str, Any],
    found: dict[str, Any],
    relative: Float,
    u: Float,
) -> dict[str, Any]:
    """Budget, loss scales and window that the rate and the typical gradient set."""
    fmt, rate = settings["fmt"], found["leading"][0]
    leading = found["leading"]
    end = int(data.lengths[0])
    stored = stored_limits(cell, data.sequence(0, end), end, u, fmt, settings["tol"])
    typical = _median(relative)
    limits = budget(typical, found["events"], fmt, settings["samples"], leading, stored)
    reach = int(min([*limits.steps, float(data.n_steps)]))
    return {
        "budget": limits,
        "loss_scale": loss_scale_window(rate, reach, fmt, log_constant=-0.5 * math.log(cell.n)),
        "window": math.inf if leading[1] <= 0 <= leading[2] else advised_window(rate, 0.01),
    }


def _horizon(relative: Float, kind: str, tol: float, curve: Any) -> Any:
    return passing(relative, tol, kind=kind, roles=curve.roles, status=curve.status)


def _cotangent(cell: Cell, given: Any) -> Float:
    """Unit loss direction at the outputs, as a vector of the state."""
    direction = np.random.default_rng(0).standard_normal(cell.n)
    if given is not None:
        direction = _checks.real_array("cotangent", given, shape=(cell.n,))
        if direction.ndim != 1 or not direction.any():
            raise ValueError(f"`cotangent` must be one vector, not zero; got {direction.tolist()}.")
    u = np.zeros(cell.n_state)
    u[cell.output] = direction / np.linalg.norm(direction)
    return u


def _products_chain(cell: Cell, data: Data, notes: list[str]) -> tuple[JacobianChain, int]:
    """Chain of the sequences whose products are formed, and the largest lag."""
    longest, n_all = data.n_steps, len(data.lengths)
    affordable = PRODUCT_FLOPS / (20.0 * cell.n_state**3)
    number = int(np.clip(affordable // longest, 1, n_all))
    which = np.unique(np.linspace(0, n_all - 1, number).astype(int))
    if number < n_all:
        notes.append(f"worst-case norms are of {number} of the {n_all} sequences")
    chain = data.chain(cell, which, data.lengths[which])
    n_lags = min(chain.n_steps, max(int(affordable // number), 1))
    if number > 1 or chain.overflowed.any():
        n_lags = chain.n_steps
    if n_lags < chain.n_steps:
        notes.append(f"worst-case norms end at lag {n_lags}")
    return chain, n_lags


def _median(relative: Float) -> Float:
    """Median curve over replicas, of those that reach each lag."""
    rows = relative.reshape(-1, relative.shape[-1])
    rows = rows[:, ~np.isnan(rows).all(axis=0)]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nanquantile(rows, 0.5, axis=0, method="inverted_cdf"))
