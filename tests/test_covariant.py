"""Covariant vectors: eigenvectors of periodic chains, the covariance law, angles, zeros."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from helpers import same, tolerance
from scipy.linalg import subspace_angles

import gradprop as gp

EPS = float(np.finfo(np.float64).eps)
dense = gp.JacobianChain.dense


def up_to_sign(a, b):
    """Largest distance of unit columns, whichever their signs."""
    return np.minimum(np.abs(a - b).max(axis=-2), np.abs(a + b).max(axis=-2)).max(initial=0.0)


# --- known vectors --------------------------------------------------------------------------------


def test_cat_map():
    J = np.array([[2.0, 1.0], [1.0, 1.0]])
    vectors = gp.covariant_vectors(dense([J] * 100), burn_in=30)
    expected = np.linalg.eigh(J)[1][:, ::-1]
    assert vectors.times.tolist() == list(range(30, 71))
    assert up_to_sign(vectors.vectors, expected) <= 1e-12
    golden = math.log((3 + math.sqrt(5)) / 2)
    np.testing.assert_allclose(vectors.growth, [[golden, -golden]] * 41, atol=1e-12)
    np.testing.assert_allclose(vectors.exponents, [golden, -golden], atol=1e-12)
    np.testing.assert_allclose(vectors.angles, np.pi / 2, atol=1e-7)  # arcsin next to 1
    assert vectors.status == gp.Status.OK


def test_a_constant_matrix_that_is_not_symmetric():
    # eigenvectors (3, 2)/sqrt(13) of 2 and (0, 1) of 1/2
    vectors = gp.covariant_vectors(dense([[[2.0, 0.0], [1.0, 0.5]]] * 100), burn_in=40)
    expected = np.array([[3 / math.sqrt(13), 0.0], [2 / math.sqrt(13), 1.0]])
    assert up_to_sign(vectors.vectors, expected) <= 1e-12
    np.testing.assert_allclose(vectors.angles, math.acos(2 / math.sqrt(13)), atol=1e-12)


def test_directions_are_ordered_whatever_their_axes():
    # a basis that started on the axes would keep 0.1 before 0.4 for ever
    result = gp.covariant_vectors(dense([np.diag([0.1, 0.4, 0.3])] * 400), burn_in=180)
    np.testing.assert_allclose(result.exponents, np.log([0.4, 0.3, 0.1]), atol=1e-12)
    assert up_to_sign(result.vectors, np.eye(3)[:, [1, 2, 0]]) <= 1e-12


@pytest.mark.parametrize("n", [2, 3, 5])
def test_periodic_chains_have_eigenvectors_of_the_period(n):
    """Three factors in turn: their order shows, and each time has its own vectors."""
    rng = np.random.default_rng(n)
    V = [np.linalg.qr(rng.standard_normal((n, n)))[0] + 0.3 * rng.standard_normal((n, n))
         for _ in range(3)]  # fmt: skip
    sizes = 2.0 ** -np.arange(n)
    J = [V[(t + 1) % 3] @ np.diag(sizes) @ np.linalg.inv(V[t]) for t in range(3)]
    vectors = gp.covariant_vectors(dense(J * 80), burn_in=75, tail=75)
    for at, t in enumerate(vectors.times):
        expected = V[t % 3] / np.linalg.norm(V[t % 3], axis=0)
        # conditioned as the eigenvectors are
        atol = tolerance(np.float64, n, 3) * np.linalg.cond(V[t % 3]) ** 2 * 2**n
        assert up_to_sign(vectors.vectors[at], expected) <= atol
        following = np.linalg.norm(V[(t + 1) % 3], axis=0) / np.linalg.norm(V[t % 3], axis=0)
        np.testing.assert_allclose(vectors.growth[at], np.log(sizes * following), atol=atol)


# --- laws -----------------------------------------------------------------------------------------


def chaotic_chain(n=6, steps=900, seed=0):
    rng = np.random.default_rng(seed)
    cell = gp.RNN(2.5 * rng.standard_normal((n, n)) / math.sqrt(n))
    return gp.linearise(cell, 0.3 * rng.standard_normal((steps, n)))


def test_the_chain_carries_vectors_into_one_another():
    chain = chaotic_chain()
    result = gp.covariant_vectors(chain, burn_in=200)
    J, v = chain.to_dense(), result.vectors
    for at, t in enumerate(result.times[:-1]):
        image = J[t] @ v[at]
        expected = v[at + 1] * np.exp(result.growth[at])
        # rounding is relative to the step's norm, not to the growth of the vector
        atol = tolerance(np.float64, 6, 1) * np.linalg.norm(J[t], 2)
        np.testing.assert_allclose(image, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, atol=10 * EPS)


def test_vectors_forget_both_ends():
    chain = chaotic_chain()
    one = gp.covariant_vectors(chain, burn_in=300, tail=300)
    J = chain.to_dense()
    # another start of the basis, another first step, another last one
    other = gp.covariant_vectors(dense(J[40:-50]), burn_in=260, tail=250, rng=7)
    assert same(one.times, other.times + 40)
    gap = np.abs(np.diff(gp.lyapunov_spectrum(chain).exponents)).min()
    converged = math.exp(-250 * gap)
    angle = one.angles.min()
    assert up_to_sign(one.vectors, other.vectors) <= converged + 1000 * EPS / angle**2
    np.testing.assert_allclose(one.growth, other.growth, atol=converged + 1000 * EPS / angle**2)


def test_growth_averages_to_the_exponents():
    chain = chaotic_chain(steps=3000)
    vectors = gp.covariant_vectors(chain, burn_in=300, tail=300)
    spectrum = gp.lyapunov_spectrum(dense(chain.to_dense()[:2700]), burn_in=300)
    np.testing.assert_allclose(vectors.exponents, vectors.growth[:-1].mean(axis=0), atol=1e-12)
    # both are time averages of the same growth up to terms of order 1/T
    np.testing.assert_allclose(vectors.exponents, spectrum.exponents, atol=20 / 2400)


def test_leading_vectors_are_those_of_all():
    chain = chaotic_chain()
    whole = gp.covariant_vectors(chain, burn_in=300)
    for k in (1, 3):
        leading = gp.covariant_vectors(chain, k, burn_in=300)
        assert leading.vectors.shape == (301, 6, k)
        assert leading.angles.shape == (301, k - 1)
        assert up_to_sign(leading.vectors, whole.vectors[..., :k]) <= 1e-9
        np.testing.assert_allclose(leading.exponents, whole.exponents[:k], atol=1e-9)


def test_angles_are_the_smallest_principal_ones():
    result = gp.covariant_vectors(chaotic_chain(), burn_in=300, times=[300, 410, 600])
    assert result.splits.tolist() == [1, 2, 3, 4, 5]
    for at in range(3):
        v = result.vectors[at]
        for s, j in enumerate(result.splits):
            expected = subspace_angles(v[:, :j], v[:, j:]).min()
            assert result.angles[at, s] == pytest.approx(expected, abs=1e-9)
    some = gp.covariant_vectors(chaotic_chain(), burn_in=300, times=[410], splits=[4, 2])
    assert same(some.angles[0], result.angles[1, [3, 1]])


def test_blocks_checkpoints_and_replicas_change_no_bit(monkeypatch):
    rng = np.random.default_rng(3)
    cell = gp.RNN(2 * rng.standard_normal((2, 4, 4)) / 2)
    x = rng.standard_normal((2, 130, 4))
    chain = gp.linearise(cell, x)
    together = gp.covariant_vectors(chain, burn_in=31)
    module = importlib.import_module("gradprop.lyapunov.ginelli")
    monkeypatch.setattr(module, "CALL_FLOPS", 1500.0)
    pieces = gp.covariant_vectors(chain, burn_in=31)
    few = gp.covariant_vectors(chain, burn_in=31, times=[40, 77])
    for r in range(2):
        alone = gp.covariant_vectors(gp.linearise(gp.RNN(cell.W_hh[r]), x[r]), burn_in=31)
        for name in ("vectors", "growth", "angles", "exponents"):
            assert same(getattr(together, name)[r], getattr(alone, name))
            assert same(getattr(together, name), getattr(pieces, name))
    assert same(few.vectors, together.vectors[:, [9, 46]])
    assert same(few.exponents, together.exponents)


def test_sequences_of_different_lengths():
    rng = np.random.default_rng(4)
    cell, x = gp.RNN(rng.standard_normal((3, 3))), rng.standard_normal((3, 120, 3))
    lengths = [120, 83, 5]
    together = gp.covariant_vectors(gp.linearise(cell, x, lengths=lengths), burn_in=20)
    for r in range(2):
        alone = gp.covariant_vectors(gp.linearise(cell, x[r, : lengths[r]]), burn_in=20)
        count = len(alone.times)
        assert same(together.vectors[r, :count], alone.vectors)
        assert same(together.exponents[r], alone.exponents)
        assert np.isnan(together.vectors[r, count:]).all()
    assert np.isnan(together.vectors[2]).all()
    assert together.status.tolist() == [0, gp.Status.PADDED, gp.Status.PADDED]


# --- zeros and lost directions --------------------------------------------------------------------


def test_a_direction_that_is_lost_has_minus_infinity_and_no_vector():
    rng = np.random.default_rng(5)
    G = rng.standard_normal((200, 3, 3))
    G[:, 2] = 0.0  # rank two at every step
    result = gp.covariant_vectors(dense(G), burn_in=60)
    assert result.exponents[2] == -np.inf
    assert (result.growth[:, 2] == -np.inf).all()
    assert np.isnan(result.vectors[..., 2]).all()
    assert result.status & gp.Status.ZERO
    assert np.isnan(result.angles[:, 1]).all()
    for at, t in enumerate(result.times[:-1]):
        image = G[t] @ result.vectors[at, :, :2]
        expected = result.vectors[at + 1, :, :2] * np.exp(result.growth[at, :2])
        np.testing.assert_allclose(image, expected, atol=1e-13 * np.linalg.norm(G[t]))
        angle = subspace_angles(result.vectors[at, :, :1], result.vectors[at, :, 1:2])[0]
        assert result.angles[at, 0] == pytest.approx(angle, abs=1e-9)


def test_before_a_leading_direction_dies_nothing_is_told():
    # 1300 steps turn the basis exactly into the axes (2^-1300 is 0); the first one, which leads,
    # then dies
    start, zero = np.array([np.diag([4.0, 2.0, 1.0])] * 1300), np.diag([0.0, 1.0, 1.0])
    chain = np.concatenate([start, [zero], start[:100]])
    result = gp.covariant_vectors(dense(chain), burn_in=1250, tail=50)
    assert result.status & gp.Status.ZERO
    after = result.times >= 1301
    assert after.sum() == 51
    np.testing.assert_allclose(result.growth[after][:, :2], [[np.log(2), 0]] * 51, atol=1e-15)
    np.testing.assert_allclose(result.exponents[:2], [np.log(2), 0], atol=1e-15)
    assert up_to_sign(result.vectors[after][..., :2], np.eye(3)[:, 1:]) <= 4 * EPS
    assert result.exponents[2] == -np.inf
    assert np.isnan(result.vectors[~after]).all()


def test_directions_lost_in_rounding():
    result = gp.covariant_vectors(dense([np.ones((3, 3)) / 3] * 60), burn_in=10)
    np.testing.assert_allclose(np.abs(result.vectors[..., 0]), 1 / math.sqrt(3), atol=1e-14)
    assert np.isnan(result.vectors[..., 1:]).all()
    assert np.isnan(result.exponents[1:]).all()
    assert result.status & gp.Status.NOT_RESOLVED


def test_growth_beyond_the_range_of_floats():
    J = random_chain(np.random.default_rng(7), "gaussian", 80, 3)
    plain = gp.covariant_vectors(dense(J), burn_in=30)
    for exponent in (-900, 900):
        scaled = gp.covariant_vectors(dense(np.ldexp(J, exponent)), burn_in=30)
        np.testing.assert_allclose(scaled.vectors, plain.vectors, atol=1e-12)
        shift = exponent * math.log(2)
        np.testing.assert_allclose(scaled.growth - shift, plain.growth, atol=1e-12 * 700)
    apart = np.array([np.diag([1e100, 1.0, 1e-100]) @ random_orthogonal(
        np.random.default_rng(t), 3) for t in range(40)])  # fmt: skip
    wide = gp.covariant_vectors(dense(apart), burn_in=10, tail=10)
    assert not np.isinf(wide.growth).any()


def test_diagonal_chains():
    a = np.array([[[0.5, 3.0, 0.0], [0.5, 2.0, 1.0], [0.25, 1.0, 1.0], [0.5, 4.0, 1.0]]])
    for factors in (a, 1j * a):
        result = gp.covariant_vectors(gp.JacobianChain.diagonal(factors), burn_in=0, tail=1)
        assert result.vectors.shape == (1, 4, 3, 3)
        assert same(result.vectors[0, 0], np.eye(3)[:, [1, 0, 2]])
        np.testing.assert_allclose(result.growth[0, :, 0], np.log([3, 2, 1, 4]))
        assert result.growth[0, 0, 2] == -np.inf
        assert result.exponents[0, 2] == -np.inf
        assert (result.angles == np.pi / 2).all()
        assert result.status[0] == gp.Status.ZERO
    one = gp.covariant_vectors(gp.JacobianChain.diagonal(a), 1, burn_in=1, times=[2])
    assert one.vectors.tolist() == [[[[0.0], [1.0], [0.0]]]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"burn_in": -1}, ValueError, r"`burn_in` must be at least 0"),
        ({"burn_in": 1, "tail": 0}, ValueError, r"`tail` must be at least 1"),
        ({"burn_in": 3}, ValueError, r"`burn_in` and `tail` must fit into the 5 steps .* 3 and 3"),
        ({"burn_in": 1, "k": 3}, ValueError, r"`k` must be at most n = 2; got 3"),
        ({"burn_in": 1, "times": [0]}, ValueError, r"`times` must lie in 1..4; got 0"),
        ({"burn_in": 1, "times": [1.5]}, TypeError, r"`times` must hold integers"),
        ({"burn_in": 1, "splits": [2]}, ValueError, r"`splits` must lie in 1..1; got 2"),
        ({"burn_in": 1, "rng": "x"}, (TypeError, ValueError), r"`rng` must be None"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.covariant_vectors(dense(np.ones((5, 2, 2))), **arguments)
    with pytest.raises(TypeError, match="`chain` must be a JacobianChain"):
        gp.covariant_vectors(np.ones((4, 2, 2)), burn_in=1)
