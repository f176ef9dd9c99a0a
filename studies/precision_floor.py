"""Where floats end, and which limit ends the horizon of a network first.

The claim: there is no one "float32 floor of 1e-7". A cotangent pulled back in a format follows the
exact one through eps without a trace and ends at the smallest number; the spectrum of a plain
product is flat below eps of its largest value, whatever the lag; a gradient that is summed in a
format no longer changes a bit after as many steps as eps allows, which depends on the order of the
sum. What ends the horizon of tanh networks is none of these but the statistics of N sequences; that
of a diagonal recurrence ends in the sum, before the largest decay that the format can store.

Full grid: vectors, absorbed shares: Gaussian tanh networks of 32 units, gain 1, white noise of
standard deviation 0.5, 520 steps, a loss of the last state; spectra: 16 units, gain 1.1, noise 0.3.
Horizons, of one sequence each: the same (400 steps), orthogonal tanh networks of gain 1 (noise 0.1,
2000 steps), 32 linear decays from 0.9 to 0.999 (3200 steps) and the trained flip-flop network (500
steps); a lag is absorbed when it changes a bit of less than a tenth of W_hh. 6 seeds, N = 10^4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _precision_floor as floor
import _precision_floor_draw
import numpy as np
from _seeds import spread

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

FORMATS = ("float32", "float16", "bfloat16", "float8_e4m3")
BUDGET_FORMATS = ("float32", "float16", "bfloat16")
NETWORKS = ("random", "orthogonal", "ring", "flipflop")


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Budgets first; formats and orders see the same networks."""
    quick = options.quick
    seeds = seed_range(options, 2 if quick else 6)
    n = 12 if quick else 32
    steps = dict(
        zip(NETWORKS, (200, 300, 400, 150) if quick else (400, 2000, 3200, 500), strict=True)
    )
    pairs = [{"fmt": fmt, "order": order} for fmt in FORMATS for order in ("backward", "forward")]
    run = {"n": n, "n_steps": 200 if quick else 520}
    return [
        Sweep(
            "budget", floor.measure_budget, {"network": NETWORKS, "fmt": BUDGET_FORMATS},
            seeds=seeds, rng_keys=("network",),
            constants={"n": n, **{f"steps_{name}": T for name, T in steps.items()}},
        ),
        Sweep(
            "vectors", floor.measure_vector, {"fmt": FORMATS}, seeds=seeds, rng_keys=(),
            constants=run,
        ),
        Sweep(
            "spectra", floor.measure_spectrum, {"fmt": ("float32", "float64")}, seeds=seeds,
            rng_keys=(), constants={"n": 8 if quick else 16},
        ),
        Sweep("absorbed", floor.measure_absorbed, pairs, seeds=seeds, rng_keys=(), constants=run),
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Limits by network and format, lags of events, ranks, and errors of sums."""
    rows: list[Sequence[str | float]] = [("", "float32", "float16", "bfloat16", "float8_e4m3")]
    budget = data["budget"]
    for network in NETWORKS:
        for name in (*floor.LIMITS, "statistical_rounded"):
            cells = [spread(budget.select(network=network, fmt=f)[name]) for f in BUDGET_FORMATS]
            rows.append((f"{network}: {name}", *cells, ""))
    vectors, absorbed, spectra = data["vectors"], data["absorbed"], data["spectra"]
    for name in (*floor.EVENTS, "n_zero_exact"):
        rows.append((f"vector: {name}", *(spread(vectors.select(fmt=f)[name]) for f in FORMATS)))
    for order in ("backward", "forward"):
        for name in ("bit_horizon", "error"):
            parts = [absorbed.select(fmt=f, order=order)[name] for f in FORMATS]
            rows.append((f"sum, {order}: {name}", *map(spread, parts)))
    for fmt in ("float32", "float64"):
        ranks = spectra.select(fmt=fmt)["rank"]
        texts = [spread(ranks[:, k]) for k in range(ranks.shape[1])]
        rows.append((f"trustworthy rank in {fmt} at lags 20, 50, 200", *texts, ""))
    noise = [_tail(spectra.select(fmt=f)) for f in ("float32", "float64")]
    rows.append(("smallest value over largest [nats], float32 and float64", *noise, "", ""))
    return rows


def _tail(points: object) -> str:
    """Ln of the smallest singular value over the largest of the plain product at the last lag."""
    return spread(np.asarray(points["plain"])[:, -1, -1])  # type: ignore[index]


STUDY = Study(
    "precision_floor", __doc__ or "", sweeps, _precision_floor_draw.draw, headline, width="neurips"
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
