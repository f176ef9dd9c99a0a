"""Figures for print: widths of venues, one style, files with the same bytes for the same data."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gradprop._checks import choice
from gradprop._files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gradprop.results import Result


class Page(Protocol):
    """What is drawn as a page of panels rather than on one axes: a diagnosis."""

    @property
    def page_inches(self) -> tuple[float, float]:
        """Width and height."""
        ...


WIDTHS: dict[str, float] = {
    "neurips": 5.5,
    "iclr": 5.5,
    "colm": 5.5,
    "icml": 6.75,
    "icml-1": 3.25,
    "icml-2": 6.75,
    "aistats-1": 3.25,
    "aistats-2": 6.75,
    "uai-1": 3.25,
    "uai-2": 6.75,
    "cvpr-1": 3.25,
    "cvpr-2": 6.875,
    "aaai-1": 3.3,
    "aaai-2": 6.975,
    "jmlr": 6.0,
    "tmlr": 6.5,
    "aps-1": 3.386,
    "aps-2": 7.008,
    "nature-1": 3.504,
    "nature-2": 7.205,
    "ieee-1": 3.5,
    "ieee-2": 7.16,
    "elsevier-1": 3.543,
    "elsevier-2": 7.48,
}
"""Widths in inches; of venues with two columns, -1 is one column and -2 the full width."""


def figure_width(name: str) -> float:
    """Width of a figure in a venue's text.

    Parameters
    ----------
    name : str
        A key of ``WIDTHS``; ``-1`` for one column, ``-2`` for the full width of two.

    Returns
    -------
    float
        Inches.

    Raises
    ------
    ValueError
        The name is unknown; the message lists the known ones.

    Examples
    --------
    >>> figure_width("neurips")
    5.5
    """
    return WIDTHS[choice("width", name, WIDTHS)]


@contextmanager
def style() -> Iterator[None]:
    """Draw in the package's style inside, whatever the reader's own matplotlib settings are.

    Type 42 fonts, sizes for print, colours and line styles that colour-blind readers tell apart,
    constrained layout. The old settings come back on leaving.
    """
    import matplotlib.style

    sheet = Path(__file__).with_name("gradprop.mplstyle")
    with matplotlib.style.context(["default", str(sheet)]):
        yield


def save(
    figure: Figure, stem: str | os.PathLike[str], *, title: str, subject: str = ""
) -> list[Path]:
    """Write ``stem.pdf`` and ``stem.png``: the same bytes whenever the same figure is drawn.

    The files have the figure's exact size (nothing is cropped) and are replaced as a whole.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Drawn inside :func:`style`.
    stem : str or path-like
        Path without ending; its folder exists.
    title : str
        Title in the metadata of both files.
    subject : str, default: ""
        Subject in the metadata of the PDF, for example the hash of the data.

    Returns
    -------
    list of Path
        The two files.
    """
    path = Path(stem)
    pdf_metadata = {"Title": title, "Subject": subject, "CreationDate": None, "ModDate": None}
    written, layout = [], figure.get_layout_engine()
    try:
        with style():
            for ending, metadata in (("pdf", pdf_metadata), ("png", {"Title": title})):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=ending, metadata=metadata)
                target = path.with_name(f"{path.name}.{ending}")
                written.append(write_atomically(target, buffer.getvalue()))
                figure.set_layout_engine("none")  # both files in the layout of the first
    finally:
        if layout is not None:
            figure.set_layout_engine(layout)
    return written


def plot(result: Result | Page, ax: Axes | None = None) -> Axes:
    r"""Draw a result the way its field reads it.

    Parameters
    ----------
    result : Result, or Diagnosis
        Of norms, vectors, moments, singular values, effective ranks, exponents (also local or of
        theory), bounds, horizons, events of a format, a pool or an orbit.
        Several replicas are drawn as median and 5-95 % band; of spectra the first replica.
    ax : matplotlib.axes.Axes, optional
        Default: a new figure of one column's width; of a diagnosis a whole page of panels, the
        first of which is returned.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    TypeError
        The result has no drawing; the message lists those that have.

    Notes
    -----
    Zeros, infinities and nan are drawn as what they are: "below floor", "above range", gaps.
    Nothing is shown (``plt.show``) and no global setting is changed.

    Examples
    --------
    >>> import gradprop as gp
    >>> ax = gp.plot(gp.log_norms(gp.JacobianChain.dense([[[0.5]]] * 3)))
    >>> ax.get_xlabel()
    'lag $\\ell$ from the start [steps]'
    """
    from gradprop._drawing import draw

    if ax is not None:
        return draw(result, ax)
    from matplotlib.figure import Figure

    with style():
        size = getattr(result, "page_inches", (figure_width("icml-1"), 2.4))
        return draw(result, Figure(figsize=size).subplots())
