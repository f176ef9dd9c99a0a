"""Exponent, horizon and gradient norms while networks learn the adding task.

The claim: no network learns the task before the horizon of its readout's gradient reaches the
length of the sequences, and learning itself moves it there, lambda_1 rising to just below 0. A
horizon that is long enough is not enough: a tanh network with PyTorch's default weights may pass
through such a state, with lambda_1 all over the place, and learn nothing. The global gradient norm
tells none of this: networks that learn have larger and smaller ones than networks that do not.

Horizon: lag beyond which the gradient of the readout, relative to its start, is below N^-1/2 for N
training sequences. S. Hochreiter, J. Schmidhuber, Neural Comput. 9, 1735 (1997), section 5.4
(task); R. Pascanu, T. Mikolov, Y. Bengio, ICML 2013 (gradient through time).

Full grid: length 30, 32 units, 4096 training sequences, Adam, batches of 32 clipped at norm 1, 800
updates, 5 seeds; lambda_1 on 2000 steps of task input, its interval from ten batch means; horizons
over 64 fresh sequences.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import _costs
import _horizon_draw
import _horizon_training
import _tasks
import _training
import numpy as np
from _seeds import spread

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep, SweepResult

RATES = {"vanilla": 1e-2, "orthogonal": 3e-3, "lstm": 1e-2, "gru": 1e-2}
LENGTH, UNITS = 30, 32
CHECKPOINTS = [0, 25, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800]


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Cells and seeds; all see the same sequences."""
    quick = options.quick
    return [
        Sweep(
            "training",
            _horizon_training.measure,
            [{"kind": kind, "rate": rate} for kind, rate in RATES.items()],
            seeds=seed_range(options, 2 if quick else 5),
            rng_keys=(),
            constants={
                "n": 16 if quick else UNITS,
                "length": 12 if quick else LENGTH,
                "samples": 1024 if quick else 4096,
                "stream": 400 if quick else 2000,
                "checkpoints": CHECKPOINTS[:4] if quick else CHECKPOINTS,
            },
        )
    ]


def headline(data: Data) -> Table:
    """Start, end, and when loss and horizon cross."""
    points = data["training"]
    rows: list[Sequence[str | float]] = [("median [range] over networks", *RATES)]
    parts = [points.select(kind=kind) for kind in RATES]
    wanted: dict[str, Callable[[SweepResult], np.ndarray]] = {
        "held-out loss at the end": lambda p: p["held_out"][:, -1],
        "lambda_1 at the start": lambda p: p["lambda_1"][:, 0],
        "lambda_1 at the end": lambda p: p["lambda_1"][:, -1],
        "half width of its interval at the end": lambda p: (p["high"] - p["low"])[:, -1] / 2,
        "horizon at the start [steps]": lambda p: p["horizon"][:, 0, 1],
        "horizon at the end [steps]": lambda p: p["horizon"][:, -1, 1],
        "first checkpoint with a loss below 1/60": lambda p: learnt_at(p["held_out"], p),
        "first with a horizon of the whole length": lambda p: reached_at(p["horizon"], p),
        "gradient norm, median of the last 50 updates": lambda p: p["norm_quantiles"][:, -1, 1],
    }
    for name, values in wanted.items():
        rows.append((name, *(spread(values(p)) for p in parts)))
    early = [int((learnt_at(p["held_out"], p) < reached_at(p["horizon"], p)).sum()) for p in parts]
    rows.append(("networks that learnt before their horizon reached the length", *map(str, early)))
    return rows


def learnt_at(loss: np.ndarray, points: SweepResult) -> np.ndarray:
    """First checkpoint at which the loss is below a tenth of the constant guess's; inf: none."""
    return _first(loss < _tasks.CONSTANT_GUESS / 10, points["checkpoints"][0])


def reached_at(horizon: np.ndarray, points: SweepResult) -> np.ndarray:
    """First checkpoint at which the median horizon is not within the length; inf: none."""
    return _first(np.isposinf(horizon[:, :, 1]), points["checkpoints"][0])


def _first(reached: np.ndarray, checkpoints: np.ndarray) -> np.ndarray:
    return np.where(reached.any(axis=1), checkpoints[reached.argmax(axis=1)], np.inf)


def costs(options: argparse.Namespace) -> Table:
    """Cost of an update of each cell."""
    runs = {}
    for kind, rate in RATES.items():
        rng = np.random.default_rng(options.seed)
        model, adam = _training.make(kind, UNITS, 2, 1, rng), _training.Adam(rate)
        data = _training.epochs(_tasks.adding(1024, LENGTH, rng), _horizon_training.BATCH, rng)

        def update(count: int, model=model, adam=adam, data=data) -> None:  # type: ignore[no-untyped-def]
            _training.train(model, data, adam, count, _training.squared_error, max_norm=1.0)

        runs[kind] = (model, update)
    x = _tasks.adding(512, LENGTH, np.random.default_rng(options.seed)).x
    return _costs.table(f"cost at T = {LENGTH}, batch {_horizon_training.BATCH}", runs, x)


STUDY = Study(
    "horizon_during_training", __doc__ or "", sweeps, _horizon_draw.draw, headline, costs=costs
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
