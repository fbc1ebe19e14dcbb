"""Runs with exemplars: which are shown with which labels, what is stored, and that a stop changes nothing."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import assert_equal_runs, checkpoints, files, log_lines, quiet_run, recipe, run_until, weights

from segue.core.config import ReplayConfig, RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.data.batches import Batch
from segue.data.transforms import test_transform as for_testing
from segue.engine import train
from segue.engine.data import Data, build_data
from segue.engine.recipe import resolve

CPU = torch.device("cpu")
SHORT = ("scenario.split=1-1", "train.epochs=1", "train.epochs_next=2", "train.workers=0")
REPLAYING = """
from dataclasses import dataclass, field
from segue.core.config import ReplayConfig
from segue.losses import cross_entropy
from segue.methods.base import About, Method

@dataclass(frozen=True)
class Config:
    memory: ReplayConfig = field(default_factory=ReplayConfig)

class Replaying(Method):
    Config = Config
    about = About("replay", "a test", 2020)

    def losses(self, batch):
        return {"ce": cross_entropy(self.model(batch.images).logits, batch.labels)}

METHOD = Replaying
"""


@pytest.fixture
def method(tmp_path: Path) -> str:
    path = tmp_path / "replaying.py"
    path.write_text(REPLAYING)
    return str(path)


def with_memory(method: str, size: int = 6, share: float = 0.25, *words: str) -> RunConfig:
    params = (f"method.params.memory.size={size}", f"method.params.memory.share={share}")
    return recipe(method, *SHORT, *params, *words)


def stored(folder: Path, step: int) -> dict[str, Any]:
    return json.loads((folder / "memory" / f"{step}.json").read_text())


def tiny_data(*words: str) -> Data:
    return build_data(recipe("finetune", *SHORT, *words), Display(quiet=True))


def equal(a: Batch, b: Batch) -> bool:
    return torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) and a.keys == b.keys


# Batches of a step


@pytest.mark.parametrize("mode", ["overlapped", "sequential"])
def test_exemplars_have_the_labels_of_their_own_step(mode: str) -> None:
    data = tiny_data(f"scenario.mode={mode}")
    memory = data.exemplars(2, 10)
    assert {exemplar.step for exemplar in memory} == {0, 1} and len(memory) == 10
    step_data = data.train_batches(2, CPU, replay=ReplayConfig(10)).data
    step_data.transform = for_testing(32)
    images = [*data.train_images[2], *(exemplar.image for exemplar in memory)]
    steps = [2] * len(data.train_images[2]) + [exemplar.step for exemplar in memory]
    assert len(step_data) == len(images)
    for position, (image, step) in enumerate(zip(images, steps, strict=True)):
        sample = data.train_set.read(int(image))
        _, labels, key = step_data[position, 0]
        expected = data.scenario.label_table(data.scenario[step], "train")[sample.mask]
        assert key == sample.key and np.array_equal(labels.numpy(), expected)
        assert (labels == step + 1).any(), "the class that arrived then"


def test_batches_with_memory_are_full_and_start_anywhere() -> None:
    data, replay = tiny_data(), ReplayConfig(5, 0.4)
    whole = list(data.train_batches(1, CPU, replay=replay))
    images = {data.train_set.keys[i] for i in data.train_images[1]}
    assert len(whole) == 2 * (len(images) // 5) and {len(batch) for batch in whole} == {8}
    for start in (1, len(whole) // 2, len(whole) - 1):
        late = data.train_batches(1, CPU, start, replay)
        assert len(late) == len(whole) - start
        assert all(equal(a, b) for a, b in zip(late, whole[start:], strict=True))


def test_batches_without_memory_are_as_ever() -> None:
    data = tiny_data()
    for step, replays in ((0, (ReplayConfig(9), ReplayConfig(0))), (1, (ReplayConfig(0),))):
        plain = data.train_batches(step, CPU)
        for replay in replays:
            other = data.train_batches(step, CPU, replay=replay)
            assert other.order == plain.order and len(other.data) == len(plain.data)
            assert all(equal(a, b) for a, b in zip(plain, other, strict=True))
    assert data.train_batches(1, CPU, replay=ReplayConfig(9)).order != data.train_batches(1, CPU).order


def test_memory_follows_from_the_seed() -> None:
    data = tiny_data()
    assert data.exemplars(0, 6) == () and data.exemplars(2, 0) == ()
    assert data.exemplars(3, 6) == tiny_data().exemplars(3, 6)
    assert data.exemplars(1, 6) != tiny_data("train.seed=43").exemplars(1, 6)


def test_one_pass_shows_the_step_alone() -> None:
    data = tiny_data()
    keys = [key for batch in data.one_pass(1, CPU) for key in batch.keys]
    assert keys == [data.train_set.keys[i] for i in data.train_images[1]]


# Runs


def test_run_shows_and_stores_its_memory(method: str, tmp_path: Path, monkeypatch) -> None:
    config, folder = with_memory(method), tmp_path / "run"
    shown: dict[int, list[str]] = {0: [], 1: [], 2: []}
    update = train.update

    def spy(session: train.Session, batch: Batch, *rest: Any) -> Any:
        shown[session.method.step.index] += batch.keys
        return update(session, batch, *rest)

    monkeypatch.setattr(train, "update", spy)
    record = quiet_run(config, folder)
    steps = [set(step["train"]) for step in json.loads((folder / "scenario.json").read_text())["steps"]]
    documents = [stored(folder, k) for k in range(3)]
    kept = [[image["key"] for image in document["images"]] for document in documents]

    assert [name for name in files(folder) if name.startswith("memory")] == [
        f"memory/{k}.json" for k in range(3)
    ]
    assert [(document["format"], document["step"]) for document in documents] == [
        ("segue-memory-1", k) for k in range(3)
    ]
    assert [len(set(keys)) for keys in kept] == [6, 6, 6]
    assert {image["step"] for image in documents[2]["images"]} == {0, 1, 2}
    assert all(image["key"] in steps[image["step"]] for d in documents for image in d["images"])
    for (earlier, later), k in zip(pairwise(documents), (1, 2), strict=True):
        old = [image for image in later["images"] if image["step"] < k]
        assert all(image in earlier["images"] for image in old)

    assert set(shown[0]) <= steps[0]
    for k in (1, 2):
        assert set(kept[k - 1]) <= set(shown[k]) <= steps[k] | set(kept[k - 1])
    assert [step.images.get("memory") for step in record.steps] == [0, 6, 6]
    assert [step.images["train"] for step in record.steps] == [len(keys) for keys in steps]


def test_memory_without_room_is_no_memory(method: str, tmp_path: Path) -> None:
    record = quiet_run(with_memory(method, size=0), tmp_path / "none")
    quiet_run(recipe("finetune", *SHORT), tmp_path / "plain")
    quiet_run(with_memory(method), tmp_path / "some")
    assert files(tmp_path / "none") == files(tmp_path / "plain")
    assert all(set(step.images) == {"train", "test"} for step in record.steps)
    assert log_lines(tmp_path / "none") == log_lines(tmp_path / "plain")
    assert len(log_lines(tmp_path / "some")) > len(log_lines(tmp_path / "none")), "more iterations"
    for step in (1, 2):
        none, plain, some = (weights(tmp_path / name, step) for name in ("none", "plain", "some"))
        assert all(torch.equal(none[name], plain[name]) for name in plain)
        assert not all(torch.equal(some[name], plain[name]) for name in plain)


def test_stopped_inside_steps_with_memory(method: str, tmp_path: Path) -> None:
    config = with_memory(method)
    quiet_run(config, tmp_path / "straight")
    folder, data = tmp_path / "stopped", tiny_data()
    first = len(data.train_batches(0, CPU).order)
    second = data.train_batches(1, CPU, replay=ReplayConfig(6, 0.25)).order
    inside = second.per_epoch + 1  # in the middle of an epoch and of a pass over the memory
    assert inside < len(second)
    run_until(config, folder, first + inside)
    assert checkpoints(folder)[-1] == f"step1-{inside:08d}"
    (folder / "memory" / "0.json").write_text("a run reads its seed, not this")
    run_until(config, folder, len(second) - inside + 2)
    assert checkpoints(folder)[-1] == "step2-00000002"
    (folder / "memory" / "0.json").write_bytes((tmp_path / "straight" / "memory" / "0.json").read_bytes())
    quiet_run(config, folder, resume=True)
    assert_equal_runs(folder, tmp_path / "straight")


def test_another_memory_is_another_recipe(method: str, tmp_path: Path) -> None:
    run_until(with_memory(method), tmp_path / "run", 2)
    for other in (with_memory(method, size=7), with_memory(method, share=0.5)):
        with pytest.raises(UserError, match=r"method\.params\.memory\.(size|share): "):
            quiet_run(other, tmp_path / "run", resume=True)


def test_overwrite_leaves_no_old_memory(method: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    quiet_run(with_memory(method), folder)
    (folder / "memory" / ".1.json.x.part").write_bytes(b"half")
    quiet_run(with_memory(method), folder, resume=True)
    assert ".1.json.x.part" not in {path.name for path in (folder / "memory").iterdir()}
    quiet_run(recipe("finetune", *SHORT), folder, overwrite=True)
    assert not (folder / "memory").exists()


# Settings


@pytest.mark.parametrize("word", ["size=-1", "size=1.5", "share=0", "share=1", "share=nan", "sise=3"])
def test_bad_memory_is_refused(method: str, word: str) -> None:
    with pytest.raises(UserError, match=r"method\.params\.memory\."):
        recipe(method, f"method.params.memory.{word}")


def test_recipes_of_other_methods_know_no_memory() -> None:
    config = resolve("finetune", "scenes", "2-1")
    assert not hasattr(config, "memory") and not hasattr(config.method.params, "memory")
