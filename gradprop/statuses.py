"""Numeric events and the remedy of each: never an exception, never a silent nan."""

from __future__ import annotations

import enum


class Status(enum.IntFlag):
    """Numeric events of an analysis; flags combine, and each has a text with its remedy."""

    OK = 0
    ZERO = 1
    OVERFLOWED = 2
    NOT_RESOLVED = 4
    PADDED = 8
    NO_CERTIFICATE = 16
    NO_BOUND = 32
    TOO_SHORT = 64
    NOT_CONVERGED = 128
    SEVERAL_ATTRACTORS = 256
    NOT_APPLICABLE = 512
    FLUSHED = 1024
    UNBOUNDED = 2048
    MARGINAL = 4096
    NOT_CONTRACTING = 8192
    FEW_WINDOWS = 16384
    NO_CROSSING = 32768
    NEAR_ONSET = 65536
    LEFT_RANGE = 131072
    ZERO_GRADIENT = 262144
    NO_GROWTH_RATE = 524288
    FAINT_GRADIENT = 1048576

    @property
    def text(self) -> str:
        """What happened and what to do about it, one sentence per flag."""
        return " ".join(TEXTS[flag] for flag in Status if flag and flag in self) or "ok"


TEXTS = {
    Status.ZERO: "Some value is exactly zero: its log is -inf, a true value.",
    Status.OVERFLOWED: (
        "The orbit left the range of its floats: everything up to n_valid is kept, later lags are "
        "nan; lower the gain, shorten the run or use a wider dtype."
    ),
    Status.NOT_RESOLVED: (
        "Some values are not known to the tolerance asked for and are nan: pip install "
        "'gradprop[exact]' has them computed in arbitrary precision; where that reached its cap, "
        "raise tol or shorten the lag."
    ),
    Status.PADDED: "Lags pass a sequence's own length: nan with anchor end, else its last value.",
    Status.NO_CERTIFICATE: (
        "Trajectory bound, not a certificate: gamma was taken from the factors at hand; pass "
        "gamma, or build the chain with linearise, for a bound that holds on every orbit."
    ),
    Status.NO_BOUND: "A bound that needs W and gamma is inf, for this chain has neither.",
    Status.TOO_SHORT: (
        "Too few steps for an interval by batch means: std_error is nan; give at least 20 steps "
        "after burn-in."
    ),
    Status.NOT_CONVERGED: "An iteration stopped at its cap: the value is nan; see its settings.",
    Status.SEVERAL_ATTRACTORS: (
        "Starts end on different attractors: they are counted, and no interval of a mean is given."
    ),
    Status.NOT_APPLICABLE: "The theory does not apply to this case; its value is nan.",
    Status.FLUSHED: (
        "The processor turns subnormal numbers into zeros in this thread (a library switched that "
        "on): events are those of that mode; run in a fresh process for gradual underflow."
    ),
    Status.UNBOUNDED: (
        "The variance grows without bound: q_star is inf and chi its limit; lower sigma_w for a "
        "stationary state."
    ),
    Status.MARGINAL: (
        "Every variance is stationary: q_star is nan, being that of the start; chi holds for all."
    ),
    Status.NOT_CONTRACTING: (
        "No power of W could be proven to have a norm below 1: its spectral radius is at least 1, "
        "or below it by less than rounding can tell, and the peak is inf; rescale W to a smaller "
        "one."
    ),
    Status.FEW_WINDOWS: (
        "Fewer than 50 autocorrelation times of windows: variances, quantiles and the "
        "autocorrelation time are rough; give more steps."
    ),
    Status.NO_CROSSING: (
        "The exponents given end too early: all are positive, or never sum to less than 0; the "
        "value is a lower bound: ask for more of them (k), unless there are no more."
    ),
    Status.NEAR_ONSET: "Near onset finite networks are calmer than theory says: raise n or gain.",
    Status.LEFT_RANGE: (
        "A plain product or sum left the range of its format: inf or nan; shorten the lag or widen "
        "the format."
    ),
    Status.ZERO_GRADIENT: "The whole gradient is zero: ratios to it are nan; mend the loss.",
    Status.NO_GROWTH_RATE: (
        "Fewer than five steps from the first error to the tolerance: no rate is fitted (nan); "
        "raise tol, take more steps or a longer format."
    ),
    Status.FAINT_GRADIENT: (
        "An array's gradient is exactly zero, or its layer's lies below those of the layers above "
        "by more than the range of the cell's dtype: which of the two is not known; use a float64 "
        "cell."
    ),
}
