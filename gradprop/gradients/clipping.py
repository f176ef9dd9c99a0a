"""Clipping of gradients: jointly by their norm, or entry by entry."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.blocks import Float


def global_norm(grads: Any, ord: float = 2) -> float:
    r"""Norm of all gradients taken together, as if they were one long vector.

    .. math:: \lVert g \rVert_p = \Bigl(\sum_i |g_i|^p\Bigr)^{1/p}

    Parameters
    ----------
    grads : mapping, iterable or array of gradients
        Of any shapes, scalars and empty arrays among them; float16, float32, float64 or integers.
        A generator is read once.
    ord : float >= 1 or inf, default: 2
        p.

    Returns
    -------
    float
        Whatever the dtype of the gradients, a float64. inf only if the norm itself is above the
        largest float64; 0 only if all entries are 0.

    Raises
    ------
    ValueError
        There are no gradients (an empty container, a generator that has been read already); an
        entry is not finite (key and index are named); ord below 1 or nan.
    TypeError
        A gradient is complex, masked, longdouble or does not hold numbers.

    Notes
    -----
    O(N) for N entries, 6 ns each for ord 2. Entries are scaled by a power of two and sums of
    gradients are added exactly, so that the order of the gradients does not matter; relative error
    a few times log2(N) eps.

    Examples
    --------
    >>> import gradprop as gp
    >>> import numpy as np
    >>> gp.global_norm({"W": np.float16([[3000.0]]), "b": np.float16([4000.0])})
    5000.0
    >>> gp.global_norm([np.array([3.0, 4.0])], ord=np.inf)
    4.0
    """
    ord = _order(ord)
    return _as_float(*_scaled_norm(_Gradients(grads).values, ord))


def clip_by_global_norm(grads: Any, max_norm: float, *, ord: float = 2) -> tuple[Any, float]:
    r"""Scale all gradients by one number so that their joint norm is at most `max_norm`.

    .. math:: g \leftarrow g \min(1, \theta / \lVert g \rVert_p)

    Parameters
    ----------
    grads : mapping, iterable or array of gradients, float16, float32 or float64
        Left as they are; scalars and empty arrays may be among them. A generator is read once.
    max_norm : float >= 0
        The threshold; 0 gives zeros.
    ord : float >= 1 or inf, default: 2
        p.

    Returns
    -------
    clipped : as `grads`
        New arrays of the same shapes and dtypes, bit for bit the same ones if nothing had to be
        clipped. A dict (of any subclass) comes back as its own class, another mapping as a dict,
        both in the same order of keys; a tuple, also a named one, as a tuple; an array as an array;
        any other iterable as a list. Numbers come back as NumPy scalars, nested lists as arrays.
    total : float
        The norm before clipping, as :func:`global_norm` gives it.

    Raises
    ------
    ValueError
        As :func:`global_norm`; max_norm negative or not finite.
    TypeError
        As there; a gradient of integers, which could not be scaled.

    See Also
    --------
    global_norm : the norm alone.
    clip_statistics : what a threshold would have done to a run.

    Notes
    -----
    One coefficient for all keeps the direction of the step; clipping each gradient by its own norm,
    or each entry (:func:`clip_by_value`), turns it. The coefficient is exactly min(1, θ/total),
    with no epsilon, and is carried with its exponent apart: a total above the largest float64 is
    returned as inf, and the clipped gradients are still the right ones. Each entry is rounded once
    to its dtype, so the norm of the result can pass `max_norm` by an eps of that dtype.
    O(N) for N entries, 16 ns each for ord 2.

    References
    ----------
    .. [1] R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural
       networks, ICML 2013, arXiv:1211.5063, section 3.2, algorithm 1.

    Examples
    --------
    >>> import gradprop as gp
    >>> import numpy as np
    >>> clipped, total = gp.clip_by_global_norm({"W": np.array([3.0]), "b": np.array([4.0])}, 1.0)
    >>> total, clipped["W"].round(12), clipped["b"].round(12)
    (5.0, array([0.6]), array([0.8]))
    """
    max_norm = _checks.real("max_norm", max_norm, at_least=0.0)
    ord = _order(ord)
    read = _Gradients(grads, scalable=True)
    mantissa, exponent = _scaled_norm(read.values, ord)
    total = _as_float(mantissa, exponent)
    if total <= max_norm:
        return read.like_given(read.values), total
    top, top_exponent = math.frexp(max_norm)
    scale, shift = top / mantissa, top_exponent - exponent
    return read.like_given([_scaled(v, scale, shift) for v in read.values]), total


def clip_by_value(grads: Any, limit: float) -> Any:
    """Bring every entry of the gradients into [-limit, limit].

    Parameters
    ----------
    grads : mapping, iterable or array of gradients, float16, float32 or float64
        Left as they are. A generator is read once.
    limit : float >= 0
        Rounded to the dtype of each gradient.

    Returns
    -------
    as `grads`
        New arrays, containers as :func:`clip_by_global_norm` returns them.

    Raises
    ------
    ValueError, TypeError
        As :func:`clip_by_global_norm`, for `limit` in place of `max_norm`.

    Notes
    -----
    The step no longer points along the gradient; :func:`clip_by_global_norm` keeps its direction.
    O(N) for N entries.

    Examples
    --------
    >>> import gradprop as gp
    >>> import numpy as np
    >>> gp.clip_by_value([np.array([0.25, -3.0, 4.0])], 1.0)
    [array([ 0.25, -1.  ,  1.  ])]
    """
    limit = _checks.real("limit", limit, at_least=0.0)
    read = _Gradients(grads, scalable=True)
    bounds = [_rounded(np.float64(limit), array.dtype) for array in read.arrays]
    return read.like_given([np.clip(v, -b, b) for v, b in zip(read.values, bounds, strict=True)])


class _Gradients:
    """Gradients read once: as they came, and as finite float64 arrays that are our own."""

    def __init__(self, grads: Any, *, scalable: bool = False) -> None:
        self._given, named = grads, _named(grads)
        self.arrays = [_checks.plain_array(name, value) for name, value in named]
        for (name, _), array in zip(named, self.arrays, strict=True):
            if scalable and array.dtype.kind in "biu":
                raise TypeError(f"`{name}` must be floating to be scaled; got dtype {array.dtype}.")
        self.values: list[Float] = [_checks.real_array(name, value) for name, value in named]
        self._is_array = [isinstance(value, np.ndarray) for _, value in named]

    def like_given(self, values: list[Float]) -> Any:
        """New values in the containers, shapes and dtypes that were given."""
        rounded = [_rounded(v, a.dtype) for v, a in zip(values, self.arrays, strict=True)]
        out = [v if keep else v[()] for v, keep in zip(rounded, self._is_array, strict=True)]
        given = self._given
        if isinstance(given, np.ndarray | np.generic):
            return out[0]
        if isinstance(given, Mapping):
            # a copy keeps what a subclass of dict knows besides, such as a default factory
            filled = copy.copy(given) if isinstance(given, dict) else {}
            filled.update(zip(given, out, strict=True))
            return filled
        if isinstance(given, tuple):
            return given._make(out) if hasattr(given, "_make") else tuple(out)
        return out


def _named(grads: Any) -> list[tuple[str, Any]]:
    """Each gradient under the name that messages use; the only place that reads `grads`."""
    if isinstance(grads, np.ndarray | np.generic):
        return [("grads", grads)]
    if not isinstance(grads, Iterable):
        kind = type(grads).__name__
        raise TypeError(f"`grads` must be a mapping, an iterable or an array; got {kind}.")
    pairs = grads.items() if isinstance(grads, Mapping) else enumerate(grads)
    named = [(f"grads[{key!r}]", value) for key, value in pairs]
    if not named:
        raise ValueError("`grads` must not be empty; got no gradients (a generator read before?).")
    return named


def _order(ord: Any) -> float:
    if isinstance(ord, float | np.floating) and ord == np.inf:
        return math.inf
    return _checks.real("ord", ord, at_least=1.0)


def _scaled_norm(values: list[Float], ord: float) -> tuple[float, int]:
    """(m, e) with norm m 2**e, m in [0.5, 1) or 0."""
    top = max(float(np.abs(v).max(initial=0.0)) for v in values)
    mantissa, exponent = math.frexp(top)
    if top == 0.0 or ord == math.inf:
        return mantissa, exponent
    # powers of two leave squares of short numbers exact; other powers would vanish if ord is large
    unit = 1.0 if ord in (1.0, 2.0) else mantissa
    with np.errstate(under="ignore"):
        sums = [((np.abs(np.ldexp(v, -exponent)) / unit) ** ord).sum() for v in values]
    total = math.fsum(sums)
    root = math.sqrt(total) if ord == 2.0 else total ** (1.0 / ord)
    mantissa, more = math.frexp(unit * root)
    return mantissa, exponent + more


def _as_float(mantissa: float, exponent: int) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(mantissa, exponent))


def _scaled(values: Float, scale: float, shift: int) -> Float:
    """Values times scale 2**shift, rounded once, though scale 2**shift be no float."""
    mantissa, exponent = np.frexp(values)
    with np.errstate(under="ignore"):
        return np.asarray(np.ldexp(mantissa * scale, exponent + shift))


def _rounded(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Nearest numbers of a dtype, as new array; what is too large becomes inf."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array(values, dtype=dtype)
