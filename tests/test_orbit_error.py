"""Orbits in a format: exact twins, contraction, chaos, and what they do to the long product."""

from __future__ import annotations

from fractions import Fraction

import naive_precision as naive
import numba
import numpy as np
import pytest
from helpers import tolerance
from test_quantised import STOCHASTIC

import gradprop as gp
from gradprop.precision.formats import FORMATS, Format
from gradprop.precision.orbit import TwoOrbits

SHORT = Format(5, 5)


class Exact:
    """Operations on lists of numbers, each exact and then rounded (not phi: float64, rounded)."""

    def __init__(self, fmt: Format, accumulator: Format) -> None:
        self.fmt, self.accumulator = fmt, accumulator

    def r(self, values):
        return np.array([naive.exactly_rounded(float(v), self.fmt) for v in np.ravel(values)])

    def plus(self, a, b):
        pairs = zip(a, b, strict=True)
        return np.array(
            [naive.exactly_rounded(Fraction(p) + Fraction(q), self.fmt) for p, q in pairs]
        )

    def times(self, a, b):
        pairs = zip(np.broadcast_to(a, np.shape(b)), b, strict=True)
        return np.array(
            [naive.exactly_rounded(Fraction(p) * Fraction(q), self.fmt) for p, q in pairs]
        )

    def dot(self, A, v):
        A = self.r(A).reshape(np.shape(A))
        return naive.rational_product(A, np.reshape(v, (-1, 1)), self.fmt, self.accumulator)[:, 0]

    def phi(self, activation, z):
        return self.r(activation.evaluate(z))

    # rows: the kernels' order of gates is that of the cells used here

    def rnn(self, c, h, x):
        z = self.plus(self.dot(c.W_hh, h), self.plus(self.dot(c.W_xh, x), self.r(c.b)))
        if c.leak == 1.0:
            return self.phi(c.activation, z)
        kept = self.times(self.r(1 - c.leak)[0], h)
        return self.plus(kept, self.times(self.r(c.leak)[0], self.phi(c.activation, z)))

    def lstm(self, c, state, x):
        n = c.n
        z = self.plus(self.dot(c.W_hh, state[:n]), self.plus(self.dot(c.W_xh, x), self.r(c.b)))
        i, f, o = (self.phi(c.gate_activation, z[k * n : k * n + n]) for k in (0, 1, 3))
        g = self.phi(c.activation, z[2 * n : 3 * n])
        cell = self.plus(self.times(f, state[n:]), self.times(i, g))
        return np.concatenate([self.times(o, self.phi(c.activation, cell)), cell])

    def gru(self, c, h, x):
        n, inner_bias = c.n, c.b_h * (np.arange(3 * c.n) >= 2 * c.n) * c.reset_after
        current = self.plus(self.dot(c.W_xh, x), self.r(c.b_x + c.b_h - inner_bias))
        gates = self.plus(self.dot(c.W_hh[: 2 * n], h), current[: 2 * n])
        r, u = (self.phi(c.gate_activation, gates[k * n : k * n + n]) for k in (0, 1))
        if c.reset_after:
            inner = self.plus(self.dot(c.W_hh[2 * n :], h), self.r(inner_bias[2 * n :]))
            inner = self.times(r, inner)
        else:
            inner = self.dot(c.W_hh[2 * n :], self.times(r, h))
        candidate = self.phi(c.activation, self.plus(inner, current[2 * n :]))
        rest = self.r(1 - u)
        return self.plus(self.times(rest, candidate), self.times(u, h))


def cells(rng: np.random.Generator) -> dict:
    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    gru = (draw(6, 2), draw(6, 2), draw(6), draw(6))
    return {
        "rnn": gp.RNN(draw(3, 3), draw(3, 2), draw(3)),
        "leaky": gp.RNN(draw(3, 3), draw(3, 2), draw(3), leak=0.3, activation="softplus"),
        "lstm": gp.LSTM(draw(8, 2), draw(8, 2), draw(8)),
        "gru": gp.GRU(*gru),
        "gru_before": gp.GRU(*gru, reset_after=False),
    }


