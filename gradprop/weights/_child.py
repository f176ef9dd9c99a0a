"""Foreign parsers (HDF5, ONNX, PyTorch) run in a process of their own, with limits."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from numpy.typing import NDArray

from gradprop.weights import _worker
from gradprop.weights._npz import read_npz, unpacked_limit

SECONDS = 60
"""Time a parser may take; importing torch is a few seconds of it."""
PACKAGES = {"keras": "h5py", "onnx": "onnx", "torch": "torch", "safetensors": "safetensors"}
"""What each kind of file needs, by the extra of this package that installs it."""


def missing(extra: str) -> ImportError:
    """What to say if the package of an extra is not there."""
    return ImportError(
        f"reading this file needs the package {PACKAGES[extra]}: pip install 'gradprop[{extra}]'."
    )


def read_in_child(kind: str, path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Arrays and settings of a file, parsed where a hostile file can do no harm."""
    if importlib.util.find_spec(PACKAGES[kind]) is None:
        raise missing(kind)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "arrays.npz"
        limit = unpacked_limit(os.path.getsize(path))
        # -P: the worker's own folder is not where modules come from; one BLAS thread: no buffers
        command = [sys.executable, "-P", _worker.__file__, kind, os.fspath(path), str(result)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [*command, str(limit), str(SECONDS)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                timeout=SECONDS, env=environment, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"`path` {os.fspath(path)!r} could not be read within {SECONDS} s."
            ) from None
        if done.returncode:
            raise ValueError(f"`path` {os.fspath(path)!r} {_reason(done.returncode, done.stderr)}")
        return {unquote(name): array for name, array in read_npz(result).items()}


def _reason(code: int, stderr: bytes) -> str:
    """Why the worker failed: its own sentence, or what befell it."""
    text = stderr[-4000:].decode(errors="replace").strip()
    if code == _worker.REFUSED:
        return text.rpartition("\n")[2]
    if code == _worker.NO_MEMORY:
        return "needs far more memory to read than its size allows: it is damaged."
    return f"is damaged: its parser ended with code {code}."
