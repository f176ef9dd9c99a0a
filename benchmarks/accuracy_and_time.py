"""Largest error and time of five ways to the singular values of a long product.

Gaussian tanh chains of 100 steps at n = 8, 16, 32: milliseconds a chain (medians of interleaved
rounds, with the range, BLAS at one thread) beside the largest error of ln(sigma) in nats against an
exact integer product. "balls" is the arbitrary precision behind ``singular_values``, which these
chains do not need. Generalised orders of magnitude (GOOM) are left out: they do not install from
PyPI.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))
import _exact_products
import _stated_measure

import gradprop as gp
from gradprop import escalation, modular
from gradprop.environment import single_threaded_blas

ROUNDS = 9
STEPS = 100
SIZES = (8, 16, 32)
Array = NDArray[np.float64]


def ours(J: Array) -> Array:
    return gp.singular_values(gp.JacobianChain.dense(J)).log_sigma[0]


def balls(J: Array) -> Array:
    steps = modular.Steps(gp.JacobianChain.dense(J), 0, False)
    spread = int(np.ptp(_stated_measure.qr_sweep(J)) / np.log(2.0))
    found = escalation.exact_log_singular_values(
        steps, [len(J)], J.shape[-1], escalation.FIRST_BITS + spread
    )[len(J)]
    assert found is not None
    return found[0]


METHODS: dict[str, Callable[[Array], Array]] = {
    "plain product and SVD": _stated_measure.plain_product,
    "rescaled product and SVD": _stated_measure.rescaled_product,
    "QR sweep": _stated_measure.qr_sweep,
    "singular_values": ours,
    "balls": balls,
}


def milliseconds(function: Callable[[Array], Array], J: Array) -> float:
    start = time.thread_time()
    function(J)
    return (time.thread_time() - start) * 1e3


def main() -> None:
    print(f"{'n':>3} {'method':<26} {'ms':>8}  {'range':<16} {'largest error [nats]':>20}")
    with single_threaded_blas():
        for n in SIZES:
            rng = np.random.default_rng(n)
            dphi = gp.activations.activation("tanh").derivative(rng.standard_normal((STEPS, n)))
            J = dphi[..., None] * (rng.standard_normal((n, n)) / np.sqrt(n))
            exact = _exact_products.log_singular_values(J, proven=False)
            errors = {  # the first call compiles
                name: max(
                    _exact_products.true_error(v, x)
                    for v, x in zip(method(J).tolist(), exact, strict=True)
                )
                for name, method in METHODS.items()
            }
            rounds = [
                {name: milliseconds(method, J) for name, method in METHODS.items()}
                for _ in range(ROUNDS)
            ]
            for name, error in errors.items():
                times = [r[name] for r in rounds]
                spread = f"{min(times):.1f}-{max(times):.1f}"
                print(
                    f"{n:3d} {name:<26} {statistics.median(times):8.1f}  {spread:<16} {error:20.2g}"
                )


if __name__ == "__main__":
    main()
