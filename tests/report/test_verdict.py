"""The verdict as a table and as a page: every class, every reason, nothing from elsewhere."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from segue.core.errors import UserError
from segue.core.verdict import MeanChange, OldClass, Verdict
from segue.report.verdict import Change, Gallery, LegendEntry, verdict_table, write_verdict

CAT = OldClass("cat <1>", 60.0, 54.5, -7.0, -4.0, 12, 3.25)
VERDICT = Verdict(
    "look here first",
    "12 labelled images.",
    (CAT,),
    {"bird": 41.0, "fish": None},
    MeanChange(-5.5, -7.0, -4.0, 12),
    True,
    reasons=("cat falls",),
    remarks=("dog may fall",),
    look_at=("cat <1>",),
)


def change(key: str) -> Change:
    picture = Image.new("RGB", (8, 6), (200, 0, 0))
    return Change(key, 12.5, "cat → bird", picture, picture, picture, picture)


def test_the_table_fits_a_terminal_and_names_every_class():
    console = Console(file=io.StringIO(), width=80)
    console.print(verdict_table(VERDICT))
    text = console.file.getvalue()
    assert all(
        word in text for word in ("cat <1>", "60.0", "54.5", "-5.5", "-7.0..-4.0", "41.0", "fish (new)")
    )


def test_the_page_needs_nothing_else(tmp_path: Path):
    legend = [LegendEntry("background", (232, 235, 236), False), LegendEntry("bird", (0, 0, 200), True)]
    galleries = [
        Gallery("Most", "disagree", [change("a"), change("b")], legend),
        Gallery("Empty", "", [], []),
    ]
    page = write_verdict(tmp_path / "verdict.html", tmp_path, VERDICT, galleries)
    html = page.read_text()
    assert html.count("data:image/png") == 8 and "http" not in html and "<script" not in html
    for words in (
        "Look here first",
        "12 labelled images.",
        "cat falls",
        "dog may fall",
        "-7.0 to -4.0",
        'class="marked"',
        "cat &lt;1&gt;",
        "54.5",
        "bird (new)",
    ):
        assert words in html
    assert "Empty" not in html, "no heading without pictures"
    assert "#0000c8" in html and "cat → bird" in html


def test_the_page_is_not_written_through_a_link(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "other.html").write_text("mine")
    os.symlink(tmp_path / "other.html", run / "verdict.html")
    with pytest.raises(UserError, match="link"):
        write_verdict(run / "verdict.html", run, VERDICT, [])
    assert (tmp_path / "other.html").read_text() == "mine"
