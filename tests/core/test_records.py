"""Records survive a round trip; files are written whole or not at all; damage is named."""

import dataclasses
import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from segue.core.errors import UserError
from segue.core.records import (
    StepRecord,
    TrajectoryRecord,
    atomic_file,
    read_record,
    read_run,
    read_trajectory,
    read_yaml,
    write_json,
    write_text,
)

RECIPE = "scenario: {dataset: zoo}\nmethod: {name: mib}\n"


def record(step: int = 0, **changes) -> StepRecord:
    values = {
        "run": "mib-zoo",
        "method": "mib",
        "dataset": "zoo",
        "step": step,
        "classes": ("background", "cat", "日本"),
        "groups": (("cat",), ("日本",)),
        "confusion": ((5, 1, 0), (0, 2**40, 0), (1, 0, 3)),
        "policy": {"mode": "overlapped"},
        "seed": 42,
        "versions": {"segue": "0.1.0"},
        "recipe_hash": "sha256:0",
        "losses": {"ce": 0.1},
        "seconds": {"train": 1.5},
        "peak_memory": 7,
        "images": {"train": 3},
        "parameters": {"total": 9},
    }
    return StepRecord(**values | changes)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# --- round trip -----------------------------------------------------------------------------------


def test_record_round_trip(tmp_path):
    record(1, offline=True).write(tmp_path)
    again = read_record(tmp_path / "steps" / "1.json")
    assert again == record(1, offline=True)
    assert again.matrix.dtype == np.int64 and again.matrix[1, 1] == 2**40
    assert "日本" in (tmp_path / "steps" / "1.json").read_text(encoding="utf-8")


def test_run_round_trip(run):
    records = tuple(record(step, groups=tuple((f"c{i}",) for i in range(12))) for step in range(11))
    for one in records:
        one.write(run)
    again = read_run(run)
    assert again.steps == records  # by number: 2 before 10
    assert (again.name, again.method, again.recipe["scenario"]) == ("first", "mib", {"dataset": "zoo"})


@pytest.mark.parametrize(
    ("steps", "offline", "finished"),
    [(0, False, False), (1, False, False), (2, False, True), (1, True, True)],
)
def test_run_is_finished_after_its_last_step(run, steps, offline, finished):
    for step in range(steps):
        record(step, offline=offline).write(run)
    assert read_run(run).finished is finished


def test_unfinished_write_is_not_read(run):
    record().write(run)
    (run / "steps" / ".1.json.abc.part").write_text("{")
    assert len(read_run(run).steps) == 1


# --- whole or not at all --------------------------------------------------------------------------


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_atomic_file_replaces_the_old_content(tmp_path):
    for content in (b"old", b"new"):
        with atomic_file(tmp_path / "deep" / "a.bin") as file:
            file.write(content)
    assert (tmp_path / "deep" / "a.bin").read_bytes() == b"new"
    assert files(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_exception_inside_the_block_changes_nothing(tmp_path, error, old):
    path = tmp_path / "a.bin"
    if old:
        path.write_bytes(old)
    with pytest.raises(error), atomic_file(path) as file:
        file.write(b"half")
        raise error
    assert files(tmp_path) == (["a.bin"] if old else [])
    assert not old or path.read_bytes() == old


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_full_disk_changes_nothing(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    write_json(path, "old")
    monkeypatch.setattr(os, call, no_space)
    with pytest.raises(UserError, match=r"Cannot write .*a\.json: No space left"):
        write_json(path, "new")
    assert files(tmp_path) == ["a.json"]
    assert json.loads(path.read_text()) == "old"


def test_full_disk_inside_the_block_changes_nothing(tmp_path):
    with pytest.raises(UserError, match=r"a\.bin: No space left"), atomic_file(tmp_path / "a.bin"):
        no_space()
    assert files(tmp_path) == []


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"Cannot write .*file/a\.json"):
        write_json(tmp_path / "file" / "a.json", {})
    assert files(tmp_path) == ["file"]


# --- damage ---------------------------------------------------------------------------------------


def changed(**changes) -> str:
    return json.dumps(dataclasses.asdict(record()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        changed()[:-9],
        "[]",
        "{}",
        changed(format="segue-record-0"),
        changed(mood="unknown field"),
        changed(confusion=None),
        json.dumps({"format": "segue-record-1", "step": 0}),
        "\xff",
    ],
)
def test_damaged_record_is_named(run, text):
    path = run / "steps" / "0.json"
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as caught:
        read_run(run)
    assert str(path) in str(caught.value)


def test_missing_record_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read the step record .*9\.json: No such file"):
        read_record(tmp_path / "9.json")


def test_folder_without_recipe_is_named(tmp_path):
    record().write(tmp_path)
    with pytest.raises(UserError) as caught:
        read_run(tmp_path)
    assert str(tmp_path) in str(caught.value) and "no recipe.yaml" in str(caught.value)


def test_gap_in_the_steps_is_named(run):
    for step in (0, 2):
        record(step).write(run)
    with pytest.raises(UserError) as caught:
        read_run(run)
    assert str(run) in str(caught.value) and "['0.json', '2.json']" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not valid YAML"),
        ("a: 2020-13-45", "is not valid YAML"),
        ("\xff", "is not valid YAML"),
        ("- a", "not list"),
        ("", "not NoneType"),
    ],
)
def test_bad_yaml_is_named(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=rf"recipe\.yaml .*{message}"):
        read_yaml(path)


