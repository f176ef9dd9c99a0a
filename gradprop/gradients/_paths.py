"""Gradients taken back lag by lag, for all steps at once, through all layers, never out of range.

Entry t of a cotangent v (T, B, s) starts at the state after step t; after k lags it stands at the
state after step t - k, times a power of two of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.gradients._layer import FLOPS_PER_CALL, LayerRun
from gradprop.gradients._problem import ParameterSums, Problem, layer_prefixes
from gradprop.gradients._scaled import NOTHING, ScaledSum
from gradprop.results import LN2

Array = NDArray[Any]
Float = NDArray[np.float64]
Int = NDArray[np.int64]
Layers = list[Array]


def back(
    runs: Sequence[LayerRun], v: Layers, step: int, deltas: Layers, recurrents: Layers,
    copies: int = 1,
) -> None:  # fmt: skip
    """Take m cotangents, at the states after steps `step` .. step + m - 1, to the states before.

    In place: v is (m, B copies, s) for each layer; fills deltas and recurrents (m, B copies, rows).
    Within a step a layer passes on what it got to the h of the layer below.
    """
    above = None
    for run, own, delta, recurrent in zip(
        reversed(runs), reversed(v), reversed(deltas), reversed(recurrents), strict=True
    ):
        if above is not None:
            own[..., : run.n] += above
        _layer_back(run, own, step, delta, recurrent, copies)
        W_xh = run.arrays.W_xh
        above = delta if W_xh is None else np.tensordot(delta, W_xh, axes=1)


def _layer_back(
    run: LayerRun, v: Array, step: int, delta: Array, recurrent: Array, copies: int
) -> None:
    from gradprop._kernels import backward as kernels
    from gradprop._kernels import gates
    from gradprop._kernels.gemm import strips

    lengths, W = np.repeat(run.lengths, copies), strips(run.arrays.W_hh)
    size = max(int(FLOPS_PER_CALL // (2.0 * run.arrays.W_hh.size * max(len(lengths), 1))), 1)
    for start in range(0, len(v), size):
        part, first = slice(start, start + size), step + start
        coefs, own = run.coefs[first : first + len(v[part])], (v[part], delta[part])
        if copies > 1:
            coefs = np.repeat(coefs, copies, axis=1)
        if run.kind == gates.RNN:
            delta[part] = coefs
            kernels.rnn_lag_back(run.keep, W, lengths, first, *own)
        else:
            kernels.gated_lag_back(run.kind, W, coefs, lengths, first, *own, recurrent[part])
    if not run.resets:
        recurrent[:] = delta


@dataclasses.dataclass(frozen=True)
class ScaledGradient:
    """A gradient by the names of a cell's arrays, each times a power of two of its own."""

    arrays: dict[str, Float]
    exponents: dict[str, int]

    def parts(self) -> list[tuple[Float, int]]:
        """All arrays together, then each, flat, with the power of two that it is to be times."""
        each = [(a.ravel(), self.exponents[name]) for name, a in self.arrays.items()]
        top = max(exponent for _, exponent in each)
        together = np.concatenate([np.ldexp(a, exponent - top) for a, exponent in each])
        return [(together, top), *each]

    def log_norms(self) -> Float:
        """Ln of the norm of each of `parts`."""
        logs = []
        with np.errstate(divide="ignore"):
            for part, exponent in self.parts():
                _, norm, size = _unit(part)
                logs.append(np.log(size) + np.log(norm) + exponent * LN2)
        return np.array(logs)

    def cosines(self, other: ScaledGradient) -> Float:
        """Cosine of the angle to another gradient, of each of `parts`; nan where one is zero."""
        pairs = zip(self.parts(), other.parts(), strict=True)
        units = [(_unit(a), _unit(b)) for (a, _), (b, _) in pairs]
        with np.errstate(invalid="ignore"):
            return np.array([a @ b / (n * m) for (a, n, _), (b, m, _) in units])

    def minus(self, other: ScaledGradient) -> ScaledGradient:
        """The difference, each array at the power of two of the larger."""
        arrays, exponents = {}, {}
        for name, mine in self.arrays.items():
            here, there = self.exponents[name], other.exponents[name]
            top = exponents[name] = max(here, there)
            arrays[name] = np.ldexp(mine, here - top) - np.ldexp(other.arrays[name], there - top)
        return ScaledGradient(arrays, exponents)


