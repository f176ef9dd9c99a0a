"""The chain: structures, laziness, pieces, determinants, long runs, and what bad input gets."""

from __future__ import annotations

import tracemalloc

import naive
import numpy as np
import pytest
from chains import FAMILIES, random_chain
from exact import exact_log_abs_det, exact_log_norm
from helpers import same, tolerance

import gradprop as gp
from gradprop import orbit, sources

EPS = float(np.finfo(np.float64).eps)


def driven_net(n=4, steps=30, leak=1.0, gain=1.5, seed=0):
    rng = np.random.default_rng(seed)
    cell = gp.RNN(
        gain * rng.standard_normal((n, n)) / np.sqrt(n), rng.standard_normal((n, 2)), leak=leak
    )
    return cell, rng.standard_normal((steps, 2))


def everything(chain):
    """Numbers that depend on every factor, for comparison bit by bit."""
    yield chain.to_dense()
    yield gp.log_norms(chain).log_norm
    yield gp.log_norms(chain, anchor="end").error
    yield gp.gradient_by_lag(chain, np.ones(chain.n)).log_norm
    yield gp.singular_values(chain, lags=[3, chain.n_steps]).log_sigma
    yield gp.singular_values(chain, lags=[5], anchor="end").error
    yield gp.lyapunov_spectrum(chain).exponents
    yield chain.log_abs_det()


# --- structures ----------------------------------------------------------------------------------


def test_structures_agree_on_the_same_factors():
    rng = np.random.default_rng(1)
    W, dphi = rng.standard_normal((3, 3)), rng.uniform(0.1, 1, (9, 3))
    scaled = gp.JacobianChain.row_scaled(W, dphi)
    J = scaled.to_dense()
    np.testing.assert_allclose(J, dphi[:, :, None] * W, rtol=EPS)
    dense = gp.JacobianChain.dense(J)
    products = gp.JacobianChain.from_products(
        lambda k, V: J[k - 1] @ V, lambda k, V: J[k - 1].T @ V, 3, 9
    )
    for chain, structure in ((scaled, "row_scaled"), (dense, "dense"), (products, "products")):
        assert (chain.n, chain.n_steps, chain.batch_shape) == (3, 9, ())
        assert chain.structure == structure
        assert structure in repr(chain)
        np.testing.assert_allclose(chain.to_dense(), J, rtol=EPS)
        norms = gp.log_norms(chain)
        exact = [exact_log_norm(J[:lag]) for lag in range(10)]
        assert (np.abs(norms.log_norm - exact) <= norms.error).all()
    assert all(same(a, b) for a, b in zip(everything(dense), everything(products), strict=True))


def test_leak_is_in_the_jacobian():
    rng = np.random.default_rng(2)
    W, dphi = rng.standard_normal((3, 3)), rng.uniform(0, 1, (5, 3))
    chain = gp.JacobianChain.row_scaled(W, dphi, leak=0.25)
    J = 0.75 * np.eye(3) + 0.25 * dphi[:, :, None] * W
    np.testing.assert_allclose(chain.to_dense(), J, atol=4 * EPS * np.abs(W).max())
    assert chain.recurrence.leak == 0.25
    assert chain.recurrence.gamma is None


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_diagonal_chains(kind):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((6, 3))
    if kind == "complex":
        a = a + 1j * rng.standard_normal((6, 3))
    chain = gp.JacobianChain.diagonal(a)
    J = chain.to_dense()
    assert J.dtype == a.dtype
    assert same(J, a[:, :, None] * np.eye(3))
    assert chain.log_abs_det() == pytest.approx(np.log(np.abs(a)).sum(), abs=40 * EPS)
    v = rng.standard_normal(3)
    pushed = gp.jvp(chain, v)
    np.testing.assert_allclose(pushed.to_float(), np.prod(a, axis=0) * v, rtol=40 * EPS)
    # the plain transpose: the same factors, last first
    np.testing.assert_allclose(gp.vjp(chain, v).to_float(), pushed.to_float(), rtol=40 * EPS)


