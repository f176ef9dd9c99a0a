"""Norms of BPTT gradients, and what clipping them would do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradprop.blocks import Float, Int
from gradprop.cells.base import Cell
from gradprop.diagnosis.data import Data
from gradprop.gradients.backward import backward
from gradprop.gradients.clipping import global_norm
from gradprop.gradients.thresholds import ClipStatistics, clip_statistics

SEQUENCES, CLIP_FLOPS = 64, 3e10
"""Sequences whose BPTT gradient is taken, and the work they may take; 4 at least."""


def clip_norms(
    cell: Cell, data: Data, which: Int, ends: Int, u: Float, grad_h: Any, notes: list[str]
) -> tuple[ClipStatistics | None, tuple[str, ...]]:
    """Statistics of BPTT gradients; none where there are no parameters or no finite orbit."""
    if data.x is None:
        return None, ()
    if grad_h is not None:
        which, ends = np.arange(len(data.lengths)), data.lengths
    else:
        notes.append("gradient norms are those of a loss of slope 1 at the last step: scale them")
    each = 6.0 * data.n_steps * sum(array.size for array in cell.arrays().values())
    number = int(np.clip(CLIP_FLOPS / max(each, 1.0), 4, SEQUENCES))
    chosen = np.unique(np.linspace(0, len(which) - 1, number).astype(int))
    pairs = [(int(which[i]), int(ends[i])) for i in chosen]
    try:
        return _statistics(
            cell,
            [data.sequence(i, end) for i, end in pairs],
            list(_loss_gradients(grad_h, pairs, u)),
        )
    except (TypeError, ValueError) as error:
        if grad_h is not None:
            raise
        notes.append(f"no gradient norms: {error}")
        return None, ()


def _loss_gradients(grad_h: Any, pairs: list[tuple[int, int]], u: Float) -> Iterator[Any]:
    given = None if grad_h is None or callable(grad_h) else np.asarray(grad_h)
    for i, end in pairs:
        if given is not None:
            yield (given[i] if given.ndim == 3 else given)[:end]
        elif grad_h is not None:
            yield grad_h
        else:
            last = np.zeros((end, len(u)))
            last[-1] = u
            yield last


def _statistics(
    cell: Cell, sequences: list[Any], gradients: list[Any]
) -> tuple[ClipStatistics | None, tuple[str, ...]]:
    """Statistics of gradient norms, one per sequence, and the arrays whose gradient overflowed."""
    norms: list[float] = []
    broken: dict[str, None] = {}
    for x, grad_h in zip(sequences, gradients, strict=True):
        arrays = backward(cell, x, grad_h).parameters
        bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        broken |= dict.fromkeys(bad)
        norms.append(math.inf if bad else global_norm(arrays))
    finite = np.isfinite(norms).any()
    return clip_statistics(norms) if finite else None, tuple(broken)
