"""Formats and the events of plain products: exact integers, twins, what the processor does."""

from __future__ import annotations

import ctypes
import itertools
import math
import pickle
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import mpmath
import naive_precision as naive
import numba
import numpy as np
import pytest
from chains import random_chain
from exact import exact_log_norm
from helpers import tolerance
from hypothesis import given
from hypothesis import strategies as st

import gradprop as gp
from gradprop._kernels import rounding
from gradprop._kernels.settle import Native
from gradprop.environment import flushes_subnormals
from gradprop.precision.crossings import ExactNorms, limits_of
from gradprop.precision.events import Events
from gradprop.precision.formats import FORMATS, Format, format_of
from gradprop.results import Status, log_sum_exp

NAMES = ("n_eps", "n_subnormal_any", "n_subnormal_all", "n_zero", "n_overflow", "n_nan", "n_stuck")


needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="there is no type map")


def near(value: float, rel: float):
    """Relative tolerance alone: approx would add an absolute one of 1e-12."""
    return pytest.approx(value, rel=rel, abs=0.0)


def events_of(result) -> dict[str, int | None]:
    return {name.removeprefix("n_"): result.event(name) for name in NAMES}


def exact_of(result) -> dict[str, int | None]:
    names = ("eps", "subnormal", "below_subnormal", "zero", "overflow")
    return {name: result.exact.event(f"n_{name}") for name in names}


def scalar(w: float, n_steps: int) -> gp.JacobianChain:
    return gp.JacobianChain.dense(np.full((n_steps, 1, 1), w))


def last_product(J, fmt: str, of: str = "matrix", **options):
    """Stored product after all steps."""
    chain = gp.JacobianChain.dense(J)
    fold = Events(fmt, of, **options).folds(chain)[0]
    for block in chain.blocks(reverse=fold.reverse):
        fold.update(block, slice(0, 1))
    return fold.P[0]


# --- formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_named_formats_are_those_of_numpy(name):
    fmt, info = format_of(name), np.finfo(name)
    for own, theirs in (
        ("eps", info.eps),
        ("min_normal", info.smallest_normal),
        ("min_subnormal", info.smallest_subnormal),
        ("max", info.max),
    ):
        value = getattr(fmt, own)
        assert value == float(theirs)
        with mpmath.workdps(30):
            log = float(mpmath.log(mpmath.mpf(value)))
        assert getattr(fmt, f"log_{own}") == near(log, rel=4e-16)
    assert fmt.name == name
    assert pickle.loads(pickle.dumps(fmt)) == fmt


def test_limits_in_nats():
    found = [
        (fmt.log_min_normal, fmt.log_min_subnormal, fmt.log_max)
        for fmt in (FORMATS["float32"], FORMATS["float64"], Format(8, 8), Format(11, 5))
    ]
    assert np.round(found, 5).tolist() == [
        [-87.33654, -103.27893, 88.72284],
        [-708.39642, -744.44007, 709.78271],
        [-87.33654, -92.18858, 88.71893],
        [-9.70406, -16.63553, 11.08987],
    ]
    without = Format(24, 8, subnormals=False)
    assert without.min_subnormal == without.min_normal
    assert without.log_min_subnormal == without.log_min_normal
    assert without.name.startswith("Format(precision=24")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((1, 8), ValueError, "`precision` must be at least 2; got 1"),
        ((54, 11), ValueError, "`precision` must be at most 53; got 54"),
        ((24.0, 8), TypeError, "`precision` must be an integer; got 24.0"),
        ((24, 12), ValueError, "`exponent_bits` must be at most 11; got 12"),
        ((24, 8, 1), ValueError, "`subnormals` must be one of True, False; got 1"),
        (
            (24, 8, True, "up"),
            ValueError,
            "`rounding` must be one of 'nearest', 'stochastic'; got 'up'",
        ),
        ((4, 4, True, "nearest", 0), ValueError, "`infinities` must be one of True, False; got 0"),
        ((4, 11, True, "nearest", False), ValueError, "at most 10 without infinities; got 11"),
    ],
)
def test_bad_formats(arguments, error, text):
    with pytest.raises(error, match=text):
        Format(*arguments)


# --- scalars: every integer exact -------------------------------------------------------------

