"""ADE20K from its folder: roots, orders, labels, modes, and a run on a few images."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core.errors import UserError
from segue.core.plugins import find
from segue.core.progress import Display
from segue.core.scenario import make_scenario
from segue.data.datasets.ade20k import Ade20k, Config
from segue.data.datasets.voc import Voc
from segue.data.index import class_index
from segue.engine.build import build_scenario
from segue.engine.recipe import resolve
from segue.engine.run import run

TRAIN = [{1, 3}, {1, 0}, {3, 0}, {2}, {0}, {1, 2, 3}]
TEST = [{1, 2}, {3, 0}]


def write(root: Path, part: str, word: str, number: int, ids: set[int]) -> None:
    """An image in stripes, one class each, every class with its own grey."""
    stripes = np.array(sorted(ids), dtype=np.uint8)
    mask = np.repeat(np.resize(stripes, 40), 32).reshape(40, 32)
    name = f"ADE_{word}_{number:08d}"
    Image.fromarray(mask * 40).convert("RGB").save(root / "images" / part / f"{name}.jpg", quality=95)
    Image.fromarray(mask).save(root / "annotations" / part / f"{name}.png")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data" / "ADEChallengeData2016"
    for part, word, images in (("training", "train", TRAIN), ("validation", "val", TEST)):
        for kind in ("images", "annotations"):
            (root / kind / part).mkdir(parents=True)
        for number, ids in reversed(list(enumerate(images, start=1))):
            write(root, part, word, number, ids)
    return root


def opened(root: Path, split: str = "train", **options: str) -> Ade20k:
    return Ade20k(Config(root=str(root), **options), split)


def refusal(root: Path, split: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        opened(root, split)
    return str(caught.value)


# Classes


def test_classes() -> None:
    assert find("dataset", "ade20k") is Ade20k
    classes = Ade20k.classes
    assert classes.ids == tuple(range(1, 151)) and len(set(classes.names.values())) == 150
    assert classes.background is None and classes.void == (0,)
    known = {1: "wall", 14: "earth", 45: "chest of drawers", 54: "stairs", 59: "screen door", 64: "blind"}
    known |= {95: "land", 97: "escalator", 122: "step", 131: "screen", 142: "crt screen", 150: "flag"}
    assert {class_id: classes.names[class_id] for class_id in known} == known
    assert not [name for name in classes.names.values() if re.search(r"[^a-z ]|^ | $|  ", name)]


def test_orders() -> None:
    assert Ade20k.orders["a"] == Ade20k.classes.ids
    order = Ade20k.orders["b"]
    assert sorted(order) == list(Ade20k.classes.ids)
    first, *later = (set(order[a:b]) for a, b in ((0, 50), (50, 100), (100, 110), (140, 150)))
    assert {1, 144} <= first and {3, 150} <= later[0]
    assert later[1] == {11, 16, 50, 64, 66, 73, 89, 92, 145, 146}
    assert later[2] == {17, 20, 59, 68, 83, 94, 102, 122, 127, 137}


# Folders


def test_images_in_order_of_name(root: Path) -> None:
    assert opened(root).keys == tuple(f"ADE_train_{number:08d}" for number in range(1, 7))
    assert opened(root.parent, "test").keys == ("ADE_val_00000001", "ADE_val_00000002")


def test_sample_and_presence(root: Path) -> None:
    sample = opened(root).read(5)
    assert sample.image.shape == (40, 32, 3) and np.unique(sample.mask).tolist() == [1, 2, 3]
    assert abs(int(sample.image[sample.mask == 3].mean()) - 120) < 3
    assert [set(np.flatnonzero(row)) for row in class_index(opened(root))] == TRAIN


def test_hidden_files_do_not_count(root: Path) -> None:
    (root / "images" / "training" / "._ADE_train_00000001.jpg").write_bytes(b"")
    assert len(opened(root)) == 6


def test_mask_files(root: Path) -> None:
    names = sorted(path.name for path in opened(root, "test").mask_files())
    assert names == ["ADE_val_00000001.png", "ADE_val_00000002.png"]


def test_bad_roots(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.root=FOLDER"):
        Ade20k(Config(), "train")
    assert f"{tmp_path / 'nowhere'} does not exist" in refusal(tmp_path / "nowhere")
    assert f"{tmp_path} is not an ADE20K folder" in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["images", "annotations"])
def test_missing_part_is_named(root: Path, kind: str) -> None:
    part = root / kind / "validation"
    part.rename(root / "elsewhere")
    assert refusal(root, "test").startswith(f"The folder {part} is missing")
    assert len(opened(root)) == 6


def test_part_without_images(root: Path) -> None:
    for path in (root / "images" / "validation").iterdir():
        path.unlink()
    assert refusal(root, "test") == f"The folder {root / 'images' / 'validation'} holds no .jpg image."


@pytest.mark.parametrize(("harm", "message"), [(151, "holds the value 151"), (None, "is missing")])
def test_bad_mask_is_named(root: Path, harm: int | None, message: str) -> None:
    path = root / "annotations" / "training" / "ADE_train_00000002.png"
    if harm is None:
        path.unlink()
    else:
        Image.fromarray(np.full((40, 32), harm, dtype=np.uint8)).save(path)
    with pytest.raises(UserError, match=f"{re.escape(str(path))} {message}"):
        class_index(opened(root))


# Labels and modes


def test_unlabelled_pixels_train_background_and_are_not_tested() -> None:
    scenario = make_scenario(Ade20k.classes, "100-50", "divided")
    train, test = (scenario.label_table(scenario[1], split) for split in ("train", "test"))
    assert train[[0, 1, 100, 101, 150]].tolist() == [0, 0, 0, 101, 150]
    assert test[[0, 1, 100, 101, 150]].tolist() == [255, 1, 100, 101, 150]
    first = scenario.label_table(scenario[0], "test")
    assert first[[0, 1, 100, 101, 150]].tolist() == [255, 1, 100, 255, 255]
    assert not (scenario.label_table(scenario[0], "test") == 0).any(), "background has no ground truth"


def test_default_mode_is_divided_and_can_be_changed(tmp_path: Path) -> None:
    assert resolve("mib", "ade20k", "100-50").scenario.mode == "divided"
    assert resolve("mib", "ade20k", "100-50", mode="overlapped").scenario.mode == "overlapped"
    words = ["scenario.mode=overlapped"]
    assert resolve("mib", "ade20k", "100-50", overrides=words).scenario.mode == "overlapped"
    text = "scenario: {dataset: ade20k, split: 100-50, mode: overlapped}\nmethod: {name: mib}\n"
    (tmp_path / "my.yaml").write_text(text)
    assert resolve(file=tmp_path / "my.yaml").scenario.mode == "overlapped"
    assert resolve(file=tmp_path / "my.yaml", mode="divided").scenario.mode == "divided"
    assert resolve("mib", "voc", "15-5").scenario.mode == "overlapped"
    assert resolve("mib", "voc", "15-5", mode="divided").scenario.mode == "divided"


@pytest.mark.parametrize("mode", ["disjoint", "sequential"])
def test_rule_of_voc_is_refused(mode: str) -> None:
    with pytest.raises(UserError, match=rf"ade20k has no mode '{mode}': .* Use --mode divided\."):
        resolve("mib", "ade20k", "100-50", mode=mode)


def test_protocol_of_the_paper() -> None:
    config = resolve("caf", "ade20k", "100-50", overrides=["preset=paper"])
    assert (config.train.epochs, config.train.batch_size, config.train.crop) == (60, 24, 512)
    assert (config.optim.lr_first, config.optim.lr_next) == (0.01, 0.01)
    assert resolve("mib", "ade20k", "100-50", overrides=["preset=paper"]).optim.lr_next == 0.001


@pytest.mark.parametrize(
    ("split", "plain"), [("100-50b", "100-50"), ("100-10b", "100-10"), ("50b", "50"), ("100-50a", "100-50")]
)
def test_split_names_its_order(split: str, plain: str) -> None:
    scenario = resolve("mib", "ade20k", split).scenario
    assert (scenario.split, scenario.order) == (plain, split[-1])
    assert resolve("mib", "ade20k", split, overrides=[f"scenario.order={split[-1]}"]).scenario == scenario
    with pytest.raises(UserError, match=r"has its order already: drop scenario\.order"):
        resolve("mib", "ade20k", split, overrides=["scenario.order=random-1"])


def test_other_data_sets_have_no_such_orders() -> None:
    split = resolve("mib", "voc", "15-5b").scenario.split
    with pytest.raises(UserError, match="Split '15-5b' is not understood"):
        make_scenario(Voc.classes, split)


# A run


def words(root: Path, *more: str) -> list[str]:
    return [
        f"data.root={root}",
        *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=32"),
        *("train.batch_size=2", "train.epochs=1", "train.workers=0", "eval.samples=1", *more),
    ]


def test_build_knows_the_order_and_the_finer_split(root: Path) -> None:
    config, order = resolve("mib", "ade20k", "100-50b", overrides=words(root)), Ade20k.orders["b"]
    scenario, _ = build_scenario(config, opened(root))
    assert scenario.groups == (order[:100], order[100:])
    assert scenario.division == (order[:100], *(order[a : a + 10] for a in range(100, 150, 10)))


def test_run_without_background(root: Path, tmp_path: Path) -> None:
    """3 images with wall, 2 with building, 3 with sky, one with none. Image 1: wall and sky 120 + 6/3, so it
    goes to wall, and so does 2. Image 6: wall 120 * 1/3 + 8/3, building 120 + 8/2. Others have one class."""
    config = resolve("mib", "ade20k", "wall/building,sky", overrides=words(root))
    record = run(config, tmp_path / "run", display=Display(quiet=True))
    assert [step.images["train"] for step in record.steps] == [2, 3]
    assert [step.images["test"] for step in record.steps] == [1, 2]
    last = record.steps[-1]
    assert last.classes == ("background", "wall", "building", "sky")
    assert last.policy == {"mode": "divided", "void": "background", "future": "ignore"}
    truth = last.matrix.sum(axis=1)
    assert truth[0] == 0 and (truth[1:] > 0).all(), "no ground truth for background"
