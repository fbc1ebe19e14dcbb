"""Studies whose records are in results/: the command that a page names makes it again, and trains nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
VOC256 = {"15-1": ("voc256.yaml", "voc256-15-1"), "15-5": ("voc256-15-5.yaml", "voc256-15-5")}
"""by split: the recipe, and how its pages are called"""
COMMAND = re.compile(r"^Made from the records by `segue ((?:compare|tune|ablate) .*?)`", re.M)
CELL = re.compile(r"-?[0-9.]+")


def pages() -> list[Path]:
    """The pages of docs/results that a study makes."""
    return [page for page in sorted(RESULTS.glob("*.md")) if COMMAND.search(page.read_text(encoding="utf-8"))]


def words_of(page: Path) -> list[str]:
    """The words of the command that a page says it was made by."""
    command = COMMAND.search(page.read_text(encoding="utf-8"))
    assert command is not None
    return shlex.split(command[1])


def scores_on(page: str) -> dict[str, dict[str, float]]:
    """Of each row of a page of methods: old, new, all and hIoU, in percent, without background."""
    text = (RESULTS / page).read_text(encoding="utf-8")
    first, second = re.findall(r"\n\n(\| method.*?)\n\n", text, re.S)[:2]
    named = {"mean IoU old": "old", "mean IoU new": "new", "mean IoU all": "all", "h IoU": "hIoU"}
    found: dict[str, dict[str, float]] = {}
    for table in (first, second):
        head, _, *rows = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        for row in rows:
            values = found.setdefault(row[0].partition(":")[0], {})
            for column, cell in zip(head, row, strict=True):
                if column in named and (number := CELL.match(cell)):
                    values[named[column]] = float(number[0])
    return found


def assert_in_docs(page: Path, settings: bool = False) -> None:
    """The page that was made is the one in the docs, with the same charts.

    Its table of settings shows those that are not the defaults of the day the page was made: only
    `make results-check` asks for that.
    """
    text, stored = (path.read_text(encoding="utf-8") for path in (page, RESULTS / page.name))
    assert _numbers(text) == _numbers(stored)
    assert not settings or text == stored
    made, kept = (
        {path.name: texts_of_svg(path) for path in (folder / "figures").glob(f"{page.stem}-*")}
        for folder in (page.parent, RESULTS)
    )
    shown = sorted(re.findall(r"]\(figures/(.*?)\)", text))
    assert {name: kept[name] for name in shown} == made and sorted(made) == shown


def _numbers(page: str) -> list[str]:
    """All parts of a page but its tables of settings."""
    return re.split(r"\*\*Settings\*\*\n\n(?:\|.*\n)+", page)


def texts_of_svg(path: Path) -> list[str]:
    """What a chart says; where exactly it is drawn depends on the version of matplotlib."""
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"))
