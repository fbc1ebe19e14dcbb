"""A checkpoint is written whole or not at all and read whole or not at all."""

from __future__ import annotations

import errno
import math
import os
import shutil

import pytest
import torch
from safetensors.torch import save_file
from tiny_runs import assert_equal_trees, checkpoints, files, recipe, run_until

from segue.core.errors import UserError
from segue.engine import checkpoint
from segue.engine.checkpoint import FORMAT, CheckpointStore, DamagedCheckpoint, load_tree, save_tree

TREE = {
    "weights": {"conv.weight": torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)},
    "types": [
        torch.arange(6, dtype=torch.int64).view(2, 3).t(),
        torch.tensor([1.5, 3e38, math.inf]).bfloat16(),
        torch.tensor([True, False]),
        torch.tensor(2.5, dtype=torch.float64),
        torch.zeros(0, 3),
        torch.get_rng_state(),
    ],
    "state": {0: {"momentum": torch.ones(2)}, 1: {}, "1": "text"},
    "empty": {},
    "nothing": None,
    "numbers": [1, 0.1, 1e-300, True, "ä", []],
}


def small() -> dict:
    return {"a": torch.tensor([1.0, 2.0]), "b": {3: torch.tensor([4, 5]), "c": 0.5}}


def test_round_trip(tmp_path):
    save_tree(tmp_path / "x.safetensors", TREE)
    assert_equal_trees(load_tree(tmp_path / "x.safetensors"), TREE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_round_trip_of_every_bit(tmp_path, dtype):
    values = torch.tensor([1.5, -0.0, math.nan, -math.inf, 6e-8]).to(dtype)
    save_tree(tmp_path / "x.safetensors", {"a": values})
    loaded = load_tree(tmp_path / "x.safetensors")["a"]
    assert loaded.dtype == dtype and torch.equal(loaded.view(torch.uint8), values.view(torch.uint8))


def test_tree_without_tensors(tmp_path):
    save_tree(tmp_path / "x.safetensors", {})
    assert load_tree(tmp_path / "x.safetensors") == {}


def test_shared_memory_is_stored_twice(tmp_path):
    shared = torch.arange(4.0)
    save_tree(tmp_path / "x.safetensors", {"a": shared, "b": shared[:2]})
    loaded = load_tree(tmp_path / "x.safetensors")
    assert (loaded["a"].tolist(), loaded["b"].tolist()) == ([0, 1, 2, 3], [0, 1])


def test_names_never_clash(tmp_path):
    with pytest.raises(AssertionError, match="a/b"):
        save_tree(tmp_path / "x.safetensors", {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}})


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tree(path, small())
    whole = path.read_bytes()
    assert_equal_trees(load_tree(path), small())
    for place in range(len(whole)):
        for mask in (0x01, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            with pytest.raises(DamagedCheckpoint, match=r"x\.safetensors"):
                load_tree(path)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tree(path, small())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpoint, match=r"x\.safetensors"):
            load_tree(path)


def test_another_type_of_the_same_bytes_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    save_tree(path, small())
    whole = path.read_bytes()
    assert whole.count(b'"F32"') == 1 and whole.count(b'"shape":[2]') == 2
    for old, new in ((b'"F32"', b'"I32"'), (b'"F32","shape":[2]', b'"F64","shape":[1]')):
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(DamagedCheckpoint, match="digest"):
            load_tree(path)


@pytest.mark.parametrize(
    "metadata", [None, {"format": "pt"}, {"format": FORMAT}, {"format": FORMAT, "tree": "{}"}]
)
def test_foreign_file_is_refused(tmp_path, metadata):
    path = tmp_path / "step0.safetensors"
    save_file({"weight": torch.zeros(3)}, path, metadata)
    with pytest.raises(DamagedCheckpoint, match=r"step0\.safetensors"):
        load_tree(path)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04 a zip, as torch.save writes it"])
def test_file_that_is_no_safetensors_is_refused(tmp_path, content):
    path = tmp_path / "step0.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match=r"step0\.safetensors"):
        load_tree(path)


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(DamagedCheckpoint, match=r"gone\.safetensors"):
        load_tree(tmp_path / "gone.safetensors")
    with pytest.raises(UserError, match=tmp_path.name):
        load_tree(tmp_path)


