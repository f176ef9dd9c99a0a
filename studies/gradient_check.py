"""How well difference quotients can check a gradient, by step size and precision.

The claim: in float64 central differences with h near 1e-6 agree with backpropagation through time
to |difference| / max(1, |g|) < 1e-6 for every entry, and no step size does much better: truncation
(h^2) and cancellation (eps / h) meet near h = eps^(1/3), with a floor ten times or so above
eps^(2/3). The complex step has no floor but eps. In float32 the best central difference knows three
to four digits. A wrong gradient stays up at every step size.

Central differences: P. E. Gill, W. Murray, M. H. Wright, Practical Optimization (1981), section
8.6; complex step: W. Squire, G. Trapp, SIAM Rev. 40, 110 (1998).

Full grid: RNN, LSTM, GRU of 6 units, 3 sequences of 12 steps, every entry of every gradient, 29
step sizes from 1e-1 to 1e-15, 10 seeds. All arithmetic, losses included, in the stated precision.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import _gradient_check
import _gradient_check_draw
import numpy as np

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep, SweepResult


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Cells and networks."""
    spacing, size = (1.0, 4) if options.quick else (0.5, 6)
    exponents = np.arange(-1.0, -15.0 - spacing / 2, -spacing)
    return [
        Sweep(
            "errors",
            _gradient_check.measure,
            {"kind": ["vanilla", "lstm", "gru"]},
            seeds=seed_range(options, 3 if options.quick else 10),
            rng_keys=("kind",),
            constants={
                "n": size,
                "n_steps": 6 if options.quick else 12,
                "steps": 10.0**exponents,
            },
        )
    ]


def headline(data: Data) -> Table:
    """Errors by cell: median and range over networks."""
    points = data["errors"]
    rows: list[Sequence[str | float]] = [("", *(_gradient_check_draw.NAMES.values()))]
    steps = points["steps"][0]
    at = int(np.argmin(np.abs(np.log10(steps) + 6)))
    wanted: dict[str, Callable[[SweepResult], np.ndarray]] = {
        "h = 1e-6, float64: largest |d|/max(1,|g|)": lambda p: p["central_entry_float64"][:, at],
        "best h, float64 (eps^(1/3) = 6.1e-6)": lambda p: steps[p["central_float64"].argmin(1)],
        "relative error there": lambda p: p["central_float64"].min(1),
        "best h, float32 (eps^(1/3) = 4.9e-3)": lambda p: steps[p["central_float32"].argmin(1)],
        "relative error there (float32)": lambda p: p["central_float32"].min(1),
        "complex step, h = 1e-15, complex128": lambda p: p["complex_float64"][:, -1],
        "complex step, h = 1e-15, complex64": lambda p: p["complex_float32"][:, -1],
        "float32 backward against float64": lambda p: p["float32_backward"],
        "fault: last step only, h = 1e-6": lambda p: p["last_only"][:, at],
        "fault: phi' at h, h = 1e-6": lambda p: p["slope_at_state"][:, at],
    }
    for name, values in wanted.items():
        cells = [_spread(values(points.select(kind=k))) for k in _gradient_check_draw.NAMES]
        rows.append((name, *cells))
    return rows


def _spread(values: np.ndarray) -> str:
    if np.isnan(values).all():
        return "-"
    return f"{np.median(values):.2g} [{values.min():.2g}, {values.max():.2g}]"


STUDY = Study("gradient_check", __doc__ or "", sweeps, _gradient_check_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
