"""Noise does not depend on x."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from gradprop import _execution, _run
from gradprop.study import Study, seed_range
from gradprop.sweep import Sweep

OFFSET = 1.0


def shifted(x):
    return x + OFFSET


def measure(point, rng):
    if log := os.environ.get("DEMO_LOG"):
        with open(log, "a") as file:
            file.write(f"{os.getpid()} {point['kind']} {point['x']} {point['seed']}\n")
    time.sleep(point["pause"])
    if point["x"] == float(os.environ.get("DEMO_FAIL", "nan")):
        raise ArithmeticError("this x is unlucky")
    return {
        "y": shifted(point["x"]) + rng.normal(),
        "curve": rng.normal(size=5).astype(np.float32),
        "verdict": "low" if rng.random() < 0.5 else "rather high",
        "lost": -np.inf,
    }


def population(point, rng):
    return {"mean": rng.normal(size=100).mean()}


def sweeps(options):
    if options.scale <= 0:
        raise ValueError(f"`--scale` must be positive; got {options.scale}.")
    grid = {"kind": ["a", "b"], "x": [0.5, 1.0] if options.quick else [0.5, 1.0, 1.5, 2.0]}
    pause = {"pause": float(os.environ.get("DEMO_PAUSE", "0"))}
    return [
        Sweep(
            "main",
            measure,
            grid,
            seeds=seed_range(options, 3),
            rng_keys=["kind"],
            constants={"scale": options.scale, **pause},
        ),
        Sweep("people", population, {"chunk": [0, 1]}, seeds=[options.seed], rng_keys=["chunk"]),
    ]


def draw(data, width):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 2.0))
    axes = figure.subplots()
    chosen = data["main"].select(kind="a", seed=int(data["main"]["seed"][0]))
    axes.plot(chosen["x"], chosen["y"], label="φ′ of ‖P‖")
    axes.legend()
    return figure


def headline(data):
    return [("what", "value"), ("mean", data["main"]["y"].mean()), ("lost", np.nan)]


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=1.0)


STUDY = Study("demo", __doc__, sweeps, draw, headline, add_flags=flags)

if __name__ == "__main__":
    # Records stay valid while other sources of the package change under a running test.
    _run.source_digest = lambda: "fixed"
    # Small groups, so that a kill after a fraction of a second finds some of them finished.
    _execution.GROUP_SECONDS = 0.05
    _execution._WORTH_A_POOL = 0.1
    Path(os.environ.get("DEMO_LOG", os.devnull)).touch()
    raise SystemExit(STUDY.main())
