"""What clipping does to training at and above the edge, and what it cannot do.

The claim: gradient norms of networks near the edge have heavy tails, so that "1, 5, or 2-3 times
the mean norm" are different rules in every run: they clip from none to nearly all updates. Without
clipping, relu units that start from the identity leave the range of floats after one update at a
rate at which they learn with it. Clipping each array by its own norm turns the gradient,
joint clipping never does. And clipping revives nothing: below its threshold it changes no bit, so a
network whose gradient has vanished trains to the same bits with and without it.

R. Pascanu, T. Mikolov, Y. Bengio, ICML 2013, section 3.2.

Full grid: adding task of length 30 (constant guess 1/6), 32 units, SGD, batches of 32, 800 updates,
6 seeds; networks that differ in the rule alone share start and batches. Vanishing: tanh with
PyTorch's default weights, length 200, 300 updates, threshold 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import _clipping
import _clipping_draw
import _costs
import _tasks
import _training
import numpy as np
from _seeds import spread

import gradprop as gp
from gradprop._points import Value
from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

RATES = {"tanh, gain 1.5": 0.03, "orthogonal": 0.1, "identity": 0.03}
"""Best of 0.03, 0.1 and 0.3 in a pilot of runs clipped at 1; of identity the smallest."""
LENGTH, UNITS = 30, 32


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Runs by network and rule, and the pair of runs of a vanished gradient."""
    seeds = seed_range(options, 2 if options.quick else 6)
    grid: list[Mapping[str, Value]] = [
        {"network": name, "rate": rate, "rule": rule}
        for name, rate in RATES.items()
        for rule in _clipping.RULES
    ]
    run = {"n": UNITS, "length": LENGTH, "n_updates": 100 if options.quick else 800}
    vanished = {
        "n": UNITS, "length": 60 if options.quick else 200, "every": 20,
        "n_updates": 60 if options.quick else 300, "limit": 1.0, "rate": 0.03,
    }  # fmt: skip
    return [
        Sweep("runs", _clipping.measure, grid, seeds=seeds, rng_keys=("network",), constants=run),
        Sweep(
            "vanished", _clipping.measure_vanished, [{"network": "vanilla"}], seeds=seeds,
            rng_keys=(), constants=vanished,
        ),
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Final losses by rule, shares clipped, angles, and the vanished gradient."""
    runs, vanished = data["runs"], data["vanished"]
    heading = ("", *RATES)
    rows: list[Sequence[str | float]] = [heading]
    for rule in _clipping.RULES:
        parts = [runs.select(network=name, rule=rule) for name in RATES]
        losses = [spread(p["final_loss"]) for p in parts]
        rows.append((f"loss of the last 100 updates, {rule}", *losses))
        gone = [f"{(p['diverged_at'] > 0).sum()} of {len(p)}" for p in parts]
        rows.append((f"runs diverged, {rule}", *gone))
    shares: dict[str, list[str]] = {}
    for name in RATES:
        p = runs.select(network=name, rule="global 1")
        found = gp.clip_statistics(p["norm"])
        for k, label in enumerate(found.labels):
            shares.setdefault(label, []).append(spread(found.share_clipped[:, k]))
    rows += [(f"share above {k} (runs clipped at 1)", *v) for k, v in shares.items()]
    angles = []
    for name in RATES:
        turned = runs.select(network=name, rule="each array 1")["cosine"]
        angle = np.degrees(np.arccos(np.clip(turned[np.isfinite(turned)], -1, 1)))
        angles.append(spread(angle[angle > 0.01]))
    rows.append(("degrees by which clipping each array turns, where it does", *angles))
    same = f"{vanished['bit_equal'].sum()} of {len(vanished)}"
    rows.append(("vanished: pairs of runs with the same bits", same, "", ""))
    rows.append(("vanished: largest norm", spread(vanished["largest_norm"]), "", ""))
    last = [c[np.isfinite(c)][-1] for c in vanished["log10_far"]]
    rows.append(("vanished: log10 share of the first half", spread(last), "", ""))
    rows.append(("vanished: loss", spread(vanished["final_loss"]), "", ""))
    return rows


def costs(options: argparse.Namespace) -> Table:
    """Cost of an update under each rule."""
    runs = {}
    for rule, limit in (("none", None), ("global 1", 1e-3), ("each array 1", None)):
        rng = np.random.default_rng(options.seed)
        model = _clipping.network("orthogonal", UNITS, rng)
        sgd: _training.Optimiser = _training.SGD(1e-3)
        if rule.startswith("each"):
            sgd = _clipping.PerArray(sgd, 1e-3, only_watch=False)
        data = _clipping.batches(LENGTH, rng)

        def update(count: int, model=model, sgd=sgd, data=data, limit=limit) -> None:  # type: ignore[no-untyped-def]
            _training.train(model, data, sgd, count, _training.squared_error, max_norm=limit)

        runs[rule] = (model, update)
    x = _tasks.adding(512, LENGTH, np.random.default_rng(options.seed)).x
    return _costs.table(f"cost at T = {LENGTH}, batch {_clipping.BATCH}", runs, x)


STUDY = Study("clipping", __doc__ or "", sweeps, _clipping_draw.draw, headline, costs=costs)

if __name__ == "__main__":
    sys.exit(STUDY.main())
