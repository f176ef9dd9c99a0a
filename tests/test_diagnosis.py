"""A diagnosis against what is known by hand, by explicit products, and of a trained network."""

from __future__ import annotations

import base64
import json
import math
import pickle
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import FLIPFLOP
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import gradprop as gp
from gradprop.diagnosis import run
from gradprop.diagnosis.activity import activity
from gradprop.diagnosis.clips import clip_norms
from gradprop.diagnosis.data import prepare
from gradprop.diagnosis.folds import PathNorms, StepNorms, paths_of
from gradprop.diagnosis.limits import passing_lag
from gradprop.diagnosis.memory import memory
from gradprop.orbit import Orbit

HALF = 0.5
LN2 = math.log(2.0)


def halving() -> gp.RNN:
    """A gradient that halves at every step, whatever the input."""
    return gp.RNN([[HALF]], W_xh=[[1.0]], activation="linear")


def lstm(rng, n, d, scale=1.0):
    shapes = ((4 * n, n), (4 * n, d), (4 * n,))
    return gp.LSTM(*(scale * rng.standard_normal(shape) for shape in shapes))


@pytest.fixture(scope="module")
def flip():
    """The diagnosis of the trained flip-flop network on its stored input."""
    cell = gp.load_cell(FLIPFLOP, convention="torch")
    with np.load(FLIPFLOP) as stored:
        return gp.diagnose(cell, stored["U"])


# ---- a trained network ---------------------------------------------------------------------------


def test_flipflop_gradient_and_memory_part(flip, flipflop):
    reference = flipflop[0]["reference"]["pulses_T500"]["log10_norm_lag"]
    for lag, value in reference.items():
        # stored to about 1e-15 relative; the product's own error is 2 n eps (1 + ln norm)
        assert abs(flip.norms.log_norm[int(lag)] / math.log(10) - value) < 1e-9
    assert round(flip.norms.log_norm[-1] / math.log(10), 2) == -308.57
    # ten-fold every 1.6 steps, and three bits: eight states of rest, as the task has
    assert abs(math.log(10) / -flip.leading[0] - 1.62) < 0.05
    assert int(flip.memory.end_states) == 8
    assert flip.memory.bits == 3.0
    assert flip.memory.sizes.sum() == 64
    assert flip.memory.moving == 0
    assert flip.parallel == "yes"
    # a plain float32 product vanishes after 72 steps; a vector's path is a step or so shorter
    assert 70 <= flip.budget.of("underflow") <= 73
    first = flip.summary().splitlines()[0]
    assert first == flip.verdict
    assert first.startswith("Gradients reach 10 steps back (the resolution of float32 binds)")
    assert "8 different states and holds 3.0 bits" in " ".join(flip.summary().split())


def test_flipflop_bits_are_held_by_states_that_differ(flip):
    share = flip.memory.sizes / 64
    assert flip.memory.switched == pytest.approx(1 - np.square(share).sum(), abs=1e-15)
    assert np.isfinite(flip.memory.driven).all()  # pulses overwrite all three bits in time


# ---- folds ---------------------------------------------------------------------------------------


def test_paths_are_blocks_of_the_explicit_product():
    rng = np.random.default_rng(0)
    cell = gp.Stacked([lstm(rng, 3, 2), lstm(rng, 4, 3)])
    chain = gp.linearise(cell, rng.standard_normal((12, 2)))
    norms, steps = gp.measure(chain, PathNorms(paths_of(cell), np.arange(13)), StepNorms())
    J, product = chain.to_dense(), np.eye(chain.n)
    assert norms.paths[0] == "layer 0"
    assert norms.paths[-1] == "layer 0 to 1"
    for lag in range(13):
        if lag:
            product = product @ J[12 - lag]
        for i, (rows, columns) in enumerate(paths_of(cell).values()):
            size = np.linalg.norm(product[rows, columns], 2)
            expected = -np.inf if size == 0 else np.log(size)
            # 12 products of 14 columns, cancellation of at most a few digits
            assert norms.path_log_norm[lag, i] == pytest.approx(expected, abs=1e-10)
    expected = np.log(np.linalg.norm(J, 2, axis=(1, 2)))
    np.testing.assert_allclose(steps.log_norm, expected, atol=1e-13)
    assert norms.log_norm.tolist() == gp.log_norms(chain, anchor="end").log_norm.tolist()


