"""Lyapunov spectra of random networks against the theory of infinitely many units.

The claim: the spectrum of wide tanh networks with Gaussian weights, free-running or driven by white
noise, is that of free probability, with no parameter to fit; finite networks lie below it, by about
2/n in the leading exponent far from the onset of chaos and by much more near it. Local exponents of
Gaussian products follow their exact law. The largest singular value of a product of fresh factors
lies ln(e (lag + 1))/2 above the exponent's line while the lag is well below n; that of powers of
one W leaves this law, upwards, from a lag of about sqrt(n) on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _spectrum_draw
import _spectrum_measure
import numpy as np

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

CASES = [
    {"gain": 1.5, "noise": 0.0},
    {"gain": 2.0, "noise": 0.0},
    {"gain": 3.0, "noise": 0.0},
    {"gain": 2.0, "noise": 0.5},
]
FULL = {"largest": 512, "transient": 200, "burn_in": 100, "n_steps": 400}
QUICK = {"largest": 64, "transient": 100, "burn_in": 30, "n_steps": 60}
SIZES, QUICK_SIZES = (64, 128, 256, 512), (32, 64)


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Spectra of networks, their theory, local exponents of Gaussian products, finite lags."""
    quick = options.quick
    spectrum = Sweep(
        "spectrum",
        _spectrum_measure.measure,
        [{**case, "n": n} for case in CASES for n in (QUICK_SIZES if quick else SIZES)],
        seeds=seed_range(options, 2 if quick else 4),
        rng_keys=("n",),
        constants=QUICK if quick else FULL,
    )
    theory = Sweep("theory", _spectrum_measure.measure_theory, CASES, seeds=[0], rng_keys=())
    local = Sweep(
        "local",
        _spectrum_measure.measure_local,
        {"n": [4]},
        seeds=seed_range(options, 2 if quick else 4),
        rng_keys=("n",),
        constants={"n_steps": 2000 if quick else 50_000},
    )
    lags = Sweep(
        "lags",
        _spectrum_measure.measure_lags,
        {"kind": ["fresh", "tied"], "n": [16, 32] if quick else [32, 128]},
        seeds=seed_range(options, 2 if quick else 8),
        rng_keys=("kind", "n"),
        constants={"n_networks": 4, "n_lags": 100},
    )
    return [spectrum, theory, local, lags]


def headline(data: Data) -> Table:
    """Measured and theoretical numbers of each case at the largest n, and tests of exact laws."""
    spectrum, theory = data["spectrum"], data["theory"]
    n = int(spectrum["n"].max())
    cases = [(float(g), float(s)) for g, s in zip(theory["gain"], theory["noise"], strict=True)]
    titles = [f"g = {g:g}" + (f", s^2 = {s:g}" if s else "") for g, s in cases]
    rows: list[Sequence[str | float]] = [(f"tanh, n = {n}: mean (theory)", *titles)]
    for label, name in (
        ("lambda_1 [nats/step]", "lambda_1"),
        ("D_KY / n", "dimension"),
        ("positive sum / n [nats/step]", "positive_sum"),
        ("unstable fraction", "unstable_fraction"),
    ):
        cells = []
        for gain, noise in cases:
            found = spectrum.select(gain=gain, noise=noise, n=n)[name].mean()
            exact = theory.select(gain=gain, noise=noise)[name][0]
            cells.append(f"{found:.4f} ({exact:.4f})")
        rows.append((label, *cells))
    gaps = [spectrum.select(gain=gain, noise=noise, n=n) for gain, noise in cases]
    rows.append(("rms gap, 5-95 % [nats/step]", *(_spectrum_draw.rms_gap(p) for p in gaps)))
    rows.append(("largest gap, 5-95 %", *(_spectrum_draw.largest_gap(p) for p in gaps)))
    p_values = data["local"]["p_value"]
    text = f"smallest p-value of {p_values.size}, local exponents"
    rows.append((text, float(np.min(p_values)), "", "", ""))
    return rows


STUDY = Study("spectrum_vs_theory", __doc__ or "", sweeps, _spectrum_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
