"""Measuring and drawing of bound_tightness."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import gradprop as gp
from gradprop.study import Data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "oracles" / "bounds_cases.npz"
TRAINED = ROOT / "studies" / "data" / "weights" / "flipflop_rnn8.npz"
BOUNDS = {
    "spectral_norm": ("spectral norm", "s", "#0072B2"),
    "perron": ("Perron", "^", "#56B4E9"),
    "scaled_norm": ("scaled norm", "D", "#009E73"),
    "step_norms": ("step norms", "s", "#D55E00"),
    "scaled_steps": ("scaled steps", "D", "#E69F00"),
    "blocked_2": ("blocks of 2", "o", "0.75"),
    "blocked_5": ("blocks of 5", "o", "0.55"),
    "blocked": ("blocks of 20", "o", "0.35"),
    "blocked_adaptive": ("best cut", "*", "#CC79A7"),
    "lower": ("lower bound", "|", "0.2"),
}
CURVES = (("triangular", "linear"), ("gaussian_g0.9", "tanh"))


@functools.lru_cache(maxsize=32)
def chain_of(case: str, kind: str) -> gp.JacobianChain:
    """Stored W with stored phi', or phi' = 1; the trained net along its own input."""
    if case == "trained flip-flop":
        with np.load(TRAINED, allow_pickle=False) as net:
            arrays = {name: net[name].astype(np.float64) for name in net.files}
        bias = arrays["b_ih"] + arrays["b_hh"]
        activation = "tanh" if kind == "tanh" else "linear"
        cell = gp.RNN(arrays["W_hh"], arrays["W_ih"], bias, activation=activation)
        return gp.linearise(cell, arrays["U"][:200])
    with np.load(CASES, allow_pickle=False) as stored:
        W, dphi = stored[f"W_{case}"], stored[f"dphi_{case}"]
    return gp.JacobianChain.row_scaled(W, dphi if kind == "tanh" else np.ones_like(dphi))


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Truth and all bounds of one case, in nats, at every fifth lag."""
    chain = chain_of(point["case"], point["map"])
    lags = np.arange(0, point["n_lags"] + 1, 5)
    gamma = None if point["case"] == "trained flip-flop" else 1.0
    norms, bounds = gp.measure(chain, gp.Norms(lags=lags), gp.Bounds(lags=lags, gamma=gamma))
    values: dict[str, Any] = {"truth": norms.log_norm}
    for name in BOUNDS:
        values[name] = getattr(bounds, name)
    upper = [values[name] for name in BOUNDS if name != "lower"]
    values["margin"] = float(np.min((np.array(upper) - norms.log_norm) / (1 + lags)))
    values["log_rho"] = float(np.log(gp.spectral_radius(chain.recurrence.W[0])))  # type: ignore[union-attr]
    values["tightest_certificate"] = str(bounds.tightest_certificate)
    values["tightest_trajectory"] = str(bounds.tightest_trajectory)
    return values


def draw(data: Data, width: float) -> Figure:
    """Rates at the last lag, one row a case; beside them two cases by lag."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.12 * width))
    rows = figure.add_gridspec(2, 1, height_ratios=(1.75, 1.0))
    _rates(figure.add_subplot(rows[0]), data)
    curves: Any = rows[1].subgridspec(1, 2).subplots()
    for axes, (case, kind), letter in zip(curves, CURVES, "bc", strict=True):
        _curves(axes, data, case, kind, letter)
    return figure


def _rates(axes: Axes, data: Data) -> None:
    points = data["tightness"]
    lag = 5 * (points["truth"].shape[-1] - 1)
    rows = np.arange(len(points))
    for row in rows:
        axes.axhline(float(row), color="0.92", lw=4, zorder=0)
    for name, (label, marker, colour) in BOUNDS.items():
        rate = points[name][:, -1] / lag
        axes.plot(rate, rows, marker, color=colour, ms=4, label=label)
    axes.plot(points["truth"][:, -1] / lag, rows, "k|", ms=9, mew=1.6, label="truth")
    axes.plot(points["log_rho"], rows, "x", color="k", ms=4, label=r"$\ln\rho(W)$ (no bound)")
    names = [
        f"{c.replace('_', ' ')}, {m}" for c, m in zip(points["case"], points["map"], strict=True)
    ]
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.set_xlabel(f"ln bound / {lag} [nats per step]")
    axes.set_title(f"(a) every bound and the truth at lag {lag}")
    legend = axes.legend(ncols=1, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)
    legend.set_in_layout(True)


def _curves(axes: Axes, data: Data, case: str, kind: str, letter: str) -> None:
    points = data["tightness"].select(case=case, map=kind)
    lags = 5 * np.arange(points["truth"].shape[-1])
    for name, (_, _, colour) in BOUNDS.items():
        style: dict[str, Any] = {"color": colour, "lw": 0.9, "ls": ":" if name == "lower" else "-"}
        axes.plot(lags, points[name][0], **style)
    axes.plot(lags, points["truth"][0], "k-", lw=1.4)
    low, high = points["truth"][0].min(), points["scaled_norm"][0].max()
    axes.set_ylim(low - 0.1 * (high - low), high + 0.35 * (high - low))
    axes.set_xlabel(r"lag $\ell$ [steps]")
    axes.set_ylabel(r"ln $\|P_\ell\|_2$ [nats]")
    axes.set_title(f"({letter}) {case.replace('_', ' ')}, {kind}")