SCALARS = [
    # w, steps, format, flush: eps, subnormal, zero, overflow, stuck
    (0.5, 1100, "float32", False, 24, 127, 150, None, None),
    (0.5, 1100, "float32", True, 24, None, 127, None, None),
    (0.5, 1100, "float64", False, 53, 1023, 1075, None, None),
    (0.5, 1100, "float64", True, 53, None, 1023, None, None),
    (0.9, 7200, "float32", False, 152, 829, None, None, 965),
    (0.9, 7200, "float32", True, 152, None, 829, None, None),
    (0.9, 7200, "float64", False, 343, 6724, None, None, 7051),
    (0.99, 9900, "float32", False, 1587, 8690, None, None, 9877),
    (1.1, 7500, "float32", False, None, None, None, 931, None),
    (1.1, 7500, "float64", False, None, None, None, 7448, None),
    (3**-0.5, 200, "float32", False, 30, 159, None, None, 189),
    (0.5, 40, "float16", False, 11, 15, 25, None, None),
    (0.5, 40, "float16", True, 11, None, 15, None, None),
    (0.5, 150, "bfloat16", False, 8, 127, 134, None, None),
    (0.5, 150, "bfloat16", True, 8, None, 127, None, None),
    (0.9, 200, "float16", False, 66, 93, None, None, 143),
    (0.9, 900, "bfloat16", False, 46, 819, None, None, 850),
    (0.9, 900, "bfloat16", True, 46, None, 819, None, None),
    (1.1, 200, "float16", False, None, None, None, 117, None),
    (1.1, 950, "bfloat16", False, None, None, None, 918, None),
    (0.5, 150, "tf32", False, 11, 127, 137, None, None),
    (0.5, 20, "float8_e4m3", False, 4, 7, 10, None, None),
    (0.5, 20, "float8_e5m2", False, 3, 15, 17, None, None),
]


@pytest.mark.parametrize("row", SCALARS)
@pytest.mark.parametrize("kind", ["matrix", "vector", "scalar", "diagonal"])
def test_powers_of_a_scalar(row, kind):
    w, n_steps, fmt, flush, eps, subnormal, zero, overflow, stuck = row
    if kind == "diagonal":
        chain = gp.JacobianChain.diagonal(np.full((n_steps, 1), w))
    else:
        chain = scalar(w, n_steps)
    of = "matrix" if kind == "diagonal" else kind
    result = gp.precision_events(chain, fmt, of=of, flush=flush)
    assert events_of(result) == {
        "eps": eps,
        "subnormal_any": subnormal,
        "subnormal_all": subnormal,
        "zero": zero,
        "overflow": overflow,
        "nan": None,
        "stuck": stuck,
    }
    assert result.messages() == []


@pytest.mark.parametrize(
    ("w", "n_steps", "fmt", "ulps"),
    [
        (0.9, 965, "float32", 4),
        (0.9, 7051, "float64", 5),
        (0.99, 9877, "float32", 50),
        (0.9, 143, "float16", 4),
        (0.9, 850, "bfloat16", 4),
    ],
)
def test_where_powers_stick(w, n_steps, fmt, ulps):
    smallest = FORMATS[fmt].min_subnormal
    assert last_product(np.full((n_steps, 1, 1), w), fmt) == ulps * smallest
    assert last_product(np.full((n_steps - 2, 1, 1), w), fmt) > ulps * smallest


@pytest.mark.parametrize(
    ("w", "n_steps", "fmt", "exact"),
    [
        (0.5, 1100, "float32", (24, 127, 150, 150, None)),
        (0.5, 1100, "float64", (53, 1023, 1075, 1075, None)),
        (0.9, 1000, "float32", (152, 829, 981, 987, None)),
        (1.1, 1000, "float32", (None, None, None, None, 931)),
        (3**-0.5, 200, "float32", (30, 159, 189, 190, None)),
    ],
)
def test_exact_lags_of_a_scalar(w, n_steps, fmt, exact):
    """Powers of 1/2 meet the limits exactly: half the smallest number rounds to zero."""
    for chain in (scalar(w, n_steps), gp.JacobianChain.diagonal(np.full((n_steps, 1), w))):
        for of in ("matrix", "vector"):
            result = gp.precision_events(chain, fmt, of=of)
            assert tuple(exact_of(result).values()) == exact
            assert result.messages() == []


# --- matrices and vectors against the twin ----------------------------------------------------

FAMILIES = ("gaussian", "relu", "orthogonal", "triangular", "graded")
MODES = [
    ("float32", None, False),
    ("float32", None, True),
    ("float32", "float64", False),
    ("float32", "float64", True),
    ("float64", None, False),
    ("float64", None, True),
    ("float16", None, False),
    ("float16", None, True),
    ("float16", "float32", False),
    ("float16", "float64", True),
    ("bfloat16", None, False),
    ("bfloat16", "float32", False),
    ("bfloat16", "float32", True),
    ("float8_e5m2", None, False),
    ("float8_e5m2", "float32", False),
]


