"""The style of all charts, and the ways a chart leaves: inside a page, or as a file (SVG, PDF, PNG).

Text and axes have one ink. Inside a page it is the page's own text colour; in an SVG file it follows the
reader's light or dark mode, with a background to match; PDF and PNG are for papers, dark on white.
matplotlib takes a third of a second to import, so it is imported when a chart is drawn.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.core.errors import UserError
from segue.core.records import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PAPER = "#1f2328", "#ffffff"
INK_IN_DARK, PAPER_IN_DARK = "#e6edf3", "#161b22"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""a set by Okabe and Ito that colour-blind people can tell apart, readable on light and dark"""
MARKERS = ("o", "s", "^", "D", "v")
"""markers; their number shares no divisor with that of the colours, so thirty lines differ"""
NAME_LENGTH = 26
"""most characters of a name in a chart"""
POINTS = 72
"""points in an inch: a figure of 460 points is 460 pixels wide in a page"""
FORMATS = (".svg", ".pdf", ".png")
FONTS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
STYLE: dict[str, Any] = {
    "figure.dpi": POINTS,
    "savefig.dpi": 200,
    "figure.constrained_layout.h_pad": 0.11,
    "figure.constrained_layout.w_pad": 0.11,
    "font.size": 12.5,
    "axes.titlesize": 14,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 1.0,
    "ytick.left": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    "errorbar.capsize": 3,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.5,
    "text.parse_math": False,  # a $ in a name is a $
    "svg.fonttype": "none",  # text stays text: small, found by a search, in the reader's font
    "svg.hashsalt": "segue",  # the same chart is the same file
    "pdf.fonttype": 42,
}
IN_DARK = (
    "@media (prefers-color-scheme: dark) {"
    f" #paper path {{ fill: {PAPER_IN_DARK} !important }}"
    f' [style*="fill: {INK}"] {{ fill: {INK_IN_DARK} !important }}'
    f' [style*="stroke: {INK}"] {{ stroke: {INK_IN_DARK} !important }} }}'
)


@dataclass(frozen=True)
class Chart:
    """A drawn figure with a name, and a text for those who cannot see it."""

    name: str
    title: str
    alt: str
    figure: Figure

    def inline(self) -> str:
        """An SVG element for a page; text and axes take the page's colour and font."""
        width, height = self.figure.get_size_inches() * POINTS
        body = _svg_body(self.figure, "none").replace(INK, "currentColor")
        return (
            f'<svg class="chart" width="{width:g}" viewBox="0 0 {width:g} {height:g}" role="img"'
            f' aria-label="{escape(self.alt)}">{body}'
        )

    def save(self, path: str | Path) -> Path:
        """A file of its own; the ending says which kind."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind not in FORMATS:
            raise UserError(f"{path}: a chart is written as {', '.join(FORMATS)}; name a file that ends so.")
        with atomic_file(path) as file:
            if kind == ".svg":
                file.write(self._svg_file().encode())
            else:
                times = {"CreationDate": None} if kind == ".pdf" else {}
                with house_style():
                    self.figure.savefig(file, format=kind[1:], facecolor=PAPER, metadata=times)
        return path

    def _svg_file(self) -> str:
        width, height = self.figure.get_size_inches() * POINTS
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
            f' width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
            f' font-family="{FONTS}">\n<title>{escape(self.title, quote=False)}</title>\n'
            f"<style>{IN_DARK}</style>\n{_svg_body(self.figure, PAPER)}"
        )


@contextmanager
def house_style() -> Iterator[None]:
    """Charts are drawn and written inside; what the reader has set for matplotlib stays outside."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        # a font that lacks a letter matters for measuring alone: the reader's own font shows the text
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure without plots; sizes in points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / POINTS, height / POINTS), layout="constrained")
    figure.patch.set_gid("paper")
    return figure


def look(index: int, bound: bool = False) -> dict[str, str]:
    """Colour and marker of a line or point; an upper bound has the ink of the axes."""
    if bound:
        return {"color": INK, "marker": "*"}
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def shortened(name: str) -> str:
    """A name that has room in a chart."""
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def _svg_body(figure: Figure, paper: str) -> str:
    """What matplotlib writes after the opening tag.

    Fonts are left to the tag. Numbered ids go, since several charts share a page; ids that are made of the
    content stay.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with house_style():
        figure.savefig(buffer, format="svg", facecolor=paper, metadata=nothing)
    svg = buffer.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.S)
    body = re.sub(r' id="[\w.]+_\d+"', "", body)
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    return re.sub(r"\s*\n\s*", "\n", body).strip() + "\n"
