"""Activations against 50-digit values over the whole float range, kinks, ranges, own pairs."""

from __future__ import annotations

import pickle

import mpmath as mp
import numba
import numpy as np
import pytest
from helpers import same
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from gradprop import activations
from gradprop._kernels import activations as kernels
from gradprop._kernels import exponential, rows
from gradprop.activations import Activation, activation

NAMES = list(kernels.CODES)
DTYPES = [np.float64, np.float32]
needs_jit = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="there is no type map")


def mp_normal_cdf(z):
    return mp.erfc(-z / mp.sqrt(2)) / 2 if abs(z) < 100 else mp.mpf(int(z > 0))


def mp_normal_pdf(z):
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi) if abs(z) < 1e4 else mp.mpf(0)


def mp_sigmoid(z):
    return 1 / (1 + mp.exp(-z))


with mp.workdps(50):
    SELU_LAMBDA = mp.mpf("1.0507009873554804934193349852946")
    SELU_ALPHA = mp.mpf("1.6732632423543772848170429916717")
REFERENCE = {
    "tanh": (mp.tanh, lambda z: mp.sech(z) ** 2),
    "relu": (lambda z: max(z, 0), lambda z: mp.mpf(z > 0)),
    "leaky_relu": (lambda z: max(z, z / 100), lambda z: mp.mpf(1) / (1 if z > 0 else 100)),
    "sigmoid": (mp_sigmoid, lambda z: mp.sech(z / 2) ** 2 / 4),
    "hard_tanh": (lambda z: min(max(z, -1), 1), lambda z: mp.mpf(abs(z) < 1)),
    "softplus": (lambda z: max(z, 0) + mp.log1p(mp.exp(-abs(z))), mp_sigmoid),
    "erf": (mp.erf, lambda z: 2 / mp.sqrt(mp.pi) * mp.exp(-z * z)),
    "gelu": (lambda z: z * mp_normal_cdf(z), lambda z: mp_normal_cdf(z) + z * mp_normal_pdf(z)),
    "selu": (
        lambda z: SELU_LAMBDA * (z if z > 0 else SELU_ALPHA * mp.expm1(z)),
        lambda z: SELU_LAMBDA * (1 if z >= 0 else SELU_ALPHA * mp.exp(z)),
    ),
    "linear": (lambda z: z, lambda z: mp.mpf(1)),
    "hard_sigmoid": (
        lambda z: min(max(z / 5 + mp.mpf(1) / 2, 0), 1),
        lambda z: mp.mpf(abs(z) < mp.mpf(5) / 2) / 5,
    ),
}


def whole_range(dtype):
    """Points from the smallest subnormals to half the largest float, dense where phi bends."""
    info = np.finfo(dtype)
    size = np.concatenate(
        [
            np.geomspace(float(info.tiny) / 8, 1e-3, 8),
            np.linspace(0.003, 16.0, 61),
            np.geomspace(16.0, 800.0, 31),
            np.geomspace(900.0, float(info.max) / 2, 5),
        ]
    )
    size *= np.random.default_rng(5).uniform(0.97, 1.03, size.size)
    return np.concatenate([-size[::-1], size]).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("derivative", [False, True])
def test_within_a_few_ulp_of_fifty_digits_over_the_whole_range(name, dtype, derivative):
    # exp, expm1, erf are good to 1-2 ulp, and at most four roundings follow: 4 eps, and
    # 2 subnormal spacings below the smallest normal number. gelu' = Phi + z pdf has a zero, around
    # which the error is relative to its two terms.
    z = whole_range(dtype)
    act = activation(name)
    got = act.derivative(z) if derivative else act.evaluate(z)
    assert got.dtype == dtype
    eps, spacing = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_subnormal)
    with mp.workdps(50):
        for point, value in zip(z, got, strict=True):
            exact = REFERENCE[name][derivative](mp.mpf(float(point)))
            scale = abs(exact)
            if name == "gelu" and derivative and -2 < point < 0:
                scale = 2 * mp_normal_cdf(mp.mpf(float(point))) + abs(exact)
            error = abs(mp.mpf(float(value)) - exact)
            assert error <= 4 * eps * scale + 2 * spacing, (point, value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sigmoid", "hard_sigmoid", "tanh", "erf"])
def test_one_minus_a_gate_keeps_its_digits_where_the_gate_is_near_one(name, dtype):
    # as many roundings as in phi; 1 - phi(z) itself loses all digits from z = 40 on
    z = whole_range(dtype)
    complement = kernels.complement_of(kernels.CODES[name], activation(name).phi)
    eps, spacing = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_subnormal)
    for point in z:
        with mp.workdps(2000 if 6 < point < 900 else 50):
            exact = 1 - REFERENCE[name][0](mp.mpf(float(point)))
        error = abs(mp.mpf(float(complement(point))) - exact)
        assert error <= 4 * eps * abs(exact) + 2 * spacing, point