def steps_that_meet_everything(family: str, n: int, fmt: str, grow: bool):
    rng = np.random.default_rng([n, len(family), grow])
    factor, n_steps = (30.0, 35) if grow else (0.02, 40)
    if fmt == "float64":
        factor = factor**7
    if FORMATS[fmt].exponent_bits == 5:
        factor = factor**0.25
    J = factor * random_chain(rng, family, n_steps, n)
    # ml_dtypes rounds twice what is no float32 number
    return J if fmt == "float64" else J.astype(np.float32).astype(float)


def rounded(J, fmt: str):
    """By NumPy and ml_dtypes."""
    with np.errstate(over="ignore", under="ignore"):
        return J.astype(fmt)


def flushed(J, fmt: str, flush: bool):
    """The twin does not flush the factors it is given: here without those that are subnormal."""
    small = np.abs(rounded(J, fmt)).astype(float) < FORMATS[fmt].min_normal
    return np.where(small & flush, 0.0, J)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_twin_bit_for_bit(family, mode):
    fmt, accumulate, flush = mode
    options = {"flush": flush, "accumulate": accumulate}
    for n, grow in itertools.product((1, 2, 5), (False, True)):
        J = steps_that_meet_everything(family, n, fmt, grow)
        own = flushed(J, fmt, flush)
        with np.errstate(all="ignore"):
            expected = naive.precision_events(own, fmt, **options)
        result = gp.precision_events(gp.JacobianChain.dense(J), fmt, **options)
        assert events_of(result) == expected
        P = np.eye(n).astype(fmt)
        for J_k in rounded(own[:12], fmt):
            P = naive.rounded_product(J_k, P, accumulate=accumulate, flush=flush)
        np.testing.assert_array_equal(last_product(J[:12], fmt, **options), P.astype(float))


@pytest.mark.parametrize("mode", MODES)
def test_vectors_equal_the_twin_bit_for_bit(mode):
    fmt, accumulate, flush = mode
    options = {"flush": flush, "accumulate": accumulate}
    for family, grow in itertools.product(FAMILIES, (False, True)):
        J = steps_that_meet_everything(family, 5, fmt, grow)
        u = np.random.default_rng(1).standard_normal(5).astype(np.float16).astype(float)
        backwards = np.swapaxes(J[::-1], 1, 2)
        own = flushed(backwards, fmt, flush)
        with np.errstate(all="ignore"):
            expected = naive.precision_events(own, fmt, start=3.0 * u[:, None], **options)
        chain = gp.JacobianChain.dense(J)
        result = gp.precision_events(chain, fmt, of="vector", u=u, loss_scale=3.0, **options)
        assert events_of(result) == expected
        v = (3.0 * u[:, None]).astype(fmt)
        for J_k in rounded(own[:9], fmt):
            v = naive.rounded_product(J_k, v, accumulate=accumulate, flush=flush)
        stored = last_product(J[-9:], fmt, of="vector", u=u, loss_scale=3.0, **options)
        np.testing.assert_array_equal(stored, v.astype(float))


@st.composite
def wild_factors(draw):
    """A few factors whose entries lie anywhere between 1e-50 and 1e50, zeros among them."""
    n, n_steps = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    size = n_steps * n * n
    mantissa = draw(st.lists(st.integers(-(2**27), 2**27), min_size=size, max_size=size))
    exponent = draw(st.lists(st.integers(-190, 140), min_size=size, max_size=size))
    return np.ldexp(np.array(mantissa, float), exponent).reshape(n_steps, n, n)


@given(wild_factors(), st.booleans(), st.sampled_from([None, "float64"]))
def test_equals_the_twin_on_wild_factors(J, flush, accumulate):
    options = {"flush": flush, "accumulate": accumulate}
    with np.errstate(all="ignore"):
        expected = naive.precision_events(flushed(J, "float32", flush), "float32", **options)
    result = gp.precision_events(gp.JacobianChain.dense(J), "float32", **options)
    assert events_of(result) == expected


@pytest.mark.parametrize("fmt", ["float32", "float64"])
def test_row_scaled_factors_are_formed_in_float64_and_rounded_once(fmt):
    rng = np.random.default_rng(5)
    W, dphi = rng.standard_normal((6, 6)), rng.uniform(0, 1, (20, 6))
    for leak in (1.0, 0.3):
        J = leak * dphi[:, :, None] * W + (1.0 - leak) * np.eye(6)
        chain = gp.JacobianChain.row_scaled(W, dphi, leak=leak)
        P = np.eye(6).astype(fmt)
        for J_k in rounded(J, fmt):
            P = naive.rounded_product(J_k, P)
        fold = Events(fmt).folds(chain)[0]
        fold.update(next(iter(chain.blocks())), slice(0, 1))
        np.testing.assert_array_equal(fold.P[0], P)


