"""What the norm of the Jacobian product stays below, and above, at every lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop._boundcurves import Scalings, norm_powers, perron_curves
from gradprop._boundfolds import DiagonalBoundFold, MatrixBoundFold
from gradprop._normbounds import UPPER, NormBounds, tightest
from gradprop._scaledfold import ScaledFold, scaling_lags
from gradprop._splitfold import SplitFold
from gradprop.blocks import Float, Int, Recurrence
from gradprop.chain import JacobianChain
from gradprop.measure import Fold, LagGrid, check_chain, measure
from gradprop.results import Status

__all__ = ["Bounds", "NormBounds", "norm_bounds"]

ROUNDING = 5e-7
"""phi' of a float32 orbit may pass sup |phi'| by so much (relative, four float32 eps)."""


class Bounds:
    """Quantity: bounds of ln ||P_lag||_2 (see :func:`norm_bounds`, whose arguments these are).

    Parameters
    ----------
    lags : array_like of int, optional
    block : int, default: 20
    gamma : float, optional
    certificates : bool, default: True
        Whether to compute what needs W and gamma alone, and the scalings; without, ``perron``,
        ``spectral_norm``, ``scaled_norm`` and ``scaled_steps`` are inf. Of one W at many scales the
        first two are known from one of them: add lag ln scale.
    scalings : int, default: 12
    splits : bool, default: True
    """

    def __init__(
        self,
        lags: ArrayLike | None = None,
        block: int = 20,
        gamma: float | None = None,
        certificates: bool = True,
        scalings: int = 12,
        splits: bool = True,
    ) -> None:
        self._lags = lags
        self._splits = _checks.choice("splits", splits, (True, False))
        self._certificates = _checks.choice("certificates", certificates, (True, False))
        self._block = _checks.integer("block", block, minimum=1)
        self._gamma = None if gamma is None else _checks.real("gamma", gamma, at_least=0.0)
        self._scalings = _checks.integer("scalings", scalings, minimum=0)

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """Folds forwards: blocks and steps, then cuts into blocks, then scaled steps."""
        grid = LagGrid(chain, self._lags, "start")
        periods = {"blocked": self._block}
        if self._splits:
            periods |= {"blocked_2": 2, "blocked_5": 5}
        kind = DiagonalBoundFold if chain.structure == "diagonal" else MatrixBoundFold
        folds: list[Any] = [kind(chain, grid, periods)]
        if self._splits:
            folds.append(SplitFold(chain, grid))
        scalings = self._scalings_of(chain, grid)
        if scalings is not None:
            folds.append(ScaledFold(chain, grid, scalings))
        return folds

    def _scalings_of(self, chain: JacobianChain, grid: LagGrid) -> Scalings | None:
        recurrence = chain.recurrence
        if recurrence is None or not self._certificates or self._scalings == 0:
            return None
        known = recurrence.gamma if self._gamma is None else self._gamma
        gamma = known if known is not None and np.isfinite(known) else 1.0
        return Scalings.of(recurrence, scaling_lags(int(grid.unique[-1]), self._scalings), gamma)

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> NormBounds:
        """Bounds by lag."""
        grid = folds[0].grid
        shape = (*chain.batch_shape, len(grid.lags))
        values, status = self._measured(chain, folds)
        gamma, kind, flag = self._gamma_of(chain.recurrence, folds[0].slope)
        if chain.recurrence is not None and self._certificates:
            lags = np.minimum(grid.unique, chain.lengths.reshape(-1, 1))
            curves = {"spectral_norm": norm_powers, "perron": perron_curves}
            if isinstance(folds[-1], ScaledFold):
                curves["scaled_norm"] = folds[-1].scalings.curves
            for name, curve in curves.items():
                values[name], _ = grid.settle(chain, curve(chain.recurrence, gamma, lags))
        zero = np.isneginf(values["blocked"]).any(axis=1)
        status = status | int(flag) | np.where(zero, int(Status.ZERO), 0)
        names: dict[str, Any] = tightest(values, int(grid.unique[-1]), kind)
        return NormBounds(
            roles=chain.roles,
            lags=grid.lags,
            gamma=gamma.reshape(chain.batch_shape),
            status=status.reshape(chain.batch_shape),
            kind=kind,
            block=self._block,
            **{name: grid.in_order(v).reshape(shape) for name, v in values.items()},
            **{name: v.reshape(chain.batch_shape) for name, v in names.items()},
        )

    def _measured(self, chain: JacobianChain, folds: Sequence[Any]) -> tuple[dict[str, Float], Int]:
        """Bounds of the orbit by name (R, L), inf for all others, and their status."""
        main, grid = folds[0], folds[0].grid
        absent = np.full((chain.n_replicas, len(grid.unique)), np.inf)
        values, final = dict.fromkeys(UPPER, absent), main.final()
        for name in main.values:
            values[name], status = grid.settle(chain, main.values[name], final[name])
        for fold in folds[1:]:
            values[fold.name], _ = grid.settle(chain, fold.values, fold.final)
            for name in fold.special_cases:
                values[fold.name] = np.minimum(values[fold.name], values[name])
        return values, status

    def _gamma_of(self, recurrence: Recurrence | None, slope: Float) -> tuple[Float, str, Status]:
        """Gamma of each replica, what the bounds made with it are, and the status that says so."""
        if recurrence is None:
            return np.full(len(slope), np.nan), "none", Status.NO_BOUND
        seen = slope / recurrence.leak
        known = recurrence.gamma if self._gamma is None else self._gamma
        if known is None or np.isinf(known):
            return seen, "trajectory", Status.NO_CERTIFICATE
        largest = float(seen.max(initial=0.0))
        if largest > known * (1 + ROUNDING):
            whose = "the cell's activation says" if self._gamma is None else "got"
            raise ValueError(
                f"`gamma` must be at least max |phi'| of the chain, {largest:.9g}; "
                f"{whose} {known:.9g}."
            )
        # one common value for all that pass it by rounding: curves are shared between replicas
        return np.where(seen > known, known * (1 + ROUNDING), known), "certificate", Status.OK


def norm_bounds(
    chain: JacobianChain,
    *,
    lags: ArrayLike | None = None,
    block: int = 20,
    gamma: float | None = None,
    scalings: int = 12,
    splits: bool = True,
) -> NormBounds:
    r"""Upper and lower bounds of the norm of the Jacobian product at every lag.

    With :math:`J_k = (1-\alpha) I + \alpha D_k W`, :math:`|D_k| \le \gamma` and
    :math:`P_\ell = J_\ell \cdots J_1`, the spectral norm obeys

    .. math:: \lVert P_\ell\rVert \le \prod_b \lVert B_b\rVert \le \prod_k \lVert J_k\rVert
       \le (1-\alpha+\alpha\gamma\lVert W\rVert)^\ell,\qquad
       \lVert P_\ell\rVert \le \lVert((1-\alpha) I + \alpha\gamma |W|)^\ell\rVert,

    :math:`B_b` being the products of consecutive factors, counted from the start; and for every
    diagonal S > 0

    .. math:: \lVert P_\ell\rVert \le \mathrm{cond}(S) \prod_k \lVert S J_k S^{-1}\rVert
       \le \mathrm{cond}(S) (1-\alpha+\alpha\gamma\lVert S W S^{-1}\rVert)^\ell.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    lags : array_like of int, shape (L,), each in 0 .. T, default: all
    block : int, default: 20
        Factors multiplied out in each block of ``blocked``: 1 gives ``step_norms``, T the norm.
    gamma : float, optional
        sup |phi'|. Default: that of the cell's activation; for a chain built from W and phi', and
        where the activation's is infinite, the largest |phi'| of each replica, with a status, for
        then no other orbit is covered. Not used by chains without W.
    scalings : int, default: 12
        For how many lags, log-spaced up to the largest asked for, a best S is looked for (see
        :func:`growth_certificate`); each serves at every lag, and the lowest bound counts. 0: none,
        ``scaled_norm`` and ``scaled_steps`` are inf.
    splits : bool, default: True
        Whether to compute ``blocked_2``, ``blocked_5`` and ``blocked_adaptive``; else they are inf.

    Returns
    -------
    NormBounds
        ``spectral_norm``, ``perron``, ``scaled_norm``; ``step_norms``, ``scaled_steps``,
        ``blocked_2``, ``blocked_5``, ``blocked``, ``blocked_adaptive``; and ``lower``;
        all (..., L) in nats. ``tightest_certificate`` and ``tightest_trajectory`` name the lowest
        at the largest lag. ``gamma``, ``kind``, ``status``. Past a sequence's length bounds stay
        constant.

    Raises
    ------
    ValueError, TypeError
        A gamma below max |phi'| of the chain (both are named), a block below 1, a negative number
        of scalings, a lag outside 0 .. T.

    Notes
    -----
    ``lower`` is the larger of ln |det P| / n and of ln ||P v|| over unit vectors v of a fixed
    random subspace of four dimensions (for n <= 4 the norm itself). ``blocked_adaptive`` is the
    lowest over all cuts of the steps into blocks of m = 1, 2, 4, ..., 32 that begin at multiples of
    m / 2, and over the three blocked ones.

    Every bound holds to 1e-12 (1 + lag) nats. Products that cancel are no exception: their rounding
    is measured by a second evaluation and added (for ``lower``, taken off) a thousandfold, or
    bounded by the norms of their factors, and a block counts at most as the norms of its steps.
    Factors that lose rows to underflow inside a block (2^1000 below the largest entry) are outside
    this, as in :func:`log_norms`. ``scaled_norm`` is rounded outwards and holds with tolerance 0.

    The bounds differ by what they see: for a Gaussian W of gain 0.9 under tanh (n = 64) the truth
    is -0.33 nats a step, blocked -0.27, scaled steps +0.35, step norms +0.38, scaled norm +0.47,
    spectral norm +0.55, Perron +1.74. Perron is exact for a nonnegative W under a linear map, and
    of no use for dense signed ones; scaling gains most for triangular and sparse W. No power of the
    spectral radius is a bound.

    Cost: largest singular values, about 40 us each at n = 64: 1 a step and 2 at each lag asked for;
    `splits` add 3 a step and 2 a lag, each of up to 11 scalings one a step. Finding the scalings
    takes about 0.5 s for each distinct W at n = 64, 4 s at n = 128. The Perron curve comes once per
    distinct W. For populations `scalings=0`, `splits=False` is ten times faster. Memory does not
    grow with T beyond the answer. Diagonal chains: elementwise, exact at any n.

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013, section 2.1.
    .. [2] R. A. Horn, C. R. Johnson, Matrix Analysis, 2nd ed. (2013), theorem 8.1.18,
       applied to P^T P.
    .. [3] M. Buehner, P. Young, A tighter bound for the echo state property, IEEE Trans. Neural
       Networks 17 (2006), p. 820.

    Examples
    --------
    >>> import gradprop as gp
    >>> W, dphi = [[0, 2], [2, 0]], [[1, 0.05], [0.05, 1]] * 5  # radius of every factor: 0.447
    >>> bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi), lags=[10], gamma=1.0)
    >>> (bounds.spectral_norm / 10).round(4).tolist(), (bounds.lower / 10).round(4).tolist()  # ln 2
    ([0.6931], [0.6931])
    """
    check_chain(chain)
    quantity = Bounds(lags, block, gamma, scalings=scalings, splits=splits)
    return measure(chain, quantity)[0]  # type: ignore[no-any-return]
