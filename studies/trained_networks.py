"""Published networks: their decay, their exponents, and what rho(W_hh) says of them.

The claim: the spectral radius of the recurrent weights says nothing about how far back a trained
gated network carries a gradient. The blocks of W_hh of every trained LSTM and GRU here have a
spectral radius above 1, up to 31, yet their products do not grow as it would have them: some decay
ten-fold in six to eleven steps, others neither grow nor decay over 720. The leading Lyapunov
exponent along the network's own input tells which. The trained vanilla network (flip-flop) has a
radius of 2 and a gradient that falls ten-fold every 1.6 steps.

Every npz with a json in studies/data/weights (sources and licences in the README there), each layer
by itself on the input that its json describes, the layers of a stack bottom up, both directions of
a two-way network. Exponents by QR after the first tenth of the input, 95 % intervals from ten batch
means (none for inputs below 22 steps); horizons at 2**-23: dots and lines are median and 5-95 % of
32 random loss directions (the seed draws them), bars the worst direction, triangles lie beyond the
end of the input. Dashed: networks that were never trained, initial weights of PyTorch and Keras.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _networks
import _trained
import _trained_draw
import numpy as np

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """All layers, or those of the small files."""
    return [
        Sweep(
            "layers",
            _trained.measure,
            {"layer": _networks.layers(options.quick)},
            seeds=seed_range(options, 1)[:1],
            rng_keys=("layer",),
        )
    ]


def headline(data: Data) -> Table:
    """A row per layer."""
    points = data["layers"]
    rows: list[Sequence[str | float]] = [
        ("layer", "lambda_1", "95 %", "rho of the blocks", "log10 norm", "horizon", "gap"),
    ]
    for i, name in enumerate(points["layer"]):
        low, high = points["interval"][i]
        radii = np.exp(points["log_radii"][i])
        steps = int(points["n_steps"][i])
        horizon = float(np.median(points["horizons"][i]))
        rows.append(
            (
                str(name),
                float(points["exponents"][i][0]),
                "none" if np.isnan(low) else f"[{low:.3g}, {high:.3g}]",
                " ".join(f"{r:.2f}" for r in radii[~np.isnan(radii)]),
                f"{points['log10_norm'][i][steps]:.4g} at {steps}",
                f"{horizon:g}" if np.isfinite(horizon) else f"above {steps}",
                float(points["gap"][i]),
            )
        )
    return rows


STUDY = Study("trained_networks", __doc__ or "", sweeps, _trained_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
