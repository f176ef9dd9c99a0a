"""All Lyapunov exponents: against QR at every step, and against packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _cases import OURS, Case, Times, faster, missing
from _peers_exponents import FRAMEWORKS
from _peers_packaged import PACKAGES
from _peers_products import Array
from _processes import installed
from _random_networks import networks
from _timing import interleaved

import gradprop as gp

GAINS = (0.6, 0.9, 1.2, 1.5, 2.0)
SATURATED = (3.0, 8.0)
"""Shown only: trailing exponents there depend on rounding, in any library."""

SHAPES = {16: (8, 1600), 32: (8, 800), 64: (8, 96), 128: (4, 96), 256: (2, 96)}
"""Networks of each gain and steps, by n. Sums are recorded 100 times over 100 steps or more, 10
times over fewer: a few hundred steps would be orthonormalised more often than thousands are."""
SECONDS, SHOWN_SECONDS = 2.5, 1.0
APART = 1e-9
TOGETHER = 24
"""Steps over which frameworks are compared: networks in chaos part with each one's rounding. Over
all steps we are compared with NumPy's QR of our own Jacobians."""

PACKAGED = {16: 3200, 64: 1600, 128: 96, 256: 96}
"""Steps of the one network that packages take."""
PACKAGED_GAIN = 1.2
OWN_BASIS = ("pynamicalsys QR", "pynamicalsys QR_HH")


def ours(W: Array, h0: Array, T: int) -> Callable[[], Array]:
    cell = gp.RNN(W)
    return lambda: gp.lyapunov_spectrum(gp.linearise(cell, h0=h0, n_steps=T)).exponents


def descending(exponents: Array) -> Array:
    return -np.sort(-exponents, axis=-1)


def _candidates(n: int, gain: float, T: int) -> dict[str, Callable[[], Any]]:
    W, h0 = networks(n, SHAPES[n][0], gain)
    found: dict[str, Callable[[], Any]] = {OURS: ours(W, h0, T)}
    for name in installed(FRAMEWORKS):
        found |= FRAMEWORKS[name](W, h0, T)
    return found


def _on_our_jacobians(n: int, gain: float) -> Array:
    """NumPy's QR at every step, of the Jacobians that we take."""
    R, T = SHAPES[n]
    W, h0 = networks(n, R, gain)
    Q, total = np.broadcast_to(np.eye(n), W.shape), np.zeros((R, n))
    J = gp.linearise(gp.RNN(W), h0=h0, n_steps=T).to_dense()
    for k in range(T):
        Q, upper = np.linalg.qr(J[:, k] @ Q)
        total += np.log(np.abs(np.diagonal(upper, axis1=1, axis2=2)))
    return descending(total / T)


def _measured(n: int, gain: float, seconds: float) -> tuple[Times, dict[str, float]]:
    """Times, and how far exponents are apart: the leading half where saturated."""
    compared = n // 2 if gain in SATURATED else n

    def apart(a: Array, b: Array) -> float:
        return float(np.abs(a - b)[:, :compared].max())

    with np.errstate(divide="ignore", invalid="ignore"):
        few = {k: descending(call()) for k, call in _candidates(n, gain, TOGETHER).items()}
        differences = {k: apart(own, few[OURS]) for k, own in few.items() if k != OURS}
        candidates = _candidates(n, gain, SHAPES[n][1])
        whole = {k: descending(call()) for k, call in candidates.items()}  # compiles
        differences["all steps"] = apart(whole[OURS], _on_our_jacobians(n, gain))
        return interleaved(candidates, seconds, least=1 if gain in SATURATED else 3), differences


def _pooled(rounds: list[Times]) -> Times:
    """Sums over the gains, of the first rounds that all of them have."""
    count = min(len(own) for times in rounds for own in times.values())
    return {
        name: [sum(times[name][i] for times in rounds) for i in range(count)] for name in rounds[0]
    }


def spectrum(sizes: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        R, T = SHAPES[n]
        rounds, apart, ratios = [], {}, {}
        for gain in GAINS:
            times, differences = _measured(n, gain, SECONDS)
            rounds.append(times)
            ratios[f"gain {gain:g}"] = faster("spectrum", n, times, scale=1, unit="s").measured
            for name, value in differences.items():
                apart[name] = max(apart.get(name, 0.0), value)
        steps = R * T * len(GAINS)
        case = faster(
            "spectrum", n, _pooled(rounds), scale=1e6 / steps, unit="us/step", apart=apart,
            details={"R": R, "T": T, "times by gain": ratios},
        )  # fmt: skip
        if not max(apart.values()) <= APART:
            case.measured, case.note = None, f"exponents differ by {max(apart.values()):.0e}"
        yield case
        for gain in SATURATED:
            times, apart_there = _measured(n, gain, SHOWN_SECONDS)
            yield faster(
                f"spectrum, gain {gain:g}", n, times, scale=1e6 / (R * T), unit="us/step",
                apart=apart_there, details={"R": R, "T": T},
            )  # fmt: skip


def packaged(sizes: Sequence[int]) -> Iterator[Case]:
    names = installed(PACKAGES)
    for n in sizes:
        if not names:
            yield missing("packaged", n, "none of the packages is installed")
            continue
        W, h0 = networks(n, 1, PACKAGED_GAIN)
        T = PACKAGED[n]
        candidates: dict[str, Callable[[], Any]] = {OURS: ours(W[0], h0[0], T)}
        for name in names:
            candidates |= PACKAGES[name](W[0], h0[0], T)
        found = {name: descending(call()) for name, call in candidates.items()}
        apart = {k: float(np.abs(v - found[OURS]).max()) for k, v in found.items() if k != OURS}
        alike = [v for k, v in apart.items() if k not in OWN_BASIS]
        case = faster(
            "packaged", n, interleaved(candidates, SECONDS, least=3), scale=1e6 / T,
            unit="us/step", apart=apart, details={"T": T, "packages": names},
        )  # fmt: skip
        if alike and not max(alike) <= APART:
            case.measured, case.note = None, f"exponents differ by {max(alike):.0e}"
        yield case
