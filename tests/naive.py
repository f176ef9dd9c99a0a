"""Plain NumPy twins of the package's algorithms: explicit loops, float64, readable as the papers.

Nothing here imports gradprop. One network, one sequence at a time: a test of replicas loops. J is
an array (T, n, n) with J[0] = J_1; logs are natural; lags run from 0 (P_0 = I) to T.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def _log(value: float) -> float:
    return math.log(value) if value else -math.inf


# --- cells ---------------------------------------------------------------------------------------

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _sigmoid(z: float) -> float:
    e = math.exp(-abs(z))
    return 1 / (1 + e) if z >= 0 else e / (1 + e)


def _sech_squared(z: float) -> float:
    e = math.exp(-abs(z))
    return (2 * e / (1 + e * e)) ** 2


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _normal_pdf(z: float) -> float:
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


# name: (phi(z), phi'(z)); at a kink phi' is 0, or the smaller slope where neither side has 0
ACTIVATIONS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "tanh": (math.tanh, _sech_squared),
    "relu": (lambda z: max(z, 0.0), lambda z: float(z > 0)),
    "leaky_relu": (lambda z: z if z > 0 else 0.01 * z, lambda z: 1.0 if z > 0 else 0.01),
    "sigmoid": (_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
    "hard_tanh": (lambda z: min(max(z, -1.0), 1.0), lambda z: float(-1 < z < 1)),
    "softplus": (lambda z: max(z, 0.0) + math.log1p(math.exp(-abs(z))), _sigmoid),
    "erf": (math.erf, lambda z: 2 / math.sqrt(math.pi) * math.exp(-z * z)),
    "gelu": (lambda z: z * _normal_cdf(z), lambda z: _normal_cdf(z) + z * _normal_pdf(z)),
    "selu": (
        lambda z: SELU_SCALE * (z if z > 0 else SELU_ALPHA * math.expm1(z)),
        lambda z: SELU_SCALE * (1.0 if z >= 0 else SELU_ALPHA * math.exp(z)),
    ),
    "linear": (lambda z: z, lambda z: 1.0),
    "hard_sigmoid": (
        lambda z: min(max(0.2 * z + 0.5, 0.0), 1.0),
        lambda z: 0.2 if -2.5 < z < 2.5 else 0.0,
    ),
}


def phi(name: str, z: ArrayLike) -> Array:
    """Apply an activation entry by entry."""
    return np.vectorize(ACTIVATIONS[name][0], otypes=[float])(z)


def dphi(name: str, z: ArrayLike) -> Array:
    """Apply an activation's derivative entry by entry, from z."""
    return np.vectorize(ACTIVATIONS[name][1], otypes=[float])(z)


def rollout(
    W_hh: ArrayLike,
    x: ArrayLike | None = None,
    *,
    W_xh: ArrayLike | None = None,
    b: ArrayLike | None = None,
    activation: str = "tanh",
    leak: float = 1.0,
    h0: ArrayLike | None = None,
    n_steps: int | None = None,
    length: int | None = None,
) -> tuple[Array, Array]:
    """Return states (T+1, n) and z (T, n) of h' = (1-leak) h + leak φ(W_hh h + W_xh x + b).

    Steps past `length` keep the state and have z = nan.
    """
    W_hh = np.asarray(W_hh, float)
    n = len(W_hh)
    n_steps = len(np.asarray(x)) if n_steps is None else n_steps
    states = np.zeros((n_steps + 1, n))
    zs = np.full((n_steps, n), np.nan)
    states[0] = 0.0 if h0 is None else h0
    for t in range(n_steps):
        if length is not None and t >= length:
            states[t + 1] = states[t]
            continue
        z = W_hh @ states[t]
        if x is not None:
            x_t = np.atleast_1d(np.asarray(x, float)[t])
            z = z + (x_t if W_xh is None else np.asarray(W_xh, float) @ x_t)
        if b is not None:
            z = z + np.asarray(b, float)
        zs[t] = z
        states[t + 1] = (1 - leak) * states[t] + leak * phi(activation, z)
    return states, zs


