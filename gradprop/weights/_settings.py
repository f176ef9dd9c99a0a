"""What the arrays do not say: activations, where the reset gate stands, declared sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradprop import _checks
from gradprop.activations import Activation
from gradprop.weights._stored import N_BLOCKS
from gradprop.weights._table import Convention

_KERAS = {
    **{name: name for name in ("tanh", "relu", "sigmoid", "softplus", "selu", "gelu", "linear")},
    "hard_sigmoid": "hard_sigmoid",
}
_ONNX = {
    **{"Tanh": "tanh", "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus"},
    **{"HardSigmoid": "hard_sigmoid", "LeakyRelu": "leaky_relu"},
}
_ONNX_FIXED = {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, None)}
"""alpha and beta with which an ONNX activation is this package's; these are ONNX's defaults."""
_ONNX_DEFAULT = {
    "RNN": ["Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def canonical(table: Convention, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options under their canonical names; unknown ones are refused."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"`options` must be a mapping; got {type(options).__name__}.")
    for name in options:
        _checks.choice("options", name, table.settings)
    return {table.settings[name]: value for name, value in options.items()}


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings common to all conventions, checked; None means not said."""
    known = {name: value for name, value in settings.items() if value is not None}
    if "kind" in known:
        _checks.choice("kind", known["kind"], N_BLOCKS)
    if "hidden_size" in known:
        _checks.integer("hidden_size", known["hidden_size"], minimum=1)
    if "layer" in known:
        _checks.integer("layer", known["layer"], minimum=0)
    if "orientation" in known:
        _checks.choice("orientation", known["orientation"], ("rows", "columns"))
    if "reset_after" in known:
        known["reset_after"] = bool(
            _checks.choice("reset_after", known["reset_after"], (True, False, 0, 1))
        )
    return known


def activations(
    table: Convention, kind: str, ways: int, settings: Mapping[str, Any]
) -> list[tuple[str | Activation, str | Activation]]:
    """Gate activation and activation of each direction."""
    if table.name == "onnx":
        return _onnx(kind, ways, settings)
    gate, own = settings.get("gate_activation", "sigmoid"), settings.get("activation", "tanh")
    if table.name == "keras":
        modern = str(settings.get("version", "")).partition(".")[0]
        gate, own = (_keras(value, modern.isdigit() and int(modern) >= 3) for value in (gate, own))
    return [(gate, own)] * ways


def _keras(value: Any, modern: bool) -> str | Activation:
    if isinstance(value, Activation):
        return value
    if value == "hard_sigmoid" and modern:
        raise ValueError(
            "`recurrent_activation` must be one of this package; got 'hard_sigmoid' of Keras 3, "
            "clip(z/6 + 0.5), which is not that of Keras 2, clip(0.2 z + 0.5): pass an Activation "
            "of your own as options={'recurrent_activation': ...}."
        )
    return _KERAS[_checks.choice("activation", value, _KERAS)]


def _onnx(
    kind: str, ways: int, settings: Mapping[str, Any]
) -> list[tuple[str | Activation, str | Activation]]:
    if settings.get("clip"):
        raise ValueError(f"`clip` must be absent: no cell clips its gates; got {settings['clip']}.")
    if settings.get("input_forget"):
        raise ValueError("`input_forget` must be 0: no cell couples its input and forget gates.")
    direction = _checks.choice("direction", settings.get("direction", "forward"), DIRECTIONS)
    if DIRECTIONS[direction] != ways:
        raise ValueError(
            f"`direction` must fit the arrays: {direction!r} means {DIRECTIONS[direction]}, but "
            f"they hold {ways}."
        )
    default = _ONNX_DEFAULT[kind]
    names = list(settings.get("activations") or default * ways)
    if len(names) != len(default) * ways:
        raise ValueError(
            f"`activations` must name {len(default) * ways} functions for an {kind} of {ways} "
            f"direction(s); got {len(names)}."
        )
    own = _onnx_names(names, settings)
    return [_onnx_pair(own[i : i + len(default)]) for i in range(0, len(own), len(default))]


def _onnx_names(names: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Names in this package; alpha and beta, given only where a function has them, must fit."""
    given = {"alpha": list(settings.get("alpha") or ()), "beta": list(settings.get("beta") or ())}
    for name in names:
        _checks.choice("activations", name, _ONNX)
        for letter, wanted in zip(("alpha", "beta"), _ONNX_FIXED.get(name, ()), strict=False):
            if wanted is None:
                continue
            value = given[letter].pop(0) if given[letter] else wanted
            if abs(value - wanted) > 1e-7:  # stored as float32
                raise ValueError(
                    f"`activation_{letter}` of {name} must be {wanted}; got {value}: pass the "
                    "arrays to a cell with an Activation of your own."
                )
    return [_ONNX[name] for name in names]


def _onnx_pair(names: list[str]) -> tuple[str, str]:
    """Gate activation and activation of one direction."""
    if len(names) == 3 and names[1] != names[2]:
        raise ValueError(
            "`activations` of an LSTM must be the same for candidate and output; got "
            f"{names[1]} and {names[2]}."
        )
    return (names[0], names[1]) if len(names) > 1 else ("sigmoid", names[0])
