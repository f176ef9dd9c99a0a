"""How each result is drawn on an axes; `figures.plot` picks the function by the result's type."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop.bounds import NormBounds
from gradprop.horizon import Horizon
from gradprop.lyapunov.local import LocalExponents
from gradprop.lyapunov.ranks import EffectiveRank
from gradprop.lyapunov.spectrum import LyapunovSpectrum
from gradprop.moments import GrowthMoments
from gradprop.norms import LogNorms
from gradprop.pooling import Pooled
from gradprop.precision.lags import PrecisionEvents
from gradprop.pullback import VectorNorms
from gradprop.random_spectrum import RandomNetworkSpectrum
from gradprop.rollout import Trajectory
from gradprop.singular import SingularValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[Any]


def draw_curve(ax: Axes, x: ArrayLike, log_values: ArrayLike, **style: Any) -> None:
    """Draw ln values against x; -inf as triangles on the lower edge, inf on the upper one.

    Nothing is dropped silently: exact zeros are labelled "below floor", infinities "above range",
    and where nothing can be drawn the axes say so.
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(log_values, dtype=float))
    finite = np.isfinite(y)
    line = ax.plot(np.where(finite, x, np.nan), np.where(finite, y, np.nan), **style)[0]
    edge = ax.get_xaxis_transform()
    for mask, at, marker, label in (
        (np.isneginf(y), 0.02, "v", "below floor"),
        (np.isposinf(y), 0.98, "^", "above range"),
    ):
        if mask.any():
            known = label in ax.get_legend_handles_labels()[1]
            ax.plot(
                x[mask], np.full(mask.sum(), at), marker, color=line.get_color(), ms=3,
                transform=edge, label=None if known else label,
            )  # fmt: skip
    if not finite.any():
        ax.text(0.5, 0.5, "no finite value", transform=ax.transAxes, ha="center", va="center")


def _rows(values: Array, roles: tuple[str, ...]) -> Array:
    """Replica axes flattened: (R, ...)."""
    return values.reshape(-1, *values.shape[len(roles) :])


def draw_band(ax: Axes, x: Array, rows: Array, label: str) -> None:
    """One curve, or the median and the 5-95 % band of several."""
    if len(rows) == 1:
        draw_curve(ax, x, rows[0], label=label)
        return
    low, middle, high = np.quantile(rows, (0.05, 0.5, 0.95), axis=0, method="nearest")
    draw_curve(ax, x, middle, label=f"{label}, median of {len(rows)}")
    band = np.isfinite(low) & np.isfinite(high)
    ax.fill_between(x, low, high, where=band, alpha=0.25, lw=0, label="5–95 %")


def _finish(ax: Axes, x: str, y: str) -> Axes:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


@functools.singledispatch
def draw(result: Any, ax: Axes) -> Axes:
    """Draw a result; TypeError lists what can be drawn."""
    known = ", ".join(sorted(t.__name__ for t in draw.registry if t is not object))
    raise TypeError(f"`result` must be one of {known}; got {type(result).__name__}.")


@draw.register(LogNorms)
def _draw_log_norms(result: LogNorms, ax: Axes) -> Axes:
    order = np.argsort(result.lags)
    rows = _rows(result.log_norm, result.roles)[:, order]
    norm = r"$\|P_\ell\|_F$" if result.ord == "fro" else r"$\|P_\ell\|_2$"
    draw_band(ax, result.lags[order], rows, norm)
    return _finish(ax, rf"lag $\ell$ from the {result.anchor} [steps]", f"ln {norm} [nats]")


@draw.register(VectorNorms)
def _draw_vector_norms(result: VectorNorms, ax: Axes) -> Axes:
    order = np.argsort(result.lags)
    rows = _rows(result.log_norm, result.roles)[:, order]
    draw_band(ax, result.lags[order], rows, r"$\|P_\ell^\top u\|$")
    return _finish(ax, r"lag $\ell$ back from the loss [steps]", r"ln $\|P_\ell^\top u\|_2$ [nats]")


@draw.register(NormBounds)
def _draw_norm_bounds(result: NormBounds, ax: Axes) -> Axes:
    order = np.argsort(result.lags)
    names = ("spectral_norm", "scaled_norm", "perron", "step_norms", "scaled_steps", "blocked")
    for name in (*names, "lower"):
        rows = _rows(getattr(result, name), result.roles)[:, order]
        if np.isfinite(rows).any():
            draw_curve(
                ax, result.lags[order], np.median(rows, axis=0), label=name.replace("_", " ")
            )
    return _finish(ax, r"lag $\ell$ [steps]", r"bound of ln $\|P_\ell\|_2$ [nats]")


@draw.register(SingularValues)
def _draw_singular_values(result: SingularValues, ax: Axes) -> Axes:
    values = _rows(result.log_sigma, result.roles)[0]
    i = np.arange(1, values.shape[-1] + 1)
    for lag, row in zip(result.lags, values, strict=True):
        draw_curve(ax, i, row, marker="o", label=rf"$\ell = {lag}$")
    if np.isnan(values).any():
        ax.set_title("gaps: not resolved")
    return _finish(ax, "index i", r"ln $\sigma_i$ [nats]")


