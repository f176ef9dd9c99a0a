"""Singular values without rounding: products in integers, their values proven by sign changes.

A float64 matrix is an integer matrix times a power of two, and so is a product of such matrices.
The characteristic polynomial of P^T P then has integer coefficients: they tell the rank and a lower
bound of the smallest value, hence the precision at which its roots are found; a change of sign on
either side of each root proves it. Nothing of gradprop's own algorithms is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

GUARD_BITS = 192
HALF_WIDTH_BITS = 96
"""Roots are enclosed to a relative width of 2^(1 - HALF_WIDTH_BITS)."""
LAST_BITS = 2**18

Matrix = NDArray[np.float64]


def exact_product(J: Iterable[Matrix], n: int) -> tuple[Any, int]:
    """J_T ... J_1 = M 2**exponent exactly, M a flint.fmpz_mat; J in the order of application."""
    from flint import fmpz_mat

    product, exponent = fmpz_mat(np.eye(n, dtype=int).tolist()), 0
    last, (factor, shift) = np.eye(n), _integers(np.eye(n))
    for J_k in J:
        if not np.array_equal(J_k, last):
            last, (factor, shift) = J_k, _integers(J_k)
        product, exponent = factor * product, exponent + shift
    return product, exponent


def _integers(A: Matrix) -> tuple[Any, int]:
    from flint import fmpz_mat

    mantissas, exponents = np.frexp(A)
    shift = int(exponents[A != 0].min()) - 53 if A.any() else 0
    rows = zip(np.ldexp(mantissas, 53).tolist(), (exponents - 53 - shift).tolist(), strict=True)
    return fmpz_mat(
        [[int(m) << e if m else 0 for m, e in zip(*row, strict=True)] for row in rows]
    ), shift


def log_singular_values(J: Matrix, *, proven: bool = True) -> list[Any]:
    """Log singular values of J_T ... J_1 that are not zero, descending, as flint.arb; J (T, n, n).

    ``proven=False`` (for n > 10: the characteristic polynomial costs n^4) needs full rank and
    trusts the backward stability of the QR algorithm at a precision that the determinant gives.
    """
    from flint import arb, ctx

    n = J.shape[-1]
    product, exponent = exact_product(J, n)
    gram = product.transpose() * product
    if proven:
        polynomial = gram.charpoly()
        rank, lowest = _rank_and_lowest(polynomial, n)
    else:
        rank, lowest = n, int(product.det()) ** 2
        if lowest == 0:
            raise ValueError("`J` must have a product of full rank where `proven` is False.")
    if rank == 0:
        return []
    trace = int(sum(gram[i, i] for i in range(n)))
    # sigma_r^2 >= (product of all sigma^2) / trace^(r-1)
    bits = rank * trace.bit_length() - lowest.bit_length() + GUARD_BITS
    roots = _eigenvalues(gram, rank, bits)
    if proven:
        _prove(polynomial, rank, n, roots, bits)
    with ctx.workprec(GUARD_BITS):
        return [root.log() / 2 + exponent * arb(2).log() for root in roots]


def _rank_and_lowest(polynomial: Any, n: int) -> tuple[int, int]:
    """Rank, and the product of all squared singular values that are not zero."""
    coefficients = [abs(int(c)) for c in polynomial.coeffs()]
    zeros = next(k for k, c in enumerate(coefficients) if c)
    return n - zeros, coefficients[zeros]


def _eigenvalues(gram: Any, rank: int, bits: int) -> list[Any]:
    """The `rank` largest eigenvalues, descending, without an error bound."""
    from flint import acb_mat, ctx

    with ctx.workprec(bits):
        values = [x.real.mid() for x in acb_mat(gram).eig(algorithm="approx")]
        return sorted(values, key=functools.cmp_to_key(_compare), reverse=True)[:rank]


def _compare(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


def _prove(polynomial: Any, rank: int, n: int, roots: list[Any], bits: int) -> None:
    """Check that the polynomial changes sign around every distinct root, in disjoint intervals."""
    from flint import arb, arb_poly, ctx, fmpz_poly

    integers = fmpz_poly(polynomial.coeffs()[n - rank :])
    with ctx.workprec(bits):
        width = arb(2) ** -HALF_WIDTH_BITS
        distinct = roots[:1]
        for x in roots[1:]:
            if x < distinct[-1] * (1 - 4 * width):
                distinct.append(x)
        edges = [(x * side).mid() for x in distinct for side in (1 + width, 1 - width)]
    if len(distinct) < rank:
        # equal values, as of the powers of a rotation in the plane: every root once
        integers = integers // integers.gcd(integers.derivative())
    while integers.degree() == len(distinct) and bits <= LAST_BITS:
        with ctx.workprec(bits):
            p = arb_poly([arb(c) for c in integers.coeffs()])
            values = [p(x) for x in edges]
            if all(up * low < 0 for up, low in zip(values[::2], values[1::2], strict=True)):
                return
        bits *= 2
    raise ArithmeticError(f"no proof of the singular values of a product of rank {rank}.")


def true_error(value: float, exact: Any | None) -> float:
    """|value - exact|, exact being None for ln 0; nan for nan, inf where only one is -inf."""
    from flint import arb, ctx

    if math.isnan(value):
        return math.nan
    if exact is None or math.isinf(value):
        return 0.0 if exact is None and value == -math.inf else math.inf
    with ctx.workprec(GUARD_BITS):
        return float(abs((arb(value) - exact).mid()))
