"""The fold behind norms: column strips of the product, and check columns beside them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradprop._threads import replica_slices, spread
from gradprop.blocks import Block, Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import CALL_FLOPS, LagGrid
from gradprop.results import log_of_scaled
from gradprop.rotations import random_rotation

EPS = float(np.finfo(np.float64).eps)
UNSET = int(np.iinfo(np.int64).min)

SPREAD = 40.0
"""Stated error of a norm over the estimate from the check columns. Over 40 000 norms of ten
families, cancelling ones among them, without arbitrary precision, no true error exceeded 5.1
estimates. An error of rank one makes the estimate chi-square with CHECKS degrees of freedom at
worst: for four it is 40 times too small once in 10**6 times, for one once in 50."""

WALK = 2.0
"""Rounding of a product of m factors that is stated even if the check sees none: WALK sqrt(m) eps.
Without it 0.92 of the stated error was met, by two units and 32 equal factors."""

LARGE = 2.0**60
"""A factor above this is scaled before it is rounded to float32."""


def strips_of(n: int, width: int) -> tuple[int, int]:
    """How many strips the n columns are cut into, and how many tiles of `width` each has.

    Up to 128 columns a strip: the fewer there are, the less the check columns cost; wider ones
    leave the caches. Threads share strips, so one network of up to 128 units keeps one thread busy.
    """
    strips = -(-n // 128)
    return strips, -(-n // (strips * width))


class _Factors(NamedTuple):
    """Factors of a block, flat, as the strips' kernel wants them."""

    M: NDArray[Any]
    M_check: Float
    least: Int
    which: Int
    d: Float
    e: Int
    a: Float


class _Scratch(NamedTuple):
    """Work space of one call."""

    S: NDArray[Any]
    C: Float
    lists: Int
    scale: NDArray[Any]
    check_scale: Float
    ones: Float
    counts: Int
    square: Float
    check_square: Float


