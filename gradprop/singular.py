"""All singular values of the long product, each with a statement of trust."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.agreement import agreement, checks, doubtful, reach
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.escalation import FIRST_BITS, doubtful_lags, exact_log_singular_values
from gradprop.graded import MOST, GradedFold
from gradprop.measure import DiagonalLogs, Fold, LagGrid, check_chain, measure, run
from gradprop.results import LN2, REPLICAS, Result, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingularValues(Result):
    """Singular values of the product at chosen lags.

    Attributes
    ----------
    lags : int array, shape (L,)
    log_sigma : float array, shape (..., L, n)
        ln sigma_1 >= ... >= ln sigma_n; -inf only where a value is exactly 0, nan where unresolved.
    error : float array, shape (..., L, n)
        Estimate of |error of log_sigma|, given the Jacobians as float64 numbers; 0 for -inf, inf
        where nothing is known.
    resolved : bool array, shape (..., L, n)
        Error within ``tol``, or an exact zero.
    escalated : bool array, shape (..., L)
        Whether arbitrary precision was needed.
    orbit_error : float array, shape (..., L, n)
        How far ln sigma moves when the orbit starts one unit in the last place away: on a chaotic
        network the computed orbit is not the network's own. Differences far below `error` may be
        rounding. nan for chains without an orbit.
    status : int array, shape (...,)
    anchor : str
    tol : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_sigma": (REPLICAS, "lag", "i"),
        "error": (REPLICAS, "lag", "i"),
        "resolved": (REPLICAS, "lag", "i"),
        "escalated": (REPLICAS, "lag"),
        "orbit_error": (REPLICAS, "lag", "i"),
        "status": (REPLICAS,),
    }
    lags: Int
    log_sigma: Float
    error: Float
    resolved: NDArray[np.bool_]
    escalated: NDArray[np.bool_]
    orbit_error: Float
    status: Int
    anchor: str
    tol: float


class Spectrum:
    """Quantity: all singular values (see :func:`singular_values`, whose arguments these are).

    Parameters
    ----------
    lags : array_like of int, optional
    anchor : {"start", "end"}, default: "start"
    tol : float, default: 1e-8
    group : int, default: 1
    """

    def __init__(
        self,
        lags: ArrayLike | None = None,
        anchor: str = "start",
        tol: float = 1e-8,
        group: int = 1,
    ) -> None:
        self._lags, self._anchor = lags, anchor
        self._tol = _checks.real("tol", tol, above=0.0)
        self._group = _checks.integer("group", group, minimum=1, maximum=MOST)

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """The product, the product of a rotation, and each lag's transpose."""
        lags = [chain.n_steps] if self._lags is None else self._lags
        grid = LagGrid(chain, lags, self._anchor)
        if chain.structure == "diagonal":
            return [DiagonalLogs(chain, grid)]
        direct = GradedFold(chain, grid, grid.reverse, None, self._group)
        return [direct, *checks(chain, grid, self._group, reach(self._tol, self._group))]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> SingularValues:
        """Values with their trust."""
        grid: LagGrid = folds[0].grid
        escalated = np.zeros((chain.n_replicas, len(grid.unique)), dtype=bool)
        within = -np.inf
        if chain.structure == "diagonal":
            log_sigma, error = _sorted_diagonal(folds[0])
        else:
            log_sigma, error, within = agreement(chain, folds[0], folds[1:], self._group, self._tol)
            escalated = _escalate(chain, grid, log_sigma, error, self._tol)
        resolved = (error <= self._tol) & ~np.isnan(log_sigma)
        values, status = grid.settle(chain, np.where(resolved, log_sigma, np.nan))
        lost = (np.isnan(log_sigma) | ~resolved).any(axis=(1, 2))
        status = status | np.where(lost, int(Status.NOT_RESOLVED), 0)
        status = status | np.where(np.isneginf(values).any(axis=(1, 2)), int(Status.ZERO), 0)
        shape = (*chain.batch_shape, len(grid.lags), chain.n)
        return SingularValues(
            roles=chain.roles,
            lags=grid.lags,
            log_sigma=grid.in_order(values).reshape(shape),
            error=grid.in_order(error).reshape(shape),
            resolved=grid.in_order(resolved & ~np.isnan(values)).reshape(shape),
            escalated=grid.in_order(escalated).reshape(shape[:-1]),
            orbit_error=grid.in_order(
                _orbit_error(chain, grid, values, escalated, self._tol, self._group, within)
            ).reshape(shape),
            status=status.reshape(chain.batch_shape),
            anchor=self._anchor,
            tol=self._tol,
        )


def _escalate(
    chain: JacobianChain, grid: LagGrid, log_sigma: Float, error: Float, tol: float
) -> NDArray[np.bool_]:
    """Replace what is not known to `tol`, in place, by arbitrary precision: where (R, L)."""
    done = np.zeros(log_sigma.shape[:2], dtype=bool)
    for r, steps, columns in doubtful_lags(chain, grid, doubtful(log_sigma, error, tol)):
        at = np.concatenate(list(columns.values()))
        finite = np.where(np.isfinite(log_sigma[r, at]), log_sigma[r, at], 0.0)
        bits = FIRST_BITS + int(np.ptp(finite) / LN2)
        found = exact_log_singular_values(steps, list(columns), chain.n, bits)
        for lag, where in columns.items():
            exact = found[lag]
            if exact is not None:
                log_sigma[r, where], error[r, where] = exact
                done[r, where] = True
    return done


