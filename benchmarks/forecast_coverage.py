"""How often do float32 limits fall where the forecast says, on 200 random tanh networks?

Of each network the rate comes from one long run; constant and spread are fitted to sixteen shorter
ones; then an orbit that none of them saw is forecast, and the lags of its exact product are looked
up. Networks run freely from normal starts, spectral radius uniform on (0.5, 0.9), or are driven by
white input. Aims: at least 85 % of lags inside the 90 % band at eps and at the smallest normal
number; from the rate alone, within 5 % or 2 steps, at least 90 % at the smallest normal number and
at zero for Gaussian and orthogonal networks.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import gradprop as gp

FAMILIES = ("gaussian", "orthogonal", "nonnormal")
EVENTS = ("n_eps", "n_subnormal", "n_zero")
FMT, N = "float32", 24
LONG, RUNS, BURN_IN = 3000, 16, 50
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network, and how it is run: white input of standard deviation `noise`, or none."""

    family: str
    W: np.ndarray
    noise: float

    @classmethod
    def drawn(cls, family: str, n: int, noise: float, rng: np.random.Generator) -> Network:
        """Weights of a family; the radius varies."""
        radius = rng.uniform(0.5, 0.9)
        return cls(family, gp.initialise(family, n, rng=rng, spectral_radius=radius), noise)

    def chain(self, runs: int, n_steps: int, rng: np.random.Generator) -> gp.JacobianChain:
        """Independent orbits: driven ones have forgotten their start, free ones begin with it."""
        n = len(self.W)
        if not self.noise:
            return gp.linearise(gp.RNN(self.W), h0=rng.standard_normal((runs, n)), n_steps=n_steps)
        x = self.noise * rng.standard_normal((runs, n_steps + BURN_IN, n))
        return gp.linearise(gp.RNN(self.W), x).tail(n_steps)

    def rate(self, rng: np.random.Generator) -> float:
        """Leading exponent of one long run."""
        chain = self.chain(1, LONG, rng)
        return float(gp.lyapunov_spectrum(chain, 1, burn_in=BURN_IN).exponents[0, 0])


@dataclasses.dataclass(frozen=True)
class Line:
    """c + rate * lag, and the deviations of runs from it, (runs, lags from 1)."""

    rate: float
    constant: float
    deviations: np.ndarray

    @classmethod
    def fitted(cls, log_norm: np.ndarray) -> Line:
        """Least squares over the mean of runs at all lags from the second quarter on."""
        lags = np.arange(log_norm.shape[1])
        late = lags >= lags.size // 4
        rate, constant = np.polyfit(lags[late], log_norm.mean(axis=0)[late], 1)
        deviations = log_norm[:, 1:] - constant - rate * lags[1:]
        return cls(float(rate), float(constant), deviations)

    def forecast(self, event: str) -> gp.PrecisionForecast:
        """The forecast, with the root mean square deviation at lags within a tenth of it."""
        middle = gp.precision_forecast(self.rate, FMT, log_constant=self.constant).event(event)
        low, high = int(0.9 * middle), int(1.1 * middle) + 1
        near = self.deviations[:, low - 1 : high]
        runs = len(near)
        # of a new run about the mean of these, of which the deviations are short by their own mean
        spread = float(np.sqrt((near**2).mean() * (runs + 1) / (runs - 1)))
        return gp.precision_forecast(self.rate, FMT, log_constant=self.constant, spread=spread)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One lag: measured, from the rate alone, forecast with its band."""

    family: str
    event: str
    measured: int
    alone: int
    forecast: int
    band: tuple[int, int]

    @property
    def inside(self) -> bool:
        """Within the band."""
        return self.band[0] <= self.measured <= self.band[1]

    @property
    def near(self) -> bool:
        """The rate alone is within 5 % or 2 steps."""
        return abs(self.alone - self.measured) <= max(2.0, 0.05 * self.measured)


def outcomes_of(net: Network, rng: np.random.Generator) -> list[Outcome]:
    """Forecast a network, then measure another orbit of it."""
    alone = gp.precision_forecast(net.rate(rng), FMT)
    n_steps = int(1.5 * alone.event("n_zero")) + 50
    line = Line.fitted(gp.log_norms(net.chain(RUNS, n_steps, rng)).log_norm)
    exact = gp.precision_events(net.chain(1, n_steps, rng), FMT).exact
    outcomes = []
    for event in EVENTS:
        forecast = line.forecast(event)
        measured = int(getattr(exact, event)[0])
        assert measured > 0, "the orbit was too short"
        outcomes.append(
            Outcome(
                net.family, event, measured, alone.event(event), forecast.event(event),
                forecast.band(event),
            )
        )  # fmt: skip
    return outcomes


def study(n_nets: int, n: int, noise: float, seed: int = 0) -> list[Outcome]:
    """All events of networks that take turns between the families."""
    rngs = np.random.default_rng(seed).spawn(n_nets)
    nets = [Network.drawn(FAMILIES[i % 3], n, noise, rng) for i, rng in enumerate(rngs)]
    return [o for net, rng in zip(nets, rngs, strict=True) for o in outcomes_of(net, rng)]


def share(outcomes: list[Outcome], what: str, event: str, *families: str) -> float:
    """Share of the outcomes of an event, in some families, that are "inside" or "near"."""
    group = [o for o in outcomes if o.event == event and o.family in families]
    return float(np.mean([getattr(o, what) for o in group]))


def main() -> None:
    """Print shares, and quantiles of (measured - forecast) in steps."""
    for noise in (0.0, 0.5):
        outcomes = study(200, N, noise)
        print(f"input of standard deviation {noise}")
        for families in (*((family,) for family in FAMILIES), FAMILIES):
            for event in EVENTS:
                group = [o for o in outcomes if o.event == event and o.family in families]
                off = np.quantile([o.measured - o.forecast for o in group], QUANTILES)
                width = np.median([o.band[1] - o.band[0] for o in group])
                name = families[0] if len(families) == 1 else "all"
                print(
                    f"{name:11} {event:12} {len(group):4} networks, "
                    f"lag {np.median([o.measured for o in group]):4.0f}, "
                    f"in band {share(outcomes, 'inside', event, *families):6.1%} "
                    f"(width {width:3.0f}), "
                    f"rate alone {share(outcomes, 'near', event, *families):6.1%}, "
                    f"off by {' '.join(f'{q:+.0f}' for q in off)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
