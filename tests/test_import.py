"""What importing costs: the facade loads nothing, and no module loads the slow libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from helpers import ROOT

SLOW = ("matplotlib", "pandas", "scipy.linalg")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "gradprop").rglob("*.py")
    if not path.name.startswith("__")
)


def loaded_after(code: str) -> set[str]:
    """Modules of a fresh interpreter after it ran `code`."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_facade_loads_no_module_of_its_own() -> None:
    loaded = loaded_after("import gradprop\ndir(gradprop)\ngradprop.__version__")
    assert loaded.isdisjoint(SLOW)
    assert "numba" not in loaded
    assert {name for name in loaded if name.startswith("gradprop.")} == set()


def test_all_modules_load_no_slow_library() -> None:
    assert loaded_after("import " + ", ".join(MODULES)).isdisjoint(SLOW)


def test_every_public_name_can_be_had() -> None:
    import gradprop

    assert len(set(gradprop.__all__)) == len(gradprop.__all__)
    assert set(gradprop.__all__) <= set(dir(gradprop))
    for name in gradprop.__all__:
        assert getattr(gradprop, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        gradprop.no_such_name  # noqa: B018


def test_a_public_name_is_never_the_module_that_holds_it() -> None:
    """Importing gradprop.rollout would bind the module over the function gp.rollout."""
    imports = "import gradprop as gp, " + ", ".join(MODULES)
    check = "wrong = [n for n in gp.__all__ if isinstance(getattr(gp, n), type(gp))]"
    loaded_after(f"{imports}\n{check}\nassert not wrong, wrong")
    loaded_after(f"import gradprop as gp\n{check}\n{imports}\n{check}\nassert not wrong, wrong")


def test_types_are_published() -> None:
    assert (ROOT / "gradprop" / "py.typed").is_file()


def test_the_static_view_of_the_facade_agrees_with_the_lazy_one() -> None:
    import ast

    import gradprop

    stub = ast.parse((ROOT / "gradprop" / "__init__.pyi").read_text(encoding="utf-8"))
    shown = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert shown == {name: f"gradprop.{home}" for name, home in gradprop._HOME.items()}
