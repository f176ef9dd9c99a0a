"""Compiled kernels against their plain twins; dtypes, layouts, no fastmath, no hidden float64."""

from __future__ import annotations

import ast
import importlib
import math
import os
import subprocess
import sys

import naive
import numba
import numpy as np
import pytest
from chains import random_chain, random_orthogonal
from exact import exact_product, mp_log_singular_values, rank_and_minor
from helpers import ROOT, layouts, same, tolerance

import gradprop as gp
from gradprop import _laws
from gradprop._kernels import (
    cells,
    factor,
    graded,
    gradedhouse,
    jacobi,
    pivoted,
    products,
    structure,
    tiles,
)
from gradprop.blocks import dense_block, row_scaled_block, scaled_rows
from gradprop.graded import Graded, from_strips

EPS = float(np.finfo(np.float64).eps)
SIZES = [1, 2, 7]
MODULES = sorted(path.stem for path in (ROOT / "gradprop" / "_kernels").glob("[!_]*.py"))
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def jitted():
    """Every compiled function of the package's kernels, by name."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"gradprop._kernels.{name}")
        for key, value in vars(module).items():
            if numba.extending.is_jitted(value):
                found[f"{value.__module__}.{key}"] = value
    return found


def settled(R, low=0, high=10**6):
    return np.full(R, low), np.full(R, high)


def parts_of(J):
    """Arguments (M, index, d, e, a) of one replica's factors, from their dense form."""
    block = dense_block(J[None], 0)
    return block.matrices, block.index, block.scales, block.exponents, block.identity


# --- house rules that a compiled function must keep ----------------------------------------------


@needs_jit
def test_no_kernel_is_compiled_with_fastmath():
    compiled = jitted()
    assert len(compiled) > 20
    own = cells.kernels_for(softsign, softsign_slope)
    for name, function in [*compiled.items(), *((f.__name__, f) for f in own)]:
        assert not function.targetoptions.get("fastmath", False), name
        assert function.targetoptions["error_model"] == "numpy", name


def test_nothing_in_the_package_asks_for_fastmath():
    for path in (ROOT / "gradprop").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword):
                assert node.arg not in ("fastmath", "parallel"), (path.name, node.lineno)


def test_p076_compiled_code_sees_nan_and_inf():
    for values in ([[np.inf, -np.inf], [-np.inf, 265.0]], [[np.nan]], [[1.0, np.nan]]):
        for dtype in (np.float32, np.float64):
            flat = np.array(values, dtype).ravel()
            assert not cells._finite(flat)
    assert cells._finite(np.array([1e308, -5e-324]))
    blown = gp.rollout(gp.RNN([[1e200]], activation="linear"), n_steps=3, h0=[1.0])
    assert blown.n_valid == 1
    assert blown.status == gp.Status.OVERFLOWED


@needs_jit
def test_float32_builds_of_the_cell_hold_no_float64():
    f32, i64, u32 = numba.float32, numba.int64, numba.float32[:, :, ::1]
    signatures = {
        "rnn_steps": (i64, u32, i64[::1], u32, f32, i64, i64[::1], f32[:, ::1], u32, u32),
        "derivatives": (i64, f32[::1], f32[::1]),
        "_finite": (f32[::1],),
    }
    for name, signature in signatures.items():
        # builds read from the disk cache have no type map: build anew
        fresh = numba.njit(error_model="numpy")(getattr(cells, name).py_func)
        fresh.compile(signature)
        typemap = fresh.overloads[signature].type_annotation.typemap
        assert typemap
        # np.nan itself is a Python float before it is cast
        wide = {key: t for key, t in typemap.items() if "float64" in str(t)}
        assert [key for key in wide if "nan" not in key and not key.startswith("$")] == []
        assert len(wide) <= (1 if name == "rnn_steps" else 0), wide


