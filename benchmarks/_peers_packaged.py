"""All Lyapunov exponents of one network by packages that take a map and its Jacobian.

pynamicalsys compiles both with Numba; it starts from a random basis and takes the Jacobian after
the step, so its averages over T steps are other ones, 1/T apart. lyapynov and clvlib call NumPy
functions, and start from the identity as we do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from _peers_products import Array, Call

LARGEST_GRAM_SCHMIDT = 64
"""Above, pynamicalsys' Gram-Schmidt takes several times longer than its Householder QR."""


@numba.njit
def network(u: Array, parameters: Array) -> Array:
    n = u.size
    return np.tanh(parameters.reshape((n, n)) @ u)


@numba.njit
def network_jacobian(u: Array, parameters: Array, mapping: Any) -> Array:
    n = u.size
    W = parameters.reshape((n, n))
    h = np.tanh(W @ u)
    J = np.empty((n, n))
    for i in range(n):
        J[i] = (1.0 - h[i] * h[i]) * W[i]
    return J


@cache
def _system(n: int) -> Any:
    from pynamicalsys import DiscreteDynamicalSystem

    return DiscreteDynamicalSystem(
        mapping=network, jacobian=network_jacobian, system_dimension=n, number_of_parameters=n * n
    )


def pynamicalsys_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    n = len(h0)
    system, parameters = _system(n), W.ravel()
    methods = ("QR", "QR_HH") if n <= LARGEST_GRAM_SCHMIDT else ("QR_HH",)

    def call(method: str) -> Call:
        return lambda: system.lyapunov(h0, T, parameters=parameters, method=method)

    return {f"pynamicalsys {method}": call(method) for method in methods}


def lyapynov_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    import lyapynov

    def step(h: Array, t: float) -> Array:
        return np.tanh(W @ h)

    def jacobian(h: Array, t: float) -> Array:
        return (1 - np.tanh(W @ h) ** 2)[:, None] * W

    def call() -> Array:
        system = lyapynov.DiscreteDS(h0, 0, step, jacobian)
        return lyapynov.LCE(system, len(h0), 0, T, False)

    return {"lyapynov": call}


def clvlib_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    from clvlib.numpy import lyap_exp_from_ic

    def step(t: float, h: Array) -> Array:
        return np.tanh(W @ h)

    def jacobian(t: float, h: Array) -> Array:
        return (1 - np.tanh(W @ h) ** 2)[:, None] * W

    times = np.arange(T + 1.0)
    return {"clvlib": lambda: lyap_exp_from_ic(step, jacobian, h0, times, stepper="discrete")[0]}


PACKAGES = {
    "pynamicalsys": pynamicalsys_calls, "lyapynov": lyapynov_calls, "clvlib": clvlib_calls
}  # fmt: skip