def test_replica_axes_broadcast_and_have_roles():
    rng = np.random.default_rng(4)
    W, dphi = rng.standard_normal((2, 1, 3, 3)), rng.uniform(0, 1, (5, 4, 3))
    chain = gp.JacobianChain.row_scaled(W, dphi)
    assert chain.batch_shape == (2, 5)
    assert chain.roles == ("weights", "starts")
    J = chain.to_dense()
    assert J.shape == (2, 5, 4, 3, 3)
    for i, j in np.ndindex(2, 5):
        alone = gp.JacobianChain.row_scaled(W[i, 0], dphi[j])
        assert same(J[i, j], alone.to_dense())


def test_linearise_gives_the_jacobians_of_the_orbit():
    for leak in (1.0, 0.4):
        cell, x = driven_net(leak=leak)
        run, chain = gp.rollout(cell, x), gp.linearise(cell, x)
        J = naive.jacobians(cell.W_hh, run.z, leak=leak)
        # phi' written in another way: a few roundings of each entry
        np.testing.assert_allclose(chain.to_dense(), J, rtol=0, atol=20 * EPS * np.abs(J).max())
        assert chain.recurrence.gamma == 1.0
        complex_step = np.empty_like(J)
        h, W, drive = run.h[:-1], np.asarray(cell.W_hh), x @ cell.W_xh.T
        for i, e in enumerate(np.eye(4)):
            z = (h + 1e-30j * e) @ W.T + drive
            new = (1 - leak) * (h + 1e-30j * e) + leak * np.tanh(z)
            complex_step[:, :, i] = new.imag / 1e-30
        np.testing.assert_allclose(J, complex_step, rtol=0, atol=40 * EPS * np.abs(J).max())


def test_lengths_end_the_chain_with_identities():
    cell, x = driven_net(steps=8)
    batch = np.stack([x, x, x])
    batch[1, 5:] = 1e30
    batch[2] = np.nan
    chain = gp.linearise(cell, batch, lengths=[8, 5, 0])
    assert chain.lengths.tolist() == [8, 5, 0]
    assert not chain.overflowed.any()
    J, alone = chain.to_dense(), gp.linearise(cell, x)
    assert same(J[0], alone.to_dense())
    assert same(J[1, :5], alone.to_dense()[:5])
    assert same(J[1, 5:], np.broadcast_to(np.eye(4), (3, 4, 4)))
    assert same(J[2], np.broadcast_to(np.eye(4), (8, 4, 4)))
    assert chain.log_abs_det()[1] == pytest.approx(gp.linearise(cell, x[:5]).log_abs_det())
    assert chain.log_abs_det()[2] == 0.0


# --- pieces --------------------------------------------------------------------------------------


def test_blocks_cover_the_chain_once_in_any_size():
    cell, x = driven_net()
    chain = gp.linearise(cell, x)
    whole = chain.to_dense()
    for size in (1, 7, 30, 1000):
        for reverse in (False, True):
            blocks = list(chain.blocks(size, reverse))
            assert all(block.n_steps <= size for block in blocks)
            firsts = [block.first for block in blocks]
            assert firsts == sorted(firsts, reverse=reverse)
            ordered = blocks[::-1] if reverse else blocks
            J = [np.ldexp(b.mantissas(), b.exponents[..., None, None])[0] for b in ordered]
            assert same(np.concatenate(J), whole)


@pytest.mark.parametrize("leak", [1.0, 0.4])
@pytest.mark.parametrize("floats", [8, 40, 100])
def test_results_do_not_depend_on_block_sizes(floats, leak, monkeypatch):
    cell, x = driven_net(leak=leak)
    whole = list(everything(gp.linearise(cell, x)))
    dense = list(everything(gp.JacobianChain.dense(whole[0])))
    monkeypatch.setattr("gradprop.chain.BLOCK_FLOATS", floats)
    chain = gp.linearise(cell, x)
    assert chain.block_size < 30
    for a, b in zip(everything(chain), whole, strict=True):
        assert same(a, b)
    for a, b in zip(everything(gp.JacobianChain.dense(whole[0])), dense, strict=True):
        assert same(a, b)


@pytest.mark.parametrize("chunk", [4, 28, 2**20])
def test_a_lazy_orbit_is_the_one_in_memory_bit_by_bit(chunk, monkeypatch):
    # gain 3: chaotic, so that one different bit would soon be all different
    cell, x = driven_net(gain=3.0, steps=90)
    in_memory = list(everything(gp.linearise(cell, x)))
    monkeypatch.setattr(sources, "KEPT_FLOATS", 0)
    monkeypatch.setattr(orbit, "CHUNK_FLOATS", chunk)
    lazy = gp.linearise(cell, x)
    for block_floats in (16, 52, 2**22):
        monkeypatch.setattr("gradprop.chain.BLOCK_FLOATS", block_floats)
        assert all(same(a, b) for a, b in zip(everything(lazy), in_memory, strict=True))


