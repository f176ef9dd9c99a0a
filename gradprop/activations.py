"""Activations: phi, phi' computed from z, and the exact range of phi'."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._kernels import activations as kernels
from gradprop._kernels import rows

BLOCK = 2**22
"""Entries per kernel call: at most 0.2 s, so that an interrupt gets through."""
ABOVE_TWO_OVER_SQRT_PI = 1.1283791670955128
RANGES: dict[str, tuple[float, float]] = {
    "tanh": (0.0, 1.0),
    "relu": (0.0, 1.0),
    "leaky_relu": (0.01, 1.0),
    "sigmoid": (0.0, 0.25),
    "hard_tanh": (0.0, 1.0),
    "softplus": (0.0, 1.0),
    "erf": (0.0, ABOVE_TWO_OVER_SQRT_PI),
    "gelu": (-0.1289041451851548, 1.128904145185155),
    "selu": (0.0, 1.758099340847377),
    "linear": (1.0, 1.0),
    "hard_sigmoid": (0.0, 0.2),
}
"""(inf phi', sup phi'); irrational ends are the next float outwards."""


@dataclasses.dataclass(frozen=True)
class Activation:
    r"""An activation :math:`\varphi` with its derivative and the range of the derivative.

    Built-in ones come from :func:`activation`; the constructor makes one's own from a pair of
    compiled functions, and checks the pair on 97 points of [-12, 12].

    Parameters
    ----------
    name : str
        Not the name of a built-in.
    phi, dphi : functions compiled by ``numba.njit``, float -> float
        :math:`\varphi(z)` and :math:`\varphi'(z)`. For float32 orbits they should return the type
        of z; a float literal inside makes the result float64.
    dphi_range : (float, float)
        :math:`(\inf\varphi', \sup\varphi')`, rounded outwards; may be infinite. Bounds and
        certificates trust it: points outside the sample are not checked.

    Attributes
    ----------
    code : int or None
        Number of a built-in in the kernels; None for one's own.
    gamma : float
        :math:`\sup|\varphi'|`.

    Raises
    ------
    TypeError
        `phi` or `dphi` is not compiled by ``numba.njit``, or does not map a float to a float.
    ValueError
        The name is empty or taken; the range is not ordered or holds nan; at a sample point
        `phi` or `dphi` is not finite, `dphi` is outside the range, or `dphi` differs from the
        central difference of `phi` by more than 1e-6 and ten times the difference's own error.

    Examples
    --------
    >>> import numba, gradprop as gp
    >>> phi = numba.njit(lambda z: z / (1 + abs(z)))
    >>> dphi = numba.njit(lambda z: 1 / (1 + abs(z)) ** 2)
    >>> softsign = gp.Activation("softsign", phi, dphi, (0.0, 1.0))
    >>> softsign.gamma, softsign.derivative([0.0, 1.0])
    (1.0, array([1.  , 0.25]))
    """

    name: str
    phi: Callable[[Any], Any]
    dphi: Callable[[Any], Any]
    dphi_range: tuple[float, float]
    code: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_compiled("phi", self.phi)
        _check_compiled("dphi", self.dphi)
        object.__setattr__(self, "dphi_range", _checked_range(self.dphi_range))
        _check_pair(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Built-ins are pickled by name, so that workers get their own compiled functions."""
        if self.code is not None:
            return activation, (self.name,)
        return Activation, (self.name, self.phi, self.dphi, self.dphi_range)

    @property
    def gamma(self) -> float:
        """Supremum of |phi'|, the factor that turns ‖W‖ into a bound on ‖diag(phi') W‖."""
        return max(abs(end) for end in self.dphi_range)

    def evaluate(self, z: ArrayLike) -> NDArray[Any]:
        """Return phi(z), entry by entry.

        Parameters
        ----------
        z : array_like of float, any shape
            Infinities give the limit of a built-in, nan gives nan.

        Returns
        -------
        float array (or scalar), shape of `z`
            float32 for float32 input, else float64.

        Raises
        ------
        TypeError
            `z` is complex, longdouble or does not hold numbers.

        Notes
        -----
        Built-ins are within 3 units in the last place, down to the subnormal numbers.

        Examples
        --------
        >>> from gradprop.activations import activation
        >>> activation("tanh").evaluate([0.0, 1.0])
        array([0.        , 0.76159416])
        """
        return self._mapped(z, derivative=False)

    def derivative(self, z: ArrayLike) -> NDArray[Any]:
        """Return phi'(z) from z, entry by entry.

        Parameters
        ----------
        z : array_like of float, any shape
            Pre-activations (not phi(z)).

        Returns
        -------
        float array (or scalar), shape of `z`
            float32 for float32 input, else float64.

        Raises
        ------
        TypeError
            `z` is complex, longdouble or does not hold numbers.

        Notes
        -----
        Built-ins are within 3 units in the last place, down to the subnormal numbers, and never
        above the supremum in `dphi_range`. Exception: gelu' has a zero near -0.7518, around which
        its error is 3 units of 0.25.

        Examples
        --------
        >>> from gradprop.activations import activation
        >>> activation("tanh").derivative([0.0, 20.0])
        array([1.0000000e+00, 1.6993417e-17])
        """
        return self._mapped(z, derivative=True)

    def _mapped(self, z: ArrayLike, *, derivative: bool) -> NDArray[Any]:
        values = _checks.real_array("z", z, keep_float32=True, finite=False)
        flat = values.reshape(-1)
        out, row = np.empty_like(flat), rows.dphi_row if derivative else rows.phi_row
        for start in range(0, flat.size, BLOCK):
            part = slice(start, start + BLOCK)
            if self.code is not None:
                row(self.code, flat[part], out[part])
            else:
                kernels.apply_custom(self.dphi if derivative else self.phi, flat[part], out[part])
        return out.reshape(values.shape)[()]


