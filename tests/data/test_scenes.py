"""The embedded data set: the same picture wherever and whenever it is read, and scenes worth segmenting."""

from __future__ import annotations

import colorsys
import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from segue.core.config import validate
from segue.core.errors import UserError
from segue.core.plugins import find
from segue.data.datasets.base import Sample
from segue.data.datasets.scenes import MAX_CLASSES, Config, Scenes

IMAGES = 200


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return Scenes(Config(), "train")


@pytest.fixture(scope="module")
def samples(scenes: Scenes) -> list[Sample]:
    return [scenes.read(index) for index in range(IMAGES)]


def digest(sample: Sample) -> str:
    return hashlib.sha256(sample.key.encode() + sample.image.tobytes() + sample.mask.tobytes()).hexdigest()


def test_found_by_its_name() -> None:
    assert find("dataset", "scenes") is Scenes


def test_same_picture_in_any_order(samples: list[Sample]) -> None:
    again = Scenes(Config(), "train")
    for index in (150, 3, 77, 3, 0):
        assert digest(again.read(index)) == digest(samples[index])
    assert len({digest(sample) for sample in samples}) == IMAGES


def test_same_picture_in_another_process(samples: list[Sample]) -> None:
    script = (
        "import hashlib; from segue.data.datasets.scenes import Config, Scenes\n"
        "s = Scenes(Config(), 'train').read(12)\n"
        "print(hashlib.sha256(s.key.encode() + s.image.tobytes() + s.mask.tobytes()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(samples[12])


def test_splits_and_seeds_share_no_picture(samples: list[Sample]) -> None:
    def images(dataset: Scenes) -> set[bytes]:
        return {dataset.read(index).image.tobytes() for index in range(50)}

    train = {sample.image.tobytes() for sample in samples}
    test, other_seed = images(Scenes(Config(), "test")), images(Scenes(Config(seed=1), "train"))
    assert len(test) == len(other_seed) == 50
    assert not train & test and not train & other_seed and not test & other_seed


def test_longer_split_begins_with_the_shorter(samples: list[Sample]) -> None:
    assert digest(Scenes(Config(train=20), "train").read(19)) == digest(samples[19])


@pytest.mark.parametrize("size", [32, 64, 100])
def test_shape_and_type(size: int) -> None:
    sample = Scenes(Config(size=size), "test").read(7)
    assert sample.image.shape == (size, size, 3) and sample.image.dtype == np.uint8
    assert sample.mask.shape == (size, size) and sample.mask.dtype == np.uint8
    assert sample.image.flags.c_contiguous and sample.image.flags.writeable


def test_size_changes_the_resolution_only() -> None:
    small, large = Scenes(Config(size=64), "train"), Scenes(Config(size=128), "train")
    same = [np.mean(small.read(i).mask == large.read(i).mask[::2, ::2]) for i in range(20)]
    assert min(same) > 0.99


def test_keys_and_length(scenes: Scenes, samples: list[Sample]) -> None:
    assert len(scenes) == 800 and len(Scenes(Config(), "test")) == 300
    assert scenes.keys[12] == samples[12].key == "train-00012"
    assert len(set(scenes.keys)) == len(scenes)


@pytest.mark.parametrize("index", [-1, 5])
def test_index_out_of_range(index: int) -> None:
    few = Scenes(Config(test=5), "test")
    with pytest.raises(IndexError, match="there are 5"):
        few.read(index)
    with pytest.raises(IndexError, match="there are 5"):
        few.check(index)


@pytest.mark.parametrize("classes", [6, 9, MAX_CLASSES])
def test_every_class_occurs_and_no_other(classes: int) -> None:
    scenes = Scenes(Config(classes=classes), "train")
    seen = np.any([scenes.check(index).pixels for index in range(IMAGES)], axis=0)
    assert np.flatnonzero(seen).tolist() == [0, *range(1, classes + 1)]
    assert scenes.classes.ids == tuple(range(1, classes + 1))


def test_classes_hide_in_each_others_background(samples: list[Sample]) -> None:
    per_image = np.array([len(np.unique(sample.mask[sample.mask > 0])) for sample in samples])
    assert per_image.min() == 1 and per_image.max() == 3
    assert np.mean(per_image > 1) > 0.4


def test_max_objects_bounds_the_classes_of_an_image() -> None:
    single, many = Scenes(Config(max_objects=1), "train"), Scenes(Config(max_objects=6), "train")
    assert {int(single.check(index).pixels[1:].astype(bool).sum()) for index in range(50)} == {1}
    assert max(int(many.check(index).pixels[1:].astype(bool).sum()) for index in range(50)) > 3


def test_check_agrees_with_read(scenes: Scenes, samples: list[Sample]) -> None:
    for index, sample in enumerate(samples):
        content = scenes.check(index)
        assert content.size == sample.mask.shape
        assert content.pixels.tolist() == np.bincount(sample.mask.ravel(), minlength=256).tolist()


def test_image_shows_what_the_mask_says() -> None:
    """One object: the mean colour inside the mask has the hue of the class, up to its spread."""
    scenes = Scenes(Config(max_objects=1), "train")
    for index in range(50):
        sample = scenes.read(index)
        inside = sample.mask > 0
        class_id = int(sample.mask[inside][0])
        hue, _, _ = colorsys.rgb_to_hsv(*(sample.image[inside].mean(axis=0) / 255))
        away = (hue - (class_id - 1) / 9 + 0.5) % 1 - 0.5
        assert abs(away) < 0.2, f"{sample.key}: {scenes.classes.names[class_id]}"


def test_bars_lie_and_stripes_stand() -> None:
    scenes = Scenes(Config(classes=6, max_objects=1), "train")
    for index in range(50):
        sample = scenes.read(index)
        light, inside = sample.image.mean(axis=2), sample.mask > 0
        across = np.abs(np.diff(light, axis=1))[inside[:, 1:] & inside[:, :-1]].mean()
        down = np.abs(np.diff(light, axis=0))[inside[1:] & inside[:-1]].mean()
        name = scenes.classes.names[int(sample.mask.max())]
        assert name.split()[0] == ("barred" if down > across else "striped"), sample.key


def test_fingerprint_names_the_content() -> None:
    config = Config()
    variants = [
        replace(config, **{name: value}) for name, value in {"size": 32, "classes": 8, "seed": 1}.items()
    ]
    prints = {Scenes(variant, "train").fingerprint() for variant in [config, *variants]}
    prints.add(Scenes(config, "test").fingerprint())
    assert len(prints) == 5
    assert Scenes(Config(), "train").fingerprint() in prints


def test_fingerprint_follows_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Scenes(Config(), "train").fingerprint()
    monkeypatch.setattr("segue.data.datasets.scenes.GENERATOR_VERSION", -1)
    assert Scenes(Config(), "train").fingerprint() != before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", 31),
        ("classes", 1),
        ("classes", MAX_CLASSES + 1),
        ("train", 0),
        ("seed", -1),
        ("max_objects", 0),
    ],
)
def test_bad_settings_are_rejected(key: str, value: int) -> None:
    with pytest.raises(UserError, match=f"data.{key}"):
        validate(Config, {key: value}, "data")
    assert validate(Config, {}, "data") == Config()
