"""What is counted after a step, and what its record and its pictures say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import ITERATIONS, files, log_lines, quiet_run, recipe, run_until

from segue.core.classes import ClassTable
from segue.core.config import RunConfig, recipe_hash
from segue.core.errors import UserError
from segue.core.manifest import manifest_hash
from segue.core.progress import Display
from segue.core.records import read_run
from segue.core.scenario import make_scenario
from segue.engine.checkpoint import CheckpointStore, load_tree, save_tree
from segue.engine.data import Data, build_data
from segue.engine.device import peak_memory, reset_peak_memory
from segue.engine.evaluate import evaluate, evaluate_by
from segue.engine.restore import evaluate_run, restore_method
from segue.engine.samples import choose_samples

CPU, QUIET = torch.device("cpu"), Display(quiet=True)


class Colour:
    """Predicts a channel from a pixel's red value, or from its green one: known without any network."""

    def __init__(self, channels: int) -> None:
        self.channels, self.seen, self.training = channels, [], True

    def eval(self) -> None:
        self.training = False

    def predictors(self) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
        return {"red": partial(self.predict_from, 0), "green": partial(self.predict_from, 1)}

    def predict_from(self, colour: int, images: torch.Tensor) -> torch.Tensor:
        assert not self.training
        if colour == 0:
            self.seen.append(len(images))
        hot = torch.nn.functional.one_hot(images[:, colour].long() % self.channels, self.channels)
        return hot.permute(0, 3, 1, 2).float()


def data_of(config: RunConfig) -> Data:
    return build_data(config, QUIET)


@pytest.mark.parametrize("future", ["ignore", "background"])
@pytest.mark.parametrize("step", [0, 1])
def test_confusion_equals_a_slow_count_of_every_pixel(future, step):
    data = data_of(recipe("mib", f"scenario.future={future}", "data.test=11"))
    channels = data.scenario[step].num_channels
    method = Colour(channels)
    confusion = evaluate(method, data.test_batches(step, CPU), channels)
    both = evaluate_by(Colour(channels), ("green", "red"), data.test_batches(step, CPU), channels)

    expected, green = ([[0] * channels for _ in range(channels)] for _ in range(2))
    order = {0: 0, 1: 1, 2: 2, 3: 3 if step == 1 else {"ignore": None, "background": 0}[future]}
    images = 0
    for index in range(len(data.test_set)):
        sample = data.test_set.read(index)
        if not {1, 2, 3}.intersection(sample.mask.flat) & ({1, 2} if step == 0 else {1, 2, 3}):
            continue
        images += 1
        for truth, colour in zip(sample.mask.flat, sample.image.reshape(-1, 3), strict=True):
            if order[int(truth)] is not None:
                expected[order[int(truth)]][int(colour[0]) % channels] += 1
                green[order[int(truth)]][int(colour[1]) % channels] += 1
    assert confusion.tolist() == expected
    assert {name: matrix.tolist() for name, matrix in both.items()} == {"green": green, "red": expected}
    assert confusion.dtype == np.int64
    assert sum(method.seen) == images and method.seen[-1] < 8, "each image once, the last batch is short"


def test_a_closed_background_takes_no_pixel_and_leaves_the_others_as_they_are():
    data = data_of(recipe("mib", "data.test=11"))
    channels = data.scenario[1].num_channels
    opened = evaluate(Colour(channels), data.test_batches(1, CPU), channels)
    closed = evaluate(Colour(channels), data.test_batches(1, CPU), channels, closed=True)
    assert opened[:, 0].any() and not closed[:, 0].any()
    assert (closed.sum(1) == opened.sum(1)).all(), "every pixel is still counted"
    assert (closed[:, 2:] == opened[:, 2:]).all(), "ties of what was background go to the first class"


def test_a_run_with_a_closed_background_says_so(finished, tmp_path):
    closed = "eval.background=closed"
    found = evaluate_run(finished("mib"), 1, [closed], display=QUIET)[0]["predict"]
    quiet_run(recipe("mib", closed, "train.epochs=1", "train.epochs_next=1"), tmp_path / "closed")
    record = read_run(tmp_path / "closed")
    assert not found[:, 0].any() and not record.steps[-1].matrix[:, 0].any()
    assert record.steps[-1].policy["background"] == "closed"
    assert "background" not in read_run(finished("mib")).steps[-1].policy
    shown = np.asarray(Image.open(tmp_path / "closed" / "samples" / "0" / "step1.png"))
    assert (shown > 0).all(), "pictures show what is scored"


def test_stored_confusion_is_what_a_new_test_finds(finished):
    record = read_run(finished("mib"))
    for step in (0, 1, None):
        confusions, names, num_first = evaluate_run(finished("mib"), step, display=QUIET)
        stored = record.steps[1 if step is None else step]
        assert list(confusions) == ["predict"]
        assert confusions["predict"].tolist() == [list(row) for row in stored.confusion]
        assert (names, num_first) == (stored.classes, 2)


