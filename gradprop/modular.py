"""Rank of a long product, exactly: entries are dyadic, so it can be formed modulo a prime."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradprop.blocks import Block, Float
from gradprop.chain import JacobianChain

PRIMES = (2**61 - 1, 2**61 - 31)
"""Two primes: a rank that is too small by chance at both has probability below 1e-34 n."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """The factors of one replica's product, first to act first, transposed if it runs backwards."""

    chain: JacobianChain
    replica: int
    reverse: bool

    def __iter__(self) -> Iterator[tuple[Float, Float, float, int]]:
        """Matrix M, row scales d, identity part a and exponent e: J = 2^e (a I + diag(d) M)."""
        length = int(self.chain.lengths.ravel()[self.replica])
        for block in self.chain.blocks(reverse=self.reverse):
            if not isinstance(block, Block):
                raise TypeError("diagonal chains are exact already")
            order = range(block.n_steps)
            for t in reversed(order) if self.reverse else order:
                if block.first + t < length:
                    yield (
                        block.matrices[block.index[self.replica, t]],
                        block.scales[self.replica, t],
                        float(block.identity[self.replica, t]),
                        int(block.exponents[self.replica, t]),
                    )


def modular_ranks(steps: Steps, lags: list[int], n: int) -> dict[int, int]:
    """Rank of the product at each lag: the larger of the ranks modulo two primes.

    A rank modulo a prime never exceeds the true one, so every value within it is proven positive.
    """
    ranks = dict.fromkeys(lags, 0)
    for prime in PRIMES:
        for lag, product in _modular_products(steps, lags, n, prime):
            ranks[lag] = max(ranks[lag], int(product.rank()))
    return ranks


def _modular_products(
    steps: Steps, lags: list[int], n: int, prime: int
) -> Iterator[tuple[int, Any]]:
    from flint import nmod_mat

    wanted = set(lags)
    product = nmod_mat(n, n, np.eye(n, dtype=int).ravel().tolist(), prime)
    if 0 in wanted:
        yield 0, product
    last: Float | None = None
    residues: list[int] = []
    for lag, (M, d, a, _) in enumerate(steps, start=1):
        if last is None or not np.may_share_memory(M, last):
            last, residues = M, [_residue(x, prime) for x in M.ravel().tolist()]
        scales = [_residue(x, prime) for x in d.tolist()]
        keep = _residue(a, prime)
        J = [scales[k // n] * x % prime for k, x in enumerate(residues)]
        for i in range(n):
            J[i * n + i] = (J[i * n + i] + keep) % prime
        factor = nmod_mat(n, n, J, prime)
        product = (factor.transpose() if steps.reverse else factor) * product
        if lag in wanted:
            yield lag, product
        if lag == lags[-1]:
            return


def _residue(x: float, prime: int) -> int:
    """A float, being an integer over 2^k exactly, modulo an odd prime."""
    numerator, denominator = x.as_integer_ratio()
    return numerator * _halves(denominator.bit_length() - 1, prime) % prime


@functools.cache
def _halves(k: int, prime: int) -> int:
    """2^-k modulo an odd prime."""
    return pow(pow(2, -1, prime), k, prime)