def test_lstm_paths_say_from_and_to():
    # only the forget gate acts: c to c is f^lag, nothing comes from h; c to h ends at once in o
    cell = gp.LSTM(np.zeros((4, 1)), np.zeros((4, 1)), [0.0, 1.0, 0.0, 0.0])
    norms = gp.diagnose(cell, np.zeros(60), find_edge=False).norms
    f = 1 / (1 + math.exp(-1.0))
    by_name = {name: norms.path_log_norm[:, i] for i, name in enumerate(norms.paths)}
    np.testing.assert_allclose(by_name["c to c"], np.arange(61) * math.log(f), atol=1e-12)
    # h_T = o tanh(c_T) with o = 1/2 and c = 0 all along
    np.testing.assert_allclose(
        by_name["c to h"][1:], np.arange(1, 61) * math.log(f) - LN2, atol=1e-12
    )
    assert np.isneginf(by_name["h to h"][1:]).all()
    assert np.isneginf(by_name["h to c"]).all()


def test_paths_and_steps_of_padded_sequences():
    rng = np.random.default_rng(1)
    cell, x = lstm(rng, 2, 1), rng.standard_normal((2, 9, 1))
    chain = gp.linearise(cell, x, lengths=[5, 9])
    norms, steps = gp.measure(chain, PathNorms(paths_of(cell), np.arange(10)), StepNorms())
    assert np.isnan(norms.path_log_norm[0, 6:]).all()
    assert np.isnan(steps.log_norm[0, 5:]).all()
    alone, own = gp.measure(
        gp.linearise(cell, x[0, :5]), PathNorms(paths_of(cell), np.arange(6)), StepNorms()
    )
    np.testing.assert_allclose(norms.path_log_norm[0, :6], alone.path_log_norm, atol=1e-12)
    np.testing.assert_allclose(steps.log_norm[0, :5], own.log_norm, atol=1e-13)


# ---- units and gates -----------------------------------------------------------------------------


def test_activity_is_that_of_the_orbit():
    rng = np.random.default_rng(2)
    cell, x = lstm(rng, 5, 2, 1.5), 2 * rng.standard_normal((40, 2))
    found = activity(Orbit(cell, x, None, None, None, None, None))
    z = gp.rollout(cell, x).z.reshape(40, 4, 5)
    gate = 1 / (1 + np.exp(-z))
    slope = gate * (1 - gate)
    slope[:, 2] = 1 / np.cosh(z[:, 2]) ** 2
    ceiling = np.array([0.25, 0.25, 1.0, 0.25])[:, None]
    saturated = (slope < 0.1 * ceiling).mean(axis=(0, 2))
    assert found.names.tolist() == ["input gate", "forget gate", "candidate", "output gate"]
    np.testing.assert_allclose(found.saturated, saturated, atol=1e-12)
    np.testing.assert_allclose(found.mean[[0, 1, 3]], gate.mean(axis=(0, 2))[[0, 1, 3]], atol=1e-12)
    steps = -1 / np.log(gate[:, 1]).mean(axis=0)
    assert found.time_constant[1] == pytest.approx(steps.max(), rel=1e-12)
    assert found.slowest.tolist() == [-1, int(steps.argmax()), -1, -1]


def test_time_constants_known_by_hand():
    leaky = gp.RNN([[0.0]], leak=0.1)
    found = activity(Orbit(leaky, np.zeros((30, 1)), None, None, None, None, None))
    assert found.time_constant[0] == pytest.approx(-1 / math.log(0.9), rel=1e-12)
    shut = gp.GRU(np.zeros((3, 1)), np.zeros((3, 1)), [0.0, 50.0, 0.0], np.zeros(3))
    found = activity(Orbit(shut, np.zeros((30, 1)), None, None, None, None, None))
    assert found.time_constant[1] > 1e15  # ln of the gate is -2e-22, or 0
    assert found.saturated.tolist() == [0.0, 1.0, 0.0]


