"""What every time step adds to the gradients of a cell's parameters, one step at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float
from gradprop.environment import single_threaded_blas
from gradprop.gradients._layer import LayerGradients, LayerRun, parameter_gradients
from gradprop.gradients._problem import ParameterSums, Problem, layer_prefixes, pulled_layers

Array = NDArray[Any]


class StepContributions:
    """Terms delta_t h_{t-1}^T of a gradient, by the number of steps to each sequence's last one.

    Parameters
    ----------
    problem : Problem
        In float64.
    """

    def __init__(self, problem: Problem) -> None:
        self._cell, self._prefixes = problem.cell, layer_prefixes(problem.cell)
        self.n_lags = int(problem.lengths.max(initial=0))
        self.names = tuple(problem.cell.arrays())
        self._parts: list[tuple[int, list[LayerRun], list[LayerGradients]]] = []
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for network, rows in problem.groups():
                runs = problem.run(network, rows)
                layers, _ = pulled_layers(runs, problem.loss_gradient(runs, rows), 0)
                self._parts.append((network, runs, layers))

    @property
    def slices(self) -> list[slice]:
        """Where all arrays together, then each of them, stand in what `at` returns."""
        ends = np.cumsum([0, *(array.size for array in self._cell.arrays().values())])
        each = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        return [slice(0, int(ends[-1])), *each]

    def at(self, lag: int) -> Float:
        """Contribution of the step `lag` steps before the last one of each sequence, flat."""
        sums = ParameterSums(self._cell, np.float64)
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for network, runs, layers in self._parts:
                for prefix, run, layer in zip(self._prefixes, runs, layers, strict=True):
                    sums.add(prefix, run.cell, network, _one_step(run, layer, lag))
        return np.concatenate([array.ravel() for array in sums.values.values()])


def _one_step(run: LayerRun, layer: LayerGradients, lag: int) -> tuple[Any, ...]:
    """Gradients of a layer's arrays by one step of each sequence; none before its first."""
    step = run.lengths - 1 - lag
    there = (np.maximum(step, 0), np.arange(len(step)))
    before_the_first = (step < 0)[:, None]

    def of_step(gradient: Array) -> Array:
        return np.where(before_the_first, 0.0, gradient[there])[None]

    x = None if run.x is None else run.x[there][None]
    hidden = run.hidden[there][None] if len(run.hidden) else run.hidden
    delta = of_step(layer.delta)
    recurrent = delta if layer.recurrent is layer.delta else of_step(layer.recurrent)
    h = run.h_before[there][None]
    return parameter_gradients(run.arrays, h, x, hidden, delta, recurrent)
