"""One page of HTML that opens offline: text, tables, figures inside, nothing to load."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradprop._files import write_atomically
from gradprop.environment import library_version
from gradprop.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.1rem; color: #555; font-weight: normal; margin-bottom: 0; }
.verdict { font-size: 1.5rem; line-height: 1.3; margin: .3rem 0 1.5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; }
img { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: .35rem 1rem; }
dt { color: #555; } dd { margin: 0; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #eee; }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left; }
footer { color: #777; font-size: .85rem; margin-top: 2rem; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .5rem; } }
"""


class Section:
    """Part of a page, put together piece by piece; every text is escaped.

    Parameters
    ----------
    title : str
    """

    def __init__(self, title: str) -> None:
        self._parts = [f"<h2>{html.escape(title)}</h2>"]

    def terms(self, pairs: Sequence[tuple[str, str]]) -> Section:
        """Add a list of terms and what is said of each."""
        rows = "".join(f"<dt>{html.escape(t)}</dt><dd>{html.escape(d)}</dd>" for t, d in pairs)
        self._parts.append(f"<dl>{rows}</dl>")
        return self

    def points(self, texts: Sequence[str]) -> Section:
        """Add a list of points."""
        self._parts.append(f"<ul>{''.join(f'<li>{html.escape(t)}</li>' for t in texts)}</ul>")
        return self

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Section:
        """Add a table of texts."""
        lines = [_row("th", head), *(_row("td", row) for row in rows)]
        self._parts.append(f"<table>{''.join(lines)}</table>")
        return self

    def figure(self, figure: Figure, alt: str) -> Section:
        """Add a figure drawn in the package's style, as PNG inside the page."""
        buffer = io.BytesIO()
        with style():
            figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        code = base64.b64encode(buffer.getvalue()).decode("ascii")
        self._parts.append(f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{code}">')
        return self

    def html(self) -> str:
        """The markup."""
        return "\n".join(self._parts)


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells)}</tr>"


def write_html(
    path: str | os.PathLike[str], title: str, verdict: str, sections: Sequence[Section]
) -> Path:
    """Write a self-contained page.

    Parameters
    ----------
    path : str or path-like
    title, verdict : str
    sections : sequence of Section

    Returns
    -------
    Path
        The file: one HTML document without links, scripts or other files.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_html(os.path.join(folder, "page.html"), "a < b", "Yes.", [])
    ...     "a &lt; b" in page.read_text(encoding="utf-8")
    True
    """
    body = "\n".join(section.html() for section in sections)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="verdict">{html.escape(verdict)}</p>\n'
        f"{body}\n<footer>gradprop {library_version()}</footer>\n</body>\n</html>\n"
    )
    return write_atomically(Path(path), text.encode("utf-8"))
