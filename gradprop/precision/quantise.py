"""Cells whose parameters are rounded to a float format, and what a stored decay can remember."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.cells.base import Cell, WeightedCell
from gradprop.cells.composite import Bidirectional, Stacked
from gradprop.precision.formats import Format, check_rng, format_of
from gradprop.results import Result

AnyCell = TypeVar("AnyCell", bound=Cell)
Change = Callable[[str, Float], NDArray[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecayCeiling(Result):
    """How long a decay that is stored in a format can remember.

    Attributes
    ----------
    decay : float array, shape ()
        Largest number of the format below 1.
    memory : float array, shape ()
        -1 / ln(decay), in steps: what is left after so many is 1/e.
    fmt : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {"decay": (), "memory": ()}
    decay: Float
    memory: Float
    fmt: str


def quantised(cell: AnyCell, fmt: str | Format, *, rng: Any = None) -> AnyCell:
    """Round the parameters of a cell to a float format.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or Bidirectional
    fmt : str or Format
        See :class:`Format`.
    rng : optional
        Seed or generator, needed where the format rounds at random and refused elsewhere.

    Returns
    -------
    cell of the same class
        In float64, every array holding numbers of the format; activations, gate orders and leak
        are those of the cell (a leak is a setting, not a stored parameter).

    Raises
    ------
    ValueError, TypeError
        An unknown format, rng missing or given for nothing; a parameter beyond the largest number
        of the format (the array is named); a CustomCell, whose parameters are not known.

    Notes
    -----
    Only what is stored is rounded: analyses of the result say what the rounding of the parameters
    alone does to exponents, horizons and orbits. A dense matrix is disturbed by about eps of its
    norm, and so are they; a diagonal recurrence keeps its memory in the distance of its decays from
    1, which a short format cannot hold (:func:`decay_ceiling`). Two biases of a GRU are rounded one
    by one. About 15 ns a parameter.

    References
    ----------
    .. [1] M. Croci et al., Stochastic rounding: implementation, error analysis and applications,
       R. Soc. Open Sci. 9 (2022) 211631.

    Examples
    --------
    >>> import gradprop as gp
    >>> ring = gp.RNN([[[0.9]], [[0.99]], [[0.999]]], activation="linear")
    >>> gp.quantised(ring, "bfloat16").W_hh.ravel().tolist()
    [0.8984375, 0.98828125, 1.0]
    """
    known = format_of(fmt)
    check_rng(rng, known)
    generator = None if rng is None else _checks.generator("rng", rng)

    def rounded(name: str, array: Float) -> Float:
        largest = float(np.abs(array).max())
        if largest > known.max:
            raise ValueError(
                f"`cell` must lie in the range of {known.name}, which ends at {known.max:.6g}; "
                f"{name} reaches {largest:.6g}."
            )
        return known.round(array, generator)

    return with_arrays(cell, rounded)


def with_arrays(cell: AnyCell, change: Change, prefix: str = "") -> AnyCell:
    """The same cell with other arrays: `change` gets the name and the array, cast to float64.

    Parameters
    ----------
    cell : RNN, LSTM, GRU, Stacked or Bidirectional
    change : callable (name, array) -> array
        Names are those of `Cell.arrays`.
    prefix : str, default: ""
        Of the names.

    Returns
    -------
    cell of the same class
    """
    made: Any
    if isinstance(cell, Stacked):
        made = Stacked(
            [with_arrays(c, change, f"{prefix}{i}.") for i, c in enumerate(cell.cells)]
        )  # fmt: skip
    elif isinstance(cell, Bidirectional):
        parts = {"forward": cell.forward, "backward": cell.backward}
        made = Bidirectional(
            **{k: with_arrays(part, change, f"{prefix}{k}.") for k, part in parts.items()}
        )
    elif isinstance(cell, WeightedCell):
        own: Any = cell
        fields = {f.name: getattr(cell, f.name) for f in dataclasses.fields(own)}
        arrays = {k: change(prefix + k, a.astype(np.float64)) for k, a in cell.arrays().items()}
        made = type(cell)(**(fields | arrays))
    else:
        raise TypeError(
            "`cell` must be made of RNN, LSTM and GRU, whose parameters are known; got "
            f"{type(cell).__name__}."
        )
    return made  # type: ignore[no-any-return]


def in_float64(cell: AnyCell) -> AnyCell:
    """The same cell with its arrays cast to float64; TypeError for a CustomCell."""
    return with_arrays(cell, lambda _, array: array)


def decay_ceiling(fmt: str | Format) -> DecayCeiling:
    r"""Longest memory that a decay below 1 can have when it is stored in a float format.

    Parameters
    ----------
    fmt : str or Format

    Returns
    -------
    DecayCeiling
        ``decay``, the largest number below 1, :math:`a = 1 - \epsilon/2`, and ``memory``,
        :math:`-1/\ln a \approx 2/\epsilon - 1/2` steps. With two bits of exponent 1 is the smallest
        normal number: then :math:`a = 1 - \epsilon`, or 0 without subnormal numbers.

    Raises
    ------
    ValueError, TypeError
        An unknown format.

    Notes
    -----
    A decay nearer to 1 than half of that is stored as 1 exactly, which forgets nothing at all.
    Exact but for one rounding of the logarithm and one of the quotient.

    References
    ----------
    .. [1] A. Orvieto et al., Resurrecting recurrent neural networks for long sequences, ICML 2023:
       why moduli are parametrised by their logarithms.

    Examples
    --------
    >>> import gradprop as gp
    >>> for fmt in ("bfloat16", "float16", "float8_e4m3"):
    ...     found = gp.decay_ceiling(fmt)
    ...     print(float(found.decay), round(float(found.memory), 2))
    0.99609375 255.5
    0.99951171875 2047.5
    0.9375 15.49
    """
    known = format_of(fmt)
    # where 1 is the smallest normal number: down to the next subnormal one, or to 0
    gap = known.eps / 2 if known.min_exponent < 0 else known.min_subnormal
    memory = -1.0 / math.log1p(-gap) if gap < 1 else 0.0
    return DecayCeiling(decay=np.asarray(1.0 - gap), memory=np.asarray(memory), fmt=known.name)
