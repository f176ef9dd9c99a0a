"""Figure of spectrum_vs_theory, from its stored data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradprop.study import Data
from gradprop.sweep import SweepResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MARKERS = "osD^"


def inner(values: Array) -> Array:
    """Entries of binned values (..., bins) between 5 and 95 % of the spectrum."""
    u = bins(values.shape[-1])
    return np.asarray(values[..., (u > 0.05) & (u < 0.95)])


def bins(number: int) -> Array:
    """Shares u in the middle of as many bins."""
    return np.asarray((np.arange(number) + 0.5) / number)


def rms_gap(points: SweepResult) -> float:
    """Root mean square over u of the gap to theory, averaged over networks."""
    return float(np.sqrt(np.mean(inner(points["gap"].mean(axis=0)) ** 2)))


def largest_gap(points: SweepResult) -> float:
    """Largest gap in size between 5 and 95 %, averaged over networks."""
    return float(np.abs(inner(points["gap"].mean(axis=0))).max())


def draw(data: Data, width: float) -> Figure:
    """Draw spectra, their gaps to theory, local exponents and finite lags."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.2 * width))
    rows = figure.add_gridspec(3, 1)
    a = rows[0].subgridspec(1, 4, wspace=0.05).subplots(squeeze=False)[0]
    b, c = rows[1].subgridspec(1, 2).subplots(squeeze=False)[0]
    d, e, f = rows[2].subgridspec(1, 3).subplots(squeeze=False)[0]
    for axes, case in zip(a, _cases(data["theory"]), strict=True):
        _spectrum(axes, data, case)
    a[0].set_title("(a) " + a[0].get_title("left"))
    a[0].set_ylabel(r"$\lambda$ [nats per step]")
    _gaps(b, data)
    _sizes(c, data)
    _local(d, data["local"])
    _windows(e, data["local"])
    _lags(f, data["lags"])
    return figure


def _cases(theory: SweepResult) -> list[dict[str, float]]:
    return [
        {"gain": float(g), "noise": float(s)}
        for g, s in zip(theory["gain"], theory["noise"], strict=True)
    ]


def _name(case: dict[str, float]) -> str:
    noise = f", $s^2={case['noise']:g}$" if case["noise"] else ""
    return f"$g={case['gain']:g}${noise}"


def _spectrum(axes: Axes, data: Data, case: dict[str, float]) -> None:
    theory = data["theory"].select(**case)
    spectrum = data["spectrum"].select(**case)
    sizes = np.unique(spectrum["n"])
    for k in (0, len(sizes) - 1):
        n = sizes[k]
        curve = spectrum.select(n=n)["curve"].mean(axis=0)
        axes.plot(
            bins(len(curve)), curve, MARKERS[k], color=COLOURS[k], ms=2.2, mew=0, label=f"n = {n}"
        )
    axes.plot(theory["u"][0], theory["curve"][0], "k-", lw=0.7, label="theory")
    axes.axhline(0.0, color="0.7", lw=0.5, ls="-", zorder=0)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    axes.set_xlabel("share $u=i/n$")
    axes.set_title(_name(case), fontsize=7)
    if case["gain"] == 1.5:
        axes.legend(fontsize=5.5, loc="lower left", handlelength=1.2).set_in_layout(False)


def _gaps(axes: Axes, data: Data) -> None:
    """Gap at every share, one case."""
    case = _cases(data["theory"])[2]
    spectrum = data["spectrum"].select(**case)
    for k, n in enumerate(np.unique(spectrum["n"])):
        gap = spectrum.select(n=n)["gap"]
        error = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
        axes.errorbar(
            inner(bins(gap.shape[-1])), inner(gap.mean(axis=0)), inner(error), color=COLOURS[k],
            marker=MARKERS[k], ms=2.2, lw=0.7, ls="-", elinewidth=0.5, label=f"n = {n}",
        )  # fmt: skip
    axes.axhline(0.0, color="0.7", lw=0.5, ls="-", zorder=0)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share $u=i/n$")
    axes.set_ylabel("measured − theory\n[nats per step]")
    axes.set_title(f"(b) gap, {_name(case)}, 5–95 %")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.3 * (high - low), high)
    axes.legend(fontsize=5.5, ncols=2, loc="lower left").set_in_layout(False)