@draw.register(LyapunovSpectrum)
def _draw_lyapunov_spectrum(result: LyapunovSpectrum, ax: Axes) -> Axes:
    values = _rows(result.exponents, result.roles)[0]
    half = np.nan_to_num(0.5 * np.diff(_rows(result.interval, result.roles)[0], axis=-1)[:, 0])
    i = np.arange(1, len(values) + 1)
    draw_curve(ax, i, values, marker="o", ls="-", label="exponents")
    finite = np.isfinite(values)
    ax.errorbar(
        i[finite],
        values[finite],
        half[finite],
        ls="",
        color=ax.lines[0].get_color(),
        elinewidth=0.8,
    )
    ax.axhline(0.0, color="0.6", lw=0.6, ls="-")
    return _finish(ax, "index i", r"$\lambda_i$ [nats per step]")


@draw.register(Horizon)
def _draw_horizon(result: Horizon, ax: Axes) -> Axes:
    steps = np.ravel(result.first_below)
    reached = np.sort(steps[steps > 0])
    share = np.arange(1, len(reached) + 1) / len(steps)
    ax.step([0, *reached], [0, *share], where="post", label=f"below {result.tol:.3g}")
    ax.set_ylim(0, 1.05)
    return _finish(ax, "lag [steps]", "share of replicas")


@draw.register(Pooled)
def _draw_pooled(result: Pooled, ax: Axes) -> Axes:
    k = np.arange(len(result.mean))
    draw_curve(ax, k, result.mean, marker="o", label="mean")
    ax.fill_between(k, *result.interval.T, alpha=0.25, lw=0, label="interval of the mean")
    if np.isfinite(result.annealed).any():
        draw_curve(ax, k, result.annealed, label="annealed")
    return _finish(ax, "column (lag or index)", "value [nats]")


@draw.register(Trajectory)
def _draw_trajectory(result: Trajectory, ax: Axes) -> Axes:
    first = _rows(result.state, result.roles)[0]
    ax.plot(np.arange(len(first)), first[:, :8], lw=0.8)
    return _finish(ax, "step", "first 8 units of the state")


@draw.register(GrowthMoments)
def _draw_growth_moments(result: GrowthMoments, ax: Axes) -> Axes:
    draw_curve(ax, result.lags, result.log_mean, label=f"q = {result.q:g}")
    return _finish(
        ax, r"lag $\ell$ back from the loss [steps]", r"$\frac{1}{q}$ ln E$\|g\|^q$ [nats]"
    )


@draw.register(EffectiveRank)
def _draw_effective_rank(result: EffectiveRank, ax: Axes) -> Axes:
    order = np.argsort(result.lags)
    for name in ("participation", "entropy"):
        rows = _rows(getattr(result, name), result.roles)[:, order]
        draw_curve(ax, result.lags[order], np.median(rows, axis=0), marker="o", label=name)
    return _finish(ax, r"lag $\ell$ [steps]", "effective rank")


@draw.register(LocalExponents)
def _draw_local_exponents(result: LocalExponents, ax: Axes) -> Axes:
    first = _rows(result.exponents, result.roles)[0]
    for i, values in enumerate(first.T[:4], start=1):
        finite = values[np.isfinite(values)]
        if len(finite):
            ax.hist(finite, bins="auto", density=True, histtype="step", label=f"i = {i}")
    return _finish(
        ax, f"exponent over {result.window} steps [nats per step]", "density [steps/nat]"
    )


@draw.register(RandomNetworkSpectrum)
def _draw_random_network_spectrum(result: RandomNetworkSpectrum, ax: Axes) -> Axes:
    draw_curve(ax, result.u, result.exponents, label=r"theory, $n\to\infty$")
    ax.axhline(0.0, color="0.6", lw=0.6, ls="-")
    return _finish(ax, "share u = i/n", r"$\lambda(u)$ [nats per step]")


@draw.register(PrecisionEvents)
def _draw_precision_events(result: PrecisionEvents, ax: Axes) -> Axes:
    """A row per event: dots of the stored product, diamonds of the exact one's limits."""
    stored = [name for name in result._axes if name.startswith("n_")]
    exact = {"n_subnormal_all": "n_subnormal", "n_subnormal_any": ""}
    for row, name in enumerate(stored):
        limit = f"exact_{exact.get(name, name)}"
        for field, marker, label in ((name, "o", result.fmt), (limit, "D", "exact")):
            lags = np.ravel(getattr(result, field, 0))
            lags = lags[lags > 0]
            style = {"mfc": "none", "ms": 7, "color": "C1"} if label == "exact" else {"color": "C0"}
            first = label if row == 0 else None
            ax.plot(lags, np.full(lags.size, row), marker, label=first, **style)
        if not np.any(getattr(result, name)):
            across = ax.get_yaxis_transform()
            ax.text(0.5, row, "not within the chain", ha="center", va="center", transform=across)
    ax.set_yticks(range(len(stored)), [name[2:].replace("_", " ") for name in stored])
    ax.set_ylim(len(stored) - 0.4, -0.6)
    return _finish(ax, r"first lag $\ell$ [steps]", "event")
