"""CPU time of ``largest_singular_values`` against ``numpy.linalg.svd``, BLAS at one thread.

Each line is a kind of matrix and a size: microseconds a matrix (medians of interleaved rounds, with
the range), their ratio, and the largest relative difference in units of n eps. The aims at n = 64
are at most 60 us for one random Jacobian and 25 us for a product of 200.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values

ROUNDS = 21
SIZES = (16, 32, 64, 128, 256)
LAGS = (1, 2, 5, 20, 50, 200)
Stack = NDArray[np.float64]


def rescaled(A: Stack) -> Stack:
    """Each matrix times the power of two that brings its largest entry into [1/2, 1)."""
    exponent = np.frexp(np.abs(A).max(axis=(-2, -1), keepdims=True))[1]
    return np.ldexp(A, -exponent)


def products(rng: np.random.Generator, W: Stack, R: int) -> Iterator[tuple[int, Stack]]:
    """R products of diag(phi'(z)) W, z standard normal and phi = tanh, at each lag."""
    n = len(W)
    P = np.broadcast_to(np.eye(n), (R, n, n))
    for lag in range(1, max(LAGS) + 1):
        P = rescaled(np.cosh(rng.standard_normal((R, n, 1))) ** -2 * (W @ P))
        if lag in LAGS:
            yield lag, P


def stacks(n: int) -> Iterator[tuple[str, Stack]]:
    rng = np.random.default_rng(n)
    R = max(4, 2000 // n)
    gaussian = rng.standard_normal((n, n)) / np.sqrt(n)
    orthogonal = np.linalg.qr(gaussian)[0]
    yield "Gaussian", rescaled(rng.standard_normal((R, n, n)))
    for lag, P in products(rng, gaussian, R):
        yield f"Gaussian tanh, lag {lag}", P
    for lag, P in products(rng, orthogonal, R):
        if lag <= 20:
            yield f"orthogonal tanh, lag {lag}", P
    yield "orthogonal", np.array([orthogonal] * R)
    close = np.r_[1 - 1e-10 * np.arange(3), np.linspace(0.5, 0, n - 3)]
    yield "three values within 2e-10", np.array([orthogonal * close @ orthogonal.T] * R)


def svd(A: Stack) -> Stack:
    return np.asarray(np.linalg.svd(A, compute_uv=False)[..., 0])


def microseconds(function: Callable[[Stack], Stack], A: Stack) -> float:
    start = time.thread_time()
    function(A)
    return (time.thread_time() - start) / len(A) * 1e6


def main() -> None:
    print(f"{'n':>4} {'matrices':<28} {'ours':>8} {'svd':>8} {'ratio':>6}  ranges, difference")
    with single_threaded_blas():
        for n in SIZES:
            for name, A in stacks(n):
                ours, theirs = largest_singular_values(A), svd(A)  # the first call compiles
                gap = np.abs(ours / theirs - 1).max() / (n * np.finfo(float).eps)
                times = [
                    (microseconds(largest_singular_values, A), microseconds(svd, A))
                    for _ in range(ROUNDS if n <= 64 else ROUNDS // 4)
                ]
                a, b = zip(*times, strict=True)
                mine, other = statistics.median(a), statistics.median(b)
                print(
                    f"{n:4d} {name:<28} {mine:8.1f} {other:8.1f} {other / mine:6.1f}  "
                    f"{min(a):.1f}-{max(a):.1f}, {min(b):.1f}-{max(b):.1f}, {gap:.2f} n eps"
                )


if __name__ == "__main__":
    main()
