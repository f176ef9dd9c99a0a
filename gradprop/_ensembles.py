"""The draws behind `initialise`: one function per ensemble, before any rescaling.

Each takes (rng, count, n, options) and returns a :class:`Draw`. Replicas are drawn one after the
other, so that `count` of them are what `count` single calls with the same generator give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradprop.environment import single_threaded_blas
from gradprop.spectral import scaled_norm, scaled_radius

Float = NDArray[np.float64]
Options = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Draw:
    """Matrices (count, n, n) with what is known of them by construction.

    `gain` is the g for which n g² is the (mean) squared Frobenius norm; `radius` is the spectral
    radius, or None where only computed eigenvalues tell.
    """

    matrices: Float
    gain: Float | float
    radius: Float | None = None


Sampler = Callable[[np.random.Generator, int, int, Options], Draw]


def normal(gain: float) -> Sampler:
    """Independent N(0, gain²/n)."""

    def draw(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
        return Draw(rng.standard_normal((count, n, n)) * (gain / np.sqrt(n)), gain)

    return draw


def uniform(gain: float) -> Sampler:
    """Independent, uniform on ±gain sqrt(3/n), which has variance gain²/n."""

    def draw(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
        return Draw(rng.uniform(-1.0, 1.0, (count, n, n)) * (gain * np.sqrt(3.0 / n)), gain)

    return draw


def haar(G: Float) -> Float:
    """Haar-distributed orthogonal matrices from normal ones (Mezzadri 2007, section 5).

    The factor Q of LAPACK depends on a sign convention; with the signs of diag(R) moved into it,
    R is the one with positive diagonal, which is unique, and so Q inherits the invariance of G.
    """
    with single_threaded_blas():
        Q, R = np.linalg.qr(G)
    signs = np.where(np.einsum("...ii->...i", R) < 0, -1.0, 1.0)
    return np.asarray(Q * signs[..., None, :])


def orthogonal(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """Uniform on the orthogonal group."""
    return Draw(haar(rng.standard_normal((count, n, n))), 1.0, np.ones(count))


def identity(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """The identity, times `scale` where there is one."""
    scale = options.get("scale") or 1.0
    return Draw(np.tile(scale * np.eye(n), (count, 1, 1)), abs(scale), np.full(count, abs(scale)))


def antisymmetric(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """(G - Gᵀ)/sqrt(2n): normal, so that its radius is its norm."""
    G = rng.standard_normal((count, n, n))
    W = (G - np.swapaxes(G, -1, -2)) / np.sqrt(2.0 * n)
    return Draw(W, 1.0, np.ldexp(*scaled_norm(W)))


def sparse(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """Each entry kept with probability `density`, then N(0, 1/(density n))."""
    pairs = [(rng.random((n, n)), rng.standard_normal((n, n))) for _ in range(count)]
    kept = [np.where(u < options["density"], G, 0.0) for u, G in pairs]
    return Draw(np.stack(kept) / np.sqrt(options["density"] * n), 1.0)


def low_rank(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """U Vᵀ/sqrt(n rank) with normal U, V (n, rank); non-zero eigenvalues are those of VᵀU."""
    UV = rng.standard_normal((count, 2, n, options["rank"]))
    scale = 1.0 / np.sqrt(n * options["rank"])
    with single_threaded_blas():
        W = UV[:, 0] @ np.swapaxes(UV[:, 1], -1, -2) * scale
        small = np.swapaxes(UV[:, 1], -1, -2) @ UV[:, 0] * scale
    return Draw(W, 1.0, np.ldexp(*scaled_radius(small)))


def nonnormal(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """Q T Qᵀ with T upper triangular of radius 1, its strict part `departure` of the norm."""
    raw = [
        (rng.uniform(-1.0, 1.0, n), rng.standard_normal((n, n)), rng.standard_normal((n, n)))
        for _ in range(count)
    ]
    u, upper, G = (np.stack(part) for part in zip(*raw, strict=True))
    eigenvalues = np.sign(u) * np.sqrt(np.abs(u))
    eigenvalues /= np.abs(eigenvalues).max(axis=-1, keepdims=True)
    T = np.triu(upper, 1)
    departure = options["departure"]
    share = departure / np.sqrt((1.0 - departure) * (1.0 + departure))
    wanted = share * np.linalg.norm(eigenvalues, axis=-1)
    if n > 1:
        T *= (wanted / np.linalg.norm(T, axis=(-2, -1)))[:, None, None]
    T[:, range(n), range(n)] = eigenvalues
    Q = haar(G)
    with single_threaded_blas():
        W = Q @ T @ np.swapaxes(Q, -1, -2)
    return Draw(W, np.linalg.norm(T, axis=(-2, -1)) / np.sqrt(n), np.ones(count))


def cyclic_shift(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """Unit i listens to unit i - 1, unit 0 to the last."""
    return Draw(np.tile(np.roll(np.eye(n), 1, axis=0), (count, 1, 1)), 1.0, np.ones(count))


def diagonal(rng: np.random.Generator, count: int, n: int, options: Options) -> Draw:
    """Magnitudes between `inner` and 1, uniform in area; random signs, or rotations in pairs."""
    u = rng.random((count, 2, n))
    inner = options["inner"]
    size = np.sqrt(inner**2 + (1.0 - inner) * (1.0 + inner) * u[:, 0])
    W = np.zeros((count, n, n))
    if options["rotate"]:
        first = np.arange(0, n - 1, 2)
        size[:, first + 1] = size[:, first]
        cosine, sine = np.cos(np.pi * u[:, 1]) * size, np.sin(np.pi * u[:, 1]) * size
        W[:, first, first] = W[:, first + 1, first + 1] = cosine[:, first]
        W[:, first + 1, first] = sine[:, first]
        W[:, first, first + 1] = -sine[:, first]
    for i in range(n // 2 * 2 if options["rotate"] else 0, n):
        W[:, i, i] = np.where(u[:, 1, i] < 0.5, -size[:, i], size[:, i])
    return Draw(W, np.linalg.norm(size, axis=-1) / np.sqrt(n), size.max(axis=-1))


SAMPLERS: dict[str, Sampler] = {
    "gaussian": normal(1.0),
    "glorot_uniform": uniform(1.0),
    "glorot_normal": normal(1.0),
    "he_normal": normal(float(np.sqrt(2.0))),
    "lecun_normal": normal(1.0),
    "torch_default": uniform(float(np.sqrt(1.0 / 3.0))),
    "orthogonal": orthogonal,
    "identity": identity,
    "scaled_identity": identity,
    "antisymmetric": antisymmetric,
    "sparse": sparse,
    "low_rank": low_rank,
    "nonnormal": nonnormal,
    "cyclic_shift": cyclic_shift,
    "diagonal": diagonal,
}
