"""The one decorator of all kernels."""

import hashlib
import os
from pathlib import Path

import numba

HERE = Path(__file__).parent


def _source_digest() -> str:
    """Hash of every kernel source: Numba itself does not notice a changed callee."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """First writable of: NUMBA_CACHE_DIR, the package's own folder, the user's cache."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    bases = [
        getattr(numba.config, "CACHE_DIR", ""),
        HERE / "__pycache__",
        os.path.join(user_cache, "gradprop"),
    ]
    for base in filter(None, bases):
        folder = Path(base) / f"kernels-{_source_digest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return None


CACHE_FOLDER = _cache_folder()


def jit(function):
    """Compile lazily, once per dtype, cached on disk where a folder can be written.

    Division by zero gives inf or nan as in NumPy; the GIL is released, so that callers may
    spread replicas over threads; no fastmath, so that nothing is fused, reordered or dropped.
    """
    options = {"error_model": "numpy", "nogil": True}
    if CACHE_FOLDER is None:
        return numba.njit(**options)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = CACHE_FOLDER
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