NAIVE = {
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
    "relu": (lambda z: np.maximum(z, 0), lambda z: 1.0 * (z > 0)),
    "leaky_relu": (lambda z: np.where(z > 0, z, 0.01 * z), lambda z: np.where(z > 0, 1, 0.01)),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2),
    "hard_tanh": (lambda z: np.clip(z, -1, 1), lambda z: 1.0 * (np.abs(z) < 1)),
    "softplus": (lambda z: np.log(1 + np.exp(z)), lambda z: 1 / (1 + np.exp(-z))),
    "linear": (lambda z: z, np.ones_like),
    "hard_sigmoid": (lambda z: np.clip(0.2 * z + 0.5, 0, 1), lambda z: 0.2 * (np.abs(z) < 2.5)),
}


@pytest.mark.parametrize("name", list(NAIVE))
def test_equals_the_textbook_formula_for_moderate_arguments(name):
    z = np.linspace(-3.3, 3.3, 67)
    phi, dphi = NAIVE[name]
    # 1 + exp(z) <= 30 rounds to 30 eps/2, which ln divides by; a few more roundings follow
    np.testing.assert_allclose(activation(name).evaluate(z), phi(z), rtol=0, atol=30 * 2.0**-52)
    np.testing.assert_allclose(activation(name).derivative(z), dphi(z), rtol=0, atol=30 * 2.0**-52)


def test_gelu_has_no_cancellation_in_its_tail():
    # x/2 (1 + erf(x/sqrt 2)) is exactly 0 from x = -8.3 on
    assert activation("gelu").evaluate(-9.0) == pytest.approx(-1.0157296e-18, rel=1e-7)
    assert activation("gelu").evaluate(-38.0) == pytest.approx(-1.09693e-314, rel=1e-4)


def test_sigmoid_and_softplus_keep_their_lower_tail():
    assert activation("sigmoid").evaluate(-700.0) == pytest.approx(np.exp(-700.0), rel=1e-15)
    assert activation("softplus").evaluate(-700.0) == pytest.approx(np.exp(-700.0), rel=1e-15)
    assert activation("softplus").evaluate(1e300) == 1e300


def test_p067_tanh_derivative_is_not_lost_to_one_minus_y_squared():
    z = np.float32(-9.010913848876953)
    value = activation("tanh").derivative(z)
    assert value.dtype == np.float32
    assert float(value) == pytest.approx(5.96045832e-08, rel=2.0**-22)
    wide = np.linspace(19.0, 370.0, 40)
    assert not (1 - np.tanh(wide) ** 2).any()
    assert (activation("tanh").derivative(wide) > 0).all()


def test_p065_tanh_gain_five_thirds_is_not_gradient_neutral():
    # q = g² E tanh²(sqrt(q) x), chi = g² E tanh'²(sqrt(q) x); Gauss-Hermite in 200 nodes
    x, weight = np.polynomial.hermite_e.hermegauss(200)
    weight = weight / weight.sum()
    q = 1.0
    for _ in range(400):
        q = (5 / 3) ** 2 * weight @ activation("tanh").evaluate(np.sqrt(q) * x) ** 2
    chi = (5 / 3) ** 2 * weight @ activation("tanh").derivative(np.sqrt(q) * x) ** 2
    assert q == pytest.approx(1.17848, abs=5e-6)
    assert chi == pytest.approx(1.20983, abs=5e-6)
    assert np.log(chi) / 2 == pytest.approx(0.0952, abs=5e-5)


