"""What limits a network's reach: sampling noise, floats, chaos; and the gain at the edge."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float
from gradprop.cells.base import Cell, GatedCell
from gradprop.cells.composite import Stacked
from gradprop.cells.custom import CustomCell
from gradprop.diagnosis.memory import walk
from gradprop.edge import EdgeOfChaos, edge_of_chaos
from gradprop.gradients._problem import layers_of
from gradprop.linearise import linearise
from gradprop.lyapunov.spectrum import LyapunovSpectrum, lyapunov_spectrum
from gradprop.orbit import Orbit
from gradprop.pooling import pool
from gradprop.precision.absorption import absorption
from gradprop.precision.formats import Format
from gradprop.precision.lags import PrecisionEvents
from gradprop.precision.quantise import decay_ceiling, with_arrays
from gradprop.results import Result

ABSORPTION_TERMS = 4e7
"""Terms added up for the absorption, 60 ns each: a loss at the end, and so many lags before it."""

EDGE_STEPS, EDGE_STATE, WIDEST = 500, 600, 8.0
"""Steps of each run in search of the edge; the widest state for which it is looked for (the runs
form Jacobians: a minute in all at 1024); how far the gain is moved either way."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(Result):
    """Lags at which each limit takes the gradient away.

    Attributes
    ----------
    limits : str array, shape (K,)
        "statistical": relative norm below samples**-0.5. "resolution": below the relative step of
        the format, where adding it to the gradient of lag 0 changes nothing. "underflow": the
        vector is zero in the format. "absorption": half of the entries of the gradient of the
        parameters, summed in the format, change no more. "ceiling": the slowest decay
        short of 1 that the format can store has fallen to the tolerance (of gates and leaky units
        only). "chaos": the norm doubles, ln 2 / lambda_1, where the interval
        of lambda_1 is above 0.
    steps : float array, shape (K,)
        Steps; inf where the limit does not bind. A lag beyond the sequence is that of the line of
        slope lambda_1 through its end.
    extrapolated : bool array, shape (K,)
    binds : str
        The lowest; "" if none binds.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "limits": ("limit",),
        "steps": ("limit",),
        "extrapolated": ("limit",),
    }
    _table: ClassVar[str] = "steps"
    limits: NDArray[np.str_]
    steps: Float
    extrapolated: NDArray[np.bool_]
    binds: str

    def of(self, name: str) -> float:
        """Steps of one limit; nan if it was not looked at."""
        found = [s for limit, s in zip(self.limits, self.steps, strict=True) if limit == name]
        return float(found[0]) if found else math.nan


def budget(
    relative: Float,
    events: PrecisionEvents,
    fmt: Format,
    samples: int | None,
    leading: tuple[float, float, float],
    further: dict[str, tuple[float, bool]],
) -> Budget:
    """Limits of a typical gradient: ln of its relative norm by lag, its events in a format."""
    rate, low, _ = leading
    rows: dict[str, tuple[float, bool]] = {}
    if samples is not None:
        rows["statistical"] = passing_lag(relative, -0.5 * math.log(samples), rate)
    rows["resolution"] = passing_lag(relative, fmt.log_eps, rate)
    zero = np.ravel(events.n_zero)
    seen = zero[zero > 0]
    rows["underflow"] = (
        (float(np.median(seen)), False)
        if 2 * len(seen) > len(zero)
        else passing_lag(relative, fmt.log_min_subnormal - math.log(2.0), rate)
    )
    rows |= further
    # lambda_1 has to be told from 0: at the edge its estimate is positive half of the time
    rows["chaos"] = (math.log(2.0) / rate if low > 0 else math.inf, False)
    steps = np.array([value for value, _ in rows.values()])
    names = np.array(list(rows))
    return Budget(
        limits=names,
        steps=steps,
        extrapolated=np.array([far for _, far in rows.values()]),
        binds=str(names[steps.argmin()]) if np.isfinite(steps).any() else "",
    )


def stored_limits(
    cell: Cell, x: Any, end: int, u: Float, fmt: Format, tol: float
) -> dict[str, tuple[float, bool]]:
    """What the format does to sums of gradients and to stored decays, in steps."""
    rows: dict[str, tuple[float, bool]] = {}
    layers = cell.cells if isinstance(cell, Stacked) else (cell,)
    if any(isinstance(c, GatedCell) or getattr(c, "leak", 1.0) < 1 for c in layers):
        rows["ceiling"] = (math.ceil(-math.log(tol) * float(decay_ceiling(fmt).memory)), False)
    if x is not None and not isinstance(cell, CustomCell) and end > 1:
        rows["absorption"] = (_absorbed_from(cell, x, end, u, fmt), False)
    return rows


def _absorbed_from(cell: Cell, x: Any, end: int, u: Float, fmt: Format) -> float:
    """First lag absorbed, of a loss at step `end`; inf: not within the lags that are summed."""
    n_parameters = sum(array.size for array in cell.arrays().values())
    steps = int(np.clip(ABSORPTION_TERMS // n_parameters, 2, end))
    # the steps before them only carry the state there
    before = Orbit(cell, x[: end - steps], None, None, None, None, None)
    start = before.start[0]
    for states in walk(before):
        start = states[0, -1]
    last = np.zeros((steps, cell.n))
    last[-1] = u[cell.output]
    try:
        found = absorption(cell, x[end - steps : end], last, fmt, h0=start)
    except ValueError:
        return math.inf  # an orbit that overflows
    # contributions that are exactly zero (of silent inputs, of a start of zeros) tell nothing
    there, changing = 1.0 - found.zero[:, 0], 1.0 - found.absorbed[:, 0]
    kept = np.flatnonzero((there > 0) & (changing >= 0.5 * there))
    if not kept.size or kept[-1] == np.flatnonzero(there > 0)[-1]:
        return math.inf
    return float(kept[-1] + 1)


def passing_lag(relative: Float, level: float, rate: float) -> tuple[float, bool]:
    """First lag below a level, and whether it had to be extrapolated beyond the curve."""
    known = relative[~np.isnan(relative)]
    below = np.flatnonzero(known < level)
    if below.size:
        return float(below[0]), False
    if not rate < 0 or not known.size:
        return math.inf, False
    return float(len(known) - 1 + math.ceil((level - known[-1]) / rate)), True


def leading_exponent(spectrum: LyapunovSpectrum) -> tuple[float, float, float]:
    """lambda_1 and its interval: over sequences where there are several, else over time."""
    if spectrum.roles and spectrum.exponents.shape[0] > 1:
        pooled = pool(spectrum)
        low, high = map(float, pooled.interval[0])
        return float(pooled.mean[0]), low, high
    first = spectrum.exponents.reshape(-1, spectrum.exponents.shape[-1])[0]
    low, high = spectrum.interval.reshape(-1, *spectrum.interval.shape[-2:])[0, 0]
    return float(first[0]), float(low), float(high)


def scaled_recurrence(cell: Cell, gain: float) -> Cell:
    """The cell, in float64, with all its recurrent weights multiplied by `gain`."""
    return with_arrays(cell, lambda name, array: array * (gain if name.endswith("W_hh") else 1.0))


def edge(
    cell: Cell, x: Any, n_steps: int, leading: tuple[float, float, float]
) -> EdgeOfChaos | None:
    """The gain of the recurrent weights at which lambda_1 is zero, if it lies within WIDEST."""
    rate, low, high = leading
    try:
        layers_of(cell)
    except TypeError:
        return None
    if not math.isfinite(rate) or rate == 0 or low <= 0 <= high or n_steps < 40:
        return None
    if cell.n_state > EDGE_STATE:
        return None
    steps = min(n_steps, EDGE_STEPS)
    burn_in = steps // 5

    def exponent(gain: float) -> float:
        chain = linearise(scaled_recurrence(cell, gain), x, n_steps=steps, rng=0)
        return float(lyapunov_spectrum(chain, 1, burn_in=burn_in).exponents[0])

    factor = 2.0**0.5 if rate < 0 else 0.5**0.5
    inner, gain = 1.0, factor
    while 1 / WIDEST <= gain <= WIDEST:
        if exponent(gain) * rate < 0:
            ends = (min(inner, gain), max(inner, gain))
            return _root(cell, x, ends, steps, burn_in)
        inner, gain = gain, gain * factor
    return None


def _root(
    cell: Cell, x: Any, ends: tuple[float, float], steps: int, burn_in: int
) -> EdgeOfChaos | None:
    def make(gain: float, rng: np.random.Generator) -> Any:
        del rng  # the input is the same at every gain
        other = scaled_recurrence(cell, gain)
        return other if x is None else (other, x)

    try:
        return edge_of_chaos(
            make, bracket=ends, n_steps=steps, burn_in=burn_in, rng=0, xtol=1e-3 * ends[1]
        )
    except ValueError:
        # fewer steps than the exponent was taken over: the change of sign is within its noise
        return None
