"""Records of strangers: whatever stands in them, `report` shows it or refuses it in a sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from segue.core.errors import UserError
from segue.core.records import read_record, read_run, read_trajectory
from segue.report import write_report
from segue.report.comparison import Stat
from segue.report.markdown import generated_page, markdown_tables, plain_text, sheet_markdown
from segue.report.tables import Sheet

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 2**62, "x", [], {}, [[1]], float("nan"), [None], {"a": None})
COUNTS = (-1, 0.5, 1.0, True, 2**62, 10**400, "1", None, [1])


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document, of lists the first entry alone."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list) and node:
        yield from places(node[0], (*path, 0))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@pytest.fixture
def folder(finished, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished("mib"), tmp_path / "run"))


@pytest.mark.parametrize("count", COUNTS, ids=str)
def test_what_is_no_count_of_pixels_is_refused(folder: Path, count: Any) -> None:
    path = folder / "steps" / "0.json"
    document = json.loads(path.read_text())
    document["confusion"][1][0] = count
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"0\.json"):
        read_record(path)


def test_more_pixels_than_a_sum_can_hold_are_refused(folder: Path) -> None:
    path = folder / "steps" / "0.json"
    document = json.loads(path.read_text())
    document["confusion"] = [[2**53] * len(row) for row in document["confusion"]]
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="pixels"):
        read_record(path)


def test_records_with_wrong_types_are_refused_or_reported(folder: Path, tmp_path: Path) -> None:
    path = folder / "steps" / "1.json"
    document = json.loads(path.read_text())
    refused = 0
    for place in places(document):
        for value in WRONG:
            path.write_text(json.dumps(replaced(document, place, value)))
            try:
                markdown_tables([read_run(folder)])
            except UserError as error:
                assert len(str(error)) < 1000
                refused += 1
    assert refused > 200


def test_recipes_with_wrong_shapes_are_refused_or_reported(folder: Path, tmp_path: Path) -> None:
    path = folder / "recipe.yaml"
    document = yaml.safe_load(path.read_text())
    for place in [place for place in places(document) if len(place) <= 2]:
        for value in (None, 5, "x", [1], {"a": {"b": [1]}}, {1: 2}):
            path.write_text(yaml.safe_dump(replaced(document, place, value)))
            try:
                markdown_tables([read_run(folder)])
            except UserError as error:
                assert len(str(error)) < 1000
    path.write_text("method: {name: [mib]}\n")
    with pytest.raises(UserError, match="which method"):
        read_run(folder)


def test_pages_are_made_of_strange_but_valid_records(folder: Path, tmp_path: Path) -> None:
    path = folder / "steps" / "1.json"
    document = json.loads(path.read_text())
    strange = {"run": "<script>", "losses": {}, "seconds": {}, "images": {}, "versions": {}, "policy": {}}
    path.write_text(json.dumps(document | strange))
    write_report([read_run(folder)], tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_pipes_in_place_of_records_are_refused(folder: Path) -> None:
    (folder / "steps" / "0.json").unlink()
    os.mkfifo(folder / "steps" / "0.json")
    with pytest.raises(UserError, match="not an ordinary file"):
        read_run(folder)
    (folder / "trajectory").mkdir()
    os.mkfifo(folder / "trajectory" / "0-0001.json")
    with pytest.raises(UserError, match="not an ordinary file"):
        read_trajectory(folder)


def test_names_are_text_in_markdown() -> None:
    assert plain_text("<img src=x onerror=a()>\n| b & c") == "&lt;img src=x onerror=a()&gt; / b &amp; c"
    assert "](" not in plain_text("![](http://x/y.png)"), "a picture from elsewhere would tell who reads"


def test_names_are_text_in_captions_and_titles_too() -> None:
    name = "<img src=x onerror=a()> ![](http://x/y.png)"
    sheet = Sheet(name, (("", "all"),), (1,), ((name, (Stat(1.0),)),), (f"Not finished: {name}.",))
    for text in (sheet_markdown(sheet), generated_page(f"Tuning on {name}", "segue tune", [])):
        assert "<" not in text and "](" not in text