@pytest.mark.parametrize(
    ("fmt", "accumulate"),
    [("bfloat16", None), ("float16", "float32"), (SHORT, None), (SHORT, Format(9, 6))],
)
@pytest.mark.parametrize("name", cells(np.random.default_rng(0)))
def test_emulated_orbits_equal_rational_loops(name, fmt, accumulate):
    rng = np.random.default_rng(1)
    cell, x = cells(rng)[name], rng.standard_normal((5, 2))
    start = 0.3 * rng.standard_normal(cell.n_state)
    both = TwoOrbits(cell, x, start, None, fmt, accumulate, None)
    exact = Exact(both.arithmetic.fmt, both.arithmetic.accumulator)
    step = {"leaky": exact.rnn, "gru_before": exact.gru}.get(name) or getattr(exact, name)
    state = exact.r(start)
    for t in range(6):
        np.testing.assert_array_equal(both.low[0, t], state)
        if t < 5:
            state = step(cell, state, exact.r(x[t]))
    exact_run = gp.rollout(cell, x, h0=start).state
    np.testing.assert_array_equal(both.exact[0], exact_run)
    found = gp.orbit_error(cell, x, h0=start, fmt=fmt, accumulate=accumulate)
    np.testing.assert_array_equal(found.error, np.linalg.norm(both.low[0] - exact_run, axis=-1))


def test_a_stack_is_its_layers_one_after_the_other():
    rng = np.random.default_rng(2)
    below, above = cells(rng)["lstm"], cells(rng)["gru"]
    x = rng.standard_normal((6, 2))
    both = TwoOrbits(gp.Stacked([below, above]), x, None, None, "float16", None, None)
    first = TwoOrbits(below, x, None, None, "float16", None, None).low
    second = TwoOrbits(above, first[0, 1:, :2], None, None, "float16", None, None).low
    np.testing.assert_array_equal(both.low, np.concatenate([first, second], axis=-1))


def test_replicas_are_single_runs():
    rng = np.random.default_rng(3)
    W, x = rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 1, 7, 3))
    h0 = rng.standard_normal((2, 2, 3))
    for fmt in ("float32", "bfloat16"):
        many = gp.orbit_error(gp.RNN(W), x, h0=h0, fmt=fmt, tol=1e-3)
        products = gp.product_error(gp.RNN(W), x, h0=h0, fmt=fmt)
        assert many.error.shape == products.log_state_error.shape == (2, 2, 8)
        for i in range(2):
            for k in range(2):
                one = gp.orbit_error(gp.RNN(W[k]), x[i, 0], h0=h0[i, k], fmt=fmt, tol=1e-3)
                for name in ("error", "shadowing_time", "growth_rate", "late_error", "status"):
                    np.testing.assert_array_equal(getattr(many, name)[i, k], getattr(one, name))
                own = gp.product_error(gp.RNN(W[k]), x[i, 0], h0=h0[i, k], fmt=fmt)
                for name in ("log_state_error", "log_jacobian_error", "status"):
                    np.testing.assert_array_equal(getattr(products, name)[i, k], getattr(own, name))


# --- contraction and chaos --------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["float32", "tf32", "float16", "bfloat16", "float8_e4m3"])
def test_a_contracting_network_keeps_its_orbit(fmt):
    """Error <= local / (1 - c), c = norm of W < 1, up to the start.

    Locally, with u = eps / 2 and sums of n terms of total size s = sum |W||h| <= sqrt(n) c |h|:
    rounding of W (u), of each product and n sums ((n + 1) u), of x (u |x|), of the sum of both
    parts and of tanh: all in all u ((n + 4) s + 2 |x| + 2 |h|), plus the smallest number as often.
    """
    rng, n = np.random.default_rng(4), 8
    cell = gp.RNN(gp.initialise("orthogonal", n, rng=rng) * 0.6)
    x = rng.standard_normal((300, n))
    found, known = gp.orbit_error(cell, x, fmt=fmt, tol=100.0), FORMATS[fmt]
    h = np.sqrt(n)
    size = (n + 4) * np.sqrt(n) * 0.6 * h + 2 * np.linalg.norm(x, axis=1).max() + 2 * h
    local = known.eps / 2 * size + (n + 5) * h * known.min_subnormal
    assert 0 < found.error.max() <= local / (1 - 0.6)
    assert found.error.max() >= known.eps / 100
    assert found.shadowing_time == 0
    assert abs(found.growth_rate) <= 0.01
    assert found.largest_exponent < np.log(0.6)
    assert found.late_error <= found.error.max()


def test_with_parameters_that_are_stored_only_operations_round():
    rng = np.random.default_rng(5)
    cell = gp.RNN([[0.3]], [[0.25]], activation="linear")
    x = rng.integers(-1, 2, (50, 1)).astype(float)
    rounded = gp.quantised(cell, "bfloat16")
    as_is, stored = (gp.orbit_error(c, x, fmt="bfloat16") for c in (cell, rounded))
    np.testing.assert_array_equal(
        TwoOrbits(cell, x, None, None, "bfloat16", None, None).low,
        TwoOrbits(rounded, x, None, None, "bfloat16", None, None).low,
    )
    assert stored.late_error != as_is.late_error