def jacobians(W_hh: ArrayLike, z: Array, activation: str = "tanh", leak: float = 1.0) -> Array:
    """J_t = (1-leak) I + leak diag(φ'(z_t)) W_hh, (T, n, n); the identity where z is nan."""
    W_hh = np.asarray(W_hh, float)
    eye = np.eye(len(W_hh))
    rows = []
    for z_t in z:
        if np.isnan(z_t).any():
            rows.append(eye)
        else:
            rows.append((1 - leak) * eye + leak * dphi(activation, z_t)[:, None] * W_hh)
    return np.array(rows).reshape(len(z), *W_hh.shape)


# --- products ------------------------------------------------------------------------------------


def factors(J: Array, lag: int, anchor: str = "start") -> Array:
    """The `lag` factors of P_lag, first applied first: J_1.. ("start") or ..J_T ("end")."""
    return {"start": J[:lag], "end": J[len(J) - lag :]}[anchor]


def product(J: Array, lag: int, anchor: str = "start") -> Array:
    """P_lag: J_lag ⋯ J_1 ("start") or J_T ⋯ J_{T-lag+1} ("end"), in plain float64."""
    P = np.eye(J.shape[-1], dtype=J.dtype)
    for J_k in factors(J, lag, anchor):
        P = J_k @ P
    return P


def _scaled(P: Array) -> tuple[Array, int]:
    """P = mantissa · 2**exponent with the largest magnitude in [0.5, 1); exact."""
    exponent = math.frexp(float(np.max(np.abs(P))))[1]
    return P * 2.0**-exponent if abs(exponent) < 1000 else np.ldexp(P, -exponent), exponent


def log_norms(J: Array, ord: float | str = 2, anchor: str = "start") -> Array:
    """ln‖P_ℓ‖ for ℓ = 0..T, (T+1,), each step rescaled by a power of two; -inf for a zero."""
    P, exponent = np.eye(J.shape[-1], dtype=J.dtype), 0
    out = []
    for lag in range(len(J) + 1):
        if lag and anchor == "start":
            P = J[lag - 1] @ P
        elif lag:
            P = P @ J[len(J) - lag]
        P, shift = _scaled(P)
        exponent += shift
        norm = float(np.linalg.norm(P, ord))
        out.append(_log(norm) + exponent * math.log(2))
    return np.array(out)


def gradient_by_lag(J: Array, u: ArrayLike, anchor: str = "end") -> Array:
    """ln‖P_ℓᵀ u‖₂ for ℓ = 0..T, (T+1,)."""
    out = []
    for lag in range(len(J) + 1):
        v, log_scale = np.asarray(u), 0.0
        for J_k in factors(J, lag, anchor)[::-1]:
            size = np.linalg.norm(v)
            if size == 0:
                break
            v, log_scale = J_k.T @ (v / size), log_scale + math.log(size)
        out.append(log_scale + _log(float(np.linalg.norm(v))))
    return np.array(out)


def growth_moment(log_g: ArrayLike, lag: int, q: float) -> float:
    """(1/ℓ) ln of the mean over replicas of g**q, from the logs of g."""
    powers = q * np.asarray(log_g, float)
    top = powers.max()
    return float((top + math.log(math.fsum(np.exp(powers - top)) / powers.size)) / lag)


def horizon(log_g: ArrayLike, tol: float) -> tuple[int | None, int | None]:
    """Return (last lag whose value is not below tol, first lag below it), None if there is none."""
    above = last = first = None
    for lag, value in enumerate(np.asarray(log_g, float)):
        above = value >= math.log(tol)
        last = lag if above else last
        first = lag if not above and first is None else first
    return last, first


# --- Lyapunov exponents --------------------------------------------------------------------------


def gram_schmidt(A: Array) -> tuple[Array, Array]:
    """Q and the diagonal of R of A = QR, column by column, each projected out twice.

    A column that depends on those before it up to rounding of zero has r = 0 and a zero column.
    """
    Q, r = np.zeros_like(A), np.zeros(A.shape[1])
    for j in range(A.shape[1]):
        v = A[:, j].copy()
        for _ in range(2):
            for i in range(j):
                v -= (Q[:, i] @ v) * Q[:, i]
        r[j] = np.linalg.norm(v)
        if r[j] > 0:
            Q[:, j] = v / r[j]
    return Q, r