def test_p078_mixed_precision_is_settled_before_the_compiled_code():
    # float32 [1, 2] . float64 [3, 4] = 11, in float64 because one side is
    mixed = gp.RNN(np.zeros((1, 1), np.float32), W_xh=np.array([[3.0, 4.0]]), activation="linear")
    run = gp.rollout(mixed, np.array([[1, 2]], np.float32))
    assert run.h.dtype == np.float64
    assert run.h[1, 0] == 11.0
    J = np.array([[[1, 2], [0, 1]]], np.float32)
    assert gp.jvp(gp.JacobianChain.dense(J), np.array([3.0, 4.0])).to_float()[0] == 11.0
    start = gp.rollout(
        gp.RNN(J[0], activation="linear"), n_steps=1, h0=np.array([3.0, 4.0]), dtype="float64"
    )
    assert start.h[1, 0] == 11.0
    assert start.h.dtype == np.float64


def test_p081_twenty_seven_start_vectors_come_out_as_one_by_one():
    rng = np.random.default_rng(81)
    W = rng.standard_normal((3, 3))
    starts = np.array(list(np.ndindex(3, 3, 3))) - 1.0
    J = np.broadcast_to(W, (40, 3, 3))
    chain = gp.JacobianChain.dense(np.broadcast_to(J, (27, 40, 3, 3)))
    together = gp.jvp(chain, starts)
    for i, v in enumerate(starts):
        alone = gp.jvp(gp.JacobianChain.dense(J), v)
        assert same(together.mantissa[i], alone.mantissa)
        assert same(together.exponent[i], alone.exponent)


PLAIN = """
import numpy as np, gradprop as gp
rng = np.random.default_rng(4)
W, x = rng.standard_normal((2, 3, 3)), rng.standard_normal((6, 3))
chain = gp.linearise(gp.RNN(W, leak=0.5), x)
dense = gp.JacobianChain.dense(chain.to_dense())
own = [gp.log_norms(chain).log_norm, gp.singular_values(dense).log_sigma, chain.log_abs_det(),
       gp.lyapunov_spectrum(dense).exponents, gp.gradient_by_lag(chain, [1, 2, 3]).log_norm,
       gp.jvp(chain, [1, 2, 3]).log_norm(), gp.lyapunov_spectrum(chain, 1).exponents,
       gp.rollout(gp.RNN([[1e200]], activation="linear"), n_steps=3, h0=[1.0]).n_valid]
"""


def test_plain_python_gives_the_same_numbers():
    """The same code with compilation off: numbers agree, so nothing hangs on a Numba quirk."""
    code = PLAIN + "print(*[v.hex() for a in own for v in np.ravel(a).astype(float).tolist()])"
    compiled = {}
    exec(PLAIN, compiled)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain = np.array([float.fromhex(v) for v in done.stdout.split()])
    expected = np.concatenate([np.ravel(a) for a in compiled["own"]])
    # libm's and NumPy's functions differ in the last place, which the chain's condition amplifies
    assert plain == pytest.approx(expected, abs=1e-10)


# --- each kernel beside its twin -----------------------------------------------------------------


@numba.njit
def softsign(z):
    return z / (1 + abs(z))


@numba.njit
def softsign_slope(z):
    return 1 / (1 + abs(z)) ** 2


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("leak", [1.0, 0.25])
def test_rnn_steps(n, leak):
    rng = np.random.default_rng(n)
    W, steps = random_orthogonal(rng, n), 9
    current, h = rng.standard_normal((1, steps, n)), rng.standard_normal((1, n))
    states, zs = np.empty((1, steps, n)), np.empty((1, steps, n))
    n_valid, end = np.array([7]), h.copy()
    code = gp.RNN(W).activation.code
    cells.rnn_steps(code, W[None], np.zeros(1, int), current, leak, 0, n_valid, end, states, zs)
    h_naive, z_naive = naive.rollout(W, current[0], leak=leak, h0=h[0], length=7)
    # ‖W‖ = 1 and |phi'| <= 1: errors of size (n + 5) eps max|z| add up over the steps
    atol = tolerance(np.float64, n + 5, steps, c=1) * (1 + np.nanmax(np.abs(z_naive)))
    np.testing.assert_allclose(states[0], h_naive[1:], rtol=0, atol=atol)
    np.testing.assert_allclose(zs[0], z_naive, rtol=0, atol=atol)
    assert same(end[0], states[0, -1])
    assert n_valid[0] == 7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", SIZES)
