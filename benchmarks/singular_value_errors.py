"""Stated against true errors of ``singular_values`` and ``log_norms`` on random small products.

``python benchmarks/singular_value_errors.py [PRODUCTS] [JOBS]``: by default 20 000 products of ten
families in equal parts (n = 2 ... 8, up to 60 factors) against exact integer products. Each line is
a family: how many values and norms; the share of products that needed arbitrary precision (the aim
is at most 5 % outside the families that are singular or strongly non-normal); how many are nan in
the end; then, with and without arbitrary precision, how many have a true error above the stated one
(the aim is 0) and the largest ratio of true to stated error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))
import _exact_products
import _product_families

import gradprop as gp
from gradprop.environment import single_threaded_blas

BATCH = 50
FLOAT64_TOL = 1e300
COLUMNS = {
    "sigma": "singular values",
    "norm": "norms",
    "sigma_alone": "float64: values",
    "norm_alone": "float64: norms",
}
Numbers = NDArray[np.float64]


def ratios(stated: Numbers, true: Numbers) -> Numbers:
    """True over stated errors; 0 for exact zeros, nan for values that are not given."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((true == 0) & (stated == 0), 0.0, true / stated)


def errors(values: Numbers, exact: list[object]) -> Numbers:
    padded = [*exact, *[None] * (len(values) - len(exact))]
    return np.array(
        [_exact_products.true_error(v, x) for v, x in zip(values.tolist(), padded, strict=True)]
    )


def frobenius(J: Numbers) -> object:
    """Exact ln of the Frobenius norm; None for a zero product."""
    from flint import arb, ctx

    product, exponent = _exact_products.exact_product(J, J.shape[-1])
    total = sum(x * x for x in product.entries())
    with ctx.workprec(192):
        return arb(total).log() / 2 + exponent * arb(2).log() if total else None


def norms(chain: gp.JacobianChain) -> tuple[Numbers, Numbers]:
    """Ln of the 2-norm and of the Frobenius norm of the whole product, and their errors."""
    found = [gp.log_norms(chain, ord=ord, lags=[chain.n_steps]) for ord in (2, "fro")]
    return np.array([x.log_norm[0] for x in found]), np.array([x.error[0] for x in found])


def one(J: Numbers) -> Mapping[str, Numbers]:
    chain, exact = gp.JacobianChain.dense(J), _exact_products.log_singular_values(J)
    exact_norms = [exact[0], frobenius(J)] if exact else []
    sigma, norm = gp.singular_values(chain), norms(chain)
    with mock.patch("gradprop.escalation.available", return_value=False):
        sigma_alone, norm_alone = gp.singular_values(chain, tol=FLOAT64_TOL), norms(chain)
    return {
        "sigma": ratios(sigma.error[0], errors(sigma.log_sigma[0], exact)),
        "norm": ratios(norm[1], errors(norm[0], exact_norms)),
        "sigma_alone": ratios(sigma_alone.error[0], errors(sigma_alone.log_sigma[0], exact)),
        "norm_alone": ratios(norm_alone[1], errors(norm_alone[0], exact_norms)),
        "escalated": sigma.escalated.astype(float),
        "unresolved": np.isnan(np.r_[sigma.log_sigma[0], norm[0]]),
    }


def batch(arguments: tuple[str, int, int]) -> tuple[str, dict[str, Numbers]]:
    family, first, count = arguments
    code = _product_families.FAMILIES.index(family)
    with single_threaded_blas():
        found = [
            one(_product_families.random_product(np.random.default_rng([31, code, seed]), family))
            for seed in range(first, first + count)
        ]
    return family, {name: np.concatenate([x[name] for x in found]) for name in found[0]}


def main(products: int = 20_000, jobs: int = 2) -> None:
    each = products // len(_product_families.FAMILIES)
    work = [
        (family, first, min(BATCH, each - first))
        for first in range(0, each, BATCH)
        for family in _product_families.FAMILIES
    ]
    found: dict[str, list[dict[str, Numbers]]] = {f: [] for f in _product_families.FAMILIES}
    start = time.perf_counter()
    batch(work[0])  # compiles, so that workers find the cache
    with ProcessPoolExecutor(jobs) as pool:
        for family, result in pool.map(batch, work):
            found[family].append(result)
    print(
        f"{'family':<12}{'values':>8}{'norms':>7}{'escalated':>11}{'unresolved':>12}  "
        + "".join(f"{name:>18}" for name in COLUMNS.values())
    )
    easy = []
    for family, parts in found.items():
        all_of = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if family not in _product_families.HARD:
            easy.append(all_of["escalated"])
        print(
            f"{family:<12}{all_of['sigma'].size:8d}{all_of['norm'].size:7d}"
            f"{all_of['escalated'].mean():11.2%}{int(all_of['unresolved'].sum()):12d}  "
            + "".join(
                f"{(all_of[name] > 1).sum():9d}{np.nanmax(all_of[name]):9.3f}" for name in COLUMNS
            )
        )
    print(
        f"{each * len(found)} products, {each} a family; escalated outside "
        f"{', '.join(_product_families.HARD)}: {np.concatenate(easy).mean():.2%}; "
        f"{time.perf_counter() - start:.0f} s, {jobs} processes"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