def eliminate(A: Array) -> tuple[Array, list[int], Array]:
    """L with its rows where those of A stand, rows in the order of pivots, and |U_jj|.

    Gaussian elimination with row interchanges: each column's pivot is the largest entry left in it.
    """
    U, L, order = A.copy(), np.zeros_like(A), []
    for j in range(A.shape[1]):
        left = [i for i in range(len(A)) if i not in order]
        order.append(max(left, key=lambda i: abs(U[i, j])))
        L[order[-1], j] = 1.0
        for i in left:
            if i != order[-1]:
                L[i, j] = U[i, j] / U[order[-1], j]
                U[i] -= L[i, j] * U[order[-1]]
    pivots = np.array([abs(U[i, j]) for j, i in enumerate(order)])
    return L, order, pivots


def qr_increments(J: Array, Q0: Array | None = None) -> Array:
    """ln r_ii of every step of Q_t R_t = J_t Q_{t-1}, (T, k) (Benettin et al. 1980)."""
    Q = np.eye(J.shape[-1]) if Q0 is None else Q0
    out = np.empty((len(J), Q.shape[1]))
    for t, J_t in enumerate(J):
        Q, r = gram_schmidt(J_t @ Q)
        out[t] = [_log(r_i) for r_i in r]
    return out


def batch_means(increments: Array, n_batches: int = 10) -> tuple[Array, Array]:
    """Mean and its standard error from equal batches of consecutive steps, each (k,).

    The error is nan where the mean is -inf.
    """
    batches = increments.reshape(n_batches, -1, increments.shape[-1]).mean(axis=1)
    mean = batches.mean(axis=0)
    with np.errstate(invalid="ignore"):
        variance = ((batches - mean) ** 2).sum(axis=0) / (n_batches - 1)
    return mean, np.sqrt(variance / n_batches)


# --- bounds --------------------------------------------------------------------------------------


def norm_bounds(
    J: Array,
    W_hh: ArrayLike,
    *,
    gamma: float = 1.0,
    leak: float = 1.0,
    block: int = 20,
    anchor: str = "start",
) -> dict[str, Array]:
    """Natural logs of upper bounds on ‖P_ℓ‖₂, ℓ = 0..T, and of one lower bound.

    spectral_norm ((1-leak) + leak γ‖W‖)^ℓ; step_norms Π‖J_k‖; blocked: product of the norms of
    blocks of `block` factors, the last one shorter; perron ‖((1-leak) I + leak γ|W|)^ℓ‖;
    determinant |det P_ℓ|^{1/n}, a lower bound.
    """
    W_hh = np.asarray(W_hh, float)
    n, lags = len(W_hh), range(len(J) + 1)
    norm = (1 - leak) + leak * gamma * np.linalg.norm(W_hh, 2)
    envelope = (1 - leak) * np.eye(n) + leak * gamma * np.abs(W_hh)
    out: dict[str, list[float]] = {name: [] for name in ("step_norms", "blocked", "determinant")}
    for lag in lags:
        own = factors(J, lag, anchor)
        ordered = own if anchor == "start" else own[::-1]
        out["step_norms"].append(sum(_log(float(np.linalg.norm(J_k, 2))) for J_k in own))
        blocks = [ordered[i : i + block] for i in range(0, lag, block)]
        blocks = [part if anchor == "start" else part[::-1] for part in blocks]
        out["blocked"].append(sum(log_norms(part)[-1] for part in blocks))
        out["determinant"].append(sum(np.linalg.slogdet(J_k)[1] for J_k in own) / n)
    powers = np.broadcast_to(envelope, (len(J), n, n))
    return {
        "spectral_norm": np.array([lag * _log(norm) if lag else 0.0 for lag in lags]),
        "perron": log_norms(powers),
        **{name: np.array(values, float) for name, values in out.items()},
    }
