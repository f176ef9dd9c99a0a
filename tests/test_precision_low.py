"""Plain products in any format against rational arithmetic; saturation; rounding at random."""

from __future__ import annotations

import naive_precision as naive
import numpy as np
import pytest
from chains import random_chain

import gradprop as gp
from gradprop.precision.events import Events
from gradprop.precision.formats import FORMATS, Format

STOCHASTIC = Format(8, 8, rounding="stochastic")
PAIRS = [
    ("tf32", "tf32"),
    ("tf32", "float32"),
    ("float8_e4m3", "float8_e4m3"),
    ("float8_e4m3", "float16"),
    ("bfloat16", "tf32"),
    (Format(11, 5, subnormals=False), Format(11, 5, subnormals=False)),
    (Format(25, 10), Format(25, 10)),
    (Format(2, 4, infinities=False), "bfloat16"),
]


def scalar(w: float, n_steps: int) -> gp.JacobianChain:
    return gp.JacobianChain.dense(np.full((n_steps, 1, 1), w))


def stored(chain: gp.JacobianChain, *arguments, **options):
    """Product of every replica after all steps."""
    fold = Events(*arguments, **options).folds(chain)[0]
    for block in chain.blocks(reverse=fold.reverse):
        fold.update(block, slice(0, chain.n_replicas))
    return fold.P


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_products_equal_rational_arithmetic(pair):
    """Decaying to subnormal numbers; growing to where formats without infinities saturate."""
    fmt, accumulate = (FORMATS.get(f, f) for f in pair)
    for factor, seed in ((0.4, 0), (3.0, 1)):
        if factor > 1 and accumulate.infinities and fmt.infinities:
            factor = 1.2
        J = factor * random_chain(np.random.default_rng(seed), "gaussian", 9, 3)
        P = np.eye(3)
        for J_k in J:
            own = np.vectorize(naive.exactly_rounded)(J_k, fmt)
            P = naive.rational_product(own, P, fmt, accumulate)
        assert np.isfinite(P).all()
        found = stored(gp.JacobianChain.dense(J), fmt, accumulate=accumulate)[0]
        np.testing.assert_array_equal(found, P)


def test_formats_without_infinities_overflow_where_they_saturate():
    result = gp.precision_events(scalar(2.0, 30), "float8_e4m3")
    # 2**8 = 256 is the largest power of two; 512 becomes 448 and stays
    assert (result.event("n_overflow"), result.event("n_nan")) == (9, None)
    assert (result.exact.event("n_overflow"), result.event("n_stuck")) == (9, 10)
    assert stored(scalar(2.0, 30), "float8_e4m3")[0] == 448.0
    with_infinities = gp.precision_events(scalar(2.0, 30), Format(4, 4))
    assert (with_infinities.event("n_overflow"), with_infinities.event("n_stuck")) == (8, None)


def test_formats_without_subnormal_numbers():
    """Half the smallest normal number is a tie and becomes zero."""
    result = gp.precision_events(scalar(0.5, 30), Format(11, 5, subnormals=False))
    assert (result.event("n_zero"), result.event("n_subnormal_any")) == (15, None)
    assert result.exact.event("n_zero") == 15


def test_a_loss_scale_moves_events_of_float16_and_may_overflow_at_once():
    chain = scalar(0.5, 60)
    for of in ("matrix", "vector", "scalar"):
        result = gp.precision_events(chain, "float16", of=of, loss_scale=2.0**15)
        assert (result.event("n_eps"), result.event("n_zero")) == (11, 40)
        with pytest.raises(ValueError, match=r"range of `fmt`; got 65536.0, .* ends at 65504"):
            gp.precision_events(chain, "float16", of=of, loss_scale=2.0**16)
    with pytest.raises(ValueError, match="ends at 448"):
        gp.precision_events(chain, "float8_e4m3", loss_scale=449.0)


def test_products_that_are_exactly_zero():
    """The log of the exact norm is -inf: every limit below is passed at that lag."""
    nilpotent = gp.JacobianChain.dense(np.tile([[0.0, 1.0], [0.0, 0.0]], (3, 1, 1)))
    for fmt in FORMATS:
        result = gp.precision_events(nilpotent, fmt)
        assert (result.event("n_zero"), result.exact.event("n_zero")) == (2, 2)
        assert result.exact.event("n_eps") == 2
        assert gp.Status.ZERO.text in result.messages()


def test_rounding_at_random_reaches_zero_where_rounding_to_nearest_sticks():
    """Below the smallest number nearest keeps 4 units for ever; odds of 0.9 do not."""
    assert gp.precision_events(scalar(0.9, 3000), "bfloat16").event("n_zero") is None
    results = [gp.precision_events(scalar(0.9, 3000), STOCHASTIC, rng=seed) for seed in range(5)]
    lags = [result.event("n_zero") for result in results]
    assert all(lag is not None and 829 < lag < 1000 for lag in lags)
    assert len(set(lags)) > 1
    again = gp.precision_events(scalar(0.9, 3000), STOCHASTIC, rng=0)
    assert again.event("n_zero") == lags[0]


def test_rounding_at_random_is_right_on_average():
    """J = 1 + 2**-10 rounds to 1 or 1 + 2**-7: mean of 4000 replicas of one step, 5 deviations."""
    J = np.full((4000, 1, 1, 1), 1 + 2.0**-10)
    P = stored(gp.JacobianChain.dense(J), STOCHASTIC, rng=1).ravel()
    assert set(P) == {1.0, 1 + 2.0**-7}
    deviation = 2.0**-7 * np.sqrt(1 / 8 * 7 / 8 / 4000)
    assert abs(P.mean() - (1 + 2.0**-10)) <= 5 * deviation
    diagonal = gp.JacobianChain.diagonal(J[..., 0])
    assert set(stored(diagonal, STOCHASTIC, rng=1).ravel()) == {1.0, 1 + 2.0**-7}


def test_random_rounding_does_not_depend_on_blocks_or_neighbours():
    J = random_chain(np.random.default_rng(0), "gaussian", 40, 4)
    both = gp.JacobianChain.dense(np.array([J, J]))
    fold = Events(STOCHASTIC, rng=5).folds(both)[0]
    for block in both.blocks(7):
        for r in (0, 1):
            fold.update(block.replicas(slice(r, r + 1)), slice(r, r + 1))
    np.testing.assert_array_equal(fold.P, stored(both, STOCHASTIC, rng=5))
    assert (fold.P[0] != fold.P[1]).any()
