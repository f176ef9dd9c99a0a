"""CPU time of ``gp.backward`` against forward and backward passes of ``torch.nn.RNN``, one thread.

A tanh network in float32, 32 sequences of 200 steps with 32 inputs, loss sum(c h) with a random c.
Both give gradients of all weights, the bias and the input, which are compared before anything is
timed: at most 1e-5 apart, norm by norm. Rounds are interleaved; medians of CPU time, their ratio
and their ranges are printed, and written with ``--json PATH``. The aim is a ratio of 1.5.

Needs ``pip install -e ".[bench]"``. Variables that choose the BLAS's core, such as
OPENBLAS_CORETYPE, change the figures.
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
import torch
from numpy.typing import NDArray

import gradprop as gp
from gradprop.environment import describe

ROUNDS = 21
SIZES = (64, 128, 256)
B, T, D_X = 32, 200, 32
TOLERANCE = 1e-5
Gradients = dict[str, NDArray[np.float32]]


def candidates(n: int) -> tuple[Callable[[], Gradients], Callable[[], Gradients]]:
    """The same gradients of the same network, by gradprop and by torch."""
    torch.manual_seed(n)
    rng = np.random.default_rng(n)
    net = torch.nn.RNN(D_X, n, batch_first=True)
    W_xh, W_hh, b_x, b_h = (p.detach().numpy() for p in net.parameters())
    cell = gp.RNN(W_hh, W_xh, b_x + b_h)
    x = rng.standard_normal((B, T, D_X)).astype(np.float32)
    c = rng.standard_normal((B, T, n)).astype(np.float32)
    x_torch, c_torch = torch.tensor(x, requires_grad=True), torch.tensor(c)

    def ours() -> Gradients:
        found = gp.backward(cell, x, c)
        return {**found.parameters, "x": found.x}

    def theirs() -> Gradients:
        net.zero_grad()
        x_torch.grad = None
        (net(x_torch)[0] * c_torch).sum().backward()
        grads = (net.weight_hh_l0, net.weight_ih_l0, net.bias_ih_l0, x_torch)
        named = zip(("W_hh", "W_xh", "b", "x"), grads, strict=True)
        return {name: p.grad.numpy() for name, p in named if p.grad is not None}

    return ours, theirs


def difference(ours: Gradients, theirs: Gradients) -> float:
    """Largest relative difference of any gradient, by norms."""
    assert ours.keys() == theirs.keys()
    return max(
        float(np.linalg.norm(ours[k] - theirs[k]) / np.linalg.norm(theirs[k])) for k in theirs
    )


def milliseconds(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return (time.process_time() - start) * 1e3


def measure(n: int) -> dict[str, Any]:
    ours, theirs = candidates(n)
    apart = difference(ours(), theirs())  # the first call compiles
    if not apart <= TOLERANCE:
        raise SystemExit(f"n = {n}: gradients differ by {apart:.1e}, nothing was timed")
    ours(), theirs()
    a, b = zip(*((milliseconds(ours), milliseconds(theirs)) for _ in range(ROUNDS)), strict=True)
    mine, other = statistics.median(a), statistics.median(b)
    return {
        "n": n, "gradprop_ms": mine, "torch_ms": other, "ratio": other / mine,
        "gradprop_range_ms": [min(a), max(a)], "torch_range_ms": [min(b), max(b)],
        "difference": apart,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    path = parser.parse_args().json
    torch.set_num_threads(1)
    print(f"{'n':>4} {'gradprop':>11} {'torch':>11} {'ratio':>6}  ranges, difference")
    rows = []
    for n in SIZES:
        row = measure(n)
        rows.append(row)
        low, high = row["gradprop_range_ms"]
        least, most = row["torch_range_ms"]
        print(
            f"{n:4d} {row['gradprop_ms']:8.2f} ms {row['torch_ms']:8.2f} ms {row['ratio']:6.2f}  "
            f"{low:.1f}-{high:.1f}, {least:.1f}-{most:.1f}, {row['difference']:.0e}",
            flush=True,
        )
    if path is not None:
        machine = {**describe(), "torch": torch.__version__}
        text = json.dumps({"rounds": ROUNDS, "sizes": rows, "machine": machine}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
