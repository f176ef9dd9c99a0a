"""The only place that validates and casts input: names the argument, the rule and what came."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def real_array(
    name: str,
    value: Any,
    *,
    shape: Sequence[int | str | None] | None = None,
    keep_float32: bool = False,
    finite: bool = True,
    step_axis: int | None = None,
    own: bool = True,
) -> Array:
    """Cast to a float64 array (or float32 if it came so and `keep_float32`), and check it.

    `shape` gives the trailing axes: an int is a required size, a string only a name for the
    message, repeated strings must agree; leading axes are free. `step_axis` names the axis whose
    index is reported as a step (counted from 1) when an entry is not finite. An array that is not
    to be one's `own` may be the caller's.
    """
    array = _plain(name, value)
    if array.dtype.kind == "c":
        raise TypeError(f"`{name}` must be real; got dtype {array.dtype}.")
    return _finish(name, array, shape, keep_float32, finite, step_axis, own)


def real_or_complex_array(
    name: str,
    value: Any,
    *,
    shape: Sequence[int | str | None] | None = None,
    step_axis: int | None = None,
) -> Array:
    """As `real_array`, but complex input becomes complex128."""
    array = _plain(name, value)
    if array.dtype.kind == "c":
        array = np.array(array, dtype=np.complex128, order="C")
        _check_shape(name, array, shape)
        check_finite(name, array, step_axis)
        return array
    return _finish(name, array, shape, False, True, step_axis)


def plain_array(name: str, value: Any) -> Array:
    """Return a regular array of numbers, of any shape and dtype up to double precision."""
    return _plain(name, value)


def _plain(name: str, value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"`{name}` must be a plain array; got a masked one: fill it first.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"`{name}` must be a regular array; got ragged nesting.") from error
    if array.dtype.kind not in "biufc":
        hint = " (decimal commas?)" if array.dtype.kind in "USO" else ""
        raise TypeError(f"`{name}` must hold numbers; got dtype {array.dtype}{hint}.")
    if array.dtype in (np.dtype(np.longdouble), np.dtype(np.clongdouble)):
        raise TypeError(f"`{name}` must be at most double precision; got dtype {array.dtype}.")
    return array


def _finish(
    name: str,
    array: Array,
    shape: Sequence[int | str | None] | None,
    keep_float32: bool,
    finite: bool,
    step_axis: int | None,
    own: bool = True,
) -> Array:
    keep = keep_float32 and array.dtype.newbyteorder("=") == np.float32
    # a copy: what the caller does to an array later must not reach a lazy chain
    with np.errstate(invalid="ignore"):  # a signalling nan becomes a quiet one, found below
        dtype = np.float32 if keep else np.float64
        array = np.array(array, dtype=dtype, order="C", copy=True if own else None)
    _check_shape(name, array, shape)
    if finite:
        check_finite(name, array, step_axis)
    return array


def _check_shape(name: str, array: Array, shape: Sequence[int | str | None] | None) -> None:
    if shape is None:
        return
    rule = "(..., " + ", ".join(str(s) if s is not None else "any" for s in shape) + ")"
    if array.ndim < len(shape):
        raise ValueError(f"`{name}` must have shape {rule}; got shape {array.shape}.")
    seen: dict[str, int] = {}
    for size, want in zip(array.shape[array.ndim - len(shape) :], shape, strict=True):
        expected = seen.setdefault(want, size) if isinstance(want, str) else want
        if expected is not None and size != expected:
            square = len(shape) == 2 and shape[0] == shape[1]
            what = "be square" if square else f"have shape {rule}"
            raise ValueError(f"`{name}` must {what}; got shape {array.shape}.")
        if size == 0 and want != "T":
            raise ValueError(f"`{name}` must not be empty; got shape {array.shape}.")
    if 0 in array.shape[: array.ndim - len(shape)]:
        raise ValueError(f"`{name}` must not be empty; got shape {array.shape}.")


def check_finite(name: str, array: Array, step_axis: int | None = None) -> None:
    """Refuse an array with entries that are not finite; the first of them is named."""
    with np.errstate(over="ignore"):
        # the modulus of a complex number can be infinite though its parts are not
        finite = np.isfinite(np.abs(array) if np.iscomplexobj(array) else array)
    if finite.all():
        return
    index = tuple(int(i) for i in np.argwhere(~finite)[0])
    where = f"index {index}"
    if step_axis is not None:
        where = f"step {index[step_axis % array.ndim] + 1}, {where}"
    raise ValueError(f"`{name}` must be finite; got {array[index]} at {where}.")


def integer(
    name: str, value: Any, *, minimum: int | None = None, maximum: int | None = None
) -> int:
    """Return a Python int; floats and bools are refused, bounds are inclusive."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"`{name}` must be an integer; got {value!r} ({type(value).__name__}).")
    number = int(value)
    if minimum is not None and number < minimum:
        raise ValueError(f"`{name}` must be at least {minimum}; got {number}.")
    if maximum is not None and number > maximum:
        raise ValueError(f"`{name}` must be at most {maximum}; got {number}.")
    return number


def integer_array(name: str, value: Any, *, minimum: int, maximum: int) -> NDArray[np.int64]:
    """Return a 1-D int64 array with entries in [minimum, maximum]; floats are refused."""
    array = np.atleast_1d(_plain(name, value))
    if array.dtype.kind not in "iu":
        if array.size:
            raise TypeError(f"`{name}` must hold integers; got dtype {array.dtype}.")
        raise ValueError(f"`{name}` must not be empty; got shape {array.shape}.")
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"`{name}` must be one-dimensional and not empty; got shape {array.shape}."
        )
    if array.min() < minimum or array.max() > maximum:
        bad = array[(array < minimum) | (array > maximum)][0]
        raise ValueError(f"`{name}` must lie in {minimum}..{maximum}; got {bad}.")
    return array.astype(np.int64)


def real(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """Return a finite Python float inside the stated interval."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a real number; got {value!r} ({type(value).__name__}).")
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"`{name}` must be finite; got a number beyond float64.") from error
    if not np.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {number}.")
    for ok, rule in (
        (above is None or number > above, f"greater than {above}"),
        (at_least is None or number >= at_least, f"at least {at_least}"),
        (below is None or number < below, f"less than {below}"),
        (at_most is None or number <= at_most, f"at most {at_most}"),
    ):
        if not ok:
            raise ValueError(f"`{name}` must be {rule}; got {number}.")
    return number


def choice(name: str, value: Any, known: Iterable[Any]) -> Any:
    """Return `value` if it is one of `known`; otherwise the message lists them."""
    options = list(known)
    if not any(
        value is option
        or (type(value) is type(option) and value == option)
        or (isinstance(value, str) and isinstance(option, str) and value == option)
        for option in options
    ):
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, options))}; got {value!r}.")
    return value


def generator(name: str, rng: Any) -> np.random.Generator:
    """Return np.random.default_rng(rng), with a message that names the argument."""
    try:
        if isinstance(rng, bool):
            raise TypeError("a bool is no seed")
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{name}` must be None, a seed or a numpy Generator; got {rng!r}."
        ) from error


def broadcast_shapes(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast leading shapes; on a clash the message names every argument."""
    distinct = {shape for shape in shapes.values() if shape}
    if len(distinct) < 2:  # NumPy takes as long as for arrays of these shapes
        return next(iter(distinct), ())
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
        raise ValueError(f"leading (replica) axes must broadcast; got {listed}.") from error
