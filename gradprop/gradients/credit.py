"""Credit assignment: how much every state depends on every earlier one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.measure import check_chain
from gradprop.norms import log_norms
from gradprop.results import REPLICAS, Result, Status
from gradprop.sources import SliceSource

MAX_FLOPS = 1e12
"""Work that is done without being asked for by `steps`: some minutes."""

MAX_ENTRIES = 2**24
"""Entries of the matrices of all replicas (128 MiB)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreditMatrix(Result):
    """Norms of the derivatives of states by earlier states.

    Attributes
    ----------
    later, earlier : int arrays, shape (S,)
        Steps s of the rows and t of the columns: the same numbers, ascending; 0 is the start.
    log_norm : float array, shape (..., S, S)
        ln ||dh_s/dh_t|| in nats: 0 on the diagonal, -inf above it, where the derivative is zero.
    error : float array, shape (..., S, S)
        As that of :func:`log_norms`.
    status : int array, shape (...,)
        ZERO: some product is exactly zero (those above the diagonal are not counted).
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "later": ("later",),
        "earlier": ("earlier",),
        "log_norm": (REPLICAS, "later", "earlier"),
        "error": (REPLICAS, "later", "earlier"),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "log_norm"
    later: Int
    earlier: Int
    log_norm: Float
    error: Float
    status: Int


def credit_matrix(chain: JacobianChain, *, steps: ArrayLike | None = None) -> CreditMatrix:
    r"""Natural log of the norm of every state's derivative by every earlier state.

    .. math:: C_{st} = \ln \lVert \partial h_s / \partial h_t \rVert_2
        = \ln \lVert J_s J_{s-1} \cdots J_{t+1} \rVert_2, \quad t \le s

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
        Of the full state: [h; c] for an LSTM, all layers for a stack.
    steps : array_like of int, shape (S,), each in 0 .. T, optional
        Rows and columns wanted, for long chains. Default: all.

    Returns
    -------
    CreditMatrix
        ``log_norm`` (..., S, S), row = to, column = from, with ``error``.

    Raises
    ------
    ValueError, TypeError
        A step outside 0 .. T; all steps of a chain so long that they take more than 1e12 flops, or
        the matrices more than 2^24 entries: give `steps`.

    Notes
    -----
    One forward pass from each of the S steps, about 16 n^3 flops a factor: 8 n^3 T^2 for all.
    Nothing over- or underflows. Past its own length a padded sequence keeps its state: derivatives
    are those of the last valid step. Past an overflow they are nan.

    References
    ----------
    .. [1] Y. Bengio, P. Simard, P. Frasconi, Learning long-term dependencies with gradient descent
       is difficult, IEEE Trans. Neural Netw. 5, 157 (1994).

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.credit_matrix(gp.JacobianChain.dense([[[0.5]], [[4.0]]])).log_norm.round(4).tolist()
    [[0.0, -inf, -inf], [-0.6931, 0.0, -inf], [0.6931, 1.3863, 0.0]]
    """
    check_chain(chain)
    chosen = _chosen_steps(chain, steps)
    S, batch = len(chosen), chain.batch_shape
    log_norm, error = np.full((*batch, S, S), -np.inf), np.zeros((*batch, S, S))
    status = np.zeros(batch, dtype=np.int64)
    # what is known ends where an orbit overflowed: to the passes that is a length like any other
    known = dataclasses.replace(
        chain, source=SliceSource(chain.source, 0), valid=chain.lengths.ravel()
    )
    for j, start in enumerate(chosen):
        rest = known.tail(chain.n_steps - int(start))
        curve = log_norms(rest, lags=chosen[j:] - start)
        log_norm[..., j:, j], error[..., j:, j] = curve.log_norm, curve.error
        status |= curve.status
    lost = chain.overflowed[..., None] & (chosen > chain.lengths[..., None])
    lost = (lost[..., :, None] | lost[..., None, :]) & np.tri(S, dtype=np.bool_)
    log_norm[lost] = error[lost] = np.nan
    return CreditMatrix(
        roles=chain.roles,
        later=chosen,
        earlier=chosen,
        log_norm=log_norm,
        error=error,
        status=np.where(chain.overflowed, status & ~Status.PADDED | Status.OVERFLOWED, status),
    )


def _chosen_steps(chain: JacobianChain, steps: ArrayLike | None) -> Int:
    """Sorted steps without repetition; refuses all of them where there are too many."""
    T, n = chain.n_steps, chain.n
    if steps is not None:
        chosen = np.unique(_checks.integer_array("steps", steps, minimum=0, maximum=T))
    else:
        chosen = np.arange(T + 1)
        flops = chain.n_replicas * 0.5 * T**2 * (20.0 * n if _is_diagonal(chain) else 16.0 * n**3)
        if flops > MAX_FLOPS:
            raise ValueError(
                f"`steps` must be given for all pairs of {T} steps of {n} units and "
                f"{chain.n_replicas} replicas, about {flops:.1e} flops; got None."
            )
    entries = chain.n_replicas * len(chosen) ** 2
    if entries > MAX_ENTRIES:
        raise ValueError(
            f"`steps` must leave at most {MAX_ENTRIES} pairs, over all replicas; got {entries} "
            f"from {len(chosen)} steps of {chain.n_replicas} replicas."
        )
    return chosen


def _is_diagonal(chain: JacobianChain) -> bool:
    return chain.structure == "diagonal"