@pytest.mark.parametrize("power", [-1040, -300, 1000])
def test_factors_of_any_size_are_rounded_once(power):
    W = np.ldexp(np.array([[1.0 + 2.0**-40, 3.0], [5.0, 7.0]]), power)
    for w in W.ravel():
        for fmt in ("float32", "float64"):
            assert last_product([[[w]]], fmt) == rounded(w, fmt)
    np.testing.assert_array_equal(last_product([W], "float64"), W)


@pytest.mark.parametrize(("fmt", "bits"), [("float32", 12), ("float64", 27)])
def test_nothing_is_fused(fmt, bits):
    """fl(a a) - (1 + 2 (a - 1)) is 0; with a fused multiply-add it would be (a - 1)**2."""
    a = 1 + 2.0**-bits
    J = [[[1.0, 0.0], [a, 0.0]], [[-(1 + 2.0 ** (1 - bits)), a], [0.0, 0.0]]]
    chain = gp.JacobianChain.dense(J)
    assert gp.precision_events(chain, fmt).event("n_zero") == 2
    backwards = gp.JacobianChain.dense(np.swapaxes(J[::-1], 1, 2))
    result = gp.precision_events(backwards, fmt, of="vector", u=[1.0, 0.0])
    assert result.event("n_zero") == 2
    if fmt == "float32":
        assert gp.precision_events(chain, fmt, accumulate="float64").event("n_zero") is None


def test_rounding_is_that_of_numpy_for_many_random_sums():
    """Equal to separate multiplications and additions, at sizes where loops are vectorised."""
    rng = np.random.default_rng(2)
    for dtype in (np.float32, np.float64):
        A, P = rng.standard_normal((2, 65, 65)).astype(dtype)
        total = np.zeros_like(P)
        for j in range(65):
            total += A[:, j, None] * P[j]
        out, plain = np.empty_like(P), Native(dtype(0))
        rounding.multiply(A, P, out, np.empty(65, dtype), plain, plain)
        assert out.tobytes() == total.tobytes()
        pulled = np.empty((65, 1), dtype)
        rounding.pull_back(
            np.ascontiguousarray(A.T), np.ascontiguousarray(P[:, :1]), pulled,
            np.empty(65, dtype), plain, plain,
        )  # fmt: skip
        assert pulled.tobytes() == total[:, :1].tobytes()


@needs_jit
def test_float32_products_hold_no_float64():
    A, plain = np.ones((2, 2), np.float32), Native(np.float32(0))
    for kernel, P in ((rounding.multiply, A), (rounding.pull_back, A[:, :1].copy())):
        fresh = numba.njit(error_model="numpy")(kernel.py_func)
        fresh(A, P, P.copy(), np.empty(2, np.float32), plain, plain)
        (compiled,) = fresh.overloads.values()
        types = compiled.type_annotation.typemap.values()
        assert not [t for t in types if "float64" in str(t)]


# --- the verdict at eps -----------------------------------------------------------------------


@pytest.mark.parametrize("family", ["orthogonal", "gaussian", "triangular", "slow"])
def test_eps_is_decided_by_the_singular_value(family):
    """Slow decay leaves many lags between the cheap bounds; the twin computes the norm at each."""
    rng = np.random.default_rng(4)
    n = 4
    if family == "slow":
        base = 0.95 * random_chain(rng, "orthogonal", 1, n) + 0.02 * rng.standard_normal(
            (500, n, n)
        )
    else:
        base = 0.9 * random_chain(rng, family, 500, n)
    J = base / np.exp(max(0.0, np.log(np.linalg.norm(base, 2, axis=(1, 2))).max() + 0.05))
    expected = naive.precision_events(J, "float32")["eps"]
    assert expected is not None
    assert gp.precision_events(gp.JacobianChain.dense(J), "float32").event("n_eps") == expected


def test_eps_is_met_but_not_passed_by_its_own_power():
    """2**-23 I is not below eps: neither bounds nor roundings may say so."""
    chain = gp.JacobianChain.dense(np.tile(0.5 * np.eye(7), (30, 1, 1)))
    result = gp.precision_events(chain, "float32")
    assert result.event("n_eps") == result.exact.event("n_eps") == 24


