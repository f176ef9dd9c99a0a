"""Norms of powers of nonnegative matrices: what the magnitudes of the weights alone allow."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from gradprop import _checks
from gradprop.blocks import Float, Int
from gradprop.environment import single_threaded_blas
from gradprop.largest import largest_singular_values
from gradprop.results import log_of_scaled

TABLE_FLOATS = 2**20
"""Floats that the table of a matrix's first powers may hold (8 MiB)."""

FLOOR = 2.0**-1000
"""Entries of powers that fall below this share of the largest are raised to it, never lost."""


def perron_log_norms(
    W: ArrayLike, lags: ArrayLike, *, gamma: float = 1.0, leak: float = 1.0
) -> Float:
    r"""Ln of the norm of powers of a matrix of magnitudes, a bound for every signed product.

    .. math:: \ln \lVert ((1-\alpha) I + \alpha\gamma |W|)^\ell \rVert_2

    Parameters
    ----------
    W : array_like, shape (..., n, n)
    lags : array_like of int, shape (L,), none negative
    gamma : float, default: 1
        sup |phi'|.
    leak : float in (0, 1], default: 1
        :math:`\alpha`.

    Returns
    -------
    float64 array, shape (..., L)
        In nats; -inf where the power is exactly zero.

    Raises
    ------
    ValueError, TypeError
        A W that is not square, not finite or not real; a negative lag or gamma.

    Notes
    -----
    For leak = 1 the curve of c W is that of W plus lag ln |c|, so that a network rescaled to many
    spectral radii needs it once. Powers are formed from a table and by squaring, with a power of
    two taken out; nothing cancels, so the relative error is at most lag n eps. Cost per matrix: one
    or two products and an SVD (about 10 n^3) at each lag.

    References
    ----------
    .. [1] R. A. Horn, C. R. Johnson, Matrix Analysis, 2nd ed. (2013), theorem 8.1.18,
       applied to P^T P.

    Examples
    --------
    >>> import numpy as np
    >>> np.exp(perron_log_norms([[0.9, -50.0], [0.0, 0.9]], [0, 9, 50])).round(3).tolist()
    [1.0, 193.711, 14.316]
    """
    array = _checks.real_array("W", W, shape=("n", "n"))
    wanted = _checks.integer_array("lags", lags, minimum=0, maximum=2**53)
    gamma = _checks.real("gamma", gamma, at_least=0.0)
    leak = _checks.real("leak", leak, above=0.0, at_most=1.0)
    unique, inverse = np.unique(wanted, return_inverse=True)
    n = array.shape[-1]
    curves = [_perron_curve(A, unique, gamma, leak) for A in array.reshape(-1, n, n)]
    flat = np.array(curves).reshape(-1, len(unique))[:, inverse]
    return flat.reshape(*array.shape[:-2], len(wanted))


def _perron_curve(W: Float, lags: Int, gamma: float, leak: float) -> Float:
    """The curve of one matrix at lags (L,), ascending: A^lag = A^(lag mod w) (A^w)^(lag // w)."""
    n = len(W)
    room = max(1, min(len(lags), TABLE_FLOATS // n**2))
    table, step = _first_powers(_Scaled.envelope(W, gamma, leak), 2 ** (room.bit_length() - 1))
    width = len(table.exponent)
    ladder, base, at = [step], _Scaled.identity(n), 0
    out = np.empty(len(lags))
    groups, starts = np.unique(lags // width, return_index=True)
    with single_threaded_blas():
        for group, own in zip(groups, np.split(np.arange(len(lags)), starts[1:]), strict=True):
            base, at = _advanced(base, int(group) - at, ladder), int(group)
            powers = table.at(lags[own] % width).times(base)
            sigma = largest_singular_values(powers.mantissa)
            out[own] = log_of_scaled(sigma, powers.exponent)
    return out


@dataclasses.dataclass(frozen=True)
class _Scaled:
    """Nonnegative matrices mantissa * 2**exponent, one or many along the first axis."""

    mantissa: Float
    exponent: Int

    @classmethod
    def identity(cls, n: int) -> _Scaled:
        """One identity matrix."""
        return cls(np.eye(n), np.zeros((), dtype=np.int64))

    @classmethod
    def envelope(cls, W: Float, gamma: float, leak: float) -> _Scaled:
        """(1 - leak) I + leak gamma |W|; entries below FLOOR times the largest become that."""
        size, power = np.frexp(np.abs(W))
        factor, factor_power = math.frexp(leak * gamma)
        keep, keep_power = math.frexp(1.0 - leak)
        live = size * factor > 0
        tops = [keep_power] if keep > 0 else []
        if live.any():
            tops.append(int(power[live].max()) + factor_power)
        top = max(tops, default=0)
        shift = np.maximum(power + (factor_power - top), -1000)
        A = np.where(live, np.ldexp(size * factor, shift), 0.0)
        np.einsum("ii->i", A)[:] += math.ldexp(keep, max(keep_power - top, -1000))
        return cls(A, np.asarray(top, dtype=np.int64))

    def at(self, index: Int) -> _Scaled:
        """Some of many."""
        return _Scaled(self.mantissa[index], self.exponent[index])

    def times(self, other: _Scaled) -> _Scaled:
        """Products, rescaled by powers of two; what underflows is raised to FLOOR."""
        C = self.mantissa @ other.mantissa
        if (C < FLOOR).any():
            # an upper bound must not lose a path through the network, however thin
            linked = (self.mantissa > 0).astype(float) @ (other.mantissa > 0).astype(float) > 0
            C = np.where(linked, np.maximum(C, FLOOR), 0.0)
        shift = np.frexp(C.max(axis=(-2, -1)))[1].astype(np.int64)
        return _Scaled(np.ldexp(C, -shift[..., None, None]), self.exponent + other.exponent + shift)


def _first_powers(A: _Scaled, width: int) -> tuple[_Scaled, _Scaled]:
    """A^0 .. A^(width-1), and A^width, for a width that is a power of two."""
    one = _Scaled.identity(len(A.mantissa))
    table = _Scaled(one.mantissa[None], one.exponent[None])
    with single_threaded_blas():
        while len(table.exponent) < width:
            more = table.times(A)
            table = _Scaled(
                np.concatenate([table.mantissa, more.mantissa]),
                np.concatenate([table.exponent, more.exponent]),
            )
            A = A.times(A)
    return table, A


def _advanced(base: _Scaled, steps: int, ladder: list[_Scaled]) -> _Scaled:
    """`base` times step^steps; `ladder` holds step^1, step^2, step^4, ... and grows as needed."""
    rung = 0
    while steps:
        if rung == len(ladder):
            ladder.append(ladder[-1].times(ladder[-1]))
        if steps & 1:
            base = base.times(ladder[rung])
        steps >>= 1
        rung += 1
    return base
