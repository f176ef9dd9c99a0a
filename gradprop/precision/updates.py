"""Whether an update still moves weights that a float format holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.blocks import Float
from gradprop.gradients.lags import ALL
from gradprop.precision.formats import Format, check_rng
from gradprop.precision.stored import Arithmetic
from gradprop.results import Result

if TYPE_CHECKING:
    import pandas as pd

Bools = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateAbsorption(Result):
    """Shares of weights that an update does not move, by array; all together first.

    Attributes
    ----------
    sgd : float array, shape (A,)
        Weights with w - lr g == w in the format.
    adam : float array, shape (A,)
        Weights that Adam's first update does not move in the format.
    damped : float array, shape (A,)
        Gradients below eps: Adam's sqrt(v) < eps, so that eps makes the larger part of the
        denominator and the step is shorter than half the learning rate. In exact arithmetic.
    v_lost : float array, shape (A,)
        Gradients not zero as given while v, held in the format, is.
    not_finite : float array, shape (A,)
        Adam's updates that are infinite or nan: v and eps are both zero in the format.
    names : tuple of str
        "all", then the arrays.
    fmt : str
    learning_rate, eps : float
        As given.
    stored_eps : float
        What the format makes of eps; 0 for 1e-8 in float16.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "sgd": ("array",),
        "adam": ("array",),
        "damped": ("array",),
        "v_lost": ("array",),
        "not_finite": ("array",),
    }
    sgd: Float
    adam: Float
    damped: Float
    v_lost: Float
    not_finite: Float
    names: tuple[str, ...]
    fmt: str
    learning_rate: float
    eps: float
    stored_eps: float

    def to_frame(self) -> pd.DataFrame:
        """One row per array.

        Returns
        -------
        pandas.DataFrame
            As every result's, ``array`` being the name.
        """
        frame = super().to_frame()
        frame["array"] = list(self.names)
        return frame


def update_absorption(
    weights: Mapping[str, Any],
    grads: Mapping[str, Any],
    fmt: str | Format,
    *,
    learning_rate: float,
    beta2: float = 0.999,
    eps: float = 1e-8,
    rng: Any = None,
) -> UpdateAbsorption:
    r"""Share of the weights which an update leaves as they are, bit for bit, in a float format.

    Parameters
    ----------
    weights, grads : mapping of str to array_like
        Of the same names and shapes, such as ``cell.arrays()`` and
        ``gp.backward(...).parameters``. Both are rounded to the format first.
    fmt : str or Format
        A name (see :class:`Format`), or a format of at most 25 bits of precision and 10 of
        exponent.
    learning_rate : float > 0
    beta2 : float in [0, 1), default: 0.999
        Adam's rate of the mean of squares.
    eps : float >= 0, default: 1e-8
        Adam's.
    rng : optional
        Seed or generator, needed where the format rounds at random and refused elsewhere.

    Returns
    -------
    UpdateAbsorption
        ``sgd``, ``adam``, ``damped``, ``v_lost`` and ``not_finite`` (A,).

    Raises
    ------
    ValueError, TypeError
        Names or shapes that differ, nothing given, entries that are not finite; weights beyond the
        largest number of the format; settings out of range; an unknown format, rng missing or given
        for nothing.

    Notes
    -----
    SGD: :math:`w \leftarrow \mathrm{fl}(w - \mathrm{fl}(\eta g))` with a learning rate that is not
    rounded. Adam's first update from a state of zeros: the corrected means are g and g^2, so that
    its step is :math:`\eta g / (\sqrt{\hat v} + \epsilon)`. Of its state, v =
    :math:`\mathrm{fl}((1-\beta_2) g^2)` is held in the format, and so is eps;
    :math:`\hat v = v / (1-\beta_2)`, and the step is rounded once. Whether eps acts depends on the
    size of the gradient alone, whatever the format. Zero gradients count: they move nothing.

    References
    ----------
    .. [1] D. P. Kingma, J. Ba, Adam: a method for stochastic optimization, ICLR 2015, algorithm 1.

    Examples
    --------
    The step from 1 to the next smaller bfloat16 number is 2^-8: half of it, 0.00195, is lost.

    >>> import gradprop as gp
    >>> w, g = {"w": [1.0, 1.0, 1.0, 1.0]}, {"w": [0.0, 1.0, 1.9, 2.0]}
    >>> gp.update_absorption(w, g, "bfloat16", learning_rate=1e-3).sgd.tolist()
    [0.75, 0.75]
    >>> gp.update_absorption(w, g, "float16", learning_rate=1e-3).stored_eps
    0.0
    """
    known = Arithmetic.checked(fmt, None, False).fmt
    check_rng(rng, known)
    rate = _checks.real("learning_rate", learning_rate, above=0.0)
    decay = _checks.real("beta2", beta2, at_least=0.0, below=1.0)
    eps = _checks.real("eps", eps, at_least=0.0)
    generator = None if rng is None else _checks.generator("rng", rng)
    pairs = _checked(weights, grads, known)
    stored_eps = float(known.round(eps, generator))
    masks: list[tuple[Bools, ...]] = []
    for w, g in pairs.values():
        own, slope = known.round(w, generator), known.round(g, generator)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            v = known.round((1.0 - decay) * slope * slope, generator)
            step = rate * slope / (np.sqrt(v / (1.0 - decay)) + stored_eps)
            # a format without infinities would store its largest number
            broken = ~np.isfinite(step)
            moved = known.round(own - known.round(step, generator), generator)
            after = known.round(own - known.round(rate * slope, generator), generator)
        masks.append((after == own, moved == own, np.abs(g) < eps, (v == 0) & (g != 0), broken))
    together = [np.concatenate(parts) for parts in zip(*masks, strict=True)]
    shares = np.array([[mask.mean() for mask in own] for own in (together, *masks)]).T
    return UpdateAbsorption(
        **dict(zip(("sgd", "adam", "damped", "v_lost", "not_finite"), shares, strict=True)),
        names=(ALL, *pairs),
        fmt=known.name,
        learning_rate=rate,
        eps=eps,
        stored_eps=stored_eps,
    )


def _checked(
    weights: Mapping[str, Any], grads: Mapping[str, Any], fmt: Format
) -> dict[str, tuple[Float, Float]]:
    """Flat arrays by name, in pairs."""
    for name, given in (("weights", weights), ("grads", grads)):
        if not isinstance(given, Mapping):
            raise TypeError(f"`{name}` must be a mapping of names to arrays; got {type(given)}.")
    if not weights or set(weights) != set(grads):
        raise ValueError(
            f"`weights` and `grads` must have the same names; got {list(weights)} and "
            f"{list(grads)}."
        )
    pairs = {}
    for name, array in weights.items():
        w = _checks.real_array(f"weights[{name!r}]", array)
        g = _checks.real_array(f"grads[{name!r}]", grads[name])
        if w.shape != g.shape or not w.size:
            raise ValueError(
                f"`grads[{name!r}]` must have the shape {w.shape} of its weights, not empty; got "
                f"{g.shape}."
            )
        if np.abs(w).max() > fmt.max:
            raise ValueError(
                f"`weights[{name!r}]` must lie in the range of {fmt.name}, which ends at "
                f"{fmt.max:.6g}; got {np.abs(w).max():.6g}."
            )
        pairs[name] = (w.ravel(), g.ravel())
    return pairs
