"""Newton's method over all time steps at once, against the Lyapunov exponent.

The claim: solving h_t = F(h_{t-1}, x_t) for all t together by Newton's method, as parallel-in-time
evaluation of recurrent networks does, takes few iterations where the top exponent is well below 0
and more and more as it nears 0; above about +0.03 nats a step 1024 steps are not solved within 400
iterations. There is no wall at 0 itself: with weak input networks slightly above it are solved, in
hundreds of iterations, and then a residual of 1e-10 no longer means the right states. Where the
exponent is well below 0 the number of iterations hardly depends on the length of the sequence;
above 0 it grows in proportion to it, and short chaotic sequences are solved.

Y. H. Lim et al., Parallelizing non-linear sequential models over the sequence length, ICLR 2024
(the method); X. Gonzalez et al., NeurIPS 2025 (predictability decides).

Full grid: tanh, 32 units, Gaussian W of gains from 0.5 to 3, white input of standard deviation 0.5
or 1 on every unit, 1024 steps, 6 networks a gain; first guess 0, no damping, converged when every
|h_t - F(h_{t-1})| <= 1e-10; lengths 32 to 2048 at four gains (input 0.5). The exponent is that of
the same steps, the first sixteenth left out, its 95 % interval from ten batch means.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence

import _newton_draw
import _parallel_newton
import numpy as np
from _seeds import spread

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

GAINS = {
    0.5: [0.5, 0.7, 0.9, 1.1, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0, 2.5, 3.0],
    1.0: [0.5, 0.9, 1.3, 1.6, 1.8, 1.9, 2.0, 2.1, 2.2, 2.5, 3.0],
}
"""By standard deviation of the input; close together where the exponent is near 0."""
LENGTHS = [32, 64, 128, 256, 512, 1024, 2048]
EDGES = [-np.inf, -0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.03, np.inf]


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Gains at one length, and lengths at some gains, of the same networks."""
    seeds = seed_range(options, 2 if options.quick else 6)
    steps, cap, lengths, some = 1024, _parallel_newton.CAP, LENGTHS, [0.9, 1.3, 1.6, 2.0]
    if options.quick:
        steps, cap, lengths, some = 256, 60, LENGTHS[:4], [0.9, 2.0]
    every = 3 if options.quick else 1
    grid = [{"input_std": s, "gain": g} for s, gains in GAINS.items() for g in gains[::every]]
    common = {"n": 16 if options.quick else 32, "cap": cap}
    return [
        Sweep(
            "gains", _parallel_newton.measure, grid, seeds=seeds, rng_keys=(),
            constants={**common, "n_steps": steps},
        ),
        Sweep(
            "lengths", _parallel_newton.measure, {"gain": some, "n_steps": lengths}, seeds=seeds,
            rng_keys=(), constants={**common, "input_std": 0.5},
        ),
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Iterations by range of the exponent."""
    points = data["gains"]
    iterations = _newton_draw.iterations(points)
    rows: list[Sequence[str | float]] = [
        ("lambda_1 [nats/step]", "networks", "iterations", "not within the cap", "overflowed")
    ]
    for std in np.unique(points["input_std"]):
        rows.append((f"input {std:g}", "", "", "", ""))
        for low, high in itertools.pairwise(EDGES):
            inside = (points["lambda_1"] > low) & (points["lambda_1"] <= high)
            here = inside & (points["input_std"] == std)
            if here.any():
                text = f"({low:g}, {high:g}]"
                rows.append((text, *_counts(iterations[here], points["overflowed"][here])))
    for text, sure in (("below", points["high"] < 0), ("above", points["low"] > 0)):
        cells = _counts(iterations[sure], points["overflowed"][sure])
        rows.append((f"whole interval {text} 0", *cells))
        apart = np.nanmax(points["error"][sure], initial=0.0)
        rows.append((f"largest distance from the orbit, {text} 0", f"{apart:.2g}", "", "", ""))
    for gain in np.unique(data["lengths"]["gain"]):
        at = data["lengths"].select(gain=gain)
        steps = np.unique(at["n_steps"])
        by_length = [at.select(n_steps=T) for T in steps[[0, -2, -1]]]
        texts = [spread(_newton_draw.iterations(p)) for p in by_length]
        rows.append((f"gain {gain:g}: T = {steps[0]}, {steps[-2]}, {steps[-1]}", *texts, ""))
    return rows


def _counts(iterations: np.ndarray, overflowed: np.ndarray) -> tuple[str, str, str, str]:
    missing = np.isinf(iterations).sum()
    return str(len(iterations)), spread(iterations), str(missing), str(overflowed.sum())


STUDY = Study("parallel_newton", __doc__ or "", sweeps, _newton_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
