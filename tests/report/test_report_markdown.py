"""Markdown holds the numbers of the sheets."""

from pathlib import Path

from segue.report import markdown_tables, write_report


def test_markdown_has_a_row_per_method(make_run, tmp_path: Path) -> None:
    runs = [make_run("finetune"), make_run("mib")]
    text = markdown_tables(runs, costs=False)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in rows] == ["method", "---", "finetune", "mib"]
    assert len({row.count("|") for row in rows}) == 1
    assert write_report(runs, tmp_path / "page.md").read_text().startswith(text)
