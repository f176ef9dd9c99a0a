"""Which of two symbols came first: what needs order, and what needs recurrence.

The claim: counts of words hold no answer, so logistic regression on them stays at chance; a network
of 434 parameters that reads the sequence is right. But order is not beyond linear models: with one
of each symbol the label is the sign of a difference of positions, linear in one-hot positions, and
17 numbers (counts and ramps) learn it. A linear model of the network's size, one weight per
position and symbol, gets there as its training set grows. The networks' shortcut is another one:
asked about sequences whose first and last marks are the same symbol, they go by the last. With four
of each symbol only the first one counts, a rule that is linear only with weights which nearly halve
at every step; there the GRU is right, and the plain RNN, within this budget, does worse than the
positional model.

Full grid: sequences of 54 of 8 symbols, 4000 to train and 3000 to test on, 10 passes (networks:
Adam, rate 0.01, batches of 50, clipped at norm 1; logistic regression: scikit-learn's lbfgs, at
most 10 iterations, and converged beside it), 6 seeds; models share the split of their seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import _costs
import _order
import _order_draw
import _tasks
import numpy as np
from _seeds import spread

import gradprop as gp
from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

FULL = {"length": 54, "n_train": 4000, "n_test": 3000, "passes": 10}
QUICK = {"length": 20, "n_train": 1000, "n_test": 500, "passes": 4}


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Five models on two tasks, and the positional one on more and more sequences."""
    constants = QUICK if options.quick else FULL
    several = 2 if options.quick else 4
    seeds = seed_range(options, 2 if options.quick else 6)
    sizes = [200, 2000] if options.quick else [500, 2000, 8000, 32000]
    return [
        Sweep(
            "models", _order.measure, {"each": [1, several], "model": list(_order.MODELS)},
            seeds=seeds, rng_keys=("each",), constants=constants,
        ),
        Sweep(
            "sizes", _order.measure_size, {"each": [1, several], "n_train": sizes}, seeds=seeds,
            rng_keys=("each",),
            constants={key: constants[key] for key in ("length", "n_test")},
        ),
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """Accuracy and F1 by task and model: median [least, largest] over seeds."""
    models = data["models"]
    rows: list[Sequence[str | float]] = [
        ("median [range] over seeds", "parameters", "accuracy", "F1", "training set",
         "accuracy, converged", "goes by the first mark")
    ]  # fmt: skip
    for each in np.unique(models["each"]):
        for name in _order.MODELS:
            points = models.select(each=each, model=name)
            texts = (
                spread(values)
                for values in (
                    points["accuracy"][:, -1], points["f1"], points["fitted"],
                    points["converged"], points["follows_first"],
                )
            )  # fmt: skip
            rows.append((f"{each} of each: {name}", int(points["n_parameters"][0]), *texts))
    return rows


def costs(options: argparse.Namespace) -> Table:
    """CPU time and memory of training beyond its data, and time to answer 512 samples."""
    size = QUICK if options.quick else FULL
    heading = (
        f"cost, {size['n_train']} sequences, {size['passes']} passes", "CPU s to train",
        "ms to predict 512 samples", "peak MiB of training", "parameters",
    )  # fmt: skip
    return [heading, *(_cost(name, size) for name in _order.MODELS)]


def _cost(name: str, size: Mapping[str, int]) -> Sequence[str | float]:
    rng = np.random.default_rng(0)
    data = _tasks.order_of_several(size["n_train"], size["length"], 1, rng)
    asked = _tasks.order_of_several(512, size["length"], 1, rng).x
    train: Callable[[int], object]
    predict: Callable[[], object]
    if name in _order.NETWORKS:
        model = _order.network(name, rng)
        train = partial(_order.trained, model, data, rng=rng)
        predict = partial(model.predict, asked)
        count = gp.parameter_count(model.cell, output_size=2).total
    else:
        fit = _order.regression(name, data, size["passes"])
        train = partial(_order.regression, name, data)
        count = fit.coef_.size + fit.intercept_.size
        predict = partial(_order.fitted_answers, fit, name, asked)

    train(1)
    begin = time.process_time()
    train(size["passes"])
    spent = time.process_time() - begin
    memory = _costs.peak(lambda: train(1))
    return name, spent, 1e3 * _costs.best(predict), memory, count


STUDY = Study("order_task", __doc__ or "", sweeps, _order_draw.draw, headline, costs=costs)

if __name__ == "__main__":
    sys.exit(STUDY.main())
