"""Write torch_gradients.npz: outputs and gradients of PyTorch's own cells (needs torch 2.13, CPU).

python tests/oracles/make_torch_gradients.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

STEPS, BATCHES, N, D_X = (1, 2, 3, 8), (1, 3), 5, 3
CELLS = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


def case(kind: str, dtype: torch.dtype, B: int, T: int, layers: int, both: bool) -> dict:
    """One network on random input: arrays, input, loss gradient, output, all gradients."""
    net = CELLS[kind](D_X, N, layers, batch_first=True, bidirectional=both, dtype=dtype)
    x = torch.randn(B, T, D_X, dtype=dtype, requires_grad=True)
    ways = 2 if both else 1
    starts = [torch.randn(layers * ways, B, N, dtype=dtype, requires_grad=True)]
    if kind == "lstm":
        starts.append(torch.randn(layers * ways, B, N, dtype=dtype, requires_grad=True))
    out, _ = net(x, tuple(starts) if kind == "lstm" else starts[0])
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    arrays = {"x": x, "grad_h": weight, "h": out, "d_x": x.grad}
    for name, start in zip(("h0", "c0"), starts, strict=False):
        arrays |= {name: start, f"d_{name}": start.grad}
    for name, parameter in net.named_parameters():
        arrays |= {name: parameter, f"d_{name}": parameter.grad}
    return {name: a.detach().numpy() for name, a in arrays.items()}


def main() -> None:
    """All cases under KIND_DTYPE_BxT, and a stack and two directions of each kind."""
    torch.manual_seed(20261130)
    arrays = {}
    for kind in CELLS:
        for dtype in (torch.float64, torch.float32):
            label = str(dtype).removeprefix("torch.")
            runs = {f"{B}x{T}": (B, T, 1, False) for B in BATCHES for T in STEPS}
            if dtype == torch.float64:
                runs |= {"stack": (2, 6, 3, False), "both": (2, 6, 1, True)}
            for name, settings in runs.items():
                found = case(kind, dtype, *settings)
                arrays |= {f"{kind}_{label}_{name}/{k}": v for k, v in found.items()}
    np.savez_compressed(Path(__file__).with_name("torch_gradients.npz"), **arrays)


if __name__ == "__main__":
    main()
