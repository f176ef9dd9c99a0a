"""Cells from files: thin adapters that turn each format into a mapping of arrays."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gradprop import _checks
from gradprop.cells.base import Cell
from gradprop.cells.composite import Bidirectional, Stacked
from gradprop.results import Result
from gradprop.weights._formats import read_file
from gradprop.weights._groups import chosen, leftover, listed
from gradprop.weights._recognise import Fit, fits, recognised
from gradprop.weights._settings import canonical
from gradprop.weights._table import CONVENTIONS
from gradprop.weights.conventions import cell_of

_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("units", "inputs", "layers", "directions"), np.int64),
    "recognised": np.bool_,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellList(Result):
    """Recurrent layers found in a file (see :func:`list_cells`).

    Attributes
    ----------
    prefix, convention, kind : str arrays, shape (cells,)
        What to pass to :func:`load_cell`, and "RNN", "GRU" or "LSTM". "" is no prefix.
    units, inputs, layers, directions : int arrays, shape (cells,)
        Units of one layer and direction; 0 where the layer cannot be read.
    recognised : bool array, shape (cells,)
        Whether the names alone tell the convention; otherwise it has to be told.
    note : str array, shape (cells,)
        Why a layer cannot be read as a whole.
    others : tuple of str
        Arrays that belong to none of them.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        **dict.fromkeys(("prefix", "convention", "kind", "units", "inputs"), ("cell",)),
        **dict.fromkeys(("layers", "directions", "recognised", "note"), ("cell",)),
    }
    prefix: NDArray[np.str_]
    convention: NDArray[np.str_]
    kind: NDArray[np.str_]
    units: NDArray[np.int64]
    inputs: NDArray[np.int64]
    layers: NDArray[np.int64]
    directions: NDArray[np.int64]
    recognised: NDArray[np.bool_]
    note: NDArray[np.str_]
    others: tuple[str, ...]


def load_cell(
    path: str | os.PathLike[str],
    *,
    convention: str | None = None,
    prefix: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Cell:
    """Build a cell from a file of weights; nothing in the file is executed or unpickled.

    Parameters
    ----------
    path : str or path-like
        ``.npz``; ``.safetensors`` (needs the extra "safetensors"); ``.pt``, ``.pth`` or ``.bin`` of
        a PyTorch state dict (extra "torch"); ``.keras``, ``.h5`` or ``.weights.h5`` of Keras (extra
        "keras"); ``.onnx`` (extra "onnx").
    convention : {"torch", "keras", "onnx", "cudnn"}, optional
        Needed where the names do not tell it: :func:`list_cells` shows what was recognised.
    prefix : str, optional
        Of the layer, where there are several.
    options : mapping, optional
        What the file does not say, and what is to be taken instead of what it says: see
        :func:`cell_from_arrays`. Weights saved alone name no activations: the frameworks' defaults
        (tanh, gates sigmoid) are taken.

    Returns
    -------
    RNN, LSTM, GRU, Stacked or Bidirectional
        As :func:`cell_from_arrays`. Arrays of other layers are left out.

    Raises
    ------
    ValueError, TypeError
        As :func:`cell_from_arrays`; a damaged file; one of objects or of other code; weights that
        stand in another file.
    ImportError
        The package that reads the format is not installed; the message names the extra.

    Notes
    -----
    HDF5, ONNX and PyTorch files are parsed in a child process with limits on time (60 s) and, where
    the system has them, memory; ``.npz`` and safetensors in this one, refusing what would unpack to
    more than the file can honestly hold. For a layer that reads backwards give `linearise` the
    sequence reversed.

    Examples
    --------
    >>> import os, tempfile, numpy as np, gradprop as gp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.npz")
    ...     np.savez(path, weight_ih_l0=[[1.0]], weight_hh_l0=[[0.5]])
    ...     cell = gp.load_cell(path)
    >>> gp.step_jacobian(cell, [0.0], [0.0]).tolist()
    [[0.5]]
    """
    if convention is not None:
        _checks.choice("convention", convention, CONVENTIONS)
    if prefix is not None and not isinstance(prefix, str):
        raise TypeError(f"`prefix` must be a string; got {prefix!r}.")
    mapping, known = read_file(path)
    if convention is None:
        fit = recognised(mapping, known, prefix)
        table, group = fit.table, fit.group
    else:
        table = CONVENTIONS[convention]
        group = chosen(mapping, table, prefix)
    extra = leftover(mapping, table, group.prefix) if group.prefix else []
    if extra:
        raise ValueError(
            f"`path` must hold only arrays of a layer under {group.prefix!r} (convention "
            f"{table.name!r}); {listed(extra)} is none of them."
        )
    return cell_of(group, table, canonical(table, options))


def list_cells(path: str | os.PathLike[str]) -> CellList:
    """Recurrent layers of a file, and under which prefix and convention to load each.

    Parameters
    ----------
    path : str or path-like
        As for :func:`load_cell`.

    Returns
    -------
    CellList
        ``prefix``, ``convention``, ``kind``, ``units``, ... with an entry per layer and convention
        that its names fit; ``others`` names the remaining arrays. ``to_frame()`` is the table.

    Raises
    ------
    ValueError, ImportError
        As :func:`load_cell`.

    Examples
    --------
    >>> import os, tempfile, numpy as np, gradprop as gp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.npz")
    ...     np.savez(path, **{"rnn.weight_ih_l0": np.ones((8, 3)), "fc.weight": np.ones((1, 2)),
    ...                       "rnn.weight_hh_l0": np.ones((8, 2))})
    ...     found = gp.list_cells(path)
    >>> found.prefix.tolist(), found.kind.tolist(), found.units.tolist(), found.others
    (['rnn'], ['LSTM'], [2], ('fc.weight',))
    """
    mapping, known = read_file(path)
    found = fits(mapping, known)
    rows = [_described(fit) for fit in found]
    names = list(CellList._axes)
    columns: dict[str, Any] = {
        name: np.array([row[name] for row in rows], dtype=_COLUMNS.get(name, np.str_))
        for name in names
    }
    claimed = {name for fit in found for name in fit.group.claimed}
    return CellList(**columns, others=tuple(sorted(mapping.keys() - claimed)))


def _described(fit: Fit) -> dict[str, Any]:
    """One row of the list; where the layer cannot be built, why."""
    row: dict[str, Any] = dict.fromkeys(("units", "inputs", "layers", "directions"), 0)
    row |= {"prefix": fit.group.prefix, "convention": fit.table.name, "recognised": fit.certain}
    row |= {"kind": "", "note": ""}
    try:
        cell = cell_of(fit.group, fit.table, {})
    except (ValueError, TypeError) as error:
        return row | {"note": str(error)}
    layers = cell.cells if isinstance(cell, Stacked) else (cell,)
    one = cell.forward if isinstance(cell, Bidirectional) else layers[-1]
    return row | {
        "kind": type(one).__name__,
        "units": one.n,
        "inputs": cell.d_x or 0,
        "layers": len(layers),
        "directions": 2 if isinstance(cell, Bidirectional) else 1,
    }
