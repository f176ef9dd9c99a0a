"""Spectral radius and spectral norm of weight matrices, and rescaling to either."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks
from gradprop.environment import single_threaded_blas

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LARGEST_N = 2048
"""Largest matrix whose dense eigenvalues are computed: some 10 s on one core."""
ORDINARY = 400
"""Eigenvalues go straight to LAPACK if all non-zero entries lie within 2**-400 .. 2**400."""


def spectral_radius(W: ArrayLike) -> np.float64 | Float:
    r"""Largest magnitude of the eigenvalues of each matrix, :math:`\rho(W)`.

    Parameters
    ----------
    W : array_like of float, shape (..., n, n), n <= 2048; leading axes are replicas

    Returns
    -------
    float64, shape (...)
        Real whatever the eigenvalues are; the same bits for the same input. inf only if the
        radius itself is above the largest float.

    Raises
    ------
    TypeError
        `W` is complex, longdouble or does not hold numbers.
    ValueError
        `W` is not square, is empty, has more than 2048 units, or an entry is not finite (the
        index is named).

    See Also
    --------
    spectral_norm : an upper bound, equal for normal matrices, accurate for all.

    Notes
    -----
    Dense eigenvalues (LAPACK ``geev``), O(n³): about 10 ms for sixteen matrices of n = 64, 0.8 s
    for n = 1024. They are exact for matrices within about n eps ‖W‖ of W; an eigenvalue whose left
    and right vectors enclose the angle θ moves by up to 1/cos θ times that. So the radius of a
    **strongly non-normal matrix is inaccurate**: a Jordan block of size k is off by up to
    (eps ‖W‖)^(1/k) [1]_, 1e-2 at k = 8, and for triangular matrices hidden in a rotated basis the
    computed radius can be pure rounding. Triangular matrices as they stand, also
    permuted, are exact. ``initialise("nonnormal", ...)`` therefore takes the radius from its
    triangular factor and never from here.

    A matrix whose repeated squares vanish exactly in floating point has radius 0 exactly; that
    catches nilpotent matrices of small integers, on which LAPACK gives noise. Entries beyond
    2^±400 are first brought into range by a diagonal similarity in powers of two, without which
    LAPACK's own scaling would lose the small ones.

    References
    ----------
    .. [1] G. H. Golub, C. F. Van Loan, Matrix Computations, 4th ed. (2013), section 7.2.3.

    Examples
    --------
    >>> import gradprop as gp
    >>> float(gp.spectral_radius([[3.0, 3.0], [0.0, 3.0]]))
    3.0
    >>> gp.spectral_radius([[[0, -2], [2, 0]], [[1, 0], [0, 0]]])
    array([2., 1.])
    """
    with np.errstate(over="ignore"):
        return _value(*scaled_radius(_checked_for_eigenvalues(W)))


def spectral_norm(W: ArrayLike) -> np.float64 | Float:
    r"""Largest singular value of each matrix, :math:`\lVert W\rVert_2`.

    Parameters
    ----------
    W : array_like of float, shape (..., n, n); leading axes are replicas

    Returns
    -------
    float64, shape (...)
        inf only if the norm itself is above the largest float.

    Raises
    ------
    TypeError
        `W` is complex, longdouble or does not hold numbers.
    ValueError
        `W` is not square, is empty, or an entry is not finite (the index is named).

    See Also
    --------
    spectral_radius : never larger; equal for normal matrices.

    Notes
    -----
    Dense singular values (LAPACK ``gesdd``) of the matrix scaled by a power of two, so that
    entries of 1e200 or 1e-200 neither over- nor underflow. Relative error about n eps for every
    matrix; O(n³), 0.2 s at n = 1024.

    Examples
    --------
    >>> import gradprop as gp
    >>> print(f"{gp.spectral_norm([[3.0, 3.0], [0.0, 3.0]]):.10f}")
    4.8541019662
    """
    with np.errstate(over="ignore"):
        return _value(*scaled_norm(_checks.real_array("W", W, shape=("n", "n"))))


def rescale(
    W: ArrayLike,
    *,
    spectral_radius: ArrayLike | None = None,
    spectral_norm: ArrayLike | None = None,
) -> Float:
    """Multiply each matrix by the number that gives it a spectral radius or a spectral norm.

    Parameters
    ----------
    W : array_like of float, shape (..., n, n); leading axes are replicas
    spectral_radius, spectral_norm : array_like of float, broadcastable to (...), not negative
        The value to reach; exactly one of the two.

    Returns
    -------
    float64 array, shape (..., n, n)
        Leading axes broadcast: a scalar W and 21 radii give 21 matrices.

    Raises
    ------
    TypeError
        An array is complex, longdouble or does not hold numbers.
    ValueError
        Both or neither are given; a value is negative or not finite; the spectral radius (or
        norm) of a matrix is zero; an entry of the result would overflow; and as
        :func:`spectral_radius`, :func:`spectral_norm`.

    Notes
    -----
    As accurate as the computed radius: see :func:`spectral_radius` on non-normal matrices.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.rescale([[0.0, 2.0], [8.0, 0.0]], spectral_radius=1.0)
    array([[0. , 0.5],
           [2. , 0. ]])
    """
    given = {"spectral_radius": spectral_radius, "spectral_norm": spectral_norm}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        rule = "exactly one of `spectral_radius` and `spectral_norm` must be given"
        raise ValueError(f"{rule}; got {' and '.join(chosen) or 'neither'}.")
    name = chosen[0]
    target = checked_target(name, given[name])
    if name == "spectral_radius":
        array = _checked_for_eigenvalues(W)
        mantissa, exponent = scaled_radius(array)
    else:
        array = _checks.real_array("W", W, shape=("n", "n"))
        mantissa, exponent = scaled_norm(array)
    _checks.broadcast_shapes(**{"W": array.shape[:-2], name: target.shape})
    return scaled_to(array, mantissa, exponent, target, name.replace("_", " "))


def checked_target(name: str, value: Any) -> Float:
    """Return the radius or norm to reach as an array of finite numbers, none negative."""
    target = _checks.real_array(name, value)
    if (target < 0).any():
        raise ValueError(f"`{name}` must not be negative; got {target[target < 0][0]}.")
    return target


def scaled_to(W: Float, mantissa: Float, exponent: Int, target: Float, what: str) -> Float:
    """Multiply W (..., n, n), whose `what` is mantissa * 2**exponent, so that it becomes target."""
    if (mantissa == 0).any():
        index = tuple(int(i) for i in np.argwhere(mantissa == 0)[0])
        where = f" (matrix {index})" if index else ""
        raise ValueError(f"`W` cannot be rescaled: its {what} is zero{where}.")
    factor = target / mantissa
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(W, -exponent[..., None, None]) * factor[..., None, None]
    if not np.isfinite(scaled).all():
        raise ValueError(f"`W` cannot be rescaled to this {what}: an entry would overflow.")
    return np.asarray(scaled)


def _checked_for_eigenvalues(W: ArrayLike) -> Float:
    array = _checks.real_array("W", W, shape=("n", "n"))
    if array.shape[-1] > LARGEST_N:
        raise ValueError(
            f"`W` must have at most {LARGEST_N} units for its eigenvalues; got n = "
            f"{array.shape[-1]}. spectral_norm has no such limit, and is an upper bound."
        )
    return array


def _value(mantissa: Float, exponent: Int) -> np.float64 | Float:
    return np.asarray(np.ldexp(mantissa, exponent))[()]


def scaled_norm(W: Float) -> tuple[Float, Int]:
    """Mantissa and exponent of each spectral norm, so that none over- or underflows."""
    exponent = np.frexp(np.abs(W).max(axis=(-2, -1)))[1].astype(np.int64)
    with single_threaded_blas():
        sigma = np.linalg.svd(np.ldexp(W, -exponent[..., None, None]), compute_uv=False)[..., 0]
    mantissa, more = np.frexp(sigma)
    return np.asarray(mantissa), np.asarray(exponent + more)


def scaled_radius(W: Float) -> tuple[Float, Int]:
    """Mantissa and exponent of each spectral radius, so that none over- or underflows."""
    n = W.shape[-1]
    flat = W.reshape(-1, n, n)
    mantissa, exponent = np.zeros(len(flat)), np.zeros(len(flat), dtype=np.int64)
    size = np.abs(flat)
    smallest = np.where(size > 0, size, np.inf).min(axis=(1, 2))
    ordinary = (size.max(axis=(1, 2)) < 2.0**ORDINARY) & (smallest > 2.0**-ORDINARY)
    with single_threaded_blas():
        if ordinary.any():
            mantissa[ordinary], exponent[ordinary] = np.frexp(_radii(flat[ordinary]))
        for i in np.flatnonzero(~ordinary):
            mantissa[i], exponent[i] = _radius_out_of_range(flat[i])
    return mantissa.reshape(W.shape[:-2]), exponent.reshape(W.shape[:-2])


def _radii(W: Float) -> Float:
    """Spectral radii of a stack of matrices without extreme entries."""
    radii = np.asarray(np.abs(np.linalg.eigvals(W)).max(axis=-1), dtype=np.float64)
    # Below this share of the norm LAPACK's value may be rounding of a nilpotent matrix.
    for i in np.flatnonzero(radii <= 0.02 * np.linalg.norm(W, axis=(-2, -1))):
        if _powers_vanish(W[i]):
            radii[i] = 0.0
    return radii


def _powers_vanish(W: Float) -> bool:
    """Whether W**m for some m >= n is exactly zero in floating point, and not by underflow."""
    power = W
    for _ in range(max(1, (len(W) - 1).bit_length())):
        top = np.abs(power).max()
        if top == 0:
            return True
        power = np.ldexp(power, -np.frexp(top)[1])
        if np.abs(power[power != 0]).min() < 2.0**-500:
            return False
        power = power @ power
    return not power.any()


def _radius_out_of_range(W: Float) -> tuple[float, int]:
    """Radius of one matrix with extreme entries, as mantissa and exponent.

    Rows or columns without off-diagonal entries are split off, as their diagonal entry is an
    eigenvalue; the rest is balanced by a similarity in powers of two.
    """
    found = [np.frexp(0.0)]
    while len(W):
        linked = (W != 0) & ~np.eye(len(W), dtype=bool)
        alone = ~linked.any(axis=0) | ~linked.any(axis=1)
        if not alone.any():
            break
        found += [np.frexp(value) for value in np.abs(np.diag(W)[alone])]
        W = W[np.ix_(~alone, ~alone)]
    if len(W):
        balanced, top = _balanced(W)
        mantissa, exponent = np.frexp(_radii(balanced[None])[0])
        found.append((mantissa, exponent + top))
    positive = [pair for pair in found if pair[0] > 0] or found[:1]
    mantissa, exponent = max(positive, key=lambda pair: (pair[1], pair[0]))
    return float(mantissa), int(exponent)


def _balanced(W: Float) -> tuple[Float, int]:
    """D⁻¹ W D / 2**top, D in powers of two; Osborne's iteration on the largest magnitudes."""
    mantissa, exponent = np.frexp(W)
    E = np.where(W != 0, exponent, -np.inf)
    off_diagonal = np.where(np.eye(len(W), dtype=bool), -np.inf, E)
    for _ in range(100):
        moved = False
        for i in range(len(W)):
            shift = np.rint((off_diagonal[i].max() - off_diagonal[:, i].max()) / 2)
            if shift:
                moved = True
                off_diagonal[i] -= shift
                off_diagonal[:, i] += shift
        if not moved:
            break
    E = np.where(np.eye(len(W), dtype=bool), E, off_diagonal)
    top = int(E.max())
    shifts = np.where(W != 0, np.maximum(E - top, -1100), 0).astype(np.int64)
    return np.ldexp(mantissa, shifts), top