def test_activity_leaves_padding_out_and_knows_no_custom_cell():
    cell, x = gp.RNN([[0.5]], W_xh=[[1.0]]), np.full((2, 8, 1), 9.0)
    x[1, 4:] = np.nan
    found = activity(Orbit(cell, x, None, None, np.array([8, 4]), None, None))
    assert found.saturated.tolist() == [1.0]
    import numba

    own = gp.CustomCell(numba.njit(lambda h, x: 0.5 * h), 2)
    assert activity(Orbit(own, None, None, 5, None, 0, None)) is None
    diagnosis = gp.diagnose(own)
    assert diagnosis.clipping is None
    assert diagnosis.edge is None
    assert diagnosis.budget.of("resolution") == 24
    assert "runs by itself" in diagnosis.summary()


# ---- memory --------------------------------------------------------------------------------------


def test_memory_of_maps_known_by_hand():
    x = np.random.default_rng(3).standard_normal((200, 1))
    found = memory(halving(), x, 200, 0)
    # 0.5^7 = 0.0078 is the first below a hundredth
    assert found.driven.tolist() == [7.0, 7.0, 7.0]
    assert (int(found.end_states), found.bits, float(found.driven_kept)) == (1, 0.0, 0.0)
    # h = tanh(2h) has two states of rest; the weak input never throws it over
    latch = gp.RNN([[2.0]], W_xh=[[1.5]])
    found = memory(latch, x, 200, 0)
    assert int(found.end_states) == 2
    assert found.bits == 1.0
    assert 0 < found.switched <= 0.5
    turning = gp.RNN([[0.6, -0.8], [0.8, 0.6]], W_xh=[[1.0], [0.0]], activation="linear")
    found = memory(turning, x, 200, 0)
    assert (float(found.moving), float(found.driven_kept)) == (1.0, 1.0)


def test_memory_of_an_orbit_that_never_moves():
    found = memory(gp.RNN([[2.0]], W_xh=[[1.0]]), np.zeros((50, 1)), 50, 0)
    assert int(found.end_states) == 2  # starts of its own, for the orbit stays at 0


# ---- limits --------------------------------------------------------------------------------------


def test_limits_of_a_halving_gradient():
    x = np.random.default_rng(4).standard_normal(300)
    d = gp.diagnose(halving(), x, samples=10_000)
    assert d.budget.of("statistical") == 7  # 0.5^7 < 1/100
    assert d.budget.of("resolution") == 24  # the first below 2^-23
    assert d.budget.of("underflow") == 150  # half of 2^-149 rounds to zero
    assert d.budget.of("chaos") == math.inf
    assert d.budget.binds == "statistical"
    assert d.worst.first_below == 7
    assert set(d.direction.first_below) == {7}
    assert math.isnan(d.budget.of("ceiling"))
    assert d.leading[0] == pytest.approx(-LN2, abs=1e-12)
    assert d.window == pytest.approx(math.log(100) / LN2, rel=1e-9)
    assert gp.diagnose(halving(), x, fmt="bfloat16").budget.of("underflow") == 134


def test_absorption_is_that_of_the_sum_in_the_format():
    # contributions to b are 0.5^k, and bfloat16 holds their sum at 2 from lag 9 on
    cell = gp.RNN([[HALF]], b=[0.0], activation="linear")
    d = gp.diagnose(cell, np.zeros(40), fmt="bfloat16", find_edge=False)
    assert d.budget.of("absorption") == 9
    # inputs that are silent send nothing, which is not the format's doing
    silent = gp.RNN([[HALF]], W_xh=np.ones((1, 9)), b=[0.0], activation="linear")
    d = gp.diagnose(silent, np.zeros((40, 9)), fmt="bfloat16", find_edge=False)
    assert d.budget.of("absorption") == 9


