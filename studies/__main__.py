"""Run studies one after the other: ``python -m studies [--quick] [--out DIR] [names...]``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(argv: list[str] | None = None) -> int:
    """Run the named studies, or all, each in its own process; 1 if any of them failed."""
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="small grids")
    parser.add_argument("--redraw", action="store_true", help="draw the data at hand")
    parser.add_argument("--jobs", metavar="N", help="worker processes")
    parser.add_argument("--out", metavar="DIR", help="folder")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown study {unknown[0]!r}; known: {', '.join(known)}")
    flags = [f"--{flag}" for flag in ("quick", "redraw") if getattr(options, flag)]
    for flag in ("jobs", "out"):
        if (value := getattr(options, flag)) is not None:
            flags += [f"--{flag}", value]
    summary = []
    for name in options.names or known:
        print(f"== {name}", flush=True)
        start = time.monotonic()
        try:
            code = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *flags]).returncode
        except KeyboardInterrupt:
            return 130
        if code == 130:
            return code
        summary.append((name, code, time.monotonic() - start))
    print()
    for name, code, seconds in summary:
        print(f"{name:30} {'done' if code == 0 else f'FAILED ({code})'} in {seconds:.1f} s")
    return int(any(code for _, code, _ in summary))


if __name__ == "__main__":
    raise SystemExit(main())
