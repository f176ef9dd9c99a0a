"""The result of a diagnosis: what was measured, and how it is told."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradprop._files import write_atomically
from gradprop.bounds import NormBounds
from gradprop.diagnosis.activity import Activity
from gradprop.diagnosis.folds import PathLogNorms, StepLogNorms
from gradprop.diagnosis.limits import Budget
from gradprop.diagnosis.memory import Memory
from gradprop.edge import EdgeOfChaos
from gradprop.gradients.thresholds import ClipStatistics
from gradprop.horizon import Horizon
from gradprop.lyapunov.spectrum import LyapunovSpectrum
from gradprop.precision.lags import PrecisionEvents
from gradprop.precision.loss_scale import LossScaleWindow
from gradprop.pullback import VectorNorms

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """Everything that :func:`diagnose` found out about one network on one data set.

    Attributes
    ----------
    network, data : str
        What was looked at, in words.
    n_steps, n_sequences : int
        Of the data.
    fmt : str
        The float format asked about.
    samples : int or None
        Training sequences, if told.
    tol : float
        Relative norm that still counts: samples**-0.5, else the relative step of `fmt`.
    exponents : LyapunovSpectrum
        Leading exponents, nats per step.
    leading : tuple of float
        lambda_1 and its 95 % interval: over sequences, or over time where there is one.
    norms : PathLogNorms
        ln of the norm of the product by lag back from the end, whole and by layer and gate path.
    gradient : VectorNorms
        ln of the norm of one loss's gradient by lag, from every loss position or sequence.
    steps : StepLogNorms
        ln of the norm of every single step.
    bounds : NormBounds
        At the largest lag.
    worst, direction : Horizon
        Of the worst loss direction, and of the given one (else a random one of the outputs).
    events : PrecisionEvents
        Of that gradient, pulled back in `fmt`.
    loss_scale : LossScaleWindow
        For the steps that the horizon allows.
    activity : Activity or None
        Saturation and gates; None for a cell of one's own.
    memory : Memory
        Perturbed states followed forward.
    budget : Budget
        The limits, in steps, and which binds.
    clipping : ClipStatistics or None
        Of the norms of BPTT gradients; None for a cell of one's own.
    broken : tuple of str
        Arrays whose gradient is not finite.
    edge : EdgeOfChaos or None
        Gain of the recurrent weights at which lambda_1 is 0; None: not within a factor of 8.
    window : float
        Steps of truncated BPTT: ln(100) / |lambda_1|, in chaos ln 2 / lambda_1.
    notes : tuple of str
        What was assumed or left out.
    backward : Diagnosis or None
        The other direction of a Bidirectional.
    """

    network: str
    data: str
    n_steps: int
    n_sequences: int
    fmt: str
    samples: int | None
    tol: float
    exponents: LyapunovSpectrum
    leading: tuple[float, float, float]
    norms: PathLogNorms
    gradient: VectorNorms
    steps: StepLogNorms
    bounds: NormBounds
    worst: Horizon
    direction: Horizon
    events: PrecisionEvents
    loss_scale: LossScaleWindow
    activity: Activity | None
    memory: Memory
    budget: Budget
    clipping: ClipStatistics | None
    broken: tuple[str, ...]
    edge: EdgeOfChaos | None
    window: float
    notes: tuple[str, ...]
    backward: Diagnosis | None = None

    @property
    def parallel(self) -> str:
        """Whether parallel-in-time evaluation converges: "yes", "no" or "undecided"."""
        value, low, high = self.leading
        if math.isnan(low):
            return "undecided"
        return "yes" if high < 0 else "no" if low > 0 else "undecided" if value else "no"

    @property
    def tightest(self) -> tuple[str, float, str, float]:
        """Name and nats per step of the tightest certificate and of the tightest orbit bound."""
        lag = max(int(self.bounds.lags[-1]), 1)
        found: list[Any] = []
        for kind in (self.bounds.tightest_certificate, self.bounds.tightest_trajectory):
            name = str(np.ravel(kind)[0])
            curve = getattr(self.bounds, name, None)
            found += [name, math.nan if curve is None else float(np.ravel(curve)[0]) / lag]
        return tuple(found)

    @property
    def verdict(self) -> str:
        """One sentence, in steps."""
        from gradprop.diagnosis.words import verdict

        return verdict(self)

    def summary(self) -> str:
        """Text to act on; its first line is the verdict, in steps.

        Returns
        -------
        str
        """
        from gradprop.diagnosis.words import summary

        return summary(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per number found.

        Returns
        -------
        pandas.DataFrame
            Columns ``direction``, ``quantity``, ``value``, ``low``, ``high``, ``unit``.
        """
        import pandas as pd

        from gradprop.diagnosis.table import rows

        columns = ("direction", "quantity", "value", "low", "high", "unit")
        found = [("forward", *row) for row in rows(self)]
        if self.backward is not None:
            found += [("backward", *row) for row in rows(self.backward)]
        return pd.DataFrame(found, columns=list(columns))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained page: text, table and figure; it opens offline.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Path
        """
        from gradprop.diagnosis.page import write_page

        return write_page(self, path)

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write all numbers, with the curves by lag; what is not finite is a string.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Path
        """
        text = json.dumps(_plain(self._told()), indent=1, allow_nan=False)
        return write_atomically(Path(path), f"{text}\n".encode())

    def _told(self) -> dict[str, Any]:
        from gradprop.diagnosis.table import rows

        keys = ("value", "low", "high", "unit")
        told: dict[str, Any] = {
            "verdict": self.verdict,
            "network": self.network,
            "data": self.data,
            "notes": list(self.notes),
            "numbers": {row[0]: dict(zip(keys, row[1:], strict=True)) for row in rows(self)},
            "lags": self.norms.lags,
            "log_norm": self.norms.log_norm,
            "paths": {name: self.norms.path_log_norm[..., i] for i, name in enumerate(self.paths)},
            "gradient_log_norm": self.gradient.log_norm,
        }
        if self.backward is not None:
            told["backward"] = self.backward._told()
        return told

    @property
    def page_inches(self) -> tuple[float, float]:
        """Size of its page of panels."""
        return 7.2, 7.6

    @property
    def paths(self) -> tuple[str, ...]:
        """Names of the ways through the product that were measured."""
        return self.norms.paths


def _plain(value: Any) -> Any:
    """What JSON can say: nan and infinities as words."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
