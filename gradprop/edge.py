"""The edge of chaos: the gain at which the leading Lyapunov exponent passes through zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.chain import JacobianChain
from gradprop.linearise import linearise
from gradprop.lyapunov.spectrum import lyapunov_spectrum
from gradprop.pooling import pool
from gradprop.results import Result, Status

Made = Cell | tuple[Cell, ArrayLike] | JacobianChain


@dataclasses.dataclass(frozen=True, kw_only=True)
class EdgeOfChaos(Result):
    """Critical gain, and everything that was measured on the way.

    Attributes
    ----------
    gain : float array, shape ()
        Where the leading exponent is zero.
    interval : float array, shape (2,)
        Interval of the exponent at ``gain``, carried over by ``slope``.
    exponent : float array, shape ()
        Leading exponent at ``gain``, nats per step.
    slope : float array, shape ()
        Its change with the gain there: secant over about four half widths of its interval.
    gains, exponents : float arrays, shape (E,)
        All evaluations, by gain.
    status : int array, shape ()
    n_steps, burn_in : int
    confidence : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "gain": (),
        "interval": ("end",),
        "exponent": (),
        "slope": (),
        "gains": ("evaluation",),
        "exponents": ("evaluation",),
        "status": (),
    }
    _table: ClassVar[str] = "gains"
    gain: Float
    interval: Float
    exponent: Float
    slope: Float
    gains: Float
    exponents: Float
    status: Int
    n_steps: int
    burn_in: int
    confidence: float


class _Exponent:
    """Leading exponent as a function of the gain, the same random numbers at every gain."""

    def __init__(
        self, make: Callable[[float, np.random.Generator], Made], settings: dict[str, Any], rng: Any
    ) -> None:
        self._make, self._settings = make, settings
        self._seed = int(_checks.generator("rng", rng).integers(2**63))
        self.known: dict[float, tuple[float, float, float, int]] = {}

    def __call__(self, gain: float) -> float:
        """The exponent."""
        return self.at(float(gain))[0]

    def at(self, gain: float) -> tuple[float, float, float, int]:
        """Exponent, ends of its interval and status."""
        if gain not in self.known:
            self.known[gain] = self._measured(gain)
        return self.known[gain]

    def _measured(self, gain: float) -> tuple[float, float, float, int]:
        of_make, of_start = (
            np.random.default_rng(seed) for seed in np.random.SeedSequence(self._seed).spawn(2)
        )
        chain = self._chain(self._make(gain, of_make), of_start)
        burn_in, confidence = self._settings["burn_in"], self._settings["confidence"]
        spectrum = lyapunov_spectrum(chain, 1, burn_in=burn_in, confidence=confidence)
        values, ends, status = spectrum.exponents, spectrum.interval, int(spectrum.status.max())
        if spectrum.roles:
            pooled = pool(spectrum, confidence=confidence)
            values, ends, status = pooled.mean, pooled.interval, int(pooled.status)
        if np.isnan(values[0]):
            raise ValueError(
                f"`make` must give chains with a leading exponent; at gain {gain:.6g} it is nan: "
                f"{Status(status).text}"
            )
        return float(values[0]), float(ends[0, 0]), float(ends[0, 1]), status

    def _chain(self, made: Made, rng: np.random.Generator) -> JacobianChain:
        n_steps = self._settings["n_steps"]
        if isinstance(made, JacobianChain):
            if made.n_steps != n_steps:
                raise ValueError(
                    f"`make` must give chains of `n_steps` = {n_steps} steps; got {made.n_steps}."
                )
            return made
        cell, x = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        if not isinstance(cell, Cell):
            raise TypeError(
                "`make` must return a cell, a pair (cell, x) or a JacobianChain; "
                f"got {type(made).__name__}."
            )
        return linearise(cell, x, n_steps=n_steps, rng=rng)


