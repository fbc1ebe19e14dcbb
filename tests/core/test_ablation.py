"""Files of ablation tables: what they hold, and what is refused."""

import pytest

from segue.core.ablation import AblationTable, Row, read_ablation
from segue.core.errors import UserError

GOOD = """
title: Parts
settings:
  zoo: {split: "2-1", mode: disjoint}
rows:
  - {name: plain, run: plain, paper: {zoo 2-1 disjoint: [1, 2.5, 3]}}
  - {name: more, run: more, params: {layer: {fusion: false}}, times: {weight: 10}}
"""


@pytest.fixture
def read(tmp_path):
    def from_text(text: str) -> AblationTable:
        (tmp_path / "table.yaml").write_text(text)
        return read_ablation(tmp_path / "table.yaml")

    return from_text


def test_table_is_read(read):
    table = read(GOOD)
    assert table.title == "Parts" and table.settings == {"zoo": {"split": "2-1", "mode": "disjoint"}}
    assert table.rows[0] == Row("plain", "plain", paper={"zoo 2-1 disjoint": (1.0, 2.5, 3.0)})
    assert table.rows[1] == Row("more", "more", {"layer": {"fusion": False}}, {"weight": 10.0})


def test_numbers_of_the_paper_are_those_of_the_setting_or_of_the_first_one(read):
    table = read(GOOD.replace("name: more, run: more", "name: more, run: more, paper: {a: [1, 1, 1]}"))
    assert table.paper_setting("a") == "a"
    assert table.paper_setting("scenes 5-2 overlapped") == "zoo 2-1 disjoint"
    assert AblationTable("none", (Row("x", "x"),)).paper_setting("here") == "here"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows:", "lines:", "'rows' should be a list of rows"),
        ("rows:\n", "rows: 3\nmore:\n", "'rows' should be a list of rows"),
        ("  - {name: more", "  - 4\n  - {name: more", "'rows' should be a list of rows"),
        ("run: more", "runs: more", r"Unknown key 'rows\[1\]\.runs'\. Did you mean 'rows\[1\]\.run'"),
        ("run: more, ", "", r"'rows\[1\]\.run' is missing"),
        ("[1, 2.5, 3]", "[1, 2.5]", r"rows\[0\]\.paper"),
        ("[1, 2.5, 3]", "[1, low, 3]", r"rows\[0\]\.paper"),
        ("weight: 10", "weight: many", r"'rows\[1\]\.times\.weight' is 'many'"),
        ("title: Parts", "titel: Parts", "Unknown key 'titel'. Did you mean 'title'"),
        ("title: Parts", "", "'title' is missing"),
        ("title: Parts", "title: [", "is not valid YAML"),
    ],
)
def test_table_that_is_wrong_is_refused(read, old, new, message):
    assert old in GOOD
    with pytest.raises(UserError, match=message):
        read(GOOD.replace(old, new, 1))
