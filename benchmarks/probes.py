"""Frobenius norms at every lag: 8 random vectors against the exact product.

Tanh networks of gain 1 and, from their gates, LSTM; one thread, orbits run beforehand. Candidates
run interleaved, several rounds; medians of CPU time a step and their ratios are printed, and
written with ``--json PATH``. "one product" is P alone, without the second one that `log_norms`
forms for its error. `within` is the share of lags at which the exact value lies in the band.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gradprop as gp
from gradprop._kernels import products
from gradprop.environment import describe, single_threaded_blas

ROUNDS = 7
PROBES = 8
CASES = (("rnn", 64, 400), ("rnn", 128, 200), ("rnn", 256, 80), ("lstm", 64, 100))


def chain_of(kind: str, n: int, steps: int) -> gp.JacobianChain:
    rng = np.random.default_rng(0)
    rows = n if kind == "rnn" else 4 * n
    W = rng.standard_normal((rows, n)) / np.sqrt(n)
    if kind == "rnn":
        return gp.linearise(gp.RNN(W), n_steps=steps, rng=1)
    U, b = rng.standard_normal((rows, 2)), np.zeros(rows)
    return gp.linearise(gp.LSTM(W, U, b), rng.standard_normal((steps, 2)))


def one_product(chain: gp.JacobianChain) -> None:
    """P alone at every lag, and its Frobenius norms."""
    n, T = chain.n, chain.n_steps
    block = chain.source.block(0, T)
    kept, exponents = np.zeros((1, T, n, n)), np.zeros((1, T), dtype=np.int64)
    products.product_steps(
        block.matrices, block.index, block.scales, block.exponents, block.identity,
        np.array([T]), 0, False, np.eye(n)[None].copy(), np.zeros(1, int), np.zeros(1, int),
        np.arange(T + 1) - 1, 0, kept, exponents,
    )  # fmt: skip
    np.linalg.norm(kept, axis=(-2, -1))


def measure(kind: str, n: int, steps: int) -> dict[str, Any]:
    chain = chain_of(kind, n, steps)
    exact = gp.log_norms(chain, ord="fro")
    probed = gp.log_norms(chain, ord="fro", method="probe", probes=PROBES)
    candidates: dict[str, Callable[[], Any]] = {
        "exact": lambda: gp.log_norms(chain, ord="fro"),
        "one product": lambda: one_product(chain),
        "probe": lambda: gp.log_norms(chain, ord="fro", method="probe", probes=PROBES),
    }
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            times[name].append((time.process_time() - start) / steps * 1e6)
    inside = np.abs(probed.log_norm - exact.log_norm) <= probed.error
    return {
        "kind": kind, "n": n, "band": float(probed.error.max()), "within": float(inside.mean()),
        "us": {name: statistics.median(own) for name, own in times.items()},
        "range_us": {name: [min(own), max(own)] for name, own in times.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    path = parser.parse_args().json
    print("cell    n     exact  one product     probe  ratios to probe    band  within")
    rows = []
    with single_threaded_blas():
        for case in CASES:
            row = measure(*case)
            rows.append(row)
            exact, single, probe = row["us"].values()
            print(
                f"{row['kind']:4} {row['n']:4d} {exact:9.1f} {single:12.1f} {probe:9.1f}"
                f"  {exact / probe:7.1f} {single / probe:7.1f}   {row['band']:.2f}"
                f"  {row['within']:6.2f}",
                flush=True,
            )
    if path is not None:
        text = json.dumps({"rounds": ROUNDS, "cases": rows, "machine": describe()}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
