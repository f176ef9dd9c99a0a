"""Which time steps still move a gradient that is summed in a float format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.gradients._problem import Problem
from gradprop.gradients.lags import ALL
from gradprop.precision._contributions import StepContributions
from gradprop.precision.formats import Format, check_rng
from gradprop.precision.quantise import in_float64
from gradprop.precision.stored import Arithmetic
from gradprop.results import Result, Status

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]
NEVER = -1
"""Horizon of a sum that no step moves in so many entries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Absorption(Result):
    """How much of each step's contribution reaches a gradient summed in a format.

    Attributes
    ----------
    lags : int array, shape (L,)
        0 .. L - 1: steps from the one that contributes to the last one of its sequence.
    absorbed : float array, shape (L, A)
        Share of the entries in which adding the contribution changes no bit of the sum; all arrays
        together first.
    underflowed : float array, shape (L, A)
        Share in which the contribution is not zero but rounds to zero; part of `absorbed`.
    zero : float array, shape (L, A)
        Share in which it is exactly zero (as that of W_hh to a start of zeros); part of `absorbed`.
    bit_horizon : int array, shape (A,)
        Last lag that changes a bit of at least `share` of the entries; -1 if none does.
    error : float array, shape (A,)
        2-norm of the stored sum minus the exact one, over that of the exact one; nan where that is
        zero.
    status : int array, shape (A,)
        LEFT_RANGE: the stored sum holds inf or nan. ZERO_GRADIENT: the exact one is zero.
    names : tuple of str
        "all", then the arrays as in `Gradients.names`.
    fmt, order : str
    share : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "absorbed": ("lag", "array"),
        "underflowed": ("lag", "array"),
        "zero": ("lag", "array"),
        "bit_horizon": ("array",),
        "error": ("array",),
        "status": ("array",),
    }
    _table: ClassVar[str] = "absorbed"
    lags: Int
    absorbed: Float
    underflowed: Float
    zero: Float
    bit_horizon: Int
    error: Float
    status: Int
    names: tuple[str, ...]
    fmt: str
    order: str
    share: float

    def to_frame(self) -> pd.DataFrame:
        """One row per lag and array.

        Returns
        -------
        pandas.DataFrame
            As every result's, ``array`` being the name.
        """
        frame = super().to_frame()
        frame["array"] = np.array(self.names)[frame["array"]]
        return frame


class RunningSum:
    """A sum held in a format, beside the exact one.

    Parameters
    ----------
    fmt : Format
        Of at most 25 bits, or float64: sums of two of its numbers in float64, then rounded, are
        rounded once.
    size : int
    rng : Generator, optional
        For a format that rounds at random.
    """

    def __init__(self, fmt: Format, size: int, rng: Any = None) -> None:
        self._fmt, self._rng = fmt, rng
        self.stored, self._high, self._low = np.zeros((3, size))

    def add(self, term: Float) -> tuple[Bools, Bools]:
        """Add a term, rounded first; returns where no bit changes, and where the term is lost."""
        rounded = self._fmt.round(term, self._rng)
        with np.errstate(over="ignore", invalid="ignore"):
            after = self._fmt.round(self.stored + rounded, self._rng)
        # a sum that begins at +0 never becomes -0: numbers that are equal have equal bits
        same = (after == self.stored) | (np.isnan(after) & np.isnan(self.stored))
        self.stored = after
        self._add_exactly(term)
        return same, (rounded == 0) & (term != 0)

    def _add_exactly(self, term: Float) -> None:
        """Sum with twice the bits of float64 (two-sum of D. E. Knuth)."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._high + term
            back = total - self._high
            self._low += (self._high - (total - back)) + (term - back)
        self._high = total

    def error(self, part: slice) -> float:
        """Norm of the error over that of the exact sum; nan where that is zero."""
        high, low = self._high[part], self._low[part]
        scale = float(np.abs(high).max(initial=0.0))
        if scale == 0:
            return float("nan")
        with np.errstate(over="ignore", invalid="ignore"):
            off = (self.stored[part] - high) - low
            return float(np.linalg.norm(off / scale) / np.linalg.norm((high + low) / scale))

    def status(self, part: slice) -> int:
        """LEFT_RANGE and ZERO_GRADIENT."""
        left = int(Status.LEFT_RANGE) * (not np.isfinite(self.stored[part]).all())
        zero = int(Status.ZERO_GRADIENT) * (not (self._high[part] + self._low[part]).any())
        return left | zero


