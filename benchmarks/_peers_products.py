"""ln ||P_k||_F at every k as one would write it with NumPy, PyTorch and JAX.

h_k = tanh(W h_{k-1}), P_k = diag(1 - h_k^2) W P_{k-1}, R networks, map included. The norm of a step
scales the next one through its slopes, so that scaling costs no pass of its own. Every function
gives a call without arguments that returns (R, T); arrays are converted outside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Call = Callable[[], Array]


def numpy_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    return {
        "numpy batched": lambda: numpy_batched(W, h0, T),
        "numpy loop": lambda: np.stack([numpy_single(w, h, T) for w, h in zip(W, h0, strict=True)]),
    }


def numpy_batched(W: Array, h0: Array, T: int) -> Array:
    R, n = h0.shape
    P = np.ascontiguousarray(np.broadcast_to(np.eye(n, dtype=W.dtype), W.shape))
    Q = np.empty_like(P)
    h = h0[..., None]
    inverse = np.ones((R, 1, 1), W.dtype)
    logs = np.empty((T, R))
    for k in range(T):
        h = np.tanh(W @ h)
        np.matmul(W, P, out=Q)
        Q *= (1 - h * h) * inverse
        flat = Q.reshape(R, n * n)
        norm = np.sqrt(np.vecdot(flat, flat))
        logs[k] = np.log(norm)
        inverse = (1 / norm)[:, None, None]
        P, Q = Q, P
    return logs.cumsum(axis=0).T


def numpy_single(W: Array, h: Array, T: int) -> Array:
    P = np.eye(len(h), dtype=W.dtype)
    Q = np.empty_like(P)
    inverse = W.dtype.type(1)
    norms = np.empty(T)
    for k in range(T):
        h = np.tanh(W @ h)
        np.matmul(W, P, out=Q)
        Q *= ((1 - h * h) * inverse)[:, None]
        flat = Q.ravel()
        norm = np.sqrt(flat @ flat)
        norms[k] = norm
        inverse = 1 / norm
        P, Q = Q, P
    return np.log(norms).cumsum()


def torch_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    import torch

    weights, start = torch.from_numpy(W), torch.from_numpy(h0)[..., None]
    R, n = h0.shape

    @torch.inference_mode()
    def bmm() -> Array:
        P = torch.eye(n, dtype=weights.dtype).expand(R, n, n).contiguous()
        Q = torch.empty_like(P)
        h = start
        inverse = torch.ones((R, 1, 1), dtype=weights.dtype)
        norms = torch.empty((T, R), dtype=torch.float64)
        for k in range(T):
            h = torch.tanh(torch.bmm(weights, h))
            torch.bmm(weights, P, out=Q)
            Q.mul_((1 - h * h) * inverse)
            norm = torch.linalg.vector_norm(Q.view(R, n * n), dim=1)
            norms[k] = norm
            inverse = (1 / norm)[:, None, None]
            P, Q = Q, P
        return torch.log(norms).cumsum(0).T.numpy()

    return {"torch bmm": bmm}


@cache
def _jax_functions(T: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    def one(w: Any, start: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            h, P, inverse = carry
            h = jnp.tanh(w @ h)
            P = ((1 - h * h) * inverse)[:, None] * (w @ P)
            norm = jnp.sqrt(jnp.sum(P * P))
            return (h, P, 1 / norm), norm

        first = (start, jnp.eye(len(start), dtype=w.dtype), jnp.ones((), w.dtype))
        norms = jax.lax.scan(step, first, length=T)[1]
        return jnp.cumsum(jnp.log(norms.astype(jnp.float64)))

    mapped = jax.jit(lambda w, h: jax.lax.map(lambda pair: one(*pair), (w, h)))
    return {"jax vmap": jax.jit(jax.vmap(one)), "jax map": mapped}


def on_jax(functions: dict[str, Any], W: Array, h0: Array) -> dict[str, Call]:
    """Compiled functions of weights and starts as calls; arrays are JAX's before the first."""
    import jax.numpy as jnp

    weights, starts = jnp.asarray(W), jnp.asarray(h0)

    def call(function: Any) -> Call:
        return lambda: np.asarray(function(weights, starts))

    return {name: call(function) for name, function in functions.items()}


def jax_calls(W: Array, h0: Array, T: int) -> dict[str, Call]:
    return on_jax(_jax_functions(T), W, h0)


FRAMEWORKS = {"numpy": numpy_calls, "torch": torch_calls, "jax": jax_calls}