def test_evaluate_run_takes_other_data(finished):
    confusions, _, _ = evaluate_run(finished("mib"), 1, ["data.test=30"], display=QUIET)
    assert confusions["predict"].sum() > read_run(finished("mib")).steps[1].matrix.sum()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("scenario.order=[3,2,1]", "tested as it was trained"),
        ("model.head=lite", "tested as it was trained"),
    ],
)
def test_evaluate_run_keeps_the_meaning_of_channels(finished, word, message):
    with pytest.raises(UserError, match=message):
        evaluate_run(finished("mib"), 1, [word], display=QUIET)


def test_record_says_what_was_done(finished):
    config, manifest = recipe("mib"), json.loads((finished("mib") / "scenario.json").read_text())
    first, second = read_run(finished("mib")).steps
    for record in (first, second):
        assert (record.run, record.method, record.dataset, record.seed) == ("mib", "mib", "scenes", 42)
        assert record.policy == {"mode": "overlapped", "void": "background", "future": "ignore"}
        assert record.recipe_hash == recipe_hash(config)
        assert {"segue", "python", "torch", "torchvision", "timm", "numpy", "device", "threads"} <= set(
            record.versions
        )
        assert all(isinstance(value, str) and value for value in record.versions.values())
        assert set(record.seconds) == {"train", "eval"} and all(
            0 < value < 600 for value in record.seconds.values()
        )
        assert 20e6 < record.peak_memory < 1e11
        assert record.images["train"] == manifest["steps"][record.step]["images"]
        assert 0 < record.parameters["trainable"] == record.parameters["total"]
        assert record.groups == (("barred disc", "barred square"), ("barred triangle",))
        assert record.matrix.shape == (len(record.classes),) * 2 and record.matrix.min() >= 0
    assert first.classes == ("background", "barred disc", "barred square")
    assert second.classes == (*first.classes, "barred triangle")
    assert second.parameters["total"] == first.parameters["total"] + 65, "one more channel over 64 features"
    assert second.images["test"] == 12


def test_record_counts_frozen_parameters(tmp_path):
    words = ["model.frozen_stages=1", "train.epochs=1", "train.epochs_next=1", "eval.samples=0"]
    (record, _) = quiet_run(recipe("finetune", *words), tmp_path / "run").steps
    assert record.parameters["total"] - record.parameters["trainable"] == 3 * 24 * 9 + 2 * 24


def test_record_of_the_offline_method(finished):
    run = read_run(finished("joint"))
    assert run.finished and len(run.steps) == 1
    assert run.steps[0].offline and len(run.steps[0].classes) == 4 and len(run.steps[0].groups) == 2


def test_recorded_losses_are_the_mean_of_the_last_epoch(finished):
    lines, records = log_lines(finished("mib")), read_run(finished("mib")).steps
    of_step = [[line["losses"] for line in lines if line["step"] == step] for step in (0, 1)]
    assert records[0].losses.keys() == {"ce"} and records[1].losses.keys() == {"ce", "kd"}
    assert ITERATIONS == (9, 6)
    # step 0: iterations 7, 8 and 9, logged as (7, 8) and (9); step 1: iterations 5 and 6, logged together
    assert records[0].losses["ce"] == pytest.approx(
        (2 * of_step[0][-2]["ce"] + of_step[0][-1]["ce"]) / 3, rel=1e-6
    )
    for name in ("ce", "kd"):
        assert records[1].losses[name] == pytest.approx(of_step[1][-1][name], rel=1e-6)
        assert math.isfinite(records[1].losses[name])


def test_time_of_an_interrupted_run_adds_up(tmp_path):
    config = recipe("mib")
    run_until(config, tmp_path / "run", 8)
    path, spent = CheckpointStore(tmp_path / "run").entries()[-1].path, 1000.0  # as if it had taken this long
    save_tree(path, load_tree(path) | {"seconds": spent})
    record = quiet_run(config, tmp_path / "run", resume=True)
    assert spent < record.steps[0].seconds["train"] < spent + 60 and record.steps[1].seconds["train"] < 60


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_samples_show_input_truth_and_predictions(finished):
    folder, config = finished("caf"), recipe("caf")
    data = data_of(config)
    index = json.loads((folder / "samples" / "index.json").read_text())
    assert index["classes"] == ["background", "barred disc", "barred square", "barred triangle"]
    positions = [data.test_set.keys.index(sample["key"]) for sample in index["samples"]]
    assert len(positions) == 2
    method = restore_method(config, folder, data.scenario.steps, CPU)
    for number, position in enumerate(positions):
        place, sample = folder / "samples" / str(number), data.test_set.read(position)
        assert np.array_equal(picture(place / "input.png"), sample.image)
        assert np.array_equal(picture(place / "truth.png"), sample.mask), (
            "classes arrive in the data set's order"
        )
        for step in (0, 1):
            prediction = picture(place / f"step{step}.png")
            assert prediction.shape == (32, 32) and prediction.max() <= (2, 3)[step]
            for name in ("energy", "attention"):
                assert picture(place / f"step{step}-{name}.png").shape == (32, 32, 3), "over the photo"
        with Image.open(place / "step1.png") as image:
            assert image.mode == "P" and image.getpalette()[:6] == [0, 0, 0, 128, 0, 0]
        with torch.inference_mode():
            (batch,) = data.sample_batches(np.array(positions), CPU)
            expected = method.predict(batch.images).argmax(1)[number]
        assert np.array_equal(picture(place / "step1.png"), expected.numpy())


