"""Rounded parameters, and what a stored decay can remember."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import mpmath
import numpy as np
import pytest

import gradprop as gp
from gradprop.precision.formats import FORMATS, Format

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
STOCHASTIC = Format(8, 8, rounding="stochastic")


def cells(rng: np.random.Generator) -> dict[str, gp.RNN]:
    """One of each class, in float32, with settings that are not the defaults."""

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    rnn = gp.RNN(draw(3, 3), draw(3, 2), draw(3), activation="relu", leak=0.3)
    lstm = gp.LSTM(draw(12, 3), draw(12, 2), draw(12), gate_order="iofc", activation="erf")
    gru = gp.GRU(
        draw(9, 3), draw(9, 3), draw(9), draw(9), gate_order="zrh", reset_after=False,
        gate_activation="hard_sigmoid",
    )  # fmt: skip
    return {
        "rnn": rnn, "bare": gp.RNN(draw(2, 3, 3)), "lstm": lstm, "gru": gru,
        "stacked": gp.Stacked([lstm, gru]),
        "bidirectional": gp.Bidirectional(rnn, gp.Stacked([rnn, gru])),
    }  # fmt: skip


def settings(cell) -> dict:
    if not hasattr(cell, "PARAMETERS") or not cell.PARAMETERS:
        return {}
    return {
        f.name: getattr(cell, f.name)
        for f in dataclasses.fields(cell)
        if f.name not in cell.PARAMETERS
    }


@pytest.mark.parametrize("fmt", DTYPES)
@pytest.mark.parametrize("name", cells(np.random.default_rng(0)))
def test_every_array_is_cast_and_nothing_else_changes(name, fmt):
    """From float32 numbers, which ml_dtypes rounds once."""
    cell = cells(np.random.default_rng(1))[name]
    rounded = gp.quantised(cell, fmt)
    assert type(rounded) is type(cell)
    assert settings(rounded) == settings(cell)
    assert list(rounded.arrays()) == list(cell.arrays())
    for key, array in cell.arrays().items():
        expected = array.astype(DTYPES[fmt]).astype(np.float64)
        np.testing.assert_array_equal(rounded.arrays()[key], expected)
        assert rounded.arrays()[key].dtype == np.float64
    again = gp.quantised(rounded, fmt)
    assert all((again.arrays()[k] == a).all() for k, a in rounded.arrays().items())


def test_members_keep_their_settings():
    stacked = cells(np.random.default_rng(2))["stacked"]
    for before, after in zip(stacked.cells, gp.quantised(stacked, "float16").cells, strict=True):
        assert settings(before) == settings(after)
    both = cells(np.random.default_rng(2))["bidirectional"]
    rounded = gp.quantised(both, "float16")
    assert settings(rounded.forward) == settings(both.forward)
    assert settings(rounded.backward.cells[1]) == settings(both.backward.cells[1])


def test_stochastic_rounding_takes_neighbours_and_is_reproducible():
    """Odds of the upper neighbour are 0.4, so of 10^4 entries 4000 +- 5 * 49 go up."""
    low, high = 1.0, 1.0 + 2.0**-7
    cell = gp.RNN(np.full((100, 100), low + 0.4 * (high - low)))
    rounded = gp.quantised(cell, STOCHASTIC, rng=5).W_hh
    assert set(np.unique(rounded)) == {low, high}
    assert abs((rounded == high).sum() - 4000) <= 5 * np.sqrt(10**4 * 0.4 * 0.6)
    assert (gp.quantised(cell, STOCHASTIC, rng=5).W_hh == rounded).all()
    assert (gp.quantised(cell, STOCHASTIC, rng=6).W_hh != rounded).any()
    twice = gp.quantised(gp.Bidirectional(cell, cell), STOCHASTIC, rng=5)
    assert (twice.forward.W_hh != twice.backward.W_hh).any()


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_ceiling_of_a_stored_decay(fmt):
    found, known = gp.decay_ceiling(fmt), FORMATS[fmt]
    if fmt in DTYPES:
        size = 8 * np.dtype(DTYPES[fmt]).itemsize
        with np.errstate(invalid="ignore"):
            numbers = np.arange(2**size, dtype=f"u{size // 8}").view(DTYPES[fmt]).astype(float)
        assert found.decay == numbers[numbers < 1].max()
    assert found.decay == known.round(found.decay) == 1 - known.eps / 2
    with mpmath.workdps(40):
        memory = -1 / mpmath.log(mpmath.mpf(float(found.decay)))
        assert abs(float(found.memory) / memory - 1) <= 4 * np.finfo(float).eps


@pytest.mark.parametrize("subnormals", [True, False])
@pytest.mark.parametrize("bits", [2, 3])
def test_ceilings_of_tiny_formats_are_their_largest_number_below_1(bits, subnormals):
    # two bits of exponent: 1 is the smallest normal number, and numbers below it are subnormal
    fmt = gp.Format(4, bits, subnormals=subnormals)
    numbers = np.unique(fmt.round(np.linspace(0, 1, 1025)))
    found = gp.decay_ceiling(fmt)
    assert found.decay == numbers[numbers < 1].max()
    assert found.memory == (pytest.approx(-1 / np.log(found.decay)) if found.decay else 0)


def test_memories_known_by_hand():
    ceilings = {f: gp.decay_ceiling(f) for f in ("bfloat16", "float16", "float8_e4m3")}
    assert [int(c.memory) for c in ceilings.values()] == [255, 2047, 15]
    assert ceilings["float8_e4m3"].memory.round(1) == 15.5
    decays = [float(c.decay) for c in ceilings.values()]
    assert decays == [0.99609375, 0.99951171875, 0.9375]


def ring(decays) -> gp.RNN:
    return gp.RNN(np.reshape(decays, (-1, 1, 1)), activation="linear")


def test_a_ring_of_decays_collapses():
    """LRU ring: 27 distinct decays are left in bfloat16, 78 of 256 modes are 1 in e4m3."""
    cell = ring(np.linspace(0.9, 0.999, 256))
    assert np.unique(gp.quantised(cell, "bfloat16").W_hh).size == 27
    assert (gp.quantised(cell, "float8_e4m3").W_hh == 1.0).sum() == 78


def test_horizons_of_stored_decays():
    """0.997 falls to 0.99609375 in bfloat16, 0.999 becomes 1: the lag below e^-3 is exact."""
    cell = ring([0.997, 0.999])
    tol = float(np.exp(-3.0))
    for decays, own in (
        ([0.997, 0.999], cell),
        ([0.99609375, 1.0], gp.quantised(cell, "bfloat16")),
    ):
        chain = gp.linearise(own, h0=np.zeros((2, 1)), n_steps=4000)
        first = [0 if a == 1 else int(np.ceil(-3.0 / np.log(a))) for a in decays]
        assert gp.horizon(chain, tol=tol).first_below.tolist() == first


def test_a_dense_tanh_network_hardly_moves():
    """Rounding is a random relative disturbance of 2^-9 at most: ln of the gain moves as much.

    Ten times that is allowed for the exponent; over a horizon of ln(1e-3) nats at rate lambda it is
    10 * 2^-9 / |lambda| of the lag, and a step.
    """
    rng = np.random.default_rng(3)
    cell = gp.RNN(gp.initialise("gaussian", 48, rng=rng, gain=1.0))
    x = 0.5 * rng.standard_normal((600, 48))
    chains = [gp.linearise(c, x) for c in (cell, gp.quantised(cell, "bfloat16"))]
    before, after = (float(gp.lyapunov_spectrum(c, 1).exponents[0]) for c in chains)
    assert before != after
    assert abs(after - before) <= 10 * 2.0**-9
    lags = [int(gp.horizon(c, tol=1e-3).first_below) for c in chains]
    assert abs(lags[1] - lags[0]) <= 10 * 2.0**-9 / abs(before) * lags[0] + 1


@pytest.mark.parametrize(
    ("cell", "fmt", "options", "error", "text"),
    [
        (gp.RNN([[1e6]]), "float16", {}, ValueError, "W_hh reaches 1e\\+06"),
        (gp.Stacked([gp.RNN([[1.0]]), gp.RNN([[500.0]])]), "float8_e4m3", {}, ValueError,
         "ends at 448; 1.W_hh reaches 500"),
        (gp.RNN([[1.0]]), "float12", {}, ValueError, "`fmt` must be one of"),
        (gp.RNN([[1.0]]), "float16", {"rng": 1}, ValueError, "`rng` must be left out"),
        (gp.RNN([[1.0]]), STOCHASTIC, {}, ValueError, "`rng` must be a seed"),
        ("cell", "float16", {}, TypeError, "`cell` must be made of RNN, LSTM and GRU"),
    ],
)  # fmt: skip
def test_bad_input(cell, fmt, options, error, text):
    with pytest.raises(error, match=text):
        gp.quantised(cell, fmt, **options)


def test_tables():
    frame = gp.decay_ceiling("bfloat16").to_frame()
    assert frame["memory"].round(1).tolist() == [255.5]
    with pytest.raises(ValueError, match="`fmt` must be one of"):
        gp.decay_ceiling("half")
