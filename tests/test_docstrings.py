"""Public names: numpydoc docstrings that match their signatures, with examples that run."""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import ROOT

EXAMPLE = re.compile(r"^ +>>> ", re.MULTILINE)
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "gradprop").rglob("*.py")
    if not path.name.startswith("__") and EXAMPLE.search(path.read_text(encoding="utf-8"))
)


def sections(docstring: str) -> dict[str, list[str]]:
    """Lines below each underlined numpydoc heading."""
    lines = docstring.splitlines()
    found: dict[str, list[str]] = {}
    heading = None
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and not line[0].isspace() and re.fullmatch(r"-{3,}", below):
            heading = line.strip()
            found[heading] = []
        elif heading and not re.fullmatch(r"-{3,}", line):
            found[heading].append(line)
    return found


def described(lines: list[str]) -> list[str]:
    """Names that a Parameters or Attributes section describes, in order."""
    names = []
    for line in lines:
        if line and not line[0].isspace():
            names += [name.strip().lstrip("*") for name in line.partition(" : ")[0].split(",")]
    return names


def parameters_of(function: Any) -> list[inspect.Parameter]:
    given = inspect.signature(function).parameters.values()
    return [p for p in given if p.name not in ("self", "cls")]


def undocumented(name: str, function: Any, required: tuple[str, ...]) -> list[str]:
    """What a function's docstring and annotations lack."""
    docstring = inspect.getdoc(function)
    if not docstring:
        return [f"{name}: no docstring"]
    parameters, parts = parameters_of(function), sections(docstring)
    problems = [
        f"{name}: no section {heading}"
        for heading in required
        if heading not in parts and (heading != "Parameters" or parameters)
    ]
    if "Parameters" in parts and described(parts["Parameters"]) != [p.name for p in parameters]:
        problems.append(
            f"{name}: Parameters {described(parts['Parameters'])} are not the signature"
        )
    bare = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
    if bare or inspect.signature(function).return_annotation is inspect.Signature.empty:
        problems.append(f"{name}: without annotation: {bare or 'return'}")
    return problems


def own_methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{cls.__name__}.{name}", function


def undocumented_class(cls: type) -> list[str]:
    """As `undocumented`; constructor arguments or fields stand in Parameters or Attributes."""
    docstring = cls.__doc__ or ""
    parts = sections(inspect.cleandoc(docstring))
    known = described(parts.get("Parameters", []) + parts.get("Attributes", []))
    inherited = {n for base in cls.__mro__[1:] for n in getattr(base, "__annotations__", {})}
    constructed = not issubclass(cls, enum.Enum)
    wanted = [p for p in parameters_of(cls) if constructed and p.name not in inherited]
    problems = [f"{cls.__name__}: {p.name} not described" for p in wanted if p.name not in known]
    unknown = set(described(parts.get("Parameters", []))) - {p.name for p in parameters_of(cls)}
    problems += [f"{cls.__name__}: describes {name}, not an argument" for name in sorted(unknown)]
    bare = [p.name for p in wanted if p.annotation is inspect.Parameter.empty]
    problems += [f"{cls.__name__}: {name} without annotation" for name in bare]
    for name, method in own_methods(cls):
        problems += undocumented(name, method, ())
    return problems if docstring.strip() else [f"{cls.__name__}: no docstring"]


def test_public_names_are_documented_and_annotated() -> None:
    import gradprop

    problems: list[str] = []
    for name in gradprop.__all__:
        value = getattr(gradprop, name)
        if inspect.isclass(value):
            problems += undocumented_class(value)
        elif inspect.isfunction(value):
            problems += undocumented(name, value, ("Parameters", "Returns", "Examples"))
    assert problems == []


def test_documentation_rules_find_what_they_are_for() -> None:
    def bad(a: int, b, *, c: int = 0):  # type: ignore[no-untyped-def]
        """Say something.

        Parameters
        ----------
        a : int
            Text.
        c, b : int
        """

    class Described:
        """Text.

        Attributes
        ----------
        a : int
        """

        def __init__(self, a: int, d: int) -> None: ...

    assert undocumented("bad", bad, ("Parameters", "Returns")) == [
        "bad: no section Returns",
        "bad: Parameters ['a', 'c', 'b'] are not the signature",
        "bad: without annotation: ['b']",
    ]
    assert undocumented_class(Described) == ["Described: d not described"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0
