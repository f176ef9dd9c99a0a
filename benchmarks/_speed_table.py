"""The table in the README: what was measured beside what was asked, misses named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _asked import AIMS
from _cases import Case

BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
PEERS = ("numpy", "scipy", "numba", "torch", "jax", "pynamicalsys", "lyapynov", "clvlib")
ABSENT = "not installed"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _row(group: str, cases: Sequence[Case]) -> str:
    """One line: sizes, figures (a missed one in bold), what was asked, best peers, misses."""
    aim = AIMS[group]
    cells = [
        f"**{_number(case.measured)}**" if case.met is False else _number(case.measured)
        for case in cases
    ]
    asked = [_number(case.asked) for case in cases]
    bars = ", ".join(asked) if any(case.asked for case in cases) else ""
    bests = [case.best for case in cases]
    peers = bests[:1] if len(set(bests)) == 1 else bests
    return "| " + " | ".join(
        (
            f"{aim.title}: {aim.counts}",
            ", ".join(str(case.n) for case in cases if case.n),
            ", ".join(cells),
            f"{'≥' if aim.at_least else '≤'} {bars}" if bars else "",
            ", ".join(name for name in peers if name),
            _verdict(cases),
        )
    ) + " |"  # fmt: skip


def _verdict(cases: Sequence[Case]) -> str:
    asked = [case for case in cases if case.asked is not None]
    if not asked:
        return next((case.note for case in cases if case.note), "")
    missed = [case for case in asked if case.met is False]
    absent = [case for case in asked if case.met is None]
    words = [f"missed{_at(missed)}"] if missed else []
    if absent:
        words.append(f"not measured{_at(absent)} ({absent[0].note})")
    return "; ".join(words) or "met"


def _at(cases: Sequence[Case]) -> str:
    sizes = ", ".join(str(case.n) for case in cases if case.n)
    return f" at {sizes}" if sizes else ""


def table(cases: Sequence[Case], machine: dict[str, Any]) -> str:
    lines = [
        "| what | n | measured | asked | best peer | |",
        "|---|---|---|---|---|---|",
    ]
    for group in AIMS:
        own = sorted((case for case in cases if case.group == group), key=lambda case: case.n)
        if own:
            lines.append(_row(group, own))
    packages = machine["packages"]
    versions = ", ".join(
        f"{k} {packages[k]}" for k in PEERS if packages.get(k) not in (None, ABSENT)
    )
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {versions}; "
        f"{machine['date'][:10]}. CPU time on one thread where nothing else is said.",
    ]
    return "\n".join(lines)


def absent(cases: Sequence[Case]) -> list[str]:
    """Groups and sizes of which something is asked and no case is there."""
    found = {(case.group, case.n) for case in cases}
    return [
        f"{group} {n}".removesuffix(" 0")
        for group, aim in AIMS.items()
        for n in aim.asked
        if (group, n) not in found
    ]


def write(readme: Path, text: str) -> None:
    """Put the table between the two marks."""
    old = readme.read_text(encoding="utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise SystemExit(f"{readme.name} must hold {BEGIN} and {END} once each.")
    before, rest = old.split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