def test_work_is_bounded_and_what_is_left_out_is_said(monkeypatch):
    rng = np.random.default_rng(12)
    cell, x = lstm(rng, 3, 1), rng.standard_normal((4, 50, 1))
    whole = gp.diagnose(cell, x[0], find_edge=False)
    monkeypatch.setattr(run, "PRODUCT_FLOPS", 20.0 * 6**3 * 120)
    some = gp.diagnose(cell, x, find_edge=False)
    assert some.worst.first_below.shape == (2,)
    assert some.direction.first_below.shape == (4,)
    assert "worst-case norms are of 2 of the 4 sequences" in some.notes
    monkeypatch.setattr(run, "PRODUCT_FLOPS", 20.0 * 6**3 * 20)
    short = gp.diagnose(cell, x[0], find_edge=False)
    assert short.norms.lags[-1] == short.bounds.lags[-1] == short.steps.log_norm.size == 20
    np.testing.assert_allclose(short.norms.log_norm, whole.norms.log_norm[:21], atol=1e-12)
    assert short.leading == whole.leading
    assert any("end at lag 20" in note for note in short.notes)


def test_gates_have_the_ceiling_of_their_format():
    cell = gp.GRU(np.zeros((3, 1)), np.zeros((3, 1)), np.zeros(3), np.zeros(3))
    d = gp.diagnose(cell, np.zeros(40), fmt="bfloat16", samples=100, find_edge=False)
    # 255.5 steps to 1/e, so 255.5 ln 10 to a tenth
    assert d.budget.of("ceiling") == math.ceil(255.49967 * math.log(10))


def test_lags_beyond_the_sequence_are_extrapolated():
    curve = -LN2 * np.arange(11)
    assert passing_lag(curve, -3.5 * LN2, -LN2) == (4.0, False)
    assert passing_lag(curve, -20.5 * LN2, -LN2) == (21.0, True)
    assert passing_lag(curve, -20.5 * LN2, 0.1) == (math.inf, False)
    assert passing_lag(np.append(curve, np.nan), -20.5 * LN2, -LN2) == (21.0, True)
    d = gp.diagnose(halving(), np.ones(12), find_edge=False)
    assert d.budget.of("resolution") == 24
    assert d.budget.extrapolated[d.budget.limits == "resolution"].all()
    assert "over all 12 steps (the resolution of float32 would bind after 23)" in d.verdict


