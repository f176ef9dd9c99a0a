"""Fold that multiplies a chain in a float format and notes the events."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, DiagonalBlock, Float
from gradprop.chain import JacobianChain
from gradprop.precision.formats import FORMATS, Format, format_of

NATIVE: dict[Format, type[np.floating[Any]]] = {
    FORMATS["float64"]: np.float64,
    FORMATS["float32"]: np.float32,
}

SLOWDOWN = 60.0
"""Allowance for processors that are tens of times slower where most numbers are subnormal (1.1
times where this was measured), so that calls stay under half a second there, too."""


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """A format, the accumulator of its sums, and whether outcomes are flushed."""

    fmt: Format
    accumulator: Format
    flush: bool

    @classmethod
    def checked(cls, fmt: Any, accumulate: Any, flush: bool) -> Arithmetic:
        """Refuse unknown formats and accumulators that are narrower than the format."""
        own = format_of(fmt)
        inner = own if accumulate is None else format_of(accumulate, "accumulate")
        for name, value in (("fmt", own), ("accumulate", inner)):
            if value not in NATIVE:
                raise ValueError(f"`{name}` must be one of {', '.join(FORMATS)}; got {value}.")
        if inner.precision < own.precision:
            raise ValueError(
                f"`accumulate` must be at least as precise as `fmt`; got {inner} for {own}."
            )
        return cls(own, inner, flush)

    def rounded(self, values: Float) -> NDArray[Any]:
        """Values in the format, flushed if so asked."""
        with np.errstate(over="ignore", under="ignore"):
            stored = values.astype(NATIVE[self.fmt])
        small = np.abs(stored) < (self.fmt.min_normal if self.flush else 0.0)
        return np.where(small, np.copysign(stored.dtype.type(0), stored), stored)


class StoredProduct:
    """Carries P as the format stores it, (R, n, p): p = n for a matrix, 1 for a vector.

    Diagonal chains carry their diagonal, p = 1. Events are kept as first ages, 0 for never.
    """

    def __init__(
        self, chain: JacobianChain, arithmetic: Arithmetic, start: Float, as_vector: bool
    ) -> None:
        from gradprop._kernels import rounding

        R, n, p = start.shape
        own, inner = NATIVE[arithmetic.fmt], NATIVE[arithmetic.accumulator]
        self.reverse, self.window = as_vector, (0, chain.n_steps)
        self.flops = SLOWDOWN * 2.0 * n * n * p
        self.floats = 1.0
        self._n_valid = chain.lengths.ravel()
        self.P = np.array(arithmetic.rounded(start), order="C")
        self.start_norm = self._norms_of_start()
        self._limit = arithmetic.fmt.eps * self.start_norm
        self._tiny = own(arithmetic.fmt.min_normal)
        self._empty = np.empty(0, dtype=inner)
        self._inner, self._outer = (
            rounding.Native(dtype(fmt.min_normal if arithmetic.flush else 0.0))
            for dtype, fmt in ((inner, arithmetic.accumulator), (own, arithmetic.fmt))
        )
        self._probe = np.tile(np.random.default_rng(0).standard_normal(p), (R, 1))
        self._age = np.zeros(R, dtype=np.int64)
        self.events = np.zeros((R, rounding.N_EVENTS), dtype=np.int64)
        self.same = np.zeros((R, chain.n_steps + 1), dtype=bool)
        self.flushed = np.zeros(R, dtype=bool)

    def _norms_of_start(self) -> Float:
        """2-norm of a vector, largest entry of a multiple of I (or of a diagonal)."""
        P = self.P.astype(np.float64)
        largest = np.abs(P).max(axis=(1, 2))
        if not self.reverse:
            return np.asarray(largest)
        scaled = P / np.where(largest > 0, largest, 1.0)[:, None, None]
        return np.asarray(largest * np.linalg.norm(scaled, axis=(1, 2)))

    def update(self, block: Block | DiagonalBlock, part: slice) -> None:
        """Absorb a block."""
        from gradprop._kernels import rounding

        shared = (
            self._inner,
            self._outer,
            self._empty,
            self._tiny,
            self._limit[part],
            self.P[part],
        )
        noted = (self._age[part], self.events[part], self.same[part], self.flushed[part])
        # overflow and nan are what is looked for; NumPy would warn where the JIT is switched off
        with np.errstate(all="ignore"):
            if isinstance(block, DiagonalBlock):
                rounding.diagonal_event_steps(
                    np.ascontiguousarray(block.factors), self._n_valid[part], block.first,
                    self.reverse, self.reverse, *shared, *noted,
                )  # fmt: skip
                return
            rounding.event_steps(
                block.matrices, block.index, block.scales, block.exponents, block.identity,
                self._n_valid[part], block.first, self.reverse, *shared, self._probe[part], *noted,
            )  # fmt: skip
