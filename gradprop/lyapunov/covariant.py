"""Covariant Lyapunov vectors and the angles between the spaces that they span."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.chain import JacobianChain
from gradprop.lyapunov.ginelli import Ginelli
from gradprop.measure import check_chain
from gradprop.results import REPLICAS, Result, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class CovariantVectors(Result):
    """Covariant Lyapunov vectors along a chain.

    Attributes
    ----------
    times : int array, shape (W,)
        Steps already taken at each: the state h_t.
    vectors : float array, shape (..., W, n, k)
        Unit vectors v_i(t), columns in the order of the exponents; nan where not defined.
    growth : float array, shape (..., W, k)
        ln of the norm of J_{t+1} v_i(t), in nats: J_{t+1} v_i(t) = exp(growth) v_i(t+1).
    angles : float array, shape (..., W, S)
        Smallest principal angle, in radians, between the span of the first j vectors and that of
        the others, for each j of ``splits``.
    splits : int array, shape (S,)
    exponents : float array, shape (..., k)
        Mean growth from burn_in to T - tail, in nats per step.
    status : int array, shape (...,)
    burn_in, tail : int
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "times": ("time",),
        "vectors": (REPLICAS, "time", "unit", "i"),
        "growth": (REPLICAS, "time", "i"),
        "angles": (REPLICAS, "time", "split"),
        "splits": ("split",),
        "exponents": (REPLICAS, "i"),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "vectors"
    times: Int
    vectors: Float
    growth: Float
    angles: Float
    splits: Int
    exponents: Float
    status: Int
    burn_in: int
    tail: int


def covariant_vectors(
    chain: JacobianChain,
    k: int | None = None,
    *,
    burn_in: int,
    tail: int | None = None,
    times: ArrayLike | None = None,
    splits: ArrayLike | None = None,
    rng: Any = None,
) -> CovariantVectors:
    r"""Covariant Lyapunov vectors: directions that the chain carries into one another.

    .. math:: J_{t+1} v_i(t) = e^{g_i(t)}\, v_i(t+1), \quad
       \lambda_i = \lim_{T\to\infty} \tfrac1T \sum_t g_i(t)

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
    k : int in 1 .. n, optional
        How many leading ones; default: all n.
    burn_in : int, at least 0
        Steps at the start, in which the basis turns into place.
    tail : int, at least 1, default: max(burn_in, 1)
        Steps at the end, in which the backward recursion does.
    times : array_like of int, shape (W,), increasing, each in burn_in .. T - tail, default: all
        Where vectors, growth and angles are kept.
    splits : array_like of int, shape (S,), each in 1 .. k - 1, default: all
        Numbers j of leading vectors whose span is compared with that of the others.
    rng : seed or Generator, optional
        For the random basis at the start. Default: always the same.

    Returns
    -------
    CovariantVectors
        ``vectors`` (..., W, n, k), ``growth`` (..., W, k), ``angles`` (..., W, S), ``exponents``
        (..., k); ``status``.

    Raises
    ------
    ValueError, TypeError
        k > n, burn_in + tail > T, times or splits out of range.

    Notes
    -----
    Ginelli's method [1]_: with Q_t R_t = J_t Q_{t-1} and V_t = Q_t C_t, the triangular C obey
    C_{t-1} = R_t^{-1} C_t up to the norms of columns. Signs are consistent along the chain. Q and R
    are recomputed from about sqrt(T) checkpoints: memory W n k for the answer and about 2 sqrt(T)
    (n k + k^2) floats a replica beside it. 4 n^2 k + 16 n k^2 + k^3/3 flops a step, and up to about
    12 k^3 for each angle.

    Convergence is exponential in burn_in and tail, with the gaps between neighbouring exponents as
    rates: vectors of equal exponents are not defined (their common span is), and a gap d wants
    about 36/d steps for full precision. Rounding spoils vectors by eps over the angle between the
    spaces that they split; angles themselves are good to about k eps. Directions that are lost
    exactly have growth -inf and no vector, those behind one lost in rounding are nan; before a step
    at which a leading direction dies, others cannot be told from what dies with it: nan.

    References
    ----------
    .. [1] F. Ginelli et al., Characterizing dynamics with covariant Lyapunov vectors, Phys. Rev.
       Lett. 99 (2007) 130601, the backward recursion.
    .. [2] F. Ginelli, H. Chate, R. Livi, A. Politi, Covariant Lyapunov vectors, J. Phys. A 46
       (2013) 254005, arXiv:1212.3961, section 3: convergence of that algorithm.

    Examples
    --------
    >>> import gradprop as gp
    >>> chain = gp.JacobianChain.dense([[[2.0, 0.0], [1.0, 0.5]]] * 100)
    >>> v = gp.covariant_vectors(chain, burn_in=40, times=[50])  # eigenvectors (3, 2) and (0, 1)
    >>> abs(v.vectors[0]).round(6).tolist(), v.growth[0].round(6).tolist()
    ([[0.83205, 0.0], [0.5547, 1.0]], [0.693147, -0.693147])
    """
    check_chain(chain)
    k = chain.n if k is None else _checks.integer("k", k, minimum=1)
    if k > chain.n:
        raise ValueError(f"`k` must be at most n = {chain.n}; got {k}.")
    burn_in = _checks.integer("burn_in", burn_in, minimum=0)
    tail = max(burn_in, 1) if tail is None else _checks.integer("tail", tail, minimum=1)
    if burn_in + tail > chain.n_steps:
        raise ValueError(
            f"`burn_in` and `tail` must fit into the {chain.n_steps} steps of the chain; "
            f"got {burn_in} and {tail}."
        )
    last = chain.n_steps - tail
    at = np.arange(burn_in, last + 1) if times is None else times
    at = np.unique(_checks.integer_array("times", at, minimum=burn_in, maximum=last))
    cuts = np.arange(1, k)
    if splits is not None:
        cuts = _checks.integer_array("splits", splits, minimum=1, maximum=k - 1)
    _checks.generator("rng", 0 if rng is None else rng)
    if chain.structure == "diagonal":
        return _of_units(chain, k, (burn_in, tail), at, cuts)
    return _packed(chain, k, (burn_in, tail), at, cuts, 0 if rng is None else rng)


