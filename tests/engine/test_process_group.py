"""What a process knows of the others: who it is, which device it has, whether it may go on in a folder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from timm.layers import BatchNormAct2d
from tiny_runs import recipe
from torch import nn

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.launch import Launch, launcher, this_launch
from segue.core.progress import Display
from segue.core.scenario import Scenario, Step
from segue.engine import processes
from segue.engine.data import build_data
from segue.engine.folder import after_restart, check_folder, note_launch
from segue.engine.images import step_problems
from segue.engine.own_files import LAUNCH_FILE
from segue.engine.processes import Group, LostProcess, _agree, joined, lost_is_told, sync_norm
from segue.models.segmenter import Segmenter

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
STARTED = {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


@pytest.fixture
def started(monkeypatch):
    def start() -> None:
        for name, value in STARTED.items():
            monkeypatch.setenv(name, value)

    return start


def test_launch_is_that_of_torchrun(started, monkeypatch):
    assert this_launch() == Launch()
    monkeypatch.setenv("RANK", "3")  # of some other system
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert this_launch() == Launch()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "left in a shell")
    assert this_launch() == Launch()
    started()
    assert this_launch() == Launch(3, 4, 1, by_torchrun=True)
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert this_launch() == Launch()


def test_one_process_joins_nobody():
    with joined("cpu") as group:
        assert group == Group(CPU) and group.first and not torch.distributed.is_initialized()
        assert group.any(True) and not group.any(False)
        module, tree = nn.Linear(1, 1), {"a": [torch.zeros(1)]}
        assert group.wrap(module) is module and group.broadcast(tree) is tree


@pytest.mark.parametrize(
    ("device", "gpus", "message"),
    [
        ("mps", 0, "not on 'mps': choose --device cpu"),
        ("cuda", 1, "Process 1 of this machine has no GPU of its own: there are 1. Start fewer"),
        ("cuda:0", 2, "say --device cuda, not cuda:0"),
    ],
)
def test_unfit_device_is_refused(device, gpus, message, started, monkeypatch):
    started()
    monkeypatch.setattr(processes, "pick_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(UserError, match=message), joined(device):
        pass


# Batches too small to be shared


class Two:
    """A scenario of two steps, as far as it is asked."""

    mode = "overlapped"
    steps = (Step(0, (1,), ()), Step(1, (2,), (1,)))

    classes = SimpleNamespace(names=("background", "a", "b"))

    def __iter__(self):
        return iter(self.steps)


@pytest.mark.parametrize(
    ("words", "images", "device", "size", "problem"),
    [
        (["train.batch_size=8"], 40, CPU, 4, None),
        (["train.batch_size=8"], 40, CPU, 5, "step 0: 8 images .* each needs 2 at a time, for batch norm"),
        (["train.batch_size=8"], 40, CUDA, 8, None),
        (["train.batch_size=8"], 40, CUDA, 9, "step 0: 8 images .* each needs 1 at a time"),
        (["train.batch_size=9", "train.accumulate=2"], 40, CPU, 2, None),
        (
            ["train.batch_size=7", "train.accumulate=2"],
            40,
            CPU,
            2,
            "7 images in 2 micro-batches .*smaller train.accum",
        ),
        (["train.batch_size=8", "train.accumulate=4"], 40, CUDA, 2, None),
        (
            ["train.batch_size=8"],
            3,
            CUDA,
            4,
            r"step 0: 3 images \(train.batch_size=8\).* Start fewer processes\.$",
        ),
    ],
)
def test_batches_that_cannot_be_shared_are_refused(words, images, device, size, problem):
    group = Group(device, 0, size)
    found = step_problems(recipe("mib", *words), Two(), [(images, 5), (images, 5)], group)
    if problem is None:
        assert found == []
    else:
        with pytest.raises(UserError, match=problem):
            raise UserError(found[0])


def test_frozen_norm_leaves_steps_of_one_image_per_process():
    found = step_problems(recipe("mib"), Two(), [(40, 5), (4, 5)], Group(CPU, 0, 4))
    assert found == []
    found = step_problems(recipe("mib"), Two(), [(40, 5), (3, 5)], Group(CPU, 0, 4))
    assert len(found) == 1 and "step 1: 3 images" in found[0]


def test_data_of_a_process_are_its_share():
    data = build_data(recipe("mib"), Display(quiet=True), Group(CPU, 1, 3))
    keys = [key for batch in data.test_batches(1, CPU) for key in batch.keys]
    assert isinstance(data.scenario, Scenario) and 0 < len(keys) < len(data.test_images[1])


# Meeting in a store that remembers earlier starts


def meet(store, size: int) -> list[str]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: _agree(store, Launch(rank, size)), range(size)))


def test_processes_of_one_start_agree_on_a_name_that_no_other_start_has():
    store = torch.distributed.HashStore()
    store.set("segue hello 1", "a process that is gone")
    store.set("segue hello 2", "another one")
    starts = [meet(store, 3) for _ in range(3)]
    assert all(len(set(names)) == 1 for names in starts)
    assert len({names[0] for names in starts}) == 3


def test_who_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(processes, "MEETING", timedelta(seconds=0.2))
    with pytest.raises(LostProcess, match=r"Processes \[1, 2\] of the run did not come"):
        _agree(torch.distributed.HashStore(), Launch(0, 3))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[gloo/transport/tcp/unbound_buffer.cc:80] Timed out waiting 6000ms for recv", "does not answer"),
        ("Application timeout caused pair closure", "does not answer"),
        ("[gloo/transport/tcp/pair.cc:547] Connection closed by peer", "is gone"),
    ],
)
def test_what_gloo_says_is_a_lost_process(said, told):
    reason = said.rpartition("] ")[2]
    with pytest.raises(LostProcess, match=rf"Another process {told}.*\({reason}\)"), lost_is_told():
        raise RuntimeError(said)


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match="mat1 and mat2"), lost_is_told():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_finished_steps_are_not_asked_again():
    """A run may be resumed with more processes than its first step had images for."""
    config, display = recipe("mib", "train.batch_size=4"), Display(quiet=True)
    with pytest.raises(UserError, match="cannot share the batches of step 0"):
        build_data(config, display, Group(CPU, 0, 3))
    assert build_data(config, display, Group(CPU, 0, 3), first_step=1).rank_slice.world_size == 3


# Folders that torchrun comes back to


def test_restart_goes_on_in_its_own_folder_only(started, tmp_path):
    started()
    assert after_restart(tmp_path, False, True) == (False, True), "the first start does what it is told"
    note_launch(tmp_path)
    assert (tmp_path / LAUNCH_FILE).read_text() == launcher()
    assert after_restart(tmp_path, False, True) == (True, False)
    assert after_restart(tmp_path, False, False) == (True, False)
    check_folder(tmp_path, recipe("mib"), True, False)  # stopped before it had its recipe
    (tmp_path / LAUNCH_FILE).write_text("another host 17 1234")
    assert after_restart(tmp_path, False, True) == (False, True)
    assert after_restart(tmp_path / "none", False, False) == (False, False)


def test_without_torchrun_no_launch_is_noted(tmp_path):
    note_launch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_launchers_differ(monkeypatch):
    ours = launcher()
    monkeypatch.setattr("os.getppid", lambda own=os.getpid(): own)
    assert launcher() != ours
    if Path("/proc/1/stat").exists():
        assert len(launcher().split()) == 3


# Batch norm over all processes


def test_synced_norm_has_the_same_names_and_answers():
    model = Segmenter(ModelConfig(backbone="efficientnet_b0", head="tiny", output_stride=32, frozen_stages=1))
    model.grow(Step(0, (1,), ()), balanced=False)
    model.train()
    images, names = torch.rand(2, 3, 64, 64) * 255, list(model.state_dict())
    training = {name: module.training for name, module in model.named_modules()}
    assert any(isinstance(module, BatchNormAct2d) for module in model.modules())
    expected = model.eval()(images).logits
    sync_norm(model)
    sync_norm(model)
    assert torch.equal(model(images).logits, expected) and list(model.state_dict()) == names
    synced = [module for module in model.modules() if isinstance(module, nn.SyncBatchNorm)]
    assert len(synced) > 30 and not any(type(m) in processes.SYNCED for m in model.modules())
    model.train()
    assert {name: module.training for name, module in model.named_modules()} == training, (
        "frozen stays frozen"
    )
