"""The networks of adding_task: six cells, and variants of each in one respect."""

from __future__ import annotations

from typing import Any

N = 16
SETTINGS: dict[str, dict[str, Any]] = {
    "vanilla": {"rate": 1e-2},
    "orthogonal": {"rate": 1e-2, "input_scale": 0.3},
    "identity": {"rate": 3e-3, "input_scale": 0.3},
    "diagonal": {"rate": 1e-2, "input_scale": 0.3, "low": 0.9},
    "lstm": {"rate": 1e-2, "bias": 1.0},
    "gru": {"rate": 1e-2},
}
"""Rates: the best of two or three each, in a pilot at lengths 10 to 50."""
QUICK_VARIANTS = 4


def configuration(kind: str, change: str = "", **changes: Any) -> dict[str, Any]:
    """One point of the grid: the settings of its kind, but for what is changed."""
    plain = {"n": N, "scale": 1.0, "input_scale": 1.0, "low": 0.0, "bias": 0.0}
    name = f"{kind}, {change}" if change else kind
    return {"name": name, "kind": kind, **plain, **SETTINGS[kind], **changes}


CELLS = [configuration(kind) for kind in SETTINGS]
VARIANTS = [
    *(configuration("vanilla", f"W x {s:g}", scale=s) for s in (0.5, 1.5, 2.0, 3.0)),
    *(configuration("orthogonal", f"W x {s:g}", scale=s) for s in (0.5, 0.8, 0.9, 1.1, 1.5)),
    *(configuration("identity", f"W x {s:g}", scale=s) for s in (0.5, 0.8, 0.9, 1.05)),
    *(configuration("diagonal", f"from {low:g}", low=low) for low in (0.0, 1.0)),
    *(configuration("lstm", f"forget bias {b:g}", bias=b) for b in (-1.0, 3.0)),
    *(configuration("gru", f"update bias {b:g}", bias=b) for b in (-2.0, 2.0)),
    configuration("vanilla", "n = 32", n=32),
    configuration("orthogonal", "n = 32", n=32),
    configuration("gru", "n = 8", n=8),
    configuration("orthogonal", "rate 0.003", rate=3e-3),
    configuration("identity", "rate 0.01", rate=1e-2),
]