@settings(max_examples=8)
@given(st.floats(0.3, 0.95), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_scaled_rotations_have_one_horizon(gain, n, seed):
    rng = np.random.default_rng(seed)
    W = gain * np.linalg.qr(rng.standard_normal((n, n)))[0]
    cell = gp.RNN(W, activation="linear")
    d = gp.diagnose(cell, rng.standard_normal((150, n)), samples=300, find_edge=False)
    assert d.leading[0] == pytest.approx(math.log(gain), abs=1e-9)
    exact = math.log(300**-0.5) / math.log(gain)
    expected = math.ceil(exact) if abs(exact - round(exact)) > 1e-9 else None
    if expected is not None:
        assert d.worst.first_below == d.budget.of("statistical") == expected


def test_edge_is_where_the_gain_makes_the_rate_zero():
    cell = gp.RNN([[0.0, 0.4], [0.4, 0.0]], W_xh=np.ones((2, 1)), activation="linear")
    d = gp.diagnose(cell, np.random.default_rng(5).standard_normal(200))
    assert d.edge.gain == pytest.approx(2.5, rel=2e-3)  # xtol is a thousandth of the bracket
    saturating = gp.RNN([[0.5]], W_xh=[[50.0]])
    far = gp.diagnose(saturating, np.random.default_rng(5).standard_normal(200))
    assert far.edge is None
    assert gp.diagnose(cell, np.ones(60), find_edge=False).edge is None


def test_chaos_and_the_edge_itself_in_words():
    chaotic = gp.RNN(gp.initialise("gaussian", 40, rng=0, gain=3.0))
    d = gp.diagnose(chaotic)
    assert d.budget.binds == "chaos"
    assert d.window == d.budget.of("chaos") == pytest.approx(LN2 / d.leading[0], rel=1e-12)
    assert d.parallel == "no"
    assert d.edge.gain < 1
    assert d.verdict.startswith("Chaos: gradients grow without bound")
    assert "white noise of variance 1, 1000 steps" in d.summary()
    turning = gp.RNN([[0.6, -0.8], [0.8, 0.6]], activation="linear")
    d = gp.diagnose(turning, np.random.default_rng(6).standard_normal((100, 2)))
    assert d.leading[1] <= 0 <= d.leading[2]
    assert d.verdict.startswith("Gradients reach back over all 100 steps")
    assert d.window == math.inf
    assert d.parallel == "undecided"


# ---- sequences, gradients, directions ------------------------------------------------------------


def test_a_data_set_gives_quantiles_over_its_sequences():
    rng = np.random.default_rng(7)
    cell, x = (
        gp.RNN(rng.standard_normal((6, 6)) / 3, W_xh=np.ones((6, 1))),
        rng.normal(size=(5, 60)),
    )
    lengths = [60, 50, 40, 60, 30]
    d = gp.diagnose(cell, x[..., None], lengths=lengths, find_edge=False, samples=10_000)
    assert d.n_sequences == 5
    assert d.worst.first_below.shape == d.direction.first_below.shape == (5,)
    for i, length in enumerate(lengths):
        alone = gp.log_norms(gp.linearise(cell, x[i, :length]), anchor="end")
        own = d.norms.log_norm[i, : length + 1]
        np.testing.assert_allclose(own, alone.log_norm, atol=1e-10)
    pooled = gp.pool(d.exponents)
    assert d.leading == (pooled.mean[0], *pooled.interval[0])


def test_norms_to_clip_at_are_those_of_each_sequence():
    rng = np.random.default_rng(8)
    cell, x = gp.RNN(rng.standard_normal((3, 3)), W_xh=np.ones((3, 1))), rng.normal(size=(4, 9, 1))
    grad_h = rng.standard_normal((4, 9, 3))
    d = gp.diagnose(cell, x, grad_h=grad_h, find_edge=False)
    norms = [gp.global_norm(gp.backward(cell, x[i], grad_h[i]).parameters) for i in range(4)]
    assert d.clipping.quantiles.tolist() == gp.clip_statistics(norms).quantiles.tolist()
    u = rng.standard_normal(3)
    d = gp.diagnose(cell, x, cotangent=u, find_edge=False)
    last = np.zeros((9, 3))
    last[-1] = u / np.linalg.norm(u)
    norms = [gp.global_norm(gp.backward(cell, x[i], last).parameters) for i in range(4)]
    np.testing.assert_allclose(d.clipping.quantiles, gp.clip_statistics(norms).quantiles)
    pulled = gp.gradient_by_lag(gp.linearise(cell, x[0]), last[-1]).log_norm
    np.testing.assert_allclose(d.gradient.log_norm[0], pulled, atol=1e-12)


def test_a_gradient_that_is_not_finite_is_named():
    cell = gp.RNN(np.float32([[4.0]]), b=np.float32([0.0]), activation="linear")
    data = prepare(cell, np.zeros((200, 1), dtype=np.float32), None, 0)
    which, ends = np.zeros(1, dtype=int), np.array([200])
    with np.errstate(all="ignore"):
        found, broken = clip_norms(cell, data, which, ends, np.ones(1), None, [])
    assert found is None
    assert "b" in broken  # 4^199 is beyond float32


def test_two_directions_are_diagnosed_apart():
    rng = np.random.default_rng(9)
    ahead, behind = lstm(rng, 2, 1), lstm(rng, 3, 1)
    x = rng.standard_normal((2, 30, 1))
    lengths = [30, 20]
    both = gp.diagnose(gp.Bidirectional(ahead, behind), x, lengths=lengths, find_edge=False)
    turned = x.copy()
    for i, length in enumerate(lengths):
        turned[i, :length] = x[i, :length][::-1]
    alone = gp.diagnose(behind, turned, lengths=lengths, find_edge=False)
    np.testing.assert_array_equal(both.backward.norms.log_norm, alone.norms.log_norm)
    assert both.norms.paths == alone.norms.paths
    assert "BACKWARD: " in both.summary()
    assert set(both.to_frame()["direction"]) == {"forward", "backward"}


# ---- telling it ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a page would load, and the titles it has."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.tags, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        named = dict(attrs)
        self.loads += [v for k, v in named.items() if k in ("src", "href", "srcset", "action")]


def test_the_page_opens_without_anything_else(flip, tmp_path):
    path = flip.to_html(tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [load[:22] for load in page.loads] == ["data:image/png;base64,"]
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert "url(" not in text
    assert "@import" not in text
    picture = base64.b64decode(page.loads[0].partition(",")[2])
    assert picture.startswith(b"\x89PNG")
    assert "Gradients reach 10 steps back" in text
    assert page.tags.count("h2") == 4
    assert text == flip.to_html(tmp_path / "again.html").read_text(encoding="utf-8")


def test_numbers_as_a_table_and_as_json(flip, tmp_path):
    frame = flip.to_frame()
    assert list(frame) == ["direction", "quantity", "value", "low", "high", "unit"]
    assert frame["quantity"].is_unique
    row = frame.set_index("quantity").loc["end states under a constant input"]
    assert row["value"] == 8
    told = json.loads(flip.to_json(tmp_path / "found.json").read_text(encoding="utf-8"))
    assert told["verdict"] == flip.verdict
    assert told["numbers"]["limit, chaos"]["value"] == "inf"
    assert told["log_norm"] == flip.norms.log_norm.tolist()


def test_one_page_of_six_panels(flip):
    ax = gp.plot(flip)
    assert len(ax.figure.axes) == 6
    ax.figure.canvas.draw()
    for panel in ax.figure.axes:
        assert panel.get_xlabel()
        assert panel.get_title(loc="left")
    own = Figure(figsize=(10, 10)).subplots(1, 2)
    gp.plot(flip, own[1])
    assert len(own[0].figure.axes) == 7
    again = pickle.loads(pickle.dumps(flip))
    assert again.summary() == flip.summary()


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones((5, 3))}, r"\(\.\.\., T, 1\).*\(5, 3\)"),
        ({"x": np.r_[np.ones(3), np.nan, np.ones(3)]}, "step 4"),
        ({"x": np.empty((0, 1))}, "at least one step"),
        ({"x": np.ones((2, 5, 1)), "lengths": [5, 0]}, "sequence 1 is empty"),
        ({"x": np.ones((2, 5, 1)), "lengths": [5]}, "2; got 1"),
        ({"lengths": [3]}, "`x`"),
        ({"x": np.ones((1, 1, 5, 1))}, r"\(B, T, d_x\)"),
        ({"fmt": "float12"}, "float12"),
        ({"samples": 0}, "samples"),
        ({"x": np.ones(5), "cotangent": [0.0]}, "not zero"),
        ({"x": np.ones(5), "cotangent": [1.0, 2.0]}, "cotangent"),
        ({"x": np.ones((5, 1)), "grad_h": np.ones((4, 1))}, "grad_h"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        gp.diagnose(halving(), **change)


def test_bad_cells_are_named():
    with pytest.raises(ValueError, match=r"one network.*\(3,\)"):
        gp.diagnose(gp.RNN(np.ones((3, 1, 1))))
    with pytest.raises(TypeError, match="got str"):
        gp.diagnose("net.npz")
    both = gp.Bidirectional(halving(), halving())
    with pytest.raises(TypeError, match="array"):
        gp.diagnose(both, np.ones(5), grad_h=lambda h: h)
