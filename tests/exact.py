"""References without rounding: products of float64 factors in integers, their values by mpmath.

A float64 matrix is an integer matrix times a power of two, so a product of such matrices is too,
and nothing is lost. Working precision is then chosen from a proven bound on the spread of the
singular values, so that all digits asked for are right.
"""

from __future__ import annotations

from collections.abc import Iterable

import mpmath
import numpy as np
from numpy.typing import NDArray

Integers = list[list[int]]


def integer_matrix(A: NDArray[np.float64]) -> tuple[Integers, int]:
    """A = M · 2**exponent, exactly."""
    ratios = [[float(a).as_integer_ratio() for a in row] for row in A]
    common = max(den for row in ratios for _, den in row)
    return [[num * (common // den) for num, den in row] for row in ratios], 1 - common.bit_length()


def exact_product(J: Iterable[NDArray[np.float64]], n: int) -> tuple[Integers, int]:
    """J_T ⋯ J_1 = M · 2**exponent, exactly; J is in the order of application."""
    P, exponent = [[int(i == j) for j in range(n)] for i in range(n)], 0
    for J_k in J:
        A, shift = integer_matrix(J_k)
        columns = list(zip(*P, strict=True))
        P = [
            [sum(a * p for a, p in zip(row, column, strict=True)) for column in columns]
            for row in A
        ]
        exponent += shift
    return P, exponent


def rank_and_minor(M: Integers) -> tuple[int, int]:
    """Rank r of an integer matrix and the magnitude of one nonzero r × r minor (Bareiss 1968)."""
    A, n, previous = [row[:] for row in M], len(M), 1
    for k in range(n):
        i, j = max(
            ((i, j) for i in range(k, n) for j in range(k, n)), key=lambda ij: abs(A[ij[0]][ij[1]])
        )
        if A[i][j] == 0:
            return k, abs(previous)
        A[k], A[i] = A[i], A[k]
        for row in A:
            row[k], row[j] = row[j], row[k]
        for i in range(k + 1, n):
            for j in range(k + 1, n):
                A[i][j] = (A[i][j] * A[k][k] - A[i][k] * A[k][j]) // previous
        previous = A[k][k]
    return n, abs(previous)


def mp_log_singular_values(J: NDArray[np.float64], digits: int = 30) -> NDArray[np.float64]:
    """ln σ_i of J_T ⋯ J_1, descending, (n,): right to `digits`, then rounded to float64.

    By Cauchy-Binet the squares of the r × r minors of a matrix of rank r sum to Π σ_i², so one
    minor bounds σ_r from below by |minor| / ‖P‖_F^{r-1}. That many bits more than asked for make a
    normwise stable SVD right for the smallest value too. Beyond the exact rank: -inf.
    """
    n = J.shape[-1]
    M, exponent = exact_product(J, n)
    rank, minor = rank_and_minor(M)
    out = np.full(n, -np.inf)
    if rank == 0:
        return out
    squared_norm_bits = sum(m * m for row in M for m in row).bit_length()
    spread_bits = rank * (squared_norm_bits + 1) // 2 - minor.bit_length() + 1
    with mpmath.workprec(spread_bits + int(3.33 * digits) + 64 + 4 * n):
        sigma = mpmath.svd_r(mpmath.matrix(M), compute_uv=False)
        values = sorted((sigma[i] for i in range(n)), reverse=True)[:rank]
        out[:rank] = [float(mpmath.log(s) + exponent * mpmath.log(2)) for s in values]
    return out


def exact_log_norm(J: NDArray[np.float64], ord: int | str = 2) -> float:
    """ln of the 2-norm or (ord="fro") the Frobenius norm of J_T ⋯ J_1, rounded once."""
    if ord == 2:
        return float(mp_log_singular_values(J)[0])
    M, exponent = exact_product(J, J.shape[-1])
    total = sum(m * m for row in M for m in row)
    with mpmath.workdps(40):
        return float(mpmath.log(total) / 2 + exponent * mpmath.log(2)) if total else -np.inf


def exact_log_abs_det(J: NDArray[np.float64]) -> float:
    """ln|det(J_T ⋯ J_1)| as the sum over factors, rounded once; -inf if a factor is singular."""
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for J_k in J:
            M, exponent = integer_matrix(J_k)
            rank, minor = rank_and_minor(M)
            if rank < len(M):
                return -np.inf
            total += mpmath.log(minor) + len(M) * exponent * mpmath.log(2)
        return float(total)
