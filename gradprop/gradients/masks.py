"""Which steps of padded sequences count."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop import _checks

Bool = NDArray[np.bool_]


def length_mask(lengths: ArrayLike, n_steps: int) -> Bool:
    """Mask of padded sequences: True at steps inside each sequence's own length.

    Parameters
    ----------
    lengths : array_like of int in 0 .. T, shape (...)
    n_steps : int
        T.

    Returns
    -------
    bool array, shape (..., T)

    Raises
    ------
    ValueError, TypeError
        Lengths that are not integers or lie outside 0 .. T.

    Examples
    --------
    >>> import gradprop as gp
    >>> gp.length_mask([3, 1], 4).astype(int).tolist()
    [[1, 1, 1, 0], [1, 0, 0, 0]]
    """
    n_steps = _checks.integer("n_steps", n_steps, minimum=0, maximum=2**53)
    array = _checks.plain_array("lengths", lengths)
    flat = _checks.integer_array("lengths", array.ravel(), minimum=0, maximum=n_steps)
    return np.asarray(np.arange(n_steps) < flat.reshape(array.shape)[..., None])


def counting_steps(
    mask: ArrayLike | None, lengths: ArrayLike | None, shape: tuple[int, ...]
) -> Bool:
    """Mask of the given shape; refuses padded steps and a mask without any True."""
    inside = np.ones(shape, dtype=np.bool_)
    if lengths is not None:
        inside = _broadcast("lengths", length_mask(lengths, shape[-1]), shape)
    use = inside
    if mask is not None:
        given = _checks.plain_array("mask", mask)
        if given.dtype.kind != "b":
            raise TypeError(f"`mask` must hold booleans; got dtype {given.dtype}.")
        use = _broadcast("mask", given, shape)
    refuse("mask", "be False on padding, beyond `lengths`", use, ~inside, use)
    if not use.any():
        raise ValueError("`mask` must not be empty; got no step that counts: no mean is defined.")
    return use


def _broadcast(name: str, array: Bool, shape: tuple[int, ...]) -> Bool:
    try:
        return np.broadcast_to(array, shape)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must fit steps of shape {shape}; got a mask of shape {array.shape}."
        ) from error


def refuse(name: str, rule: str, array: NDArray[Any], bad: Bool, use: Bool) -> None:
    """Name the first bad step that counts, or the first bad entry of one."""
    found = np.argwhere(bad & (use if bad.ndim == use.ndim else use[..., None]))
    if len(found):
        index = tuple(int(i) for i in found[0])
        *sequence, step = index[: use.ndim]
        place = f"sequence {tuple(sequence)}, " if sequence else ""
        raise ValueError(
            f"`{name}` must {rule}; got {array[index]} at {place}step {step + 1}, index {index}."
        )
