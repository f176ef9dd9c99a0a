"""The one decorator of all kernels."""

import hashlib
import os
import re
from functools import cache
from pathlib import Path

import numba
import numpy as np

HERE = Path(__file__).parent

ZERO, ONE, FALSE, TRUE = np.int64(0), np.int64(1), np.bool_(False), np.bool_(True)
"""Constants to call kernels with: of a literal Numba makes a type, and compiles the callee anew."""

IMPORT = re.compile(r"from (?:gradprop\._kernels)?\.?(\w+) import")


@cache
def _sources(module: str) -> frozenset[str]:
    """A kernel module and all kernel modules that it imports, directly or not."""
    path = HERE / f"{module}.py"
    if not path.is_file():
        return frozenset()
    found = {module}
    for imported in IMPORT.findall(path.read_text(encoding="utf-8")):
        if imported != module and imported != "jit":
            found |= _sources(imported)
    return frozenset(found)


@cache
def _digest(module: str) -> str:
    """Hash of a module and its callees: Numba itself does not notice a changed callee."""
    digest = hashlib.sha256(numba.__version__.encode())
    for name in sorted(_sources(module)):
        digest.update((HERE / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder(module: str) -> str | None:
    """Folder for a module's compiled code in the first writable of three places, or None.

    NUMBA_CACHE_DIR, the package's own folder, the user's cache.
    """
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    chosen = getattr(numba.config, "CACHE_DIR", "")
    bases = [chosen, HERE / "__pycache__"]
    if os.path.isabs(user_cache):  # "~" is left as it is where nobody has a home
        bases.append(os.path.join(user_cache, "gradprop"))
    for base in filter(None, bases):
        folder = Path(base) / f"{module}-{_digest(module)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return str(folder)
    return None


def jit(function):
    """Compile lazily, once per dtype, cached on disk where a folder can be written.

    Division by zero gives inf or nan as in NumPy; the GIL is released, so that callers may
    spread replicas over threads; no fastmath, so that nothing is fused, reordered or dropped.
    The wrapper for calls from C, which none here makes, would be a tenth of the compile time.
    """
    return _compiled(function, no_cfunc_wrapper=True)


def first_class(function):
    """As `jit`, for functions that a user gets: Numba's first-class functions need the wrapper."""
    return _compiled(function)


def _compiled(function, **options):
    options |= {"error_model": "numpy", "nogil": True}
    folder = cache_folder(function.__module__.rpartition(".")[2])
    if folder is None:
        return numba.njit(**options)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        return numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def inlined(function):
    """For a kernel's inner part with one call site: compiled as part of its caller, not alone.

    A callee compiled alone is optimised again with each of its callers' callers.
    """
    return numba.njit(inline="always", error_model="numpy", nogil=True)(function)
