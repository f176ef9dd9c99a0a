"""Whether a sweep's functions can reach worker processes, found out before any work."""

from __future__ import annotations

import io
import pickle
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from gradprop._work import Work


class CannotTravelError(TypeError):
    """A function cannot be sent to worker processes."""


def check_travels(work: Work, executor: Executor | int) -> None:
    """Raise before any work if `measure` cannot reach the workers of this executor."""
    if isinstance(executor, ThreadPoolExecutor):
        return
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "`executor` must not fork, for OpenMP and BLAS threads do not survive it; pass "
            'mp_context=multiprocessing.get_context("spawn") to ProcessPoolExecutor.'
        )
    try:
        if isinstance(executor, ProcessPoolExecutor):
            pickle.dumps(work)
        else:
            from joblib.externals.loky.backend.reduction import dumps

            _Probe(io.BytesIO(dumps(work))).load()
    except Exception as error:
        raise CannotTravelError(
            f"`measure` cannot travel to worker processes ({error}): define it with def at the top "
            "of a module, its cached helpers in a module that can be imported, or run without "
            "workers (executor=None, --jobs 1)."
        ) from error


class _Probe(pickle.Unpickler):
    """Read a pickle as a worker would: there, nothing can be imported from a script."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse references into the script that is running."""
        if module == "__main__":
            raise pickle.PicklingError(f"it uses {name} of the script, which workers cannot import")
        return super().find_class(module, name)
