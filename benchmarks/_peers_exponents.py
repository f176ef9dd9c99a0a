"""All Lyapunov exponents by QR at every step with NumPy, PyTorch, JAX and Numba, map included.

h_k = tanh(W h_{k-1}), Q_k R_k = diag(1 - h_k^2) W Q_{k-1} from Q_0 = I; the averages of ln |R_ii|,
(R, n) in the order of QR. The Numba kernel is a user's: LAPACK's Householder QR by np.linalg.qr.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from _peers_products import Array, Call, on_jax


def numpy_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    def batched() -> Array:
        h, Q = h0[..., None], np.broadcast_to(np.eye(W.shape[-1]), W.shape)
        total = np.zeros(h0.shape)
        for _ in range(T):
            h = np.tanh(W @ h)
            Q, R = np.linalg.qr((1 - h * h) * (W @ Q))
            total += np.log(np.abs(np.diagonal(R, axis1=1, axis2=2)))
        return total / T

    return {"numpy qr": batched}


def torch_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    import torch

    weights, start = torch.from_numpy(W), torch.from_numpy(h0)[..., None]

    @torch.inference_mode()
    def qr() -> Array:
        h = start
        Q = torch.eye(weights.shape[-1], dtype=weights.dtype).expand_as(weights).contiguous()
        total = torch.zeros(h0.shape, dtype=weights.dtype)
        for _ in range(T):
            h = torch.tanh(torch.bmm(weights, h))
            Q, R = torch.linalg.qr((1 - h * h) * torch.bmm(weights, Q))
            total += torch.diagonal(R, dim1=1, dim2=2).abs().log()
        return (total / T).numpy()

    return {"torch qr": qr}


@cache
def _jax_functions(T: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def one(w: Any, start: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            h, Q, total = carry
            h = jnp.tanh(w @ h)
            Q, R = jnp.linalg.qr((1 - h * h)[:, None] * (w @ Q))
            return (h, Q, total + jnp.log(jnp.abs(jnp.diagonal(R)))), None

        n = len(start)
        first = (start, jnp.eye(n, dtype=w.dtype), jnp.zeros(n, w.dtype))
        return jax.lax.scan(step, first, length=T)[0][2] / T

    mapped = jax.jit(lambda w, h: jax.lax.map(lambda pair: one(*pair), (w, h)))
    return {"jax vmap": jax.jit(jax.vmap(one)), "jax map": mapped}


def jax_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    return on_jax(_jax_functions(T), W, h0)


@numba.njit
def householder(W: Array, h0: Array, T: int) -> Array:
    """A user's kernel: one network after the other, np.linalg.qr at every step."""
    R, n = h0.shape
    total = np.zeros((R, n))
    for r in range(R):
        w, h = W[r], h0[r].copy()
        Q = np.asfortranarray(np.eye(n))
        for _ in range(T):
            h = np.tanh(w @ h)
            A = w @ Q
            for i in range(n):
                A[i] *= 1.0 - h[i] * h[i]
            Q, upper = np.linalg.qr(A)
            for i in range(n):
                total[r, i] += np.log(abs(upper[i, i]))
    return total / T


def numba_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    return {"numba qr": lambda: householder(W, h0, T)}


FRAMEWORKS = {"numpy": numpy_calls, "torch": torch_calls, "jax": jax_calls, "numba": numba_calls}
