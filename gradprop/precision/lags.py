"""Results whose fields are lags of events."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from gradprop import _checks
from gradprop.blocks import Int
from gradprop.results import REPLICAS, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lags(Result):
    """Fields that are lags: counted from 1, 0 for not within the chain."""

    def event(self, name: str) -> int | None:
        """Lag of one event of a single network.

        Parameters
        ----------
        name : str
            A field, such as "n_zero".

        Returns
        -------
        int or None
            None: not within the chain.

        Raises
        ------
        ValueError
            An unknown name; a result of several replicas, whose arrays are to be read instead.
        """
        known = [field for field, axes in self._axes.items() if axes == (REPLICAS,)]
        _checks.choice("name", name, [field for field in known if field != "status"])
        if self.roles:
            raise ValueError(
                f"`event` is for single networks; this result has {len(self.roles)} replica axes: "
                f"read the array .{name} (0: not within the chain)."
            )
        return int(getattr(self, name)) or None

    def to_frame(self) -> pd.DataFrame:
        """Long table, one row per replica; lags that are not within the chain are blank."""
        import pandas as pd

        frame = super().to_frame()
        for name in map(str, frame):
            if name.startswith(("n_", "exact_n_")):
                frame[name] = frame[name].astype("Int64").mask(frame[name] == 0, pd.NA)
        return frame


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactEvents(Lags):
    """First lags at which the norm of the exact product passes a format's limits; 0 for none.

    Attributes
    ----------
    n_eps : int array, shape (...,)
        ||P|| < eps ||P_0||.
    n_subnormal : int array, shape (...,)
        ||P|| below the smallest normal number.
    n_below_subnormal : int array, shape (...,)
        ||P|| below the smallest subnormal number.
    n_zero : int array, shape (...,)
        ||P|| at most half of that: it rounds to zero.
    n_overflow : int array, shape (...,)
        ||P|| above the largest number.
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "n_eps": (REPLICAS,),
        "n_subnormal": (REPLICAS,),
        "n_below_subnormal": (REPLICAS,),
        "n_zero": (REPLICAS,),
        "n_overflow": (REPLICAS,),
    }
    n_eps: Int
    n_subnormal: Int
    n_below_subnormal: Int
    n_zero: Int
    n_overflow: Int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionEvents(Lags):
    """First lags (from 1; 0 for not within the chain) of events of a plain product in a format.

    Attributes
    ----------
    n_eps : int array, shape (...,)
        The 2-norm of the stored product, in float64, is below eps ||P_0||.
    n_subnormal_any, n_subnormal_all : int array, shape (...,)
        Some entry is subnormal; the largest one is.
    n_zero : int array, shape (...,)
        All entries are zero.
    n_overflow, n_nan : int array, shape (...,)
        Some entry is infinite (in a format without infinities: at the largest number, where
        outcomes stay); some entry is nan.
    n_stuck : int array, shape (...,)
        The product keeps every bit, finite and not zero, while the exact norm changes.
    exact_n_eps, exact_n_subnormal, exact_n_below_subnormal : int array, shape (...,)
    exact_n_zero, exact_n_overflow : int array, shape (...,)
        The fields of :attr:`exact`.
    status : int array, shape (...,)
    fmt, accumulate : str
        The format of the product and that of its sums.
    of : str
        "matrix", "vector" or "scalar".
    flush : bool
    loss_scale : float
    """

    _axes: ClassVar[dict[str, tuple[str, ...]]] = {
        "n_eps": (REPLICAS,),
        "n_subnormal_any": (REPLICAS,),
        "n_subnormal_all": (REPLICAS,),
        "n_zero": (REPLICAS,),
        "n_overflow": (REPLICAS,),
        "n_nan": (REPLICAS,),
        "n_stuck": (REPLICAS,),
        "exact_n_eps": (REPLICAS,),
        "exact_n_subnormal": (REPLICAS,),
        "exact_n_below_subnormal": (REPLICAS,),
        "exact_n_zero": (REPLICAS,),
        "exact_n_overflow": (REPLICAS,),
        "status": (REPLICAS,),
    }
    n_eps: Int
    n_subnormal_any: Int
    n_subnormal_all: Int
    n_zero: Int
    n_overflow: Int
    n_nan: Int
    n_stuck: Int
    exact_n_eps: Int
    exact_n_subnormal: Int
    exact_n_below_subnormal: Int
    exact_n_zero: Int
    exact_n_overflow: Int
    status: Int
    fmt: str
    accumulate: str
    of: str
    flush: bool
    loss_scale: float

    @property
    def exact(self) -> ExactEvents:
        """Lags at which the exact product of the unrounded chain passes the same limits."""
        lags = {name: getattr(self, f"exact_{name}") for name in ExactEvents._axes}
        return ExactEvents(roles=self.roles, **lags)
