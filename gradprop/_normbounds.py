"""The result of norm_bounds, and which of its bounds is the tightest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float, Int
from gradprop.results import REPLICAS, Result

CERTIFICATES = ("spectral_norm", "perron", "scaled_norm")
TRAJECTORY = ("step_norms", "scaled_steps", "blocked_2", "blocked_5", "blocked", "blocked_adaptive")
UPPER = (*CERTIFICATES, *TRAJECTORY)

ROUNDING = 1e-12
"""Bounds that differ by less than this times 1 + lag are not told apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormBounds(Result):
    """Bounds of ln ||P_lag||_2 by lag, in nats, anchor "start".

    Attributes
    ----------
    lags : int array, shape (L,)
    spectral_norm, perron, scaled_norm : float array, shape (..., L)
        Upper bounds that need W and gamma alone: of the plain norm, of the magnitudes of W, and of
        the norm under the best diagonal scalings. inf where they do not exist or are not asked for.
    step_norms, scaled_steps, blocked_2, blocked_5, blocked, blocked_adaptive : float array
        Upper bounds of this orbit, (..., L): norms of single steps, plain and scaled; of blocks of
        2, 5 and ``block`` steps; of the best cut into blocks. -inf only where the product is
        exactly zero.
    lower : float array, shape (..., L)
        A lower bound; -inf where none is known.
    gamma : float array, shape (...,)
        The sup |phi'| that the first three were made with; nan where there is none.
    tightest_certificate, tightest_trajectory : str array, shape (...,)
        Names of the lowest bounds at the largest lag: of those that hold on every orbit of the
        cell, and of the others. Of several within rounding the simplest; "none" if all are inf.
    status : int array, shape (...,)
    kind : {"certificate", "trajectory", "none"}
        Whether the first three hold on every orbit of the cell, on this one only, or do not exist.
    block : int
        Factors multiplied out in each block of ``blocked``.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        **dict.fromkeys((*UPPER, "lower"), (REPLICAS, "lag")),
        **dict.fromkeys(
            ("gamma", "tightest_certificate", "tightest_trajectory", "status"), (REPLICAS,)
        ),
    }
    lags: Int
    spectral_norm: Float
    perron: Float
    scaled_norm: Float
    step_norms: Float
    scaled_steps: Float
    blocked_2: Float
    blocked_5: Float
    blocked: Float
    blocked_adaptive: Float
    lower: Float
    gamma: Float
    tightest_certificate: NDArray[np.str_]
    tightest_trajectory: NDArray[np.str_]
    status: Int
    kind: str
    block: int


def tightest(values: Mapping[str, Float], lag: int, kind: str) -> dict[str, NDArray[np.str_]]:
    """Names of the lowest bounds in the last column: certificates and those of the orbit, (R,)."""
    certified = CERTIFICATES if kind == "certificate" else ()
    groups = {
        "tightest_certificate": certified,
        "tightest_trajectory": tuple(name for name in UPPER if name not in certified),
    }
    return {group: _lowest(values, names, lag) for group, names in groups.items()}


def _lowest(values: Mapping[str, Float], names: Sequence[str], lag: int) -> NDArray[np.str_]:
    """The first name whose value in the last column is the lowest, within rounding."""
    n_replicas = len(values["blocked"])
    last = np.full((len(names) + 1, n_replicas), np.inf)
    for i, name in enumerate(names):
        last[i] = values[name][:, -1]
    with np.errstate(invalid="ignore"):
        first = np.argmax(last <= last.min(axis=0) + ROUNDING * (1 + lag), axis=0)
    known = last.min(axis=0) < np.inf
    return np.array([*names, "none"])[np.where(known, first, len(names))]
