"""Panels of vectors carried through a chain, and what they say about the product's norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Block, Float, GateBlock, Int
from gradprop.chain import JacobianChain
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values
from gradprop.measure import LagGrid
from gradprop.results import log_of_scaled

EPS = float(np.finfo(np.float64).eps)

SPREAD = 10.0
"""Stated error of a norm over the difference of two computations; chosen by experiment. Over 40 000
norms of ten families, cancelling ones among them, no true error exceeded 0.51 of the stated one
(benchmarks/singular_value_errors.py)."""

COVERAGE = 0.95
"""Probability that the norm lies within the stated error of what probes say."""


class _PanelFold:
    """Carries P panel, panels (R, n, p), and takes norms of it at every lag.

    A panel holds something that can be computed in two ways, all roundings of which differ, so
    that cancellation in the product shows itself: the difference is the error estimate.
    """

    def __init__(self, chain: JacobianChain, grid: LagGrid, panels: Float) -> None:
        R, n, p = panels.shape
        L = len(grid.unique)
        self.grid, self.reverse, self.window = grid, grid.reverse, grid.window(chain)
        self.floats = n * p * (L / max(chain.n_steps, 1)) + 2.0 * n
        self._n_valid = chain.lengths.ravel()
        self._panels = panels
        self._exponent = np.zeros(R, dtype=np.int64)
        self._age = np.zeros(R, dtype=np.int64)
        self._values = np.full((R, L), np.nan)
        self._errors = np.full((R, L), np.nan)
        if grid.column[0] >= 0:
            self._values[:, 0], self._errors[:, 0] = self._norms(self._panels, self._exponent)

    def update(self, block: Block | GateBlock, part: slice) -> None:
        """Absorb a block."""
        age = self._age[part]
        low, high = int(age.min(initial=2**62)), int(age.max(initial=0))
        first, last = self.grid.columns_between(low, high + block.n_steps)
        unset = np.iinfo(np.int64).min
        exponents = np.full((len(age), last - first), unset)
        kept = np.zeros((*exponents.shape, *self._panels.shape[1:]))
        self._advance(block, part, first, kept, exponents)
        values, errors = self._norms(kept, exponents)
        met = exponents != unset
        self._values[part, first:last][met] = values[met]
        self._errors[part, first:last][met] = errors[met]
        self.see(kept, exponents, met, part, slice(first, last))

    def _advance(
        self, block: Block | GateBlock, part: slice, first: int, kept: Float, exponents: Int
    ) -> None:
        """Push the panels through a block and keep them at the lags of columns from `first` on."""
        from gradprop._kernels import gatevectors, products

        age, column = self._age[part], self.grid.column
        carried = (self._panels[part], self._exponent[part], age, column, first, kept, exponents)
        before = (self._n_valid[part], block.first, self.reverse)
        if isinstance(block, GateBlock):
            gatevectors.gated_panel_steps(
                block.kind, block.W, block.which, block.coefs, *before, *carried
            )
            return
        products.product_steps(
            block.matrices, block.index, block.scales, block.exponents, block.identity,
            *before, *carried,
        )  # fmt: skip

    def see(
        self, kept: Float, exponents: Int, met: NDArray[np.bool_], part: slice, columns: slice
    ) -> None:
        """Look at the panels kept at the lags of some columns; nothing here, more above."""

    def _sizes(self, panel: Float) -> tuple[Float, Float, Float]:
        """Norm wanted, length of the longest column, and gap between two computations."""
        raise NotImplementedError

    def _norms(self, panel: Float, exponent: Int) -> tuple[Float, Float]:
        """Log norms and their errors of scaled panels, shape (..., n, p)."""
        n = panel.shape[-2]
        size, column, gap = self._sizes(panel)
        log_norm = log_of_scaled(size, exponent)
        zero, agreed = size == 0, gap == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = SPREAD * gap / column
            error = -np.log1p(-np.minimum(relative, 1.0)) + EPS * (2 * n + 2 * np.abs(log_norm))
        # an exact zero is believed only if both ways vanish; otherwise it is cancellation
        lost = (relative >= 1) | (zero & ~agreed)
        error = np.where(lost, np.inf, np.where(zero, 0.0, error))
        return np.where(lost, np.nan, log_norm), error

    def log_norms(self, ord: str) -> tuple[Float, Float]:
        """Values by column and the value after everything."""
        return self._values, self._norms(self._panels, self._exponent)[0]

    def errors(self, ord: str) -> tuple[Float, Float]:
        """Errors by column and after everything."""
        # one unit has no other rotation than 1: a factor rounds once, by half an eps at most
        scalar = EPS * self.grid.unique * (self._panels.shape[1] == 1)
        return self._errors + scalar, self._norms(self._panels, self._exponent)[1] + scalar[-1]


class ProductFold(_PanelFold):
    """Carries [P, P Q0] with Q0 a fixed random rotation."""

    def __init__(self, chain: JacobianChain, grid: LagGrid, ord: str) -> None:
        n = chain.n
        self.flops = 4.0 * n**3 + (12.0 if ord == "2" else 2.0) * n**3
        self._ord, self._rotation = ord, random_rotation(n)
        panel = np.hstack([np.eye(n), self._rotation])
        super().__init__(chain, grid, np.tile(panel, (chain.n_replicas, 1, 1)))

    def _sizes(self, panel: Float) -> tuple[Float, Float, Float]:
        n = panel.shape[-2]
        P, rotated = panel[..., :n], panel[..., n:]
        with single_threaded_blas():
            size = norm_of(P, self._ord)
            gap = np.linalg.norm(rotated - P @ self._rotation, axis=(-2, -1))
        return size, np.linalg.norm(P, axis=-2).max(axis=-1), np.asarray(gap)


class ProbeFold(_PanelFold):
    """Carries [P Q, P Q w]: Q (n, k) random orthonormal columns, of each replica its own.

    (n / k) ||P Q||_F^2 has mean ||P||_F^2; the last column repeats a sum of the others.
    """

    takes_gates = True

    def __init__(self, chain: JacobianChain, grid: LagGrid, probes: int, rng: Any) -> None:
        n, k = chain.n, min(probes, chain.n)
        self.flops = 2.0 * n * n * (k + 1) + 4.0 * n * (k + 1)
        # thirds, since a power of two would round alike
        self._sum, self._scale = np.full(k, 1 / 3), np.sqrt(n / k)
        self._band = probe_band(n, k)
        generator = np.random.default_rng(rng)
        Q = np.array([random_rotation(n, k, generator) for _ in range(chain.n_replicas)])
        Q = Q.reshape(chain.n_replicas, n, k)
        super().__init__(chain, grid, np.concatenate([Q, (Q @ self._sum)[..., None]], axis=-1))

    def _sizes(self, panel: Float) -> tuple[Float, Float, Float]:
        squares = np.einsum("...ij,...ij->...j", panel, panel)[..., :-1]
        size = self._scale * np.sqrt(squares.sum(axis=-1))
        with single_threaded_blas():
            gap = np.linalg.norm(panel @ np.append(self._sum, -1.0), axis=-1)
        return size, np.sqrt(squares.max(axis=-1)), np.asarray(gap)

    def _norms(self, panel: Float, exponent: Int) -> tuple[Float, Float]:
        log_norm, error = super()._norms(panel, exponent)
        return log_norm, np.where(np.isneginf(log_norm), error, error + self._band)


def probe_band(n: int, k: int, coverage: float = COVERAGE) -> float:
    """Half width e of the band of ln ||P||_F from k probes of n units, in nats.

    For P of rank one, (n / k) ||P Q||^2 / ||P||^2 is n / k times a Beta(k/2, (n - k)/2) variable;
    its logarithm lies within 2 e of 0 with probability `coverage`. Any other P is a weighted mean
    of such variables, hence nearer to 1 on average, and so are its tails. For n >> k the Beta
    variable is chi-square with k degrees of freedom.
    """
    if k >= n:
        return 0.0
    from scipy.special import betainc

    low, high = 0.0, 1.0
    while _outside(betainc, n, k, high) > 1 - coverage:
        high *= 2
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _outside(betainc, n, k, middle) > 1 - coverage:
            low = middle
        else:
            high = middle
    return high


def _outside(betainc: Any, n: int, k: int, e: float) -> float:
    """Probability that a rank-one norm lies further than e from what its probes say."""
    a, b = k / 2, (n - k) / 2
    upper = min(k / n * np.exp(2 * e), 1.0)
    return float(betainc(a, b, k / n * np.exp(-2 * e)) + 1 - betainc(a, b, upper))


def random_rotation(n: int, k: int | None = None, rng: Any = 0) -> Float:
    """Haar-distributed orthonormal columns, shape (n, k), the same on every call by default."""
    drawn = np.random.default_rng(rng).standard_normal((n, n if k is None else k))
    with single_threaded_blas():  # two threads round another way from n = 300 on
        Q, R = np.linalg.qr(drawn)
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def norm_of(P: Float, ord: str) -> Float:
    """2-norm or Frobenius norm of each matrix, entries of order one."""
    if ord == "fro":
        return np.asarray(np.linalg.norm(P, axis=(-2, -1)))
    return largest_singular_values(P)
