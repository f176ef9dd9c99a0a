"""One pass over a chain, many quantities: the fold over blocks and what it carries."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop._threads import replica_slices, spread
from gradprop.blocks import Block, DiagonalBlock, Float, GateBlock, Int
from gradprop.chain import JacobianChain
from gradprop.results import Result, Status, log_sum_exp

CALL_FLOPS = 2e9
"""Work of one kernel call: under half a second, so that Ctrl-C and progress live between calls."""

FOLD_FLOATS = 2**23
"""Floats that a fold may use for one block (64 MiB)."""

ANCHORS = ("start", "end")
EPS = float(np.finfo(np.float64).eps)


class Fold(Protocol):
    """State of a running measurement; `update` touches only the replicas it is given.

    ``reverse`` folds see the last block first. Steps outside ``window`` (from, to) are of no use to
    it. ``flops`` and ``floats`` are the work and the memory of one step of one replica. A fold with
    an attribute ``takes_gates`` that is true gets blocks of gates where a source has them; one with
    a true ``spreads`` gets all replicas and spreads them over threads itself, in pieces of a
    replica, of which ``flops`` counts one.
    """

    reverse: bool
    window: tuple[int, int]
    flops: float
    floats: float

    def update(self, block: Any, part: slice) -> None:
        """Absorb a block (of the replicas in `part` only)."""
        ...


class Quantity(Protocol):
    """Something that one or several folds over a chain can measure."""

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """Fresh folds for this chain; checks the quantity's arguments against it."""
        ...

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> Result:
        """Result of folds that have seen the whole chain."""
        ...


def measure(chain: JacobianChain, *quantities: Quantity) -> tuple[Any, ...]:
    """Measure several quantities in at most one forward and one backward pass over a chain.

    Parameters
    ----------
    chain : JacobianChain
        Its orbit, if it has one, is run once for all quantities.
    *quantities : Norms, Spectrum, Exponents, Pullback, ...
        What the verbs ``log_norms``, ``singular_values``, ``lyapunov_spectrum``,
        ``gradient_by_lag`` ... measure one at a time.

    Returns
    -------
    tuple of Result
        In the order asked for; the same numbers, bit by bit, as the single verbs give.

    Raises
    ------
    TypeError
        Something is not a chain or not a quantity.

    Notes
    -----
    Results do not depend on block sizes or on the number of threads: parallel work runs over
    replicas, never inside a sum.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.5]], [[0.5]]])
    >>> norms, exponents = gp.measure(chain, gp.Norms(lags=[2]), gp.Exponents())
    >>> round(float(norms.log_norm[0]), 6), round(float(exponents.exponents[0]), 6)
    (-1.386294, -0.693147)
    """
    check_chain(chain)
    for quantity in quantities:
        if isinstance(quantity, type) or not hasattr(quantity, "folds"):
            raise TypeError(f"`quantities` must be quantities such as Norms(); got {quantity!r}.")
    folds = [list(quantity.folds(chain)) for quantity in quantities]
    run(chain, [fold for own in folds for fold in own])
    return tuple(q.result(chain, own) for q, own in zip(quantities, folds, strict=True))


def run(chain: JacobianChain, folds: Sequence[Fold]) -> None:
    """Let folds see the whole chain: one pass forwards, one backwards, as far as they need it."""
    for reverse in (False, True):
        group = [fold for fold in folds if fold.reverse is reverse]
        if group:
            _pass(chain, group, reverse)


