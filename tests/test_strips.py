"""Frobenius norms by column strips: against loops, integers, and errors put in on purpose."""

from __future__ import annotations

import naive
import numba
import numpy as np
import pytest
from chains import FAMILIES, random_chain
from exact import exact_log_norm
from helpers import same
from hypothesis import given
from hypothesis import strategies as st
from strip_draws import check

import gradprop as gp
from gradprop import _stripfold, _threads
from gradprop import chain as chains_of
from gradprop._kernels import strips, tile

EPS = {"float64": 2.0**-52, "float32": 2.0**-23}
dense, row_scaled = gp.JacobianChain.dense, gp.JacobianChain.row_scaled


@numba.njit
def run_tile(wide, six, A, origin, lists, n_terms, X, x, own, scale, a, out, y, square):
    if wide and six:
        tile.compiled(6, 512, A, origin, lists, 0, 6, 12, 40, n_terms, X, x, own, scale, 1, a, out,
                      y, square)  # fmt: skip
    elif wide:
        tile.compiled(4, 512, A, origin, lists, 0, 6, 12, 40, n_terms, X, x, own, scale, 1, a, out,
                      y, square)  # fmt: skip
    elif six:
        tile.compiled(6, 256, A, origin, lists, 0, 6, 12, 40, n_terms, X, x, own, scale, 1, a, out,
                      y, square)  # fmt: skip
    else:
        tile.compiled(4, 256, A, origin, lists, 0, 6, 12, 40, n_terms, X, x, own, scale, 1, a, out,
                      y, square)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("six", [True, False])
def test_a_tile_is_its_plain_twin(dtype, wide, six):
    rng, bits, rows = np.random.default_rng(1), 512 if wide else 256, 6 if six else 4
    lanes = bits // (8 * np.dtype(dtype).itemsize)
    for n_terms in (0, 1, 2, 7, 28):
        for a in (0.0, 0.5):
            A, X = rng.standard_normal((2, 2000)).astype(dtype)
            lists = np.zeros(80, dtype=np.int64)
            lists[:6], lists[6:12] = rng.integers(0, 900, 6), 3 + lanes * rng.permutation(6)
            lists[12:40], lists[40:68] = rng.integers(0, 900, (2, 28))
            scale = rng.standard_normal(8).astype(dtype)
            found, wanted = np.full((2, 200), 7.0, dtype=dtype)
            sums, plain = np.ones((2, lanes))
            run_tile(wide, six, A, 50, lists, n_terms, X, 5, 9, scale, a, found, 2, sums)
            tile.plain(
                rows, bits, A, 50, lists, 0, 6, 12, 40, n_terms, X, 5, 9, scale, 1, a, wanted, 2,
                plain,
            )  # fmt: skip
            # sums of n_terms products of size about 10, and their squares
            size = 10 * (n_terms + 2) * EPS[dtype]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=10 * size)
            np.testing.assert_allclose(sums, plain, rtol=20 * size, atol=100 * size)
            touched = (lists[6 : 6 + rows, None] + 2 + np.arange(lanes)).ravel()
            assert (np.delete(found, touched) == 7).all()


@given(st.integers(0, 2**32))
def test_any_chain_against_a_plain_loop(seed):
    """A small part of benchmarks/fuzz_kernels.py: fenced arrays, lags, layouts, zero rows."""
    assert check(np.random.default_rng([52, seed])) <= 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_stated_error_holds(family, dtype, monkeypatch):
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    known = 0
    for seed in range(20):
        rng = np.random.default_rng([53, seed])
        J = random_chain(rng, family, 2 * int(rng.integers(1, 20)), int(rng.integers(1, 9)))
        anchor = ("start", "end")[seed % 2]
        norms = gp.log_norms(dense(J), ord="fro", lags=[len(J)], anchor=anchor, dtype=dtype)
        if np.isinf(norms.error[0]):
            assert np.isnan(norms.log_norm[0])
            continue
        known += 1
        value, exact = norms.log_norm[0], exact_log_norm(J, "fro")
        assert value == exact or abs(value - exact) <= norms.error[0]
    assert known >= (2 if family == "cancelling" else 15)


@pytest.mark.parametrize("n", [3, 20, 70])
@pytest.mark.parametrize("size", [1e-9, 1e-4])
def test_an_error_put_into_the_product_is_seen(n, size, monkeypatch):
    """The matrices of the product are off, those of the check are not; rank one is the worst."""
    rng = np.random.default_rng(n)
    chain = row_scaled(rng.standard_normal((n, n)) / np.sqrt(n), rng.uniform(0.5, 1, (30, n)))
    right = gp.log_norms(chain, ord="fro")
    real = _stripfold.StripFold._factors

    def wrong(self, block):
        factors = real(self, block)
        off = factors.M.reshape(-1, n, n).copy()
        off[:, 0] *= 1 + size
        return factors._replace(M=off.reshape(-1))

    monkeypatch.setattr(_stripfold.StripFold, "_factors", wrong)
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    off = gp.log_norms(chain, ord="fro")
    gap = np.abs(off.log_norm - right.log_norm)
    assert gap[-1] > 100 * right.error[-1]
    assert (gap <= off.error + right.error).all()


