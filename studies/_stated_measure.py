"""What stated_vs_true_error measures at one point of its grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import _exact_products
import _product_families
import numpy as np
from numpy.typing import NDArray

import gradprop as gp

TOLERANCE = 1e-8
METHODS = ("plain product and SVD", "rescaled product and SVD", "QR sweep", "gradprop")

Array = NDArray[np.float64]


def measure(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Stated and true errors of a batch of products of one family, values padded with nan.

    ``error`` and ``true_error`` are those of `singular_values` as it is; ``error_alone`` and
    ``true_alone`` those of float64 alone, whatever its stated error, as where python-flint is
    missing and the tolerance is high.
    """
    size, widest = int(point["size"]), _product_families.LARGEST
    shape = (size, widest)
    fields = ("error", "true_error", "error_alone", "true_alone")
    found: dict[str, Any] = {name: np.full(shape, np.nan) for name in fields}
    found["n"] = np.zeros(size, dtype=np.int64)
    found["lag"] = np.zeros(size, dtype=np.int64)
    found["escalated"] = np.zeros(size, dtype=bool)
    for i in range(size):
        J = _product_families.random_product(rng, point["family"])
        n = J.shape[-1]
        chain, exact = gp.JacobianChain.dense(J), _exact_products.log_singular_values(J)
        values = gp.singular_values(chain, tol=TOLERANCE)
        with mock.patch("gradprop.escalation.available", return_value=False):
            alone = gp.singular_values(chain, tol=np.finfo(float).max)
        found["n"][i], found["lag"][i] = n, len(J)
        found["escalated"][i] = values.escalated[0]
        found["error"][i, :n], found["error_alone"][i, :n] = values.error[0], alone.error[0]
        found["true_error"][i, :n] = _true_errors(values.log_sigma[0], exact)
        found["true_alone"][i, :n] = _true_errors(alone.log_sigma[0], exact)
    return found | _summary(found)


def _true_errors(log_sigma: Array, exact: list[Any]) -> Array:
    padded = [*exact, *[None] * (len(log_sigma) - len(exact))]
    return np.array(
        [_exact_products.true_error(v, x) for v, x in zip(log_sigma.tolist(), padded, strict=True)]
    )


def ratios(error: Array, true_error: Array) -> Array:
    """True over stated error; 0 for exact zeros, nan where there is no value."""
    with np.errstate(invalid="ignore", divide="ignore"):
        exact_zero = (error == 0) & (true_error == 0)
        return np.asarray(np.where(exact_zero, 0.0, true_error / error))


def _summary(found: Mapping[str, Any]) -> dict[str, Any]:
    ratio = ratios(found["error"], found["true_error"])
    alone = ratios(found["error_alone"], found["true_alone"])
    known = found["error_alone"] <= TOLERANCE
    return {
        "n_values": int(found["n"].sum()),
        "n_above": int((ratio > 1).sum()),
        "n_above_alone": int((alone > 1).sum()),
        "n_unresolved": int(found["n"].sum() - np.isfinite(found["true_error"]).sum()),
        "n_open_alone": int(found["n"].sum() - known.sum()),
        "n_escalated": int(found["escalated"].sum()),
        "largest_ratio": float(np.nanmax(ratio, initial=0.0)),
        "largest_ratio_alone": float(np.nanmax(alone, initial=0.0)),
    }


def measure_methods(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Largest error of each method's singular values (nats) and its work, on one tanh chain.

    Work is counted in floating point operations, to the leading order in n: 2 n^3 for a product of
    matrices, 8/3 n^3 for a QR with its Q and for an SVD without vectors, and for `singular_values`
    what its docstring says, three computations of 12 n^3 a step.
    """
    n, n_steps = int(point["n"]), int(point["n_steps"])
    W = rng.standard_normal((n, n)) / np.sqrt(n)
    dphi = gp.activations.activation("tanh").derivative(rng.standard_normal((n_steps, n)))
    J = dphi[..., None] * W
    exact = _exact_products.log_singular_values(J, proven=False)
    values = gp.singular_values(gp.JacobianChain.dense(J), tol=TOLERANCE)
    answers = (plain_product(J), rescaled_product(J), qr_sweep(J), values.log_sigma[0])
    svd, step = 8 / 3, 2.0
    work = (n_steps * step + svd, n_steps * step + svd, n_steps * (step + 8 / 3), n_steps * 36.0)
    return {
        "steps": n_steps,
        "largest_error": np.array([max(_true_errors(a, exact)) for a in answers]),
        "flops": np.array(work) * n**3,
        "stated": float(values.error.max()),
    }


def plain_product(J: Array) -> Array:
    """Ln singular values of the float64 product as it comes."""
    P = np.eye(J.shape[-1])
    for J_k in J:
        P = J_k @ P
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.linalg.svd(P, compute_uv=False)))


def rescaled_product(J: Array) -> Array:
    """Ln singular values of the float64 product, a power of two taken out at every step."""
    P, exponent = np.eye(J.shape[-1]), 0
    for J_k in J:
        P = J_k @ P
        shift = int(np.frexp(np.abs(P).max())[1])
        P, exponent = np.ldexp(P, -shift), exponent + shift
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.linalg.svd(P, compute_uv=False)) + exponent * np.log(2.0))


def qr_sweep(J: Array) -> Array:
    """Sums of ln |R_ii| of one sweep of QR from the identity, descending."""
    Q, total = np.eye(J.shape[-1]), np.zeros(J.shape[-1])
    for J_k in J:
        Q, R = np.linalg.qr(J_k @ Q)
        total += np.log(np.abs(np.diagonal(R)))
    return np.sort(total)[::-1]
