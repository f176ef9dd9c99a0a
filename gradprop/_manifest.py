"""What a study leaves on disk: data without times or paths, and a manifest that explains them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradprop._files import (
    canonical_json,
    data_digest,
    digest,
    read_npz,
    write_csv,
    write_json,
    write_npz,
)
from gradprop.environment import describe
from gradprop.sweep import Sweep, SweepResult

_SETTINGS = "settings"
_SHOWN = 60


@dataclass(frozen=True)
class Files:
    """Where the parts of a study lie: figures in ``folder``, all else below ``folder/data``."""

    folder: Path
    name: str

    @property
    def stem(self) -> Path:
        """Path of the figures without their endings."""
        return self.folder / self.name

    @property
    def npz(self) -> Path:
        """All data: arrays ``SWEEP/FIELD``, and the settings as JSON text."""
        return self.folder / "data" / f"{self.name}.npz"

    @property
    def store(self) -> Path:
        """Working records."""
        return self.npz.with_suffix(".sqlite")

    @property
    def manifest(self) -> Path:
        """Settings, versions, hashes and headline numbers."""
        return self.npz.with_suffix(".json")

    def table(self, position: int, sweep: str) -> Path:
        """Scalars of a sweep: ``NAME.csv`` for the first, ``NAME_SWEEP.csv`` for the others."""
        return self.npz.with_name(f"{self.name}_{sweep}.csv" if position else f"{self.name}.csv")

    def prepare(self) -> None:
        """Make the folders and see that files can be written; OSError if not."""
        for folder in (self.folder, self.npz.parent):
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".{self.name}.probe"
            probe.write_bytes(b"")
            probe.unlink()


def study_settings(name: str, sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """All that fixes a study's data but the code."""
    return {"study": name, "sweeps": {sweep.name: sweep.settings() for sweep in sweeps}}


def differences(stored: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Say at which keys two settings differ, and how."""
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        for key in sorted(stored.keys() | wanted.keys()):
            below = f"{path}.{key}" if path else key
            yield from differences(stored.get(key, "absent"), wanted.get(key, "absent"), below)
    elif stored != wanted:
        yield f"{path}: the data have {_short(stored)}, the study has {_short(wanted)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    if isinstance(value, list) and len(text) > _SHOWN:
        return f"{text[: _SHOWN // 2]} ... {json.dumps(value[-1])}] ({len(value)} values)"
    return text


def write_data(
    files: Files, settings: Mapping[str, Any], results: Sequence[SweepResult]
) -> list[Path]:
    """Write the npz of everything and the csv of scalars."""
    arrays = {_SETTINGS: np.array(canonical_json(settings))}
    for result in results:
        for field, array in {**result.points, **result.values}.items():
            arrays[f"{result.name}/{field}"] = array
    written = [write_npz(files.npz, arrays)]
    for position, result in enumerate(results):
        if position == 0 or any(array.ndim == 1 for array in result.values.values()):
            written.append(write_csv(files.table(position, result.name), result.scalars()))
    return written


def read_data(path: Path) -> tuple[dict[str, Any], dict[str, SweepResult], str]:
    """Read what :func:`write_data` wrote: settings, results by sweep, hash of all data.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file, it is damaged, or no study wrote it.
    """
    arrays = read_npz(path)
    if _SETTINGS not in arrays:
        raise ValueError(f"{path} was not written by a study.")
    settings: dict[str, Any] = json.loads(str(arrays[_SETTINGS]))
    results = {}
    for name, sweep in settings["sweeps"].items():
        own = [key for key in arrays if key.startswith(f"{name}/")]
        found = {key.partition("/")[2]: arrays[key] for key in own}
        points = {field: found.pop(field) for field in sweep["fields"]}
        results[name] = SweepResult(name, points, found)
    return settings, results, data_digest(arrays)


def write_manifest(
    files: Files, sweeps: Sequence[Sweep], data_sha256: str, about: Mapping[str, Any]
) -> Path:
    """Write the json that says with what, from what and by what the data were made."""
    settings = study_settings(files.name, sweeps)
    return write_json(
        files.manifest,
        {
            **about,
            "settings": settings,
            "settings_sha256": digest(canonical_json(settings)),
            "data_sha256": data_sha256,
            "code": {sweep.name: sweep.code() for sweep in sweeps},
            "environment": describe(),
        },
    )


def outdated_code(files: Files, sweeps: Sequence[Sweep]) -> bool:
    """Whether the manifest says that other code made the data than would make them now."""
    try:
        code = json.loads(files.manifest.read_text("utf-8"))["code"]
    except (OSError, ValueError, KeyError):
        return False
    return bool(code != {sweep.name: sweep.code() for sweep in sweeps})


def git_state(folder: Path, outputs: Path) -> dict[str, Any]:
    """Revision of the checkout around a folder, and whether tracked files but outputs differ."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    try:
        top = Path(git("rev-parse", "--show-toplevel").strip())
        changed = git("status", "--porcelain", "--untracked-files=no", "-z").split("\0")
        touched = [(top / line[3:]).resolve() for line in changed if line]
        dirty = any(outputs.resolve() not in path.parents for path in touched)
        return {"revision": git("rev-parse", "HEAD").strip(), "dirty": dirty}
    except (OSError, subprocess.CalledProcessError):
        return {"revision": None, "dirty": None}
