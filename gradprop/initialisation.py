"""Weight ensembles: fifteen ways to draw recurrent matrices, reproducible and of stated size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop._ensembles import SAMPLERS, Draw
from gradprop.spectral import LARGEST_N, scaled_radius, scaled_to

FROM_CONSTRUCTION = frozenset(
    {"orthogonal", "identity", "scaled_identity", "antisymmetric"}
    | {"low_rank", "nonnormal", "cyclic_shift", "diagonal"}
)
LARGEST_DEPARTURE = 0.95
"""Beyond it the rounding of Q T Qᵀ alone gives the stored matrix another radius than T's."""


def initialise(
    name: str,
    n: int,
    *,
    size: int | tuple[int, ...] | None = None,
    rng: Any = None,
    spectral_radius: float | None = None,
    gain: float | None = None,
    **shape: Any,
) -> NDArray[np.float64]:
    r"""Draw recurrent weight matrices from a named ensemble.

    Parameters
    ----------
    name : str
        One of the ensembles in the table below.
    n : int, at least 1
        Units.
    size : int or tuple of int, default: None
        Leading (replica) axes; None is one matrix.
    rng : anything ``numpy.random.default_rng`` takes, default: None
        The draw depends on (name, n, size, rng, shape options) alone; `spectral_radius` and `gain`
        only multiply it. A batch is what single calls with the same generator give in turn.
    spectral_radius : float, not negative, default: None
        Multiply each matrix by the number that gives it this radius.
    gain : float, not negative, default: None
        The g in :math:`W_{ij}\sim N(0, g^2/n)`: sets the entries' variance to g²/n whatever the
        ensemble's own; for structured ensembles ‖W‖_F² = n g² (in the mean for sparse, low_rank
        and, up to its zero diagonal, antisymmetric). None keeps the ensemble's own gain.
    **shape
        Options of the ensemble, see the table.

    Returns
    -------
    float64 array, shape (\*size, n, n)
        Row = to, column = from.

    Raises
    ------
    TypeError
        An option the ensemble does not have (the known ones are listed), or one of the wrong kind.
    ValueError
        Unknown name; a value out of its range; more than one of `gain`, `spectral_radius` and
        `scale`; a spectral radius of zero is to be rescaled (n = 1 antisymmetric, a sparse draw
        without cycles); n > 2048 where the radius needs computed eigenvalues.

    Notes
    -----
    ================  ======  ==================================================  ================
    name              gain    matrix                                              radius from
    ================  ======  ==================================================  ================
    gaussian          1       N(0, 1/n) [1]_                                      eigenvalues
    glorot_uniform    1       uniform ±sqrt(6/(n + n)) [2]_                       eigenvalues
    glorot_normal     1       N(0, 2/(n + n)), not truncated [2]_                 eigenvalues
    he_normal         √2      N(0, 2/n), not truncated [3]_                       eigenvalues
    lecun_normal      1       N(0, 1/n), not truncated [4]_                       eigenvalues
    torch_default     1/√3    uniform ±1/sqrt(n): radius near 0.577               eigenvalues
    orthogonal        1       Haar: QR with the signs of diag(R) moved to Q [5]_  1 exactly
    identity          1       I                                                   1 exactly
    scaled_identity   scale   scale · I; ``scale`` = 1.0, not 0 [6]_              abs(scale)
    antisymmetric     1       (G − Gᵀ)/sqrt(2n), G normal: radius near 2 [7]_     norm (normal)
    sparse            1       ``density`` = 0.1 in (0, 1]: entries kept at        eigenvalues
                              random, N(0, 1/(density n))
    low_rank          1       ``rank`` = 1 in 1..n: U Vᵀ/sqrt(n rank)             those of VᵀU
    nonnormal         varies  ``departure`` = 0.8 in [0, 0.95]: Q T Qᵀ with Q     diagonal of T
                              Haar, T triangular
    cyclic_shift      1       h_i' = h_{i-1}, a ring of delays [8]_               1 exactly
    diagonal          varies  ``inner`` = 0.0 in [0, 1], ``rotate`` = False       construction
    ================  ======  ==================================================  ================

    nonnormal: T has radius 1 before it is rotated: real eigenvalues with random signs, |λ|²
    uniform, scaled so that the largest is 1; its strictly upper part is normal and holds the share
    `departure` of ‖W‖_F [9]_ (n = 1 has no such part). The radius is that of T, never one from
    computed eigenvalues, which are off by (largest of five draws) 3e-12 for n = 64 at departure
    0.8, 1e-9 at 0.9, 6e-7 at 0.95, and 3e-8, 6e-4, 7e-3 for n = 128: the error grows exponentially
    with n, and rounding W to floats alone moves its eigenvalues about as much.

    diagonal: magnitudes between `inner` and 1, |λ|² uniform [10]_, random signs. With `rotate` the
    matrix is a real block-diagonal one of 2 × 2 rotations times these magnitudes: eigenvalues
    r exp(±iθ), θ uniform on (0, π), and one real one if n is odd. A **diagonal ring** of radius r
    is ``initialise("diagonal", n, inner=1.0, rotate=True, spectral_radius=r)``: a normal matrix
    whose eigenvalues all lie on the circle, so every singular value is r.

    The radius is reached to about n eps times the condition of the eigenvalue; see
    :func:`gradprop.spectral_radius`. Cost O(n³) per matrix where eigenvalues or QR are needed.

    References
    ----------
    .. [1] H. Sompolinsky, A. Crisanti, H. J. Sommers, Phys. Rev. Lett. 61, 259 (1988).
    .. [2] X. Glorot, Y. Bengio, AISTATS 2010, equation 16.
    .. [3] K. He et al., ICCV 2015, arXiv:1502.01852, equation 10.
    .. [4] Y. LeCun et al., Efficient BackProp (1998), section 4.6.
    .. [5] F. Mezzadri, Notices AMS 54, 592 (2007), arXiv:math-ph/0609050, section 5.
    .. [6] Q. V. Le, N. Jaitly, G. E. Hinton (2015), arXiv:1504.00941.
    .. [7] B. Chang et al., AntisymmetricRNN, ICLR 2019, arXiv:1902.09689, section 3.
    .. [8] A. Rodan, P. Tiňo, IEEE Trans. Neural Networks 22, 131 (2011): cycle reservoir.
    .. [9] P. Henrici, Numer. Math. 4, 24 (1962): departure from normality.
    .. [10] A. Orvieto et al., ICML 2023, arXiv:2303.06349, lemma 3.2.

    Examples
    --------
    >>> import numpy as np, gradprop as gp
    >>> gp.initialise("cyclic_shift", 3, spectral_radius=0.5)
    array([[0. , 0. , 0.5],
           [0.5, 0. , 0. ],
           [0. , 0.5, 0. ]])
    >>> W = gp.initialise("gaussian", 64, size=2, rng=0, spectral_radius=0.9)
    >>> W.shape, np.round(gp.spectral_radius(W), 12)
    ((2, 64, 64), array([0.9, 0.9]))
    """
    _checks.choice("name", name, SAMPLERS)
    n = _checks.integer("n", n, minimum=1)
    axes = _checked_size(size)
    options = _checked_options(name, n, shape)
    scales = {"gain": gain, "spectral_radius": spectral_radius, "scale": shape.get("scale")}
    target = _checked_target(name, n, scales)
    generator = _checks.generator("rng", rng)
    draw = SAMPLERS[name](generator, int(np.prod(axes, dtype=np.int64)), n, options)
    return _multiplied(draw, axes, target)


