"""What `segue extend` freezes on a CPU, and that a recipe which freezes by itself is followed bit for bit."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_networks import CLASSES, MEAN, STD, network
from PIL import Image
from rich.console import Console

import segue
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.deploy.freezing import with_freezing
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.recipe import stored_recipe

QUIET = Display(quiet=True)
TINY = (
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=32", "train.workers=0"),
    *("train.epochs=2", "train.batch_size=4", "eval.samples=0"),
)


def draw(root: Path, letter: str, class_id: int, names: tuple[str, ...], count: int = 6) -> Path:
    """Images of one class each, a bright square on noise."""
    generator = np.random.default_rng(sum(letter.encode()))
    for subset in ("train", "val"):
        for number in range(count):
            image = generator.integers(0, 60, (40, 40, 3), dtype=np.uint8)
            mask = np.zeros((40, 40), dtype=np.uint8)
            image[10:30, 10:30, len(letter.strip("a")) % 3], mask[10:30, 10:30] = 200, class_id
            for name, picture in (("images", image), ("masks", mask)):
                (root / name / subset).mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(root / name / subset / f"{letter}{number}.png")
    (root / "classes.txt").write_text("\n".join(["background", *names]))
    return root


def trained(home: Path, split: str, *words: str) -> Path:
    data = draw(draw(home / "all", "a", 1, ("cat", "bird")), "b", 2, ("cat", "bird"))
    recipe = segue.resolve("caf", "folder", split, overrides=[*TINY, *words, f"data.root={data}"])
    segue.run(recipe, home / split.replace("/", "-"), display=QUIET)
    return home / split.replace("/", "-")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> segue.Model:
    return segue.load(trained(tmp_path_factory.mktemp("plain"), "cat"), "cpu")


def test_a_recipe_that_freezes_is_followed_bit_for_bit(tmp_path: Path) -> None:
    frozen = ("model.frozen_stages=2", "train.scale=[1,1]")
    rehearsed, first = (trained(tmp_path, split, *frozen) for split in ("cat/bird", "cat"))
    data = draw(tmp_path / "new", "b", 1, ("bird",))
    words = ["train.balance=none"]
    segue.extend(first, data, tmp_path / "grown", overrides=words, display=QUIET, device="cpu")
    assert stored_recipe(tmp_path / "grown-run").train.cache_frozen, "student and teacher share the stages"
    ours, theirs = (load_tree(CheckpointStore(run).path(1)) for run in (tmp_path / "grown-run", rehearsed))
    assert ours["method"].keys() == theirs["method"].keys()
    for name, value in theirs["method"].items():
        assert torch.equal(ours["method"][name], value), name


def settings(words: list[str]) -> dict[str, str]:
    assert len({word.partition("=")[0] for word in words}) == len(words), "each key once"
    return dict(word.split("=") for word in words)


@pytest.mark.parametrize(
    ("said", "stages", "views", "cached"),
    [
        ([], "3", "4", "true"),
        (["train.epochs_next=10"], "4", "4", "true"),
        (["train.epochs=12", "model.frozen_stages=auto"], "4", "4", "true"),
        (["model.frozen_stages=1"], "1", None, "true"),
        (["model.frozen_stages=0"], "0", None, None),
        (["train.views=2"], "3", "2", "true"),
        (["train.cache_frozen=false", "train.views=0"], "3", "0", "false"),
    ],
)
def test_what_is_not_said_is_chosen(model, said: list[str], stages: str, views, cached) -> None:
    found = settings(with_freezing(model, "caf", said, "cpu"))
    chosen = [found.get(key) for key in ("model.frozen_stages", "train.views", "train.cache_frozen")]
    assert chosen == [stages, views, cached]


def test_blocks_of_the_models_recipe_belong_to_its_own_stages(model) -> None:
    for said, blocks in (([], None), (["model.frozen_stages=0"], "0"), (["model.frozen_stages=auto"], "0")):
        assert settings(with_freezing(model, "caf", said, "cpu")).get("model.frozen_blocks") == blocks
    words = ["model.frozen_stages=1", "model.frozen_blocks=2"]
    assert settings(with_freezing(model, "caf", words, "cpu"))["model.frozen_blocks"] == "2"


def test_other_devices_freeze_nothing_by_themselves(model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.deploy.freezing.pick_device", lambda _: torch.device("cuda"))
    assert with_freezing(model, "caf", ["optim.clip=1"], "auto") == ["optim.clip=1"]
    assert settings(with_freezing(model, "caf", ["model.frozen_stages=auto"], "auto"))["train.views"] == "4"


def test_a_method_whose_layers_follow_what_is_trained_is_left_alone(model) -> None:
    assert with_freezing(model, "rcil", [], "cpu") == []


def test_the_choice_is_told_stored_and_inherited(model, tmp_path: Path) -> None:
    text, data = io.StringIO(), draw(tmp_path / "new", "b", 1, ("bird",))
    grown = segue.extend(
        model, data, tmp_path / "grown", display=Display(Console(file=text, width=300)), device="cpu"
    )
    assert "3 of 4 stages" in text.getvalue()
    recipe = stored_recipe(tmp_path / "grown-run")
    assert (recipe.model.frozen_stages, recipe.train.views, recipe.train.cache_frozen) == (3, 4, True)
    before, after = model.network.state_dict(), grown.network.state_dict()
    changed = {name for name in after if name in before and not torch.equal(before[name], after[name])}
    assert not any(name.startswith(f"backbone.stages.{n}.") for name in changed for n in range(3))
    assert any(name.startswith("backbone.stages.3.") for name in changed)
    again = settings(with_freezing(grown, "caf", [], "cpu"))
    assert "model.frozen_stages" not in again, "its recipe freezes by itself now"


def test_the_encoder_of_an_adopted_network_is_frozen_whole(tmp_path: Path) -> None:
    adopted = segue.adopt(network("own U-Net"), CLASSES, MEAN, STD)
    text, data = io.StringIO(), draw(tmp_path / "new", "b", 1, ("bird",))
    grown = segue.extend(
        adopted, data, tmp_path / "grown", overrides=["train.epochs=1", "train.workers=0", "eval.samples=0"],
        display=Display(Console(file=text, width=300)), device="cpu",
    )  # fmt: skip
    recipe, stages = stored_recipe(tmp_path / "grown-run"), adopted.network.parts.stages
    assert (recipe.model.frozen_stages, recipe.train.views, recipe.train.cache_frozen) == (stages, 4, True)
    assert f"{stages} of {stages} stages" in text.getvalue() and "cannot begin" not in text.getvalue()
    assert recipe.train.crop == 32, "images of 40 pixels are not enlarged"
    before, after = (dict(model.network.body.named_parameters()) for model in (adopted, grown))
    changed = {name for name in before if name in after and not torch.equal(before[name], after[name])}
    encoder = adopted.network.parts.encoder_modules
    assert changed and not any(name.startswith(f"{path}.") for name in changed for path in encoder)


def test_a_word_that_is_no_number_is_refused(model, tmp_path: Path) -> None:
    data = draw(tmp_path / "new", "b", 1, ("bird",))
    with pytest.raises(UserError, match="frozen_stages"):
        segue.extend(model, data, tmp_path / "grown", overrides=["model.frozen_stages=some"], display=QUIET)
