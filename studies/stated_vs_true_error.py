"""Singular values of long products: the error stated beside every value against its true error.

The claim: over 5000 products of ten families, some of them beyond any float64 method, no singular
value is further from the truth than the error stated with it. Where float64 cannot settle a value
(cancelling, strongly non-normal and rank-deficient products), arbitrary precision does; without it
the value is nan, never a plausible number. Beside it: what a plain product, a rescaled product and
a QR sweep make of the same chains, and what each costs. The truth comes from exact integer products
and a characteristic polynomial whose changes of sign prove every value (_exact_products.py).

Not shown: generalised orders of magnitude (GOOM), which do not install from PyPI: a product with
the relative accuracy of a float64 dot product, as the rescaled one here.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence

import _product_families
import _stated_draw
import _stated_measure

from gradprop.study import Data, Study, Table, seed_range
from gradprop.sweep import Sweep


def sweeps(options: argparse.Namespace) -> Sequence[Sweep]:
    """Ten families of products, and four methods on tanh chains."""
    if importlib.util.find_spec("flint") is None:
        raise ValueError("this study needs python-flint: pip install 'gradprop[exact]'")
    quick = options.quick
    products = Sweep(
        "products",
        _stated_measure.measure,
        {"family": list(_product_families.FAMILIES)},
        seeds=seed_range(options, 1 if quick else 20),
        rng_keys=("family",),
        constants={"size": 4 if quick else 25},
    )
    methods = Sweep(
        "methods",
        _stated_measure.measure_methods,
        {"n": [4, 8] if quick else [8, 16, 32]},
        seeds=seed_range(options, 1 if quick else 20)[:5],
        rng_keys=("n",),
        constants={"n_steps": 50 if quick else 100},
    )
    return [products, methods]


def headline(data: Data) -> Table:
    """Counts per family, and the largest error of each method."""
    products, methods = data["products"], data["methods"]
    rows: list[Sequence[str | float]] = [
        ("family", "values", "above", "largest ratio", "escalated", "unresolved", "float64: open")
    ]
    names = (*_product_families.FAMILIES, "all")
    for name in names:
        part = products if name == "all" else products.select(family=name)
        n_products = part["n"].size
        rows.append(
            (
                name,
                int(part["n_values"].sum()),
                int(part["n_above"].sum()),
                float(part["largest_ratio"].max()),
                f"{part['n_escalated'].sum() / n_products:.1%}",
                int(part["n_unresolved"].sum()),
                f"{part['n_open_alone'].sum() / part['n_values'].sum():.1%}",
            )
        )
    for i, name in enumerate(_stated_measure.METHODS):
        largest = float(methods["largest_error"][:, i].max())
        rows.append((f"{name}: largest error [nats]", largest, *[""] * 5))
    return rows


STUDY = Study("stated_vs_true_error", __doc__ or "", sweeps, _stated_draw.draw, headline)

if __name__ == "__main__":
    sys.exit(STUDY.main())