def test_a_lazy_orbit_keeps_lengths_and_overflows(monkeypatch):
    cell = gp.RNN([[1e60]], W_xh=[[1.0]], activation="linear")
    x = np.ones((2, 9, 1))
    x[1, 4:] = np.nan
    expected = gp.linearise(cell, x, lengths=[9, 4])
    assert expected.lengths.tolist() == [6, 4]
    monkeypatch.setattr(sources, "KEPT_FLOATS", 0)
    monkeypatch.setattr(orbit, "CHUNK_FLOATS", 4)
    lazy = gp.linearise(cell, x, lengths=[9, 4])
    assert lazy.lengths.tolist() == [6, 4]
    assert lazy.overflowed.tolist() == [True, False]
    assert same(lazy.to_dense(), expected.to_dense())
    assert same(gp.log_norms(lazy).log_norm, gp.log_norms(expected).log_norm)


def test_tail():
    cell, x = driven_net()
    chain = gp.linearise(cell, x)
    J = chain.to_dense()
    assert same(chain.tail(7).to_dense(), J[-7:])
    assert same(chain.tail(20).tail(7).to_dense(), J[-7:])
    assert same(chain.tail(30).to_dense(), J)
    assert chain.tail(0).to_dense().shape == (0, 4, 4)
    for k in (1, 7):
        end = gp.log_norms(chain, lags=[k], anchor="end")
        start = gp.log_norms(chain.tail(k), lags=[k])
        assert abs(end.log_norm - start.log_norm) <= end.error + start.error
    lengths = gp.linearise(cell, np.stack([x, x]), lengths=[30, 25]).tail(7).lengths
    assert lengths.tolist() == [7, 2]


def test_perturbed_moves_the_start_by_ulps():
    cell, x = driven_net(gain=0.5)
    h0 = np.array([0.3, -0.2, 0.0, 1e-300])
    chain = gp.linearise(cell, x, h0=h0)
    moved = h0
    for _ in range(3):
        moved = np.nextafter(moved, np.where(h0 < 0, -np.inf, np.inf))
    assert same(chain.perturbed(3).to_dense(), gp.linearise(cell, x, h0=moved).to_dense())
    assert not same(gp.linearise(cell, x, h0=moved * 1.5).to_dense(), chain.to_dense())
    single = gp.linearise(cell, x, h0=h0, dtype="float32").perturbed()
    assert single.n_steps == 30
    edge = gp.linearise(gp.RNN([[0.5]]), n_steps=3, h0=[np.finfo(float).max]).perturbed()
    assert edge.lengths == 0
    assert edge.overflowed
    with pytest.raises(ValueError, match="`perturbed` needs a chain made by linearise"):
        gp.JacobianChain.dense(np.eye(2)[None]).perturbed()


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 13, 29, 30])
def test_chain_rule(cut):
    cell, x = driven_net()
    run, chain = gp.rollout(cell, x), gp.linearise(cell, x)
    first = gp.linearise(cell, x[:cut])
    second = gp.linearise(cell, x[cut:], h0=run.h[cut])
    assert same(np.concatenate([first.to_dense(), second.to_dense()]), chain.to_dense())
    v = np.array([1.0, -2.0, 0.5, 3.0])
    half = gp.jvp(first, v)
    through = gp.jvp(second, half.mantissa)
    whole = gp.jvp(chain, v)
    # the vector is carried on exactly, exponents apart
    assert same(through.mantissa, whole.mantissa)
    assert through.exponent[0] + half.exponent[0] == whole.exponent[0]
    total = first.log_abs_det() + second.log_abs_det()
    assert total == pytest.approx(chain.log_abs_det(), rel=8 * EPS)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "cancelling"])
