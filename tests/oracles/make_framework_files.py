"""Write the files of tests/oracles/frameworks with the frameworks themselves, and their outputs.

Run once, where Keras (with a backend), PyTorch, onnx and safetensors are installed:
``python tests/oracles/make_framework_files.py``. The tests need none but the readers.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "frameworks"
STEPS, WIDTH = 5, 2


def keras_files(x: np.ndarray, outputs: dict[str, np.ndarray]) -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((STEPS, WIDTH)),
            layers.LSTM(3, return_sequences=True),
            layers.Bidirectional(layers.GRU(2, return_sequences=True, reset_after=False)),
            layers.Dense(3),
            layers.SimpleRNN(4, return_sequences=True, activation="relu"),
            layers.GRU(3, return_sequences=True, name="last"),
        ]
    )
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape))
    below = x[None]
    for layer in model.layers:
        outputs[f"keras/{layer.name}/x"] = np.asarray(below)[0]
        below = layer(below)
        outputs[f"keras/{layer.name}/h"] = np.asarray(below)[0]
    model.save(FOLDER / "model.keras")
    model.save_weights(FOLDER / "model.weights.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older format, which is wanted here
        model.save(FOLDER / "model.h5")


def torch_files(x: np.ndarray, outputs: dict[str, np.ndarray]) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    modules = {
        "lstm": torch.nn.LSTM(WIDTH, 3, 2),
        "gru": torch.nn.GRU(WIDTH, 3, bidirectional=True),
        "rnn": torch.nn.RNN(WIDTH, 3, nonlinearity="relu"),
    }
    for name, module in modules.items():
        h = module(torch.from_numpy(x))[0].detach().numpy()
        outputs[f"torch/{name}/h"] = h
        wrapped = torch.nn.ModuleDict({"net": module, "head": torch.nn.Linear(3, 1)})
        save_file(wrapped.state_dict(), FOLDER / f"{name}.safetensors")
        inputs = (torch.from_numpy(x[:, None]),)
        torch.onnx.export(module, inputs, FOLDER / f"{name}.onnx", dynamo=False, verbose=False)
    half = {name: value.bfloat16() for name, value in modules["lstm"].state_dict().items()}
    save_file(half, FOLDER / "lstm_bfloat16.safetensors")
    torch.save(modules["lstm"].state_dict(), FOLDER / "lstm.pt")
    torch.save(modules["rnn"], FOLDER / "module.pt")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    x = np.random.default_rng(0).normal(size=(STEPS, WIDTH)).astype(np.float32)
    outputs = {"x": x}
    keras_files(x, outputs)
    torch_files(x, outputs)
    np.savez(FOLDER / "outputs.npz", **outputs)


if __name__ == "__main__":
    main()
