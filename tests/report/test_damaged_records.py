"""Records of strangers: whatever stands in them, `report` shows it or refuses it in a sentence."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from segue.core import image_counts
from segue.core.errors import UserError
from segue.core.image_counts import read_counts
from segue.core.packed import read_study
from segue.core.records import read_record, read_run, read_trajectory
from segue.report import write_report
from segue.report.comparison import Stat
from segue.report.markdown import generated_page, markdown_tables, plain_text, sheet_markdown
from segue.report.paper_figures import read_samples
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


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"null", b'{"format": "segue-study-1", "run": "a"}'],
    ids=repr,
)
def test_lines_of_a_study_that_are_no_runs_are_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "study.jsonl").write_bytes(line)
    with pytest.raises(UserError, match=r"study\.jsonl, line 1"):
        read_study(tmp_path / "study.jsonl")


def test_counts_of_a_packed_run_are_a_section(tmp_path: Path) -> None:
    line = {"format": "segue-study-1", "run": "a", "recipe": {}, "steps": [], "counts": []}
    (tmp_path / "study.jsonl").write_text(json.dumps(line))
    with pytest.raises(UserError, match="counts"):
        read_study(tmp_path / "study.jsonl")


def counts_of(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, counts=values, images=np.array("x"))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no archive",
        counts_of(np.full((1, 3, 2), 0.5)),
        counts_of(np.full((1, 3, 2), True)),
        counts_of(np.full((1, 3, 2), -1)),
        counts_of(np.zeros((3, 2), dtype=np.int32)),
        counts_of(np.full((1, 3, 2), 7))[:-40],
        counts_of(np.full((1, 3, 2), 7)).replace(b"counts.npy", b"kounts.npy"),
    ],
    ids=["empty", "text", "fractions", "flags", "negative", "flat", "cut", "renamed"],
)
def test_what_is_no_count_of_single_images_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "0.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"0\.npz"):
        read_counts(tmp_path, 0)


def test_every_flipped_byte_of_counts_is_refused_or_without_effect(tmp_path: Path) -> None:
    values = np.arange(60).reshape(2, 3, 10)
    content, path = counts_of(values), tmp_path / "counts" / "0.npz"
    path.parent.mkdir()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        try:
            found = read_counts(tmp_path, 0)
        except UserError:
            continue
        assert found is not None and np.array_equal(found.counts, values)


def test_counts_that_stand_for_more_than_memory_are_not_unpacked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(image_counts, "MOST_BYTES", 1000)
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "0.npz").write_bytes(counts_of(np.zeros((100, 3, 4), dtype=np.int32)))
    with pytest.raises(UserError, match="KiB"):
        read_counts(tmp_path, 0)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", '{"samples": 5}', '{"samples": [1]}'], ids=len)
def test_index_of_pictures_may_hold_anything(folder: Path, tmp_path: Path, text: str) -> None:
    (folder / "samples" / "index.json").write_text(text)
    with pytest.raises(UserError, match=r"index\.json"):
        write_report([read_run(folder)], tmp_path / "page.html")
    with pytest.raises(UserError, match=r"index\.json"):
        read_samples(read_run(folder))