def test_p074_p091_derivatives_at_the_kinks():
    for dtype in DTYPES:

        def slope(name, z, dtype=dtype):
            return activation(name).derivative(dtype(z))

        assert slope("relu", 0.0) == slope("relu", -0.0) == 0
        assert slope("hard_tanh", 1.0) == slope("hard_tanh", -1.0) == 0
        assert slope("hard_sigmoid", 2.5) == slope("hard_sigmoid", -2.5) == 0
        assert slope("hard_sigmoid", np.nextafter(dtype(2.5), dtype(0))) > 0
        assert slope("leaky_relu", 0.0) == slope("leaky_relu", -1.0) == dtype(0.01)
        assert slope("selu", 0.0) == dtype(1.0507009873554805)
        assert slope("selu", -1e-30) == pytest.approx(1.7580993408473768, rel=2.0**-22)
    assert activation("hard_sigmoid").evaluate(1.0) == 0.7
    assert activation("sigmoid").evaluate(1.0) == pytest.approx(0.7310585786, abs=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_nan_gives_nan_and_infinities_give_the_limits(name, dtype):
    act = activation(name)
    assert np.isnan(act.evaluate(dtype(np.nan)))
    assert np.isnan(act.derivative(dtype(np.nan)))
    inf = np.array([-np.inf, np.inf], dtype)
    limits = {
        "tanh": (-1, 1),
        "relu": (0, np.inf),
        "sigmoid": (0, 1),
        "hard_tanh": (-1, 1),
        "softplus": (0, np.inf),
        "erf": (-1, 1),
        "gelu": (0, np.inf),
        "selu": (-1.7580993408473768, np.inf),
        "hard_sigmoid": (0, 1),
    }.get(name, (-np.inf, np.inf))
    np.testing.assert_allclose(act.evaluate(inf), limits, rtol=2.0**-22)
    slopes = {
        "relu": (0, 1),
        "leaky_relu": (0.01, 1),
        "softplus": (0, 1),
        "gelu": (0, 1),
        "selu": (0, 1.0507009873554805),
        "linear": (1, 1),
    }.get(name, (0, 0))
    np.testing.assert_allclose(act.derivative(inf), slopes, rtol=2.0**-22)


def test_irrational_ends_of_the_range_are_the_next_float_outwards():
    with mp.workdps(50):
        root = mp.sqrt(2)
        top = mp_normal_cdf(root) + root * mp_normal_pdf(root)
        ends = {
            "erf": (mp.mpf(0), 2 / mp.sqrt(mp.pi)),
            "gelu": (1 - top, top),
            "selu": (mp.mpf(0), SELU_LAMBDA * SELU_ALPHA),
        }
        for name, (low, high) in ends.items():
            got_low, got_high = activation(name).dphi_range
            assert got_low <= low
            assert got_low == 0 or np.nextafter(got_low, 1) > low
            assert np.nextafter(got_high, 0) < high <= got_high
    exact = {"tanh": 1, "relu": 1, "sigmoid": 0.25, "hard_tanh": 1, "softplus": 1}
    for name, high in (exact | {"hard_sigmoid": 0.2}).items():
        assert activation(name).dphi_range == (0.0, high)
    assert activation("leaky_relu").dphi_range == (0.01, 1.0)
    assert activation("linear").dphi_range == (1.0, 1.0)
    assert activation("gelu").gamma == activation("gelu").dphi_range[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_computed_derivatives_never_leave_the_range(name, dtype):
    # about the extrema: 0, +-1, +-sqrt 2, +-2.5, in steps of one ulp and of every size
    centres = np.array([0.0, 1.0, np.sqrt(2.0), 2.5], dtype)
    steps = np.concatenate([[0.0], np.geomspace(1e-18, 0.3, 4000)])
    near = (centres[:, None] + np.concatenate([-steps, steps])).astype(dtype).ravel()
    ulps = np.concatenate([c + np.spacing(c) * np.arange(-300, 300) for c in centres[1:]])
    z = np.concatenate([near, ulps.astype(dtype), whole_range(dtype)])
    slopes = activation(name).derivative(np.concatenate([z, -z])).astype(np.float64)
    low, high = activation(name).dphi_range
    assert slopes.max() <= high
    # the slope of leaky_relu is the dtype's nearest to 0.01, which for float32 is below it
    assert slopes.min() >= (float(dtype(0.01)) if name == "leaky_relu" else low)


@given(st.floats(-1e3, 1e3), st.sampled_from(DTYPES))
def test_symmetries(value, dtype):
    z = dtype(value)
    eps = np.finfo(dtype).eps
    for name in ("tanh", "erf", "hard_tanh", "linear"):
        assert activation(name).evaluate(-z) == -activation(name).evaluate(z)
        assert activation(name).derivative(-z) == activation(name).derivative(z)
    sigmoid = activation("sigmoid")
    # three roundings of numbers below 1
    assert abs(sigmoid.evaluate(z) + sigmoid.evaluate(-z) - 1) <= 2 * eps
    assert sigmoid.derivative(-z) == sigmoid.derivative(z)
    assert activation("softplus").derivative(z) == sigmoid.evaluate(z)
    # gelu(z) - gelu(-z) = z; Phi(z) + Phi(-z) = 1, each side to 4 eps
    gelu = activation("gelu")
    assert abs(gelu.evaluate(z) - gelu.evaluate(-z) - z) <= 8 * max(
        eps * abs(z), np.finfo(dtype).smallest_subnormal
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_rows_hold_the_bits_of_the_scalar_functions(name, dtype):
    # vectorised bodies, their remainders of every length, and the loop for other codes
    z = np.concatenate([whole_range(dtype), np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)])
    code = kernels.CODES[name]
    for scalar, row in (
        (kernels.phi, rows.phi_row),
        (kernels.dphi, rows.dphi_row),
        (kernels.complement, rows.complement_row),
    ):
        with np.errstate(all="ignore"):
            one_by_one = np.array([scalar(code, entry) for entry in z], dtype)
            for start in range(20):
                out = np.empty_like(z[start:])
                row(code, z[start:], out)
                assert same(out, one_by_one[start:])
                assert same(np.signbit(out[:-1]), np.signbit(one_by_one[start:-1]))
    together, alone = (np.empty((2, len(z)), dtype) for _ in range(2))
    rows.phi_row(code, z, alone[0])
    rows.dphi_row(code, z, alone[1])
    rows.both_row(code, z, *together)
    assert same(together, alone)


def test_tanh_keeps_the_sign_of_zero_and_tiny_numbers():
    for dtype in DTYPES:
        tiny = np.finfo(dtype).smallest_subnormal * dtype(3)
        got = activation("tanh").evaluate(np.array([0.0, -0.0, tiny, -tiny], dtype))
        assert got.tobytes() == np.array([0.0, -0.0, tiny, -tiny], dtype).tobytes()


def float64_entries(function, signature):
    """Entries of the type map of a fresh build; builds read from the disk cache have none."""
    fresh = numba.njit(error_model="numpy")(function)
    fresh.compile(signature)
    typemap = fresh.overloads[signature].type_annotation.typemap
    assert typemap
    return {name: t for name, t in typemap.items() if "float64" in str(t)}


def kernel_functions():
    return {
        name: f
        for module in (kernels, exponential, rows)
        for name, f in vars(module).items()
        if numba.extending.is_jitted(f)
    }


@needs_jit
def test_float32_builds_hold_no_float64():
    f32, i64 = numba.float32, numba.int64
    signatures = {
        "phi": (i64, f32),
        "dphi": (i64, f32),
        "complement": (i64, f32),
        "phi_row": (i64, f32[::1], f32[::1]),
        "complement_row": (i64, f32[::1], f32[::1]),
        "dphi_row": (i64, f32[::1], f32[::1]),
        "both_row": (i64, f32[::1], f32[::1], f32[::1]),
        "_both": (i64, f32[::1], f32[::1], f32[::1]),
    }
    functions = kernel_functions()
    for name in ("apply_custom", "_two_powers64"):
        del functions[name]
    assert set(signatures) < set(functions)
    for name, function in functions.items():
        python = function.py_func
        signature = signatures.get(name, (f32,) * python.__code__.co_argcount)
        assert float64_entries(python, signature) == {}, name


@needs_jit
def test_the_type_map_check_sees_a_literal():
    assert float64_entries(lambda z: 1.0 - z * z, (numba.float32,))


def test_scalar_functions_keep_the_kind_and_accept_integers():
    phi, dphi = activation("gelu").phi, activation("gelu").dphi
    assert phi(1) == phi(1.0) == pytest.approx(0.8413447460685429, rel=1e-15)
    assert dphi(np.float32(-1.5)) == pytest.approx(dphi(-1.5), rel=2.0**-20)


def test_arrays_of_any_layout_and_size(monkeypatch):
    z = np.linspace(-4, 4, 60).reshape(3, 4, 5)
    want = np.tanh(z)
    for given_z, expected in (
        (z, want),
        (np.asfortranarray(z), want),
        (z[:, ::-2, 1:], want[:, ::-2, 1:]),
        (z[:0], want[:0]),
        (z[0, 0, 0], want[0, 0, 0]),
    ):
        np.testing.assert_allclose(activation("tanh").evaluate(given_z), expected, rtol=1e-15)
    whole = activation("erf").derivative(z)
    monkeypatch.setattr(activations, "BLOCK", 7)
    assert_array_equal(activation("erf").derivative(z), whole)
    assert activation("relu").evaluate([1, -2]).dtype == np.float64


@numba.njit
def softsign(z):
    return z / (1 + abs(z))


@numba.njit
def softsign_slope(z):
    return 1 / (1 + abs(z)) ** 2


@numba.njit
def sine(z):
    return np.sin(z)


@numba.njit
def cosine(z):
    return np.cos(z)


def test_own_activation():
    own = Activation("softsign", softsign, softsign_slope, (0, 1))
    assert (own.code, own.gamma, own.dphi_range) == (None, 1.0, (0.0, 1.0))
    z = np.linspace(-3, 3, 11)
    assert_array_equal(own.evaluate(z), z / (1 + np.abs(z)))
    assert_array_equal(own.derivative(z), 1 / (1 + np.abs(z)) ** 2)
    assert activation(own) is own
    again = pickle.loads(pickle.dumps(own))
    assert again.name == "softsign"
    assert_array_equal(again.evaluate(z), own.evaluate(z))
    assert Activation("sine", sine, cosine, (-1.0, 1.0)).gamma == 1.0
    assert Activation("sine", sine, cosine, (-np.inf, np.inf)).gamma == np.inf
    with pytest.raises(AttributeError):
        own.name = "other"


def test_built_ins_are_single_and_travel_by_name():
    tanh = activation("tanh")
    assert tanh.code == 0
    assert pickle.loads(pickle.dumps(tanh)) is activation("tanh") is tanh


@numba.njit
def text(z):
    return "a"


@numba.njit
def two_arguments(z, y):
    return z + y


@numba.njit
def logarithm(z):
    return np.log(z)


@numba.njit
def no_such_attribute(z):
    return z.colour


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "tanh"}, ValueError, "`name` must not be empty or that of a built-in"),
        ({"name": ""}, ValueError, "`name` must not be empty"),
        ({"name": 3}, TypeError, "`name` must be a string; got 3"),
        ({"phi": np.tanh}, TypeError, "`phi` must be compiled by numba.njit"),
        ({"dphi": "cos"}, TypeError, "`dphi` must be compiled by numba.njit"),
        ({"phi": text}, TypeError, "`phi` must return a float; got 'a'"),
        ({"dphi": two_arguments}, TypeError, "`dphi` must map one float to one float"),
        ({"phi": no_such_attribute}, TypeError, "`phi` must map one float to one float.*colour"),
        ({"phi": logarithm}, ValueError, "`phi` must be finite; got nan at z = -11.97"),
        ({"dphi": sine}, ValueError, "`dphi` must be the derivative of `phi`"),
        ({"dphi_range": (0.0, 1.0)}, ValueError, "`dphi` must be within `dphi_range`"),
        ({"dphi_range": (1.0, -1.0)}, ValueError, "inf <= sup"),
        ({"dphi_range": (np.nan, 1.0)}, ValueError, "inf <= sup"),
        ({"dphi_range": 1.0}, TypeError, "`dphi_range` must be two real numbers"),
        ({"dphi_range": (0, 1, 2)}, TypeError, "`dphi_range` must be two real numbers"),
        ({"dphi_range": ("0", "1")}, TypeError, "`dphi_range` must be two real numbers"),
    ],
)
def test_own_activations_are_checked(change, error, message):
    if numba.config.DISABLE_JIT and change.get("phi") is np.tanh:
        pytest.skip("without the JIT any callable will do")
    whole = {"name": "sine", "phi": sine, "dphi": cosine, "dphi_range": (-1.0, 1.0)}
    # without the JIT NumPy itself warns of the logarithm
    with np.errstate(all="ignore"), pytest.raises(error, match=message):
        Activation(**(whole | change))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"`activation` must be one of 'tanh', 'relu'.*got 'tan'"):
        activation("tan")
    with pytest.raises(TypeError, match=r"`activation` must be a name or an Activation; got 3"):
        activation(3)
    with pytest.raises(TypeError, match=r"`z` must be real; got dtype complex128"):
        activation("tanh").evaluate([1j])
    with pytest.raises(TypeError, match=r"`z` must hold numbers; got dtype <U3 \(decimal commas"):
        activation("tanh").derivative(["1,5"])
    with pytest.raises(TypeError, match=r"at most double precision"):
        activation("tanh").evaluate(np.zeros(2, np.longdouble))


@needs_jit
def test_scalar_functions_can_be_passed_to_compiled_code():
    """As first-class functions, which need a wrapper that kernels are compiled without."""
    kind = numba.types.FunctionType(numba.float64(numba.float64))

    @numba.njit([(kind, numba.float64)])
    def call(f, z):
        return f(z)

    own = activation("tanh")
    assert call(own.phi, 0.5) == own.phi(0.5)
    assert call(own.dphi, 0.5) == own.dphi(0.5)
