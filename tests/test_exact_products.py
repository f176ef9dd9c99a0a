"""The studies' exact reference against the tests' own, and its proof against wrong values."""

from __future__ import annotations

import math
import sys

import flint
import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from exact import mp_log_singular_values
from helpers import ROOT

EPS = float(np.finfo(np.float64).eps)


@pytest.fixture(scope="module")
def studies():
    """The folder of the studies as an import path, for as long as a module's tests run."""
    sys.path.insert(0, str(ROOT / "studies"))
    import _exact_products
    import _product_families

    yield _exact_products, _product_families
    sys.path.remove(str(ROOT / "studies"))


def test_every_family_against_the_other_reference(studies):
    exact_products, families = studies
    for code, family in enumerate(families.FAMILIES):
        for seed in range(4):
            J = families.random_product(np.random.default_rng([51, code, seed]), family)[:24]
            got, exact = exact_products.log_singular_values(J), mp_log_singular_values(J)
            assert len(got) == np.isfinite(exact).sum()
            gaps = [exact_products.true_error(x, y) for x, y in zip(exact, got, strict=False)]
            # the other reference is rounded once, to float64
            assert max(gaps, default=0.0) <= 2 * EPS * (
                1 + np.abs(exact[: len(got)]).max(initial=0)
            )


def test_every_family_is_what_its_name_says(studies):
    _, families = studies
    assert len(families.FAMILIES) == 10
    for code, family in enumerate(families.FAMILIES):
        J = families.random_product(np.random.default_rng([52, code]), family)
        assert 2 <= J.shape[-1] <= families.LARGEST
        assert 2 <= len(J) <= families.LONGEST
        assert np.isfinite(J).all()
    deficient = families.random_product(np.random.default_rng(53), "deficient")
    assert (
        len(mp_log_singular_values(deficient[:1]))
        > np.isfinite(mp_log_singular_values(deficient[:1])).sum()
    )


def test_equal_values_and_zeros(studies):
    exact_products, _ = studies
    c, s = math.cos(1.0), math.sin(1.0)
    rotation = np.array([[[c, -s], [s, c]]] * 9)
    first, second = exact_products.log_singular_values(rotation)
    assert float(first - second) == 0.0
    assert exact_products.log_singular_values(np.zeros((3, 2, 2))) == []
    assert [float(x) for x in exact_products.log_singular_values(np.ones((1, 3, 3)))] == [
        pytest.approx(math.log(3.0), abs=2 * EPS)
    ]


def test_without_the_proof_the_same_values(studies):
    exact_products, _ = studies
    J = random_chain(np.random.default_rng(54), "tanh", 20, 6)
    proven = exact_products.log_singular_values(J)
    other = exact_products.log_singular_values(J, proven=False)
    assert all(abs(float(a - b)) < 1e-40 for a, b in zip(proven, other, strict=True))
    with pytest.raises(ValueError, match="`J` must have a product of full rank"):
        exact_products.log_singular_values(np.ones((1, 3, 3)), proven=False)


def test_wrong_values_have_no_proof(studies, monkeypatch):
    exact_products, _ = studies
    right = exact_products._eigenvalues

    def off_by_little(gram, rank, bits):
        values = right(gram, rank, bits)
        with flint.ctx.workprec(bits):
            return [*values[:-1], (values[-1] * (1 + flint.arb(2) ** -60)).mid()]

    monkeypatch.setattr(exact_products, "_eigenvalues", off_by_little)
    monkeypatch.setattr(exact_products, "LAST_BITS", 2**12)
    J = np.array([random_orthogonal(np.random.default_rng(55), 3) for _ in range(4)])
    with pytest.raises(ArithmeticError, match="no proof"):
        exact_products.log_singular_values(J)


def test_true_errors(studies):
    exact_products, _ = studies
    one = flint.arb(1)
    assert exact_products.true_error(1.0, one) == 0.0
    assert exact_products.true_error(1.0 + EPS, one) == EPS
    assert exact_products.true_error(-math.inf, None) == 0.0
    assert exact_products.true_error(-math.inf, one) == math.inf
    assert exact_products.true_error(3.0, None) == math.inf
    assert math.isnan(exact_products.true_error(math.nan, one))
