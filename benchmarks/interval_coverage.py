"""Coverage of nominal 95 % intervals of the leading exponent, 2000 replicates each.

Products of fresh Gaussian 4 x 4 matrices (truth: Newman), the same with an AR(1) gain of
coefficient 0.95 (same truth), and a contracting tanh network of 64 units driven along one
direction by an AR(1) input (truth: mean over other, longer runs).
"""

from __future__ import annotations

import numpy as np

import gradprop as gp

REPLICATES, BATCH, N = 2000, 100, 4


def ar1(rng: np.random.Generator, size: int, n_steps: int, phi: float = 0.95) -> np.ndarray:
    """Stationary unit-variance series, (size, n_steps)."""
    noise = rng.standard_normal((size, n_steps)) * np.sqrt(1 - phi**2)
    noise[:, 0] /= np.sqrt(1 - phi**2)
    for t in range(1, n_steps):
        noise[:, t] += phi * noise[:, t - 1]
    return noise


def covered(result: gp.LyapunovSpectrum, truth: float) -> int:
    """Intervals of the leading exponent that hold the truth."""
    low, high = result.interval[:, 0].T
    return int(((low <= truth) & (truth <= high)).sum())


def gaussian_products(n_steps: int, modulated: bool) -> int:
    """Covered replicates of Gaussian products, with or without the AR(1) gain."""
    rng = np.random.default_rng(1)
    truth, hits = float(gp.newman_exponents(N, 1.0).exponents[0]), 0
    for _ in range(REPLICATES // BATCH):
        J = rng.standard_normal((BATCH, n_steps, N, N))
        if modulated:
            J *= np.exp(ar1(rng, BATCH, n_steps))[..., None, None]
        chain = gp.JacobianChain.dense(J)
        hits += covered(gp.lyapunov_spectrum(chain, 1), truth)
    return hits


def driven_network(n_steps: int) -> int:
    """Covered replicates of one network under 2000 inputs, against other 2000 of 4000 steps."""
    rng = np.random.default_rng(2)
    W = gp.initialise("gaussian", 64, rng=rng, gain=0.9)
    direction = rng.standard_normal(64)

    def spectrum(steps: int) -> gp.LyapunovSpectrum:
        x = ar1(rng, BATCH, steps + 100)[..., None] * direction
        return gp.lyapunov_spectrum(gp.linearise(gp.RNN(W), x), 1, burn_in=100)

    rounds = range(REPLICATES // BATCH)
    truth = float(np.mean([spectrum(4000).exponents.mean() for _ in rounds]))
    return sum(covered(spectrum(n_steps), truth) for _ in rounds)


def main() -> None:
    """Print one line a case."""
    for name, hits in (
        ("Gaussian products, 1000 steps", gaussian_products(1000, False)),
        ("with AR(1) gain, 5000 steps", gaussian_products(5000, True)),
        ("driven network, 500 steps", driven_network(500)),
        ("driven network, 2000 steps", driven_network(2000)),
    ):
        print(f"{name:32} {hits / REPLICATES:.1%} of {REPLICATES} covered", flush=True)


if __name__ == "__main__":
    main()
