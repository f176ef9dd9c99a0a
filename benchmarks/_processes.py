"""Children of the benchmark: threads of every library are set before anything is imported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from _cases import Case, from_dict

SPEED = Path(__file__).resolve().with_name("speed.py")
ROOT = SPEED.parents[1]
ONE_THREAD_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_LIMITS = ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMBA")


def search_path() -> str:
    """PYTHONPATH with this checkout before any installed gradprop."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def environment(n_threads: int) -> dict[str, str]:
    """Of a child in which every library uses `n_threads` threads."""
    found = dict(os.environ, PYTHONPATH=search_path())
    found |= {f"{name}_NUM_THREADS": str(n_threads) for name in _LIMITS}
    found |= {"NPROC": str(n_threads), "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    found |= {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    if n_threads == 1:
        found["XLA_FLAGS"] = ONE_THREAD_XLA
    return found


def threads() -> int:
    """How many this child was given."""
    return int(os.environ["NUMBA_NUM_THREADS"])


def present(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def installed(names: Iterable[str]) -> list[str]:
    """Those that can be imported, PyTorch with its threads set."""
    found = [name for name in names if present(name)]
    if "torch" in found:
        import torch

        torch.set_num_threads(threads())
    return found


def cases(row: str, sizes: Iterable[int], *, n_threads: int = 1, only: str = "") -> Iterator[Case]:
    """Cases of a row as a process of its own prints them, one JSON object a line."""
    command = [sys.executable, str(SPEED), "--child", row, "--sizes", ",".join(map(str, sizes))]
    command += ["--only", only] if only else []
    with subprocess.Popen(
        command, env=environment(n_threads), stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for text in child.stdout:
            if text.startswith("{"):
                yield from_dict(json.loads(text))
    if child.returncode:
        raise RuntimeError(f"row {row} {only} ended with status {child.returncode}")
