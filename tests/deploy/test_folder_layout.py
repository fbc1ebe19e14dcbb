"""A model folder replaces a model folder, and nothing else: no files of the user, not what links lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import segue
from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.deploy.folder_layout import FOLDERS, NATIVE
from segue.deploy.model import Model
from segue.models.segmenter import Segmenter

FITTING = {NATIVE: "weights.safetensors", "pictures": "1.jpg"}
STRANGE: dict[str, Callable[[Path, Path], object]] = {
    "notes.txt": lambda path, _: path.write_text("mine"),
    "inside": lambda path, _: path.mkdir(),
    "2.jpg": lambda path, other: path.symlink_to(other),
    "annotations.json": lambda path, _: path.write_text("mine"),
    "link.json": lambda path, other: path.symlink_to(other),
}


@pytest.fixture
def model() -> Model:
    network = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(Step(0, new=(1,), old=()), balanced=False)
    return Model(network, ("background", "cat"))


def fill(folder: Path, part: str) -> Path:
    """Give a folder the part of a model folder, with one file in it."""
    (folder / part).mkdir(parents=True)
    (folder / part / FITTING[part]).write_text("of the model before")
    return folder / part


@pytest.mark.parametrize("part", FOLDERS)
def test_what_a_model_has_written_is_replaced(model: Model, tmp_path: Path, part: str):
    model.save(tmp_path / "model")
    fill(tmp_path / "model", part)
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / part).exists()


@pytest.mark.parametrize("part", FOLDERS)
@pytest.mark.parametrize("name", STRANGE)
def test_what_stands_beside_it_is_not_deleted(model: Model, tmp_path: Path, part: str, name: str):
    model.save(tmp_path / "model")
    (tmp_path / "other").write_text("mine")
    place = fill(tmp_path / "model", part)
    STRANGE[name](place / name, tmp_path / "other")
    with pytest.raises(segue.UserError, match=name):
        model.save(tmp_path / "model")
    assert (place / name).exists() and (place / FITTING[part]).exists() and (tmp_path / "other").exists()


@pytest.mark.parametrize("part", FOLDERS)
def test_a_linked_folder_and_one_of_the_users_own_stay(model: Model, tmp_path: Path, part: str):
    mine = fill(tmp_path / "mine", part)
    model.save(tmp_path / "model")
    (tmp_path / "model" / part).symlink_to(mine)
    for place in (tmp_path / "mine", tmp_path / "model"):
        with pytest.raises(segue.UserError, match=part):
            model.save(place)
    assert (mine / FITTING[part]).exists()


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": "mine"},
        {"config.json": '{"model_type": "segformer"}', "model.safetensors": "weights", "README.md": "mine"},
        {"config.json": "no JSON"},
        {"model.safetensors": "weights of another program"},
    ],
    ids=str,
)
def test_files_of_the_same_names_are_not_replaced(model: Model, tmp_path: Path, files: dict[str, str]):
    """As in a folder of another library, or one with notes of the user."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(segue.UserError, match="name a folder of its own"):
        model.save(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_save_that_was_stopped_is_done_again(model: Model, tmp_path: Path):
    model.save(tmp_path / "model")
    (tmp_path / "model" / "config.json").unlink()
    model.save(tmp_path / "model")
    assert segue.load(tmp_path / "model", "cpu").classes == model.classes


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md"])
def test_what_a_killed_process_left_does_not_stand_in_the_way(model: Model, tmp_path: Path, name: str):
    half = tmp_path / "model" / f".{name}.ab12_cd.part"
    half.parent.mkdir()
    half.write_text("half of it")
    model.save(tmp_path / "model")
    assert not half.exists() and segue.load(tmp_path / "model").classes == model.classes


def test_half_a_file_of_somebody_else_is_not_deleted(model: Model, tmp_path: Path):
    half = tmp_path / "model" / ".notes.txt.ab12.part"
    half.parent.mkdir()
    half.write_text("mine")
    with pytest.raises(segue.UserError, match="notes"):
        model.save(tmp_path / "model")
    assert half.read_text() == "mine"
