"""What the norm of the Jacobian product stays below, and above, at every lag."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop._boundfolds import NAMES, DiagonalBoundFold, MatrixBoundFold
from gradprop.blocks import Float, Int, Recurrence
from gradprop.chain import JacobianChain
from gradprop.measure import Fold, LagGrid, check_chain, measure
from gradprop.perron import perron_log_norms
from gradprop.results import REPLICAS, Result, Status, log_of_scaled
from gradprop.spectral import scaled_norm

ROUNDING = 5e-7
"""phi' of a float32 orbit may pass sup |phi'| by so much (relative, four float32 eps)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormBounds(Result):
    """Bounds of ln ||P_lag||_2 by lag, in nats, anchor "start".

    Attributes
    ----------
    lags : int array, shape (L,)
    spectral_norm, step_norms, blocked, perron : float array, shape (..., L)
        Upper bounds; which one is the lowest depends on the network, and their minimum is a bound
        too. -inf only where the product is exactly zero.
    lower : float array, shape (..., L)
        A lower bound; -inf where none is known.
    gamma : float array, shape (...,)
        The sup |phi'| that `spectral_norm` and `perron` were made with; nan where there is none.
    status : int array, shape (...,)
    kind : {"certificate", "trajectory", "none"}
        Whether `spectral_norm` and `perron` hold on every orbit of the cell, on this one only, or
        do not exist (and are inf). `step_norms` and `blocked` always belong to this orbit.
    block : int
        Factors multiplied out in each block of `blocked`.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "spectral_norm": (REPLICAS, "lag"),
        "step_norms": (REPLICAS, "lag"),
        "blocked": (REPLICAS, "lag"),
        "perron": (REPLICAS, "lag"),
        "lower": (REPLICAS, "lag"),
        "gamma": (REPLICAS,),
        "status": (REPLICAS,),
    }
    lags: Int
    spectral_norm: Float
    step_norms: Float
    blocked: Float
    perron: Float
    lower: Float
    gamma: Float
    status: Int
    kind: str
    block: int


class Bounds:
    """Quantity: bounds of ln ||P_lag||_2 (see :func:`norm_bounds`, whose arguments these are).

    Parameters
    ----------
    lags : array_like of int, optional
    block : int, default: 20
    gamma : float, optional
    certificates : bool, default: True
        Whether to compute the two bounds that need only W and gamma; without, they are inf. Of one
        W at many scales they are known from one of them: add lag ln scale.
    """

    def __init__(
        self,
        lags: ArrayLike | None = None,
        block: int = 20,
        gamma: float | None = None,
        certificates: bool = True,
    ) -> None:
        self._lags, self._certificates = lags, certificates
        self._block = _checks.integer("block", block, minimum=1)
        self._gamma = None if gamma is None else _checks.real("gamma", gamma, at_least=0.0)

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """One fold, forwards."""
        grid = LagGrid(chain, self._lags, "start")
        if chain.structure == "diagonal":
            return [DiagonalBoundFold(chain, grid, self._block)]
        return [MatrixBoundFold(chain, grid, self._block)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> NormBounds:
        """Bounds by lag."""
        fold, grid = folds[0], folds[0].grid
        shape = (*chain.batch_shape, len(grid.lags))
        final = fold.final()
        values: dict[str, Float] = {}
        for name in NAMES:
            values[name], status = grid.settle(chain, fold.values[name], final[name])
        gamma, kind, flag = self._gamma_of(chain.recurrence, fold.slope)
        if chain.recurrence is None or not self._certificates:
            values["spectral_norm"] = values["perron"] = np.full(values["blocked"].shape, np.inf)
        else:
            lags = np.minimum(grid.unique, chain.lengths.reshape(-1, 1))
            for name, curve in (("spectral_norm", _norm_powers), ("perron", _perron_curves)):
                values[name], _ = grid.settle(chain, curve(chain.recurrence, gamma, lags))
        zero = np.isneginf(values["blocked"]).any(axis=1)
        status = status | int(flag) | np.where(zero, int(Status.ZERO), 0)
        return NormBounds(
            roles=chain.roles,
            lags=grid.lags,
            gamma=gamma.reshape(chain.batch_shape),
            status=status.reshape(chain.batch_shape),
            kind=kind,
            block=self._block,
            **{name: grid.in_order(v).reshape(shape) for name, v in values.items()},
        )

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
) -> NormBounds:
    r"""Upper and lower bounds of the norm of the Jacobian product at every lag.

    With :math:`J_k = (1-\alpha) I + \alpha D_k W`, :math:`|D_k| \le \gamma` and
    :math:`P_\ell = J_\ell \cdots J_1`, the spectral norm obeys

    .. math:: \lVert P_\ell\rVert \le \prod_b \lVert B_b\rVert \le \prod_k \lVert J_k\rVert
       \le (1-\alpha+\alpha\gamma\lVert W\rVert)^\ell,\qquad
       \lVert P_\ell\rVert \le \lVert((1-\alpha) I + \alpha\gamma |W|)^\ell\rVert,

    :math:`B_b` being the products of `block` consecutive factors, counted from the start.

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

    Returns
    -------
    NormBounds
        ``spectral_norm``, ``step_norms``, ``blocked``, ``perron``, ``lower`` (..., L) in nats;
        ``gamma``, ``kind``, ``status``. Past a sequence's length they stay constant.

    Raises
    ------
    ValueError, TypeError
        A gamma below max |phi'| of the chain (both are named), a block below 1, a lag outside
        0 .. T.

    Notes
    -----
    ``lower`` is the larger of ln |det P| / n and of ln ||P v|| over unit vectors v of a fixed
    random subspace of four dimensions (for n <= 4 the norm itself).

    Every bound holds to 1e-12 (1 + lag) nats. Products that cancel are no exception: their rounding
    is measured by a second evaluation and added (for ``lower``, taken off) a thousandfold, and a
    block counts at most as the norms of its steps. Factors that lose rows to underflow inside a
    block (2^1000 below the largest entry) are outside this, as in :func:`log_norms`.

    The bounds differ by what they see: for a Gaussian W of gain 0.9 under tanh (n = 64) the truth
    is -0.33 nats a step, blocked -0.27, step norms +0.38, spectral norm +0.55, Perron +1.74. Perron
    is exact for a nonnegative W under a linear map, and of no use for dense signed ones. No power
    of the spectral radius is a bound.

    Cost: one SVD without vectors a step and two (one of n x 4) at each lag asked for, about 10 n^3
    flops each; the Perron curve once per distinct W. Memory does not grow with T beyond the answer.
    Diagonal chains: elementwise, exact at any n.

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013, section 2.1.
    .. [2] R. A. Horn, C. R. Johnson, Matrix Analysis, 2nd ed. (2013), theorem 8.1.18,
       applied to P^T P.

    Examples
    --------
    >>> import gradprop as gp
    >>> W, dphi = [[0, 2], [2, 0]], [[1, 0.05], [0.05, 1]] * 5  # radius of every factor: 0.447
    >>> bounds = gp.norm_bounds(gp.JacobianChain.row_scaled(W, dphi), lags=[10], gamma=1.0)
    >>> (bounds.spectral_norm / 10).round(4).tolist(), (bounds.lower / 10).round(4).tolist()  # ln 2
    ([0.6931], [0.6931])
    """
    check_chain(chain)
    return measure(chain, Bounds(lags, block, gamma))[0]  # type: ignore[no-any-return]


def _norm_powers(recurrence: Recurrence, gamma: Float, lags: Int) -> Float:
    """Lag times ln(1 - leak + leak gamma ||W||), (R, L), for lags (R, L)."""
    with np.errstate(divide="ignore"):
        log_norm = log_of_scaled(*scaled_norm(recurrence.W))[recurrence.which]
        moved = np.log(recurrence.leak) + np.log(gamma) + log_norm
        rate = np.logaddexp(np.log1p(-recurrence.leak), moved)
    return _times_lag(lags, rate)


def _perron_curves(recurrence: Recurrence, gamma: Float, lags: Int) -> Float:
    """Ln of norms of powers of (1 - leak) I + leak gamma |W|, (R, L), each distinct one once."""
    leak, shared = recurrence.leak, np.ones_like(gamma)
    kinds = np.stack([recurrence.which, shared if leak == 1.0 else gamma], axis=-1)
    distinct, inverse = np.unique(kinds, axis=0, return_inverse=True)
    out = np.empty(lags.shape)
    for k, (which, factor) in enumerate(distinct):
        rows = np.flatnonzero(inverse.ravel() == k)
        needed, column = np.unique(lags[rows], return_inverse=True)
        curve = perron_log_norms(recurrence.W[int(which)], needed, gamma=factor, leak=leak)
        out[rows] = curve[column.reshape(len(rows), -1)]
    if leak == 1.0:
        with np.errstate(divide="ignore"):
            out += _times_lag(lags, np.log(gamma))
    return out


def _times_lag(lags: Int, rate: Float) -> Float:
    """Lag times rate, 0 at lag 0 whatever the rate is."""
    with np.errstate(invalid="ignore"):
        return np.where(lags == 0, 0.0, lags * rate[:, None])
