"""How many singular values a plain product in a format can be trusted with."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop.blocks import Int
from gradprop.chain import JacobianChain
from gradprop.measure import check_chain
from gradprop.precision.formats import Format, format_of
from gradprop.results import REPLICAS, Result, Status
from gradprop.singular import singular_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustworthyRank(Result):
    """How many singular values of a plain product stand above its rounding errors.

    Attributes
    ----------
    lags : int array, shape (L,)
    rank : int array, shape (..., L)
        Number of sigma_i > n eps sigma_1; 0 for a product that is exactly zero, or n eps >= 1.
    status : int array, shape (...,)
        NOT_RESOLVED: some value that could count is not known, and the rank is a lower bound.
    fmt : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "rank": (REPLICAS, "lag"),
        "status": (REPLICAS,),
    }
    lags: Int
    rank: Int
    status: Int
    fmt: str


def trustworthy_rank(
    chain: JacobianChain, fmt: str | Format, *, lags: ArrayLike | None = None
) -> TrustworthyRank:
    r"""How many singular values a plain product in a float format can be trusted with.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    fmt : str or Format
        Only its eps counts.
    lags : array_like of int, shape (L,), each in 0 .. T, default: [T]

    Returns
    -------
    TrustworthyRank
        ``rank`` (..., L), the number of :math:`\sigma_i > n\,\epsilon\,\sigma_1`, from the exact
        singular values; ``status``.

    Raises
    ------
    ValueError, TypeError
        An unknown format, a lag outside 0 .. T.

    Notes
    -----
    Rounding one product disturbs it by about :math:`n\,\epsilon` of its norm, below which singular
    values of the stored product are those of the disturbance: a tail that is flat and does not move
    with the lag. Under- and overflow are not counted here (see :func:`precision_events`). Cost that
    of :func:`singular_values`.

    References
    ----------
    .. [1] N. J. Higham, Accuracy and stability of numerical algorithms, 2nd ed. (2002), section
       3.5: the error of a matrix product.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.diagonal([[1.0, 0.5, 0.1]] * 20)
    >>> gp.trustworthy_rank(chain, "float32", lags=[1, 7, 20]).rank.tolist()
    [3, 2, 2]
    """
    known = format_of(fmt)
    check_chain(chain)
    values = singular_values(chain, lags=lags)
    logs, first = values.log_sigma, values.log_sigma[..., :1]
    with np.errstate(invalid="ignore"):
        counts = logs > first + np.log(chain.n) + known.log_eps
    # values descend: one that is not known may count unless a known one before it does not
    unknown = np.isnan(logs)
    small = np.logical_or.accumulate(~counts & ~unknown, axis=-1)
    lost = (unknown & ~small).any(axis=(-2, -1))
    status = np.asarray(values.status) & ~int(Status.NOT_RESOLVED)
    return TrustworthyRank(
        roles=chain.roles,
        lags=values.lags,
        rank=counts.sum(axis=-1),
        status=status | np.where(lost, int(Status.NOT_RESOLVED), 0),
        fmt=known.name,
    )