def _unit(a: Float) -> tuple[Float, float, float]:
    """Entries over their largest magnitude, the norm of those, and that magnitude.

    The squares of the entries themselves may leave the range of floats.
    """
    size = float(np.abs(a).max(initial=0.0))
    scaled = a / size if size else a
    return scaled, float(np.linalg.norm(scaled)), size


class Paths:
    """All sequences of a problem, run once, with their losses.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.cell, self.dtype, self.n_steps = problem.cell, problem.dtype, problem.n_steps
        self.networks: list[int] = []
        self.runs: list[list[LayerRun]] = []
        self.losses: list[Array] = []
        for network, rows in problem.groups():
            self.networks.append(network)
            self.runs.append(problem.run(network, rows))
            self.losses.append(problem.loss_gradient(self.runs[-1], rows))
        live = np.zeros(self.n_steps, dtype=np.bool_)
        for loss in self.losses:
            live |= loss.any(axis=(1, 2))
        steps = np.flatnonzero(live)
        self.first, self.last = (int(steps[0]), int(steps[-1]) + 1) if len(steps) else (0, 0)

    def zeros(self, m: int, width: Callable[[LayerRun], int]) -> list[Layers]:
        """Zeros (m, B, width of a layer) for each network and layer."""
        return [
            [np.zeros((m, run.n_sequences, width(run)), self.dtype) for run in runs]
            for runs in self.runs
        ]

    def silent_arrays(self) -> set[str]:
        """Names of the arrays that multiply nothing but zeros: their gradients are exactly zero."""
        silent = set()
        for i, prefix in enumerate(layer_prefixes(self.cell)):
            layer = [runs[i] for runs in self.runs]
            if not any(run.h_before.any() for run in layer):
                silent.add(prefix + "W_hh")
            if not any(run.x is not None and run.x.any() for run in layer):
                silent.add(prefix + "W_xh")
        return silent

    def from_losses(self) -> Walk:
        """The losses themselves: at lag k the parameters meet what comes from k steps on."""
        v = self.zeros(self.n_steps, _state_width)
        for layers, loss in zip(v, self.losses, strict=True):
            layers[-1][..., : loss.shape[-1]] = loss
        return Walk(self, v, np.zeros(self.n_steps, dtype=np.int64), self.first)

    def from_totals(self, window: int = 0) -> Walk:
        """All that later losses send to each state: at lag k, what comes from k steps on or more.

        A `window` cuts as that of :func:`backward` does; 0 cuts nothing.
        """
        v = self.zeros(self.n_steps, _state_width)
        exponents = np.full(self.n_steps, NOTHING, dtype=np.int64)
        carried, *spare = self.zeros(1, _state_width), self.zeros(1, _rows), self.zeros(1, _rows)
        exponent = np.full(1, NOTHING, dtype=np.int64)
        for t in reversed(range(self.last)):
            self._add_losses(carried, exponent, t)
            exponents[t] = exponent[0]
            for kept, now in zip(_flat(v), _flat(carried), strict=True):
                kept[t] = now[0]
            for runs, layers, deltas, recurrents in zip(self.runs, carried, *spare, strict=True):
                back(runs, layers, t, deltas, recurrents)
            if window > 0 and t % window == 0:
                for layer in _flat(carried):
                    layer[:] = 0.0
            rescale(_flat(carried), exponent)
        return Walk(self, v, exponents, 0)

    def _add_losses(self, carried: list[Layers], exponent: Int, t: int) -> None:
        """Add the losses of step t to what is carried, at the power of two of the larger."""
        own = [loss[t : t + 1].copy() for loss in self.losses]
        power = np.zeros(1, dtype=np.int64)
        rescale(own, power)
        top = np.maximum(exponent, power)
        for layer in _flat(carried):
            np.ldexp(layer, exponent - top, out=layer)
        for layers, loss in zip(carried, own, strict=True):
            layers[-1][..., : loss.shape[-1]] += np.ldexp(loss, power - top)
        exponent[:] = top
        rescale(_flat(carried), exponent)


class Walk:
    """Cotangents of all steps on their way back; `back` takes them one lag further.

    Parameters
    ----------
    paths : Paths
    v : list of list of arrays (T, B, s)
        By network and layer.
    exponent : int array (T,)
    first : int
        Entries before it are zero; so are those from the last loss on.
    """

    def __init__(self, paths: Paths, v: list[Layers], exponent: Int, first: int) -> None:
        self.paths, self.v, self.exponent = paths, v, exponent
        self.first, self.lag = first, -1
        self._deltas = paths.zeros(paths.n_steps, _rows)
        self._recurrents = paths.zeros(paths.n_steps, _rows)
        rescale(_flat(v), exponent)
        self._met = exponent.copy()

    def back(self) -> None:
        """Meet the parameters of the next lag (first 0) on the way to the states before."""
        self.lag += 1
        now = slice(max(self.first, self.lag), self.paths.last)
        if now.start >= now.stop:
            return
        self._met = self.exponent.copy()
        for runs, *arrays in zip(
            self.paths.runs, self.v, self._deltas, self._recurrents, strict=True
        ):
            v, deltas, recurrents = ([a[now] for a in layers] for layers in arrays)
            back(runs, v, now.start - self.lag, deltas, recurrents)
        power = self.exponent[now]
        rescale([a[now] for a in _flat(self.v)], power)

    def gradient(self) -> ScaledGradient:
        """What the parameters met on the last call of `back`; to be asked for once a lag."""
        now = slice(max(self.first, self.lag), self.paths.last)
        sums = ParameterSums(self.paths.cell, np.float64)
        exponents = dict.fromkeys(sums.values, NOTHING)
        if now.start >= now.stop:
            return ScaledGradient(sums.values, exponents)
        prefixes = layer_prefixes(self.paths.cell)
        for network, runs, deltas, recurrents in zip(
            self.paths.networks, self.paths.runs, self._deltas, self._recurrents, strict=True
        ):
            for prefix, run, delta, recurrent in zip(
                prefixes, runs, deltas, recurrents, strict=True
            ):
                own = ScaledSum(run, together=True)
                met = np.repeat(self._met[now, None], delta.shape[1], axis=1)
                own.add(now.start - self.lag, delta[now], recurrent[now], met)
                for name, (array, exponent) in own.totals().items():
                    key = prefix + name
                    before, top = exponents[key], max(exponents[key], exponent)
                    np.ldexp(sums.values[key], before - top, out=sums.values[key])
                    sums.place(key, network, np.ldexp(array, exponent - top))
                    exponents[key] = top
        return ScaledGradient(sums.values, exponents)


def rescale(parts: Sequence[Array], exponent: Int) -> None:
    """Bring entry t of all parts together to order one, by a power of two; in place."""
    power = powers(parts, exponent)
    for part in parts:
        np.ldexp(part, (exponent - power)[:, None, None], out=part)
    exponent[:] = power


def powers(parts: Sequence[Array], exponent: Int) -> Int:
    """Power of two of the largest of entry t of all parts together, times 2**exponent."""
    largest = np.zeros(len(exponent))
    for part in parts:
        np.maximum(largest, np.abs(part).max(axis=(1, 2), initial=0.0), out=largest)
    return np.where(largest == 0, NOTHING, exponent + np.frexp(largest)[1])


def _flat(layers: list[Layers]) -> Layers:
    return [a for own in layers for a in own]


def _state_width(run: LayerRun) -> int:
    return int(run.n_state)


def _rows(run: LayerRun) -> int:
    return int(run.arrays.W_hh.shape[0])
