"""Float formats: where their steps, their smallest and their largest numbers lie."""

from __future__ import annotations

import dataclasses
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.results import LN2

if TYPE_CHECKING:
    from gradprop._kernels.settle import AtRandom, Low

ROUNDINGS = ("nearest", "stochastic")

CALL_ENTRIES = 2**23
"""Entries rounded by one kernel call: 0.15 s, so that Ctrl-C lives between calls."""


@dataclasses.dataclass(frozen=True)
class Format:
    r"""A binary floating-point format in the manner of IEEE 754.

    Numbers are :math:`\pm m\,2^{e-p+1}` with an integer :math:`m < 2^p` and
    :math:`e_{\min} \le e \le e_{\max}`, :math:`e_{\min} = 2 - 2^{k-1}`,
    :math:`e_{\max} = 2^{k-1}-1`, for a precision of p bits (the leading one counted) and k bits of
    exponent. Named: float64, float32, tf32, float16, bfloat16, float8_e4m3, float8_e5m2.

    Parameters
    ----------
    precision : int, 2 .. 53
        Bits of the significand, the hidden one counted.
    exponent_bits : int, 2 .. 11
        Bits of the exponent.
    subnormals : bool, default: True
        Whether there are numbers between 0 and the smallest normal one.
    rounding : {"nearest", "stochastic"}, default: "nearest"
        To nearest, ties to even; or to one of the two neighbours with the odds that make it right
        on average.
    infinities : bool, default: True
        False: the largest exponent holds numbers, too (:math:`e_{\max} = 2^{k-1}`, only its last
        pattern is nan), and whatever is beyond the largest number becomes that number. float8_e4m3
        is such a format (its variant "fn"); the others are not.

    Raises
    ------
    ValueError, TypeError
        A size that is out of range or not an integer, an unknown rounding; 11 bits of exponent
        without infinities, whose largest numbers float64 does not hold.

    References
    ----------
    .. [1] IEEE 754-2019, sections 3.3, 3.4 and table 3.5.
    .. [2] P. Micikevicius et al., FP8 formats for deep learning, arXiv:2209.05433 (2022), table 1.

    Examples
    --------
    >>> import gradprop as gp
    >>> single = gp.Format(24, 8)
    >>> single.eps == 2.0**-23, single.min_subnormal == 2.0**-149, round(single.log_max, 5)
    (True, True, 88.72284)
    >>> gp.Format(4, 4, infinities=False).max
    448.0
    """

    precision: int
    exponent_bits: int
    subnormals: bool = True
    rounding: str = "nearest"
    infinities: bool = True

    def __post_init__(self) -> None:
        _checks.integer("precision", self.precision, minimum=2, maximum=53)
        _checks.integer("exponent_bits", self.exponent_bits, minimum=2, maximum=11)
        _checks.choice("subnormals", self.subnormals, (True, False))
        _checks.choice("rounding", self.rounding, ROUNDINGS)
        _checks.choice("infinities", self.infinities, (True, False))
        if self.exponent_bits == 11 and not self.infinities:
            raise ValueError("`exponent_bits` must be at most 10 without infinities; got 11.")

    @property
    def name(self) -> str:
        """Registered name, or the constructor call if it has none."""
        known = (name for name, fmt in FORMATS.items() if fmt == self)
        return next(known, repr(self))

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, a power of two."""
        return int(2 - 2 ** (self.exponent_bits - 1))

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest power of two."""
        return 1 - self.min_exponent + (not self.infinities)

    @property
    def eps(self) -> float:
        """Step from 1 to the next number, 2**(1 - precision)."""
        return math.ldexp(1.0, 1 - self.precision)

    @property
    def min_normal(self) -> float:
        """Smallest normal number."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive number (the smallest normal one if there are no subnormals)."""
        return self.min_normal * (self.eps if self.subnormals else 1.0)

    @property
    def max(self) -> float:
        """Largest finite number."""
        top = self.eps * (1 if self.infinities else 2)
        return math.ldexp(2.0 - top, self.max_exponent)

    @property
    def log_eps(self) -> float:
        """Natural log of ``eps``."""
        return (1 - self.precision) * LN2

    @property
    def log_min_normal(self) -> float:
        """Natural log of ``min_normal``."""
        return self.min_exponent * LN2

    @property
    def log_min_subnormal(self) -> float:
        """Natural log of ``min_subnormal``."""
        lowest = 1 - self.precision if self.subnormals else 0
        return (self.min_exponent + lowest) * LN2

    @property
    def log_max(self) -> float:
        """Natural log of ``max``."""
        return math.log(self.max)

    def round(self, x: ArrayLike, rng: Any = None, *, flush: bool = False) -> Float:
        """Round numbers to this format, each once.

        Parameters
        ----------
        x : array_like, any shape
            Real; infinite and nan as well.
        rng : optional
            Seed or generator, needed for stochastic rounding and refused for any other.
        flush : bool, default: False
            Turn what comes out below the smallest normal number into zero.

        Returns
        -------
        float64 array of the same shape
            Numbers of the format. What rounds beyond the largest one is inf, or the largest one
            in a format without infinities; nan and the sign of a zero stay.

        Raises
        ------
        ValueError, TypeError
            A stochastic format without rng, or the reverse; x that does not hold real numbers.

        Notes
        -----
        About 15 ns an entry. The odds of stochastic rounding are right to 2**-53.

        References
        ----------
        .. [1] M. Croci et al., Stochastic rounding: implementation, error analysis and
           applications, R. Soc. Open Sci. 9 (2022) 211631.

        Examples
        --------
        >>> import gradprop as gp
        >>> gp.Format(8, 8).round([0.9, 0.999, 1e-41, 4e38]).tolist()
        [0.8984375, 1.0, 0.0, inf]
        """
        from gradprop._kernels.settle import settle_all

        values = _checks.real_array("x", x, finite=False)
        _checks.choice("flush", flush, (True, False))
        check_rng(rng, self)
        if self == FORMATS["float64"] and not flush:
            return values
        arithmetic, flat = self.carried(flush, random_states(rng, (1,))), values.reshape(-1)
        # a state that wraps around is what is wanted; NumPy warns where the JIT is switched off
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, CALL_ENTRIES):
                settle_all(flat[start : start + CALL_ENTRIES], arithmetic)
        return values

    def carried(self, flush: bool, state: NDArray[np.uint64]) -> Low | AtRandom:
        """What the kernels are told of a format that is carried in float64."""
        from gradprop._kernels.settle import AtRandom, Low

        # a number that is flushed is first rounded as if there were subnormal ones
        step = self.min_normal * self.eps if flush else self.min_subnormal
        low = Low(
            drop=53 - self.precision,
            normal=self.min_normal,
            step=step,
            largest=self.max,
            beyond=math.inf if self.infinities else self.max,
            tiny=self.min_normal if flush else 0.0,
        )
        return AtRandom(low, state) if self.rounding == "stochastic" else low


