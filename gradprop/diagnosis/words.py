"""A diagnosis in words: the verdict, and the findings one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gradprop.diagnosis.advice import advice
from gradprop.diagnosis.table import (
    limit_name,
    path_rate,
    reach_of,
    settled_rate,
    step_extremes,
    steps,
    window_of,
)

if TYPE_CHECKING:
    from gradprop.diagnosis.result import Diagnosis

LN10 = math.log(10.0)


def verdict(d: Diagnosis) -> str:
    """One sentence, in steps."""
    if d.broken:
        return f"Gradients are not finite: {', '.join(d.broken)} overflow."
    pace = _pace(settled_rate(d))
    reach = reach_of(d)
    if d.budget.binds == "chaos":
        return f"Chaos: gradients grow without bound, doubling every {steps(reach)} steps."
    who = limit_name(d, d.budget.binds)
    if reach >= d.n_steps:
        later = f" ({who} would bind after {steps(reach)})" if math.isfinite(reach) else ""
        return f"Gradients reach back over all {d.n_steps} steps{later}: {pace}."
    return f"Gradients reach {steps(reach)} steps back ({who} binds): {pace}."


def _pace(rate: float) -> str:
    if math.isnan(rate):
        return "their rate is not known"
    if rate == 0:
        return "they neither grow nor decay, as far as can be told"
    how = "weaker" if rate < 0 else "stronger"
    if math.isinf(rate):
        return "they vanish within a step"
    return f"ten-fold {how} every {steps(LN10 / abs(rate))} steps"


def summary(d: Diagnosis) -> str:
    """All findings as text, a Bidirectional's second direction below the first."""
    lines = [verdict(d), ""]
    for title, text in sections(d):
        lines += _wrapped(title, text)
    lines += ["", "What to do"]
    lines += [line for text in advice(d) for line in _wrapped("-", text, 2)]
    if d.backward is not None:
        lines = ["FORWARD: " + lines[0], *lines[1:], "", "BACKWARD: " + summary(d.backward)]
    return "\n".join(lines)


def _wrapped(title: str, text: str, indent: int = 16) -> list[str]:
    import textwrap

    first = title.ljust(indent)
    return textwrap.wrap(text, 96, initial_indent=first, subsequent_indent=" " * indent)


def sections(d: Diagnosis) -> Iterator[tuple[str, str]]:
    """Titles and texts."""
    yield "Network", d.network
    yield "Input", d.data
    rate, low, high = d.leading
    over = "over sequences" if d.n_sequences > 1 else "over time"
    yield (
        "Growth",
        f"lambda_1 = {rate:+.4g} nats per step, 95 % {over} [{low:+.4g}, {high:+.4g}]; "
        f"{_pace(settled_rate(d))}",
    )
    yield "Horizon", _horizon_text(d)
    yield "Limits", "; ".join(_limit_texts(d))
    yield "State memory", _memory_text(d)
    if d.paths:
        yield "Paths", _path_text(d)
    if d.activity is not None:
        yield "Units", _activity_text(d)
    yield "Step by step", _step_text(d)
    yield "Bounds", _bound_text(d)
    yield "Edge of chaos", _edge_text(d)
    yield "Clipping", _clip_text(d)
    yield "Floats", _float_text(d)
    yield "Truncation", _truncation_text(d)
    yield "Parallel", _parallel_text(d)
    for note in d.notes:
        yield "Note", note


def _horizon_text(d: Diagnosis) -> str:
    low, middle, high = d.direction.quantiles
    worst, last = float(d.worst.quantiles[1]), int(d.norms.lags[-1])
    worst_text = f"not within {last} steps" if math.isinf(worst) else steps(worst)
    what = f"{d.samples} sequences" if d.samples is not None else f"one step of {d.fmt}"
    over = "sequences" if d.n_sequences > 1 else "positions of the loss"
    return (
        f"first lag at which a gradient is below {d.tol:.3g} of its start ({what}): "
        f"{steps(middle)} for this loss direction ({steps(low)} to {steps(high)}, 5-95 % of "
        f"{over}), {worst_text} for the worst direction; by lambda_1 alone "
        f"{steps(math.log(d.tol) / d.leading[0] if d.leading[0] < 0 else math.inf)}"
    )


def _limit_texts(d: Diagnosis) -> Iterator[str]:
    for name, value, far in zip(
        d.budget.limits, d.budget.steps, d.budget.extrapolated, strict=True
    ):
        mark = " (extrapolated)" if far else ""
        binds = ", which binds" if name == d.budget.binds else ""
        yield f"{limit_name(d, str(name))}: {steps(float(value))}{mark}{binds}"


