"""One script, one claim, one figure: flags, running, data, manifest, drawing and the table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from gradprop._studyflags import script_folder, study_parser
from gradprop._studyrun import (
    DONE,
    INTERRUPTED,
    MISTAKE,
    StudyError,
    all_of,
    merge_shards,
    read_only,
    running,
    say,
    shown_path,
    whole_disk,
)
from gradprop.figures import figure_width, save, style
from gradprop.sweep import Sweep, SweepResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = Mapping[str, SweepResult]
Table = Sequence[Sequence[str | float]]


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

    With ``--shard i/k`` only that part of the points is computed, into
    ``data/NAME.shard-i-of-k.sqlite``; ``--merge`` takes such files over before it computes what is
    still missing and draws. ``--scheduler`` names where else to compute, see
    :func:`gradprop.cluster.dask_executor`. The data do not depend on any of these.

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
        parser = study_parser(self.name, self.claim, self.width, self.draw)
        if self.add_flags is not None:
            self.add_flags(parser)
        options = parser.parse_args(argv)
        try:
            return self._main(options)
        except StudyError as error:
            say(str(error))
            return error.code
        except KeyboardInterrupt as error:
            say(str(error) or "interrupted.")
            return INTERRUPTED

    def _main(self, options: argparse.Namespace) -> int:
        files = Files(options.out / "quick" if options.quick else options.out, self.name)
        try:
            sweeps = self.sweeps(options)
        except (ValueError, OSError) as error:
            raise StudyError(str(error), MISTAKE) from error
        _prepare(files)
        if options.shard is not None:
            return self._compute_shard(files, sweeps, options)
        if options.redraw:
            data, sha256 = self._checked_data(files, sweeps)
            written = []
        else:
            git = git_state(script_folder(self.draw), files.folder)
            written = self._compute(files, sweeps, options)
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
        print("\nwritten:", *(f"  {shown_path(path)}" for path in written), sep="\n")
        return DONE

    def _compute(
        self, files: Files, sweeps: Sequence[Sweep], options: argparse.Namespace
    ) -> list[Path]:
        """Run every sweep, go on past failed points, and write the data if all are there."""
        with running(files.store, options) as (store, executor):
            if options.merge:
                merge_shards(store, files.store, [sweep.code() for sweep in sweeps])

            def run(sweep: Sweep) -> SweepResult:
                return sweep.run(store, executor, retry_failed=options.retry_failed)

            results = all_of(sweeps, run, "No figure is drawn from incomplete data.")
        with whole_disk(files.folder):
            return write_data(files, study_settings(self.name, sweeps), results)

    def _compute_shard(
        self, files: Files, sweeps: Sequence[Sweep], options: argparse.Namespace
    ) -> int:
        """Compute one part into a store of its own; the figure is left to ``--merge``."""
        path = options.shard.store(files.store)
        with running(path, options) as (store, executor), read_only(files.store) as whole:

            def run(sweep: Sweep) -> None:
                sweep.run_shard(
                    options.shard,
                    store,
                    executor,
                    retry_failed=options.retry_failed,
                    elsewhere=whole,
                )

            all_of(sweeps, run, f"All others of part {options.shard} are finished.")
        say(f"part {options.shard} is in {shown_path(path)}; when all are done, run with --merge.")
        return DONE

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
            say("note: the data were computed by an earlier version of the code.")
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


def _prepare(files: Files) -> None:
    try:
        files.prepare()
    except OSError as error:
        raise StudyError(
            f"cannot write to {files.folder} ({error.strerror or error}); choose another folder "
            "with --out.",
            MISTAKE,
        ) from error


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
