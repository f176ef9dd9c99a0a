"""A hash of what a function computes, so that an edited study does not read outdated records."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from gradprop._files import canonical_json, digest


def code_digest(function: Callable[..., Any]) -> str:
    """Hash the meaning of a function: its source and that of its helpers beside it.

    Followed are functions, classes and plain constants of modules in the function's own folder,
    and arguments bound by functools.partial. Comments, docstrings and layout do not count, nor
    do libraries, whose versions are recorded apart.
    """
    found: dict[str, str] = {}
    _collect(function, _folder(function), found)
    return digest(canonical_json(found))


def _folder(function: Any) -> Path | None:
    try:
        return Path(inspect.getfile(_unwrapped(function))).resolve().parent
    except (TypeError, OSError):
        return None


def _unwrapped(function: Any) -> Any:
    """The plain function below partial, functools.wraps and Numba's dispatcher."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "py_func"):
            function = function.py_func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def _collect(item: Any, folder: Path | None, found: dict[str, str]) -> None:
    if isinstance(item, functools.partial):
        found["partial"] = _constant([list(item.args), item.keywords])
    plain = _unwrapped(item)
    name = getattr(plain, "__qualname__", type(plain).__qualname__)
    if name in found:
        return
    found[name] = _source(plain)
    if isinstance(plain, type):
        functions = [f for f in vars(plain).values() if isinstance(f, FunctionType)]
    else:
        functions = [plain] if isinstance(plain, FunctionType) else []
    for function in functions:
        for used, value in _globals_of(function):
            if used not in found:
                _follow(used, value, folder, found)


def _follow(name: str, value: Any, folder: Path | None, found: dict[str, str]) -> None:
    plain = _unwrapped(value)
    if isinstance(plain, FunctionType | type):
        if folder is not None and _folder(plain) == folder:
            _collect(value, folder, found)
        return
    if isinstance(value, ModuleType):
        if folder is not None and _folder(value) == folder:
            found[name] = _source(value)
        return
    if isinstance(value, np.ndarray | np.generic | str | bool | int | float | list | tuple | dict):
        found[name] = _constant(value)


def _constant(value: Any) -> str:
    """Text of a constant; of objects in it the type alone, for their repr may hold addresses."""
    try:
        return digest(canonical_json(value))
    except (TypeError, ValueError):
        return digest(json.dumps(value, default=lambda item: type(item).__name__, skipkeys=True))


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Global and closed-over names that a function (or one nested in it) reads."""
    closed = inspect.getclosurevars(function).nonlocals
    yield from sorted(closed.items())
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> set[str]:
    names = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _source(function: Any) -> str:
    """Text of a function without comments, docstrings and layout; its bytecode if there is none."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        code = getattr(function, "__code__", None)
        return code.co_code.hex() if code else type(function).__qualname__
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
