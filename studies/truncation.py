"""Full backpropagation through time against windows of 16, 32 and 64 steps.

The claim: truncation costs what a task has beyond the window, and nothing else. A sign that must be
said 17 to 31 steps after it was stored is not learnt with K = 16, where no loss shares a chunk with
its cause, and is learnt with K = 32, where 39 % of them do: weights are shared over time, so that
some whole paths suffice. On English text all windows end within the spread of the seeds. The bias
of the gradient is large on both tasks at the start, where it foretells nothing; in trained networks
it tells the two apart. What truncation saves is memory, not work: with losses at all steps each
window makes the same number of cell evaluations.

R. J. Williams, J. Peng, Neural Comput. 2, 490 (1990).

Full grid: sequences of 128 steps, chunks that pass the state on, LSTM with forget bias 3, Adam at
0.01, gradients clipped at norm 1, 6 seeds; windows share split, start, batches and the number of
updates. Recall: 12 units, 2000 sequences, batches of 20, 300 updates. Text: 32 units, 80000
characters to train and the last 10000 to test on, batches of 8 from random places, 500 updates.
The bias is that of the cell's arrays on 4 test sequences, for the networks trained without a cut.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import _costs
import _truncation
import _truncation_draw
import numpy as np
from _seeds import spread
from _training import cross_entropy, loss_and_gradients

import gradprop as gp
from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

FULL: dict[str, Any] = {"length": 128, "windows": [16, 32, 64, 128]}
QUICK: dict[str, Any] = {"length": 64, "windows": [8, 16, 32, 64]}
UPDATES = {"recall": {"n_updates": 300, "every": 20}, "text": {"n_updates": 500, "every": 50}}
QUICK_UPDATES = {"n_updates": 20, "every": 10}


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """One sweep a task: windows and seeds."""
    size = QUICK if options.quick else FULL
    return [
        Sweep(
            task, _truncation.measure, {"task": [task], "window": size["windows"]},
            seeds=seed_range(options, 2 if options.quick else 6), rng_keys=("task",),
            constants=size | (QUICK_UPDATES if options.quick else UPDATES[task]),
        )
        for task in _truncation.UNITS
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Quality at the end, and the bias: median [least, largest] over seeds."""
    rows: list[Sequence[str | float]] = [
        ("median [range] over seeds", "accuracy", "loss [nats]", "gradient norm, last 50 updates",
         "bias at the start", "cosine", "bias at the end", "cosine", "causes in the chunk")
    ]  # fmt: skip
    for task in _truncation.UNITS:
        points = data[task]
        whole = points.select(window=int(points["window"].max()))
        for i, window in enumerate(_truncation_draw.windows(points)):
            own = points.select(window=window)
            columns = (
                own["accuracy"][:, -1],
                own["loss"][:, -1],
                own["norm"][:, -50:].mean(axis=1),
            )
            biases = (
                whole[f"bias_{when}"][:, j, i] for when in ("before", "after") for j in (0, 1)
            )
            rows.append(
                (f"{task}, {_truncation_draw.label(points, window)}", *map(spread, columns),
                 *map(spread, biases), spread(own["reached"]))
            )  # fmt: skip
    return rows


def costs(options: argparse.Namespace) -> Table:
    """Time, memory and cell evaluations of an update on text, by window."""
    size = QUICK if options.quick else FULL
    length, batch_size = size["length"], _truncation.BATCH["text"]
    model, batches, test = _truncation.problem("text", length, np.random.default_rng(0))
    batch = next(batches)
    asked = np.resize(test.x, (512, *test.x.shape[1:]))
    predict = 1e3 * _costs.best(lambda: model.predict(asked), repeats=2)
    count = gp.parameter_count(model.cell, output_size=len(model.parameters["b_y"])).total
    rows: list[Sequence[str | float]] = [
        ("cost of an update on text", "CPU ms", "peak MiB", "peak MiB, chunk by chunk",
         "cell steps forward", "backward", "ms to predict 512 samples", "parameters")
    ]  # fmt: skip
    for window in size["windows"]:

        def update(window: int = window) -> object:
            return loss_and_gradients(model, batch, cross_entropy, window)

        def pieces(window: int = window) -> object:
            return _truncation.in_pieces(model, batch, window)

        update()
        pieces()
        begin = time.process_time()
        for _ in range(10):
            update()
        spent = 100 * (time.process_time() - begin)
        steps = batch_size * length
        rows.append(
            (f"K = {window}", spent, _costs.peak(update), _costs.peak(pieces), steps, steps,
             predict, count)
        )  # fmt: skip
    return rows


STUDY = Study("truncation", __doc__ or "", sweeps, _truncation_draw.draw, headline, costs=costs)

if __name__ == "__main__":
    sys.exit(STUDY.main())
