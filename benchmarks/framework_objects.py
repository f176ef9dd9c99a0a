"""from_torch, from_jax, from_torch_step and .pt files against PyTorch and JAX themselves.

Needs torch and jax, which the tests do without. Prints the largest difference of outputs or step
Jacobians, in float64; aim 1e-12.

python benchmarks/framework_objects.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch

import gradprop as gp

jax.config.update("jax_enable_x64", True)
N, D, STEPS = 5, 3, 20


def outputs(cell: gp.LSTM, x: np.ndarray) -> np.ndarray:
    h = gp.rollout(cell, x).h
    return h if isinstance(cell, gp.Bidirectional) else h[1:]


def modules(x: torch.Tensor, folder: Path) -> None:
    """Every module in memory and as a state dict on disk."""
    for kind in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM):
        for layers, both, bias in ((1, False, True), (1, True, False), (3, False, True)):
            module = kind(D, N, layers, bidirectional=both, bias=bias, dtype=torch.float64)
            wanted = module(x)[0].detach().numpy()
            live = outputs(gp.from_torch(module, layer=None), x.numpy())
            torch.save(module.state_dict(), folder / "module.pt")
            stored = outputs(gp.load_cell(folder / "module.pt"), x.numpy())
            worst = max(np.abs(live - wanted).max(), np.abs(stored - wanted).max())
            print(f"{kind.__name__} of {layers} layer(s), {1 + both} direction(s): {worst:.1e}")


def steps(x: torch.Tensor) -> None:
    """Jacobians of step functions."""
    cell = torch.nn.LSTMCell(D, N, dtype=torch.float64)
    wanted = gp.linearise(gp.from_torch(cell), x.numpy()).to_dense()
    start = (torch.zeros(N, dtype=torch.float64),) * 2
    chain = gp.from_torch_step(lambda state, x_t: cell(x_t, state), start, x)
    print(f"from_torch_step: {np.abs(chain.to_dense() - wanted).max():.1e}")
    W_ih, W_hh = (jnp.asarray(p.detach().numpy()) for p in (cell.weight_ih, cell.weight_hh))
    bias = jnp.asarray((cell.bias_ih + cell.bias_hh).detach().numpy())

    def step(state: tuple, x_t: jnp.ndarray) -> tuple:
        i, f, g, o = jnp.split(W_ih @ x_t + W_hh @ state[0] + bias, 4)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    chain = gp.from_jax(step, (jnp.zeros(N), jnp.zeros(N)), jnp.asarray(x.numpy()))
    print(f"from_jax: {np.abs(chain.to_dense() - wanted).max():.1e}")


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(STEPS, D, dtype=torch.float64)
    with tempfile.TemporaryDirectory() as folder:
        modules(x, Path(folder))
    steps(x)


if __name__ == "__main__":
    main()
