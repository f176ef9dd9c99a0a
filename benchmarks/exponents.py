"""Full Lyapunov spectra: adaptive orthonormalisation against Householder QR at every step.

Tanh networks, autonomous, n = 16 ... 256 and several gains; one thread. Three ways run interleaved
in one process, several rounds: the library's, the same with its own Householder QR at every step,
and LAPACK's at every step as Numba calls it. Printed are medians of CPU time a step, how much less
the first takes than either, and its largest difference from LAPACK of an exponent (the leading
half, and all). The last lines of a size pool the gains up to 2.
"""

from __future__ import annotations

import statistics
import time

import numba
import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.blocks import Block
from gradprop.environment import single_threaded_blas
from gradprop.lyapunov.growth import LONGEST, ExponentFold
from gradprop.panels import random_rotation

ROUNDS = 5
GAINS = (0.6, 0.9, 1.2, 1.5, 2.0, 3.0, 8.0)
CASES = ((16, 16, 3000), (32, 32, 1500), (64, 64, 600), (128, 128, 200), (256, 256, 60))
FEW = ((128, 8, 1000),)


def chain_of(n: int, gain: float, steps: int) -> gp.JacobianChain:
    """The orbit is run beforehand: only the exponents are timed."""
    W = gain * np.random.default_rng(0).standard_normal((n, n)) / np.sqrt(n)
    chain = gp.linearise(gp.RNN(W), n_steps=steps, rng=1)
    assert not chain.overflowed.any()
    return chain


def sums_of(chain: gp.JacobianChain, k: int, longest: int) -> NDArray[np.float64]:
    """Sums over the whole chain as `lyapunov_spectrum` forms them."""
    fold = ExponentFold(chain, k, 0, np.array([[chain.n_steps]]), 0, longest)
    block = chain.source.block(0, chain.n_steps)
    assert isinstance(block, Block)
    fold.update(block, slice(0, 1))
    return np.asarray(fold.history[0, -1])


def adaptive(chain: gp.JacobianChain, k: int) -> NDArray[np.float64]:
    """As the library does it."""
    return sums_of(chain, k, LONGEST)


def every_step(chain: gp.JacobianChain, k: int) -> NDArray[np.float64]:
    """The library's Householder QR with sorted rows after each step."""
    return sums_of(chain, k, 0)


@numba.njit(error_model="numpy")
def _lapack_steps(M, index, d, e, Q):  # type: ignore[no-untyped-def]
    sums = np.zeros(Q.shape[1])
    for t in range(index.size):
        B = np.dot(M[index[t]], Q)
        for i in range(B.shape[0]):
            for j in range(B.shape[1]):
                B[i, j] *= d[t, i]
        Q, R = np.linalg.qr(B)
        Q = np.ascontiguousarray(Q)
        for i in range(sums.size):
            sums[i] += np.log(abs(R[i, i])) + e[t] * np.log(2.0)
    return sums


def lapack(chain: gp.JacobianChain, k: int) -> NDArray[np.float64]:
    """LAPACK's Householder QR after each step."""
    block = chain.source.block(0, chain.n_steps)
    assert isinstance(block, Block)
    Q = np.eye(chain.n) if k == chain.n else random_rotation(chain.n, k, 0)
    parts = block.matrices, block.index[0], block.scales[0], block.exponents[0]
    return np.asarray(_lapack_steps(*parts, np.ascontiguousarray(Q)))


WAYS = (adaptive, every_step, lapack)


def compared(n: int, k: int, gain: float, steps: int) -> list[float]:
    """Print one line; returns microseconds a step of the three."""
    chain = chain_of(n, gain, steps)
    times: dict[object, list[float]] = {way: [] for way in WAYS}
    sums = {}
    for way in WAYS:
        way(chain.tail(5), k)
    for _ in range(ROUNDS):
        for way in WAYS:
            start = time.process_time()
            sums[way] = way(chain, k)
            times[way].append((time.process_time() - start) / steps * 1e6)
    took = [statistics.median(times[way]) for way in WAYS]
    apart = np.abs(sums[adaptive] - sums[lapack]) / steps
    print(
        f"{n:4} {k:4} {gain:5} {took[0]:9.2f} us {took[1]:9.2f} us {took[2]:9.2f} us "
        f"{took[1] / took[0]:6.2f} {took[2] / took[0]:6.2f}  "
        f"{apart[: max(k // 2, 1)].max():.0e}, {apart.max():.0e}",
        flush=True,
    )
    return took


def main() -> None:
    print("   n    k  gain     adaptive    Householder       LAPACK  times less  differ")
    with single_threaded_blas():
        for n, k, steps in CASES + FEW:
            calm = np.sum([compared(n, k, g, steps) for g in GAINS if g <= 2], axis=0)
            print(f"{n:4} {k:4}  <= 2 {calm[1] / calm[0]:45.2f} {calm[2] / calm[0]:6.2f}")
            for gain in (g for g in GAINS if g > 2):
                compared(n, k, gain, steps)


if __name__ == "__main__":
    main()
