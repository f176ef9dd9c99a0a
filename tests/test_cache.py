"""Compiled code on disk: never stale, never needed, one build per dtype."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from helpers import ROOT, layouts
from test_kernels import jitted

import gradprop as gp
from gradprop._kernels import jit

CODE = """
import numpy as np
from gradprop._kernels import rows
out = np.empty(1)
rows.complement_row(rows.SIGMOID, np.zeros(1), out)
print(out[0], sum(rows.complement_row.stats.cache_hits.values()), jit.cache_folder("rows"))
""".replace("import rows", "import jit, rows")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, without compiled code."""
    copy = tmp_path / "gradprop"
    shutil.copytree(ROOT / "gradprop", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run(package: Path, **changes: str) -> tuple[float, int, str]:
    """Value, cache hits and cache folder of a kernel of the copy, in a fresh interpreter."""
    env = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    env |= {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", **changes}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, env=env,
        cwd=package.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, hits, folder = done.stdout.split()
    return float(value), int(hits), folder


def test_a_changed_callee_is_compiled_into_its_callers(package):
    """Numba alone would take the caller from its cache and give the old number."""
    assert run(package)[:2] == (0.5, 0)
    assert run(package)[:2] == (0.5, 1)
    path = package / "_kernels" / "activations.py"
    text = path.read_text(encoding="utf-8")
    at = text.index("return", text.index("\ndef complement("))
    path.write_text(f"{text[:at]}return z + 3\n    {text[at:]}", encoding="utf-8")
    assert run(package)[0] == 3.0


@pytest.mark.parametrize("chosen", [False, True])
def test_without_a_place_to_write_every_process_compiles(package, tmp_path, chosen):
    """Files stand where folders would be made: as on a read-only disk, even for root."""
    (package / "_kernels" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    changes = {"HOME": str(tmp_path / "home")}
    if chosen:
        changes["NUMBA_CACHE_DIR"] = str(tmp_path / "chosen")
    value, _, folder = run(package, **changes)
    assert value == 0.5
    assert (folder == "None") is not chosen
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["gradprop", "home", *["chosen"][:chosen]]
    )


def test_a_user_without_a_home_gets_no_folder_named_tilde(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jit, "HERE", tmp_path / "a_file" / "package")
    (tmp_path / "a_file").write_text("")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(jit, "_digest", lambda module: "0")
    assert jit.cache_folder.__wrapped__("rows") is None
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_one_build_per_dtype():
    rng = np.random.default_rng(0)

    def call(dtype, layout):
        def draw(*shape):
            return layouts(rng.standard_normal(shape).astype(dtype))[layout]

        cell, x = gp.RNN(draw(3, 3), draw(3, 2), draw(3)), draw(2, 8, 2)
        gp.rollout(cell, x)
        gp.backward(cell, x, draw(2, 8, 3))
        for chain in (gp.linearise(cell, x), gp.JacobianChain.dense(draw(2, 8, 3, 3))):
            gp.log_norms(chain)
            gp.singular_values(chain)
            gp.lyapunov_spectrum(chain)
            gp.gradient_by_lag(chain, draw(3))

    call(np.float64, "C")
    before = {name: len(f.signatures) for name, f in jitted().items()}
    for layout in ("Fortran", "strided", "backwards", "read-only", "byte-swapped"):
        call(np.float64, layout)
    assert {name: len(f.signatures) for name, f in jitted().items()} == before
    call(np.float32, "C")
    after = {name: len(f.signatures) for name, f in jitted().items()}
    assert all(after[name] <= before[name] + 1 for name in before)
    for layout in ("Fortran", "strided", "backwards", "read-only", "byte-swapped"):
        call(np.float32, layout)
    assert {name: len(f.signatures) for name, f in jitted().items()} == after
