"""Units against learning rate: every cell of the grid, and capacity kept apart from optimisation.

The claim: what more units are worth on English text depends on the learning rate at which they are
compared. After equal numbers of updates 64 units beat 16 clearly at small rates, by less than a
tenth of a nat at the best rate of each, not at all above it, and lose by a nat at 0.1; from the
best to the worst rate the loss of one width changes several times more than between widths at their
best rates. Early stopping mixes the two: its runs differ in updates by up to six times, and at the
smallest rate none stops before the limit.

Full grid: tanh networks of 16, 32 and 64 units, five rates of Adam, 5 seeds; sequences of 32
characters, batches of 16 from random places in 80000 characters, gradients clipped at norm 1,
uniform start. Every 50 updates the loss on 5000 validation characters; early stopping after three
evaluations without a gain of 0.005 nats, or at 1200 updates, keeps the best network; the fixed
budget is 500 updates on the same trajectory. A width's start is that of its seed at every rate,
and all runs of a seed see the same kind of batches. Test loss on 5000 later characters.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import _characters
import _costs
import _width
import _width_draw
import numpy as np
from _seeds import spread
from _training import Adam, cross_entropy, train

import gradprop as gp
from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

FULL = {"fixed": 500, "most": 1200, "every": 50, "n_characters": 5000}
QUICK = {"fixed": 20, "most": 60, "every": 10, "n_characters": 1000}
WIDTHS, RATES = [16, 32, 64], [0.001, 0.003, 0.01, 0.03, 0.1]


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Widths, rates and seeds."""
    return [
        Sweep(
            "grid", _width.measure, {"n": WIDTHS, "rate": RATES},
            seeds=seed_range(options, 2 if options.quick else 5), rng_keys=("n",),
            constants=QUICK if options.quick else FULL,
        )
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Every cell, then what width and rate are worth: median [least, largest] over seeds."""
    points = data["grid"]
    budget = _width_draw.fixed_budget(points)
    rows: list[Sequence[str | float]] = [
        ("median [range] over seeds", "updates, early stopping", "at the limit", "test loss",
         f"test loss, {budget} updates", "training loss, the same")
    ]  # fmt: skip
    for n in WIDTHS:
        for rate in RATES:
            cell = points.select(n=n, rate=rate)
            losses = (cell[f] for f in ("test_early", "test_fixed", "training_fixed"))
            rows.append(
                (f"{n} units, rate {rate:g}", spread(cell["updates"], 4),
                 int((~cell["stopped"]).sum()), *map(spread, losses))
            )  # fmt: skip
    best = {n: _width_draw.best_rate(points, n, "test_fixed") for n in WIDTHS}
    few, many = (points.select(n=n, rate=best[n])["test_fixed"] for n in (WIDTHS[0], WIDTHS[-1]))
    rows.append(
        (f"{WIDTHS[0]} less {WIDTHS[-1]} units, best rates", "", "", "", spread(few - many), "")
    )
    for rate in RATES:
        few, many = (points.select(n=n, rate=rate)["test_fixed"] for n in (WIDTHS[0], WIDTHS[-1]))
        rows.append((f"the same, both at rate {rate:g}", "", "", "", spread(few - many), ""))
    for n in WIDTHS:
        own = np.array([points.select(n=n, rate=r)["test_fixed"] for r in RATES])
        worth = own.max(axis=0) - own.min(axis=0)
        rows.append((f"worst less best rate, {n} units", "", "", "", spread(worth), ""))
    return rows


def costs(options: argparse.Namespace) -> Table:
    """Time, memory and parameters by width."""
    heading = (
        "cost", "CPU ms an update", "ms to predict 512 samples", "peak MiB of an update",
        "parameters",
    )  # fmt: skip
    return [heading, *(_cost(n) for n in WIDTHS)]


def _cost(n: int) -> Sequence[str | float]:
    rng = np.random.default_rng(0)
    model, optimiser, codes = _width.fresh(n, rng), Adam(1e-3), _characters.splits()[0]
    batches = _characters.batches(codes, _width.BATCH, _width.LENGTH, rng)
    asked = next(_characters.batches(codes, 512, _width.LENGTH, rng)).x

    def update(number: int) -> None:
        train(model, batches, optimiser, number, cross_entropy, max_norm=_width.MAX_NORM)

    update(1)
    begin = time.process_time()
    update(20)
    spent = 50 * (time.process_time() - begin)
    predict = 1e3 * _costs.best(lambda: model.predict(asked), 2)
    count = gp.parameter_count(model.cell, output_size=_characters.size()).total
    return f"{n} units", spent, predict, _costs.peak(lambda: update(1)), count


STUDY = Study("width_and_rate", __doc__ or "", sweeps, _width_draw.draw, headline, costs=costs)

if __name__ == "__main__":
    sys.exit(STUDY.main())