def _orbit_error(
    chain: JacobianChain,
    grid: LagGrid,
    log_sigma: Float,
    escalated: NDArray[np.bool_],
    tol: float,
    group: int,
    within: float,
) -> Float:
    """Change of ln sigma (R, L, n) under a start one ulp away; rounds as the checks do."""
    if not chain.source.has_orbit:
        return np.full(log_sigma.shape, np.nan)
    moved = chain.perturbed()
    fold = GradedFold(moved, grid, grid.reverse, None, group, reach=within)
    run(moved, [fold])
    other = fold.log_sigma
    # what float64 could not settle here it cannot settle there
    doubt = np.where(escalated, np.inf, 0.0)[..., None]
    _escalate(moved, grid, other, np.broadcast_to(doubt, other.shape).copy(), tol)
    both_zero = np.isneginf(other) & np.isneginf(log_sigma)
    with np.errstate(invalid="ignore"):
        return np.where(both_zero, 0.0, np.abs(other - log_sigma))


def _sorted_diagonal(fold: DiagonalLogs) -> tuple[Float, Float]:
    order = np.argsort(-fold.logs, axis=-1, kind="stable")
    logs = np.take_along_axis(fold.logs, order, axis=-1)
    # sorting can pair a value with its neighbour's rounding: take the larger bound
    bound = fold.rounding.max(axis=-1, keepdims=True)
    return logs, np.where(np.isneginf(logs), 0.0, np.broadcast_to(bound, logs.shape))


def singular_values(
    chain: JacobianChain,
    *,
    lags: ArrayLike | None = None,
    anchor: str = "start",
    tol: float = 1e-8,
    group: int = 1,
) -> SingularValues:
    r"""All singular values of the Jacobian product, in log scale, right to the stated error.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
        Factors are finite.
    lags : array_like of int, shape (L,), each in 0 .. T, default: [T]
        Lags, in steps.
    anchor : {"start", "end"}, default: "start"
        P = J_lag ... J_1, or J_T ... J_{T-lag+1}.
    tol : float, default: 1e-8
        Largest accepted error of ln(sigma), in nats. What float64 gives is never accepted with an
        error above 1e-3.
    group : int, 1 .. 4, default: 1
        Jacobians multiplied together before each factorisation: 2 saves up to a third of the time.
        Rounding of the smallest values then grows by the condition number of one more Jacobian:
        do not group where these are ill-conditioned (saturated units, condition above 1e4), for
        most values would be found anew by arbitrary precision. `error` sees it.

    Returns
    -------
    SingularValues
        ``log_sigma`` (..., L, n), natural log, descending; -inf only where sigma is exactly 0; nan
        where not resolved. ``error`` (..., L, n); ``resolved``; ``status``.

    Raises
    ------
    ValueError, TypeError
        A lag outside 0 .. T, a tolerance that is not positive, a group outside 1 .. 4.

    Notes
    -----
    One pass accumulates P = Q diag(s) U with scales as mantissa and integer exponent, rows and
    columns sorted by scale before each QR [1]_, by block Gram-Schmidt where the panel is well
    conditioned (Q is then orthonormal to about 1e-4 only, but Q R is the panel to rounding, and a
    closing QR repays the rest), by Householder elsewhere; a one-sided Jacobi method on the scaled
    rows finishes [2]_. There is no a-priori bound: the product is formed three times (directly,
    after a random rotation, and as its transpose), and ``error`` is 25 times the largest difference
    up to that index, inf above 1e-3; exactly zero rows and columns give exact zeros. The two checks
    multiply up to four Jacobians before each factorisation where that is expected to cost a tenth
    of `tol` (by the condition of the last ones): it makes ``error`` larger, never the values
    worse, and a check that leaves a doubt is repeated, every Jacobian factored.
    What is then not known to `tol` (strongly non-normal chains, cancelling ones, pivots lost in
    rounding) is computed once more in ball arithmetic of as many bits as it takes, up to 2^15,
    exact zeros being proven by the rank modulo two primes; without python-flint it stays nan.
    Cost about 5 n^3 flops a step, twice, and again over the lag itself for every lag asked for
    (checks of well-conditioned Jacobians a third less), once more for `orbit_error`; 7 n^3 where
    Householder QR is needed;
    ball arithmetic about 1, 6 and 130 ms a step at n = 16, 32 and 64 (1300 bits).

    References
    ----------
    .. [1] G. W. Stewart, ETNA 5 (1997) 29: graded decompositions of long products.
    .. [2] J. Demmel, K. Veselic, Jacobi's method is more accurate than QR, SIAM J. Matrix Anal.
       Appl. 13 (1992) 1204, algorithm 4.1.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.9, 1.0], [0.0, 0.9]]] * 10)
    >>> gp.singular_values(chain).log_sigma[0].round(8).tolist()
    [1.36234377, -3.46955408]
    """
    return measure(check_chain(chain), Spectrum(lags, anchor, tol, group))[0]  # type: ignore[no-any-return]
