"""Workers on this machine or on many, by dask.distributed: an executor for sweeps."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from gradprop._checks import integer
from gradprop._execution import (
    WorkerDiedError,
    WorkersLostError,
    leave_interrupts_to_the_driver,
)
from gradprop.environment import available_cores, library_version, source_digest

LOCAL = "local"
_LOG = logging.getLogger("gradprop")
_ANSWER_SECONDS = 10.0
_RETURN_SECONDS = 120.0
_COUNT_SECONDS = 5.0  # how long a count of workers is believed


class SchedulerError(RuntimeError):
    """No scheduler can be used; the text says which, and how to run without it."""


class OtherLibraryError(RuntimeError):
    """A worker has other sources of this package than the driver: its values cannot be mixed."""


@contextmanager
def dask_executor(address: str = LOCAL, n_workers: int | None = None) -> Iterator[Executor]:
    """Workers of dask.distributed as an executor for :meth:`gradprop.sweep.Sweep.run`.

    Parameters
    ----------
    address : str, default: "local"
        ``"local"`` starts a scheduler and workers here, on the loopback interface, and ends them
        with the block. Any other text is the address of a running scheduler, ``tcp://HOST:PORT``.
    n_workers : int, default: all cores
        Number of local workers, one thread each; without meaning for a running scheduler, whose
        workers may come and go.

    Returns
    -------
    context manager of concurrent.futures.Executor

    Raises
    ------
    ValueError
        The address is none.
    SchedulerError
        dask.distributed is not installed, or no scheduler answers at the address within 10 s.

    Notes
    -----
    Workers of a running scheduler need the same gradprop, and to import the modules beside a
    study's script (``PYTHONPATH``). A worker that dies costs its groups in hand, which others
    repeat; a scheduler that is started again at the same address within 2 min is found again, but
    its workers have to be started again too, as dask's end with it.
    A local start takes about 2 s.

    Examples
    --------
    >>> with dask_executor("local", 2) as executor:  # doctest: +SKIP
    ...     result = sweep.run("records.sqlite", executor)
    """
    checked_address(address)
    if n_workers is not None:
        integer("n_workers", n_workers, minimum=1)
    try:
        import distributed
    except ImportError as error:
        raise SchedulerError(
            "a scheduler needs dask.distributed: pip install 'gradprop[distributed]'; or run on "
            "this machine with --jobs N."
        ) from error
    del distributed
    if address == LOCAL:
        with _local_cluster(n_workers or available_cores()) as cluster:
            executor = DaskExecutor(cluster.scheduler_address, check_library=False)
            try:
                executor.ignore_interrupts()
                yield executor
            finally:
                executor.shutdown()
    else:
        executor = DaskExecutor(address, check_library=True)
        try:
            yield executor
        finally:
            executor.shutdown()


def checked_address(address: Any) -> str:
    """Return what can be the address of a scheduler, or ``"local"``.

    Parameters
    ----------
    address : str

    Returns
    -------
    str

    Raises
    ------
    ValueError
        It has no known protocol, no host or no port.

    Examples
    --------
    >>> checked_address("tcp://127.0.0.1:8786")
    'tcp://127.0.0.1:8786'
    """
    if address != LOCAL and not re.fullmatch(r"(tcp|tls)://[^/]+:\d+", str(address)):
        raise ValueError(f"`address` must be 'local' or tcp://HOST:PORT; got {address!r}.")
    return str(address)


@contextmanager
def _local_cluster(n_workers: int) -> Iterator[Any]:
    import dask.config
    from distributed import LocalCluster

    with (
        # Else a worker is given up that happens to be down 15 s after it died before.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1000h"}),
        _short_logs(),
        tempfile.TemporaryDirectory(prefix="gradprop-") as folder,
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


def _short_logs() -> AbstractContextManager[Any]:
    """Of the last messages dask keeps copies, 1000 a connection: groups of points in them too."""
    import dask.config

    kept: AbstractContextManager[Any] = dask.config.set(
        {"distributed.admin.low-level-log-length": 10}
    )
    return kept


class DaskExecutor(Executor):
    """Sends calls to a scheduler, and finds it again when it was restarted.

    A call that was lost with a scheduler is cancelled: whoever waits for it may submit it again.
    """

    def __init__(self, address: str, *, check_library: bool) -> None:
        self._address = address
        self._sources = _sources() if check_library else None
        self._tasks: set[Any] = set()
        self._count, self._counted = 1, -1e9
        self._client = self._connected(_ANSWER_SECONDS)

    def _connected(self, seconds: float) -> Any:
        from distributed import Client

        try:
            with _short_logs():
                return Client(self._address, timeout=seconds, set_as_default=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise SchedulerError(
                f"no scheduler answers at {self._address} within {seconds:.0f} s ({error}): start "
                "one with `dask scheduler`, check the address, or run on this machine with "
                "--scheduler local or --jobs N."
            ) from error

    @property
    def _max_workers(self) -> int:
        """Threads of all workers there are now, at least one; asked for now and then."""
        if time.monotonic() - self._counted > _COUNT_SECONDS and self._client.status == "running":
            self._counted = time.monotonic()
            # Without a scheduler the last count will do until it is back.
            with suppress(OSError, TimeoutError, RuntimeError):
                self._count = sum(self._client.nthreads().values())
                if not self._count:
                    _LOG.warning("No worker is at %s: waiting until one joins.", self._address)
        return max(1, self._count)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Send a call; it counts as running at once, for nobody can tell from here."""
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()
        client = self._running_client()
        task = client.submit(_called, self._sources, function, arguments, named, pure=False)
        self._tasks.add(task)
        client.loop.add_callback(self._deliver, task, answer)
        return answer

    async def _deliver(self, task: Any, answer: Future[Any]) -> None:
        from distributed.scheduler import KilledWorker

        try:
            result = await task._result(raiseit=False)
        except BaseException:  # a client that was closed
            result, status = None, "cancelled"
        else:
            status = task.status
        self._tasks.discard(task)
        if status == "finished":
            answer.set_result(result)
        elif status == "error" and isinstance(result[1], KilledWorker):
            answer.set_exception(
                WorkerDiedError(
                    f"WorkerDiedError: it ended {result[1].allowed_failures + 1} workers; perhaps "
                    "memory ran out"
                )
            )
        elif status == "error":
            answer.set_exception(result[1])
        else:
            _cancel(answer)

    def _running_client(self) -> Any:
        """The client, once it has a scheduler: waits for one that is being restarted."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while self._client.status != "running":
            if time.monotonic() > deadline:
                raise WorkersLostError(
                    f"the scheduler at {self._address} went away and did not come back within "
                    f"{_RETURN_SECONDS:.0f} s. What is finished is kept."
                )
            if self._client.status in ("closed", "closing"):
                try:
                    self._client = self._connected(_ANSWER_SECONDS)
                except SchedulerError:
                    continue
            time.sleep(0.05)
        return self._client

    def ignore_interrupts(self) -> None:
        """Leave Ctrl-C to the driver, in the workers there are and in those to come."""
        from distributed import WorkerPlugin

        class Deaf(WorkerPlugin):  # type: ignore[misc]
            def setup(self, worker: Any) -> None:
                leave_interrupts_to_the_driver()

        self._client.register_plugin(Deaf())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is not finished and leave the scheduler."""
        for task in list(self._tasks):
            task.release()
        self._client.close()


def _cancel(answer: Future[Any]) -> None:
    from concurrent.futures import CancelledError

    answer.set_exception(CancelledError())


def _sources() -> str:
    return f"{library_version()}+{source_digest()}"


def _called(sources: str | None, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
    """On a worker: call, if it has the driver's sources of this package."""
    if sources is not None and sources != _sources():
        raise OtherLibraryError(
            f"a worker has gradprop {_sources()}, the driver {sources}: install the same one, and "
            "start the workers again."
        )
    return function(*arguments, **named)