def test_halving_is_exact():
    cell = gp.RNN([[0.5]], activation="linear")
    found = gp.orbit_error(cell, h0=[1.0], n_steps=10, fmt="float16")
    assert not found.error.any()
    assert np.isnan(found.growth_rate)
    assert gp.Status.NO_GROWTH_RATE.text in found.messages()


@pytest.mark.parametrize("fmt", ["float32", "float64", "tf32"])
def test_a_chaotic_network_loses_its_orbit_at_its_own_exponent(fmt):
    """From an error near eps to tol = 0.1 with rate lambda_1, which over so short a stretch differs
    from the long average: the mean over 12 starts is allowed a third of it."""
    rng = np.random.default_rng(6)
    cell = gp.RNN(gp.initialise("gaussian", 48, rng=rng, gain=4.0))
    warm = gp.rollout(cell, h0=rng.standard_normal((12, 48)), n_steps=100).h[:, -1]
    found = gp.orbit_error(cell, h0=warm, n_steps=300, fmt=fmt)
    exponent = found.largest_exponent.mean()
    assert exponent > 0.2
    assert (found.shadowing_time > 0).all()
    if fmt != "tf32":  # 8 steps there: too few for a rate
        assert found.growth_rate.mean() == pytest.approx(exponent, rel=1 / 3)
    expected = np.log(0.1 / FORMATS[fmt].eps) / exponent
    assert found.shadowing_time.mean() == pytest.approx(expected, rel=1 / 3, abs=6)
    # two independent points of the attractor are then some sqrt(2 n) apart at most
    assert ((found.late_error > 1.0) & (found.late_error < np.sqrt(4 * 48))).all()


@numba.njit
def logistic(h, x):
    out = np.empty_like(h)
    out[0] = (h[0] * h.dtype.type(4)) * (h.dtype.type(1) - h[0])
    return out


def test_the_logistic_map_in_float32():
    """ln|f'| is ln 2 plus a difference of one function at both ends, so that mean rates are close:
    5 % over 200 starts. Of 800 starts 18.6 - 18.8 % fall onto 0 within 5000 steps (4.5 sigma)."""
    cell, rng = gp.CustomCell(logistic, 1), np.random.default_rng(7)
    starts = rng.random((800, 1)).astype(np.float32)
    found = gp.orbit_error(cell, h0=starts[:200], n_steps=40)
    assert np.nanmean(found.growth_rate) == pytest.approx(np.log(2), rel=0.05)
    steps = np.log(0.1 / 2.0**-24) / np.log(2)
    assert found.shadowing_time.mean() == pytest.approx(steps, abs=4)
    last = gp.rollout(cell, h0=starts, n_steps=5000, dtype=np.float32).h[:, -1]
    assert (last == 0).mean() == pytest.approx(0.187, abs=4.5 * np.sqrt(0.187 * 0.813 / 800))


def test_an_orbit_that_overflows_says_so():
    """1.5^k passes 65504 at k = 28; the product along both orbits is the same until then."""
    cell = gp.RNN([[1.5]], activation="linear")
    found = gp.orbit_error(cell, h0=[1.0], n_steps=40, fmt="float16")
    assert found.status & gp.Status.OVERFLOWED
    assert np.flatnonzero(np.isnan(found.error)).min() == 28
    product = gp.product_error(cell, h0=[1.0], n_steps=40, fmt="float16")
    assert product.status == gp.Status.OVERFLOWED
    assert (product.log_state_error[:28] == -np.inf).all()
    assert np.isnan(product.log_state_error[28:]).all()
    assert np.isnan(product.log_jacobian_error[28:]).all()


def test_random_rounding_is_reproducible_and_draws_at_every_operation():
    cell = gp.RNN([[0.7]], activation="linear")
    runs = [
        gp.orbit_error(cell, h0=[1.0], n_steps=50, fmt=STOCHASTIC, rng=seed).error
        for seed in (1, 1, 2)
    ]
    assert runs[0].tobytes() == runs[1].tobytes()
    assert (runs[0] != runs[2]).any()


def test_an_orbit_that_starts_beyond_the_tolerance_is_lost_at_the_first_step():
    """1000 becomes 448 in float8_e4m3; a time of 0 would mean that the orbit is never lost."""
    cell = gp.RNN([[0.5]], activation="linear")
    found = gp.orbit_error(cell, h0=[1000.0], n_steps=5, fmt="float8_e4m3", tol=1.0)
    assert found.error[:2].tolist() == [552.0, 276.0]
    assert found.shadowing_time == 1


def test_the_random_start_is_shared():
    cell = gp.RNN(0.5 * np.eye(3), activation="linear")
    found = gp.orbit_error(cell, n_steps=3, rng=8)
    start = np.random.default_rng(8).standard_normal(3)
    # halving is exact: what is left is the rounding of the start
    off = np.linalg.norm(start - start.astype(np.float32))
    assert found.error.tolist() == pytest.approx((off * 0.5 ** np.arange(4)).tolist(), rel=1e-12)