def edge_of_chaos(
    make: Callable[[float, np.random.Generator], Made],
    *,
    bracket: tuple[float, float],
    n_steps: int,
    burn_in: int,
    rng: Any = 0,
    confidence: float = 0.95,
    xtol: float = 1e-6,
) -> EdgeOfChaos:
    r"""Critical gain: the root of the leading Lyapunov exponent, with its interval.

    .. math:: \lambda_1(g_c) = 0

    Parameters
    ----------
    make : callable (gain, rng) -> cell, (cell, x) or JacobianChain
        Builds the system at a gain. It gets a fresh generator in the same state every time: gains
        then differ in nothing but the gain. Leading axes of the cell or the input are replicas,
        over which the exponent is averaged.
    bracket : (float, float)
        Gains between which the exponent changes its sign.
    n_steps : int
        Steps of each run, the burn-in included.
    burn_in : int in 0 .. n_steps - 1
        Steps dropped: the orbit reaches its attractor, the tangent vector turns into place.
    rng : seed or Generator, default: 0
    confidence : float in (0, 1), default: 0.95
    xtol : float, default: 1e-6
        Width of the bracket at which the search stops.

    Returns
    -------
    EdgeOfChaos
        ``gain``, ``interval``, ``slope``, all ``gains`` and ``exponents`` evaluated, ``status``.

    Raises
    ------
    ValueError, TypeError
        Exponents of one sign at both ends (both are named), an exponent that is nan, a `make` that
        returns something else, burn_in >= n_steps.

    Notes
    -----
    Brent's method [1]_ on the exponent with common random numbers, about ten runs, and two more for
    the slope. The interval is that of the exponent at the root over the slope: of one network it
    knows time sampling only (batch means), of several replicas it is Student's t over them.

    The root is that of this n, these steps and these random numbers. In chaos the exponent of a
    finite run is not continuous in the gain: below about one standard error the root is one of
    many. Networks without input have exponents of exactly 0 on limit cycles and tori, over whole
    ranges of gains near the onset; there no root is better than another.

    References
    ----------
    .. [1] R. P. Brent, Algorithms for minimization without derivatives (1973), chapter 4.
    .. [2] L. Molgedey, J. Schuchhardt, H. G. Schuster, Suppressing chaos in neural networks by
       noise, Phys. Rev. Lett. 69 (1992) 3717: what to expect of driven networks.

    Examples
    --------
    >>> import gradprop as gp
    >>> def make(gain, rng):
    ...     return gp.RNN([[0.0, gain], [gain, 0.0]], activation="linear")
    >>> edge = gp.edge_of_chaos(make, bracket=(0.5, 2.0), n_steps=60, burn_in=20)
    >>> round(float(edge.gain), 6), round(float(edge.slope), 2)  # ln g = 0
    (1.0, 1.0)
    """
    from scipy.optimize import brentq

    if not callable(make):
        raise TypeError(f"`make` must be callable as make(gain, rng); got {type(make).__name__}.")
    low, high = _ends_of(bracket)
    n_steps = _checks.integer("n_steps", n_steps, minimum=1)
    settings: dict[str, Any] = {
        "n_steps": n_steps,
        "burn_in": _checks.integer("burn_in", burn_in, minimum=0, maximum=n_steps - 1),
        "confidence": _checks.real("confidence", confidence, above=0.0, below=1.0),
    }
    exponent = _Exponent(make, settings, rng)
    ends = exponent(low), exponent(high)
    if ends[0] * ends[1] > 0:
        raise ValueError(
            "`bracket` must enclose a change of sign of the leading exponent; "
            f"got {ends[0]:.4g} at gain {low:.6g} and {ends[1]:.4g} at gain {high:.6g}."
        )
    root = float(brentq(exponent, low, high, xtol=_checks.real("xtol", xtol, above=0.0)))
    value, below, above, status = exponent.at(root)
    slope = _secant(exponent, root, 0.5 * (above - below), (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        interval = np.sort(root - np.array([below, above]) / np.float64(slope))
    tried = np.array(sorted(exponent.known))
    return EdgeOfChaos(
        gain=np.array(root),
        interval=interval,
        exponent=np.array(value),
        slope=np.array(slope),
        gains=tried,
        exponents=np.array([exponent.known[gain][0] for gain in tried]),
        status=np.array(status),
        **settings,
    )


def _ends_of(bracket: Any) -> tuple[float, float]:
    """Both ends, in order."""
    ends = _checks.real_array("bracket", bracket)
    if ends.shape != (2,) or ends[0] == ends[1]:
        raise ValueError(f"`bracket` must be two different gains; got {bracket!r}.")
    return float(ends.min()), float(ends.max())


def _secant(
    exponent: _Exponent, root: float, half_width: float, bracket: tuple[float, float]
) -> float:
    """Slope at the root, over a distance at which it stands out of the noise."""
    low, high = bracket
    coarse = abs(exponent(high) - exponent(low)) / (high - low)
    reach = 2.0 * half_width / coarse if coarse > 0 and np.isfinite(half_width) else 0.0
    reach = float(np.clip(reach, 1e-3 * (high - low), high - low))
    a, b = max(low, root - reach), min(high, root + reach)
    return (exponent(b) - exponent(a)) / (b - a)
