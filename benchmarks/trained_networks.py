"""How long does it take to load a published network and analyse it along its input?

Norms of the last k step Jacobians at the lags 1, 2, 5, 10, ..., the horizon at single precision and
the three leading exponents, for the 9 words of g2p_en's encoder and the 106 characters of the first
layer of textgenrnn. Aim: at most 5 s each, once everything is compiled. Printed are seconds by the
clock, and of the processor, which other work on the machine does not lengthen.

python benchmarks/trained_networks.py
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

import gradprop as gp

FOLDER = Path(__file__).resolve().parents[1] / "studies" / "data" / "weights"
LAGS = (1, 2, 5, 10, 20, 50, 100)
WORDS = (
    *("gradient", "vanishing", "exploding", "recurrent", "jacobian", "lyapunov", "a"),
    *("antidisestablishmentarianism", "pneumonoultramicroscopicsilicovolcanoconiosis"),
)


def words() -> tuple[gp.GRU, list[np.ndarray]]:
    """Encoder of g2p_en and its inputs."""
    path = FOLDER / "g2p_en_encoder_gru256.npz"
    with np.load(path) as stored:
        rows = stored["emb"]
    ids = [[3 + ord(letter) - ord("a") for letter in word] + [2] for word in WORDS]
    return gp.load_cell(path, convention="torch"), [rows[i] for i in ids]


def characters() -> tuple[gp.LSTM, list[np.ndarray]]:
    """First layer of textgenrnn and its input."""
    path = FOLDER / "textgenrnn_lstm128_layer1.npz"
    with np.load(path) as stored:
        place = {int(i): k for k, i in enumerate(stored["ids_used"])}
        x = stored["emb_used"][[place[int(i)] for i in stored["ids"]]]
    return gp.load_cell(path), [x]


def analyse(load: object) -> None:
    """Load, and measure along every input."""
    cell, inputs = load()  # type: ignore[operator]
    for x in inputs:
        chain = gp.linearise(cell, x)
        lags = [lag for lag in LAGS if lag < chain.n_steps]
        gp.log_norms(chain, lags=[*lags, chain.n_steps], anchor="end")
        gp.horizon(chain, cotangent=np.ones(chain.n))
        gp.lyapunov_spectrum(chain, 3)


def main() -> None:
    taken = {}
    for name, load in (("g2p_en, 9 words", words), ("textgenrnn, 106 characters", characters)):
        analyse(load)
        start, busy = time.perf_counter(), time.process_time()
        analyse(load)
        seconds = time.perf_counter() - start, time.process_time() - busy
        taken[name] = [round(value, 2) for value in seconds]
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
