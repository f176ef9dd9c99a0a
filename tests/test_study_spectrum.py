"""What the study spectrum_vs_theory measures and draws, on its smallest points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import ROOT

import gradprop as gp


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    import spectrum_vs_theory

    return spectrum_vs_theory


@pytest.fixture
def measures(study):
    import _spectrum_measure

    return _spectrum_measure


def test_local_exponents_follow_their_law(measures):
    found = measures.measure_local({"n": 3, "n_steps": 4000}, np.random.default_rng(0))
    assert (found["p_value"] > 1e-3).all()
    # histograms leave out what lies beyond their ends: for one degree of freedom 1.5 % below e^-4
    shares = found["density"].sum(axis=1) * np.diff(measures.LOCAL_EDGES)[0]
    assert (shares > 0.97).all()
    exact = found["exact_density"].sum(axis=1) * np.diff(measures.LOCAL_EDGES)[0]
    np.testing.assert_allclose(shares, exact, atol=0.01)
    np.testing.assert_allclose(
        found["exact_variance"], gp.newman_exponents(3, 1.0).variance_per_step, rtol=1e-15
    )
    assert found["variance_growth"].shape == (3, len(found["widths"]))


def test_finite_lags_start_on_the_edge(measures):
    point = {"n": 48, "n_lags": 20, "n_networks": 3}
    for kind in ("fresh", "tied"):
        found = measures.measure_lags({**point, "kind": kind}, np.random.default_rng(0))
        assert (found["lags"][0], found["edge"][0]) == (1, pytest.approx(math.log(2)))
        assert found["log_sigma"][0] == pytest.approx(found["edge"][0], abs=4 * 48 ** (-2 / 3))


def test_spectra_and_theory_share_their_shares(measures, study):
    point = {"n": 64, "gain": 3.0, "noise": 0.0, **study.QUICK}
    found = measures.measure(point, np.random.default_rng(0))
    law = measures.measure_theory(point, np.random.default_rng(0))
    theory = gp.random_network_spectrum("tanh", 3.0, 64).exponents.reshape(measures.BINS, -1)
    np.testing.assert_allclose(found["curve"] - found["gap"], theory.mean(axis=1), atol=1e-12)
    assert law["lambda_1"] == pytest.approx(0.3102493, abs=5e-8)
    assert found["lambda_1"] < law["lambda_1"]
    assert 0 < found["dimension"] < 1
    assert 0 < found["positive_sum"] < found["lambda_1"] * found["unstable_fraction"]


def test_gaps_are_taken_between_five_and_ninety_five_percent(study):
    import _spectrum_draw

    u = _spectrum_draw.bins(40)
    assert _spectrum_draw.inner(u)[[0, -1]].tolist() == [u[2], u[-3]]
    points = {"gap": np.stack([np.r_[9.0, np.ones(38), 9.0], np.r_[9.0, 3 * np.ones(38), 9.0]])}
    assert _spectrum_draw.rms_gap(points) == _spectrum_draw.largest_gap(points) == 2.0
