"""State memory: perturbed states followed forward, which the gradient says nothing about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.horizon import QUANTILES
from gradprop.orbit import Orbit
from gradprop.results import Result

STARTS, HOLD, WATCH = 64, 500, 50
"""Perturbed states; steps that each is held under a constant input, and watched afterwards."""

MEMORY_FLOPS = 2e10
"""Work that all starts may take together: large networks get fewer of them, 8 at least."""

FORGOTTEN = 0.01
"""A perturbation is forgotten once its distance is below this part of what it was."""

APART = 0.01
"""End states are different if further apart than this part of the spread of the orbit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory(Result):
    """What becomes of finite perturbations of the state: visited states put in place of each other.

    Attributes
    ----------
    driven : float array, shape (3,)
        5 %, 50 % and 95 % of the steps after which a perturbation is below a hundredth of its
        size, under the given input; inf: not within the sequence.
    driven_kept : float array, shape ()
        Share of perturbations that are not forgotten at its end.
    end_states : int array, shape ()
        Different states in which the network comes to rest under a constant input.
    sizes : int array, shape (K,)
        How many of the perturbed states end in each, the largest first.
    switched : float array, shape ()
        Share of pairs of perturbed states that come to rest in different ones.
    moving : float array, shape ()
        Share of perturbed states that do not come to rest.
    n_driven, n_hold : int
        Steps followed under the given and under the constant input.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "driven": ("quantile",),
        "driven_kept": (),
        "end_states": (),
        "sizes": ("end_state",),
        "switched": (),
        "moving": (),
    }
    _table: ClassVar[str] = "sizes"
    driven: Float
    driven_kept: Float
    end_states: Int
    sizes: Int
    switched: Float
    moving: Float
    n_driven: int
    n_hold: int

    @property
    def bits(self) -> float:
        """Bits that the end states found can hold: log2 of their number; 0 if there are none."""
        return float(np.log2(max(int(self.end_states), 1)))


def memory(cell: Cell, x: Any, n_steps: int, rng: Any) -> Memory:
    """Follow visited states forward, under the given input (one sequence, or None) and at rest."""
    weights = sum(array.size for array in cell.arrays().values())
    affordable = MEMORY_FLOPS / (2.0 * max(weights, 1) * (HOLD + WATCH + n_steps))
    starts = int(np.clip(affordable, 8, STARTS))
    visited = _visited(Orbit(cell, x, None, n_steps, None, rng, None), starts)
    if len(visited) < 2 or _spread(visited) == 0:
        # an orbit that does not move shows no size of its own
        visited = np.random.default_rng(0).standard_normal((starts, cell.n_state))
    half = n_steps // 2
    later = None if x is None else x[half:n_steps]
    distances = _distances(Orbit(cell, later, visited, n_steps - half, None, None, None))
    forgotten = _forgotten(distances)
    quiet = None if x is None else np.tile(np.median(x, axis=0), (HOLD + WATCH, 1))
    hold = Orbit(cell, quiet, visited, HOLD + WATCH, None, None, None)
    ends, rest = _end_states(hold, _spread(visited))
    sizes = _groups(ends[rest], APART * _spread(visited))
    n_rest = max(int(sizes.sum()), 1)
    return Memory(
        driven=np.quantile(forgotten, QUANTILES, method="inverted_cdf"),
        driven_kept=np.array(np.isinf(forgotten).mean()),
        end_states=np.array(len(sizes), dtype=np.int64),
        sizes=sizes,
        switched=np.array(1.0 - float(np.square(sizes / n_rest).sum()) if len(sizes) else 0.0),
        moving=np.array(1.0 - float(rest.mean())),
        n_driven=n_steps - half,
        n_hold=HOLD,
    )


def walk(orbit: Orbit) -> Iterator[Float]:
    """States after each step, (R, m, s) at a time."""
    state, n_valid = orbit.start.copy(), orbit.lengths.copy()
    for first in range(0, orbit.n_steps, orbit.chunk):
        last = min(first + orbit.chunk, orbit.n_steps)
        yield orbit.advance(state, n_valid, first, last)[0].astype(np.float64)


def _visited(orbit: Orbit, number: int) -> Float:
    """States at equal distances over the second half of the orbit, (S, s); finite ones only."""
    wanted = np.unique(np.linspace(orbit.n_steps // 2, orbit.n_steps - 1, number).astype(int))
    found, first = [], 0
    for states in walk(orbit):
        here = wanted[(wanted >= first) & (wanted < first + states.shape[1])]
        found.append(states[0, here - first])
        first += states.shape[1]
    visited = np.concatenate(found)
    return np.asarray(visited[np.isfinite(visited).all(axis=1)])


def _spread(states: Float) -> float:
    """Root mean square distance of states from their mean."""
    return float(np.sqrt(np.square(states - states.mean(axis=0)).sum(axis=1).mean()))


def _distances(orbit: Orbit) -> Float:
    """Distance of every start from the first one, relative to what it was: (S - 1, steps + 1)."""
    parts = [orbit.start[:, None].astype(np.float64), *walk(orbit)]
    gaps = np.concatenate([np.linalg.norm(p - p[:1], axis=-1)[1:] for p in parts], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((gaps / gaps[:, :1])[gaps[:, 0] > 0])


def _forgotten(distances: Float) -> Float:
    """First step from which a distance stays below FORGOTTEN; inf: it does not."""
    if not len(distances):
        return np.array([np.nan])
    above = ~(distances < FORGOTTEN)
    last = above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)
    return np.where(last + 1 < above.shape[1], last + 1.0, np.inf)


def _end_states(orbit: Orbit, spread: float) -> tuple[Float, NDArray[np.bool_]]:
    """Last states (S, s), and which of them have come to rest over the last WATCH steps."""
    low = np.full(orbit.start.shape, np.inf)
    high = -low
    last, first = low, 0
    for states in walk(orbit):
        late = states[:, max(orbit.n_steps - WATCH - first, 0) :]
        first += states.shape[1]
        if late.shape[1]:
            low, high = np.minimum(low, late.min(axis=1)), np.maximum(high, late.max(axis=1))
            last = late[:, -1]
    with np.errstate(invalid="ignore"):
        moved = np.linalg.norm(high - low, axis=1)
        return last, np.asarray(moved <= 0.1 * APART * max(spread, 1e-300))


def _groups(states: Float, apart: float) -> Int:
    """Sizes of groups of states, each within `apart` of the first of its group."""
    leaders: list[Float] = []
    sizes: list[int] = []
    for state in states:
        near = [i for i, leader in enumerate(leaders) if np.linalg.norm(state - leader) <= apart]
        if near:
            sizes[near[0]] += 1
        else:
            leaders.append(state)
            sizes.append(1)
    return np.sort(np.array(sizes, dtype=np.int64))[::-1]