def test_a_good_file_of_another_version_is_not_passed_over(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    monkeypatch.setattr(checkpoint, "FORMAT", "segue-checkpoint-9")
    store.save_finished(0, small())
    monkeypatch.undo()
    with pytest.raises(UserError, match="another version") as caught:
        store.resume_point(print)
    assert not isinstance(caught.value, DamagedCheckpoint) and store.path(0).is_file()


def names(store: CheckpointStore) -> list[str]:
    return sorted(os.listdir(store.folder))


def test_the_last_two_of_each_kind_and_step_0_are_kept(tmp_path):
    store = CheckpointStore(tmp_path)
    seen = []
    for step in range(4):
        for iteration in (9, 10, 100):
            store.save_inside(step, iteration, small())
            seen.append(names(store))
        store.save_finished(step, small())
        seen.append(names(store))
    file = "step{}.safetensors".format
    assert seen[2] == [file("0-00000010"), file("0-00000100")]
    assert seen[3] == [file("0")], "a finished step needs none inside it"
    assert seen[10] == [file("0"), file("1"), file("2-00000010"), file("2-00000100")]
    assert seen[14] == [file("0"), file("1"), file("2"), file("3-00000010"), file("3-00000100")]
    assert seen[15] == [file("0"), file("2"), file("3")]
    store.path(0).unlink()
    store.save_finished(4, small())
    store.save_finished(5, small())
    assert names(store) == [file("4"), file("5")], "no other step stays in its place"


def test_entries_are_in_order_of_time(tmp_path):
    store = CheckpointStore(tmp_path)
    store.folder.mkdir()
    for name in (
        "step10",
        "step2",
        "step10-00000002",
        "step2-00000030",
        "step10-00000010",
        "stepx",
        "step1-",
        "old",
    ):
        (store.folder / f"{name}.safetensors").touch()
    ordered = [entry.path.stem for entry in store.entries()]
    assert ordered == ["step2-00000030", "step2", "step10-00000002", "step10-00000010", "step10"]


def test_saving_passes_over_the_future(tmp_path):
    """After a resume from an earlier moment, later files belong to another past."""
    store = CheckpointStore(tmp_path)
    for name in ("step0-00000005", "step1-00000007", "step1", "step2-00000003"):
        save_tree(store.folder / f"{name}.safetensors", small())
    store.save_inside(0, 6, small())
    assert names(store) == ["step0-00000005.safetensors", "step0-00000006.safetensors"]


def test_resume_point_of_nothing(tmp_path):
    point = CheckpointStore(tmp_path).resume_point(lambda message: pytest.fail(message))
    assert (point.finished_step, point.finished, point.inside) == (-1, None, None)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_while_saving(tmp_path, command, monkeypatch):
    """No half-written file, nothing lost: the folder is as it was, so the run goes on once there is room."""
    folder = tmp_path / "run"
    run_until(recipe("mib"), folder, 4)
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    monkeypatch.setattr(os, "fsync", full_disk)
    outcome = command("train", folder, "--resume")
    assert outcome.code == 2
    assert "step0-00000005.safetensors: No space left on device" in outcome.err
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before


def test_full_disk_while_logging(tmp_path, command, monkeypatch):
    """The line that failed stays in the file's buffer, so closing it fails too."""
    folder = tmp_path / "run"
    run_until(recipe("mib"), folder, 3)
    real_open = open

    class Full:
        def __init__(self, *arguments: object) -> None:
            self.file = real_open(*arguments)
            self.tell, self.truncate = self.file.tell, self.file.truncate

        write = flush = full_disk

        def close(self) -> None:
            self.file.close()
            full_disk()

    monkeypatch.setattr("segue.core.records.open", Full, raising=False)
    outcome = command("train", folder, "--resume")
    assert outcome.code == 2
    assert f"Cannot write {folder / 'log.jsonl'}: No space left on device." in outcome.err
    assert checkpoints(folder) == ["step0-00000002", "step0-00000003"]


def test_damaged_checkpoint_is_an_error_for_a_test(tmp_path, command, finished):
    folder = tmp_path / "run"
    shutil.copytree(finished("mib"), folder)
    path = CheckpointStore(folder).path(1)
    path.write_bytes(path.read_bytes()[:-1])
    outcome = command("eval", folder)
    assert outcome.code == 2 and f"{path} is damaged or truncated" in outcome.err


def test_error_is_for_users():
    assert issubclass(DamagedCheckpoint, UserError)
