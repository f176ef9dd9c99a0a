"""Figure of decay_vs_rho, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradprop.pooling import annealed_log_norm
from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
FAN_RHO = (0.5, 1.0, 1.5)
INPUT_VARIANCE = 0.25
FLOORS = (
    (np.log(2.0**-23), "float32 eps"),
    (np.log(2.0**-126), "smallest normal"),
    (np.log(2.0**-149), "smallest subnormal"),
)
COLOURS = {
    "gaussian": "#0072B2",
    "orthogonal": "#E69F00",
    "sparse": "#009E73",
    "nonnormal": "#CC79A7",
    "diagonal": "#D55E00",
    "trained": "#0072B2",
}
MARKERS = dict(zip(COLOURS, "osD^vP", strict=True))
BOUND_LABELS = {
    "spectral_norm": "spectral norm",
    "step_norms": "step norms",
    "blocked": "blocks of 20",
    "perron": "Perron",
}
BOUND_COLOURS = dict(zip(BOUND_LABELS, ("0.0", "0.3", "0.5", "0.7"), strict=True))
BOUND_MARKERS = dict(zip(BOUND_LABELS, ("s", "o", "D", "^"), strict=True))


def lag_count(decay: SweepResult) -> int:
    """Largest lag of the stored curves."""
    return int(decay["n_lags"][0])


def lags_of(curves: Array, n_lags: int) -> Array:
    """Lags of stored curves (..., L)."""
    return np.linspace(0, n_lags, curves.shape[-1])


def smallest_margin(points: SweepResult) -> float:
    """Smallest (bound - truth)/(1 + lag) over all bounds, networks and lags."""
    return float(min(points[f"margin_{name}"].min() for name in BOUND_LABELS))


def horizon_quantiles(points: SweepResult, name: str) -> Array:
    """5 %, 50 % and 95 % of the horizon in steps, values that occur; inf: not within the lags."""
    steps = np.where(points[name] > 0, points[name].astype(float), np.inf)
    return np.asarray(np.quantile(steps, (0.05, 0.5, 0.95), method="inverted_cdf"))


def population_summary(population: SweepResult) -> tuple[float, float]:
    """Annealed minus typical value at the last lag, and the top percent's share of E|g|^2."""
    logs = population["log_gradient"].reshape(-1, population["log_gradient"].shape[-1])
    return float(annealed_log_norm(logs)[-1] - logs[:, -1].mean()), float(top_share(logs)[-1])


