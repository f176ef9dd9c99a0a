"""Orbits in a float format against the orbit in float64."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.cells.custom import CustomCell
from gradprop.gradients._problem import layers_of
from gradprop.linearise import linearise
from gradprop.lyapunov.spectrum import lyapunov_spectrum
from gradprop.orbit import Orbit
from gradprop.precision.emulated import EmulatedOrbit, Rounding
from gradprop.precision.formats import FORMATS, Format, check_rng
from gradprop.precision.quantise import in_float64
from gradprop.precision.stored import Arithmetic
from gradprop.results import REPLICAS, Result, Status
from gradprop.rollout import rollout

LEAST_POINTS = 5
"""Steps that a growth rate is fitted to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrbitError(Result):
    """How far an orbit in a format strays from the orbit in float64.

    Attributes
    ----------
    error : float array, shape (..., T + 1)
        2-norm of the difference of the full states; nan where one of the orbits has overflowed.
    shadowing_time : int array, shape (...,)
        First step, from 1 on, at which it exceeds `tol`; 0 where it does not.
    growth_rate : float array, shape (...,)
        Slope of a straight line through ln error, nats per step, from the first error that is not
        zero to the last one before `shadowing_time`; nan if those are fewer than five steps.
    largest_exponent : float array, shape (...,)
        lambda_1 of the orbit in float64, over all its steps.
    late_error : float array, shape (...,)
        Root mean square of the error over the states (T + 1) // 2 ... T.
    status : int array, shape (...,)
        NO_GROWTH_RATE where the rate is nan; OVERFLOWED; further flags of the exponent.
    fmt, accumulate : str
    tol : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "error": (REPLICAS, "step"),
        "shadowing_time": (REPLICAS,),
        "growth_rate": (REPLICAS,),
        "largest_exponent": (REPLICAS,),
        "late_error": (REPLICAS,),
        "status": (REPLICAS,),
    }
    error: Float
    shadowing_time: Int
    growth_rate: Float
    largest_exponent: Float
    late_error: Float
    status: Int
    fmt: str
    accumulate: str
    tol: float


class TwoOrbits:
    """The same orbit in float64 and in a format: states (R, T + 1, m) of both.

    Parameters
    ----------
    cell, x, h0, n_steps, fmt, accumulate, rng
        As :func:`orbit_error`.
    """

    def __init__(
        self, cell: Cell, x: Any, h0: Any, n_steps: int | None, fmt: Any, accumulate: Any, rng: Any
    ) -> None:
        self.arithmetic = Arithmetic.checked(fmt, accumulate, False)
        generator = None if rng is None else _checks.generator("rng", rng)
        if self.arithmetic.stochastic:
            check_rng(rng, self.arithmetic.fmt, self.arithmetic.accumulator)
        native = self.arithmetic.fmt == self.arithmetic.accumulator == FORMATS["float32"]
        if isinstance(cell, CustomCell):
            if not native:
                raise TypeError(
                    "`fmt` must be float32 for a CustomCell, whose operations are not known; got "
                    f"{self.arithmetic.fmt.name}."
                )
            self.cell: Cell = cell
        else:
            layers_of(cell)
            self.cell = in_float64(cell)
        self.rounding = Rounding(self.arithmetic, generator)
        self.orbit = Orbit(self.cell, x, h0, n_steps, None, generator, np.float64)
        self.exact, valid = self._run(np.float64)
        if native:
            self.low, low_valid = self._run(np.float32)
        else:
            self.low, low_valid = EmulatedOrbit(self.cell, self.orbit, self.rounding).states()
        self.n_valid = np.minimum(valid, low_valid)

    def given(self) -> dict[str, Any]:
        """Input, start and number of steps, for functions that run an orbit."""
        orbit = self.orbit
        start = orbit.start.reshape(*orbit.batch_shape, orbit.start.shape[-1])
        return {"x": orbit.x, "h0": start, "n_steps": orbit.n_steps}

    def _run(self, dtype: Any) -> tuple[Float, Int]:
        orbit = self.orbit
        run = rollout(self.cell, **self.given(), dtype=dtype)
        states = run.state.reshape(orbit.n_replicas, *run.state.shape[-2:])
        return states.astype(np.float64), run.n_valid.reshape(-1)


def orbit_error(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    fmt: str | Format = "float32",
    accumulate: str | Format | None = None,
    tol: float = 0.1,
    rng: Any = None,
) -> OrbitError:
    r"""How fast an orbit in a float format leaves the orbit in float64.

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked; CustomCell in float32 alone
    x, h0, n_steps
        As :func:`rollout`.
    fmt : str or Format, default: "float32"
        A name (see :class:`Format`), or a format of at most 25 bits of precision and 10 of
        exponent.
    accumulate : str or Format, optional
        Format of products and sums; default: `fmt` itself.
    tol : float > 0, default: 0.1
        2-norm of the difference of the states up to which the orbit counts as shadowed.
    rng : optional
        Seed or generator of the random start of an autonomous cell, and of random rounding.

    Returns
    -------
    OrbitError
        ``error`` (..., T + 1), ``shadowing_time``, ``growth_rate`` beside ``largest_exponent``,
        ``late_error``; ``status``.

    Raises
    ------
    ValueError, TypeError
        As :func:`rollout`; an unknown format, an accumulator narrower than the format, a tol that
        is not positive; a format that rounds at random without rng; a CustomCell in a format other
        than float32; a Bidirectional.

    Notes
    -----
    Parameters, input and start are rounded to the format first (of two biases of a GRU that are
    added anyway, their sum); for the rounding of operations alone give :func:`quantised` cells.
    float32 is run by the processor, as :func:`rollout` with that dtype. All others are emulated,
    operation by operation: W h and W_xh x with j ascending, terms and sums rounded in the
    accumulator, then once to the format; then the input part plus the bias, the sum of both parts,
    phi (computed in float64, rounded once), and each product and sum of gates and leak.

    A contracting network keeps the error at about the rounding of one step over 1 - exp(lambda_1),
    a chaotic one loses the orbit after ln(tol / eps) / lambda_1 steps: what is measured along it is
    then another orbit of the same network (:func:`product_error` says what that does to the long
    product). Cost of emulation about 4 ns an operation of W h and 0.2 ms a step.

    References
    ----------
    .. [1] S. M. Hammel, J. A. Yorke, C. Grebogi, Do numerical orbits of chaotic dynamical processes
       represent true orbits? J. Complexity 3, 136 (1987).

    Examples
    --------
    >>> import gradprop as gp
    >>> cell = gp.RNN([[0.5]], activation="linear")  # halving is exact; only the start is rounded
    >>> found = gp.orbit_error(cell, h0=[0.1], n_steps=8, fmt="bfloat16")
    >>> round(float(found.growth_rate), 6), round(float(found.largest_exponent), 6)
    (-0.693147, -0.693147)
    """
    tol = _checks.real("tol", tol, above=0.0)
    both = TwoOrbits(cell, x, h0, n_steps, fmt, accumulate, rng)
    with np.errstate(over="ignore"):
        error = np.linalg.norm(both.low - both.exact, axis=-1)
    beyond = error > tol
    beyond[:, 0] = False
    first = np.where(beyond.any(axis=1), beyond.argmax(axis=1), 0)
    rate = np.array([_slope(e, n if n else e.size) for e, n in zip(error, first, strict=True)])
    half = error[:, error.shape[1] // 2 :]
    chain = linearise(both.cell, **both.given())
    spectrum = lyapunov_spectrum(chain, 1)
    status = np.where(np.isnan(rate), int(Status.NO_GROWTH_RATE), 0)
    status |= np.where(both.n_valid < both.orbit.n_steps, int(Status.OVERFLOWED), 0)
    shape = both.orbit.batch_shape
    return OrbitError(
        roles=both.orbit.roles,
        error=error.reshape(*shape, -1),
        shadowing_time=first.reshape(shape),
        growth_rate=rate.reshape(shape),
        largest_exponent=spectrum.exponents.reshape(shape),
        late_error=np.sqrt((half**2).mean(axis=1)).reshape(shape),
        status=status.reshape(shape) | spectrum.status.reshape(shape),
        fmt=both.arithmetic.fmt.name,
        accumulate=both.arithmetic.accumulator.name,
        tol=tol,
    )


def _slope(error: Float, end: int) -> float:
    """Least-squares slope of ln error over the steps before `end` at which there is one."""
    steps = np.flatnonzero((error > 0) & (np.arange(error.size) < end) & np.isfinite(error))
    if len(steps) < LEAST_POINTS:
        return float("nan")
    centred = steps - steps.mean()
    return float(centred @ np.log(error[steps]) / (centred @ centred))