def test_rows_of_zeros_are_left_out_and_change_nothing():
    rng = np.random.default_rng(4)
    W, dphi = rng.standard_normal((2, 40, 40)) / 6, 1.0 * (rng.random((2, 60, 40)) < 0.5)
    dphi[:, 20], dphi[:, 40, :37] = 1.0, 0.0
    chain = row_scaled(W, dphi)
    for anchor in ("start", "end"):
        norms = gp.log_norms(chain, ord="fro", anchor=anchor)
        other = gp.log_norms(dense(chain.to_dense()), ord="fro", anchor=anchor)
        assert (np.abs(norms.log_norm - other.log_norm) <= norms.error + other.error).all()


def test_what_is_lost_is_never_called_zero(monkeypatch):
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    for dtype in ("float64", "float32"):
        for J in (
            [np.diag([1e200, 1e-200]), np.diag([0.0, 1e200])],
            [np.diag([2.0, 0.4])] * 900 + [np.diag([0.0, 1.0])],
            [np.diag([1.0, 1e-200])] * 8 + [np.diag([0.0, 1.0])],
        ):
            norms = gp.log_norms(dense(J), ord="fro", dtype=dtype)
            assert np.isnan(norms.log_norm[-1])
            assert norms.status & gp.Status.NOT_RESOLVED
        for J in ([np.eye(3, k=1)] * 3, [[[1.0, -1.0], [1.0, -1.0]]] * 2, [np.zeros((2, 2))]):
            norms = gp.log_norms(dense(J), ord="fro", dtype=dtype)
            assert (norms.log_norm[-1], norms.error[-1]) == (-np.inf, 0)


@pytest.mark.parametrize(("R", "n", "steps"), [(1, 5, 40), (3, 20, 40), (1, 64, 20), (2, 300, 3)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_same_bytes_for_any_threads_and_blocks(R, n, steps, dtype, monkeypatch):
    rng = np.random.default_rng(n)
    chain = row_scaled(
        rng.standard_normal((R, n, n)) / np.sqrt(n), rng.uniform(0, 1, (R, steps, n)).round(1)
    )
    found = []
    for threads, floats in ((1, 2**22), (2, 2**22), (3, 2**22), (2, 5 * R * n), (1, 1)):
        monkeypatch.setattr(_threads, "thread_count", lambda threads=threads: threads)
        monkeypatch.setattr(chains_of, "BLOCK_FLOATS", floats)
        for anchor in ("start", "end"):
            norms = gp.log_norms(chain, ord="fro", anchor=anchor, dtype=dtype)
            found.append(np.array([norms.log_norm, norms.error]))
    assert all(same(a, b) for a, b in zip(found[2:], found, strict=False))


@pytest.mark.parametrize("n", range(1, 400, 7))
def test_strips_hold_all_columns(n):
    for width in (8, 16):
        strips_, tiles = _stripfold.strips_of(n, width)
        assert (strips_ - 1) * tiles * width < n <= strips_ * tiles * width
        assert tiles * width <= 128


def test_strips_of_different_size_are_joined_in_scale():
    # once the largest entry is gone, the first strip (72 columns) is scaled and the second is not
    size = np.repeat([1.5 * 2.0**-24, 2.0**-22], [72, 68])
    size[0] = 1.0
    J = np.array([np.diag(size), np.diag(np.arange(140) > 0.0), np.eye(140)])
    for ord, dtype in ((2, "float64"), ("fro", "float64"), ("fro", "float32")):
        norms = gp.log_norms(dense(J), ord=ord, dtype=dtype)
        plain = naive.log_norms(J, ord)
        assert (np.abs(norms.log_norm - plain) <= norms.error + 1e-14).all()


def test_least_exponents_lie_below():
    A = np.array([[1.0, 0.0], [-3.0, 2.0**-700], [5e-324, 1.0], [0.0, 0.0]])
    out = np.empty(4, dtype=np.int64)
    strips.least_exponents(A.reshape(-1).view(np.int64), 2, out)
    assert out.tolist() == [-1, -701, -1076, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype": "float16", "ord": "fro"}, ValueError, "`dtype` must be float32 or float64"),
        ({"dtype": "real", "ord": "fro"}, TypeError, "`dtype` must be float32 or float64"),
        ({"dtype": "float32"}, ValueError, "`dtype` must be float64 unless `ord` is 'fro'"),
        (
            {"dtype": "float32", "ord": "fro", "method": "probe"}, ValueError,
            "`dtype` must be float64 unless",
        ),
    ],
)  # fmt: skip
def test_bad_dtypes_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        gp.log_norms(dense(np.zeros((4, 2, 2))), **arguments)


def test_no_steps_and_nan():
    for dtype in ("float64", "float32"):
        norms = gp.log_norms(dense(np.empty((2, 0, 3, 3))), ord="fro", dtype=dtype)
        assert norms.log_norm == pytest.approx(np.full((2, 1), np.log(3) / 2))
    with pytest.raises(ValueError, match="finite"):
        row_scaled(np.eye(2), [[1.0, np.nan]])