def test_norm_verdict_without_help_of_the_probe():
    """A probe orthogonal to the leading direction bounds nothing; the singular values do."""
    P = np.diag([1.0, 1.0, 1.0, 0.1])
    probe = np.array([0.0, 0.0, 0.0, 1.0])
    assert not rounding.spectral_norm_below(P, 1.0, 1.0, probe.copy())
    assert rounding.spectral_norm_below(P, 1.0, 1.0 + 2.0**-50, probe.copy())
    assert rounding.spectral_norm_below(np.zeros((3, 3)), 0.0, 1.0, probe[:3])
    assert not rounding.spectral_norm_below(np.zeros((3, 3)), 0.0, 0.0, probe[:3])


# --- exact lags -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "triangular", "tanh"])
def test_exact_lags_against_integer_arithmetic(family):
    rng = np.random.default_rng(8)
    for factor in (0.002, 200.0):
        J = factor * random_chain(rng, family, 22, 3)
        logs = [0.0, *(exact_log_norm(J[:lag]) for lag in range(1, 23))]
        result = gp.precision_events(gp.JacobianChain.dense(J), "float32")
        assert exact_of(result) == naive.exact_events(logs, "float32")
        assert result.messages() == []
    # of a vector: one column in front, the rest zero, has the vector's norm
    J = 0.002 * random_chain(rng, family, 22, 3)
    u = rng.standard_normal(3)
    first = np.zeros((1, 3, 3))
    first[0, :, 0] = u
    back = np.concatenate([first, np.swapaxes(J[::-1], 1, 2)])
    logs = [exact_log_norm(back[: lag + 1]) for lag in range(23)]
    result = gp.precision_events(gp.JacobianChain.dense(J), "float32", of="vector", u=u)
    assert exact_of(result) == naive.exact_events(logs, "float32")


def test_frobenius_norms_decide_only_where_they_can():
    """Refining at open lags gives the lags that 2-norms at all lags give."""
    rng = np.random.default_rng(3)
    J = rng.uniform(0.8, 0.99, (300, 1, 1)) * random_chain(rng, "orthogonal_tanh", 300, 6)
    chain = gp.JacobianChain.dense(np.array([J, 0.9 * J, 1.3 * J]))
    limits = limits_of(FORMATS["float32"], np.zeros(3))
    spectral = ExactNorms.of(chain, gp.log_norms(chain), 0.0)
    frobenius = ExactNorms.of(chain, gp.log_norms(chain, ord="fro"), 0.0)
    refined = frobenius.refined(chain, limits, 0.0)
    assert 0 < (refined.log_norm == spectral.log_norm).all(axis=0).sum() < 150
    found, expected = refined.crossings(limits)[0], spectral.crossings(limits)[0]
    for limit in limits:
        np.testing.assert_array_equal(found[limit.name], expected[limit.name])
    assert found["n_eps"][:2].all()


def test_cancelling_products_are_flagged(monkeypatch):
    """A**40 A**-40: the exact norm passes no limit, but float64 cannot tell."""
    monkeypatch.setattr("gradprop.escalation.available", lambda: False)
    A = random_chain(np.random.default_rng(0), "cancelling", 80, 6)
    result = gp.precision_events(gp.JacobianChain.dense(A), "float32")
    assert Status.NOT_RESOLVED in Status(int(result.status))


def test_exact_zero_and_identity():
    nilpotent = gp.JacobianChain.dense(np.tile([[0.0, 1.0], [0.0, 0.0]], (3, 1, 1)))
    result = gp.precision_events(nilpotent, "float32")
    assert events_of(result)["zero"] == exact_of(result)["zero"] == 2
    assert result.messages() == [Status.ZERO.text]
    still = gp.JacobianChain.dense(np.tile(np.eye(3), (50, 1, 1)))
    assert set(events_of(gp.precision_events(still, "float64")).values()) == {None}
    drifting = gp.JacobianChain.dense(np.tile((1 - 1e-9) * np.eye(3), (50, 1, 1)))
    assert gp.precision_events(drifting, "float32").event("n_stuck") == 1
    assert gp.precision_events(drifting, "float64").event("n_stuck") is None
    assert set(events_of(gp.precision_events(nilpotent.tail(0), "float32")).values()) == {None}


def driven_tanh(n: int, radius: float, seed: int, n_steps: int) -> gp.JacobianChain:
    """Gaussian weights of a radius under white input of standard deviation 1/2, from rest."""
    rng = np.random.default_rng(seed)
    W = gp.rescale(rng.standard_normal((n, n)), spectral_radius=radius)
    return gp.linearise(gp.RNN(W), 0.5 * rng.standard_normal((n_steps, n)), h0=np.zeros(n))


