"""Events of plain products: where a format loses the Jacobian product, and where it should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.chain import JacobianChain
from gradprop.measure import Fold, check_chain, measure
from gradprop.norms import Norms
from gradprop.precision.crossings import ExactNorms, first_lag, limits_of
from gradprop.precision.formats import Format, check_rng
from gradprop.precision.lags import PrecisionEvents
from gradprop.precision.stored import Arithmetic, StoredProduct, identity_start, refuse_complex
from gradprop.pullback import Pullback
from gradprop.results import Status


class Events:
    """Quantity: events of plain products (see :func:`precision_events`, whose arguments these are).

    Parameters
    ----------
    fmt : str or Format
    of : {"matrix", "vector", "scalar"}, default: "matrix"
    flush : bool, default: False
    accumulate : str or Format, optional
    loss_scale : float, default: 1
    u : array_like, shape (..., n), optional
    rng : optional
    """

    def __init__(
        self,
        fmt: str | Format,
        of: str = "matrix",
        flush: bool = False,
        accumulate: str | Format | None = None,
        loss_scale: float = 1.0,
        u: ArrayLike | None = None,
        rng: Any = None,
    ) -> None:
        self._of = str(_checks.choice("of", of, ("matrix", "vector", "scalar")))
        self._flush = bool(_checks.choice("flush", flush, (True, False)))
        self._arithmetic = Arithmetic.checked(fmt, accumulate, self._flush)
        self._loss_scale = _checks.real("loss_scale", loss_scale, above=0.0)
        if u is not None and of != "vector":
            raise ValueError(f"`u` must be left out for of={of!r}, which starts at the identity.")
        self._u = u
        check_rng(rng, self._arithmetic.fmt, self._arithmetic.accumulator)
        self._rng = rng

    def folds(self, chain: JacobianChain) -> Sequence[Fold]:
        """The product in the format, beside the exact norms."""
        refuse_complex(chain)
        if self._of == "scalar" and chain.n != 1:
            raise ValueError(f"`chain` must have one unit for of='scalar'; got {chain.n}.")
        exact = self._exact(chain).folds(chain)
        start = self._start(chain)
        largest = np.abs(start).max(axis=(1, 2))
        if not (largest > 0).all():
            raise ValueError("`u` must not be zero; it is for at least one replica.")
        if not (largest <= self._arithmetic.fmt.max).all():
            raise ValueError(
                f"`loss_scale` must leave the start within the range of `fmt`; got "
                f"{self._loss_scale}, which with u comes to {largest.max():.6g}, for a format that "
                f"ends at {self._arithmetic.fmt.max:.6g}."
            )
        stored = StoredProduct(chain, self._arithmetic, start, self._of == "vector", self._rng)
        return [stored, *exact]

    def _exact(self, chain: JacobianChain) -> Norms | Pullback:
        if self._of == "vector":
            return Pullback(self._cotangent(chain))
        return Norms(2 if chain.structure == "diagonal" else "fro")

    def _cotangent(self, chain: JacobianChain) -> ArrayLike:
        return np.full(chain.n, chain.n**-0.5) if self._u is None else self._u

    def _start(self, chain: JacobianChain) -> Float:
        """P_0 before rounding, (R, n, p)."""
        R, n = chain.n_replicas, chain.n
        if self._of == "vector":
            u = np.asarray(self._cotangent(chain), dtype=np.float64)
            start = np.broadcast_to(u, (*chain.batch_shape, n)).reshape(R, n, 1)
        else:
            start = identity_start(chain)
        with np.errstate(over="ignore"):
            return np.asarray(start * self._loss_scale)

    def result(self, chain: JacobianChain, folds: Sequence[Any]) -> PrecisionEvents:
        """Events by replica; the exact 2-norm is computed where the Frobenius norm leaves doubt."""
        from gradprop._kernels import rounding

        stored: StoredProduct = folds[0]
        norms = self._exact(chain).result(chain, folds[1:])
        shift = float(np.log(self._loss_scale))
        exact = ExactNorms.of(chain, norms, shift)
        stuck = first_lag(stored.same & exact.changes(chain.n))
        # at lag 0 the norm wanted is that of c I or of a vector: a Frobenius norm has sqrt(n) c
        log_start = exact.log_norm[:, 0] if self._of == "vector" else np.full(len(stuck), shift)
        limits = limits_of(self._arithmetic.fmt, log_start)
        if self._of != "vector" and chain.structure != "diagonal":
            exact = exact.refined(chain, limits, shift)
        crossings, doubtful = exact.crossings(limits)
        status = norms.status.ravel() | np.where(doubtful, int(Status.NOT_RESOLVED), 0)
        status |= np.where(stored.flushed & (not self._flush), int(Status.FLUSHED), 0)
        lags = {
            "n_eps": stored.events[:, rounding.EPS],
            "n_subnormal_any": stored.events[:, rounding.SUBNORMAL_ANY],
            "n_subnormal_all": stored.events[:, rounding.SUBNORMAL_ALL],
            "n_zero": stored.events[:, rounding.ZERO],
            "n_overflow": stored.events[:, rounding.OVERFLOW],
            "n_nan": stored.events[:, rounding.NAN],
            "n_stuck": stuck,
            **{f"exact_{name}": lag for name, lag in crossings.items()},
        }
        return PrecisionEvents(
            roles=chain.roles,
            **{name: value.reshape(chain.batch_shape) for name, value in lags.items()},
            status=status.reshape(chain.batch_shape),
            fmt=self._arithmetic.fmt.name,
            accumulate=self._arithmetic.accumulator.name,
            of=self._of,
            flush=self._flush,
            loss_scale=self._loss_scale,
        )


def precision_events(
    chain: JacobianChain,
    fmt: str | Format,
    *,
    of: str = "matrix",
    flush: bool = False,
    accumulate: str | Format | None = None,
    loss_scale: float = 1.0,
    u: ArrayLike | None = None,
    rng: Any = None,
) -> PrecisionEvents:
    r"""Where a plain product in a float format loses the long product, and where it should.

    Parameters
    ----------
    chain : JacobianChain, batch shape (...), n units, T steps
        Real.
    fmt : str or Format
        A name (see :class:`Format`), or a format of at most 25 bits of precision and 10 of
        exponent.
    of : {"matrix", "vector", "scalar"}, default: "matrix"
        "matrix": :math:`P_\ell = J_\ell \cdots J_1`, multiplied from the left, lags from the start.
        "vector": :math:`P_\ell^\top u = J_{T-\ell+1}^\top \cdots J_T^\top u`, pulled back step by
        step as back-propagation does, lags from the last valid step. "scalar": as "matrix", for a
        chain of one unit.
    flush : bool, default: False
        Turn every outcome below the smallest normal number (of the format, or of the accumulator
        while it is summed) into zero, as processors told to do.
    accumulate : str or Format, optional
        Format of products and sums, rounded to `fmt` at the end; default: `fmt` itself.
    loss_scale : float, default: 1
        Positive factor of the start: of u, or of the identity.
    u : array_like, shape (..., n), optional
        Cotangent for of="vector"; default: ones / sqrt(n).
    rng : optional
        Seed or generator, needed where a format rounds at random and refused elsewhere.

    Returns
    -------
    PrecisionEvents
        Lags ``n_eps``, ``n_subnormal_any``, ... (...,), 0 where an event is not within the chain;
        ``.event(name)`` of a single network (None then); ``.exact``, the lags at which the norm of
        the exact product passes the limits of the format; ``status``.

    Raises
    ------
    ValueError, TypeError
        An unknown format, of, or accumulator; an accumulator narrower than the format; a complex
        diagonal; a loss scale that is not positive or overflows at once; u that does not fit; rng
        missing, or given for nothing.

    Notes
    -----
    Jacobians are formed in float64 and rounded once; sums run over the summed index ascending,
    every product and sum rounded, none fused. BLAS sums in another order, which may move zeros,
    overflows and nan by a step or two. Diagonal chains are multiplied entry by entry (a dense
    product would make nan of 0 times inf).

    Formats other than float64 and float32 are carried in float64, where a product of two of their
    numbers is exact and rounding a sum twice changes nothing [3]_; the processor's own mode does
    not touch them. A format without infinities overflows where an entry reaches its largest number,
    at which outcomes stay. Where products are rounded at random, one that happens to keep its bits
    for a step counts as stuck.

    Cost 2 n^3 operations a step, 2 n^2 for a vector; 2 to 3 times as long for carried formats, a
    hundred times for rounding at random (and where most numbers are subnormal on some processors).
    The exact norms take twice as much again, and a second pass over few lags. ``n_eps`` is decided
    by singular values of the stored product wherever cheaper bounds leave doubt.

    Exact verdicts that lie within the stated error of the norm are flagged NOT_RESOLVED. If the
    processor flushes without being asked to, status says FLUSHED.

    References
    ----------
    .. [1] N. J. Higham, Accuracy and stability of numerical algorithms, 2nd ed. (2002), sections
       2.1 and 3.5.
    .. [2] P. Micikevicius et al., Mixed precision training, ICLR 2018, section 3.2 (loss scale).
    .. [3] S. A. Figueroa, When is double rounding innocuous?, SIGNUM Newsl. 30 (1995) 21.

    Examples
    --------
    >>> import gradprop as gp
    >>> half = gp.JacobianChain.dense([[[0.5]]] * 200)
    >>> events = gp.precision_events(half, "float32")
    >>> [events.event(name) for name in ("n_eps", "n_subnormal_any", "n_zero", "n_nan")]
    [24, 127, 150, None]
    >>> gp.precision_events(half, "float32", flush=True).event("n_zero")
    127
    >>> gp.precision_events(half, "bfloat16").event("n_zero")
    134
    """
    quantity = Events(fmt, of, flush, accumulate, loss_scale, u, rng)
    return measure(check_chain(chain), quantity)[0]  # type: ignore[no-any-return]
