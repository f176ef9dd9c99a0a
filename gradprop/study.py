"""One script, one claim, one figure: flags, running, data, manifest, drawing and the table."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradprop._files import canonical_json
from gradprop._manifest import (
    Files,
    differences,
    git_state,
    outdated_code,
    read_data,
    study_settings,
    write_data,
    write_manifest,
)
from gradprop.environment import available_cores, library_version
from gradprop.figures import WIDTHS, figure_width, save, style
from gradprop.store import Store, StoreBusyError, StoreError
from gradprop.sweep import CannotTravelError, Sweep, SweepFailedError, SweepResult, WorkersLostError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
Data = Mapping[str, SweepResult]
Table = Sequence[Sequence[str | float]]


class StudyError(Exception):
    """A run that cannot go on; the text is for the user, the code for the shell."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def seed_range(options: argparse.Namespace, default: int) -> list[int]:
    """Seeds that the flags ask for: ``--seed N`` is the first, ``--seeds K`` their number.

    Parameters
    ----------
    options : argparse.Namespace
        As given to the ``sweeps`` function of a study.
    default : int
        Their number without ``--seeds``.

    Returns
    -------
    list of int
        N, ..., N + K - 1: more seeds keep those that were there, and a run that shares none with
        it starts at N + K or later.

    Examples
    --------
    >>> seed_range(argparse.Namespace(seed=3, seeds=None), 2)
    [3, 4]
    """
    number = default if options.seeds is None else options.seeds
    return list(range(options.seed, options.seed + number))