def top_share(logs: Array) -> Array:
    """Share of sum exp(2 log) that the largest 1 % of rows carry, per column."""
    weights = np.sort(np.exp(2 * (logs - logs.max(axis=0))), axis=0)
    top = max(1, len(logs) // 100)
    return np.asarray(weights[-top:].sum(axis=0) / weights.sum(axis=0))


def draw(data: Data, width: float) -> Figure:
    """Draw five panels: decay, exponents, looseness, typical against mean, horizons."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.3 * width))
    rows = figure.add_gridspec(3, 1, height_ratios=(1.0, 1.15, 1.0))
    fans: Any = rows[0].subgridspec(1, 3).subplots(sharey=True)
    middle: Any = rows[1].subgridspec(1, 2, width_ratios=(1.6, 1.0)).subplots()
    low: Any = rows[2].subgridspec(1, 2).subplots()
    decay, population = data["decay"], data["population"]
    names = list(dict.fromkeys(decay["initialisation"].tolist()))
    for axes, rho in zip(fans, FAN_RHO, strict=True):
        _fan(axes, decay.select(initialisation=names[0], dtype="float64", rho=rho), rho)
    fans[0].set_ylabel(r"$\ln\,\|P_\ell\|_2$ [nats]")
    fans[0].set_title(f"(a) {names[0]}, " + fans[0].get_title("left"))
    fans[0].legend(loc="upper left", fontsize=5.5)
    _exponents(middle[0], decay, names)
    _looseness(middle[1], decay, names)
    _population(low[0], population)
    _horizons(low[1], decay, names[0])
    return figure


def _fan(axes: Axes, points: SweepResult, rho: float) -> None:
    n_lags = lag_count(points)
    lags = lags_of(points["log_norm"], n_lags)
    low, middle, high = np.quantile(points["log_norm"], (0.05, 0.5, 0.95), axis=0)
    axes.fill_between(lags, low, high, color="0.75", lw=0, label=f"5–95 % of {len(points)} seeds")
    axes.plot(lags, middle, "k-", label="median")
    for name, style in (("spectral_norm", "--"), ("step_norms", "-.")):
        curves = lags * points["log_W_norm"][:, None] if name == "spectral_norm" else points[name]
        curve = np.median(curves, axis=0)
        axes.plot(lags, curve, style, color="#0072B2", label=f"bound: {BOUND_LABELS[name]}")
    axes.plot(lags, lags * np.log(rho), ":", color="#D55E00", label=r"$\ell\,\ln\rho$ (no bound)")
    for level, text in FLOORS:
        axes.axhline(level, color="0.5", lw=0.5, ls="-")
        if rho == FAN_RHO[-1]:
            above = "bottom" if text == "smallest normal" else "top"
            axes.text(3, level, text, fontsize=5, ha="left", va=above, color="0.35")
    axes.set_title(rf"$\rho = {rho}$")
    axes.set_xlabel(r"lag $\ell$ [steps]")
    axes.set_xlim(0, n_lags)


def _exponents(axes: Axes, decay: SweepResult, names: list[str]) -> None:
    rho = np.unique(decay["rho"])
    for shift, name in enumerate(names):
        points = [decay.select(initialisation=name, dtype="float64", rho=r) for r in rho]
        low, middle, high = np.array(
            [np.quantile(p["lambda1"], (0.05, 0.5, 0.95)) for p in points]
        ).T
        half = [np.median(p["lambda1_high"] - p["lambda1_low"]) / 2 for p in points]
        x = rho + 0.004 * (shift - (len(names) - 1) / 2)
        colour = COLOURS[name]
        axes.fill_between(rho, low, high, color=colour, alpha=0.18, lw=0)
        axes.errorbar(
            x, middle, half, color=colour, marker=MARKERS[name], ms=2.2, lw=0.8, ls="-",
            elinewidth=0.6, label=name,
        )  # fmt: skip
        norm = [np.median(p["log_W_norm"]) for p in points]
        axes.plot(rho, norm, color=colour, lw=0.6, ls="--")
    axes.plot([], [], color="0.4", lw=0.6, ls="--", label=r"$\ln\gamma\|W\|_2$ (bound)")
    axes.plot(rho, np.log(rho), color="k", ls=":", lw=1.0, label=r"$\ln\rho$")
    if "gaussian" in names:
        from gradprop.theory import mean_field

        grid = np.linspace(rho[0], rho[-1], 41)
        rate = [float(mean_field("tanh", g, np.sqrt(INPUT_VARIANCE)).rate) for g in grid]
        axes.plot(
            grid, rate, color="k", lw=0.9, ls=(0, (5, 1)), zorder=5, label="mean field (iid W)"
        )
    axes.axhline(0, color="0.6", lw=0.5)
    axes.set_title(r"(b) leading exponent, float64 orbit")
    axes.set_xlabel(r"spectral radius $\rho$ of $W_{hh}$")
    axes.set_ylabel(r"$\lambda_1$ [nats per step]")
    axes.legend(ncols=2, fontsize=5.5, loc="upper left").set_in_layout(False)
    axes.set_ylim(top=axes.get_ylim()[1] + 0.9)


def _looseness(axes: Axes, decay: SweepResult, names: list[str]) -> None:
    for column, name in enumerate(names):
        points = decay.select(initialisation=name, dtype="float64", rho=1.0)
        for k, (bound, label) in enumerate(BOUND_LABELS.items()):
            low, middle, high = np.quantile(points[f"loose_{bound}"], (0.05, 0.5, 0.95))
            axes.errorbar(
                column + 0.16 * (k - 1.5), middle, [[middle - low], [high - middle]],
                marker=BOUND_MARKERS[bound], ms=3, ls="", color=BOUND_COLOURS[bound],
                elinewidth=0.7, label=label if column == 0 else None,
            )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel(f"(bound − truth)/{lag_count(decay)} [nats per step]")
    axes.set_title(r"(c) looseness, $\rho = 1$")
    axes.set_ylim(top=axes.get_ylim()[1] * 4)
    axes.legend(ncols=2, fontsize=5.5, loc="upper left", columnspacing=0.8).set_in_layout(False)


def _population(axes: Axes, population: SweepResult) -> None:
    logs = population["log_gradient"].reshape(-1, population["log_gradient"].shape[-1])
    sigma = population["log_sigma1"].reshape(logs.shape)
    n_lags = int(population["n_lags"][0])
    lags = lags_of(logs, n_lags)
    axes.plot(
        lags,
        np.median(sigma, axis=0),
        "-.",
        color="#E69F00",
        label=r"worst direction: median $\ln\sigma_1$",
    )
    axes.plot(
        lags,
        annealed_log_norm(logs),
        "--",
        color="#D55E00",
        label=r"mean: $\frac{1}{2}\ln\,E\,\|g\|^2$",
    )
    axes.plot(lags, logs.mean(axis=0), "-", color="#0072B2", label=r"typical: $E\,\ln\|g\|$")
    axes.set_xlabel(r"lag $\ell$ [steps]")
    axes.set_ylabel("growth [nats]")
    gain = float(population["gain"][0])
    axes.set_title(f"(d) {len(logs)} random nets, gain {gain:g}")
    axes.legend(fontsize=5.5, loc="lower left").set_in_layout(False)
    share = axes.twinx()
    share.plot(lags, top_share(logs), ":", color="0.35", lw=1.0)
    share.set_ylim(0, 1.02)
    share.spines.right.set_visible(True)
    share.set_ylabel("share of top 1 % (dotted)", fontsize=6.5, color="0.35")


def _horizons(axes: Axes, decay: SweepResult, name: str) -> None:
    rho = np.unique(decay["rho"])
    n_lags = lag_count(decay)
    ceiling = 1.12 * n_lags
    for field, tol, text, colour, marker in (
        ("horizon_eps", 2.0**-23, r"$2^{-23}$", "#0072B2", "o"),
        ("horizon_samples", 1e-2, r"$N^{-1/2}$, $N = 10^4$", "#D55E00", "s"),
    ):
        points = [decay.select(initialisation=name, dtype="float32", rho=r) for r in rho]
        low, middle, high = np.array([horizon_quantiles(p, field) for p in points]).T
        seen = np.isfinite(middle)
        spread = np.array(
            [middle[seen] - low[seen], np.minimum(high, ceiling)[seen] - middle[seen]]
        )
        axes.errorbar(
            rho[seen], middle[seen], spread, color=colour, marker=marker,
            ms=2.5, ls="", elinewidth=0.6, label=f"float32 orbit, tol {text}",
        )  # fmt: skip
        # an empty artist outside the clip would upset the layout
        if not seen.all():
            beyond = np.full((~seen).sum(), ceiling)
            axes.plot(rho[~seen], beyond, "^", color=colour, ms=3, clip_on=False)
        rate = np.array([np.median(p["lambda1"]) for p in points])
        with np.errstate(divide="ignore"):
            forecast = np.where(rate < 0, np.log(tol) / rate, np.inf)
        axes.plot(rho, np.where(forecast <= n_lags, forecast, np.nan), "--", color=colour, lw=0.9)
    axes.plot([], [], "--", color="0.4", lw=0.9, label=r"forecast $\ln(\mathrm{tol})/\lambda_1$")
    axes.plot([], [], "^", color="0.4", ms=3, label=f"not within {n_lags} lags")
    axes.set_ylim(0, 1.2 * n_lags)
    axes.set_xlabel(r"spectral radius $\rho$")
    axes.set_ylabel("horizon [steps]")
    axes.set_title(r"(e) horizon of $\|P_\ell\|_2$")
    axes.legend(fontsize=5.5, loc="upper left").set_in_layout(False)
