"""Are bounds ever broken?  Random networks against the truth, certificates against exact products.

Two counts: bounds of ln ||P_lag|| on orbits of random (W, activation, lag), compared with the
measured norm to 1e-12 (1 + lag) nats and its own error; and certificates on random W, orthogonal
ones among them, compared with products in integers at tolerance 0. Both must be 0.

    python benchmarks/bound_violations.py [--networks 5000] [--certificates 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import gradprop as gp
from gradprop._kernels.activations import CODES
from gradprop._normbounds import UPPER

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from certified import KINDS, margin, random_case, random_weights

LAGS = (1, 2, 5, 10, 20, 40, 60)
WEIGHTS = 10


def broken_bounds(rng: np.random.Generator) -> tuple[int, int, float]:
    """Draws, violations and the least margin over 1 + lag: 10 W of one size, 7 lags."""
    n = int(rng.choice([1, 2, 3, 5, 8, 16]))
    W = np.array([random_weights(rng, str(rng.choice(KINDS)), n) for _ in range(WEIGHTS)])
    cell = gp.RNN(
        rng.uniform(0.5, 2) * W,
        W_xh=np.eye(n),
        activation=str(rng.choice(list(CODES))),
        leak=float(rng.choice([1.0, 1.0, 0.5, 0.1])),
    )
    chain = gp.linearise(cell, rng.uniform(0, 2) * rng.standard_normal((LAGS[-1], n)))
    bounds, norms = gp.measure(chain, gp.Bounds(LAGS), gp.Norms(lags=LAGS))
    known = np.isfinite(norms.log_norm)
    truth, steps = norms.log_norm[known], np.broadcast_to(1 + bounds.lags, known.shape)[known]
    room = 1e-12 * steps + norms.error[known]
    above = np.array([getattr(bounds, name)[known] - truth for name in UPPER])
    below = truth - bounds.lower[known]
    violations = int((above < -room).sum() + (below < -room).sum())
    return len(truth), violations, float((above / steps).min(initial=np.inf))


def broken_certificate(rng: np.random.Generator) -> tuple[str, float]:
    """Kind of a random certificate and its least exact margin at one lag, over its three kinds."""
    case, lag = random_case(rng, 7), int(rng.integers(1, 8))
    certificate = gp.growth_certificate(
        case.W, gamma=case.gamma, leak=case.leak, n_steps=[None, 2, 40][rng.integers(3)]
    )
    truth = case.log_norm(lag)
    pairs = zip(certificate.constants, certificate.rates, strict=True)
    margins = [margin(c, r, lag, truth) for c, r in pairs]
    return str(certificate.kind), min(*margins, margin(certificate.at([lag])[0], 0.0, lag, truth))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=5000)
    parser.add_argument("--certificates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    start, draws, broken, least = time.perf_counter(), 0, 0, np.inf
    while draws < options.networks:
        own, violations, closest = broken_bounds(rng)
        draws, broken, least = draws + own, broken + violations, min(least, closest)
    seconds = time.perf_counter() - start
    print(f"bounds: {draws} (W, activation, lag), {len(UPPER) + 1} bounds each: {broken} broken")
    print(f"        closest upper bound {least:+.1e} nats a step; {seconds:.0f} s")
    start, kinds, margins = time.perf_counter(), Counter(), []
    for _ in range(options.certificates):
        kind, closest = broken_certificate(rng)
        kinds[kind] += 1
        margins.append(closest)
    failed = sum(m < 0 for m in margins)
    print(f"certificates: {len(margins)} W {dict(kinds)}: {failed} broken at tolerance 0")
    print(f"        closest {min(margins):.1e} nats; {time.perf_counter() - start:.0f} s")
    return int(bool(broken or failed))


if __name__ == "__main__":
    sys.exit(main())