# --- products ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_products_equal_plain_loops(name):
    """Short enough for plain float64 products; logs of errors are off by n lag eps over them."""
    rng = np.random.default_rng(9)
    cell, x = cells(rng)[name], rng.standard_normal((5, 2))
    both = TwoOrbits(cell, x, None, None, "bfloat16", None, None)
    found, m = gp.product_error(cell, x, fmt="bfloat16"), cell.n_state
    P, along, plain = np.eye(m), np.eye(m), np.eye(m)
    for t in range(5):
        J = gp.step_jacobian(cell, both.exact[0, t], x[t])
        P, along = J @ P, gp.step_jacobian(cell, both.low[0, t], x[t]) @ along
        rounded = np.vectorize(lambda v: naive.exactly_rounded(v, FORMATS["bfloat16"]))(J)
        plain = naive.rational_product(rounded, plain, FORMATS["bfloat16"], FORMATS["bfloat16"])
        for log, other in ((found.log_state_error, along), (found.log_jacobian_error, plain)):
            error = np.linalg.norm(other - P) / np.linalg.norm(P)
            assert np.exp(log[t + 1]) == pytest.approx(error, abs=tolerance(float, m, t + 1))
    assert found.log_state_error[0] == found.log_jacobian_error[0] == -np.inf


def test_chaos_spoils_the_state_part_and_not_the_other():
    """Along another orbit the product is another one (error of order 1 and more); along the same
    orbit float32 keeps it to n lag eps times the usual growth of such errors."""
    rng = np.random.default_rng(10)
    cell = gp.RNN(gp.initialise("gaussian", 32, rng=rng, gain=4.0))
    found = gp.product_error(cell, h0=rng.standard_normal(32), n_steps=200)
    assert found.log_state_error[-50:].min() > np.log(0.3)
    assert found.log_jacobian_error[-1] < np.log(32 * 200 * 2.0**-23)


def test_products_beyond_every_range():
    """0.5^2000 is zero in float32 and in float64: the plain product is wrong by all of it."""
    cell = gp.RNN([[0.5]], activation="linear")
    found = gp.product_error(cell, h0=[0.0], n_steps=2000)
    assert (found.log_jacobian_error[1:150] == -np.inf).all()
    assert (found.log_jacobian_error[150:] == 0.0).all()
    assert (found.log_state_error == -np.inf).all()
    for size in (5e-324, 1e308):
        extreme = gp.RNN(np.full((2, 2), size), activation="linear")
        one = gp.product_error(extreme, h0=[0.0, 0.0], n_steps=3, fmt="float64")
        assert (one.log_state_error == -np.inf).all()
    grown = gp.product_error(gp.RNN([[2.0]], activation="linear"), h0=[0.0], n_steps=130)
    assert grown.status == gp.Status.LEFT_RANGE
    assert grown.log_jacobian_error[128] == np.inf
    assert (grown.log_jacobian_error[:128] == -np.inf).all()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"fmt": "half"}, ValueError, "`fmt` must be one of"),
        ({"accumulate": "float16"}, ValueError, "`accumulate` must be at least as precise"),
        ({"fmt": STOCHASTIC}, ValueError, "`rng` must be a seed"),
        ({"cell": gp.CustomCell(logistic, 1), "fmt": "bfloat16"}, TypeError,
         "`fmt` must be float32 for a CustomCell"),
        ({"cell": gp.Bidirectional(*[gp.RNN([[1.0]])] * 2)}, TypeError, "got Bidirectional"),
        ({"n_steps": None}, ValueError, "`n_steps` must be given"),
        ({"h0": [1.0, 2.0]}, ValueError, "`h0` must have shape"),
        ({"cell": "rnn"}, TypeError, "`cell` must be made of RNN"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("function", ["orbit_error", "product_error"])
def test_bad_input(function, options, error, text):
    given = {"cell": gp.RNN([[0.5]]), "h0": [1.0], "n_steps": 5, **options}
    with pytest.raises(error, match=text):
        getattr(gp, function)(given.pop("cell"), **given)


def test_bad_tolerance_and_tables():
    cell = gp.RNN([[0.5]])
    with pytest.raises(ValueError, match="`tol` must be greater than 0"):
        gp.orbit_error(cell, h0=[1.0], n_steps=5, tol=0.0)
    assert len(gp.orbit_error(cell, h0=[1.0], n_steps=5).to_frame()) == 6
    assert len(gp.product_error(cell, h0=[1.0], n_steps=5).to_frame()) == 6
