"""What analyses return: frozen, read-only results with axes, statuses, tables and files."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradprop.statuses import TEXTS, Status

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LN2", "REPLICAS", "Result", "ScaledArray", "Status", "log_of_scaled", "log_sum_exp"]

LN2 = float(np.log(2.0))
REPLICAS = "*"
"""Stands for all leading (replica) axes in a result's declaration of axes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Base of all results: arrays are read-only, axes are declared once in ``_axes``.

    ``_axes`` maps each array field to its axes, ``"*"`` standing for the replica axes, whose
    meanings ("weights", "inputs", "starts", or several joined by "+") are in ``roles``. An axis
    "end" holds the two ends of an interval. ``_table`` names the field whose entries are the rows
    of the table; default: the one with most axes.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {}
    _table: ClassVar[str] = ""
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self._axes:
            value = getattr(self, name)
            # what comes read-only belongs to no one else: not copied, as it may be large
            if not isinstance(value, np.ndarray) or value.flags.writeable:
                value = np.array(value)
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled arrays are read-only again."""
        self.__dict__.update(state)
        self.__post_init__()

    def to_frame(self) -> pd.DataFrame:
        """Long table: one row per replica and entry of the result's main field.

        Returns
        -------
        pandas.DataFrame
            A column per axis (replica axes named by role) and per field, two for an interval.
            Fields with other axes are left out.
        """
        import pandas as pd

        widest = max(self._axes, key=lambda name: (len(self._axes[name]), self._axes[name]))
        axes = self._axes[self._table or widest]
        n_replica_axes = len(self.roles)
        sizes = self._sizes(axes)
        names = [*_unique_names(self.roles), *(a for a in axes if a != REPLICAS)]
        columns: dict[str, Any] = {}
        for i, name in enumerate(names):
            if name not in self._axes and f"{name}s" not in self._axes:
                shape = [1] * len(sizes)
                shape[i] = sizes[i]
                columns[name] = np.broadcast_to(np.arange(sizes[i]).reshape(shape), sizes)
        for name, own in self._axes.items():
            for column, part in _columns_of(name, np.asarray(getattr(self, name)), own, axes):
                own_axes = tuple(axis for axis in own if axis in axes)
                aligned = _aligned(part, own_axes, axes, n_replica_axes)
                columns[column] = np.broadcast_to(aligned, sizes)
        frame = pd.DataFrame({name: np.ravel(value) for name, value in columns.items()})
        frame.attrs["result"] = type(self).__name__
        return frame

    def _sizes(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        """Shape of the table: replica axes, then the named axes, read off the fields."""
        known: dict[str, tuple[int, ...]] = {}
        for name, own in self._axes.items():
            shape = list(np.shape(getattr(self, name)))
            for axis in own:
                width = len(self.roles) if axis == REPLICAS else 1
                # a field may have length 1 where others have more (one exponent for a vector)
                known[axis] = max(known.get(axis, ()), tuple(shape[:width]))
                del shape[:width]
        return tuple(size for axis in axes for size in known[axis])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write arrays and settings to one ``.npz`` file (numbers and text only, no pickle)."""
        arrays: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            (arrays if field.name in self._axes else rest)[field.name] = value
        text = json.dumps({"class": type(self).__name__, "fields": rest}, default=_jsonable)
        with open(os.fspath(path), "wb") as file:
            np.savez(file, __meta__=np.array(text), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what :meth:`save` wrote; the class must be the one that was saved."""
        refusal = f"`path` must be a file written by save(); got {os.fspath(path)!r}."
        with open(path, "rb") as file:
            try:
                stored = np.load(file, allow_pickle=False)
            except (ValueError, zipfile.BadZipFile, EOFError) as error:
                raise ValueError(refusal) from error
            if not isinstance(stored, np.lib.npyio.NpzFile) or "__meta__" not in stored:
                raise ValueError(refusal)
            meta = json.loads(str(stored["__meta__"]))
            if meta["class"] != cls.__name__:
                raise ValueError(f"`path` holds a {meta['class']}, not a {cls.__name__}.")
            rest: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in meta["fields"].items()
            }
            rest |= {name: stored[name] for name in stored.files if name != "__meta__"}
            return cls(**rest)

    def messages(self) -> list[str]:
        """Texts of all statuses that occur in this result, without repetition."""
        flags = Status(int(np.bitwise_or.reduce(np.ravel(getattr(self, "status", 0)), initial=0)))
        return [TEXTS[flag] for flag in Status if flag and flag in flags]


def _unique_names(roles: tuple[str, ...]) -> list[str]:
    return [r if roles.count(r) == 1 else f"{r}_{i}" for i, r in enumerate(roles)]


def _columns_of(
    name: str, value: NDArray[Any], own: tuple[str, ...], axes: tuple[str, ...]
) -> list[tuple[str, NDArray[Any]]]:
    """A field's columns: itself if its axes fit, both ends of an interval, or none."""
    further = [axis for axis in own if axis not in axes]
    if further == ["end"]:
        return [(f"{name}_{side}", value[..., j]) for j, side in enumerate(("low", "high"))]
    return [] if further else [(name, value)]


def _aligned(
    value: NDArray[Any], own: tuple[str, ...], axes: tuple[str, ...], n_replica_axes: int
) -> NDArray[Any]:
    """Insert length-1 axes so that a field with axes `own` broadcasts against `axes`."""
    shape, sizes = [], list(value.shape)
    for axis in axes:
        width = n_replica_axes if axis == REPLICAS else 1
        shape += [sizes.pop(0) if axis in own else 1 for _ in range(width)]
    return value.reshape(shape)


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be saved")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaledArray(Result):
    """Numbers of any size: ``value = mantissa * 2.0**exponent``.

    Attributes
    ----------
    mantissa : float or complex array, shape (..., n) or (..., n, p)
        Largest magnitude of each replica in [0.5, 1), or 0.
    exponent : int array, broadcastable against ``mantissa``
        One power of two per replica.
    status : int array, shape (...,)
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "mantissa": (REPLICAS, "unit"),
        "exponent": (REPLICAS, "unit"),
        "status": (REPLICAS,),
    }
    mantissa: NDArray[Any]
    exponent: NDArray[np.int64]
    status: NDArray[np.int64]

    def to_float(self) -> NDArray[Any]:
        """The plain array; entries outside the range of float64 become 0 or inf."""
        exponent = np.clip(self.exponent, -(2**20), 2**20).astype(np.int64)
        with np.errstate(over="ignore"):
            real = np.ldexp(self.mantissa.real, exponent)
            imag = np.ldexp(self.mantissa.imag, exponent)
        if not np.iscomplexobj(self.mantissa):
            return np.asarray(real)
        out = np.empty(real.shape, dtype=np.complex128)
        # not real + 1j imag, which is nan where only one part is inf
        out.real, out.imag = real, imag
        return out

    def log_abs(self) -> NDArray[np.float64]:
        """Natural log of each entry's magnitude; -inf where it is exactly 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.abs(self.mantissa)) + self.exponent * LN2)

    def log_norm(self) -> NDArray[np.float64]:
        """Natural log of the 2-norm over the last axis."""
        return log_of_scaled(np.linalg.norm(self.mantissa, axis=-1), self.exponent[..., 0])


def log_of_scaled(value: ArrayLike, exponent: ArrayLike) -> NDArray[np.float64]:
    """Return ln(value * 2**exponent), -inf where value is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(value) + np.asarray(exponent) * LN2)


def log_sum_exp(values: ArrayLike, axis: int = -1) -> NDArray[np.float64]:
    """Return ln sum exp(values): -inf for an empty sum or one of only -inf, inf if one is inf."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape[axis] == 0:
        return np.full(np.delete(array.shape, axis), -np.inf)
    top = np.max(array, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.log(np.exp(array - shift).sum(axis=axis)) + np.squeeze(shift, axis))