def test_end_of_a_chain_is_the_start_of_its_reversed_transpose(family):
    J = random_chain(np.random.default_rng(5), family, 20, 4)
    chain = gp.JacobianChain.dense(J)
    turned = gp.JacobianChain.dense(np.swapaxes(J[::-1], -1, -2))
    end, start = gp.log_norms(chain, anchor="end"), gp.log_norms(turned)
    both_zero = np.isneginf(end.log_norm) & np.isneginf(start.log_norm)
    with np.errstate(invalid="ignore"):
        gap = np.abs(end.log_norm - start.log_norm)
    assert (both_zero | (gap <= end.error + start.error)).all()
    sigma = [
        gp.singular_values(chain, lags=[4, 20], anchor="end"),
        gp.singular_values(turned, lags=[4, 20]),
    ]
    known = sigma[0].resolved & sigma[1].resolved
    assert known.any()
    finite = known & np.isfinite(sigma[0].log_sigma)
    gap = np.abs(sigma[0].log_sigma[finite] - sigma[1].log_sigma[finite])
    assert (gap <= (sigma[0].error + sigma[1].error)[finite]).all()
    assert same(np.isneginf(sigma[0].log_sigma[known]), np.isneginf(sigma[1].log_sigma[known]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_log_abs_det_against_exact_integers(family, n):
    J = random_chain(np.random.default_rng(n), family, 12, n)
    exact = exact_log_abs_det(J)
    got = gp.JacobianChain.dense(J).log_abs_det()
    if np.isneginf(exact):
        assert np.isneginf(got)
        return
    # LU of each factor: n eps relative to its norm, which its condition brings to the determinant;
    # rows are scaled first, so scale them for the condition too
    rows = J / np.abs(J).max(axis=-1, keepdims=True)
    atol = tolerance(np.float64, n, 12) * np.linalg.cond(rows).max()
    assert got == pytest.approx(exact, abs=atol + 4 * EPS * abs(exact))


def test_log_abs_det_of_a_long_saturated_net_is_exact_to_rounding():
    rng = np.random.default_rng(6)
    W = rng.standard_normal((8, 8))
    cell = gp.RNN(6 * W)
    chain = gp.linearise(cell, rng.standard_normal((400, 8)))
    # the factors' exact determinants, one by one
    exact = exact_log_abs_det(chain.to_dense())
    assert chain.log_abs_det() == pytest.approx(exact, rel=1e-13)


def test_p032_determinants_that_leave_the_float_range():
    for scale, expected in ((0.1, -921.0340372), (10.0, 921.0340372)):
        chain = gp.JacobianChain.dense(scale * np.eye(400)[None])
        assert chain.log_abs_det() == pytest.approx(expected, abs=5e-8)
        assert chain.log_abs_det() == pytest.approx(400 * np.log(scale), rel=4 * EPS)


def test_no_steps_and_one_unit():
    for chain in (
        gp.linearise(gp.RNN([[2.0]]), n_steps=0, h0=[1.0]),
        gp.JacobianChain.dense(np.empty((0, 1, 1))),
        gp.JacobianChain.row_scaled([[2.0]], np.empty((0, 1))),
        gp.JacobianChain.diagonal(np.empty((0, 1))),
        gp.JacobianChain.from_products(lambda k, V: V, lambda k, V: V, 1, 0),
    ):
        assert chain.n_steps == 0
        assert chain.to_dense().shape == (0, 1, 1)
        assert chain.log_abs_det() == 0.0
        assert gp.log_norms(chain).log_norm.tolist() == [0.0]
        assert gp.singular_values(chain).log_sigma.tolist() == [[0.0]]
        assert gp.jvp(chain, [3.0]).to_float().tolist() == [3.0]
        assert gp.horizon(chain).first_below == 0


# --- long chains ---------------------------------------------------------------------------------


def peak_bytes(work):
    tracemalloc.start()
    try:
        out = work()
        return tracemalloc.get_traced_memory()[1], out
    finally:
        tracemalloc.stop()


def test_p102_a_series_of_1411889_steps():
    T = 1_411_889
    peak, norms = peak_bytes(
        lambda: gp.log_norms(
            gp.linearise(gp.RNN([[0.999]], activation="linear"), n_steps=T, h0=[1.0]), lags=[T]
        )
    )
    log10 = norms.log_norm[0] / np.log(10)
    assert log10 == pytest.approx(-613.4823941, abs=5e-8)
    # 0.999 as a float64, T factors of which each rounds once
    assert log10 == pytest.approx(T * np.log10(0.999), abs=T * EPS)
    # one float of phi' and one index a step are 23 MB; everything else is blocks
    assert peak < 150e6


def test_p102_the_same_series_as_a_diagonal_chain():
    T = 1_411_889
    chain = gp.JacobianChain.diagonal(np.full((T, 1), 0.999))
    norms = gp.log_norms(chain, lags=[T])
    assert norms.log_norm[0] == pytest.approx(T * np.log(0.999), abs=norms.error[0])
    assert norms.log_norm[0] / np.log(10) == pytest.approx(-613.4823941, abs=5e-8)
    assert gp.lyapunov_spectrum(chain).exponents[0] == pytest.approx(np.log(0.999), rel=4 * EPS)


def test_memory_of_a_long_lazy_chain_does_not_grow_with_its_length(monkeypatch):
    rng = np.random.default_rng(7)
    cell = gp.RNN(1.2 * rng.standard_normal((64, 64)) / 8)
    monkeypatch.setattr(sources, "KEPT_FLOATS", 0)
    monkeypatch.setattr(orbit, "CHUNK_FLOATS", 2**14)
    monkeypatch.setattr("gradprop.chain.BLOCK_FLOATS", 2**14)

    def exponent(T):
        chain = gp.linearise(cell, n_steps=T, rng=1)
        return gp.lyapunov_spectrum(chain, 1, burn_in=100)

    exponent(200)
    short, _ = peak_bytes(lambda: exponent(2_000))
    long, result = peak_bytes(lambda: exponent(20_000))
    # all of phi' would be 10 MB; states at 2**14 / 64 = 256-step intervals are 40 kB
    assert long < 1.5 * short + 1e6
    assert long < 5e6
    assert abs(result.exponents[0]) < 0.1


# --- bad input -----------------------------------------------------------------------------------

J_NAN = np.tile(np.eye(2), (4, 1, 1))
J_NAN[2, 0, 1] = np.nan
MAKE = gp.JacobianChain
BAD = [
    (lambda: MAKE.dense(J_NAN), ValueError, r"`J` .*finite; got nan at step 3, index \(2, 0, 1\)"),
    (lambda: MAKE.dense(np.ones((3, 2, 1))), ValueError, r"`J` must .*\(3, 2, 1\)"),
    (lambda: MAKE.dense(np.eye(2)), ValueError, r"`J` must have shape \(\.\.\., T, n, n\)"),
    (lambda: MAKE.dense(np.ones((0, 3, 2, 2))), ValueError, r"`J` must not be empty"),
    (lambda: MAKE.dense(np.ones((3, 0, 0))), ValueError, r"`J` must not be empty"),
    (lambda: MAKE.dense(1j * J_NAN), TypeError, r"`J` must be real"),
    (lambda: MAKE.dense([["a"]]), TypeError, r"`J` must hold numbers"),
    (lambda: MAKE.row_scaled(np.eye(2), [[1, 1], [1, np.inf]]), ValueError, r"`dphi` .*step 2"),
    (lambda: MAKE.row_scaled(np.eye(2), np.ones((3, 3))), ValueError, r"`dphi` must have shape"),
    (lambda: MAKE.row_scaled(np.ones((2, 3)), np.ones((3, 3))), ValueError, r"`W` must be square"),
    (lambda: MAKE.row_scaled(np.eye(2), np.ones((3, 2)), leak=0), ValueError, r"`leak`"),
    (
        lambda: MAKE.row_scaled(np.ones((2, 2, 2)), np.ones((3, 4, 2))),
        ValueError, r"leading \(replica\) axes must broadcast",
    ),
    (lambda: MAKE.diagonal([[1.0, np.nan]]), ValueError, r"`a` must be finite; got nan at step 1"),
    (lambda: MAKE.diagonal([[1.0, 1j * np.inf]]), ValueError, r"`a` must be finite"),
    (lambda: MAKE.diagonal(np.ones(3)), ValueError, r"`a` must have shape"),
    (lambda: MAKE.from_products(None, lambda k, V: V, 2, 3), TypeError, r"`jvp` must be callable"),
    (lambda: MAKE.from_products(lambda k, V: V, 1.0, 2, 0), TypeError, r"`vjp` must be callable"),
    (
        lambda: MAKE.from_products(lambda k, V: V, lambda k, V: V, 2.0, 3),
        TypeError, r"`n` must be an integer",
    ),
    (
        lambda: MAKE.from_products(lambda k, V: V, lambda k, V: V, 2, -1),
        ValueError, r"`n_steps` must be at least 0",
    ),
    (
        lambda: MAKE.from_products(lambda k, V: V[:1], lambda k, V: V, 2, 3),
        ValueError, r"`jvp\(k, V\)` must return shape \(2, 1\); got \(1, 1\) at k = 1",
    ),
    (
        lambda: MAKE.from_products(lambda k, V: V, lambda k, V: np.nan * V, 2, 3),
        ValueError, r"`vjp\(k=1, V\)` must be finite",
    ),
    (lambda: MAKE.dense(np.ones((3, 2, 2))).tail(4), ValueError, r"`k` must be at most 3; got 4"),
    (lambda: MAKE.dense(np.ones((3, 2, 2))).tail(1.0), TypeError, r"`k` must be an integer"),
    (lambda: next(MAKE.dense(np.ones((3, 2, 2))).blocks(0)), ValueError, r"`size` must be"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "message"), BAD)
def test_bad_input_is_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_wrong_adjoint_is_found():
    J = np.random.default_rng(8).standard_normal((5, 3, 3))
    with pytest.raises(ValueError, match=r"`vjp` must be the adjoint of `jvp`; at step 1"):
        gp.JacobianChain.from_products(lambda k, V: J[k - 1] @ V, lambda k, V: J[k - 1] @ V, 3, 5)
    # right at the first step, wrong at the last: an off-by-one in k
    with pytest.raises(ValueError, match="at step 5"):
        gp.JacobianChain.from_products(
            lambda k, V: J[k - 1] @ V, lambda k, V: J[min(k - 1, 3)].T @ V, 3, 5
        )
    single = J.astype(np.float32)
    gp.JacobianChain.from_products(
        lambda k, V: single[k - 1] @ V.astype(np.float32),
        lambda k, V: single[k - 1].T @ V.astype(np.float32), 3, 5,
    )  # fmt: skip


def test_a_product_that_turns_bad_later_is_named():
    chain = gp.JacobianChain.from_products(
        lambda k, V: V * (np.nan if k == 3 else 1.0), lambda k, V: V, 2, 5
    )
    with pytest.raises(ValueError, match=r"`jvp\(k=3, V\)` must be finite"):
        gp.log_norms(chain)


def test_the_tail_of_an_overflowed_orbit_is_refused():
    chain = gp.linearise(gp.RNN([[1e200]], activation="linear"), n_steps=4, h0=[1.0])
    with pytest.raises(ValueError, match="overflowed"):
        chain.tail(2)


def test_what_is_not_a_chain_is_refused():
    for verb in (gp.log_norms, gp.singular_values, gp.lyapunov_spectrum, gp.horizon):
        with pytest.raises(TypeError, match=r"`chain` must be a JacobianChain.*got ndarray"):
            verb(np.eye(2))
    with pytest.raises(TypeError, match="quantities"):
        gp.measure(gp.JacobianChain.dense(np.eye(2)[None]), "norms")


def test_a_chain_keeps_its_own_copy_of_arrays():
    W, dphi, J = np.eye(2), np.ones((3, 2)), np.ones((3, 2, 2))
    a = np.full((3, 2), 0.5)
    chains = [
        gp.JacobianChain.row_scaled(W, dphi),
        gp.JacobianChain.dense(J),
        gp.JacobianChain.diagonal(a),
    ]
    before = [chain.to_dense() for chain in chains]
    for array in (W, dphi, J, a):
        array[:] = 7.0
    for chain, kept in zip(chains, before, strict=True):
        np.testing.assert_array_equal(chain.to_dense(), kept)


def test_the_adjoint_is_checked_at_any_scale():
    with pytest.raises(ValueError, match="adjoint"):
        gp.JacobianChain.from_products(lambda k, V: V * 1e200, lambda k, V: -V * 1e200, 2, 3)
    gp.JacobianChain.from_products(lambda k, V: V * 1e200, lambda k, V: V * 1e200, 2, 3)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array([[1.0, 9.0], [3.0, 4.0]], [[0, 1], [0, 0]])
    with pytest.raises(TypeError, match="masked"):
        gp.spectral_radius(masked)
