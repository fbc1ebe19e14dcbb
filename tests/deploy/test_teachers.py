"""Models of which the outputs alone are known: read, asked, and as teachers of a student."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from outer_files import MEAN, NAMES, STD, logits_of, write_birds, write_onnx, write_script
from own_folder import write_folder
from pets import QUIET, state

import segue
from segue.core.errors import UserError
from segue.core.records import read_run, read_yaml
from segue.deploy.student import check_method
from segue.deploy.teachers import as_teacher, is_outer, open_teacher
from segue.engine import train as train_module
from segue.models.adopted.grow import NEVER

SAID: dict[str, Any] = {"classes": NAMES, "mean": MEAN, "std": STD}
SHORT = (
    *("train.crop=32", "train.batch_size=4", "train.workers=0", "eval.samples=0", "train.scale=[1,1]"),
    *("train.epochs=1", "train.save_seconds=0"),
)


def noise(count: int = 3, height: int = 24, width: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator).to(torch.uint8)


def assert_near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


# Reading


@pytest.mark.parametrize("settings", [{}, {"batch": 1}, {"batch": 2}, {"last": True}], ids=str)
def test_an_onnx_file_answers_for_images_of_any_number(tmp_path: Path, settings: dict[str, Any]) -> None:
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx", **settings)), **SAID)
    assert_near(teacher.logits(noise()), logits_of(noise()))


def test_an_onnx_file_of_one_size_sees_images_of_that_size(tmp_path: Path) -> None:
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx", size=(48, 56))), **SAID)
    assert teacher.logits(noise()).shape == (3, 3, 48, 56)
    plain = np.full((20, 30, 3), 128, dtype=np.uint8)
    expected = logits_of(torch.full((1, 3, 1, 1), 128)).argmax(1).item()
    assert (teacher.predict(plain).ids == expected).all()


def test_a_torchscript_file_answers(tmp_path: Path) -> None:
    teacher = open_teacher(str(write_script(tmp_path / "m.pt")), **SAID)
    assert_near(teacher.logits(noise()), logits_of(noise()))


@pytest.mark.parametrize("ending", ["model.onnx", "model.pt"])
def test_what_segue_exported_tells_all_by_itself(tmp_path: Path, ending: str) -> None:
    if ending.endswith("onnx"):
        pytest.importorskip("onnxscript")
    model = _tiny_model()
    model.export(tmp_path / ending)
    teacher = open_teacher(str(tmp_path / ending))
    assert teacher.classes == model.classes and teacher.images == model.images
    image = noise(1, 32, 32)[0].permute(1, 2, 0).numpy()
    same = teacher.predict(image).ids == model.predict(image).ids
    assert same.mean() > 0.98  # the file resizes by itself: single pixels at borders may flip
    with pytest.raises(UserError, match="tells its classes"):
        open_teacher(str(tmp_path / ending), **SAID)


def _tiny_model() -> segue.Model:
    from segue.core.config import ModelConfig
    from segue.core.scenario import Step

    torch.manual_seed(0)
    network = segue.Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(Step(0, (1, 2)), balanced=False)
    return segue.Model(network.eval(), NAMES)


def test_probabilities_become_logits(tmp_path: Path) -> None:
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx", ending="Softmax")), **SAID)
    assert teacher.kind == "probabilities"
    assert_near(teacher.logits(noise()).softmax(1), logits_of(noise()).softmax(1))


def test_one_channel_becomes_two(tmp_path: Path) -> None:
    said = {**SAID, "classes": ["cat"]}
    for ending in ("", "Sigmoid"):
        teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx", rows=1, ending=ending)), **said)
        assert teacher.classes == ("background", "cat")
        expected = logits_of(noise())[:, :1].sigmoid()
        assert_near(teacher.logits(noise()).softmax(1)[:, 1:], expected)


def test_background_comes_first_or_is_none(tmp_path: Path) -> None:
    path = str(write_onnx(tmp_path / "m.onnx"))
    moved = open_teacher(path, **{**SAID, "classes": ["cat", "dog", "background"]})
    assert moved.classes == ("background", "cat", "dog") and not moved.closed
    assert_near(moved.logits(noise()), logits_of(noise())[:, [2, 0, 1]])
    closed = open_teacher(path, **{**SAID, "classes": ["road", "cat", "dog"]})
    assert closed.closed and closed.outer.closed and len(closed.classes) == 4
    assert (closed.logits(noise())[:, 0] == NEVER).all()
    named = open_teacher(path, **{**SAID, "classes": ["road", "cat", "dog"], "background": "road"})
    assert named.classes[0] == "road" and not named.closed


@pytest.mark.parametrize(
    "meta",
    [
        {"names": {"0": "background", "1": "cat", "2": "dog"}},
        {"class_names": list(NAMES)},
        {"labels": "background,cat,dog"},
        {"names": "{0: 'background', 1: 'cat', 2: 'dog'}"},
    ],
    ids=lambda meta: str(next(iter(meta))),
)
def test_names_from_metadata(tmp_path: Path, meta: dict[str, Any]) -> None:
    path = write_onnx(tmp_path / "m.onnx", meta=meta)
    assert open_teacher(str(path), mean=MEAN, std=STD).classes == NAMES


# Mask classification


def _eomt(folder: Path) -> Any:
    hf = pytest.importorskip("transformers")
    pytest.importorskip("scipy")  # its losses ask for it
    torch.manual_seed(0)
    config = hf.EomtConfig(
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 64},
        **{"patch_size": 16, "num_queries": 5, "num_blocks": 1, "num_upscale_blocks": 1},
        id2label=dict(enumerate(NAMES)),
        label2id={name: place for place, name in enumerate(NAMES)},
    )
    module = hf.EomtForUniversalSegmentation(config).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    module.save_pretrained(str(folder))
    return module


def test_masks_with_classes_become_scores_of_pixels(tmp_path: Path) -> None:
    module = _eomt(tmp_path / "eomt")
    text = f"hf:{tmp_path / 'eomt'}"
    assert is_outer(text)
    teacher = open_teacher(text, mean=MEAN, std=STD)
    assert teacher.classes == NAMES
    images = noise(2, 64, 64)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        out = module(pixel_values=(images / 255 - mean) / std)
        classes, masks = out.class_queries_logits.softmax(-1), out.masks_queries_logits.sigmoid()
        expected = sum(
            classes[:, query, :-1, None, None] * masks[:, query : query + 1]
            for query in range(masks.shape[1])
        )
        found = teacher.logits(images).exp()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(UserError, match="--student"):
        segue.extend(text, tmp_path, tmp_path / "out")


# A student


def student(teacher: Any, data: Path, out: Path, *words: str, **settings: Any) -> segue.Model:
    settings = {"method": "mib", "device": "cpu", "display": QUIET, **settings}
    return segue.extend(teacher, data, out, overrides=[*SHORT, *words], student="tiny", **settings)


@pytest.mark.parametrize("method", ["mib", "lwf", "incseg"])
def test_a_student_learns_old_classes_from_outputs_and_new_ones_from_labels(
    tmp_path: Path, method: str
) -> None:
    data = write_birds(tmp_path / "birds", 16)
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx")), **SAID)
    words = ("train.epochs=20", "optim.lr_next=0.05", "train.balance=none")
    grown = student(teacher, data, tmp_path / "grown", *words, method=method)
    assert grown.classes == (*NAMES, "bird")
    hits: dict[str, list[float]] = {name: [] for name in grown.classes}
    for path in sorted((data / "images" / "val").iterdir()):
        ids = grown.predict(path).ids
        truth = teacher.predict(path).ids.copy()
        truth[np.asarray(_mask(path)) == 1] = 3
        for channel, name in enumerate(grown.classes):
            hits[name].append(float((ids[truth == channel] == channel).mean()))
    learned = {name: float(np.mean(values)) for name, values in hits.items()}
    wanted = ("background", "cat", "dog") if method == "lwf" else ("background", "cat", "dog", "bird")
    assert all(learned[name] > 0.5 for name in wanted), learned


def _mask(image: Path) -> Any:
    from PIL import Image

    return Image.open(str(image).replace("images", "masks"))


def test_the_run_resumes_bit_for_bit_and_the_model_needs_no_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, path = write_birds(tmp_path / "birds"), write_onnx(tmp_path / "m.onnx")
    teacher = open_teacher(str(path), **SAID)
    words = ("train.epochs=2",)
    student(teacher, data, tmp_path / "whole", *words)
    update, done = train_module.update, 0

    def stops(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done == 3:
            raise KeyboardInterrupt
        return update(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train_module, "update", stops)
        student(teacher, data, tmp_path / "cut", *words)
    moved = tmp_path / "elsewhere.onnx"
    shutil.move(path, moved)
    again = open_teacher(str(moved), **SAID)
    student(again, data, tmp_path / "cut", *words, resume=True)
    one, other = (state(tmp_path / f"{name}-run", 1) for name in ("whole", "cut"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    stored = read_yaml(tmp_path / "whole-run" / "recipe.yaml")["scenario"]
    assert stored["teacher"] == str(path.resolve()) and stored["learned_by"] == teacher.digest
    moved.unlink()
    told = "".join(file.read_text() for file in (tmp_path / "whole").glob("*.json"))
    assert str(tmp_path) not in told
    model = segue.load(tmp_path / "whole", device="cpu")
    assert model.predict(np.zeros((16, 16, 3), dtype=np.uint8)).ids.shape == (16, 16)
    fish = data.with_name("fish")
    shutil.copytree(data, fish)
    (fish / "classes.txt").write_text("background\nfish\n")
    more = segue.extend(
        model, fish, tmp_path / "more", overrides=["train.epochs=1"], device="cpu", display=QUIET
    )
    assert more.classes == (*NAMES, "bird", "fish")


def test_another_teacher_cannot_go_on(tmp_path: Path) -> None:
    data = write_birds(tmp_path / "birds")
    path = str(write_onnx(tmp_path / "m.onnx"))
    student(open_teacher(path, **SAID), data, tmp_path / "grown")
    other = open_teacher(path, **{**SAID, "mean": (0.1, 0.1, 0.1)})
    with pytest.raises(UserError, match="learned_by"):
        student(other, data, tmp_path / "grown", resume=True)


def test_a_closed_teacher_makes_a_closed_model(tmp_path: Path) -> None:
    said = {**SAID, "classes": ["road", "cat", "dog"]}
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx")), **said)
    grown = student(teacher, write_birds(tmp_path / "birds"), tmp_path / "grown")
    assert grown.closed and (grown.predict(noise(1)[0].permute(1, 2, 0).numpy()).ids > 0).all()
    with pytest.raises(UserError, match="a channel of background"):
        check_method("lwf_mc", teacher)


def test_a_model_that_could_grow_can_teach_too(tmp_path: Path) -> None:
    model = _tiny_model()
    teacher = as_teacher(model)
    images = noise(1, 32, 32)
    with torch.inference_mode():
        assert torch.equal(teacher.logits(images), model.network(images).logits)
    grown = student(model, write_birds(tmp_path / "birds"), tmp_path / "grown")
    assert grown.classes == (*NAMES, "bird")


def test_labelled_images_of_old_classes_are_shown_to_a_student(tmp_path: Path) -> None:
    kept = write_folder(tmp_path / "old", {"a": [0, 1], "b": [0, 2]}, "background\ncat\ndog\n")
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx")), **SAID)
    grown = student(teacher, write_birds(tmp_path / "birds"), tmp_path / "grown", keep=kept)
    assert grown.classes == (*NAMES, "bird")
    record = read_run(tmp_path / "grown-run").steps[-1]
    assert record.images["kept"] >= 1  # a hash of their names may hold one out


# Refusals


@pytest.mark.parametrize(
    ("method", "sentence"),
    [("caf", "needs"), ("ilt", "last map of its encoder"), ("finetune", "asks no teacher")],
)
def test_methods_that_look_inside_are_refused(tmp_path: Path, method: str, sentence: str) -> None:
    teacher = open_teacher(str(write_onnx(tmp_path / "m.onnx")), **SAID)
    with pytest.raises(UserError, match=sentence):
        student(teacher, write_birds(tmp_path / "birds"), tmp_path / "grown", method=method)
    assert not (tmp_path / "grown").exists() and not (tmp_path / "grown-run").exists()


@pytest.mark.parametrize(
    ("settings", "said", "sentence"),
    [
        ({}, {**SAID, "classes": None}, "names of its channels"),
        ({}, {**SAID, "mean": None}, "how its images are normalised"),
        ({}, {**SAID, "classes": ["background", "cat"]}, "scores with 2 channels"),
        ({}, {**SAID, "classifier": "conv"}, "classifier cannot be said of it"),
        ({"ending": "ArgMax"}, SAID, "not classes alone"),
        ({"ending": "Sigmoid"}, SAID, "multilabel"),
    ],
)
def test_files_that_cannot_teach(
    tmp_path: Path, settings: dict[str, Any], said: dict[str, Any], sentence: str
) -> None:
    path = write_onnx(tmp_path / "m.onnx", **settings)
    with pytest.raises(UserError, match=sentence):
        open_teacher(str(path), **{key: value for key, value in said.items() if value is not None})


def test_pickled_models_are_not_opened(tmp_path: Path) -> None:
    from outer_files import Colours

    for content in (Colours(), Colours().state_dict()):
        torch.save(content, tmp_path / "m.pt")
        with pytest.raises(UserError, match="no TorchScript archive"):
            open_teacher(str(tmp_path / "m.pt"), **SAID)
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    with pytest.raises(UserError, match="not an ONNX file"):
        open_teacher(str(tmp_path / "m.onnx"), **SAID)


def test_what_cannot_grow_says_so(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx")
    with pytest.raises(UserError, match="--student"):
        segue.extend(str(path), tmp_path, tmp_path / "out")
    with pytest.raises(UserError, match="--student"):
        segue.extend(open_teacher(str(path), **SAID), tmp_path, tmp_path / "out")
