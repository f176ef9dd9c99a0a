"""How fast the gradient of a driven RNN decays against the spectral radius of its weights.

The claim: over 16 networks of each of five ensembles, rho below 1 is neither needed nor enough for
decay; the spectral-norm bound overstates the growth by about one nat a step; the typical gradient
and the mean one part by tens of nats; and where float32 ends follows from the leading Lyapunov
exponent, not from rho. The input is English text, one character a step.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Callable, Sequence

import _decay_draw
import _decay_measure
import numpy as np

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep, SweepResult

ENSEMBLES = ("gaussian", "orthogonal", "sparse", "nonnormal", "diagonal")
RHO = [round(0.5 + 0.05 * i, 2) for i in range(21)]
FULL = {"n": 64, "n_lags": 200, "every": 10, "burn_in": 300, "n_steps": 2000}
QUICK = {"n": 16, "n_lags": 100, "every": 10, "burn_in": 100, "n_steps": 400}
QUICK_RHO = [0.5, 0.9, 1.0, 1.1, 1.5]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the study's own flag."""
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="npz with W_hh (and b_ih, b_hh or b): a trained net in the random ones' place, "
        "rescaled to each rho; seeds draw its input weights, place in the text and start",
    )


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """The main grid, and a population of Gaussian networks at one gain."""
    size = dict(QUICK if options.quick else FULL)
    trained = _trained(options.weights) if options.weights else {}
    main = Sweep(
        "decay",
        _decay_measure.measure,
        {
            "initialisation": ["trained"] if trained else list(ENSEMBLES),
            "dtype": ["float32", "float64"],
            "rho": QUICK_RHO if options.quick else RHO,
        },
        seeds=seed_range(options, 2 if options.quick else 16),
        rng_keys=("initialisation",),
        constants={**size, "b": np.zeros(size["n"]), **trained},
    )
    population = Sweep(
        "population",
        _decay_measure.measure_population,
        {"gain": [_decay_measure.POPULATION_GAIN]},
        seeds=[options.seed + i for i in range(2 if options.quick else 10)],
        rng_keys=(),
        constants={
            "n": size["n"] if options.quick else 32,
            "n_lags": size["n_lags"],
            "every": size["every"],
            "burn_in": 100,
            "size": _decay_measure.POPULATION_BATCH,
        },
    )
    return [main, population]


def _trained(path: str) -> dict[str, object]:
    """Recurrent weights and bias of a file; biases are cast to float64, then added."""
    try:
        opened = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not an npz file of plain arrays.") from error
    with opened as stored:
        if "W_hh" not in stored:
            raise ValueError(f"{path} has no array W_hh; it has {', '.join(stored.files)}.")
        W = stored["W_hh"].astype(np.float64)
        if W.ndim != 2 or W.shape[0] != W.shape[1]:
            raise ValueError(f"W_hh of {path} must be square; got shape {W.shape}.")
        b = np.zeros(len(W))
        for name in ("b", "b_ih", "b_hh"):
            if name in stored:
                b = b + stored[name].astype(np.float64)
    return {"n": len(W), "W_hh": W, "b": b}


def headline(data: Data) -> Table:
    """Measured growth beside the bound and rho, at three rho."""
    decay = data["decay"]
    name = str(decay["initialisation"][0])
    rows: list[Sequence[str | float]] = [
        (f"{name}, float32 orbit", "rho = 0.9", "rho = 1.0", "rho = 1.1")
    ]
    at = [decay.select(initialisation=name, dtype="float32", rho=rho) for rho in (0.9, 1.0, 1.1)]
    quantiles: Sequence[tuple[str, Callable[[SweepResult], float]]] = (
        ("lambda_1, median [nats/step]", lambda p: np.median(p["lambda1"])),
        ("lambda_1, 5 % of networks", lambda p: np.quantile(p["lambda1"], 0.05)),
        ("lambda_1, 95 % of networks", lambda p: np.quantile(p["lambda1"], 0.95)),
        ("ln rho", lambda p: np.log(p["rho"][0])),
        ("ln gamma ||W||, median", lambda p: np.median(p["log_W_norm"])),
        (
            "horizon at 2^-23, median [steps]",
            lambda p: _decay_draw.horizon_quantiles(p, "horizon_eps")[1],
        ),
        (
            "horizon at N^-1/2, N = 10^4 [steps]",
            lambda p: _decay_draw.horizon_quantiles(p, "horizon_samples")[1],
        ),
    )
    rows += [(label, *(float(of(points)) for points in at)) for label, of in quantiles]
    margin = _decay_draw.smallest_margin(decay)
    rows.append(("smallest (bound - truth)/(1 + lag), all points", margin, "", ""))
    gap, share = _decay_draw.population_summary(data["population"])
    rows.append(("Gaussian population: 1/2 ln E|g|^2 - E ln|g|, last lag", gap, "", ""))
    rows.append(("Gaussian population: share of E|g|^2 in the top 1 %", share, "", ""))
    return rows


STUDY = Study(
    "decay_vs_rho",
    __doc__ or "",
    sweeps,
    _decay_draw.draw,
    headline,
    add_flags=add_flags,
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
