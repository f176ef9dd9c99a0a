"""The README's commands exist and agree with .ci/run; its examples print what it says."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys

import pytest
from helpers import ROOT

SET_UP = 'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && '
STUDY_COMMAND = SET_UP + ".venv/bin/python studies/decay_vs_rho.py"
TEST_COMMAND = SET_UP + ".venv/bin/python -m pytest -n 2 --dist loadfile"

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.is_file() else ""
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.strip()
    for language, body in BLOCKS
    if language in ("sh", "bash", "shell")
    for line in body.splitlines()
    if line.strip() and not line.lstrip().startswith("#")
]
EXAMPLES = [body for language, body in BLOCKS if language in ("python", "pycon")]
SCRIPTS = sorted({path for line in COMMANDS for path in re.findall(r"\b[\w/]+\.py\b", line)})


def test_the_two_commands_stand_in_the_readme() -> None:
    assert STUDY_COMMAND in COMMANDS
    assert TEST_COMMAND in COMMANDS


def test_the_checks_run_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run must be executable"
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert f"({TEST_COMMAND})" in lines


def test_the_set_up_of_the_commands_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r"^test = \[", project, re.MULTILINE)


def test_scripts_in_commands_are_found() -> None:
    assert "studies/decay_vs_rho.py" in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_explain_themselves(script: str) -> None:
    done = subprocess.run(
        [sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_examples_print_what_the_readme_says() -> None:
    assert EXAMPLES, "README.md has no python example"
    assert all(">>> " in body for body in EXAMPLES), "examples show their printed result"
    test = doctest.DocTestParser().get_doctest("\n".join(EXAMPLES), {}, "README.md", None, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_local_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", TEXT)
    missing = [t for t in targets if "://" not in t and not (ROOT / t).exists()]
    assert missing == []