def test_missing_yaml_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read .*absent\.yaml"):
        read_yaml(tmp_path / "absent.yaml")


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "double.yaml"
    path.write_text("optim: {lr_first: 0.1}\noptim: {lr_first: 0.2}\n")
    with pytest.raises(UserError, match="'optim' stands twice"):
        read_yaml(path)


def test_only_ordinary_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not an ordinary file"), atomic_file(tmp_path / "pipe"):
        pass
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with atomic_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "new"


def test_merge_keys_work(tmp_path: Path) -> None:
    (tmp_path / "merge.yaml").write_text("base: &b {a: 1, c: 2}\nmine: {<<: *b, a: 3}\n")
    assert read_yaml(tmp_path / "merge.yaml")["mine"] == {"a": 3, "c": 2}


# --- tests during a step --------------------------------------------------------------------------

TRAJECTORY = {
    "step": 1,
    "epoch": 2,
    "num_first": 1,
    "confusions": {"skip": [[5, 1], [0, 2]], "zero": [[6, 0], [1, 1]]},
    "format": "segue-trajectory-1",
}


def test_tests_during_steps_are_read_in_their_order(run):
    moments = [(10, 1), (2, 12), (2, 3), (0, 10000), (0, 9)]
    for step, epoch in moments:
        TrajectoryRecord(step, epoch, 1, {"skip": ((2**40, 1), (0, 2))}).write(run)
    found = read_trajectory(run)
    assert [(one.step, one.epoch) for one in found] == sorted(moments)
    assert (run / "trajectory" / "2-0003.json").is_file()
    assert found[0].matrix("skip").tolist() == [[2**40, 1], [0, 2]] and found[0].num_first == 1


def test_run_without_tests_during_steps_has_none(run):
    assert read_trajectory(run) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        json.dumps(TRAJECTORY | {"format": "segue-trajectory-2"}),
        json.dumps(TRAJECTORY | {"more": 1}),
        json.dumps({key: value for key, value in TRAJECTORY.items() if key != "num_first"}),
        json.dumps(TRAJECTORY | {"confusions": None}),
        json.dumps(TRAJECTORY | {"confusions": {"skip": [[1, 2]]}}),
        json.dumps(TRAJECTORY | {"confusions": {"skip": [[1, 2], [3]]}}),
        json.dumps(TRAJECTORY | {"confusions": {"skip": [1, 2]}}),
        json.dumps(TRAJECTORY | {"confusions": {"skip": [["a", "b"], ["c", "d"]]}}),
        json.dumps(TRAJECTORY | {"confusions": {"skip": [[2**70, 0], [0, 0]]}}),
        b"\xff\xfe",
    ],
)
def test_bad_file_of_a_test_during_a_step_is_named(run, text):
    write_json(run / "trajectory" / "0-0001.json", TRAJECTORY)
    assert len(read_trajectory(run)) == 1
    path = run / "trajectory" / "1-0002.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=r"1-0002\.json is not a record of a test during a step"):
        read_trajectory(run)


def test_json_of_names_that_are_no_text(tmp_path) -> None:
    document = {"caf\udce9": ["é", "犬"]}
    write_json(tmp_path / "odd.json", document)
    content = (tmp_path / "odd.json").read_bytes()
    assert json.loads(content.decode()) == document and "犬".encode() in content


def test_text_is_written_whole_whatever_it_holds(tmp_path) -> None:
    write_text(tmp_path / "a" / "odd.md", "犬 caf\udce9")
    assert (tmp_path / "a" / "odd.md").read_text(encoding="utf-8") == "犬 caf\\udce9"