class StripFold:
    """Carries P, or P V, in column strips, in float64 or float32, with check columns in float64.

    The check columns of a strip are S x, x fixed, random and orthonormal, of as many rows as S has
    columns w: sqrt(w / CHECKS) ||fl(S) x - fl(S x)|| estimates the Frobenius norm of the error.
    """

    spreads = True
    roundings = 2.0
    """Relative error of a norm of given numbers, in n eps."""

    def __init__(
        self,
        chain: JacobianChain,
        grid: LagGrid,
        dtype: Any = np.float64,
        V: Float | None = None,
    ) -> None:
        """V (R, n, p) is I if None."""
        self.grid, self.reverse, self.window = grid, grid.reverse, grid.window(chain)
        # the last value of a replica that is shorter than the lags stands at all later ones
        lengths = chain.lengths.ravel()
        short = np.minimum(lengths, grid.unique[-1])
        self._stops = LagGrid(chain, np.union1d(grid.unique, short), "start")
        self._last = self._stops.column[short]
        R, self._n = chain.n_replicas, chain.n
        self._n_valid, self._dtype = lengths, np.dtype(dtype)
        # matrices of the last block, and lower bounds of the exponents of their entries
        self._seen: tuple[Float | None, Int] = None, np.empty(0, dtype=np.int64)
        self._carried = self._start(R, V)
        self._values = np.full((R, len(self._stops.unique)), np.nan)
        self._errors = np.full_like(self._values, np.nan)
        if self._stops.column[0] >= 0:
            first = np.full(R, self.norm_at_start()), np.zeros(R), np.zeros(R)
            self._values[:, 0], self._errors[:, 0] = self._stated(*first)

    def _start(self, R: int, V: Float | None) -> tuple[NDArray[Any], Float, Int]:
        """Strips, check columns and states before the first step, as the kernel carries them."""
        from gradprop._kernels.striprows import CHECKS
        from gradprop._kernels.strips import BOTTOM

        n, width = self._n, 64 // self._dtype.itemsize
        unit = np.arange(n if V is None else V.shape[-1])
        self._width, (self._G, self._tiles) = width, strips_of(len(unit), width)
        own = self._tiles * width
        self.flops, self.floats = 2.0 * n * n * (own + CHECKS), 2.0 * n + 6.0 * self._G
        # one column alone would round as it does itself, but for a third of it
        alone = 1 / 3 if len(unit) == 1 and n > 1 else 1.0
        self._gap_scale = np.sqrt(max(min(len(unit), own) / CHECKS, 1.0)) / alone
        strip, column = np.divmod(unit, own)
        self._x = np.zeros((len(unit), CHECKS))
        P = np.zeros((R, self._G, self._tiles, n + 1, width), dtype=self._dtype)
        checks = np.zeros((R, self._G, n + 1, CHECKS))
        for g in range(self._G):
            columns = unit[strip == g]
            some = min(len(columns), CHECKS)
            self._x[columns, :some] = alone * random_rotation(len(columns), some)
            if V is not None:
                checks[:, g, :n] = V[..., columns] @ self._x[columns]
        if V is None:
            P[:, strip, column // width, unit, column % width] = 1
            checks[:, strip, unit] = self._x
        else:
            P[:, strip, column // width, :n, column % width] = np.moveaxis(V, -1, 0)
        states = np.zeros((R * self._G, 4), dtype=np.int64)
        # nothing is known yet of the smallest entry
        states[:, 1] = BOTTOM
        return P.reshape(R * self._G, -1), checks.reshape(R * self._G, -1), states

    def norm_at_start(self) -> float:
        """The value at lag 0."""
        return float(np.sqrt(self._n))

    def update(self, block: Block, part: slice) -> None:
        """Absorb a block of all replicas, strip by strip."""
        from gradprop._kernels import strips

        R, G, m = len(block.index), self._G, block.n_steps
        age = self._carried[2][::G, 2]
        first, last = self._stops.columns_between(age.min(initial=2**62), age.max(initial=0) + m)
        squares, gaps = np.zeros((2, R * G, last - first))
        exponents, kept = np.full(squares.shape, UNSET), self._room(R, last - first)
        factors = self._factors(block)

        def work(part: slice) -> None:
            strips.strip_steps(
                *factors, self._n_valid, block.first, self.reverse, self._x.ravel(),
                *self._carried, self._tiles, self._width, self._stops.column, first,
                part.start, part.stop, squares, gaps, exponents, kept, *self._scratch(),
            )  # fmt: skip

        spread(work, replica_slices(R * G, max(1, int(CALL_FLOPS / (self.flops * m)))))
        met = exponents[::G] != UNSET
        shape = R, G, last - first
        exponents = exponents.reshape(shape)
        size, gap, top = _joined(squares.reshape(shape), gaps.reshape(shape), exponents)
        size = self._sizes(size, kept, exponents, top, met, slice(first, last))
        found = self._stated(size, gap, top)
        for all_of, new in zip((self._values, self._errors), found, strict=True):
            np.copyto(all_of[:, first:last], new, where=met)

    def _room(self, n_replicas: int, n_lags: int) -> Float:
        """Where the kernel is to keep P at the lags of a block: none for a Frobenius norm."""
        return np.empty((n_replicas, 0, self._n, self._n))

    def _sizes(
        self, fro: Float, kept: Float, exponents: Int, top: Int, met: Any, columns: slice
    ) -> Float:
        """Norms wanted (R, C), to be times 2**top."""
        return fro

    def _factors(self, block: Block) -> _Factors:
        """The block as the kernel wants it; in float32 no factor may be far above 1."""
        from gradprop._kernels.strips import least_exponents

        if self._dtype == np.float32:
            top = np.maximum(np.abs(block.scales).max(axis=-1, initial=0.0), np.abs(block.identity))
            if top.max(initial=0.0) > LARGE:
                shift = np.frexp(top)[1].astype(np.int64)
                scales = np.ldexp(block.scales, -shift[..., None])
                # what is lost must not look like an exact zero to the check columns
                faint = np.copysign(np.finfo(np.float64).smallest_normal, block.scales)
                block = dataclasses.replace(
                    block,
                    scales=np.where((scales == 0) & (block.scales != 0), faint, scales),
                    exponents=block.exponents + shift,
                    identity=np.ldexp(block.identity, -shift),
                )
        M, d = block.matrices.reshape(-1), block.scales.reshape(-1)
        if self._seen[0] is not block.matrices:
            self._seen = block.matrices, np.empty(len(block.matrices), dtype=np.int64)
            least_exponents(M.view(np.int64), self._n**2, self._seen[1])
        return _Factors(
            M.astype(self._dtype, copy=False), M, self._seen[1], block.index, d, block.exponents,
            block.identity,
        )  # fmt: skip

    def _scratch(self) -> _Scratch:
        from gradprop._kernels.striprows import CHECKS, LISTS, PADDING, REGIONS

        stride = self._n + PADDING
        S = np.zeros(3 * self._carried[0].shape[1], dtype=self._dtype)
        C = np.zeros(REGIONS * (self._n + 1) * CHECKS)
        return _Scratch(
            S, C, np.zeros(LISTS * stride, dtype=np.int64),
            np.zeros(stride, dtype=S.dtype), np.zeros(stride), np.ones(stride),
            np.zeros(4, dtype=np.int64), np.zeros(self._width), np.zeros(CHECKS),
        )  # fmt: skip

    def _stated(self, size: Float, gap: Float, exponent: Any) -> tuple[Float, Float]:
        """Log norms and their errors, from norms and gaps to be times 2**exponent."""
        eps = float(np.finfo(self._dtype).eps)
        log_norm = log_of_scaled(size, exponent)
        zero, agreed = size == 0, gap == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = SPREAD * self._gap_scale * gap / size
            error = -np.log1p(-np.minimum(relative, 1.0))
            error += self.roundings * eps * self._n + 4 * EPS * np.abs(log_norm)
        # an exact zero is believed only if both ways vanish; otherwise it is cancellation
        lost = np.where(zero, ~agreed, ~(relative < 1))
        error = np.where(lost, np.inf, np.where(zero, 0.0, error))
        return np.where(lost, np.nan, log_norm), error

    def _at_lags(self, found: Float) -> tuple[Float, Float]:
        """What was found at the lags, and after everything."""
        columns = self._stops.column[self.grid.unique]
        return found[:, columns], found[np.arange(len(found)), self._last]

    def log_norms(self, ord: str) -> tuple[Float, Float]:
        """Values by column and the value after everything."""
        return self._at_lags(self._values)

    def errors(self, ord: str) -> tuple[Float, Float]:
        """Errors by column and after everything."""
        # Few roundings of both ways may agree by chance; they walk at random, one step a factor.
        # One unit has no other column than 1: a factor rounds once, by half an eps at most.
        lags = self._stops.unique
        walk = lags if self._n == 1 else WALK * np.sqrt(lags)
        total = self._errors + float(np.finfo(self._dtype).eps) * walk
        return self._at_lags(np.where(self._errors == 0, 0.0, total))


def _joined(squares: Float, gaps: Float, exponents: Int) -> tuple[Float, Float, Int]:
    """Norm and gap (R, C) of the whole, to be times 2**exponent, from squares of strips (R, G, C).

    Gaps of strips are independent, so their squares add up.
    """
    if squares.shape[1] == 1:
        return np.sqrt(squares[:, 0]), np.sqrt(gaps[:, 0]), exponents[:, 0]
    dead = (squares == 0) & (gaps == 0)
    top = np.where(dead, UNSET, exponents).max(axis=1)
    power = np.maximum(exponents - top[:, None], -2000).astype(np.int32)
    sums = (np.ldexp(np.where(dead, 0.0, x), 2 * power).sum(axis=1) for x in (squares, gaps))
    size, gap = map(np.sqrt, sums)
    return size, gap, np.where(dead.all(axis=1), 0, top)
