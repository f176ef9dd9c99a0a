"""Gradients through time against frameworks; singular values in units of one matrix product."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _cases import OURS, Case, faster
from _peers_backward import FRAMEWORKS, Gradients
from _processes import installed
from _random_networks import networks
from _timing import interleaved, spread

import gradprop as gp

B, T, D_X = 32, 200, 32
SECONDS = 5.0
APART = 1e-5

SINGULAR_STEPS = {64: 200, 128: 100, 256: 60}
GEMMS = 20
"""Products timed at a time."""


def apart(mine: Gradients, theirs: Gradients) -> float:
    """Largest relative difference of a gradient, by norms."""
    assert mine.keys() == theirs.keys()
    return max(
        float(np.linalg.norm(mine[k] - theirs[k]) / np.linalg.norm(theirs[k])) for k in theirs
    )


def backward(sizes: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        rng = np.random.default_rng(n)
        bound = 1 / np.sqrt(n)
        weights = tuple(
            rng.uniform(-bound, bound, shape).astype(np.float32) for shape in ((n, n), (n, D_X), n)
        )
        x, c = (rng.standard_normal((B, T, m)).astype(np.float32) for m in (D_X, n))
        cell = gp.RNN(*weights)

        def mine(cell: gp.RNN = cell, x: Any = x, c: Any = c) -> Gradients:
            found = gp.backward(cell, x, c)
            return {**found.parameters, "x": found.x}

        calls: dict[str, Callable[[], Any]] = {}
        for name in installed(FRAMEWORKS):
            calls |= FRAMEWORKS[name](weights, x, c)
        gradients = mine()
        differences = {name: apart(gradients, call()) for name, call in calls.items()}
        times = interleaved({OURS: mine, **calls}, SECONDS)
        yield from _by_framework(n, times, differences)


def _by_framework(
    n: int, times: dict[str, list[float]], differences: dict[str, float]
) -> Iterator[Case]:
    for name, difference in differences.items():
        case = faster(
            "backward, jax" if name.startswith("jax") else "backward", n,
            {k: times[k] for k in (OURS, name)}, scale=1e3, unit="ms", apart={name: difference},
            details={"B": B, "T": T, "d_x": D_X},
        )  # fmt: skip
        if not difference <= APART:
            case.measured, case.note = None, f"gradients differ by {difference:.0e}"
        yield case


def every_second() -> dict[str, int]:
    """The argument, 1 by default, that lets `singular_values` factor every second step; or none."""
    parameters = inspect.signature(gp.singular_values).parameters
    return {k: 2 for k, p in parameters.items() if type(p.default) is int and p.default == 1}


def singular(sizes: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        yield from _singular("singular", n, {})
        if n == min(SINGULAR_STEPS):
            options = every_second()
            if options:
                yield from _singular("singular, every second step", n, options)
            else:
                yield Case(group="singular, every second step", n=n, note="no such option")


def _singular(group: str, n: int, options: dict[str, Any]) -> Iterator[Case]:
    """A whole call at one lag, over its steps, over the time of one product."""
    steps = SINGULAR_STEPS[n]
    W, h0 = networks(n, 1, 1.2)
    cell = gp.RNN(W[0])
    A, out = W[0] @ W[0], np.empty((n, n))

    def mine() -> gp.SingularValues:
        return gp.singular_values(gp.linearise(cell, h0=h0[0], n_steps=steps), **options)

    def gemms() -> None:
        for _ in range(GEMMS):
            np.matmul(W[0], A, out=out)

    found = mine()
    times = interleaved({OURS: mine, "gemm": gemms}, SECONDS)
    own, product = spread(times[OURS], 1e6 / steps), spread(times["gemm"], 1e6 / GEMMS)
    details = {
        "T": steps, "escalated": bool(found.escalated.any()),
        "resolved": float(found.resolved.mean()), "largest error": float(found.error.max()),
    }  # fmt: skip
    yield Case(
        group=group, n=n, unit="us/step", times={OURS: own, "gemm": product},
        measured=own["median"] / product["median"], details=details,
    )  # fmt: skip
