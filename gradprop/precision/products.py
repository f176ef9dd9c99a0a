"""What a format does to the long product: by another orbit, and by rounding along the same one."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.environment import single_threaded_blas
from gradprop.gradients._paths import rescale
from gradprop.linearise import step_jacobian
from gradprop.precision.emulated import Rounding
from gradprop.precision.formats import Format
from gradprop.precision.orbit import TwoOrbits
from gradprop.results import LN2, REPLICAS, Result, Status

BLOCK_FLOATS = 2**22
"""Floats of the Jacobians formed at a time (32 MiB)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProductError(Result):
    """Relative errors of a long product, in logs, by their two sources.

    Attributes
    ----------
    lags : int array, shape (T + 1,)
        0 .. T, from the start.
    log_state_error : float array, shape (..., T + 1)
        ln(||P' - P||_F / ||P||_F), P' the exact product along the orbit in the format; -inf where
        they are equal, nan past an overflow and where P is zero.
    log_jacobian_error : float array, shape (..., T + 1)
        The same of the plain product in the format along the orbit in float64: 0 once that is zero,
        inf or nan once it holds inf or nan.
    status : int array, shape (...,)
        OVERFLOWED: one of the orbits did. LEFT_RANGE: the plain product did.
    fmt, accumulate : str
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "lags": ("lag",),
        "log_state_error": (REPLICAS, "lag"),
        "log_jacobian_error": (REPLICAS, "lag"),
        "status": (REPLICAS,),
    }
    _table: ClassVar[str] = "log_state_error"
    lags: Int
    log_state_error: Float
    log_jacobian_error: Float
    status: Int
    fmt: str
    accumulate: str


class _Scaled:
    """Products P (R, m, m) times 2**exponent, one for each replica."""

    def __init__(self, n_replicas: int, size: int) -> None:
        self.P = np.tile(np.eye(size), (n_replicas, 1, 1))
        self.exponent = np.zeros(n_replicas, dtype=np.int64)

    def multiply(self, J: Float) -> None:
        """P <- J P, of factors whose entries may be close to either end of the range."""
        factor = _Scaled.of(J)
        self.P = factor.P @ self.P
        self.exponent += factor.exponent
        rescale([self.P], self.exponent)

    @classmethod
    def of(cls, P: Float) -> _Scaled:
        """A plain product, its power of two taken out."""
        made = cls(len(P), P.shape[-1])
        made.P = P.copy()
        rescale([made.P], made.exponent)
        return made

    def log_error(self, other: _Scaled) -> Float:
        """Relative Frobenius norm of the difference of another product from this one, as a log.

        Both are brought to the larger power of two, so that nothing is lost that counts.
        """
        top = np.maximum(self.exponent, other.exponent)
        mine, its = (np.ldexp(a.P, (a.exponent - top)[:, None, None]) for a in (self, other))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.log(np.linalg.norm(its - mine, axis=(1, 2)))
            size = np.log(np.linalg.norm(self.P, axis=(1, 2)))
            return np.asarray(off - size + (top - self.exponent) * LN2)


def product_error(
    cell: Cell,
    x: ArrayLike | None = None,
    *,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    fmt: str | Format = "float32",
    accumulate: str | Format | None = None,
    rng: Any = None,
) -> ProductError:
    r"""Relative error of the long product in a format: that of the orbit, and that of the product.

    Parameters
    ----------
    cell, x, h0, n_steps, fmt, accumulate, rng
        As :func:`orbit_error`.

    Returns
    -------
    ProductError
        ``log_state_error`` and ``log_jacobian_error`` (..., T + 1), ``status``.

    Raises
    ------
    ValueError, TypeError
        As :func:`orbit_error`.

    Notes
    -----
    P is the product of step Jacobians along the orbit in float64, its power of two kept apart. The
    state error swaps the orbit and keeps the arithmetic: Jacobians of the same cell at the states
    of the orbit in the format, multiplied in float64. The Jacobian error keeps the orbit and swaps
    the arithmetic: each Jacobian rounded once to the format, the plain product rounded operation by
    operation as in :func:`precision_events`. P itself is right to about m T eps of float64, below
    which differences mean nothing.

    2 m^3 operations a step three times over, the plain product at about 3 ns each; memory for a
    block of Jacobians.

    References
    ----------
    .. [1] N. J. Higham, Accuracy and stability of numerical algorithms, 2nd ed. (2002), section
       3.7: the error of a product of matrices.

    Examples
    --------
    A linear map has one product, whatever its orbit; 0.9 in bfloat16 is 0.8984375.

    >>> import numpy as np, gradprop as gp
    >>> cell = gp.RNN([[0.9]], activation="linear")
    >>> found = gp.product_error(cell, h0=[1.0], n_steps=1, fmt="bfloat16")
    >>> found.log_state_error.tolist(), np.exp(found.log_jacobian_error[1]).round(9).item()
    ([-inf, -inf], 0.001736111)
    """
    both = TwoOrbits(cell, x, h0, n_steps, fmt, accumulate, rng)
    orbit = both.orbit
    R, m, T = orbit.n_replicas, orbit.start.shape[-1], orbit.n_steps
    exact, along = _Scaled(R, m), _Scaled(R, m)
    plain = np.tile(np.eye(m), (R, 1, 1))
    logs = np.full((2, R, T + 1), -np.inf)
    size = max(BLOCK_FLOATS // max(R * m * m, 1), 1)
    with single_threaded_blas():
        for start in range(0, T, size):
            steps = slice(start, min(start + size, T))
            pairs = zip(*(_jacobians(both, s, steps) for s in (both.exact, both.low)), strict=True)
            for lag, (J, J_along) in enumerate(pairs, start=start + 1):
                exact.multiply(J)
                along.multiply(J_along)
                plain = _rounded_product(both.rounding, J, plain)
                logs[0, :, lag] = exact.log_error(along)
                logs[1, :, lag] = exact.log_error(_Scaled.of(plain))
    logs[:, np.arange(T + 1) > both.n_valid[:, None]] = np.nan
    left = ~np.isfinite(plain).all(axis=(1, 2)) & (both.n_valid == T)
    status = np.where(left, int(Status.LEFT_RANGE), 0)
    status |= np.where(both.n_valid < T, int(Status.OVERFLOWED), 0)
    shape = orbit.batch_shape
    return ProductError(
        roles=orbit.roles,
        lags=np.arange(T + 1),
        log_state_error=logs[0].reshape(*shape, T + 1),
        log_jacobian_error=logs[1].reshape(*shape, T + 1),
        status=status.reshape(shape),
        fmt=both.arithmetic.fmt.name,
        accumulate=both.arithmetic.accumulator.name,
    )


def _rounded_product(rounding: Rounding, J: Float, P: Float) -> Float:
    """Plain products J P in the format, J rounded first."""
    factors = rounding(J)
    return np.stack([rounding.dot(A, B) for A, B in zip(factors, P, strict=True)])


def _jacobians(both: TwoOrbits, states: Float, steps: slice) -> Float:
    """Step Jacobians (steps, R, m, m) at given states; past an overflow those at 0."""
    orbit = both.orbit
    m = states.shape[-1]
    before = np.nan_to_num(states[:, steps], nan=0.0).swapaxes(0, 1)
    x = None
    if orbit.x is not None:
        x = np.moveaxis(orbit.x[..., steps, :], -2, 0)
        # one-element axes between the steps and the replica axes that the input lacks
        missing = len(orbit.batch_shape) - (x.ndim - 2)
        x = x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])
    J = step_jacobian(both.cell, before.reshape(-1, *orbit.batch_shape, m), x)
    return J.reshape(-1, orbit.n_replicas, m, m)