def _memory_text(d: Diagnosis) -> str:
    m, text = d.memory, ""
    if m.driven_kept < 0.5:
        text = "under this input half of all swapped states are forgotten after "
        text += f"{steps(float(m.driven[1]))} steps"
    else:
        text = f"under this input {float(m.driven_kept):.0%} of all swapped states still differ "
        text += f"after {m.n_driven} steps"
    if m.moving > 0.5:
        return f"{text}; under a constant input the state does not come to rest"
    if m.end_states > 1:
        return (
            f"{text}; under a constant input it rests in {int(m.end_states)} different states and "
            f"holds {m.bits:.1f} bits as long as one likes ({m.n_hold} steps tried), whatever its "
            "gradient does"
        )
    return f"{text}; under a constant input every state ends in the same one: nothing is kept"


def _path_text(d: Diagnosis) -> str:
    rates = []
    for i, name in enumerate(d.paths):
        rates.append(f"{name} {path_rate(d, i):+.3g}")
    return f"nats per step over lags {window_of(d)[0]} to {window_of(d)[1]}: {', '.join(rates)}"


def _activity_text(d: Diagnosis) -> str:
    a, parts = d.activity, []
    assert a is not None
    for i, name in enumerate(a.names):
        text = f"{name} {a.saturated[i]:.0%} saturated"
        if str(name).endswith("gate"):
            text += f", mean {a.mean[i]:.2f}"
        if a.slowest[i] >= 0:
            text += f", slowest unit ({int(a.slowest[i])}): {steps(a.time_constant[i])} steps"
        parts.append(text)
    return "; ".join(parts)


def _step_text(d: Diagnosis) -> str:
    largest, mean = step_extremes(d)
    return (
        f"the largest norm of one step is {math.exp(min(largest, 700)):.3g}; single steps average "
        f"{mean:+.3g} nats, the product {d.leading[0]:+.3g}: what lies between is turning of "
        "directions, of which single steps know nothing"
    )


def _bound_text(d: Diagnosis) -> str:
    name, value, orbit_name, orbit_value = d.tightest
    truth = f"the truth is {d.leading[0]:+.3g} nats per step"
    orbit_name, name = orbit_name.replace("_", " "), name.replace("_", " ")
    seen = f"the tightest bound of this orbit ({orbit_name}) says {orbit_value:+.3g}"
    if name == "none":
        return f"{truth}; {seen}; none that needs only the weights exists for this cell"
    return f"{truth}; {seen}; from the weights alone ({name}) {value:+.3g}"


def _edge_text(d: Diagnosis) -> str:
    if settled_rate(d) == 0:
        return "the network is at it: lambda_1 cannot be told from 0"
    if d.edge is None:
        return (
            "no gain of the recurrent weights within a factor of 8 brings lambda_1 to 0 under this "
            "input (or it was not looked for)"
        )
    return (
        f"lambda_1 is 0 with all recurrent weights times {float(d.edge.gain):.3g}; now it is "
        f"{d.leading[0]:+.3g}"
    )


def _clip_text(d: Diagnosis) -> str:
    c = d.clipping
    if c is None:
        return "no gradient norms"
    q = c.quantiles
    shares = ", ".join(
        f"{share:.0%} at {label}" for label, share in zip(c.labels, c.share_clipped, strict=True)
    )
    return (
        f"norms of {int(c.n_finite)} BPTT gradients: median {q[3]:.3g}, 95 % {q[5]:.3g}, largest "
        f"{q[6]:.3g}; clipped: {shares}"
    )


def _float_text(d: Diagnosis) -> str:
    zero = np.ravel(d.events.n_zero)
    known = zero[zero > 0]
    at = f"from lag {steps(float(np.median(known)))} on" if known.size else "not within the steps"
    text = f"pulled back step by step in {d.fmt}, a gradient is exactly zero: {at}"
    pair = d.loss_scale.powers_of_two
    if pair is None:
        return f"{text}; no loss scale keeps {d.loss_scale.n_steps} steps within its range"
    keep = f"keep {d.loss_scale.n_steps} steps in its normal range"
    return f"{text}; loss scales 2^{pair[0]} to 2^{pair[1]} {keep}"


def _truncation_text(d: Diagnosis) -> str:
    if math.isinf(d.window):
        return "lambda_1 cannot be told from 0: every window shorter than the sequence loses much"
    if d.leading[0] > 0:
        return f"in chaos a gradient doubles within {steps(d.window)} steps: no longer windows"
    return f"a window of {steps(d.window)} steps loses about 1 % of a gradient that decays so"


def _parallel_text(d: Diagnosis) -> str:
    return {
        "yes": "parallel-in-time evaluation converges: lambda_1 is below 0 with its interval",
        "no": "parallel-in-time evaluation fails on long sequences: lambda_1 is above 0",
        "undecided": "whether parallel-in-time evaluation converges is open: the interval of "
        "lambda_1 holds 0, or the sequences are too short for one",
    }[d.parallel]
