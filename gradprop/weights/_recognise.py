"""Which convention the names in a file are of; what they leave open is asked for, not guessed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradprop.weights._groups import Group, Slot, cells, listed, own_names
from gradprop.weights._table import CONVENTIONS, Convention


@dataclasses.dataclass(frozen=True)
class Fit:
    """A layer and a convention that its names fit; `certain` if they fit no other."""

    group: Group
    table: Convention
    certain: bool

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.group.prefix!r} ({self.table.name!r})"


def fits(mapping: Mapping[str, Any], known: tuple[str, ...]) -> list[Fit]:
    """Layers by every convention among `known` that has their names and dimensions."""
    tables = (CONVENTIONS[name] for name in known)
    return [
        Fit(group, table, own_names(group, table))
        for table in tables
        for group in cells(mapping, table).values()
        if _plausible(group, table)
    ]


def recognised(mapping: Mapping[str, Any], known: tuple[str, ...], prefix: str | None) -> Fit:
    """The one layer whose names are of one convention alone."""
    found = fits(mapping, known)
    if prefix is not None:
        wanted = (prefix, prefix.rstrip("./_"))
        found = [fit for fit in found if fit.group.prefix in wanted]
    certain = [fit for fit in found if fit.certain]
    if len(certain) == 1:
        return certain[0]
    if certain:
        raise ValueError(
            f"`prefix` must say which of {len(certain)} layers is meant: "
            f"{', '.join(sorted(fit.label for fit in certain))}."
        )
    if found:
        raise ValueError(
            "`convention` must be told, for the names do not say the order of the gates: they fit "
            f"{', '.join(sorted(fit.label for fit in found))}."
        )
    below = "" if prefix is None else f" under {prefix!r}"
    spelled = ", ".join(
        f"{name!r} `{CONVENTIONS[name].spell('W_hh')}`" for name in CONVENTIONS if name in known
    )
    raise ValueError(
        f"`path` must hold a recurrent matrix{below} ({spelled}); got "
        f"{listed(mapping) or 'nothing'}."
    )


def _plausible(group: Group, table: Convention) -> bool:
    """Whether the dimensions fit: CuDNN's layers have Keras' names, but a bias twice as long."""
    W_hh = np.shape(group.values[group.recurrent[0]])
    if table.name == "onnx":
        return len(W_hh) == 3
    if table.name not in ("keras", "cudnn"):
        return True
    bias = group.names.get(Slot("b", 0, False))
    shape = np.shape(group.values[bias]) if bias is not None else ()
    doubled = len(W_hh) == 2 and shape == (2 * W_hh[1],)
    return doubled == (table.name == "cudnn")