def test_rnn_slopes_are_those_of_the_steps(n, dtype):
    """Two replicas, one of which ends early and one of which overflows; phi' from the steps' z."""
    rng = np.random.default_rng(n)
    W, steps, leak = rng.standard_normal((2, n, n)).astype(dtype), 9, 0.75
    for name in ("tanh", "softplus", gp.Activation("own", softsign, softsign_slope, (0.0, 1.0))):
        activation = gp.RNN(W, activation=name).activation
        compiled = _laws._rnn_kernels(activation)
        code, which, current = (
            activation.code or 0,
            np.array([1, 0]),
            np.zeros((2, steps, n), dtype),
        )
        current[0, 4, n // 2] = np.inf
        h, n_valid = rng.standard_normal((2, n)).astype(dtype), np.array([steps, 6])
        states, zs = np.empty((2, 2, steps, n), dtype)
        slopes, wanted = np.empty((2, steps, n)), np.zeros((2, steps, n))
        ends, valid = (h.copy(), h.copy()), (n_valid.copy(), n_valid.copy())
        compiled[0](code, W, which, current, leak, 0, valid[0], ends[0], states, zs)
        compiled[1](code, W, which, current, leak, 0, valid[1], ends[1], slopes)
        for r in range(2):
            own = np.empty(valid[0][r] * n, dtype)
            compiled[2](code, zs[r, : valid[0][r]].ravel(), own)
            wanted[r, : valid[0][r]] = own.reshape(-1, n)
        assert valid[1].tolist() == valid[0].tolist() == [4, 6]
        assert same(slopes, wanted)
        assert same(*ends)


@pytest.mark.parametrize("name", naive.ACTIVATIONS)
def test_derivatives(name):
    z = np.append(np.linspace(-3.7, 3.9, 41), np.nan)
    out = np.empty_like(z)
    cells.derivatives(gp.RNN([[0.0]], activation=name).activation.code, z, out)
    # two ways to write the same function, a few roundings each, of numbers not above 2
    np.testing.assert_allclose(out[:-1], naive.dphi(name, z[:-1]), rtol=0, atol=20 * EPS)
    assert np.isnan(out[-1])


@pytest.mark.parametrize("n", SIZES)
def test_times_and_transposed_times(n):
    rng = np.random.default_rng(n)
    M, V = rng.uniform(-1, 1, (n, n)), rng.uniform(-1, 1, (n, 3))
    d, a = rng.uniform(0, 1, n), 0.25
    J = a * np.eye(n) + d[:, None] * M
    out, work = np.empty((n, 3)), np.empty((n, 3))
    atol = tolerance(np.float64, n + 2, 1)
    products.times(M, d, a, V, out)
    np.testing.assert_allclose(out, J @ V, rtol=0, atol=atol)
    for keep in (a, 0.0):
        products.transposed_times(M, d, keep, V, out, work)
        expected = J.T @ V + (keep - a) * V
        np.testing.assert_allclose(out, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("largest", [1.0, 0.75, 3e300, 5e-324, 1.7e308, 1e-310])
def test_renormalise_is_an_exact_power_of_two(largest):
    A = np.array([[largest, -largest / 2], [0.0, largest / 4]])
    before = A.copy()
    e = products.renormalise(A)
    assert 0.5 <= abs(A).max() < 1
    assert (np.ldexp(A, e) == before).all()
    zero = np.zeros((2, 2))
    assert products.renormalise(zero) == 0


def random_block(rng, steps, n, leak):
    """Two replicas of one network in the normal form, and the same factors as dense arrays."""
    W, dphi = rng.standard_normal((n, n)), rng.uniform(0.1, 1, (2, steps, n))
    matrices, rows = scaled_rows(W[None])
    block = row_scaled_block(matrices, rows, np.zeros(2, int), dphi, leak, 0)
    J = (1 - leak) * np.eye(n) + leak * dphi[..., None] * W
    dense = np.ldexp(block.mantissas(), block.exponents[..., None, None])
    np.testing.assert_allclose(dense, J, rtol=0, atol=4 * EPS * (1 + np.abs(W).max()))
    return block, dense


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("leak", [1.0, 0.3])
def test_product_and_vector_steps(n, transpose, leak):
    rng, steps, R = np.random.default_rng(n), 6, 2
    block, J = random_block(rng, steps, n, leak)
    normal = (block.matrices, block.index, block.scales, block.exponents, block.identity)
    n_valid, column = np.array([6, 4]), np.array([-1, 0, -1, 1, 2, -1, 3])
    P, exponent, age = np.tile(np.eye(n), (R, 1, 1)), np.zeros(R, int), np.zeros(R, int)
    kept, kept_exponent = np.zeros((R, 4, n, n)), np.full((R, 4), -9)
    products.product_steps(
        *normal, n_valid, 0, transpose, P, exponent, age, column, 0, kept, kept_exponent
    )
    v = rng.standard_normal((R, n))
    pushed, shift, log_norm = v.copy(), np.zeros(R, int), np.full((R, 4), np.nan)
    products.vector_steps(
        *normal, n_valid, 0, transpose, pushed, shift, np.zeros(R, int), column, log_norm
    )
    for r in range(R):
        factors = J[r, : n_valid[r]]
        if transpose:
            factors = np.swapaxes(factors[::-1], -1, -2)
        sizes = np.linalg.norm(factors, 2, axis=(-2, -1))
        for lag, c in ((1, 0), (3, 1), (4, 2), (6, 3)):
            if lag > n_valid[r]:
                assert kept_exponent[r, c] == -9
                assert np.isnan(log_norm[r, c])
                continue
            expected = naive.product(factors, lag)
            atol = tolerance(np.float64, n, lag) * np.prod(sizes[:lag])
            got = np.ldexp(kept[r, c], kept_exponent[r, c])
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol)
            length = np.linalg.norm(expected @ v[r])
            rtol = atol * np.linalg.norm(v[r]) / length
            assert log_norm[r, c] == pytest.approx(math.log(length), abs=rtol + 4 * EPS)
        assert age[r] == n_valid[r]
        assert same(np.ldexp(P[r], exponent[r]), got)
        ends = np.ldexp(pushed[r], shift[r])
        np.testing.assert_allclose(ends, expected @ v[r], rtol=0, atol=atol * (1 + length))


def exponent_state(R, n, k, edges):
    """(sums, carry, zero, unsure, age, edges, met, history) as the kernels carry them."""
    return (
        np.zeros((R, k)), np.zeros((R, k)), np.zeros((R, k), int), np.zeros((R, k), int),
        np.zeros(R, int), np.array([edges] * R), np.zeros(R, int),
        np.full((R, len(edges), k), np.nan),
    )  # fmt: skip


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("burn_in", [0, 4])
def test_exponent_steps(n, burn_in):
    J = random_chain(np.random.default_rng(n), "gaussian", 20, n)
    condition = np.linalg.cond(J).max()
    edges = [burn_in + 3, 20]
    sums, carry, zero, unsure, age, ends, met, history = exponent_state(1, n, n, edges)
    factor.qr_exponent_steps(
        *parts_of(J), np.array([20]), 0, burn_in, np.eye(n)[None],
        sums, carry, zero, unsure, age, ends, met, history,
    )  # fmt: skip
    increments = naive.qr_increments(J)
    # each step's r_ii is good to n eps cond(J), relative; the basis passes errors on
    atol = tolerance(np.float64, n, 20) * condition
    np.testing.assert_allclose((sums + carry)[0], increments[burn_in:].sum(0), atol=atol)
    np.testing.assert_allclose(history[0, 0], increments[burn_in : edges[0]].sum(0), atol=atol)
    assert same(history[0, 1], (sums + carry)[0])
    assert not zero.any()
    assert not unsure.any()
    assert met[0] == 2
    sums, carry, zero, _, age, ends, met, history = exponent_state(1, n, 1, edges)
    v = np.eye(n)[:1].copy()
    products.leading_exponent_steps(
        *parts_of(J), np.array([20]), 0, burn_in, v, sums, carry, zero, age, ends, met, history
    )
    np.testing.assert_allclose(sums[0] + carry[0], increments[burn_in:, :1].sum(0), atol=atol)
    assert np.linalg.norm(v) == pytest.approx(1, rel=n * EPS)


def graded_of(J, group, kernel=graded.graded_steps):
    """The graded factors of a product, one step at a time, finished by Jacobi sweeps."""
    n = J.shape[-1]
    state = Graded.start(1, n, None)
    M, index, d, e, _ = parts_of(J)
    done = kernel(
        M, index[0], d[0], e[0], 0, len(J), False, group, group, -np.inf,
        np.empty((n, n)), np.zeros((8 * len(state.Q[0]) // tiles.ROWS, n, tiles.ROWS)),
        np.full(2, -1), np.zeros((2, *state.Q[0].shape)), *state.of(0),
    )  # fmt: skip
    assert done == len(J)
    assert state.merged[0] == len(J) * (group - 1) // group
    Q, U = from_strips(state.Q[0], n).T.copy(), from_strips(state.U[0], n)
    mantissa, exponent = state.mantissa[0], state.exponent[0]
    rank, sure, bound = int(state.rank[0]), int(state.sure[0]), int(state.bound[0])
    if np.isfinite(state.pace[0]) or group > 1:
        rank, sure = gradedhouse.householder_step(
            Q.copy(), 0, Q, mantissa, exponent, U, rank, sure, bound
        )
    return Q, mantissa, exponent, U, rank, sure, bound


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kernel", [graded.graded_steps, graded.graded_steps_whole])
def test_graded_steps_and_jacobi(n, group, kernel):
    J = random_chain(np.random.default_rng(n), "tanh", 12, n)
    Q, mantissa, exponent, U, rank, sure, bound = graded_of(J, group, kernel)
    assert rank == sure == bound == n
    np.testing.assert_allclose(Q.T @ Q, np.eye(n), atol=tolerance(np.float64, n, 1))
    np.testing.assert_allclose(np.linalg.norm(U, axis=1), 1, atol=n * EPS)
    P, size = naive.product(J, 12), np.prod(np.linalg.norm(J, 2, axis=(-2, -1)))
    whole = Q.T @ (np.ldexp(mantissa, exponent)[:, None] * U)
    np.testing.assert_allclose(whole, P, atol=tolerance(np.float64, n, 12) * size)
    rows = jacobi.graded_finish(U, mantissa, exponent, n)
    sweeps = [jacobi.jacobi_sweep(rows, mantissa, exponent) for _ in range(8)]
    assert sweeps[-1] <= math.sqrt(n) * EPS
    got = np.sort(np.log(mantissa) + exponent * math.log(2))[::-1]
    condition = np.linalg.cond(J).max()
    np.testing.assert_allclose(
        got, mp_log_singular_values(J), atol=tolerance(np.float64, n, 12) * condition
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_diagonal_steps(n, reverse, kind):
    rng, R, m = np.random.default_rng(n), 2, 8
    a = rng.standard_normal((R, m, n)) + (1j * rng.standard_normal((R, m, n))) * (kind == "complex")
    a = a if kind == "complex" else a.real.copy()
    a[1, 3, 0] = 0.0
    n_valid, column = np.array([8, 6]), np.array([-1, 0, -1, -1, 1, -1, 2, -1, 3])
    sums, carry, magnitude = np.zeros((3, R, n))
    logs, magnitudes = np.full((2, R, 4, n), np.nan)
    with np.errstate(divide="ignore"):
        steps = np.log(np.abs(a))
    products.log_sum_steps(
        steps, 0.5, n_valid, 0, reverse, sums, carry, magnitude, np.zeros(R, int), column,
        logs, magnitudes,
    )  # fmt: skip
    v = rng.uniform(0.5, 1, (R, n)).astype(a.dtype)
    pushed, exponent, log_norm = v.copy(), np.zeros(R, int), np.full((R, 4), np.nan)
    products.diagonal_vector_steps(
        a, n_valid, 0, reverse, pushed, exponent, np.zeros(R, int), column, log_norm
    )
    for r in range(R):
        own = a[r, : n_valid[r]][:: -1 if reverse else 1]
        for lag, c in ((1, 0), (4, 1), (6, 2), (8, 3)):
            if lag > n_valid[r]:
                assert np.isnan(logs[r, c]).all()
                assert np.isnan(log_norm[r, c])
                continue
            P = np.prod(own[:lag], axis=0)
            with np.errstate(divide="ignore"):
                expected = np.log(np.abs(P))
            np.testing.assert_allclose(logs[r, c], expected, atol=tolerance(np.float64, 2, lag))
            finite = np.abs(np.where(own[:lag] == 0, 1, own[:lag]))
            if (own[:lag] != 0).all():
                total = np.abs(np.log(finite)).sum(axis=0) + 0.5 * lag
                np.testing.assert_allclose(magnitudes[r, c], total, rtol=1e-14)
            size = np.linalg.norm(P * v[r])
            if size > 0:
                assert log_norm[r, c] == pytest.approx(math.log(size), abs=60 * EPS)
        ends = np.ldexp(1.0, exponent[r]) * pushed[r]
        np.testing.assert_allclose(ends, P * v[r], atol=60 * EPS * np.abs(P * v[r]).max())


@pytest.mark.parametrize("n", SIZES)
def test_structure_of_zeros_is_never_wrong(n):
    rng = np.random.default_rng(n)
    attained = 0
    for _ in range(40):
        alive, P, most = np.ones(n, bool), [], n
        for _ in range(4):
            M = rng.integers(-3, 4, (n, n)) * (rng.random((n, n)) < 0.35).astype(float)
            d, a = 1.0 * (rng.random(n) < 0.8), float(rng.random() < 0.2)
            J = a * np.eye(n) + d[:, None] * M
            most = min(most, structure.follow(M, d, a, alive))
            P.append(J)
            exact = exact_product(np.array(P), n)[0]
            rank = rank_and_minor(exact)[0]
            # a row that is dead is zero, whatever the numbers are
            assert not any(any(row) for row, live in zip(exact, alive, strict=True) if not live)
            assert rank <= most
            attained += rank == most
    assert attained > 40
    live = np.ones(n, bool)
    assert structure.follow_diagonal(np.arange(n) * 1.0, live) == n - 1
    assert not live[0]


def test_pivoted_qr_stops_at_the_exact_rank():
    rng = np.random.default_rng(3)
    B = rng.integers(-3, 4, (6, 3)).astype(float) @ np.eye(3, 5)
    weight = np.array([0.0, 40.0, 3.0, 90.0, -7.0])
    Q, R, order = pivoted.pivoted_qr(B, weight)
    assert Q.shape == (6, 3)
    assert order[0] == 1  # the heaviest column that is not zero
    np.testing.assert_allclose(Q @ R, B[:, order], atol=tolerance(np.float64, 6, 1) * 10)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=tolerance(np.float64, 6, 1))


# --- any layout, through the public functions ----------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", ["Fortran", "strided", "backwards", "read-only", "byte-swapped"])
def test_memory_layout_changes_no_bit(layout, dtype):
    rng = np.random.default_rng(5)

    def both(*shape):
        forms = layouts(rng.standard_normal(shape).astype(dtype))
        return forms["C"], forms[layout]

    W, W_xh, b, x, h0, u = (
        both(*shape) for shape in ((2, 3, 3), (3, 2), (3,), (2, 8, 2), (2, 3), (2, 3))
    )
    J, dphi, a = both(2, 8, 3, 3), both(2, 8, 3), both(2, 8, 3)

    def results(i):
        cell = gp.RNN(W[i], W_xh[i], b[i])
        run = gp.rollout(cell, x[i], h0=h0[i])
        yield from (run.h, run.z)
        assert run.h.dtype == dtype
        for chain in (
            gp.linearise(cell, x[i], h0=h0[i]),
            gp.JacobianChain.dense(J[i]),
            gp.JacobianChain.row_scaled(W[i], dphi[i]),
            gp.JacobianChain.diagonal(a[i]),
        ):
            yield gp.log_norms(chain).log_norm
            yield gp.jvp(chain, u[i]).mantissa
            yield gp.gradient_by_lag(chain, u[i]).log_norm
            yield gp.singular_values(chain).log_sigma
            yield gp.lyapunov_spectrum(chain).exponents

    before = [given.copy() for _, given in (W, W_xh, b, x, h0, u, J, dphi, a)]
    for plain, other in zip(results(0), results(1), strict=True):
        assert same(plain, other)
    for (_, given), copy in zip((W, W_xh, b, x, h0, u, J, dphi, a), before, strict=True):
        assert same(given, copy)
