"""Cityscapes from its folder: raw labels and training ids, and a run in which id 0 is a class."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core.errors import UserError
from segue.core.plugins import find
from segue.core.progress import Display
from segue.core.scenario import make_scenario
from segue.data.datasets.cityscapes import CLASSES, Cityscapes, Config, class_ids_of_raw_labels
from segue.data.index import class_index
from segue.engine.recipe import resolve
from segue.engine.run import run

# Raw labels: 1 and 4 are void, 7 road, 11 building, 26 car.
TRAIN = {
    "ulm_000001_000019": {7, 11},
    "aachen_000000_000019": {7, 26, 1},
    "aachen_000001_000019": {11, 26},
    "ulm_000000_000019": {7, 255},
}
TEST = {"lindau_000000_000019": {7, 11, 26, 4}}
RAW, TRAIN_IDS = "labelIds", "labelTrainIds"


def write(root: Path, part: str, key: str, labels: set[int], kind: str = RAW) -> None:
    """An image in stripes, one label each, every label with its own grey."""
    city = key.split("_")[0]
    rows = np.resize(np.array(sorted(labels), dtype=np.uint8), 40)
    mask = np.repeat(rows, 32).reshape(40, 32)
    image, masks = root / "leftImg8bit" / part / city, root / "gtFine" / part / city
    for folder in (image, masks):
        folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask * 5).convert("RGB").save(image / f"{key}_leftImg8bit.png")
    values = mask if kind == RAW else class_ids_of_raw_labels().astype(np.uint8)[mask]
    Image.fromarray(values).save(masks / f"{key}_gtFine_{kind}.png")


def made(root: Path, kind: str = RAW) -> Path:
    for part, images in (("train", TRAIN), ("val", TEST)):
        for key, labels in images.items():
            write(root, part, key, labels, kind)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path / "cityscapes")


def opened(root: Path, split: str = "train") -> Cityscapes:
    return Cityscapes(Config(root=str(root)), split)


def refusal(root: Path, split: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        opened(root, split)
    return str(caught.value)


def test_classes() -> None:
    assert find("dataset", "cityscapes") is Cityscapes
    classes = Cityscapes.classes
    assert classes.ids == tuple(range(19)) and len(set(classes.names.values())) == 19
    assert classes.background is None and classes.void == (255,)
    assert (classes.names[0], classes.names[10], classes.names[18]) == ("road", "sky", "bicycle")


def test_class_ids_of_raw_labels() -> None:
    ids = class_ids_of_raw_labels()
    assert [ids[label] for label in CLASSES] == list(range(19))
    assert {label: ids[label] for label in (7, 8, 11, 17, 24, 26, 28, 31, 33)} == {
        **{7: 0, 8: 1, 11: 2, 17: 5, 24: 11},
        **{26: 13, 28: 15, 31: 16, 33: 18},
    }
    assert {int(ids[label]) for label in (*range(7), 9, 10, 14, 15, 16, 18, 29, 30, 255)} == {255}
    assert (ids[34:255] == -1).all()


def test_images_by_key(root: Path) -> None:
    assert opened(root).keys == tuple(sorted(TRAIN))
    assert opened(root, "test").keys == tuple(TEST)


@pytest.mark.parametrize("kind", [RAW, TRAIN_IDS])
def test_both_kinds_of_masks_hold_the_same(tmp_path: Path, kind: str) -> None:
    dataset = opened(made(tmp_path / kind, kind))
    sample = dataset.read(0)  # aachen_000000: void, road, car
    assert np.unique(sample.mask).tolist() == [0, 13, 255] and sample.mask.dtype == np.uint8
    assert sample.image.shape == (40, 32, 3) and int(sample.image[sample.mask == 13].mean()) == 26 * 5
    present = [np.flatnonzero(row).tolist() for row in class_index(dataset)]
    assert present == [[0, 13, 255], [2, 13], [0, 255], [0, 2]]
    assert {path.name for path in dataset.mask_files()} == {f"{key}_gtFine_{kind}.png" for key in TRAIN}


def test_raw_labels_come_first(root: Path) -> None:
    write(root, "train", "ulm_000000_000019", {7}, TRAIN_IDS)
    assert all(pair.mask.name.endswith("_labelIds.png") for pair in opened(root).pairs)


@pytest.mark.parametrize("gone", ["leftImg8bit", "gtFine", "leftImg8bit/val", "gtFine/val", "."])
def test_missing_folder_is_named(root: Path, gone: str) -> None:
    (root / gone).rename(root.parent / "elsewhere")
    kind, fate = ("data folder", "does not exist") if gone == "." else ("folder", "is missing")
    assert refusal(root, "test").startswith(f"The {kind} {root / gone} {fate}.")


def test_no_root_and_no_images(root: Path) -> None:
    with pytest.raises(UserError, match=r"data\.root=FOLDER"):
        Cityscapes(Config(), "train")
    next((root / "leftImg8bit" / "val").glob("*/*.png")).unlink()
    assert refusal(root, "test").startswith(f"The folder {root / 'leftImg8bit' / 'val'} holds no CITY/*")


@pytest.mark.parametrize(("kind", "value"), [(RAW, 34), (RAW, 254), (TRAIN_IDS, 19), (TRAIN_IDS, 33)])
def test_unknown_value_is_named(tmp_path: Path, kind: str, value: int) -> None:
    root = made(tmp_path / kind, kind)
    path = root / "gtFine" / "train" / "ulm" / f"ulm_000001_000019_gtFine_{kind}.png"
    Image.fromarray(np.full((40, 32), value, dtype=np.uint8)).save(path)
    with pytest.raises(UserError, match=rf"{re.escape(str(path))} holds the value {value}"):
        class_index(opened(root))


def test_missing_mask_is_named(root: Path) -> None:
    path = root / "gtFine" / "train" / "ulm" / "ulm_000001_000019_gtFine_labelIds.png"
    path.unlink()
    with pytest.raises(UserError, match=rf"{re.escape(str(path))} is missing"):
        class_index(opened(root))


def test_labels_of_a_class_with_id_zero() -> None:
    config = resolve("mib", "cityscapes", "13-6")
    scenario = make_scenario(Cityscapes.classes, "13-6", void=config.scenario.void)
    assert scenario.label_table(scenario[0])[[0, 12, 13, 18, 255]].tolist() == [1, 13, 0, 0, 255]
    assert scenario.label_table(scenario[1])[[0, 12, 13, 18, 255]].tolist() == [0, 0, 14, 19, 255]
    assert scenario.label_table(scenario[1], "test")[[0, 12, 13, 18, 255]].tolist() == [1, 13, 14, 19, 255]


def test_run_with_a_class_of_id_zero(root: Path, tmp_path: Path) -> None:
    words = [
        f"data.root={root}",
        *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=32"),
        *("train.batch_size=2", "train.epochs=1", "train.workers=0", "eval.samples=1"),
    ]
    config = resolve("mib", "cityscapes", "road,building/car", overrides=words)
    record = run(config, tmp_path / "run", display=Display(quiet=True))
    first, last = record.steps
    assert (first.images["train"], last.images["train"]) == (4, 2)
    assert first.classes == ("background", "road", "building")
    assert last.classes == ("background", "road", "building", "car")
    truth = last.matrix.sum(axis=1)
    assert truth[0] == 0 and (truth[1:] > 0).all(), "road is a class of its own, background has no truth"
    # 4 stripes of the test image, one of them void: the crop of 32 rows is ignored where it is void
    assert truth.sum() == 3 * 32 * 32 // 4
