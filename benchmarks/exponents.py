"""Full Lyapunov spectra: adaptive orthonormalisation against Householder QR at every step.

Tanh networks, autonomous, n = 16, 64, 128 and several gains; one thread. Both run interleaved in
one process, several rounds; printed are medians of CPU time a step, their ratio, and the largest
difference of an exponent (all of them, and the leading half).
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop._kernels import factor
from gradprop.environment import single_threaded_blas
from gradprop.lyapunov.growth import ExponentFold
from gradprop.panels import random_rotation

ROUNDS = 5
GAINS = (0.6, 0.9, 1.5, 2.0, 3.0, 8.0)
CASES = ((16, 16, 3000), (64, 64, 1000), (128, 128, 300), (128, 8, 1000))


def chain_of(n: int, gain: float, steps: int) -> gp.JacobianChain:
    """The orbit is run beforehand: only the exponents are timed."""
    W = gain * np.random.default_rng(0).standard_normal((n, n)) / np.sqrt(n)
    chain = gp.linearise(gp.RNN(W), n_steps=steps, rng=1)
    assert not chain.overflowed.any()
    return chain


def adaptive(chain: gp.JacobianChain, k: int) -> NDArray[np.float64]:
    """Sums over the whole chain as `lyapunov_spectrum` forms them."""
    fold = ExponentFold(chain, k, 0, np.array([[chain.n_steps]]), 0)
    fold.update(chain.source.block(0, chain.n_steps), slice(0, 1))
    return fold.history[0, -1]


def every_step(chain: gp.JacobianChain, k: int) -> NDArray[np.float64]:
    """Householder QR with sorted rows after each step."""
    n, T = chain.n, chain.n_steps
    block = chain.source.block(0, T)
    Q = (np.eye(n) if k == n else random_rotation(n, k, 0))[None].copy()
    sums, carry = np.zeros((2, 1, k))
    zero, unsure = np.zeros((2, 1, k), dtype=np.int64)
    age, met, history = np.zeros(1, int), np.zeros(1, int), np.zeros((1, 1, k))
    factor.qr_exponent_steps(
        block.matrices, block.index, block.scales, block.exponents, block.identity,
        np.array([T]), 0, 0, Q, sums, carry, zero, unsure, age, np.array([[T]]), met, history,
    )  # fmt: skip
    return history[0, 0]


def main() -> None:
    print(
        f"{'n':>4} {'k':>4} {'gain':>5} {'adaptive':>10} {'Householder':>12} {'ratio':>6}  differ"
    )
    with single_threaded_blas():
        for n, k, steps in CASES:
            for gain in GAINS:
                chain = chain_of(n, gain, steps)
                small = chain.tail(5)
                adaptive(small, k), every_step(small, k)
                times: dict[object, list[float]] = {adaptive: [], every_step: []}
                sums = {}
                for _ in range(ROUNDS):
                    for run in (adaptive, every_step):
                        start = time.process_time()
                        sums[run] = run(chain, k)
                        times[run].append((time.process_time() - start) / steps * 1e6)
                fast, slow = (statistics.median(times[run]) for run in (adaptive, every_step))
                apart = np.abs(sums[adaptive] - sums[every_step]) / steps
                print(
                    f"{n:4} {k:4} {gain:5} {fast:7.2f} us {slow:9.2f} us {slow / fast:6.2f}  "
                    f"{apart.max():.0e}, {apart[: max(k // 2, 1)].max():.0e}"
                )


if __name__ == "__main__":
    main()