def test_driven_tanh_network_of_32_units():
    """Exact: 45, 219 and 265; where roundings decide, another order moves lags by a step or two."""
    result = gp.precision_events(driven_tanh(32, 0.9, 3, 300), "float32")
    names = ("n_eps", "n_subnormal_any", "n_subnormal_all", "n_zero", "n_overflow", "n_nan")
    assert [result.event(name) for name in names] == [45, 191, 215, 259, None, None]
    exact = [result.exact.event(name) for name in ("n_eps", "n_subnormal", "n_zero")]
    assert exact == [45, 219, 265]


def test_growing_gaussian_products_of_32_units():
    """Radius 1.1: infinite entries, and nan one or two steps later; 16-bit sums in float32."""
    W = gp.rescale(np.random.default_rng(3).standard_normal((32, 32)), spectral_radius=1.1)
    for fmt, n_steps, lags in (("float32", 960, (946, 947)), ("float16", 140, (131, 133))):
        chain = gp.JacobianChain.dense(np.broadcast_to(W, (n_steps, 32, 32)))
        result = gp.precision_events(chain, fmt, accumulate="float32")
        assert (result.event("n_overflow"), result.event("n_nan")) == lags
        assert result.exact.event("n_overflow") < lags[0]


def test_overflow_comes_before_nan():
    rng = np.random.default_rng(0)
    J = 2.5 * random_chain(rng, "relu", 250, 16)
    result = gp.precision_events(gp.JacobianChain.dense(J), "float32")
    overflow, nan = result.event("n_overflow"), result.event("n_nan")
    # inf - inf follows within two steps; entries are below the norm, which therefore passes first
    assert result.exact.event("n_overflow") <= overflow < nan <= overflow + 2


# --- starts, structures, replicas -------------------------------------------------------------


def test_loss_scale_moves_absolute_limits_and_not_eps():
    chain = scalar(0.5, 400)
    for of in ("matrix", "vector"):
        result = gp.precision_events(chain, "float32", of=of, loss_scale=2.0**20)
        assert (result.event("n_eps"), result.event("n_zero")) == (24, 170)
        assert tuple(exact_of(result).values()) == (24, 147, 170, 170, None)
    for bad, text in (
        (1e39, "overflow|range of `fmt`"),
        (0.0, "greater than 0"),
        (np.nan, "finite"),
    ):
        with pytest.raises(ValueError, match=text):
            gp.precision_events(chain, "float32", loss_scale=bad)
    tiny = gp.precision_events(chain, "float32", of="vector", loss_scale=1e-60)
    assert (tiny.event("n_zero"), tiny.exact.event("n_zero")) == (1, 1)


def test_default_cotangent_is_the_uniform_unit_vector():
    J = 0.3 * random_chain(np.random.default_rng(0), "gaussian", 150, 4)
    chain = gp.JacobianChain.dense(J)
    given_one = gp.precision_events(chain, "float32", of="vector", u=np.full(4, 0.5))
    assert events_of(given_one) == events_of(gp.precision_events(chain, "float32", of="vector"))


@pytest.mark.parametrize("fmt", ["float32", "float64"])
def test_diagonal_chains_equal_dense_ones_where_nothing_is_infinite(fmt):
    a = np.random.default_rng(1).uniform(-0.02, 0.02, (250, 5))
    diagonal = gp.JacobianChain.diagonal(a)
    dense = gp.JacobianChain.dense(a[:, :, None] * np.eye(5))
    for of, flush in itertools.product(("matrix", "vector"), (False, True)):
        options = {"of": of, "flush": flush}
        own, full = (gp.precision_events(c, fmt, **options) for c in (diagonal, dense))
        assert events_of(own) == events_of(full)
        assert exact_of(own) == exact_of(full)
    growing = gp.JacobianChain.diagonal(np.full((300, 2), [2.0, 0.1]))
    result = gp.precision_events(growing, "float32")
    assert (result.event("n_overflow"), result.event("n_nan")) == (128, None)
    mixed = gp.precision_events(diagonal, "float32", accumulate="float64")
    assert events_of(mixed) == events_of(gp.precision_events(diagonal, "float32"))


