"""Fold that multiplies a chain in a float format and notes the events."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.blocks import Block, DiagonalBlock, Float
from gradprop.chain import JacobianChain
from gradprop.precision.formats import FORMATS, Format, format_of, random_states

NATIVE: dict[Format, type[np.floating[Any]]] = {
    FORMATS["float64"]: np.float64,
    FORMATS["float32"]: np.float32,
}

EXACT_BITS, EXACT_EXPONENT_BITS = 25, 10
"""Formats up to here can be carried in float64: a product of two numbers is exact, or far below the
smallest one, and rounding a sum twice changes nothing."""

SLOWDOWN = 60.0
"""Allowance for processors that are tens of times slower where most numbers are subnormal (1.1
times where this was measured), so that calls stay under half a second there, too; formats carried
in float64 take 2 to 3 times as long."""

RANDOM_SLOWDOWN = 5.0
"""Further allowance for rounding at random: 70 ns an operation."""


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
            if value not in NATIVE and (
                value.precision > EXACT_BITS or value.exponent_bits > EXACT_EXPONENT_BITS
            ):
                raise ValueError(
                    f"`{name}` must be float64 or have at most {EXACT_BITS} bits of precision and "
                    f"{EXACT_EXPONENT_BITS} of exponent, to be rounded only once; got {value}."
                )
        if inner.precision < own.precision:
            raise ValueError(
                f"`accumulate` must be at least as precise as `fmt`; got {inner} for {own}."
            )
        if inner.max < own.max or inner.min_subnormal > own.min_subnormal:
            raise ValueError(
                f"`accumulate` must have at least the range of `fmt`; got {inner} for {own}."
            )
        return cls(own, inner, flush)

    @property
    def stochastic(self) -> bool:
        """Whether anything is rounded at random."""
        return "stochastic" in (self.fmt.rounding, self.accumulator.rounding)

    def rounded(self, values: Float, rng: Any = None) -> NDArray[Any]:
        """Values in the format and in the dtype that carries it, flushed if so asked."""
        own = rng if self.fmt.rounding == "stochastic" else None
        return self.fmt.round(values, own, flush=self.flush).astype(carrier(self.fmt))

    def of_kernels(self, fmt: Format, state: NDArray[np.uint64]) -> Any:
        """What the kernels are told of one of the two formats."""
        from gradprop._kernels.settle import Native

        if fmt in NATIVE:
            return Native(NATIVE[fmt](fmt.min_normal if self.flush else 0.0))
        return fmt.carried(self.flush, state)

    def levels(self) -> Any:
        """Magnitudes at which events happen, as the kernels want them."""
        from gradprop._kernels.rounding import Levels

        own = carrier(self.fmt)
        ceiling = np.inf if self.fmt.infinities else self.fmt.max
        inner = np.array([self.accumulator.min_normal], dtype=carrier(self.accumulator))
        return Levels(own(self.fmt.min_normal), own(ceiling), inner)


def carrier(fmt: Format) -> type[np.floating[Any]]:
    """The dtype in which numbers of a format are kept and combined."""
    return NATIVE.get(fmt, np.float64)


class StoredProduct:
    """Carries P as the format stores it, (R, n, p): p = n for a matrix, 1 for a vector.

    Diagonal chains carry their diagonal, p = 1. Events are kept as first ages, 0 for never.
    """

    def __init__(
        self,
        chain: JacobianChain,
        arithmetic: Arithmetic,
        start: Float,
        as_vector: bool = False,
        rng: Any = None,
    ) -> None:
        from gradprop._kernels import rounding

        R, n, p = start.shape
        self.reverse, self.window = as_vector, (0, chain.n_steps)
        slowdown = SLOWDOWN * (RANDOM_SLOWDOWN if arithmetic.stochastic else 1.0)
        self.flops = slowdown * 2.0 * n * n * p
        self.floats = 1.0
        self._n_valid = chain.lengths.ravel()
        self._arithmetic = arithmetic
        rng = _checks.generator("rng", rng) if arithmetic.stochastic else None
        self.P = np.array(arithmetic.rounded(start, rng), order="C")
        self._states = random_states(rng, (2, R))
        self.start_norm = self._norms_of_start()
        self._limit = arithmetic.fmt.eps * self.start_norm
        self._levels = arithmetic.levels()
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
        """Absorb a block; where it is rounded at random, each replica by its own numbers."""
        if not self._arithmetic.stochastic:
            self._advance(block, part)
            return
        for i, r in enumerate(range(part.start, part.stop)):
            self._advance(_replica(block, i), slice(r, r + 1))

    def _advance(self, block: Block | DiagonalBlock, part: slice) -> None:
        from gradprop._kernels import rounding

        arithmetic, (inner, outer) = self._arithmetic, self._states[:, part]
        shared = (
            arithmetic.of_kernels(arithmetic.accumulator, inner),
            arithmetic.of_kernels(arithmetic.fmt, outer),
            self._levels,
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


def _replica(block: Block | DiagonalBlock, i: int) -> Block | DiagonalBlock:
    """One replica of a block, the axis kept."""
    if isinstance(block, Block):
        return block.replicas(slice(i, i + 1))
    return dataclasses.replace(block, factors=block.factors[i : i + 1])


def identity_start(chain: JacobianChain) -> Float:
    """P_0 of every replica: I, (R, n, n), or its diagonal, (R, n, 1), for diagonal chains."""
    R, n = chain.n_replicas, chain.n
    if chain.structure == "diagonal":
        return np.ones((R, n, 1))
    return np.broadcast_to(np.eye(n), (R, n, n))


def refuse_complex(chain: JacobianChain) -> None:
    """Formats hold real numbers."""
    first = next(iter(chain.blocks(1)), None) if chain.structure == "diagonal" else None
    if isinstance(first, DiagonalBlock) and np.iscomplexobj(first.factors):
        raise TypeError("`chain` must be real to be rounded; its diagonal is complex.")