def activation(name: str | Activation) -> Activation:
    """Look an activation up by name; an :class:`Activation` is returned as it is.

    Parameters
    ----------
    name : str or Activation
        tanh, relu, leaky_relu (slope 0.01), sigmoid, hard_tanh, softplus, erf (= erf(z)), gelu
        (z times the normal distribution function, exact), selu, linear, hard_sigmoid
        (0.2 z + 0.5 within [0, 1]).

    Returns
    -------
    Activation
        With ``dphi_range`` exact, or rounded outwards to the next float where irrational.

    Raises
    ------
    TypeError
        `name` is neither a string nor an Activation.
    ValueError
        The name is unknown; the message lists the known ones.

    Notes
    -----
    At a kink phi' is 0 for relu, hard_tanh and hard_sigmoid, and the smaller one-sided slope for
    leaky_relu (0.01) and selu (1.0507 from the right, where 1.7581 is the slope from the left).

    References
    ----------
    .. [1] D. Hendrycks, K. Gimpel, Gaussian error linear units (2016), arXiv:1606.08415,
       section 2.
    .. [2] G. Klambauer et al., Self-normalizing neural networks, NeurIPS 30 (2017),
       arXiv:1706.02515, equation 2.

    Examples
    --------
    >>> from gradprop.activations import activation
    >>> activation("sigmoid").dphi_range
    (0.0, 0.25)
    """
    if isinstance(name, Activation):
        return name
    if not isinstance(name, str):
        raise TypeError(
            f"`activation` must be a name or an Activation; got {name!r} ({type(name).__name__})."
        )
    return _built_in(_checks.choice("activation", name, kernels.CODES))


@functools.cache
def _built_in(name: str) -> Activation:
    code = kernels.CODES[name]
    phi, dphi = kernels.pair(code)
    made: Activation = object.__new__(Activation)
    fields = {"name": name, "phi": phi, "dphi": dphi, "dphi_range": RANGES[name], "code": code}
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"`name` must be a string; got {name!r} ({type(name).__name__}).")
    if not name or name in kernels.CODES:
        raise ValueError(f"`name` must not be empty or that of a built-in; got {name!r}.")


def _check_compiled(argument: str, function: Any) -> None:
    if not kernels.is_compiled(function):
        raise TypeError(
            f"`{argument}` must be compiled by numba.njit; got {function!r} "
            f"({type(function).__name__})."
        )
    try:
        value = function(0.3)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line and "nopython" not in line]
        raise TypeError(
            f"`{argument}` must map one float to one float; calling it failed: {lines[:1]}."
        ) from error
    if not isinstance(value, float | np.floating):
        raise TypeError(
            f"`{argument}` must return a float; got {value!r} ({type(value).__name__}) at z = 0.3."
        )


def _checked_range(value: Any) -> tuple[float, float]:
    ends = tuple(value) if isinstance(value, Iterable) else ()
    if len(ends) != 2 or not all(isinstance(end, numbers.Real) for end in ends):
        raise TypeError(f"`dphi_range` must be two real numbers; got {value!r}.")
    low, high = (float(end) for end in ends)
    if not low <= high:
        raise ValueError(f"`dphi_range` must be (inf, sup) with inf <= sup; got {value!r}.")
    return low, high


def _check_pair(own: Activation) -> None:
    """Compare dphi with central differences of phi, at points that miss round-number kinks."""
    z = 12.0 * np.linspace(-1.0, 1.0, 97) + 0.0271828
    step = 2.0**-17
    values, slopes = own.evaluate(z), own.derivative(z)
    coarse, fine = ((own.evaluate(z + h) - own.evaluate(z - h)) / (2 * h) for h in (2 * step, step))
    scale = np.maximum(1.0, np.maximum(abs(values), abs(slopes)))
    (low, high), slack = own.dphi_range, 1e-12 * scale
    _first_failure("phi", z, values, np.isfinite(values), "finite")
    _first_failure("dphi", z, slopes, np.isfinite(slopes), "finite")
    inside = (slopes >= low - slack) & (slopes <= high + slack)
    _first_failure("dphi", z, slopes, inside, f"within `dphi_range` {own.dphi_range}")
    close = abs(slopes - fine) <= 1e-6 * scale + 10 * abs(coarse - fine)
    at = int(np.argmin(close))
    _first_failure(
        "dphi", z, slopes, close, f"the derivative of `phi` (central difference {fine[at]:.9g})"
    )


def _first_failure(
    argument: str, z: NDArray[Any], values: NDArray[Any], good: NDArray[np.bool_], rule: str
) -> None:
    if not good.all():
        at = int(np.argmin(good))
        raise ValueError(f"`{argument}` must be {rule}; got {values[at]:.9g} at z = {z[at]:.6g}.")