def _multiplied(
    draw: Draw, axes: tuple[int, ...], target: tuple[str, float] | None
) -> NDArray[np.float64]:
    W = draw.matrices.reshape(axes + draw.matrices.shape[1:])
    if target is None:
        return W
    kind, value = target
    if kind == "gain":
        gain = np.broadcast_to(draw.gain, len(draw.matrices)).reshape(axes)
        return np.asarray(W * (value / gain)[..., None, None])
    if draw.radius is None:
        mantissa, exponent = scaled_radius(W)
    else:
        mantissa, exponent = draw.radius.reshape(axes), np.zeros(axes, dtype=np.int64)
    return scaled_to(W, mantissa, exponent, np.asarray(value), "spectral radius")


def _checked_size(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    entries = size if isinstance(size, tuple | list) else (size,)
    return tuple(_checks.integer("size", entry, minimum=1) for entry in entries)


def _checked_target(
    name: str, n: int, scales: Mapping[str, float | None]
) -> tuple[str, float] | None:
    given = {key: value for key, value in scales.items() if value is not None}
    if len(given) > 1:
        listed = " and ".join(f"`{key}`" for key in given)
        raise ValueError(f"at most one of {', '.join(scales)} may be given; got {listed}.")
    if not given or "scale" in given:
        return None
    kind, value = next(iter(given.items()))
    if kind == "spectral_radius" and name not in FROM_CONSTRUCTION:
        _checks.integer("n", n, maximum=LARGEST_N)
    return kind, _checks.real(kind, value, at_least=0.0)


def _density(n: int, value: Any) -> float:
    return _checks.real("density", value, above=0.0, at_most=1.0)


def _rank(n: int, value: Any) -> int:
    return _checks.integer("rank", value, minimum=1, maximum=n)


def _departure(n: int, value: Any) -> float:
    return _checks.real("departure", value, at_least=0.0, at_most=LARGEST_DEPARTURE)


def _inner(n: int, value: Any) -> float:
    return _checks.real("inner", value, at_least=0.0, at_most=1.0)


def _rotate(n: int, value: Any) -> bool:
    return bool(_checks.choice("rotate", value, (True, False)))


def _scale(n: int, value: Any) -> float:
    scale = _checks.real("scale", value)
    if scale == 0:
        raise ValueError("`scale` must not be zero; got 0.0.")
    return scale


OPTIONS: dict[str, dict[str, tuple[Any, Callable[[int, Any], Any]]]] = {
    "scaled_identity": {"scale": (1.0, _scale)},
    "sparse": {"density": (0.1, _density)},
    "low_rank": {"rank": (1, _rank)},
    "nonnormal": {"departure": (0.8, _departure)},
    "diagonal": {"inner": (0.0, _inner), "rotate": (False, _rotate)},
}
"""Shape options by ensemble: default and check."""


def _checked_options(name: str, n: int, shape: Mapping[str, Any]) -> dict[str, Any]:
    known = OPTIONS.get(name, {})
    unknown = [option for option in shape if option not in known]
    if unknown:
        takes = ", ".join(known) or "no shape options"
        raise TypeError(f"initialisation {name!r} takes {takes}; got {', '.join(unknown)}.")
    return {key: check(n, shape.get(key, default)) for key, (default, check) in known.items()}