def absorption(
    cell: Cell,
    x: ArrayLike | None,
    grad_h: Any,
    fmt: str | Format,
    *,
    h0: Any = None,
    lengths: ArrayLike | None = None,
    order: str = "backward",
    share: float = 0.5,
    rng: Any = None,
) -> Absorption:
    r"""Which steps still change a bit of a gradient that is summed in a float format.

    .. math:: S \leftarrow \mathrm{fl}(S + \mathrm{fl}(\delta_t h_{t-1}^T)), \quad t = T, \dots, 1

    Parameters
    ----------
    cell : RNN, LSTM, GRU or Stacked
        Used in float64.
    x, grad_h : array_like
        As :func:`backward`.
    fmt : str or Format
        A name (see :class:`Format`), or a format of at most 25 bits of precision and 10 of
        exponent.
    h0, lengths : array_like, optional
        As :func:`backward`.
    order : {"backward", "forward"}, default: "backward"
        Last step first, as backpropagation through time adds; or first step first.
    share : float in (0, 1], default: 0.5
        Of the entries, for ``bit_horizon``.
    rng : optional
        Seed or generator, needed where the format rounds at random and refused elsewhere.

    Returns
    -------
    Absorption
        ``absorbed``, ``underflowed`` and ``zero`` (L, A) by lag and array, ``bit_horizon`` and
        ``error`` (A,), all arrays together first; ``status``.

    Raises
    ------
    ValueError, TypeError
        As :func:`backward`; an unknown format or order, a share outside (0, 1], rng missing or
        given for nothing; a Bidirectional: take its directions one by one.

    Notes
    -----
    Orbit and deltas are those of float64, where they may underflow below 1e-308. The contribution
    of a step, summed over all sequences at that lag, is formed in float64, rounded once to the
    format and added to the sum that the format holds, which is rounded after every addition. What
    is measured is thus the sum alone: a gradient whose deltas are computed in the format as well
    loses more (:func:`precision_events`).

    In forward order a small early term meets a small sum and changes its bits; what later terms
    then push out of it shows in ``error`` alone. Where a loss stands at several steps, the
    contribution of a step holds what all later losses send to it.

    One forward and one backward pass, then for each lag about 60 ns and a parameter, 10 us and a
    network.

    References
    ----------
    .. [1] N. J. Higham, Accuracy and stability of numerical algorithms, 2nd ed. (2002), chapter 4:
       the order of a summation.

    Examples
    --------
    In bfloat16, with 8 bits, the sum of 0.5^k comes to 2 at k = 8, by rounding, and stays there.

    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.5]], b=[0.0], activation="linear")
    >>> found = gp.absorption(cell, np.zeros((20, 1)), np.eye(20)[:, -1:], "bfloat16")
    >>> found.names, int(found.bit_horizon[2])
    (('all', 'W_hh', 'b'), 8)
    """
    known = Arithmetic.checked(fmt, None, False).fmt
    check_rng(rng, known)
    _checks.choice("order", order, ("backward", "forward"))
    share = _checks.real("share", share, above=0.0, at_most=1.0)
    generator = None if rng is None else _checks.generator("rng", rng)
    terms = StepContributions(Problem(in_float64(cell), x, grad_h, h0, lengths))
    total = RunningSum(known, terms.slices[0].stop, generator)
    lags = np.arange(terms.n_lags)
    shares = _add_all(total, terms, lags if order == "backward" else lags[::-1])
    changed = 1.0 - shares[0] >= share
    last = np.where(changed, lags[:, None], NEVER).max(axis=0, initial=NEVER)
    return Absorption(
        lags=lags,
        absorbed=shares[0],
        underflowed=shares[1],
        zero=shares[2],
        bit_horizon=last,
        error=np.array([total.error(part) for part in terms.slices]),
        status=np.array([total.status(part) for part in terms.slices], dtype=np.int64),
        names=(ALL, *terms.names),
        fmt=known.name,
        order=order,
        share=share,
    )


def _add_all(total: RunningSum, terms: StepContributions, lags: Iterable[int]) -> Float:
    """Add the terms in an order; shares (3, L, A) absorbed, underflowed and zero, by lag."""
    shares = np.zeros((3, terms.n_lags, len(terms.slices)))
    for lag in lags:
        term = terms.at(int(lag))
        same, lost = total.add(term)
        for k, mask in enumerate((same, lost, term == 0)):
            shares[k, lag] = [mask[part].mean() for part in terms.slices]
    return shares
