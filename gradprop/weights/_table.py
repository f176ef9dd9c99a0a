"""The one table of conventions: how each family of frameworks names and lays out a layer."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

UNDER = r"(?:^|[./]|__|_)"
"""What parts an array's own name from the prefix before it."""

COMMON_OPTIONS = {
    "kind": "kind",
    "hidden_size": "hidden_size",
    "units": "hidden_size",
    "layer": "layer",
    "orientation": "orientation",
}


@dataclasses.dataclass(frozen=True)
class Convention:
    """Names, layout and gate order of one family; roles are W_xh, W_hh, b_x, b_h, b.

    Attributes
    ----------
    name : str
    names : dict
        Own name of each array -> role. Where they stand in a file, the convention is recognised.
    aliases : dict
        Names that are also understood, but only when the convention is told.
    refused : dict
        Name -> what the array is; such a layer is not one of this package's cells.
    options : dict
        Accepted name of a setting -> canonical name, beside those common to all.
    orders : dict
        Gate order of "LSTM" and of "GRU".
    orientation : {"rows", "columns"}
        "rows": z = W x, a block of rows per gate; "columns": z = x K, a block of columns.
    way : str
        Regular expression before the own name that tells the direction, as group ``back``.
    tail : str
        Regular expression after it that tells ``layer`` and ``back``.
    """

    name: str
    names: Mapping[str, str]
    aliases: Mapping[str, str]
    refused: Mapping[str, str]
    options: Mapping[str, str]
    orders: Mapping[str, str]
    orientation: str
    way: str = ""
    tail: str = ""

    @functools.cached_property
    def roles(self) -> Mapping[str, str]:
        """All names of arrays that are understood, the refused ones included."""
        return {**self.names, **self.aliases, **dict.fromkeys(self.refused, "refused")}

    @functools.cached_property
    def settings(self) -> Mapping[str, str]:
        """All names of settings that are understood."""
        return COMMON_OPTIONS | dict(self.options)

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Prefix (all before the match), own name, layer and direction of an array's name."""
        arrays = "|".join(map(re.escape, self.roles))
        settings = "|".join(map(re.escape, self.settings))
        return re.compile(
            rf"{UNDER}{self.way}(?:(?P<array>{arrays}){self.tail}|(?P<setting>{settings}))(?::0)?$"
        )

    def spell(self, role: str, layer: int = 0, back: bool = False) -> str:
        """Own name of an array, for messages."""
        own = next(name for name, known in self.names.items() if known == role)
        if self.tail:
            return f"{own}_l{layer}" + "_reverse" * back
        return f"backward/{own}" if back else own


_PEEPHOLE = "a peephole connection"
_PROJECTION = "a projection of the hidden state (proj_size)"
_KERAS_NAMES = {"kernel": "W_xh", "recurrent_kernel": "W_hh", "bias": "b"}
_KERAS_ALIASES = {"0": "W_xh", "1": "W_hh", "2": "b"}
_KERAS_ORDERS = {"LSTM": "ifco", "GRU": "zrh", "RNN": ""}
_KERAS_WAY = r"(?:(?:forward|(?P<back>backward))[/.])?"

CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        "torch": Convention(
            "torch",
            {"weight_ih": "W_xh", "weight_hh": "W_hh", "bias_ih": "b_x", "bias_hh": "b_h"},
            {
                **{"W_ih": "W_xh", "W_hh": "W_hh", "b_ih": "b_x", "b_hh": "b_h", "b": "b"},
                **{"w_ih": "W_xh", "w_hh": "W_hh"},
            },
            {"weight_hr": _PROJECTION, "weight_ch": _PEEPHOLE},
            {"nonlinearity": "activation", "activation": "activation"},
            {"LSTM": "ifgo", "GRU": "rzn", "RNN": ""},
            "rows",
            tail=r"(?:_l(?P<layer>\d{1,3})(?P<back>_reverse)?)?",
        ),
        "keras": Convention(
            "keras",
            _KERAS_NAMES,
            _KERAS_ALIASES,
            {"peephole": _PEEPHOLE, "projection_kernel": _PROJECTION},
            {
                **{"activation": "activation", "recurrent_activation": "gate_activation"},
                **{"reset_after": "reset_after", "keras_version": "version"},
            },
            _KERAS_ORDERS,
            "columns",
            way=_KERAS_WAY,
        ),
        "onnx": Convention(
            "onnx",
            {"W": "W_xh", "R": "W_hh", "B": "b"},
            {},
            {"P": _PEEPHOLE},
            {
                **{"direction": "direction", "activations": "activations", "clip": "clip"},
                **{"activation_alpha": "alpha", "activation_beta": "beta"},
                **{"linear_before_reset": "reset_after", "input_forget": "input_forget"},
            },
            {"LSTM": "iofc", "GRU": "zrh", "RNN": ""},
            "rows",
        ),
        "cudnn": Convention(
            "cudnn",
            _KERAS_NAMES,
            _KERAS_ALIASES,
            {},
            {"activation": "activation"},
            _KERAS_ORDERS,
            "columns",
            way=_KERAS_WAY,
        ),
    }
)
