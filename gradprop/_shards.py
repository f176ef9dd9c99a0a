"""Parts of a study that separate jobs compute, and the joining of their stores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Shard:
    """The ``number``-th of ``total`` parts, counted from 1."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``i/k``; ValueError unless 1 <= i <= k."""
        number, slash, total = text.partition("/")
        if not (slash and number.isdecimal() and total.isdecimal()):
            raise ValueError(f"must be i/k, as 2/10; got {text!r}")
        if not 1 <= int(number) <= int(total):
            raise ValueError(f"must be i/k with i from 1 to k; got {text!r}")
        return cls(int(number), int(total))

    def has(self, key: str) -> bool:
        """Whether a point belongs here: by its key alone, so that new points move no others."""
        word = hashlib.sha256(key.encode()).digest()[:8]
        return int.from_bytes(word, "little") % self.total == self.number - 1

    def store(self, whole: Path) -> Path:
        """The store of this part, beside that of the whole study."""
        name = f"{whole.stem}.shard-{self.number}-of-{self.total}{whole.suffix}"
        return whole.with_name(name)

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


def shard_stores(whole: Path) -> Iterator[Path]:
    """The stores of parts that lie beside that of a whole study."""
    yield from sorted(whole.parent.glob(f"{whole.stem}.shard-*-of-*{whole.suffix}"))
