"""The tests' own references against closed forms and stored high-precision values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from chains import FAMILIES, random_chain, random_orthogonal, unit_vector
from exact import exact_log_abs_det, exact_log_norm, exact_product, mp_log_singular_values
from helpers import tolerance
from naive import (
    ACTIVATIONS,
    batch_means,
    dphi,
    eliminate,
    gradient_by_lag,
    gram_schmidt,
    growth_moment,
    horizon,
    jacobians,
    log_norms,
    norm_bounds,
    phi,
    product,
    qr_increments,
    rollout,
)
from naive_precision import exact_events, precision_events, rounded_product


def test_worked_example_of_the_course() -> None:
    h, z = rollout([[0.5]], [1.0, 0.0, -1.0], W_xh=[[1.0]])
    expected = [0.7615941559557649, 0.3633994843890525, -0.6741436761583508]
    assert h[1:, 0] == pytest.approx(expected, rel=4e-16)
    J = jacobians([[0.5]], z)
    assert product(J, 2, "end")[0, 0] == pytest.approx(0.1183720041079364, rel=1e-15)
    assert product(J, 3)[0, 0] == pytest.approx(0.02485660224538170, rel=1e-15)


def test_order_of_factors() -> None:
    J = np.array([[[1.0, 2.0], [0.0, 1.0]], np.diag([1.0, 3.0])])
    assert np.linalg.norm(product(J, 2), 2) == pytest.approx(3.6502815, abs=5e-8)
    assert (product(J, 1) == J[0]).all()
    assert (product(J, 1, "end") == J[1]).all()
    assert log_norms(J, anchor="end")[1] == pytest.approx(math.log(3), rel=1e-15)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_by_central_differences(name: str) -> None:
    z, step = np.array([-9.3, -1.7, -0.4, 0.3, 0.9, 2.2, 7.7]), 1e-5
    slope = (phi(name, z + step) - phi(name, z - step)) / (2 * step)
    # truncation step²/6·max|φ'''| (at most 4) plus rounding eps·max|φ|/step
    assert dphi(name, z) == pytest.approx(slope, abs=1e-10 + 2.3e-16 * 10 / step)


def test_length_and_leak() -> None:
    rng = np.random.default_rng(0)
    W, x = rng.standard_normal((3, 3)), rng.standard_normal((6, 3))
    h, z = rollout(W, x, leak=0.25, length=4)
    shorter, _ = rollout(W, x[:4], leak=0.25)
    assert (h[:5] == shorter).all()
    assert (h[5:] == h[4]).all()
    assert np.isnan(z[4:]).all()
    J = jacobians(W, z, leak=0.25)
    assert (J[4:] == np.eye(3)).all()
    step = 1e-6
    moved = rollout(W, x[1:2], h0=h[1] + step * np.eye(3)[2], leak=0.25)[0][1]
    back = rollout(W, x[1:2], h0=h[1] - step * np.eye(3)[2], leak=0.25)[0][1]
    assert (moved - back) / (2 * step) == pytest.approx(J[1, :, 2], abs=1e-9)


@pytest.mark.parametrize("index", range(2))
def test_exact_singular_values_of_inline_products(oracles: dict, index: int) -> None:
    case = oracles["products"]["inline"][index]
    A = [
        np.array([[float.fromhex(s) for s in row] for row in case[k]]) for k in ("A0_hex", "A1_hex")
    ]
    J = np.array([A[(k * k + k // 3) % 2] for k in range(1, case["n"] + 1)])
    expected = np.array(case["ln_sigma"], float)
    assert mp_log_singular_values(J) == pytest.approx(expected, rel=4e-16)
    assert exact_log_abs_det(J) == pytest.approx(expected.sum(), abs=1e-12)


@pytest.mark.parametrize("key", ["jordan_d4_n200_s18", "relu_d8_n300_s16", "tanh0.5_d4_n500_s11"])
def test_exact_singular_values_of_stored_products(
    oracles: dict, oracle_products: dict, key: str
) -> None:
    case = next(c for c in oracles["products"]["cases"] if c["key"] == key)
    expected = np.array(case["ln_sigma"], float)
    assert mp_log_singular_values(oracle_products[key]) == pytest.approx(expected, rel=4e-16)


def test_exact_values_are_exact() -> None:
    J = np.array([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    assert (mp_log_singular_values(J) == -np.inf).all()
    assert exact_log_norm(J, "fro") == -np.inf
    ones = np.ones((50, 3, 3))
    assert mp_log_singular_values(ones)[0] == pytest.approx(50 * math.log(3), rel=3e-16)
    assert (mp_log_singular_values(ones)[1:] == -np.inf).all()
    assert exact_product([np.full((1, 1), 0.75)] * 2, 1) == ([[9]], -4)
    assert exact_log_norm(ones, "fro") == pytest.approx(50 * math.log(3), rel=3e-16)


@pytest.mark.parametrize("anchor", ["start", "end"])
@pytest.mark.parametrize("family", FAMILIES)
def test_log_norms_and_bounds(family: str, anchor: str) -> None:
    rng = np.random.default_rng(5)
    n, n_steps = 4, 12
    J = random_chain(rng, family, n_steps, n)
    norms = log_norms(J, anchor=anchor)
    own = J if anchor == "start" else J[::-1]
    for lag in (1, 5, n_steps):
        part = own[:lag] if anchor == "start" else own[:lag][::-1]
        truth = exact_log_norm(part)
        if family != "cancelling":
            growth = sum(np.log(np.linalg.norm(J_k, 2)) for J_k in part) - truth
            assert norms[lag] == pytest.approx(
                truth, abs=tolerance(float, n, lag) * math.exp(growth)
            )
    rates = norm_bounds(J, np.eye(n), anchor=anchor, block=5)
    allowed = 1e-12 * (1 + np.arange(n_steps + 1))
    assert (rates["blocked"] >= norms - allowed).all()
    assert (rates["step_norms"] >= rates["blocked"] - allowed).all()
    assert (rates["determinant"] <= norms + allowed).all()


def test_bounds_from_weights(bounds_cases: tuple) -> None:
    values, arrays = bounds_cases
    W, D = arrays["W_gaussian_g0.9"], arrays["dphi_gaussian_g0.9"]
    J = D[:, :, None] * W
    bounds = norm_bounds(J[:60], W)
    assert bounds["spectral_norm"][60] / 60 == pytest.approx(
        values["gaussian_g0.9"]["ln_spectral_norm"], rel=1e-12
    )
    truth = log_norms(J)
    assert truth[200] / 200 == pytest.approx(
        values["gaussian_g0.9"]["truth_tanh_per_step"], rel=1e-12
    )
    for name in ("spectral_norm", "step_norms", "blocked", "perron"):
        assert (bounds[name] >= truth[:61] - 1e-12 * (1 + np.arange(61))).all()


def test_bounds_of_a_rotation_known_by_hand() -> None:
    W = np.array([[1.0, -1.0], [1.0, 1.0]])
    bounds = norm_bounds(np.array([W] * 3), W, gamma=2.0, leak=0.5)
    assert bounds["perron"][3] == pytest.approx(3 * math.log(2.5))
    assert bounds["spectral_norm"][3] == pytest.approx(3 * math.log(0.5 + math.sqrt(2)))
    assert bounds["determinant"][3] == pytest.approx(3 * math.log(2) / 2)


def test_gradients_and_horizon() -> None:
    rng = np.random.default_rng(3)
    J, u = random_chain(rng, "gaussian", 9, 5), unit_vector(rng, 5)
    for anchor in ("start", "end"):
        direct = [np.log(np.linalg.norm(product(J, lag, anchor).T @ u)) for lag in range(10)]
        assert gradient_by_lag(J, u, anchor) == pytest.approx(direct, abs=1e-13)
    assert horizon(np.log([1.0, 0.5, 0.1, 0.5, 0.01]), 0.2) == (3, 2)
    assert growth_moment(np.log([1.0, 3.0]), 2, 2.0) == pytest.approx(math.log(5) / 2)


def test_qr_exponents() -> None:
    rng = np.random.default_rng(4)
    A = rng.standard_normal((6, 6))
    Q, r = gram_schmidt(A)
    assert np.abs(Q.T @ Q - np.eye(6)).max() < tolerance(float, 6, 1)
    assert np.log(r).sum() == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-13)
    L, order, pivots = eliminate(A)
    assert np.array_equal(L[order], np.tril(L[order], -1) + np.eye(6))
    assert np.abs(L).max() == 1.0
    upper = np.linalg.solve(L[order], A[order])
    assert np.abs(np.tril(upper, -1)).max() < tolerance(float, 6, 1)
    assert np.log(pivots).sum() == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-13)
    J = np.broadcast_to(np.diag([0.5, 0.0]), (10, 2, 2))
    mean, error = batch_means(qr_increments(J))
    assert mean == pytest.approx([math.log(0.5), -math.inf], rel=1e-15)
    assert error[0] < 1e-15
    assert np.isnan(error[1])
    without_warm_up = qr_increments(np.broadcast_to([[0.5, 0.0], [1.0, 2.0]], (10, 2, 2)))
    assert without_warm_up.mean(axis=0) == pytest.approx([0.65260057, -0.65260057], abs=5e-9)
    assert batch_means(np.array([[1.0], [3.0], [2.0], [6.0]]), 2)[1] == pytest.approx(1.0)
    draws = np.array([random_orthogonal(rng, 3)[0, 0] > 0 for _ in range(2000)])
    assert draws.mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(2000))


@pytest.mark.parametrize(
    ("w", "dtype", "expected"),
    [
        (0.5, "float64", {"eps": 53, "subnormal_all": 1023, "zero": 1075}),
        (0.5, "float32", {"eps": 24, "subnormal_any": 127, "zero": 150}),
        (0.5, "float16", {"eps": 11, "subnormal_all": 15, "zero": 25}),
        (0.9, "float16", {"eps": 66, "subnormal_all": 93, "zero": None, "stuck": 143}),
        (1.1, "float16", {"eps": None, "overflow": 117, "nan": None}),
        (1.1, "float32", {"overflow": 931}),
        (1.0, "float32", {"eps": None, "stuck": None}),
    ],
)
def test_events_of_scalars(w: float, dtype: str, expected: dict) -> None:
    events = precision_events(np.full((1100, 1, 1), w), dtype)
    assert {name: events[name] for name in expected} == expected


def test_sums_round_one_by_one_in_order() -> None:
    row = np.array([[1e8, 1.0, -1e8]], np.float32)
    ones = np.ones((3, 1), np.float32)
    assert rounded_product(row, ones)[0, 0] == 0
    assert rounded_product(row[:, [0, 2, 1]], ones)[0, 0] == 1
    assert rounded_product(row, ones, accumulate="float64")[0, 0] == 1
    assert rounded_product(row, ones).dtype == np.float32


def test_flushing_and_exact_events() -> None:
    J = np.full((300, 1, 1), 0.5)
    flushed = precision_events(J, "float32", flush=True)
    assert (flushed["zero"], flushed["subnormal_any"]) == (127, None)
    assert exact_events(log_norms(J), "float32") == {
        "eps": 24,
        "subnormal": 127,
        "below_subnormal": 150,
        "zero": 151,
        "overflow": None,
    }
