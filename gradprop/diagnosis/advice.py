"""What a reader of a diagnosis can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gradprop.diagnosis.table import reach_of, settled_rate, steps

if TYPE_CHECKING:
    from gradprop.diagnosis.result import Diagnosis


def advice(d: Diagnosis) -> Iterator[str]:
    """What a reader can do about it."""
    rate = settled_rate(d)
    if d.broken:
        yield "widen the dtype, shorten the sequences or lower the recurrent weights"
    if rate < 0 and d.budget.binds:
        reach = steps(reach_of(d))
        yield f"dependencies longer than {reach} steps cannot be learned by gradients as it stands"
        yield from _longer(d)
    if rate > 0:
        yield f"truncate BPTT at about {steps(d.window)} steps, or lower the recurrent weights"
    if d.clipping is not None and int(d.clipping.n_finite) >= 8 and not rate > 0:
        high = d.clipping.quantiles[5]
        yield f"a clip threshold at the 95 % quantile, {high:.3g}, touches outliers only"
    worst = 0.0 if d.activity is None else float(np.max(d.activity.saturated))
    if d.activity is not None and worst > 0.3:
        name = d.activity.names[int(np.argmax(d.activity.saturated))]
        yield f"{name}: {worst:.0%} saturated; unless meant so, normalise the input, lower weights"
    if rate == 0:
        yield "long gradients survive: watch the norms, clip, and keep BPTT windows long"
    if d.memory.bits > 0 and rate < 0:
        yield "a vanished gradient is not a lost memory here: do not read the one off the other"


def _longer(d: Diagnosis) -> Iterator[str]:
    if d.activity is not None and (rows := d.activity.of("forget gate")):
        mean = float(np.mean(d.activity.mean[rows]))
        yield (
            f"raise the forget bias: the mean forget gate is {mean:.2f}, and a gate f alone "
            "carries about 1 / (1 - f) steps"
        )
    elif d.activity is not None and d.activity.of("update gate"):
        yield "raise the bias of the update gate: it alone carries the old state on"
    elif d.edge is not None and float(d.edge.gain) > 1:
        yield f"scale the recurrent weights by up to {float(d.edge.gain):.3g}, or use gates"
    if d.budget.binds in ("underflow", "resolution") and d.samples is None:
        yield "say samples=N: sampling noise usually binds long before the floats do"
