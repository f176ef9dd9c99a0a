"""One measured case, and what was asked of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from _asked import AIMS, Aim
from _timing import spread

OURS = "gradprop"
Times = dict[str, list[float]]


@dataclasses.dataclass(kw_only=True)
class Case:
    """A group of `AIMS` at one size: medians and quartiles, and the figure that was asked for.

    `measured` is None where something is missing or wrong, as `note` says. `apart` is the largest
    difference of each peer's numbers from ours.
    """

    group: str
    n: int
    unit: str = "ms"
    clock: str = "CPU"
    times: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    measured: float | None = None
    best: str = ""
    apart: dict[str, float] = dataclasses.field(default_factory=dict)
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""

    @property
    def aim(self) -> Aim:
        return AIMS[self.group]

    @property
    def asked(self) -> float | None:
        return self.aim.asked.get(self.n)

    @property
    def met(self) -> bool | None:
        """None where nothing was asked or measured."""
        if self.asked is None or self.measured is None:
            return None
        better = self.measured >= self.asked
        return better if self.aim.at_least else self.measured <= self.asked

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "asked": self.asked, "met": self.met}


def from_dict(found: dict[str, Any]) -> Case:
    return Case(**{k: v for k, v in found.items() if k not in ("asked", "met")})


def faster(
    group: str, n: int, times: Times, *, scale: float, unit: str, ours: str = OURS, **more: Any
) -> Case:
    """How many times less than the best peer we need, by medians; `scale` turns seconds to unit."""
    spreads = {name: spread(own, scale) for name, own in times.items()}
    peers = {name: own["median"] for name, own in spreads.items() if name != ours}
    best = min(peers, key=peers.__getitem__)
    measured = peers[best] / spreads[ours]["median"]
    return Case(
        group=group, n=n, unit=unit, times=spreads, measured=measured, best=best, **more
    )  # fmt: skip


def missing(group: str, n: int, note: str) -> Case:
    return Case(group=group, n=n, note=note)


def line(case: Case) -> str:
    """One line for the terminal."""
    parts = [f"{case.group:<24}{case.n or '':>4}"]
    for name in dict.fromkeys([OURS, case.best]):
        if name in case.times:
            own = case.times[name]
            shown = f"{own['median']:.4g} [{own['q1']:.4g}, {own['q3']:.4g}] {case.unit}"
            parts.append(f"{name} {shown}")
    if case.measured is not None:
        parts.append(f"measured {case.measured:.3g}")
    if case.asked is not None:
        verdict = {True: "met", False: "MISSED", None: "not measured"}[case.met]
        parts.append(f"asked {case.asked:g} {verdict}")
    if case.apart:
        parts.append(f"apart {max(case.apart.values()):.0e}")
    return "  ".join([*parts, case.note] if case.note else parts)
