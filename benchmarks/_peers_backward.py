"""Gradients through time of a tanh network with inputs by PyTorch and JAX.

The loss is sum(c h). Every call returns the gradients of W_hh, W_xh, b and x by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Gradients = dict[str, Array]
Call = Callable[[], Gradients]
NAMES = ("W_hh", "W_xh", "b", "x")


def torch_calls(weights: tuple[Array, Array, Array], x: Array, c: Array) -> dict[str, Call]:
    """`torch.nn.RNN`, forwards and backwards."""
    import torch

    W_hh, W_xh, b = weights
    net = torch.nn.RNN(W_xh.shape[1], len(W_hh), batch_first=True)
    with torch.no_grad():
        for own, given in zip(net.parameters(), (W_xh, W_hh, b, 0 * b), strict=True):
            own.copy_(torch.from_numpy(given))
    x_torch, c_torch = torch.tensor(x, requires_grad=True), torch.tensor(c)

    def call() -> Gradients:
        net.zero_grad()
        x_torch.grad = None
        (net(x_torch)[0] * c_torch).sum().backward()
        found = (net.weight_hh_l0, net.weight_ih_l0, net.bias_ih_l0, x_torch)
        return {k: p.grad.numpy() for k, p in zip(NAMES, found, strict=True) if p.grad is not None}

    return {"torch nn.RNN": call}


def jax_calls(weights: tuple[Array, Array, Array], x: Array, c: Array) -> dict[str, Call]:
    """`jax.grad` of a scan under jit; inputs multiplied before it, in one product."""
    import jax
    import jax.numpy as jnp

    def loss(W_hh: Any, W_xh: Any, b: Any, x: Any, c: Any) -> Any:
        driven = jnp.swapaxes(x @ W_xh.T + b, 0, 1)

        def step(h: Any, u: Any) -> Any:
            h = jnp.tanh(h @ W_hh.T + u)
            return h, h

        start = jnp.zeros(driven.shape[1:], driven.dtype)
        return jnp.sum(jax.lax.scan(step, start, driven)[1] * jnp.swapaxes(c, 0, 1))

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    given = [jnp.asarray(a) for a in (*weights, x, c)]

    def call() -> Gradients:
        return dict(zip(NAMES, map(np.asarray, gradients(*given)), strict=True))

    return {"jax scan": call}


FRAMEWORKS = {"torch": torch_calls, "jax": jax_calls}
