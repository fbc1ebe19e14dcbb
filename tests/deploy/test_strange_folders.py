"""Model folders of strangers, signed as they should be: what is wrong in them is said at once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pets import content, only, train
from safetensors.torch import load, save

import segue
from segue.data.input_size import LONGEST_SIDE
from segue.deploy.folder_layout import CONFIG, FILES, KEPT, PREPARATION, WEIGHTS
from segue.deploy.model_folder import _digest
from segue.deploy.prepare import Preparation

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def keeping(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose method keeps something."""
    home = tmp_path_factory.mktemp("keeping")
    segue.load(train("ewc", "cat,dog", everything, home / "run")).save(home / "pets")
    return home / "pets"


@pytest.fixture(name="own")
def own_fixture(keeping: Path, tmp_path: Path) -> Path:
    return shutil.copytree(keeping, tmp_path / "own")


def sign(
    folder: Path,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    names: dict[str, str] | None = None,
) -> None:
    """Change the section `segue`, and give the folder the digest of what it now holds."""
    config, preparation = (json.loads((folder / name).read_text()) for name in (CONFIG, PREPARATION))
    change(config["segue"])
    classes = config["segue"]["header"]["classes"]
    config["id2label"] = names or {str(channel): name for channel, name in enumerate(classes)}
    config["segue"]["digest"] = _digest(
        config, preparation, *((folder / name).read_bytes() for name in (WEIGHTS, KEPT))
    )
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("instead", ["nothing", "folder", "pipe"])
def test_a_missing_file_is_named(own: Path, name: str, instead: str):
    (own / name).unlink()
    if instead != "nothing":
        (own / name).mkdir() if instead == "folder" else os.mkfifo(own / name)
    with pytest.raises(segue.UserError, match=name):
        segue.load(own)


def test_a_file_that_cannot_be_read_is_said_once(own: Path):
    (own / PREPARATION).unlink()
    with pytest.raises(segue.UserError) as caught:
        segue.load(own)
    assert str(caught.value).count(PREPARATION) == 1 and "JSON" not in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        *(("cat", "cat"), ("background", "cat"), ("", "cat"), (" ", "cat"), ("\x1b[31m", "cat")),
        *(("a\nb", "cat"), ("\ud800", "cat"), ("x" * 10_000, "cat")),
    ],
)
def test_names_that_no_table_can_hold(own: Path, names: tuple[str, str]):
    def rename(section: dict[str, Any]) -> None:
        section["header"]["classes"][1:], section["steps"] = names, [names]

    sign(own, rename)
    with pytest.raises(segue.UserError, match="own"):
        segue.load(own)


def test_names_for_other_programs_are_those_for_segue(own: Path):
    classes = segue.load(own).classes
    names = dict(zip(map(str, range(len(classes))), reversed(classes), strict=True))
    sign(own, names=names)
    with pytest.raises(segue.UserError, match="id2label"):
        segue.load(own)
    sign(own)
    assert segue.load(own).classes == classes


BROKEN = {
    "no recipe": lambda section: section.update(recipe={}),
    "no method": lambda section: section["recipe"].pop("method"),
    "method is a number": lambda section: section["recipe"].update(method=-1),
    "method without name": lambda section: section["recipe"]["method"].pop("name"),
    "scenario is nothing": lambda section: section["recipe"].update(scenario=None),
    "eval is a list": lambda section: section["recipe"].update(eval=[]),
    "a step too few": lambda section: section.update(steps=[["cat"]]),
    "another class": lambda section: section.update(steps=[["cat", "cow"]]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_history_that_nobody_can_go_on_with(own: Path, what: str):
    sign(own, BROKEN[what])
    with pytest.raises(segue.UserError, match="own"):
        segue.load(own)


def test_what_another_model_kept_is_refused_before_anything_is_written(
    command_line: Call, own: Path, tmp_path: Path
):
    kept = {name: tensor[..., :1].contiguous() for name, tensor in load((own / KEPT).read_bytes()).items()}
    (own / KEPT).write_bytes(save(kept))
    sign(own)
    before = content(own)
    birds = only(tmp_path / "bird", "b", "bird")
    code, _, err = command_line("extend", own, birds, "--out", tmp_path / "grown")
    assert code == 2 and str(own) in err and "Traceback" not in err
    assert content(own) == before and not list(tmp_path.glob("grown*"))


@pytest.mark.parametrize("size", [(1, 20_000), (20_000, 1)])
def test_thin_images_stay_within_bounds(size: tuple[int, int]):
    height, width = Preparation(size=32).input_size(*size)
    assert max(height, width) <= LONGEST_SIDE and min(height, width) >= 1


def test_words_of_strangers_do_not_steer_the_terminal(command_line: Call, own: Path, tmp_path: Path):
    sign(own, lambda section: section.update(format="\x1b]0;x\x07\x1b[31mnew\u202e"))
    code, _, err = command_line("predict", own, tmp_path / "x.png", "--out", tmp_path / "out")
    assert code == 2 and not {"\x1b", "\x07", "\u202e"} & set(err)
    assert set(FILES) == {path.name for path in own.iterdir()}
