"""Singular values of a plain product in a format, beside the true ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.blocks import Block, DiagonalBlock, Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import Fold, LagGrid, check_chain, measure
from gradprop.precision.formats import Format, check_rng
from gradprop.precision.stored import Arithmetic, StoredProduct, identity_start, refuse_complex
from gradprop.results import REPLICAS, Result, Status
from gradprop.singular import Spectrum


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainSingularValues(Result):
    """Singular values of a plain product in a format, beside the true ones.

    Attributes
    ----------
    lags : int array, shape (L,)
    log_sigma : float array, shape (..., L, n)
        Of the stored product, by an SVD in float64, descending; -inf for a zero, nan where the
        product holds inf or nan.
    exact_log_sigma : float array, shape (..., L, n)
        Of the exact product; -inf only for an exact zero, nan where unresolved.
    log_ratio : float array, shape (..., L, n)
        ln of the stored over the exact value; 0 where both are exactly zero.
    status : int array, shape (...,)
        LEFT_RANGE: some lag's product holds inf or nan. Further flags of the exact values.
    fmt, accumulate : str
    flush : bool
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_sigma": (REPLICAS, "lag", "i"),
        "exact_log_sigma": (REPLICAS, "lag", "i"),
        "log_ratio": (REPLICAS, "lag", "i"),
        "status": (REPLICAS,),
    }
    lags: Int
    log_sigma: Float
    exact_log_sigma: Float
    log_ratio: Float
    status: Int
    fmt: str
    accumulate: str
    flush: bool


class _StoredSpectrum(StoredProduct):
    """A stored product whose singular values are noted at the lags of a grid, (R, L, n)."""

    def __init__(
        self, chain: JacobianChain, arithmetic: Arithmetic, grid: LagGrid, rng: Any
    ) -> None:
        super().__init__(chain, arithmetic, identity_start(chain), rng=rng)
        self.window, self.grid = grid.window(chain), grid
        self.log_sigma = np.zeros((chain.n_replicas, len(grid.unique), chain.n))
        self.left_range = np.zeros(chain.n_replicas, dtype=bool)
        self._note(0, slice(0, chain.n_replicas))

    def update(self, block: Block | DiagonalBlock, part: slice) -> None:
        """Absorb a block lag by lag."""
        first, end = block.first, block.first + block.n_steps
        low, high = self.grid.columns_between(first, end)
        for lag in self.grid.unique[low:high]:
            super().update(_steps(block, first - block.first, int(lag) - block.first), part)
            first = int(lag)
            self._note(first, part)
        if first < end:
            super().update(_steps(block, first - block.first, end - block.first), part)

    def _note(self, lag: int, part: slice) -> None:
        column = self.grid.column[lag]
        if column < 0:
            return
        P = self.P[part].astype(np.float64)
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(P).all(axis=(1, 2)))
        P[~finite] = 0.0
        self.left_range[part] |= ~finite
        if P.shape[-1] == self.log_sigma.shape[-1]:
            sigma = np.linalg.svd(P, compute_uv=False)
        else:
            sigma = -np.sort(-np.abs(P[..., 0]), axis=-1)
        with np.errstate(divide="ignore"):
            self.log_sigma[part, column] = np.where(finite[:, None], np.log(sigma), np.nan)


def _steps(block: Block | DiagonalBlock, low: int, high: int) -> Block | DiagonalBlock:
    """Steps low .. high - 1 of a block."""
    full = ("index", "scales", "exponents", "identity")
    fields = full if isinstance(block, Block) else ("factors",)
    views: dict[str, Any] = {name: getattr(block, name)[:, low:high] for name in fields}
    return dataclasses.replace(block, first=block.first + low, **views)


