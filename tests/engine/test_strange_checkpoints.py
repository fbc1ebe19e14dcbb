"""Checkpoints with a right digest and a wrong tree: a sentence, whatever they hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from tiny_runs import quiet_run, recipe, run_until

from segue.core.errors import UserError
from segue.engine.checkpoint import (
    FORMAT,
    CheckpointStore,
    load_finished,
    load_tree,
    save_tree,
    tensor_digest,
)
from segue.engine.restore import restore_step

WRONG: tuple[Any, ...] = (None, -1, 1.5, "x", [], {}, [{}], torch.zeros(2), {"a": torch.zeros(1)})

LATER = {"method", "seconds", "scaler", "device_rng", "torch_rng", "generator", "identity"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped inside its second step: a finished step and a moment inside the next."""
    folder = tmp_path_factory.mktemp("strange") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGUE_CACHE", str(folder.parent / "cache"))
        run_until(recipe("mib"), folder, 11)
    return folder


@pytest.fixture
def folder(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEGUE_CACHE", str(stopped.parent / "cache"))
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def wrong_trees(tree: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in tree:
        if key != "weights":
            yield f"{key} is missing", {name: value for name, value in tree.items() if name != key}
            for value in WRONG:
                yield f"{key} is {value}", tree | {key: value}


@pytest.mark.parametrize("place", [-1, 0], ids=["inside", "finished"])
def test_every_wrong_tree_is_refused(folder: Path, place: int) -> None:
    store = CheckpointStore(folder)
    path = store.entries()[place].path
    tree = load_tree(path)
    store.identity = tree["identity"]
    if place == 0:
        store.path(0).replace(folder / "step")
        shutil.rmtree(store.folder)
        store.folder.mkdir()
        (folder / "step").replace(store.path(0))
    accepted = []
    for name, wrong in wrong_trees(tree):
        save_tree(path, wrong)
        try:
            store.resume_point(lambda _: None)
            accepted.append(name)
        except UserError as error:
            assert len(str(error)) < 1000
    # of the right type: whether they fit is seen when they are loaded
    assert {name.partition(" ")[0] for name in accepted} <= LATER and len(accepted) < 15


def test_wrong_states_of_right_types_are_refused_when_they_are_loaded(folder: Path) -> None:
    path = CheckpointStore(folder).entries()[-1].path
    tree = load_tree(path)
    group = tree["optimizer"]["param_groups"][0]
    short = {index: {"momentum_buffer": torch.zeros(1)} for index in tree["optimizer"]["state"]}
    for change in (
        {"generator": torch.zeros(2)},
        {"torch_rng": torch.zeros(3, dtype=torch.uint8)},
        {"optimizer": tree["optimizer"] | {"param_groups": [group | {"base_lr": 7.0}]}},
        {"optimizer": tree["optimizer"] | {"state": short}},
        {"method": {"model.mean": torch.zeros(1)}},
    ):
        save_tree(path, tree | change)
        with pytest.raises(UserError, match="checkpoint"):
            quiet_run(recipe("mib"), folder, resume=True)


@pytest.mark.parametrize(
    "skeleton",
    ["", "[", "5", "[]", "{}", '{"items": 5}', '{"items": [[1]]}', '{"tensor": "none"}', '{"list": [3]}',
     '{"value": 1}', '{"items": [[[1], {"value": 1}]]}', '{"list":[' * 3000 + "]}" * 3000],
)  # fmt: skip
def test_skeletons_that_no_run_writes_are_refused(skeleton: str, tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(1)}
    digest = tensor_digest(tensors, f"{FORMAT}\n{skeleton}")
    content = save(tensors, {"format": FORMAT, "tree": skeleton, "digest": digest})
    (tmp_path / "step0.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"step0\.safetensors"):
        load_finished(tmp_path / "step0.safetensors")


def test_pipes_in_place_of_checkpoints_are_refused(folder: Path) -> None:
    path = CheckpointStore(folder).entries()[-1].path
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="ordinary"):
        quiet_run(recipe("mib"), folder, resume=True)


@pytest.mark.parametrize("instead", ["folder", "pipe"])
def test_finished_step_that_is_no_file_is_named_by_who_needs_it(folder: Path, instead: str) -> None:
    path = CheckpointStore(folder).path(0)
    path.unlink()
    path.mkdir() if instead == "folder" else os.mkfifo(path)
    with pytest.raises(UserError, match=r"step0\.safetensors cannot be read: [A-Za-z ]+\.$"):
        restore_step(folder, 0)


def test_note_of_torchrun_that_is_no_text_is_another_launch(folder: Path, monkeypatch) -> None:
    from segue.engine.folder import after_restart

    for name, value in {
        "TORCHELASTIC_RUN_ID": "a",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    (folder / "launch.txt").write_bytes(b"\xff\xfe\x00")
    assert after_restart(folder, False, False) == (False, False)


def test_log_that_vanishes_is_named(folder: Path) -> None:
    from segue.engine.log import RunLog

    log = RunLog(folder)
    (folder / "log.jsonl").unlink()
    with pytest.raises(UserError, match=r"log\.jsonl is gone"):
        _ = log.size
    log.close()


def test_error_without_a_number_is_told_all_the_same(folder: Path, monkeypatch) -> None:
    from segue.engine.own_files import clear_folder

    def fails(*_: object) -> None:
        raise OSError("the disk is on fire")

    monkeypatch.setattr(Path, "unlink", fails)
    with pytest.raises(UserError, match="on fire"):
        clear_folder(folder, everything=True)
    assert json.loads((folder / "scenario.json").read_text())
