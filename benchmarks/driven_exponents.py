"""Leading exponents of driven tanh networks of 2048 units against theory, and of the Henon map.

Fresh N(0, s^2) per unit and step; theory: q = g^2 E tanh^2(sqrt(q) z) + s^2 and
lambda_1 = ln(g^2 E sech^4(sqrt(q) z)) / 2. Mean of 4 networks, 1000 steps after 200.
"""

from __future__ import annotations

import numba
import numpy as np

import gradprop as gp

N, STEPS, WARM_UP, NETWORKS = 2048, 1000, 200, 4
CASES = ((1.5, 0.5), (2.0, 0.5), (3.0, 1.0))


@numba.njit
def henon_jacobians(J: np.ndarray, x: float, y: float) -> tuple[float, float]:
    """Fill J (T, 2, 2) along the orbit of (x, y), a = 1.4, b = 0.3; returns the last point."""
    for t in range(len(J)):
        J[t, 0, 0], J[t, 0, 1], J[t, 1, 0], J[t, 1, 1] = -2.8 * x, 1.0, 0.3, 0.0
        x, y = 1.0 - 1.4 * x * x + y, 0.3 * x
    return x, y


def main() -> None:
    """Print measured beside expected values."""
    J = np.empty((10**7, 2, 2))
    point = henon_jacobians(J[:1000], 0.1, 0.1)
    henon_jacobians(J, *point)
    spectrum = gp.lyapunov_spectrum(gp.JacobianChain.dense(J), burn_in=100)
    low, high = spectrum.interval[0]
    print(f"Henon lambda_1 in [{low:.6f}, {high:.6f}], known 0.419211(11)")
    print(f"Henon sum - ln 0.3 = {spectrum.exponents.sum() - np.log(0.3):.1e}", flush=True)
    for gain, variance in CASES:
        values = []
        for seed in range(NETWORKS):
            rng = np.random.default_rng(seed)
            W = gp.initialise("gaussian", N, rng=rng, gain=gain)
            x = np.sqrt(variance) * rng.standard_normal((STEPS + WARM_UP, N))
            chain = gp.linearise(gp.RNN(W), x)
            values.append(float(gp.lyapunov_spectrum(chain, 1, burn_in=WARM_UP).exponents[0]))
        theory = float(gp.mean_field("tanh", gain, np.sqrt(variance)).rate)
        print(
            f"g = {gain}, s^2 = {variance}: {np.mean(values):+.4f} +- "
            f"{np.std(values, ddof=1) / np.sqrt(NETWORKS):.4f}, theory {theory:+.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