def test_more_samples_than_a_batch_or_the_test_images(tmp_path):
    words = ["train.epochs=1", "train.epochs_next=1", "train.batch_size=4"]
    record = quiet_run(recipe("finetune", "eval.samples=99", *words), tmp_path / "all")
    samples = json.loads((tmp_path / "all/samples/index.json").read_text())["samples"]
    assert len(samples) == record.steps[-1].images["test"] == 12
    for name in ("truth.png", "step0.png", "step1.png"):
        assert len([path for path in files(tmp_path / "all") if path.endswith(name)]) == 12


def test_samples_with_classes_of_the_most_steps_come_first():
    scenario = make_scenario(ClassTable("x", {1: "a", 2: "b", 3: "c", 4: "d"}), "2-1")
    present = np.zeros((6, 256), dtype=bool)
    for row, ids in enumerate([(1,), (1, 2), (1, 3), (3, 4), (1, 2, 3), (2, 3, 4)]):
        present[row, [0, *ids]] = True
    candidates = np.array([0, 1, 2, 3, 4, 5])
    assert choose_samples(scenario, present, candidates, 1).tolist() == [5], "all three steps"
    assert choose_samples(scenario, present, candidates, 3).tolist() == [2, 4, 5], (
        "then more classes, then order"
    )
    assert choose_samples(scenario, present, np.array([0, 3]), 5).tolist() == [0, 3]


def test_manifest_reproduces_the_images(tmp_path, finished):
    manifest = finished("mib") / "scenario.json"
    words = [
        f"scenario.manifest={manifest}",
        "train.epochs=1",
        "train.epochs_next=1",
    ]
    quiet_run(recipe("finetune", *words, "eval.samples=0"), tmp_path / "run")
    assert (tmp_path / "run" / "scenario.json").read_bytes() == manifest.read_bytes()


def test_manifest_decides_which_images_train(tmp_path, finished):
    document = json.loads((finished("mib") / "scenario.json").read_text())
    document["steps"][1]["train"] = document["steps"][1]["train"][3:7]
    document["steps"][1]["images"] = 4
    document["hash"] = manifest_hash(document)
    (tmp_path / "few.json").write_text(json.dumps(document))
    data = data_of(recipe("mib", f"scenario.manifest={tmp_path / 'few.json'}"))
    keys = [batch_keys for batch in data.one_pass(1, CPU) for batch_keys in batch.keys]
    assert sorted(keys) == document["steps"][1]["train"]


@pytest.mark.parametrize(
    ("method", "words", "message"),
    [
        ("mib", ["data.train=20"], "which the data set lacks"),
        ("mib", ["data.classes=2", "data.seed=1", "scenario.split=1-1"], "is no class of scenes"),
        ("mib", ["scenario.mode=disjoint"], "its mode is overlapped, not disjoint"),
        ("mib", ["scenario.split=1-1"], "its groups is"),
    ],
)
def test_manifest_that_does_not_fit(method, words, message, finished):
    config = recipe(method, f"scenario.manifest={finished('mib') / 'scenario.json'}", *words)
    with pytest.raises(UserError, match=message):
        data_of(config)


def test_edited_manifest_is_refused(tmp_path, finished):
    text = (finished("mib") / "scenario.json").read_text()
    (tmp_path / "edited.json").write_text(text.replace("overlapped", "disjoint"))
    with pytest.raises(UserError, match="hash does not match"):
        data_of(recipe("mib", f"scenario.manifest={tmp_path / 'edited.json'}"))


def test_peak_memory_is_that_of_the_step():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not let a process reset its peak")
    size = 300_000_000
    np.ones(size, dtype=np.uint8)
    with_block = peak_memory(CPU)
    reset_peak_memory(CPU)
    assert peak_memory(CPU) < with_block - size // 2
    block = np.ones(size, dtype=np.uint8)
    assert peak_memory(CPU) > with_block - size // 10
    del block


def test_a_method_sees_every_image_once_before_a_step():
    config = recipe("mib", "train.batch_size=7")
    data = data_of(config)
    keys = [key for batch in data.one_pass(0, CPU) for key in batch.keys]
    assert keys == [data.train_set.keys[index] for index in data.train_images[0]]
    assert len(keys) % 7, "a last, smaller batch is part of the pass"