def _pass(chain: JacobianChain, folds: list[Fold], reverse: bool) -> None:
    per_call = [max(1, int(CALL_FLOPS // max(fold.flops, 1.0))) for fold in folds]
    slices = [replica_slices(chain.n_replicas, largest) for largest in per_call]
    size = chain.block_size
    for fold, parts, replica_steps in zip(folds, slices, per_call, strict=True):
        widest = max((part.stop - part.start for part in parts), default=1)
        if getattr(fold, "spreads", False):
            widest = 1  # it cuts its work into calls itself: the more steps at once the better
        size = min(size, max(1, replica_steps // max(widest, 1)))
        size = min(size, max(1, int(FOLD_FLOATS // max(fold.floats * chain.n_replicas, 1.0))))
    low, high = min(fold.window[0] for fold in folds), max(fold.window[1] for fold in folds)
    starts = range(low, high, size)
    for start in reversed(starts) if reverse else starts:
        stop = min(start + size, high)
        block = functools.cache(functools.partial(chain.source.block, start, stop))
        for fold, parts in zip(folds, slices, strict=True):
            if fold.window[0] >= stop or fold.window[1] <= start:
                continue
            takes = getattr(fold, "takes_gates", False)
            gates = chain.source.gate_block(start, stop) if takes else None
            whole = gates if gates is not None else block()
            if isinstance(whole, DiagonalBlock) or getattr(fold, "spreads", False):
                fold.update(whole, slice(0, chain.n_replicas))
                continue

            def work(part: slice, fold: Fold = fold, whole: Block | GateBlock = whole) -> None:
                fold.update(whole.replicas(part), part)

            spread(work, parts)


def check_chain(chain: Any) -> JacobianChain:
    """Refuse what is not a chain, with a word on how to make one."""
    if not isinstance(chain, JacobianChain):
        raise TypeError(
            f"`chain` must be a JacobianChain (see linearise); got {type(chain).__name__}."
        )
    return chain


class LagGrid:
    """Lags asked for, sorted and unique inside, and the column in which each is recorded."""

    def __init__(self, chain: JacobianChain, lags: ArrayLike | None, anchor: str) -> None:
        self.reverse = _checks.choice("anchor", anchor, ANCHORS) == "end"
        given = np.arange(chain.n_steps + 1) if lags is None else lags
        self.lags = _checks.integer_array("lags", given, minimum=0, maximum=chain.n_steps)
        self.unique, self._inverse = np.unique(self.lags, return_inverse=True)
        self.column = np.full(chain.n_steps + 1, -1, dtype=np.int64)
        self.column[self.unique] = np.arange(len(self.unique))

    def window(self, chain: JacobianChain) -> tuple[int, int]:
        """Steps that the largest lag reaches, in any replica."""
        largest = int(self.unique[-1])
        if not self.reverse:
            return 0, largest
        return max(int(chain.lengths.min(initial=chain.n_steps)) - largest, 0), chain.n_steps

    def columns_between(self, low: int, high: int) -> tuple[int, int]:
        """Columns of the lags with low < lag <= high."""
        edges = np.searchsorted(self.unique, [low, high], side="right")
        return int(edges[0]), int(edges[1])

    def in_order(self, values: NDArray[Any], axis: int = 1) -> NDArray[Any]:
        """Values by sorted lag, put in the order asked for."""
        return np.asarray(np.take(values, self._inverse, axis=axis))

    def settle(
        self, chain: JacobianChain, values: NDArray[Any], final: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], Int]:
        """Settle lags beyond each replica's own length; values (R, L, ...), final (R, ...).

        From the start, later Jacobians of a padded sequence are the identity: the final value
        stands (None: it is in place already). From the end such lags do not exist, and past an
        overflow nothing is known: nan.
        """
        lengths, overflowed = chain.lengths.ravel(), chain.overflowed.ravel()
        beyond = self.unique[None, :] > lengths[:, None]
        values = values.copy()
        for r in np.flatnonzero(beyond.any(axis=1)):
            if overflowed[r] or self.reverse:
                values[r, beyond[r]] = np.nan
            elif final is not None:
                values[r, beyond[r]] = final[r]
        padded = beyond.any(axis=1) & ~overflowed
        status = np.where(overflowed, Status.OVERFLOWED, Status.OK).astype(np.int64)
        return values, status | np.where(padded, int(Status.PADDED), 0)


class DiagonalLogs:
    """Fold of diagonal chains: sums of ln |a| per unit at chosen lags, compensated.

    Exact up to the rounding of each logarithm: |error| <= 2 eps sum |ln a|, and 2 eps more a step
    for complex factors, whose modulus rounds too.
    """

    def __init__(self, chain: JacobianChain, grid: LagGrid) -> None:
        self.reverse, self.window = grid.reverse, grid.window(chain)
        self.flops = 20.0 * chain.n
        self.floats = 4.0 * chain.n
        self.grid, self._lengths = grid, chain.lengths.ravel()
        self._sums: Float = np.zeros((chain.n_replicas, chain.n))
        self._carry = np.zeros_like(self._sums)
        self._magnitude: Float = np.zeros_like(self._sums)
        self.logs: Float = np.full((chain.n_replicas, len(grid.unique), chain.n), np.nan)
        self._magnitudes: Float = np.zeros_like(self.logs)
        self._age = np.zeros(chain.n_replicas, dtype=np.int64)
        if grid.column[0] >= 0:
            self.logs[:, 0] = 0.0

    def update(self, block: DiagonalBlock, part: slice) -> None:
        """Absorb a block of all replicas."""
        from gradprop._kernels import products

        with np.errstate(divide="ignore"):
            steps = np.log(np.abs(block.factors))
        slack = 1.0 if np.iscomplexobj(block.factors) else 0.0
        products.log_sum_steps(
            steps, slack, self._lengths, block.first, self.reverse, self._sums, self._carry,
            self._magnitude, self._age, self.grid.column, self.logs, self._magnitudes,
        )  # fmt: skip

    @property
    def final(self) -> Float:
        """Sums over everything seen."""
        return np.asarray(self._sums + self._carry)

    @property
    def rounding(self) -> Float:
        """Bound on the error of `logs`, of the same shape."""
        return np.asarray(2 * EPS * self._magnitudes)

    def log_norms(self, ord: str) -> tuple[Float, Float]:
        """Ln of the 2-norm or Frobenius norm, by column and after everything."""
        if ord == "2":
            return self.logs.max(axis=-1), self.final.max(axis=-1)
        return tuple(0.5 * log_sum_exp(2 * logs, axis=-1) for logs in (self.logs, self.final))  # type: ignore[return-value]

    def errors(self, ord: str) -> tuple[Float, Float]:
        """Bound on the rounding of `log_norms`, by column and after everything."""
        n, error = self.logs.shape[-1], self.rounding.max(axis=-1)
        if ord == "fro" and n > 1:
            # the sum over units: n roundings of its terms, and that of the total
            size = np.abs(self.log_norms(ord)[0])
            error = error + EPS * (n + np.where(np.isfinite(size), size, 0.0))
        return error, error[:, -1]
