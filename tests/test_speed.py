"""One wide ratio, so that a change which makes analyses many times slower shows in the tests.

Figures belong to benchmarks/speed.py. Here gradprop may take twice the CPU time of plain NumPy, of
which it takes a fraction: a busy machine slows both, and the least of interleaved rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gradprop as gp
from gradprop.environment import single_threaded_blas

ROUNDS, N, STEPS = 7, 64, 150


def numpy_exponents(W: Any, h: Any) -> Any:
    """QR at every step, as one writes it; map included."""
    Q, total = np.eye(N), np.zeros(N)
    for _ in range(STEPS):
        h = np.tanh(W @ h)
        Q, R = np.linalg.qr((1 - h * h)[:, None] * (W @ Q))
        total += np.log(np.abs(np.diagonal(R)))
    return np.sort(total / STEPS)[::-1]


def cpu_seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def test_exponents_take_at_most_twice_the_time_of_numpy() -> None:
    rng = np.random.default_rng(0)
    W, h0 = 0.9 * rng.standard_normal((N, N)) / np.sqrt(N), rng.standard_normal(N)
    cell = gp.RNN(W)

    def ours() -> Any:
        return gp.lyapunov_spectrum(gp.linearise(cell, h0=h0, n_steps=STEPS)).exponents

    def theirs() -> Any:
        return numpy_exponents(W, h0)

    with single_threaded_blas():
        # The first call compiles; both do the same work (below gain 1 no orbit is in chaos).
        np.testing.assert_allclose(ours(), theirs(), rtol=0, atol=1e-10)
        rounds = [(cpu_seconds(ours), cpu_seconds(theirs)) for _ in range(ROUNDS)]
    mine, plain = (min(times) for times in zip(*rounds, strict=True))
    assert mine <= 2 * plain
