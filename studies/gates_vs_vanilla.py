"""The h-path and the c-path of gated cells beside a plain network, and what depth adds.

"Gated cells have no exponential decay" is half right: without recurrent weights the c-path of an
LSTM is a product of forget gates and nothing else, log10 after 100 steps -30.102999566 (forget bias
0), -13.604782228 (1), -5.5124134795 (1 in both bias vectors), exponential at every bias, with a
rate that the bias sets and that may be as small as one likes. Random recurrent weights and input
change the rate, not the law; from lag 2 or so on all four blocks of the LSTM's product fall
together, at a distance set by the gates, so that there is no separate short h-path.

"Deeper stacks remember longer" is false as stated: a stack's product is block triangular and decays
at the rate of its slowest layer. Depth adds path length (T steps and depth - 1 layers at the least)
and more layers among which the slowest counts.

F. A. Gers et al., Neural Comput. 12, 2451 (2000), equation 9.

Full grid: (a) one unit, exact; (b, c) 32 units, weights U(+-1/sqrt(32)), white input of variance 1
in 4 columns, 200 lags, 10 seeds; (d) stacks of 1 to 4 layers of 16 units, 300 lags, 10 seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import _gate_paths
import _gate_paths_draw
import numpy as np
from _seeds import spread

from gradprop._points import Value
from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep

BIASES = (0.0, 1.0, 2.0, 3.0)
RANDOM: list[dict[str, Value]] = [{"kind": "lstm", "bias": b} for b in BIASES]
RANDOM += [{"kind": "gru", "bias": 0.0}, {"kind": "vanilla", "bias": 0.0}]
EXACT: list[dict[str, Value]] = [{"kind": "lstm", "bias": b, "twice": False} for b in BIASES]
EXACT += [{"kind": "lstm", "bias": 1.0, "twice": True}]
EXACT += [{"kind": "gru", "bias": b, "twice": False} for b in BIASES[:2]]


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Paths of random cells, the exact ones, and stacks."""
    seeds = seed_range(options, 3 if options.quick else 10)
    lags, size = (100, 8) if options.quick else (200, 32)
    depth: dict[str, Sequence[Value]] = {"kind": ["vanilla", "lstm"], "depth": [1, 2, 3, 4]}
    deep = {"n": 4 if options.quick else 16, "n_steps": 120 if options.quick else 300, "tol": 1e-3}
    return [
        Sweep(
            "paths", _gate_paths.measure_random, RANDOM, seeds=seeds, rng_keys=("kind",),
            constants={"n": size, "n_steps": lags},
        ),
        Sweep(
            "exact", _gate_paths.measure_exact, EXACT, seeds=1, rng_keys=(),
            constants={"n_steps": 100},
        ),
        Sweep(
            "depth", _gate_paths.measure_depth, depth, seeds=seeds, rng_keys=("kind",),
            constants=deep,
        ),
    ]  # fmt: skip


def headline(data: Data) -> Table:
    """log10 after 100 steps, exact and random, and horizons of stacks."""
    width = 5
    rows: list[Sequence[str | float]] = [
        ("log10 after 100 steps", "forget path, weights 0", "theory", "random: cc (or hh)", "hh")
    ]
    exact, paths, depth = data["exact"], data["paths"], data["depth"]
    for kind, bias, twice, value, theory in zip(
        *(exact[k] for k in ("kind", "bias", "twice", "at_end", "theory")), strict=True
    ):
        p = paths.select(kind=kind, bias=bias)
        cells = ["", ""]
        if len(p) and not twice:
            main = p["log10_cc"] if kind == "lstm" else p["log10_hh"]
            cells = [spread(main[:, 99]), spread(p["log10_hh"][:, 99])]
        name = f"{kind}, bias {bias:g}" + (" in both vectors" if twice else "")
        rows.append((name, f"{value:.12g}", f"{theory:.12g}", *cells))
    plain = paths.select(kind="vanilla")["log10_hh"][:, 99]
    rows.append(("vanilla", "-", "-", spread(plain), spread(plain)))
    rows.append(("", *[""] * (width - 1)))
    rows.append(("depth", "horizon, stack", "horizon, one wide layer", "rate", "slowest layer"))
    for kind in ("vanilla", "lstm"):
        for d in np.unique(depth["depth"]):
            p = depth.select(kind=kind, depth=d)
            names = ("horizon_stack", "horizon_wide", "rate_stack", "rate_slowest")
            rows.append((f"{kind}, {d}", *(spread(p[name]) for name in names)))
    return rows


STUDY = Study("gates_vs_vanilla", __doc__ or "", sweeps, _gate_paths_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
