"""Norms of products: against frameworks, by probes, with ReLU, on two threads."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _cases import OURS, Case, faster, missing
from _peers_products import FRAMEWORKS, Array
from _processes import installed, threads
from _random_networks import networks
from _timing import interleaved, spread

import gradprop as gp

GAIN = 1.2
SHAPES = {16: (32, 400), 32: (32, 400), 64: (32, 200), 128: (32, 64), 256: (16, 32), 512: (8, 16)}
"""Networks and steps, by n: at most half a second a call at 50 GF/s."""

DTYPES = ("float32", "float64")
TOGETHER = {"float32": 40, "float64": 400}
"""Lags at which numbers are compared: networks in chaos part with each library's own rounding."""
APART = {"float32": 0.02, "float64": 1e-8}
SECONDS, OWN_SECONDS = 6.0, 4.0
"""Of a case against frameworks, and of one against ourselves."""

PEAK = 2048
TWO_THREADS = (16, 64, 128, 256)
PROBED = (64, 128, 256)
FLOAT32 = "dtype" in inspect.signature(gp.log_norms).parameters


def ours(
    W: Array, h0: Array, T: int, activation: str = "tanh", **options: Any
) -> Callable[[], gp.LogNorms]:
    """The whole call; the cell is made beforehand, as the peers' arrays are."""
    cell = gp.RNN(W, activation=activation)
    if W.dtype == np.float32:
        options["dtype"] = "float32"
    return lambda: gp.log_norms(
        gp.linearise(cell, h0=h0, n_steps=T), ord="fro", **options
    )  # fmt: skip


def distance(a: Array, b: Array, dtype: str) -> float:
    """Largest difference in nats over the lags that are compared; inf if a number is missing."""
    first = np.abs(a - b)[:, : TOGETHER[dtype]]
    return float(first.max()) if np.isfinite(first).all() else float("inf")


def norms(sizes: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        for dtype in DTYPES:
            if dtype == "float32" and not FLOAT32:
                yield missing("norms float32", n, "log_norms has no float32")
                yield missing("gemm float32", n, "log_norms has no float32")
                continue
            yield from _against_frameworks(n, dtype)


def _against_frameworks(n: int, dtype: str) -> Iterator[Case]:
    R, T = SHAPES[n]
    W, h0 = networks(n, R, GAIN, dtype)
    mine = ours(W, h0, T)
    calls: dict[str, Callable[[], Any]] = {}
    for name in installed(FRAMEWORKS):
        calls |= FRAMEWORKS[name](W, h0, T)
    found = mine()
    apart = {name: distance(found.log_norm[:, 1:], call(), dtype) for name, call in calls.items()}
    big = np.random.default_rng(0).standard_normal((2, PEAK, PEAK)).astype(dtype)
    out = np.empty_like(big[0])
    candidates = {OURS: mine, **calls, "gemm": lambda: np.matmul(*big, out=out)}
    times = interleaved(candidates, SECONDS)
    gemm = times.pop("gemm")
    details = {"R": R, "T": T, "largest error stated": float(found.error.max())}
    case = faster(
        f"norms {dtype}", n, times, scale=1e3, unit="ms", apart=apart, details=details
    )  # fmt: skip
    if not max(apart.values()) <= APART[dtype]:
        case.measured, case.note = None, f"numbers differ by {max(apart.values()):.0e}"
    yield case
    rate = 2 * PEAK**3 / spread(gemm)["median"]
    own = 2 * n**3 * R * T / spread(times[OURS])["median"]
    yield Case(
        group=f"gemm {dtype}", n=n, measured=own / rate,
        details={"GF/s": own / 1e9, "GF/s at n = 2048": rate / 1e9},
    )  # fmt: skip


def probe(sizes: Sequence[int]) -> Iterator[Case]:
    """Eight vectors against the product; the band, and how often the exact value lies in it."""
    for n in sizes:
        R, T = SHAPES[n][0] // 4, SHAPES[n][1]
        W, h0 = networks(n, R, GAIN)
        exact, probed = ours(W, h0, T), ours(W, h0, T, method="probe", probes=8)
        a, b = exact(), probed()
        inside = np.abs(b.log_norm - a.log_norm) <= b.error
        details = {"R": R, "T": T, "band": float(b.error.max()), "within": float(inside.mean())}
        times = interleaved({OURS: probed, "our exact": exact}, OWN_SECONDS)
        yield faster("probe", n, times, scale=1e3, unit="ms", details=details)


def relu(sizes: Sequence[int]) -> Iterator[Case]:
    """The same W with ReLU, of whose units about half are active, and with tanh."""
    for n in sizes:
        R, T = SHAPES[n][0] // 4, SHAPES[n][1]
        W, h0 = networks(n, R, GAIN)
        h = gp.rollout(gp.RNN(W, activation="relu"), h0=h0, n_steps=T).h[:, 1:]
        rectified, smooth = ours(W, h0, T, "relu"), ours(W, h0, T)
        rectified(), smooth()
        times = interleaved({OURS: rectified, "our tanh": smooth}, OWN_SECONDS)
        details = {"R": R, "T": T, "active": float((h > 0).mean())}
        yield faster("relu", n, times, scale=1e3, unit="ms", details=details)


def alone(sizes: Sequence[int], framework: str) -> Iterator[Case]:
    """Wall times of one framework, which has this process to itself."""
    for n in sizes:
        for dtype in DTYPES:
            R, T = SHAPES[n]
            W, h0 = networks(n, R, GAIN, dtype)
            if framework != OURS:
                calls: dict[str, Callable[[], Any]] = dict(FRAMEWORKS[framework](W, h0, T))
            elif dtype == "float32" and not FLOAT32:
                continue
            else:
                calls = {OURS: ours(W, h0, T)}
            for call in calls.values():
                call()
            seconds = SECONDS / len(DTYPES) * len(calls) / 6
            times = interleaved(calls, seconds, clock=time.perf_counter)
            yield Case(
                group=f"threads {dtype}", n=n, clock="wall", details={"threads": threads()},
                times={name: spread(own, 1e3) for name, own in times.items()},
            )  # fmt: skip
