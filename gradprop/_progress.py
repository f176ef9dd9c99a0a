"""How far a sweep has got: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts points on stderr; silent if `show` is False.

    The rate and the estimate are of the points computed in this run, not of those found finished.
    """

    def __init__(self, name: str, total: int, finished: int, *, show: bool) -> None:
        self._name, self._total, self._before = name, total, finished
        self._done = self._failed = 0
        self._start = self._last_line = time.monotonic()
        self._bar: Any = None
        self._lines = show and not sys.stderr.isatty()
        if self._lines:
            found = f", {finished} finished before" if finished else ""
            print(f"{name}: {total} points{found}", file=sys.stderr, flush=True)
        elif show:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=finished, desc=name, unit="point", file=sys.stderr
            )

    def add(self, n_done: int, n_failed: int) -> None:
        """Count points that were computed, failed ones included."""
        self._done += n_done
        self._failed += n_failed
        if self._bar is not None:
            if self._failed:
                self._bar.set_postfix_str(f"{self._failed} failed", refresh=False)
            self._bar.update(n_done)
        now = time.monotonic()
        if self._lines and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._start
        n_finished = self._before + self._done
        failed = f", {self._failed} failed" if self._failed else ""
        rate = self._done / max(seconds, 1e-9)
        left = (self._total - n_finished) / rate if rate else 0.0
        rest = f", about {left:.0f} s left" if left else f" in {seconds:.1f} s"
        text = (
            f"{self._name}: {n_finished}/{self._total} points{failed}, {rate:.3g} per second{rest}"
        )
        print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._lines and self._done:
            self._line()
