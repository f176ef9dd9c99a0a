"""The folds behind probes: what a few random vectors, carried through a chain, say of its norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradprop._stripfold import StripFold
from gradprop.blocks import Float, GateBlock, Int
from gradprop.chain import JacobianChain
from gradprop.environment import single_threaded_blas
from gradprop.measure import LagGrid
from gradprop.results import log_of_scaled
from gradprop.rotations import EPS, random_rotation

COVERAGE = 0.95
"""Probability that the norm lies within the stated error of what probes say."""

SPREAD = 10.0
"""Stated error of a norm over the difference of two computations; chosen by experiment. Of norms of
whole products beside rotated ones, ten families, no true error exceeded 0.51 of the stated one."""


class ProbeFold(StripFold):
    """Carries P Q: Q (n, k) random orthonormal columns, of each replica its own.

    (n / k) ||P Q||_F^2 has mean ||P||_F^2.
    """

    def __init__(self, chain: JacobianChain, grid: LagGrid, probes: int, rng: Any) -> None:
        self._k = min(probes, chain.n)
        self._band = probe_band(chain.n, self._k)
        Q = random_probes(chain.n_replicas, chain.n, self._k, rng)
        super().__init__(chain, grid, V=Q)

    def norm_at_start(self) -> float:
        """The value at lag 0, before it is scaled."""
        return float(np.sqrt(self._k))

    def _stated(self, size: Float, gap: Float, exponent: Any) -> tuple[Float, Float]:
        scale = np.sqrt(self._n / self._k)
        log_norm, error = super()._stated(scale * size, scale * gap, exponent)
        return log_norm, np.where(np.isneginf(log_norm), error, error + self._band)


class GateProbeFold:
    """`ProbeFold` of gated cells, by their gates: carries [P Q, P Q w].

    The last column repeats a sum of the others in another way, so that cancellation in the product
    shows itself: the difference is the error estimate.
    """

    takes_gates = True

    def __init__(self, chain: JacobianChain, grid: LagGrid, probes: int, rng: Any) -> None:
        R, n, k, L = chain.n_replicas, chain.n, min(probes, chain.n), len(grid.unique)
        self.grid, self.reverse, self.window = grid, grid.reverse, grid.window(chain)
        self.flops = 2.0 * n * n * (k + 1) + 4.0 * n * (k + 1)
        self.floats = n * (k + 1) * (L / max(chain.n_steps, 1)) + 2.0 * n
        # thirds, since a power of two would round alike
        self._sum, self._scale = np.full(k, 1 / 3), np.sqrt(n / k)
        self._band = probe_band(n, k)
        Q = random_probes(R, n, k, rng)
        self._n_valid = chain.lengths.ravel()
        self._panels = np.concatenate([Q, (Q @ self._sum)[..., None]], axis=-1)
        self._exponent, self._age = np.zeros((2, R), dtype=np.int64)
        self._values, self._errors = np.full((2, R, L), np.nan)
        if grid.column[0] >= 0:
            self._values[:, 0], self._errors[:, 0] = self._norms(self._panels, self._exponent)

    def update(self, block: GateBlock, part: slice) -> None:
        """Absorb a block."""
        from gradprop._kernels.gatevectors import gated_panel_steps

        age = self._age[part]
        low, high = int(age.min(initial=2**62)), int(age.max(initial=0))
        first, last = self.grid.columns_between(low, high + block.n_steps)
        unset = np.iinfo(np.int64).min
        exponents = np.full((len(age), last - first), unset)
        kept = np.zeros((*exponents.shape, *self._panels.shape[1:]))
        gated_panel_steps(
            block.kind, block.W, block.which, block.coefs, self._n_valid[part], block.first,
            self.reverse, self._panels[part], self._exponent[part], age, self.grid.column, first,
            kept, exponents,
        )  # fmt: skip
        values, errors = self._norms(kept, exponents)
        met = exponents != unset
        self._values[part, first:last][met] = values[met]
        self._errors[part, first:last][met] = errors[met]

    def _norms(self, V: Float, exponent: Int) -> tuple[Float, Float]:
        """Log norms and their errors from scaled V, shape (..., n, k + 1)."""
        n = V.shape[-2]
        squares = np.einsum("...ij,...ij->...j", V, V)[..., :-1]
        size, column = self._scale * np.sqrt(squares.sum(axis=-1)), np.sqrt(squares.max(axis=-1))
        with single_threaded_blas():
            gap = np.linalg.norm(V @ np.append(self._sum, -1.0), axis=-1)
        log_norm = log_of_scaled(size, exponent)
        zero, agreed = size == 0, gap == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = SPREAD * gap / column
            error = -np.log1p(-np.minimum(relative, 1.0)) + EPS * (2 * n + 2 * np.abs(log_norm))
        # an exact zero is believed only if both ways vanish; otherwise it is cancellation
        lost = (relative >= 1) | (zero & ~agreed)
        error = np.where(lost, np.inf, np.where(zero, 0.0, error + self._band))
        return np.where(lost, np.nan, log_norm), error

    def log_norms(self, ord: str) -> tuple[Float, Float]:
        """Values by column and the value after everything."""
        return self._values, self._norms(self._panels, self._exponent)[0]

    def errors(self, ord: str) -> tuple[Float, Float]:
        """Errors by column and after everything."""
        # one unit has no other rotation than 1: a factor rounds once, by half an eps at most
        scalar = EPS * self.grid.unique * (self._panels.shape[1] == 1)
        return self._errors + scalar, self._norms(self._panels, self._exponent)[1] + scalar[-1]


def random_probes(n_replicas: int, n: int, k: int, rng: Any) -> Float:
    """Orthonormal columns (R, n, k), of each replica its own."""
    generator = np.random.default_rng(rng)
    drawn = [random_rotation(n, k, generator) for _ in range(n_replicas)]
    return np.array(drawn).reshape(n_replicas, n, k)


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