FORMATS = MappingProxyType(
    {
        "float64": Format(53, 11),
        "float32": Format(24, 8),
        "tf32": Format(11, 8),
        "float16": Format(11, 5),
        "bfloat16": Format(8, 8),
        "float8_e4m3": Format(4, 4, infinities=False),
        "float8_e5m2": Format(3, 5),
    }
)
"""The formats that have a name."""


def check_rng(rng: Any, *formats: Format) -> None:
    """Refuse stochastic rounding without random numbers, and random numbers without it."""
    stochastic = any(fmt.rounding == "stochastic" for fmt in formats)
    if stochastic == (rng is None):
        rule = "be a seed or a generator" if stochastic else "be left out"
        kind = "stochastic" if stochastic else "nearest"
        raise ValueError(f"`rng` must {rule} for {kind} rounding; got {rng!r}.")


def random_states(rng: Any, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Starts of independent streams of random numbers; zeros where none are drawn."""
    if rng is None:
        return np.zeros(shape, dtype=np.uint64)
    generator = _checks.generator("rng", rng)
    return generator.integers(2**64, size=shape, dtype=np.uint64)


def format_of(fmt: str | Format, name: str = "fmt") -> Format:
    """Look a format up by name; a :class:`Format` is returned as it is.

    Parameters
    ----------
    fmt : str or Format
        float64, float32, tf32, float16, bfloat16, float8_e4m3, float8_e5m2.
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
    >>> format_of("float32") == Format(24, 8)
    True
    """
    if isinstance(fmt, Format):
        return fmt
    if not isinstance(fmt, str):
        raise TypeError(f"`{name}` must be a name or a Format; got {fmt!r} ({type(fmt).__name__}).")
    return FORMATS[_checks.choice(name, fmt, FORMATS)]
