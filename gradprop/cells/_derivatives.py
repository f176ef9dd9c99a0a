"""Derivatives of one's own step, each checked against a difference before it is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numpy.typing import NDArray

from gradprop._kernels import custom as kernels
from gradprop._kernels.activations import is_compiled

if TYPE_CHECKING:
    from gradprop.cells.custom import CustomCell

Float = NDArray[np.float64]

RELATIVE = 1e-6
"""Of the largest entry: what a difference must agree to, and be known to, to be used."""
SHAPES = {1: "(n,)", 2: "(n, n)"}
ROUNDING = 2.0**-50 / kernels.DIFFERENCE_STEP
"""Of the terms that make up the step: eight roundings, over the width of the difference."""


def check_returns(name: str, function: Any, ndim: int) -> None:
    """Refuse what is not compiled, or does not map float64 arrays (h, x) to a real array."""
    if not is_compiled(function):
        raise TypeError(
            f"`{name}` must be compiled by numba.njit; got {function!r} "
            f"({type(function).__name__})."
        )
    if getattr(numba.config, "DISABLE_JIT", 0):
        return
    try:
        returned = _returned(function, numba.float64)
    except Exception as error:  # whatever the compiler trips over
        lines = [line for line in str(error).splitlines() if line and "nopython" not in line]
        raise TypeError(
            f"`{name}` must compile for float64 arrays (h, x); it does not: {lines[:1]}."
        ) from error
    real = isinstance(returned, numba.types.Array) and isinstance(
        returned.dtype, numba.types.Float | numba.types.Integer
    )
    if not real or returned.ndim != ndim:
        raise TypeError(
            f"`{name}` must return a real array of shape {SHAPES[ndim]}; it returns {returned}."
        )


def takes_complex(step: Callable[..., Any]) -> bool:
    """Whether `step` compiles for complex h and returns complex numbers."""
    if getattr(numba.config, "DISABLE_JIT", 0):
        return True
    try:
        returned = _returned(step, numba.complex128)
    except Exception:  # whatever the compiler trips over: no
        return False
    return isinstance(returned, numba.types.Array) and returned.dtype == numba.complex128


def _returned(function: Any, of_state: Any) -> Any:
    """Type that a kernel would get from function(h, x); compiles it."""
    signature = (numba.types.Array(of_state, 1, "C"), numba.types.Array(numba.float64, 1, "C"))
    caller = numba.njit(lambda h, x: function(h, x))
    caller.compile(signature)
    return caller.nopython_signatures[0].return_type


def probe(cell: CustomCell, h: Float, x: Float) -> None:
    """Run the functions once as plain Python, which notices what compiled code reads outside."""
    for name, wanted in (("step", (cell.n,)), ("jacobian", (cell.n, cell.n))):
        function = getattr(cell, name)
        if function is None:
            continue
        try:
            with np.errstate(all="ignore"):
                getattr(function, "py_func", function)(h.copy(), x.copy())
        except IndexError as error:
            raise ValueError(
                f"`{name}` reads outside h, of width {len(h)}, or x, of width {len(x)}: {error}."
            ) from error
        except Exception:  # as code may be that only the compiler understands
            pass
        shape = np.shape(function(h.copy(), x.copy()))
        if shape != wanted:
            raise ValueError(f"`{name}` must return shape {wanted}; got shape {shape}.")


def step_jacobians(cell: CustomCell, h: Float, x: Float) -> tuple[Float, Float]:
    """Jacobians (N, n, n) at states (N, n) and inputs (N, d), and estimates of their errors.

    nan where a state or input is not finite, as in padding.
    """
    if cell.jacobian_kind == "differences":
        return differences(cell.step, h, x)
    J, values = np.empty((*h.shape, cell.n)), None
    if cell.jacobian is None:
        values = np.empty_like(h)
        kernels.complex_kernel(cell.step)(h, x, J, values)
    elif not kernels.given_kernel(cell.jacobian)(h, x, J):
        raise ValueError(f"`jacobian` must return shape ({cell.n}, {cell.n}) at every step.")
    errors = np.zeros_like(J)
    wrong = _disagrees(cell.step, h, x, J, values)
    if wrong.any():
        differ, errors[wrong] = differences(cell.step, h[wrong], x[wrong])
        if cell.jacobian is not None:
            _refuse_entry(h[wrong][0], J[wrong][0], differ[0], errors[wrong][0])
        J[wrong] = differ
    return J, errors


def differences(step: Callable[..., Any], h: Float, x: Float) -> tuple[Float, Float]:
    """Jacobians by central differences, and estimates of their errors."""
    scale = _scale(h)[:, None, :]
    values, slopes, errors = _along(step, h, x, scale * np.eye(h.shape[1]))
    J = slopes / scale
    terms = np.abs(values) + (np.abs(J) * np.abs(h)[:, None, :]).sum(axis=2)
    return J, (errors + ROUNDING * terms[:, :, None]) / scale


def _along(
    step: Callable[..., Any], h: Float, x: Float, directions: Float
) -> tuple[Float, Float, Float]:
    N, p, n = directions.shape
    values, slopes, errors = np.empty((N, n)), np.empty((N, n, p)), np.empty((N, n, p))
    kernels.difference_kernel(step)(h, x, directions, values, slopes, errors)
    return values, slopes, errors


def _scale(h: Float) -> Float:
    """Powers of two, at least 1 and |h|: steps of that size round nothing away."""
    size = np.maximum(np.abs(np.nan_to_num(h)), 1.0)
    return np.asarray(np.exp2(np.ceil(np.log2(size))))


def _disagrees(
    step: Callable[..., Any], h: Float, x: Float, J: Float, values: Float | None
) -> NDArray[np.bool_]:
    """Which Jacobians a difference along one direction does not bear out.

    A given one (`values` None) must be refuted; one from the complex step, which gave `values` as
    the step itself, must be borne out: a difference with a kink within reach does not.
    """
    k = np.arange(1, h.shape[1] + 1)
    # entries of either sign and of sizes from 1/2 to 3/2, in no regular order
    direction = np.sign(np.cos(k)) * (0.5 + (k * 0.6180339887498949) % 1.0) * _scale(h)
    own, slopes, errors = _along(step, h, x, direction[:, None, :])
    found, slope = (J @ direction[:, :, None])[..., 0], slopes[..., 0]
    error = errors[..., 0] + ROUNDING * (np.abs(own) + np.abs(slope))
    known = np.isfinite(error).all(axis=1)
    slack = RELATIVE * np.abs(slope).max(axis=1, keepdims=True) + 10 * error
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(found - slope) <= slack).all(axis=1)
        if values is not None:
            size = np.maximum(np.abs(own).max(axis=1), np.abs(slope).max(axis=1))
            wrong |= np.abs(values - own).max(axis=1) > RELATIVE * size
            wrong |= error.max(axis=1) > RELATIVE * size
    return np.asarray(known & wrong)


def _refuse_entry(h: Float, J: Float, differ: Float, errors: Float) -> None:
    excess = np.nan_to_num(np.abs(J - differ) - 10 * errors, nan=np.inf)
    i, j = np.unravel_index(int(np.argmax(excess)), J.shape)
    raise ValueError(
        f"`jacobian` must be the derivative of `step`; entry ({i}, {j}) is {J[i, j]:.9g}, central "
        f"differences give {differ[i, j]:.9g}, at h = {as_text(h)}."
    )


def as_text(h: Float) -> str:
    """A state in one line."""
    return np.array2string(h, precision=6, threshold=6, max_line_width=1000)