def test_replicas_lengths_and_columns_of_the_table():
    rng = np.random.default_rng(6)
    cell = gp.RNN(0.3 * rng.standard_normal((2, 1, 5, 5)))
    h0, lengths = rng.standard_normal((3, 5)), np.array([120, 40, 80])
    chain = gp.linearise(cell, h0=h0, n_steps=120, lengths=np.broadcast_to(lengths, (2, 3)))
    for of in ("matrix", "vector"):
        result = gp.precision_events(chain, "float32", of=of)
        assert result.n_eps.shape == result.exact.n_eps.shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            alone = gp.linearise(gp.RNN(cell.W_hh[i, 0]), h0=h0[j], n_steps=int(lengths[j]))
            single = gp.precision_events(alone, "float32", of=of)
            for name in (n for n in result._axes if n != "status"):
                assert int(getattr(result, name)[i, j]) == (single.event(name) or 0)
        assert Status.PADDED in Status(int(result.status[0, 1]))
    frame = result.to_frame()
    assert len(frame) == 6
    assert frame["n_nan"].isna().all()
    assert frame["n_eps"].tolist() == result.n_eps.ravel().tolist()
    with pytest.raises(ValueError, match=r"2 replica axes: read the array \.n_eps"):
        result.event("n_eps")
    with pytest.raises(ValueError, match=r"`name` must be one of 'n_eps', .*; got 'eps'"):
        result.event("eps")


def test_measured_beside_other_quantities_and_saved(tmp_path):
    chain = gp.JacobianChain.dense(0.4 * random_chain(np.random.default_rng(1), "tanh", 90, 4))
    norms, events, back = gp.measure(
        chain, gp.Norms(), gp.Events("float32"), gp.Events("float32", "vector")
    )
    assert events_of(events) == events_of(gp.precision_events(chain, "float32"))
    assert events_of(back) == events_of(gp.precision_events(chain, "float32", of="vector"))
    np.testing.assert_array_equal(norms.log_norm, gp.log_norms(chain).log_norm)
    events.save(tmp_path / "events.npz")
    again = gp.PrecisionEvents.load(tmp_path / "events.npz")
    assert events_of(again) == events_of(events)
    assert (again.fmt, again.accumulate, again.of, again.flush) == (
        "float32", "float32", "matrix", False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"fmt": "float128"},
            ValueError,
            "`fmt` must be one of 'float64', 'float32', 'tf32', 'float16', 'bfloat16', "
            "'float8_e4m3', 'float8_e5m2'; got 'float128'",
        ),
        ({"fmt": np.float32}, TypeError, "`fmt` must be a name or a Format"),
        ({"fmt": Format(26, 8)}, ValueError, "`fmt` must be float64 or have at most 25 bits"),
        ({"fmt": Format(8, 11)}, ValueError, "and 10 of exponent, to be rounded only once; got F"),
        (
            {"fmt": "bfloat16", "accumulate": "float16"},
            ValueError,
            "`accumulate` must have at least the range of `fmt`",
        ),
        ({"rng": 0}, ValueError, "`rng` must be left out for nearest rounding; got 0"),
        (
            {"fmt": Format(8, 8, rounding="stochastic")},
            ValueError,
            "`rng` must be a seed or a generator for stochastic rounding; got None",
        ),
        ({"accumulate": "half"}, ValueError, "`accumulate` must be one of 'float64', 'float32'"),
        (
            {"fmt": "float64", "accumulate": "float32"},
            ValueError,
            "`accumulate` must be at least as precise as `fmt`",
        ),
        ({"of": "all"}, ValueError, "`of` must be one of 'matrix', 'vector', 'scalar'; got 'all'"),
        ({"of": "scalar"}, ValueError, "`chain` must have one unit for of='scalar'; got 2"),
        ({"flush": 1}, ValueError, "`flush` must be one of True, False; got 1"),
        ({"loss_scale": "1"}, TypeError, "`loss_scale` must be a real number"),
        ({"loss_scale": -1.0}, ValueError, "`loss_scale` must be greater than 0"),
        ({"u": [1.0, 1.0]}, ValueError, "`u` must be left out for of='matrix'"),
        ({"of": "vector", "u": [1.0]}, ValueError, r"`u` must have shape \(..., 2\)"),
        ({"of": "vector", "u": [1.0, np.nan]}, ValueError, "`u` must be finite"),
        ({"of": "vector", "u": [1.0, 1j]}, TypeError, "`u` must be real"),
        ({"chain": np.eye(2)}, TypeError, "`chain` must be a JacobianChain"),
        (
            {"chain": gp.JacobianChain.diagonal([[0.5j, 1.0]])},
            TypeError,
            "`chain` must be real to be rounded; its diagonal is complex",
        ),
    ],
)
def test_bad_input(options, error, text):
    given = {"chain": gp.JacobianChain.dense([np.eye(2)]), "fmt": "float32", **options}
    with pytest.raises(error, match=text):
        gp.precision_events(given.pop("chain"), given.pop("fmt"), **given)


# --- facts and reports ------------------------------------------------------------------------


