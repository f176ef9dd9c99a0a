"""House rules that can be read off the source: layers, lazy imports, sizes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers import ROOT

# From the bottom up. A module imports only from rows above its own here; modules of one package
# (_kernels, lyapunov, ...) may import each other.
LAYERS = (
    ("_kernels",),
    ("statuses",),
    ("results", "environment", "_checks"),
    ("_threads", "_files", "quadrature"),
    ("spectral", "largest", "activations", "blocks"),
    ("_ensembles", "cells", "slopes"),
    ("initialisation",),
    ("_layouts",),
    ("_laws",),
    ("_customlaw",),
    ("_stacklaw",),
    ("orbit",),
    ("rollout", "sources", "whole"),
    ("chain",),
    ("linearise", "measure"),
    ("graded", "modular"),
    ("escalation",),
    ("rotations",),
    ("agreement",),
    ("_stripfold",),
    ("_probefold", "_productfold"),
    ("theory", "norms", "pullback", "slopelaw", "gates", "gaussian_products"),
    ("critical", "random_spectrum"),
    ("horizon",),
    ("singular",),
    ("_enclosures", "_scalings"),
    ("certificates", "transients"),
    ("_boundfolds", "_normbounds", "perron"),
    ("_boundcurves", "_splitfold"),
    ("_scaledfold",),
    ("bounds",),
    ("lyapunov",),
    ("moments", "pooling"),
    ("gradients",),
    ("precision",),
    ("edge",),
    ("weights",),
    ("_drawing",),
    ("figures",),
    ("report",),
    ("diagnosis",),
    ("_code", "_grid", "_interrupts", "_progress", "_records", "_shards", "_storefile"),
    ("_points",),
    ("store", "_sweepresult", "_work"),
    ("_execution", "_gather", "_storemerge", "_travel"),
    ("cluster", "_run"),
    ("sweep",),
    ("_manifest", "_storecli", "_studyflags", "_studyrun"),
    ("study", "_series"),
    ("cli",),
    ("__main__",),
    ("studies",),
)
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
FACADE = "gradprop"  # gradprop/__init__.py: for users and studies, never for the package itself
SLOW_TO_IMPORT = ("matplotlib", "pandas", "scipy.linalg")
MAX_FILE, MAX_KERNEL_FILE, MAX_FUNCTION = 300, 400, 40

LIBRARY = sorted((ROOT / "gradprop").rglob("*.py"))
SOURCES = LIBRARY + sorted((ROOT / "studies").rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(path: Path) -> str:
    """The row entry a file belongs to: its module or package right under gradprop, or studies."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "gradprop" else "studies"


def target_layers(module: str, names: list[str]) -> Iterator[str]:
    """Layers that ``from module import names`` (or ``import module``) reaches."""
    parts = module.split(".")
    if parts[0] == "studies":
        yield "studies"
    elif parts[0] == "gradprop" and len(parts) > 1:
        yield parts[1]
    elif parts[0] == "gradprop":
        for name in names or [FACADE]:
            if name != "__version__":
                yield name if name in RANK else FACADE


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line, absolute module, imported names) of every import below `tree`."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module, [alias.name for alias in node.names]


def upward_imports(path: Path) -> list[str]:
    own = layer_of(path)
    problems = []
    for line, module, names in imports(tree_of(path), path):
        for target in target_layers(module, names):
            if target == own or (own == "studies" and target == FACADE):
                continue
            if target not in RANK:
                problems.append(f"line {line}: `{module}` is in no layer")
            elif RANK[target] >= RANK[own]:
                problems.append(f"line {line}: {own} imports {target}, which is not below it")
    return problems


def _module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run on import: not in functions, not under ``if TYPE_CHECKING``."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def slow_imports(path: Path) -> list[str]:
    problems = []
    for node in _module_level(tree_of(path)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for line, module, names in imports(node, path):
            reached = {module, *(f"{module}.{name}" for name in names)}
            for slow in SLOW_TO_IMPORT:
                if any(r == slow or r.startswith(f"{slow}.") for r in reached):
                    problems.append(f"line {line}: {slow} belongs inside the function that uses it")
    return problems


def long_functions(path: Path) -> list[str]:
    problems = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if length > MAX_FUNCTION:
                problems.append(f"line {node.lineno}: {node.name} has {length} lines")
    return problems


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_library_module(path: Path) -> None:
    if path != ROOT / "gradprop" / "__init__.py":
        assert layer_of(path) in RANK, "name its layer in LAYERS and in CONTRIBUTING.md"
        assert upward_imports(path) == []
    assert slow_imports(path) == []


def test_studies_import_only_the_library_and_the_runner() -> None:
    problems = {name_of(p): upward_imports(p) for p in SOURCES if p not in LIBRARY}
    assert {name: found for name, found in problems.items() if found} == {}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_sizes(path: Path) -> None:
    limit = MAX_KERNEL_FILE if "_kernels" in path.parts else MAX_FILE
    n_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert n_lines <= limit
    assert long_functions(path) == []


def test_the_rules_find_what_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    folder = tmp_path / "gradprop"
    (folder / "lyapunov").mkdir(parents=True)
    file = folder / "chain.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nimport numpy\nfrom gradprop._kernels.jit import jit\n"
        "from . import _checks, results\nif TYPE_CHECKING:\n    import pandas\n"
        "def f():\n    import matplotlib\n    from gradprop.norms import g\n"
        "class A:\n    from scipy import linalg\nimport gradprop\nfrom gradprop import nowhere\n"
        "from gradprop.unknown import x\ntry:\n    import pandas.api\nfinally:\n    pass\n"
    )
    assert len(upward_imports(file)) == 4
    assert len(slow_imports(file)) == 2
    inner = folder / "lyapunov" / "spectrum.py"
    inner.write_text(
        "from .intervals import a\nfrom ..gradients import b\n"
        "def f():\n    '''doc\n    '''\n" + "    a = 1\n" * 41
    )
    assert upward_imports(inner) == ["line 2: lyapunov imports gradients, which is not below it"]
    assert long_functions(inner) == ["line 3: f has 41 lines"]
