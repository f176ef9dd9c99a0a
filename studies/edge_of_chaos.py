"""Where chaos begins in driven networks, against size and input strength.

The claim: noise moves the critical gain of a tanh network well above 1, as mean-field theory says
(lambda_1 = 0 where g^2 E phi'^2 = 1, the variance of the input added to that of the field), and
networks of finite size become chaotic later by a shift that falls with n.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _edge
import numpy as np

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Sizes, strengths and networks."""
    variances, sizes = [0.01, 0.1, 1.0], [32, 64, 128, 256]
    if options.quick:
        variances, sizes = [0.1, 1.0], [16, 32]
    return [
        Sweep(
            "edge",
            _edge.measure,
            {"variance": variances, "n": sizes},
            seeds=seed_range(options, 2 if options.quick else 8),
            rng_keys=("n",),
            constants={"n_steps": 400 if options.quick else 2000},
        )
    ]


def headline(data: Data) -> Table:
    """Critical gain by strength and size, with the standard error over networks."""
    points = data["edge"]
    sizes = np.unique(points["n"])
    rows: list[Sequence[str | float]] = [
        ("variance of the input", "theory", *(f"n = {n}" for n in sizes))
    ]
    for variance in np.unique(points["variance"]):
        cells = []
        for n in sizes:
            gains = points.select(variance=variance, n=n)["gain"]
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            cells.append(f"{np.mean(gains):.4f} +- {error:.4f}")
        theory = float(points.select(variance=variance)["theory"][0])
        rows.append((f"{variance:g}", theory, *cells))
    return rows


STUDY = Study("edge_of_chaos", __doc__ or "", sweeps, _edge.draw, headline, width="neurips")

if __name__ == "__main__":
    sys.exit(STUDY.main())