def _packed(
    chain: JacobianChain, k: int, ends: tuple[int, int], times: Int, splits: Int, rng: Any
) -> CovariantVectors:
    """Run both passes and mark what is not defined."""
    passes = Ginelli(chain, k, ends, rng)
    vectors, growth, angles = passes.run(times, splits)
    lengths, overflowed = chain.lengths.ravel(), chain.overflowed.ravel()
    zero, hidden = passes.lost()
    lost = zero | hidden
    exponents = np.where(zero, -np.inf, np.where(lost, np.nan, passes.mean_growth))
    growth = np.where(zero[:, None], -np.inf, np.where(lost[:, None], np.nan, growth))
    beyond = times > lengths[:, None] - ends[1]
    undefined = beyond | (times < passes.since[:, None])
    status = np.where(overflowed, int(Status.OVERFLOWED), 0)
    status |= np.where(beyond.any(axis=1) & ~overflowed, int(Status.PADDED), 0)
    status |= np.where(zero.any(axis=1), int(Status.ZERO), 0)
    status |= np.where(hidden.any(axis=1), int(Status.NOT_RESOLVED), 0)
    shape = chain.batch_shape
    kept = {"growth": growth, "angles": angles, "vectors": vectors}
    for name, value in kept.items():
        value[undefined] = np.nan
        kept[name] = value.reshape(*shape, *value.shape[1:])
    kept["vectors"][np.broadcast_to(lost.reshape(*shape, 1, 1, k), kept["vectors"].shape)] = np.nan
    return CovariantVectors(
        roles=chain.roles,
        times=times,
        splits=splits,
        exponents=exponents.reshape(*shape, k),
        status=status.reshape(shape),
        burn_in=ends[0],
        tail=ends[1],
        **kept,
    )


def _of_units(
    chain: JacobianChain, k: int, ends: tuple[int, int], times: Int, splits: Int
) -> CovariantVectors:
    """Of a diagonal chain: units in the order of their mean growth, at right angles."""
    with np.errstate(divide="ignore"):
        logs = np.concatenate([np.log(np.abs(b.factors)) for b in chain.blocks()], axis=1)  # type: ignore[union-attr]
    mean = logs[:, ends[0] : chain.n_steps - ends[1]].mean(axis=1)
    dead = np.isneginf(logs).any(axis=1)
    order = np.argsort(-np.where(dead, -np.inf, mean), axis=-1, kind="stable")[:, :k]
    R, W = len(order), len(times)
    vectors = np.zeros((R, W, chain.n, k))
    np.put_along_axis(vectors, np.broadcast_to(order[:, None, None], (R, W, 1, k)), 1.0, axis=2)
    growth = np.take_along_axis(logs[:, times], order[:, None], axis=2)
    shape, zero = chain.batch_shape, np.take_along_axis(dead, order, axis=1)
    exponents = np.where(zero, -np.inf, np.take_along_axis(mean, order, axis=1))
    return CovariantVectors(
        roles=chain.roles,
        times=times,
        vectors=vectors.reshape(*shape, *vectors.shape[1:]),
        growth=growth.reshape(*shape, W, k),
        angles=np.full((*shape, W, len(splits)), 0.5 * np.pi),
        splits=splits,
        exponents=exponents.reshape(*shape, k),
        status=np.where(zero.any(axis=1), int(Status.ZERO), 0).reshape(shape),
        burn_in=ends[0],
        tail=ends[1],
    )
