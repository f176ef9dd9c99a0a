"""Errors of graded singular values, from how far three computations of a product agree."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradprop.blocks import Float
from gradprop.chain import JacobianChain
from gradprop.graded import GradedFold
from gradprop.measure import LagGrid, run
from gradprop.rotations import random_rotation

EPS = float(np.finfo(np.float64).eps)

SPREAD = 25.0
"""Stated error over the largest difference of the three computations; found by experiment on 8000
small products of ten families, where the largest ratio of true error to difference was 12."""

BELIEVED = 1e-3
"""Largest stated error that is believed. Where rounding has swallowed a value, the computations
agree by chance with a probability of about their difference: of 2000 cancelling products, 4 were
off by more than a stated error between 0.08 and 0.8, none by more than one below 1e-3."""

WIDEST, ROUNDING = 1e4, 1e-12
"""Widest panel of grouped Jacobians in the checks, and the stated error over that width: at most
2e-12 on 30 tanh networks, n = 16 ... 256, T = 60 ... 1000, gains 0.9 ... 1.5."""


def reach(tol: float, group: int) -> float:
    """Largest ln of the spread of a panel in the checks of values that are to be known to `tol`.

    What grouping adds to the stated error is then about a tenth of the tolerance. Where Jacobians
    are grouped (`group`) in the direct computation too, checks group those alone.
    """
    if group > 1:
        return -math.inf
    return math.log(min(0.1 * tol / ROUNDING, WIDEST))


def checks(
    chain: JacobianChain,
    grid: LagGrid,
    group: int,
    within: float,
    where: NDArray[np.bool_] | None = None,
) -> list[GradedFold]:
    """The two other computations: of P Q0, Q0 a random rotation, and of each lag's transpose.

    Since the direct one factors every Jacobian (every `group`), rounding that they alone suffer
    makes the stated error larger, never too small. So they may group more: `within` a
    `reach`. where (R, L): what is of interest, by default all.
    """
    of = None if where is None else np.asarray(where.any(axis=1))
    rotated = GradedFold(
        chain, grid, grid.reverse, random_rotation(chain.n), group, reach=within, replicas=of
    )
    against = [
        GradedFold(
            chain, grid, not grid.reverse, None, group, reach=within, only=int(lag),
            replicas=None if where is None else where[:, column],
        )
        for column, lag in enumerate(grid.unique)
    ]  # fmt: skip
    return [rotated, *against]


def compare(direct: GradedFold, others: Sequence[GradedFold]) -> tuple[Float, Float]:
    """Values and errors (R, L, n) from the direct computation and the `checks`."""
    rotated, against = others[0], others[1:]
    other = np.concatenate([fold.log_sigma for fold in against], axis=1)
    runs = [direct.log_sigma, rotated.log_sigma, other]
    against_sure = np.concatenate([fold.sure for fold in against], axis=1)
    against_bound = np.concatenate([fold.bound for fold in against], axis=1)
    sure = np.minimum(np.minimum(direct.sure, rotated.sure), against_sure)[..., None]
    bound = np.minimum(np.minimum(direct.bound, rotated.bound), against_bound)[..., None]
    i = np.arange(direct.log_sigma.shape[-1])
    with np.errstate(invalid="ignore"):
        gap = np.maximum(np.abs(runs[0] - runs[1]), np.abs(runs[0] - runs[2]))
    gap = np.where(np.isnan(gap), np.inf, gap)
    known = i < np.minimum(sure, bound)
    size = np.where(known & np.isfinite(runs[0]), np.abs(runs[0]), 0.0).max(axis=-1, keepdims=True)
    worst = np.maximum.accumulate(np.where(known, gap, 0.0), axis=-1)
    error = SPREAD * (worst + 2 * EPS * (size + 1))
    error = np.where(known & (error <= BELIEVED), error, np.inf)
    value = np.where(known, runs[0], np.nan)
    zero = i >= bound
    return np.where(zero, -np.inf, value), np.where(zero, 0.0, error)


def doubtful(log_sigma: Float, error: Float, tol: float) -> NDArray[np.bool_]:
    """Where (R, L) some value is not known to `tol`."""
    return np.asarray((np.isnan(log_sigma) | (error > tol)).any(axis=-1))


def agreement(
    chain: JacobianChain, direct: GradedFold, others: Sequence[GradedFold], group: int, tol: float
) -> tuple[Float, Float, float]:
    """Values and errors (R, L, n), and the reach of the checks that found them.

    Where checks that grouped Jacobians leave a doubt they are repeated, factoring every one.
    """
    log_sigma, error = compare(direct, others)
    merged = np.stack([others[0].merged | fold.merged for fold in others[1:]], axis=1)
    again = doubtful(log_sigma, error, tol) & merged
    within = reach(tol, group)
    if within == -math.inf or not again.any():
        return log_sigma, error, within
    repeated = checks(chain, direct.grid, group, -np.inf, again)
    run(chain, repeated)
    found = compare(direct, repeated)
    log_sigma[again], error[again] = found[0][again], found[1][again]
    return log_sigma, error, -math.inf
