"""Float formats: where their steps, their smallest and their largest numbers lie."""

from __future__ import annotations

import dataclasses
import math
from types import MappingProxyType

from gradprop import _checks
from gradprop.results import LN2


@dataclasses.dataclass(frozen=True)
class Format:
    r"""A binary floating-point format in the manner of IEEE 754.

    Numbers are :math:`\pm m\,2^{e-p+1}` with an integer :math:`m < 2^p` and
    :math:`e_{\min} \le e \le e_{\max} = 2^{k-1}-1`, :math:`e_{\min} = 1 - e_{\max}`, for a
    precision of p bits (the leading one counted) and k bits of exponent.

    Parameters
    ----------
    precision : int, 2 .. 53
        Bits of the significand, the hidden one counted.
    exponent_bits : int, 2 .. 11
        Bits of the exponent.
    subnormals : bool, default: True
        Whether there are numbers between 0 and the smallest normal one.
    rounding : {"nearest"}, default: "nearest"
        To nearest, ties to even.

    Raises
    ------
    ValueError, TypeError
        A size that is out of range or not an integer, an unknown rounding.

    References
    ----------
    .. [1] IEEE 754-2019, sections 3.3, 3.4 and table 3.5.

    Examples
    --------
    >>> import gradprop as gp
    >>> single = gp.Format(24, 8)
    >>> single.eps == 2.0**-23, single.min_subnormal == 2.0**-149, round(single.log_max, 5)
    (True, True, 88.72284)
    """

    precision: int
    exponent_bits: int
    subnormals: bool = True
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        _checks.integer("precision", self.precision, minimum=2, maximum=53)
        _checks.integer("exponent_bits", self.exponent_bits, minimum=2, maximum=11)
        _checks.choice("subnormals", self.subnormals, (True, False))
        _checks.choice("rounding", self.rounding, ("nearest",))

    @property
    def name(self) -> str:
        """Registered name, or the constructor call if it has none."""
        known = (name for name, fmt in FORMATS.items() if fmt == self)
        return next(known, repr(self))

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest power of two; that of the smallest normal one is 1 minus it."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def eps(self) -> float:
        """Step from 1 to the next number, 2**(1 - precision)."""
        return math.ldexp(1.0, 1 - self.precision)

    @property
    def min_normal(self) -> float:
        """Smallest normal number."""
        return math.ldexp(1.0, 1 - self.max_exponent)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive number (the smallest normal one if there are no subnormals)."""
        return self.min_normal * (self.eps if self.subnormals else 1.0)

    @property
    def max(self) -> float:
        """Largest finite number."""
        return math.ldexp(2.0 - self.eps, self.max_exponent)

    @property
    def log_eps(self) -> float:
        """Natural log of ``eps``."""
        return (1 - self.precision) * LN2

    @property
    def log_min_normal(self) -> float:
        """Natural log of ``min_normal``."""
        return (1 - self.max_exponent) * LN2

    @property
    def log_min_subnormal(self) -> float:
        """Natural log of ``min_subnormal``."""
        lowest = 1 - self.precision if self.subnormals else 0
        return (1 - self.max_exponent + lowest) * LN2

    @property
    def log_max(self) -> float:
        """Natural log of ``max``."""
        return math.log(self.max)


FORMATS = MappingProxyType({"float64": Format(53, 11), "float32": Format(24, 8)})
"""The formats that have a name."""


def format_of(fmt: str | Format, name: str = "fmt") -> Format:
    """Look a format up by name; a :class:`Format` is returned as it is.

    Parameters
    ----------
    fmt : str or Format
        float64, float32.
    name : str, default: "fmt"
        What messages call the argument.

    Returns
    -------
    Format

    Raises
    ------
    ValueError
        The name is unknown; the message lists the known ones.
    TypeError
        `fmt` is neither a string nor a Format.

    Examples
    --------
    >>> format_of("float32")
    Format(precision=24, exponent_bits=8, subnormals=True, rounding='nearest')
    """
    if isinstance(fmt, Format):
        return fmt
    if not isinstance(fmt, str):
        raise TypeError(f"`{name}` must be a name or a Format; got {fmt!r} ({type(fmt).__name__}).")
    return FORMATS[_checks.choice(name, fmt, FORMATS)]
