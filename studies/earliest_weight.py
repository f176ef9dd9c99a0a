"""What a loss at step T says about the first use of an input weight, by cell and initialisation.

The claim: the contribution of step 1 to the gradient of W_xh, delta_1 x_1^T, falls exponentially
with T in plain tanh networks and in LSTM and GRU alike; the forget bias sets the rate, and random
recurrent weights and input make it slower than the gates alone. The norm bound
gamma (gamma |W|)^(T-1) is never broken and tells little: for PyTorch's default weights it grows
while the gradient vanishes, for an orthogonal W it says 1; it is close only where relu units that
started from the identity stayed on. Relu networks that start from the identity or a diagonal keep
the gradient or lose it exactly: it is 0 as soon as every unit was off once. A float32 gradient is
right to rounding far below the float32 eps, wrong by many nats among the subnormal numbers, and 0
below 2^-149.

R. Pascanu, T. Mikolov, Y. Bengio, ICML 2013, section 2.1 (bound); F. A. Gers et al., Neural
Comput. 12, 2451 (2000) (forget gate).

Full grid: 8 networks of 64 units, T = 4, 8, ..., 512, 10 seeds with 8 sequences each of white
input of variance 1 in 4 columns; the loss is a random unit direction of h_T, the start is 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _earliest_weight
import _earliest_weight_draw
import numpy as np
from _seeds import spread

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Networks and seeds; every T is measured on the same network and input."""
    return [
        Sweep(
            "first",
            _earliest_weight.measure,
            {"network": list(_earliest_weight.NETWORKS)},
            seeds=seed_range(options, 3 if options.quick else 10),
            rng_keys=(),
            constants={
                "n": 16 if options.quick else 64,
                "size": 4 if options.quick else 8,
                "lengths": 2 ** np.arange(2, 8 if options.quick else 10),
            },
        )
    ]


def headline(data: Data) -> Table:
    """Log10 norm at the exercise's T and the largest, rate, and what float32 makes of it."""
    points = data["first"]
    lengths = points["lengths"][0]
    shown = [*range(4), len(lengths) - 1]
    rows: list[Sequence[str | float]] = [
        (
            "log10 of the relative norm, median [range] of networks",
            *(f"T = {lengths[i]}" for i in shown),
            "nats a step",
            "least bound - truth",
            "zero in float32, float64 (last T)",
            *(f"float32 off by [nats], T = {lengths[i]}" for i in (-3, -2)),
        )
    ]
    for name in _earliest_weight.NETWORKS:
        p = points.select(network=name)
        logs = np.quantile(p["log_norm"], 0.5, axis=2, method="inverted_cdf")
        cells = [spread(logs[:, i] / np.log(10)) for i in shown]
        zero = f"{p['zero_float32'][:, -1].mean():.0%}, {p['zero'][:, -1].mean():.0%}"
        margin = "-" if np.isinf(p["margin"]).all() else f"{p['margin'].min():.3g}"
        off = [spread(p["gap_float32"][:, i], 2) for i in (-3, -2)]
        rows.append((name, *cells, _rate(logs, lengths), margin, zero, *off))
    return rows


def _rate(logs: np.ndarray, lengths: np.ndarray) -> str:
    """Slope over the upper half of T, of networks whose median is not 0 there."""
    i = len(lengths) // 2
    kept = np.isfinite(logs[:, -1])
    slopes = (logs[kept, -1] - logs[kept, i]) / (lengths[-1] - lengths[i])
    return spread(slopes) if len(slopes) else "0 before the last T"


STUDY = Study("earliest_weight", __doc__ or "", sweeps, _earliest_weight_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
