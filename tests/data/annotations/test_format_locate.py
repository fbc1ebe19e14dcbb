"""Images are found by what annotation files say, inside the folders that the user named and nowhere else."""

import os
from pathlib import Path

import pytest
from made_sources import photo, refusal

from segue.data.annotations.locate import Places, walk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("images/a.jpg", "images/deep/b.jpg", "train/c.jpg", "val/c.jpg", "x/y/d.jpg", "z/y/d.jpg"):
        photo(tmp_path / "root" / name)
    photo(tmp_path / "secret.jpg")
    photo(tmp_path / "elsewhere" / "e.jpg")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("images/a.jpg", "images/a.jpg"),
        ("images\\a.jpg", "images/a.jpg"),
        ("/images/./a.jpg", "images/a.jpg"),
        ("a.jpg", "images/a.jpg"),
        ("../../../a.jpg", "images/a.jpg"),
        ("b.jpg", "images/deep/b.jpg"),
        ("/home/me/x/y/d.jpg", "x/y/d.jpg"),
        ("C:\\z\\y\\d.jpg", "z/y/d.jpg"),
    ],
)
def test_references(reference: str, found: str, root: Path) -> None:
    assert Places(root).find(reference, root, "f.json") == root / found


def test_two_of_a_name_are_told_unless_the_split_decides(root: Path) -> None:
    places = Places(root)
    text = refusal(places.find, "c.jpg", root, "f.json")
    assert str(root / "train" / "c.jpg") in text and str(root / "val" / "c.jpg") in text
    assert places.find("c.jpg", root, "f.json", "val") == root / "val" / "c.jpg"


@pytest.mark.parametrize(
    "reference",
    ["../secret.jpg", "images/../../secret.jpg", "../../../../../../etc/passwd", "/etc/passwd", "e.jpg"],
)
def test_nothing_outside_is_found(reference: str, root: Path) -> None:
    text = refusal(Places(root).find, reference, root / "images", "f.json")
    assert text.startswith("f.json: the image") and str(root) in text


def test_absolute_paths_that_lead_out(root: Path, tmp_path: Path) -> None:
    assert "is not in" in refusal(Places(root).find, str(tmp_path / "secret.jpg"), root, "f.json")


def test_links_that_lead_out(root: Path, tmp_path: Path) -> None:
    os.symlink(tmp_path / "secret.jpg", root / "images" / "link.jpg")
    os.symlink(tmp_path / "elsewhere", root / "linked")
    os.symlink(root / "images" / "loop.jpg", root / "images" / "loop.jpg")
    os.symlink("a.jpg", root / "images" / "inside.jpg")
    places = Places(root)
    for reference in ("images/link.jpg", "link.jpg", "linked/e.jpg", "images/loop.jpg"):
        assert "links to elsewhere do not count" in refusal(places.find, reference, root, "f.json")
    assert places.find("inside.jpg", root, "f.json").name == "inside.jpg"
    named = Places(root, tmp_path / "elsewhere")
    assert named.find("linked/e.jpg", root, "f.json").resolve() == tmp_path / "elsewhere" / "e.jpg"


def test_the_named_folder_comes_first(root: Path, tmp_path: Path) -> None:
    photo(tmp_path / "elsewhere" / "images" / "a.jpg")
    places = Places(root, tmp_path / "elsewhere")
    assert places.find("images/a.jpg", root, "f") == tmp_path / "elsewhere" / "images" / "a.jpg"
    assert places.name(tmp_path / "elsewhere" / "images" / "a.jpg") == "images/a.jpg"


def test_accents_in_either_form(root: Path) -> None:
    photo(root / "images" / "cafe\u0301.jpg")
    assert Places(root).find("caf\u00e9.jpg", root, "f.json").parent.name == "images"


def test_hidden_files_and_linked_folders_are_not_walked(root: Path, tmp_path: Path) -> None:
    photo(root / ".git" / "h.jpg")
    photo(root / "._a.jpg.png")
    os.symlink(tmp_path / "elsewhere", root / "linked")
    assert len(list(walk(root))) == 6