def test_trained_flipflop_product_is_exactly_zero_after_72_steps(flipflop):
    """500 real steps; arrays cast to float64, then the two biases added; J rounded once."""
    arrays = {name: value.astype(np.float64) for name, value in flipflop[1].items()}
    cell = gp.RNN(arrays["W_hh"], arrays["W_ih"], arrays["b_ih"] + arrays["b_hh"])
    result = gp.precision_events(gp.linearise(cell, arrays["U"]), "float32")
    expected = flipflop[0]["reference"]["pulses_T500"]["naive_float32_product_zero_after_steps"]
    assert result.event("n_zero") == expected == 72


def test_p067_slope_of_tanh_in_float32():
    from gradprop.activations import activation

    slope = activation("tanh").derivative(np.float32(-9.010913848876953))
    assert slope.dtype == np.float32
    assert abs(float(slope) - 5.96045832e-08) <= 2 * np.spacing(np.float32(5.96e-08))
    with np.errstate(divide="ignore"):
        log = float(np.log(activation("tanh").derivative(20.0)))
    assert log == pytest.approx(-38.61370563888, abs=1e-11)


def test_p072_the_accumulator_is_the_one_asked_for():
    """1 + 1000 float32(1e-8): float32 sums stay at 1, float64 ones give 1.00001."""
    J = np.zeros((2, 1001, 1001))
    J[0, :, 0] = 1.0
    J[1, 0] = np.float32(1e-8)
    J[1, 0, 0] = 1.0
    options = {"of": "vector", "u": np.eye(1001)[0]}
    assert last_product(J, "float32", **options)[0] == 1.0
    assert last_product(J, "float32", accumulate="float64", **options)[0] == np.float32(1.00001)
    double = last_product(J, "float64", **options)[0]
    assert double == near(1.00001, rel=tolerance(float, 1000, 1))


def test_p073_sums_of_nothing():
    values = [log_sum_exp([-np.inf, -np.inf]), log_sum_exp([np.inf, 0.0]), log_sum_exp([])]
    assert np.array(values).tolist() == [-np.inf, np.inf, -np.inf]


@contextmanager
def flushing_processor() -> Iterator[None]:
    """Set the processor's flush bits in this thread, as some libraries do when they are loaded."""
    libm = ctypes.CDLL("libm.so.6")
    state = (ctypes.c_uint32 * 64)()
    libm.fegetenv(state)
    kept = list(state)
    if platform.machine() in ("x86_64", "AMD64"):
        state[7] |= 0x8040  # MXCSR: flush to zero, denormals are zero
    else:
        state[0] |= 1 << 24  # FPCR.FZ
    libm.fesetenv(state)
    try:
        yield
    finally:
        state[:] = kept
        libm.fesetenv(state)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the layout of fenv_t is glibc's")
def test_p069_a_processor_that_flushes_is_noticed():
    chain = scalar(0.5, 150)
    usual = gp.precision_events(chain, "float32")
    assert (usual.event("n_zero"), int(usual.status)) == (150, 0)
    assert not flushes_subnormals()
    with flushing_processor():
        detected = flushes_subnormals()
        switched = gp.precision_events(chain, "float32")
        asked = gp.precision_events(chain, "float32", flush=True)
        log10 = float(gp.log_norms(chain, lags=[150]).log_norm[0]) / math.log(10)
        carried = gp.precision_events(chain, "bfloat16")
        summed = gp.precision_events(chain, "bfloat16", accumulate="float32")
    assert detected
    # bfloat16 is carried in float64, whose subnormal numbers are far away; float32 sums are flushed
    assert (carried.event("n_zero"), int(carried.status)) == (134, 0)
    assert (summed.event("n_zero"), int(summed.status)) == (127, Status.FLUSHED)
    assert (switched.event("n_zero"), switched.event("n_subnormal_any")) == (127, None)
    assert Status(int(switched.status)) == Status.FLUSHED
    assert (asked.event("n_zero"), int(asked.status)) == (127, 0)
    assert switched.exact.event("n_zero") == 150
    assert round(log10, 3) == -45.154
    assert gp.precision_events(chain, "float32").event("n_zero") == 150


def test_a_cotangent_that_is_zero_or_too_large_is_named():
    chain = gp.JacobianChain.dense(np.full((3, 2, 2), 0.5))
    with pytest.raises(ValueError, match="`u` must not be zero"):
        gp.precision_events(chain, "float32", of="vector", u=[0.0, 0.0])
    with pytest.raises(ValueError, match=r"with u comes to 1e\+39"):
        gp.precision_events(chain, "float32", of="vector", u=[1e39, 1.0])