@dataclass(frozen=True)
class Study:
    """A claim, the sweeps that test it, and how they are drawn.

    Parameters
    ----------
    name : str
        Stem of all files; the script's own name.
    claim : str
        What the study shows: the script's docstring.
    sweeps : callable (options) -> sequence of Sweep
        Builds the sweeps from the parsed flags: ``options.quick``, ``.seed``, ``.seeds`` (see
        :func:`seed_range`) and the study's own. A ValueError or OSError is the user's mistake.
        The first sweep is the main one.
    draw : callable (data, width) -> matplotlib.figure.Figure
        Draws from a mapping of sweep names to results, read back from the npz; width in inches.
    headline : callable (data) -> sequence of rows
        The short table printed at the end, texts and numbers; its first row is the heading.
    add_flags : callable (argparse.ArgumentParser) -> None, optional
        Adds the study's own flags.
    width : str, default: "neurips"
        Default of ``--width``.
    costs : callable (options) -> sequence of rows, optional
        Times and memory measured on this machine: printed, and kept in the manifest alone.

    Notes
    -----
    In the output folder (``figures`` beside ``studies``; ``quick`` below it with ``--quick``) lie
    ``NAME.pdf``, ``NAME.png``, and in ``data`` ``NAME.npz`` with every array under
    ``SWEEP/FIELD``, ``NAME.csv`` with the scalars of the main sweep (``NAME_SWEEP.csv`` with those
    of others), the manifest ``NAME.json`` and the working records ``NAME.sqlite``.

    ``measure`` functions of a script run in worker processes, which cannot import the script:
    helpers with a cache belong in a module beside it.

    Examples
    --------
    >>> study = Study("demo", "One.", sweeps, draw, headline)  # doctest: +SKIP
    >>> raise SystemExit(study.main())  # doctest: +SKIP
    """

    name: str
    claim: str
    sweeps: Callable[[argparse.Namespace], Sequence[Sweep]]
    draw: Callable[[Data, float], Figure]
    headline: Callable[[Data], Table]
    add_flags: Callable[[argparse.ArgumentParser], None] | None = None
    width: str = "neurips"
    costs: Callable[[argparse.Namespace], Table] | None = None

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run from the command line.

        Parameters
        ----------
        argv : sequence of str, default: the process's arguments

        Returns
        -------
        int
            0 when done, 1 if something failed, 2 for a mistake in the flags or their files, 130
            after Ctrl-C. Messages go to stderr, the table to stdout.
        """
        options = self._parser().parse_args(argv)
        try:
            return self._main(options)
        except StudyError as error:
            _say(str(error))
            return error.code
        except KeyboardInterrupt as error:
            _say(str(error) or "interrupted.")
            return INTERRUPTED

    def _main(self, options: argparse.Namespace) -> int:
        files = Files(options.out / "quick" if options.quick else options.out, self.name)
        try:
            sweeps = self.sweeps(options)
        except (ValueError, OSError) as error:
            raise StudyError(str(error), MISTAKE) from error
        _prepare(files)
        if options.redraw:
            data, sha256 = self._checked_data(files, sweeps)
            written = []
        else:
            git = git_state(_script_folder(self.draw), files.folder)
            written = self._compute(files, sweeps, options.jobs)
            _, data, sha256 = read_data(files.npz)
        written += self._draw(files, data, options.width, sha256)
        tables = {"headline": self.headline(data)}
        if not options.redraw:
            tables |= {"costs": self.costs(options)} if self.costs else {}
            about = {"claim": self.claim, "git": git, "jobs": options.jobs}
            shown = {name: [[_cell(c) for c in row] for row in t] for name, t in tables.items()}
            written.append(write_manifest(files, sweeps, sha256, about | shown))
        for table in tables.values():
            _print_table([[_cell(cell) for cell in row] for row in table])
        print("\nwritten:", *(f"  {_shown(path)}" for path in written), sep="\n")
        return DONE

    def _compute(self, files: Files, sweeps: Sequence[Sweep], jobs: int) -> list[Path]:
        """Run every sweep, go on past failed points, and write the data if all are there."""
        results, failures = [], []
        try:
            with Store(files.store) as store:
                for sweep in sweeps:
                    try:
                        results.append(sweep.run(store, executor=jobs))
                    except SweepFailedError as error:
                        failures.append(str(error))
        except (StoreBusyError, CannotTravelError) as error:
            raise StudyError(str(error), MISTAKE) from error
        except (StoreError, WorkersLostError) as error:
            raise StudyError(str(error), FAILED) from error
        if failures:
            text = "No figure is drawn from incomplete data."
            raise StudyError("\n".join([*failures, text]), FAILED)
        return write_data(files, study_settings(self.name, sweeps), results)

    def _checked_data(self, files: Files, sweeps: Sequence[Sweep]) -> tuple[Data, str]:
        """Read the data and their hash; refuse those that other settings gave, naming them."""
        try:
            stored, data, sha256 = read_data(files.npz)
        except (FileNotFoundError, ValueError) as error:
            why = f"there is no {files.npz}" if isinstance(error, FileNotFoundError) else str(error)
            text = f"nothing to redraw: {why}; run without --redraw."
            raise StudyError(text, MISTAKE) from error
        wanted = json.loads(canonical_json(study_settings(self.name, sweeps)))
        if found := list(differences(stored, wanted)):
            lines = "\n".join(f"  {line}" for line in found)
            raise StudyError(
                f"{files.npz} was computed with other settings:\n{lines}\nGive the flags it was "
                "computed with, or run without --redraw.",
                MISTAKE,
            )
        if outdated_code(files, sweeps):
            _say("note: the data were computed by an earlier version of the code.")
        return data, sha256

    def _draw(self, files: Files, data: Data, width: str, sha256: str) -> list[Path]:
        inches = figure_width(width)
        with style():
            figure = self.draw(data, inches)
        if abs(figure.get_figwidth() - inches) > 1e-9:
            raise ValueError(
                f"`draw` must return a figure {inches} inches wide; got {figure.get_figwidth()}."
            )
        subject = f"data sha256 {sha256[:16]}"
        return save(figure, files.stem, title=f"{self.name}: {width}", subject=subject)

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"{self.name}.py",
            description=self.claim,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        add("--quick", action="store_true", help="a small grid, written to the folder quick")
        add("--redraw", action="store_true", help="draw the data at hand, compute nothing")
        add("--seed", type=_at_least(0), default=0, metavar="N", help="the first seed (default: 0)")
        add("--seeds", type=_at_least(1), metavar="K", help="how many seeds: N, ..., N + K - 1")
        add(
            "--jobs",
            type=_at_least(1),
            default=available_cores(),
            metavar="N",
            help="worker processes (default: all cores); the results do not depend on it",
        )
        add(
            "--width",
            choices=list(WIDTHS),
            default=self.width,
            metavar="VENUE",
            help=f"width of the figure: {', '.join(WIDTHS)} (default: {self.width})",
        )
        add("--out", type=Path, default=_default_folder(self.draw), metavar="DIR", help="folder")
        add("--version", action="version", version=f"gradprop {library_version()}")
        if self.add_flags is not None:
            self.add_flags(parser)
        return parser


def _at_least(minimum: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        if (number := int(text)) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}; got {number}")
        return number

    return integer


def _script_folder(function: Callable[..., Any]) -> Path:
    return Path(inspect.getfile(function)).resolve().parent


def _default_folder(function: Callable[..., Any]) -> Path:
    """``figures`` beside the folder ``studies`` of a script, else in the current folder."""
    folder = _script_folder(function)
    return (folder.parent if folder.name == "studies" else Path()) / "figures"


def _prepare(files: Files) -> None:
    try:
        files.prepare()
    except OSError as error:
        raise StudyError(
            f"cannot write to {files.folder} ({error.strerror or error}); choose another folder "
            "with --out.",
            MISTAKE,
        ) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _shown(path: Path) -> Path:
    """A path as seen from the current folder, if it lies below it."""
    here = Path.cwd()
    return path.resolve().relative_to(here) if here in path.resolve().parents else path


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
