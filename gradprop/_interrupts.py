"""Ctrl-C, once: finish what is in hand; twice: stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

_TEXT = "\ninterrupted: finishing what is in hand; press Ctrl-C again to stop at once."


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back for a moment: processes started meanwhile never see one.

    A terminal sends it to workers too, also before they can say that they leave it to the driver.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interrupts:
    """While entered, the first Ctrl-C only asks to stop; the second is a KeyboardInterrupt.

    Leaves alone handlers that others have set, and does nothing outside the main thread.
    """

    def __init__(self) -> None:
        self.asked = False
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print(_TEXT, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
