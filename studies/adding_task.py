"""The adding problem by length, and whether the gradient's horizon foretells where learning fails.

The claim under test: the horizon of the untrained network (the last lag at which the worst-case
gradient still exceeds N^-1/2, N the number of training sequences) predicts the longest sum that
training learns, better than the spectral radius and the 2-norm of W_hh do. It is not borne out:
over 30 configurations no interval of a rank correlation leaves zero out. GRUs whose gradient
reaches back 5 to 14 steps learn sums of 200, for training lengthens their horizon; orthogonal and
diagonal networks with a horizon of tens to hundreds of steps learn none longer than about 25.

The task is that of S. Hochreiter, J. Schmidhuber, Neural Comput. 9, 1735 (1997), section 5.4: add
the two marked values of a sequence of U(0, 1), one mark in each half. The best constant has error
1/6; whoever knows one of the two values has 1/12. A length counts as learned if the test error is
below 1/12, as solved if it is below 0.01.

Every network is trained anew for each length, from the same start, with new sequences in every
batch of 32, Adam, gradient norm clipped at 1, at most 600 updates (N = 19 200); a run ends early
when the error on 512 validation sequences is below 0.008. Errors are those of 512 others.

Full grid: (a) vanilla (U(+-1/sqrt(n))), LSTM, GRU, orthogonal, identity (relu) and diagonal (relu,
[0.9, 1]) cells of 16 units at lengths 10 to 200, 5 seeds; (b to d) these and 24 variants (W scaled,
gate biases, sizes, rates; 2 seeds), where lengths grow until one is not learned. The longest
learned length is interpolated between the last learned and the first failed one (in ln length,
linear in the error); it is cut off at both ends: "< 10" counts as 5, "all" as 200.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import _adding
import _adding_configurations
import _adding_draw
import _adding_predict
import _costs
import numpy as np
from _seeds import spread
from _tasks import adding
from _training import Adam, Model, squared_error, train

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

LENGTHS = (10, 25, 50, 100, 200)
QUICK_LENGTHS = (6, 12)


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Six cells at every length, and their variants up to the first length that fails."""
    lengths, n_updates = (QUICK_LENGTHS, 100) if options.quick else (LENGTHS, 600)
    variants = _adding_configurations.VARIANTS
    if options.quick:
        variants = variants[:: len(variants) // _adding_configurations.QUICK_VARIANTS]
    grids = (("cells", _adding_configurations.CELLS, 5), ("variants", variants, 2))
    return [
        Sweep(
            name,
            _adding.measure,
            grid,
            seeds=seed_range(options, 1 if options.quick else seeds),
            rng_keys=(),
            constants={
                "lengths": list(lengths),
                "n_updates": n_updates,
                "climb": name == "variants",
            },
        )
        for name, grid, seeds in grids
    ]


def headline(data: Data) -> Table:
    """Errors by cell and length, horizons, and the correlations."""
    cells = data["cells"]
    lengths = cells["lengths"][0]
    rows: list[Sequence[str | float]] = [
        ("test error, median [least, largest] over seeds", *(f"T = {t}" for t in lengths))
    ]
    names = dict.fromkeys(cells["name"].tolist())
    by_cell = {name: cells.select(name=name) for name in names}
    for name, part in by_cell.items():
        rows.append((name, *map(spread, part["error"].T)))
    rows += [(f"{k}: updates", *map(spread, part["updates"].T)) for k, part in by_cell.items()]
    rows += [
        (f"{k}: horizon {spread(part['horizon'])}, after training", *map(spread, after))
        for k, part in by_cell.items()
        for after in [part["horizon_after"].T]
    ]
    rows += _correlation_rows(data, len(lengths))
    return rows


def _correlation_rows(data: Data, width: int) -> list[Sequence[str | float]]:
    """Rank correlations with 95 % intervals, for both criteria, all networks and groups."""
    table = _adding_predict.configurations(data)
    rows: list[Sequence[str | float]] = []
    for target, group in (("learned", "all"), ("solved", "all"), *_adding_predict.PARTS):
        part = _adding_predict.groups(table)[group]
        found = _adding_predict.correlations(part, target)
        text = f"rank correlation with length {target}, {group} ({len(part['name'])})"
        for name, (value, low, high) in found.items():
            rows.append((f"{text}: {name}", f"{value:.2f} [{low:.2f}, {high:.2f}]"))
    return [(*row, *[""] * (width + 1 - len(row))) for row in rows]


def costs(options: argparse.Namespace) -> Table:
    """Time per update, prediction time, peak memory and size of the six cells at one length."""
    length, runs = 50, {}
    for point in _adding_configurations.CELLS:
        model = _adding.build(point, np.random.default_rng(options.seed))
        name = str(point["name"])
        if name == "diagonal":  # zeros beside the diagonal are stored, not trained
            name += f" (trained: {model.n**2 - model.n} fewer)"
        runs[name] = (model, _updates(model, point, length, options.seed))
    x = adding(_adding.HELD_OUT, length, np.random.default_rng(options.seed)).x
    return _costs.table(f"T = {length}, batch {_adding.BATCH}", runs, x)


def _updates(
    model: Model, point: dict[str, Any], length: int, seed: int
) -> Callable[[int], object]:
    batches = _adding.fresh(length, np.random.default_rng(seed))
    optimiser = Adam(float(point["rate"]))

    def update(n_updates: int) -> object:
        return train(model, batches, optimiser, n_updates, squared_error, max_norm=_adding.MAX_NORM)

    return update


STUDY = Study(
    "adding_task",
    __doc__ or "",
    sweeps,
    _adding_draw.draw,
    headline,
    width="neurips",
    costs=costs,
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
