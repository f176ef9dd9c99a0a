"""Block Gram-Schmidt: Q R is the panel row by row, Q is well conditioned, up to its limit."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from chains import random_orthogonal
from hypothesis import given
from hypothesis import strategies as st

from gradprop._kernels.blockqr import block_qr
from gradprop._kernels.stripqr import from_strips, to_strips
from gradprop._kernels.tiles import WIDTH

EPS = float(np.finfo(np.float64).eps)
LIMIT = 1e6


def factors(B):
    """Whether B (n, k) was taken, Q (n, k) and R (k, k); what lies below R's blocks is ignored."""
    n, k = B.shape
    strips, rows = -(-k // WIDTH), 8 * -(-n // 8)
    P, upper = np.zeros((strips, rows, WIDTH)), np.full((strips, rows, WIDTH), np.nan)
    to_strips(B, P)
    Q, R = np.empty((n, k)), np.empty((k, k))
    with np.errstate(all="ignore"):
        spread = block_qr(P, k, upper, LIMIT)
    from_strips(P, Q)
    from_strips(upper, R)
    taken, R = spread < np.inf, np.where(np.triu(np.ones((k, k))) > 0, R, 0.0)
    if taken:
        assert spread <= LIMIT
        longest = np.linalg.norm(B, axis=0).max()
        np.testing.assert_allclose(spread, longest / np.diagonal(R).min(), rtol=1e-12)
        assert not P[:, n:].any()
        assert not np.delete(np.hstack(P), np.s_[:k], axis=1).any()
    return taken, Q, R


def with_spread(rng, n, k, spread):
    """Singular values from 1 down to 1 / spread."""
    values = np.geomspace(1.0, 1.0 / spread, k)
    return random_orthogonal(rng, n)[:, :k] * values @ random_orthogonal(rng, k)


@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (7, 3), (16, 16), (17, 17), (64, 64), (65, 65), (100, 70)]
)
def test_factors(n, k):
    B = np.random.default_rng(n).standard_normal((n, k))
    taken, Q, R = factors(B)
    assert taken
    np.testing.assert_allclose(Q @ R, B, rtol=0, atol=4 * k * EPS * np.abs(B).max())
    twin, pivots = naive.gram_schmidt(B)
    # Gram matrices square the condition
    atol = 10 * k * EPS * np.linalg.cond(B) ** 2
    np.testing.assert_allclose(np.diagonal(R), pivots, rtol=atol)
    np.testing.assert_allclose(Q, twin, atol=atol)


@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.floats(0.0, 5.0))
def test_what_is_taken_is_the_panel_to_rounding(seed, k, digits):
    rng = np.random.default_rng(seed)
    n = k + int(rng.integers(0, 9))
    B = with_spread(rng, n, k, 10.0**digits) * 10.0 ** -rng.uniform(0, 12, (n, 1))
    taken, Q, R = factors(B)
    if taken:
        # each row as a substitution leaves it (Higham 2002, theorem 8.5), and the sums over blocks
        bound = 4 * (k + 8) * EPS * np.abs(Q) @ np.abs(R)
        assert (np.abs(Q @ R - B) <= bound + np.finfo(float).tiny).all()
        assert np.linalg.cond(Q) < 1.1


def test_ill_conditioned_panels_are_refused_or_right():
    rng = np.random.default_rng(3)
    assert factors(with_spread(rng, 40, 40, 1e4))[0]
    for spread in (1e8, 1e14):
        assert not factors(with_spread(rng, 40, 40, spread))[0]
    for B in (np.zeros((5, 5)), np.ones((5, 5)), np.full((5, 5), np.nan), np.eye(5) * 1e300):
        assert not factors(B)[0]
    # a first block that is small beside a later one
    assert not factors(np.diag(np.r_[np.full(20, 0.9 / LIMIT), np.ones(20)]))[0]
    assert not factors(np.diag(np.r_[np.ones(40), 0.9 / LIMIT]))[0]
