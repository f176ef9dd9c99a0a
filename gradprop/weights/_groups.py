"""Which arrays of a mapping make up one recurrent layer: prefixes, names, what is left over."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from gradprop.orbit import Array
from gradprop.weights._plain import plain_array, plain_setting
from gradprop.weights._table import Convention

SHOWN = 12
"""Names that an error lists before it only counts the rest."""


class Slot(NamedTuple):
    """What an array is within its layer."""

    role: str
    layer: int
    back: bool


@dataclasses.dataclass
class Group:
    """Arrays and settings under one prefix."""

    prefix: str
    values: Mapping[str, Any]
    names: dict[Slot, str] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    twice: list[str] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)
    claimed: set[str] = dataclasses.field(default_factory=set)

    @property
    def recurrent(self) -> list[str]:
        """Names of the recurrent matrices."""
        return [name for slot, name in self.names.items() if slot.role == "W_hh"]

    def array(self, name: str) -> Array:
        """One of the arrays, checked."""
        return plain_array(name, self.values[name])


def listed(names: Iterable[str]) -> str:
    """Names for a message, the first few of them."""
    known = sorted(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in known[:SHOWN]) + more


def groups(mapping: Mapping[str, Any], table: Convention) -> dict[str, Group]:
    """Recurrent or not, all prefixes under which the convention's names stand."""
    found: dict[str, Group] = {}
    for name in mapping:
        match = table.pattern.search(name)
        if match is None:
            continue
        prefix = name[: match.start()]
        group = found.setdefault(prefix, Group(prefix, mapping))
        group.claimed.add(name)
        if match["array"] is None:
            group.settings[table.settings[match["setting"]]] = plain_setting(mapping[name])
            continue
        role = table.roles[match["array"]]
        if role == "refused":
            group.refused.append(name)
            continue
        parts = match.groupdict()
        slot = Slot(role, int(parts.get("layer") or 0), bool(parts.get("back")))
        if slot in group.names:
            group.twice += [group.names[slot], name]
        group.names[slot] = name
    return found


def own_names(group: Group, table: Convention) -> bool:
    """Whether the recurrent matrices have the convention's own names, not mere aliases."""
    matches = (table.pattern.search(name) for name in group.recurrent)
    return all(match is not None and match["array"] in table.names for match in matches)


def cells(mapping: Mapping[str, Any], table: Convention) -> dict[str, Group]:
    """Groups that hold a recurrent matrix, by prefix.

    An alias alone does not make one: "1" may be the bias of a dense layer.
    """
    return {
        prefix: group
        for prefix, group in groups(mapping, table).items()
        if group.recurrent
        and (own_names(group, table) or all(np.ndim(mapping[n]) > 1 for n in group.recurrent))
    }


def chosen(mapping: Mapping[str, Any], table: Convention, prefix: str | None) -> Group:
    """The group of a prefix, or the only one there is."""
    found = cells(mapping, table)
    if prefix is None:
        if len(found) == 1:
            return next(iter(found.values()))
        if not found:
            raise ValueError(
                f"`mapping` must hold a `{table.spell('W_hh')}` (convention {table.name!r}); "
                f"got {listed(mapping) or 'nothing'}."
            )
        raise ValueError(
            f"`prefix` must say which of {len(found)} layers is meant: "
            f"{', '.join(map(repr, sorted(found)))}."
        )
    wanted = prefix if prefix in found else prefix.rstrip("./_")
    if wanted not in found:
        known = ", ".join(map(repr, sorted(found))) or "none"
        raise ValueError(
            f"`prefix` must be that of a layer with a `{table.spell('W_hh')}` (convention "
            f"{table.name!r}): {known}; got {prefix!r}."
        )
    return found[wanted]


def leftover(mapping: Mapping[str, Any], table: Convention, prefix: str) -> list[str]:
    """Names beside a layer's own that the convention does not know.

    Under a prefix these are all names below it; without one, all names that have none either.
    """
    unknown = [name for name in mapping if table.pattern.search(name) is None]
    if prefix:
        below = re.compile(rf"{re.escape(prefix)}(?:[./]|__)")
        return [name for name in unknown if below.match(name)]
    return [name for name in unknown if not re.search(r"[./]|__", name)]