class PlainSpectrum:
    """Quantity: see :func:`plain_singular_values`, whose arguments these are.

    Parameters
    ----------
    fmt : str or Format
    lags : array_like of int, optional
    flush : bool, default: False
    accumulate : str or Format, optional
    rng : optional
    """

    def __init__(
        self,
        fmt: str | Format,
        lags: ArrayLike | None = None,
        flush: bool = False,
        accumulate: str | Format | None = None,
        rng: Any = None,
    ) -> None:
        self._flush = bool(_checks.choice("flush", flush, (True, False)))
        self._arithmetic = Arithmetic.checked(fmt, accumulate, self._flush)
        check_rng(rng, self._arithmetic.fmt, self._arithmetic.accumulator)
        self._exact, self._lags, self._rng = Spectrum(lags), lags, rng

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """The stored product, beside those of the exact values."""
        refuse_complex(chain)
        grid = LagGrid(chain, [chain.n_steps] if self._lags is None else self._lags, "start")
        stored = _StoredSpectrum(chain, self._arithmetic, grid, self._rng)
        return [stored, *self._exact.folds(chain)]

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> PlainSingularValues:
        """Both spectra and their ratio."""
        stored: _StoredSpectrum = folds[0]
        exact = self._exact.result(chain, folds[1:])
        values, _ = stored.grid.settle(chain, stored.log_sigma)
        own = stored.grid.in_order(values).reshape(exact.log_sigma.shape)
        with np.errstate(invalid="ignore"):
            ratio = own - exact.log_sigma
        both_zero = np.isneginf(own) & np.isneginf(exact.log_sigma)
        status = exact.status | np.where(stored.left_range, int(Status.LEFT_RANGE), 0).reshape(
            chain.batch_shape
        )
        flushed = stored.flushed.reshape(chain.batch_shape) & (not self._flush)
        return PlainSingularValues(
            roles=chain.roles,
            lags=exact.lags,
            log_sigma=own,
            exact_log_sigma=exact.log_sigma,
            log_ratio=np.where(both_zero, 0.0, ratio),
            status=status | np.where(flushed, int(Status.FLUSHED), 0),
            fmt=self._arithmetic.fmt.name,
            accumulate=self._arithmetic.accumulator.name,
            flush=self._flush,
        )


def plain_singular_values(
    chain: JacobianChain,
    fmt: str | Format,
    *,
    lags: ArrayLike | None = None,
    flush: bool = False,
    accumulate: str | Format | None = None,
    rng: Any = None,
) -> PlainSingularValues:
    r"""Singular values of a plain product in a float format, over the true ones.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
        Real.
    fmt : str or Format
        As for :func:`precision_events`.
    lags : array_like of int, shape (L,), each in 0 .. T, default: [T]
        From the start.
    flush : bool, default: False
        Turn outcomes below the smallest normal number into zero.
    accumulate : str or Format, optional
        Format of products and sums; default: `fmt` itself.
    rng : optional
        Seed or generator, needed where a format rounds at random.

    Returns
    -------
    PlainSingularValues
        ``log_sigma``, ``exact_log_sigma`` and ``log_ratio``, each (..., L, n); ``status``.

    Raises
    ------
    ValueError, TypeError
        As for :func:`precision_events`.

    Notes
    -----
    The product is that of :func:`precision_events`; its singular values come from an SVD in
    float64, whose own errors are about 1e-16 of the largest. A tail that stays at ln eps and below
    whatever the lag is rounding (:func:`trustworthy_rank` says where it begins). Cost 2 n^3
    operations a step, and that of :func:`singular_values`.

    References
    ----------
    .. [1] G. W. Stewart, ETNA 5 (1997) 29: what plain products lose.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[0.75, 0.25], [0.25, 0.75]]] * 40)
    >>> result = gp.plain_singular_values(chain, "float32", lags=[5, 40])
    >>> result.exact_log_sigma[1].round(3).tolist()
    [0.0, -27.726]
    >>> result.log_sigma[1].round(3).tolist()
    [0.0, -15.942]
    """
    quantity = PlainSpectrum(fmt, lags, flush, accumulate, rng)
    return measure(check_chain(chain), quantity)[0]  # type: ignore[no-any-return]
