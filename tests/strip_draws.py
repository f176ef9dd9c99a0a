"""Random chains for the strip kernel, its arrays fenced in, and what a plain loop makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import naive
import numpy as np
from chains import FAMILIES, random_chain
from exact import exact_log_norm
from helpers import layouts

import gradprop as gp
from gradprop import _threads
from gradprop import chain as chains_of
from gradprop._kernels import strips

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 31, 50, 66, 140]
FENCE = 64
"""Elements of a canary on either side of an array: more than a register holds."""


@contextmanager
def fenced() -> Iterator[list[int]]:
    """Every array that the kernel gets lies between canaries; a dead one raises AssertionError.

    Yields a list that grows by one entry a call.
    """
    run, calls = strips.strip_steps, []

    def watched(*arguments: Any) -> None:
        owners, inner = [], []
        for value in arguments:
            if not isinstance(value, np.ndarray):
                inner.append(value)
                continue
            whole = np.full(value.size + 2 * FENCE, 99, dtype=value.dtype)
            whole[FENCE : FENCE + value.size] = value.ravel()
            owners.append((value, whole))
            inner.append(whole[FENCE : FENCE + value.size].reshape(value.shape))
        run(*inner)
        for value, whole in owners:
            assert (whole[:FENCE] == 99).all()
            assert (whole[FENCE + value.size :] == 99).all()
            if value.flags.writeable:
                value[...] = whole[FENCE : FENCE + value.size].reshape(value.shape)
        calls.append(len(owners))

    # what is copied back is whole, so threads would undo each other's work
    one_thread = mock.patch.object(_threads, "thread_count", return_value=1)
    with one_thread, mock.patch.object(strips, "strip_steps", watched):
        yield calls


def draw(rng: np.random.Generator) -> tuple[gp.JacobianChain, np.ndarray]:
    """A chain of replicas (R,) of any kind, from arrays of any layout, and its factors."""
    R, n = int(rng.integers(1, 4)), int(rng.choice(SIZES))
    steps = int(rng.integers(0, 14 if n < 20 else 5 if n < 100 else 3))
    if rng.random() < 0.3:
        family = str(rng.choice(FAMILIES))
        steps += steps % 2
        J = np.stack([random_chain(rng, family, steps, n) for _ in range(R)])
        J[rng.random(J.shape[:3]) < rng.choice([0, 0.1])] = 0.0
        return gp.JacobianChain.dense(any_layout(rng, J)), J
    leak = float(rng.choice([1.0, 1.0, 0.25]))
    W = short(rng.standard_normal((R if rng.random() < 0.5 else 1, n, n)) / math.sqrt(n))
    dphi = short(rng.uniform(0.05, 1, (R, steps, n)) * 10.0 ** rng.uniform(-3, 3, (R, steps, 1)))
    dphi[rng.random(dphi.shape) < rng.choice([0.0, 0.1, 0.5, 0.95])] = 0.0
    chain = gp.JacobianChain.row_scaled(any_layout(rng, W), any_layout(rng, dphi), leak=leak)
    return chain, (1 - leak) * np.eye(n) + leak * dphi[..., None] * W[:, None]


def short(array: np.ndarray) -> np.ndarray:
    """Numbers of 12 bits at most, so that the Jacobians compared with do not round themselves."""
    mantissas, exponents = np.frexp(array)
    return np.ldexp(np.round(np.ldexp(mantissas, 12)), np.maximum(exponents, -6) - 12)


def any_layout(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """The same numbers, laid out in memory in some way."""
    return layouts(array)[str(rng.choice(["C", "Fortran", "strided", "backwards", "read-only"]))]


def check(rng: np.random.Generator) -> float:
    """Draw a chain, take its norms and compare them with a plain loop: gap over what is stated.

    Where the loop itself is in doubt, integer arithmetic takes its place. Lags, anchor, norm, dtype
    and the cutting into blocks are drawn too. AssertionError if a zero is claimed wrongly or a
    canary is dead.
    """
    chain, J = draw(rng)
    anchor = str(rng.choice(["start", "end"]))
    ord, dtype = [(2, "float64"), ("fro", "float64"), ("fro", "float32")][rng.integers(3)]
    lags = rng.integers(0, chain.n_steps + 1, int(rng.integers(1, 6)))
    floats = int(rng.choice([1, 200, 2**22]))
    with fenced() as calls, mock.patch.object(chains_of, "BLOCK_FLOATS", floats):
        found = gp.log_norms(chain, ord=ord, lags=lags, anchor=anchor, dtype=dtype)
    assert calls or not lags.any()
    worst = 0.0
    for r in range(len(J)):
        plain = naive.log_norms(J[r], ord, anchor)[lags]
        for i, (value, error) in enumerate(zip(found.log_norm[r], found.error[r], strict=True)):
            if np.isinf(error):
                assert np.isnan(value)
                continue
            expected = plain[i]
            if value != expected and not abs(value - expected) <= error:
                expected = exact_log_norm(naive.factors(J[r], lags[i], anchor), ord)
            if -np.inf in (value, expected):
                assert value == expected
            else:
                worst = max(worst, abs(value - expected) / error)
    return worst
