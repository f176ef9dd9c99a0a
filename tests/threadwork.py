"""What workers and subprocesses compute for test_threads.py: importable by name, no test."""

from __future__ import annotations

import hashlib

import numpy as np

import gradprop as gp


def digest(n: int, R: int = 3, steps: int = 4) -> str:
    """Hash of the bytes of exponents, norms, singular values and gradients of tanh networks."""
    rng = np.random.default_rng(n)
    cell = gp.RNN(1.2 * rng.standard_normal((n, n)) / np.sqrt(n), rng.standard_normal((n, 2)))
    x, grad_h = rng.standard_normal((R, steps, 2)), rng.standard_normal((R, steps, n))
    chain = gp.linearise(cell, x)
    found = gp.backward(cell, x, grad_h)
    values = gp.singular_values(chain)
    arrays = [
        gp.lyapunov_spectrum(chain).exponents, gp.log_norms(chain).log_norm,
        gp.log_norms(chain, ord="fro", anchor="end").error, values.log_sigma, values.error,
        found.flat, found.x, found.h0,
    ]  # fmt: skip
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()