def _sizes(axes: Axes, data: Data) -> None:
    """Error against n, of the whole spectrum and of the leading exponent."""
    spectrum = data["spectrum"]
    sizes = np.unique(spectrum["n"])
    for k, case in enumerate(_cases(data["theory"])):
        points = [spectrum.select(**case, n=n) for n in sizes]
        exact = data["theory"].select(**case)["lambda_1"][0]
        gap = [abs(exact - p["lambda_1"].mean()) for p in points]
        axes.plot(
            sizes, [rms_gap(p) for p in points], "-", marker=MARKERS[k], color=COLOURS[k], lw=0.9,
            ms=3, label=_name(case),
        )  # fmt: skip
        axes.plot(sizes, gap, ":", marker=MARKERS[k], color=COLOURS[k], mfc="none", lw=0.9, ms=3)
    axes.plot(sizes, 1 / sizes, "-", color="0.5", lw=0.5, label="1/n")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("units n")
    axes.set_ylabel("[nats per step]")
    axes.set_title(r"(c) rms gap; dotted: gap of $\lambda_1$")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 6, high)
    axes.legend(fontsize=5.5, ncols=2, loc="lower left").set_in_layout(False)


def _local(axes: Axes, local: SweepResult) -> None:
    """Histogram of one step's growth and the exact density, per direction."""
    middle = local["middle"][0]
    for i, (found, exact) in enumerate(
        zip(local["density"].mean(axis=0), local["exact_density"][0], strict=True)
    ):
        axes.plot(middle, found, MARKERS[i], color=COLOURS[i], ms=1.8, mew=0, label=f"i = {i + 1}")
        axes.plot(middle, exact, "k-", lw=0.6)
    axes.set_xlabel(r"$\ln r_{ii}$ of a step [nats]")
    axes.set_ylabel("density [1/nat]")
    axes.set_title(f"(d) {int(local['n'][0])} × {int(local['n'][0])} Gaussian")
    axes.legend(fontsize=5.5, loc="upper left", handlelength=1).set_in_layout(False)


def _windows(axes: Axes, local: SweepResult) -> None:
    """Variance of window means times window: constant for independent steps."""
    widths = local["widths"][0]
    growth = local["variance_growth"]
    mean, error = growth.mean(axis=0), growth.std(axis=0, ddof=1) / np.sqrt(len(growth))
    for i, exact in enumerate(local["exact_variance"][0]):
        axes.errorbar(
            widths, mean[i], error[i], color=COLOURS[i], marker=MARKERS[i], ms=2, ls="",
            elinewidth=0.5,
        )  # fmt: skip
        axes.axhline(exact, color="k", lw=0.6, ls="-")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("window [steps]")
    axes.set_ylabel("window × variance")
    axes.set_title(r"(e) lines: $\psi_1/4$")


def _lags(axes: Axes, lags: SweepResult) -> None:
    """Largest singular value of critical products: n against lag."""
    for k, n in enumerate(np.unique(lags["n"])):
        for kind, face in (("fresh", COLOURS[k]), ("tied", "none")):
            points = lags.select(kind=kind, n=n)
            axes.plot(
                points["lags"][0], np.median(points["log_sigma"], axis=0), MARKERS[k], ms=2.4,
                color=COLOURS[k], mfc=face, mew=0.5, label=f"{kind}, n = {n}",
            )  # fmt: skip
        label = r"$\lambda_1\ell$" if k == 0 else None
        axes.plot(points["lags"][0], points["line"][0], ":", color=COLOURS[k], lw=0.9, label=label)
    axes.plot(lags["lags"][0], lags["edge"][0], "k-", lw=0.7, label="n = ∞")
    axes.set_xscale("log")
    axes.set_xlabel(r"lag $\ell$ [steps]")
    axes.set_ylabel(r"$\ln\,\sigma_1$ [nats]")
    axes.set_title("(f) products, gain 1")
    axes.set_ylim(top=axes.get_ylim()[1] + 2)
    axes.legend(fontsize=5.5, loc="upper left", handlelength=1.2).set_in_layout(False)
