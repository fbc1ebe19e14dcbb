"""Where images and masks lie in a folder, and which of them train and test."""

from __future__ import annotations

import hashlib
import os
import posixpath
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary

IMAGE_FOLDERS = ("images", "JPEGImages")
MASK_FOLDERS = ("masks", "labels", "annotations", "SegmentationClass")
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp"})
MASK_SUFFIXES = frozenset({".png", ".tif", ".tiff", ".bmp", ".gif"})
HASH_STEPS = 2**32


@dataclass(frozen=True)
class Subset:
    """The images that train, or those that test, and where their masks are."""

    images: Path
    masks: Path
    keys: tuple[str, ...]
    """paths of the images below `images`, without suffix"""
    guessed: bool = False
    """a hash of the names says which images train and test, since nothing else does"""


def find_subset(root: Path, name: str, split: Literal["train", "test"], test_share: float) -> Subset:
    """The subset of a folder's images that has this name, such as train; the folder's layout is found out.

    Where nothing speaks of subsets, the usual names (`train`, `val`) mean a fraction of all images.
    """
    if (root / name).is_dir() and (root / f"{name}annot").is_dir():
        return Subset(root / name, root / f"{name}annot", tuple(files_by_key(root / name, IMAGE_SUFFIXES)))
    images, masks = (_only(root, names, what) for what, names in _KINDS.items())
    for place in _list_places(root):
        if (place / f"{name}.txt").exists():
            return Subset(images, masks, read_list(place / f"{name}.txt"))
    if (images / name).is_dir() or (masks / name).is_dir():
        if not (images / name).is_dir() or not (masks / name).is_dir():
            absent = masks / name if (images / name).is_dir() else images / name
            raise UserError(f"{absent} is missing: the subset '{name}' needs images and masks.")
        return Subset(images / name, masks / name, tuple(files_by_key(images / name, IMAGE_SUFFIXES)))
    subsets = subset_names(root)
    if subsets or name != USUAL[split]:
        has = f"but it has {', '.join(subsets[:8])}" if subsets else "nor any other"
        raise UserError(
            f"{root} has no subset '{name}' (neither {root / name}.txt nor {images / name}), {has}."
            " Name its subsets: data.train=..., data.test=..."
        )
    chosen = held_out(tuple(files_by_key(images, IMAGE_SUFFIXES)), test_share, split)
    return Subset(images, masks, chosen, guessed=True)


def subset_names(root: Path) -> list[str]:
    """The subsets that a folder has lists or sub-folders of, whatever they are for."""
    images = [root / name for name in IMAGE_FOLDERS if (root / name).is_dir()]
    found = {name for place in _list_places(root) for name in _lists(place)}
    found |= {name for folder in images for name in _folders(folder)}
    return sorted(found | {name for name in _folders(root) if (root / f"{name}annot").is_dir()})


_KINDS: dict[str, Sequence[str]] = {"images": IMAGE_FOLDERS, "masks": MASK_FOLDERS}


def files_by_key(folder: Path, suffixes: Collection[str]) -> dict[str, Path]:
    """The files below a folder by their path without suffix, in order of name; hidden ones do not count."""
    found: dict[str, Path] = {}
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below, real = os.path.relpath(place, folder), os.path.realpath(place)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)
            if name.startswith(".") or suffix.lower() not in suffixes:
                continue
            key = _key(stem if below == "." else f"{below}{os.sep}{stem}")
            if key in found:
                raise UserError(f"{found[key]} and {os.path.join(place, name)} have the same name: keep one.")
            found[key] = Path(place, name)
    return dict(sorted(found.items()))


def held_out(keys: Sequence[str], share: float, split: Literal["train", "test"]) -> tuple[str, ...]:
    """The images of a split, by a hash of their names: an image stays where it is when others are added."""
    places = {key: _place(key) for key in keys}
    test = {key for key, place in places.items() if place < share}
    if len(keys) > 1:  # both splits need an image
        ranked = sorted(keys, key=places.__getitem__)
        test = (test | {ranked[0]}) - {ranked[-1]}
    return tuple(key for key in keys if (key in test) == (split == "test"))


def read_list(path: Path) -> tuple[str, ...]:
    """Keys, one a line; a line may also be the name of an image file."""
    lines = (_without_suffix(line) for line in read_lines(path))
    # ./a and a are one image, so they are to be one key
    return check_keys([posixpath.normpath(line) if not leads_out(line) else line for line in lines], path)


def read_lines(path: Path) -> list[str]:
    """The lines of a list that are not empty, without the spaces around them."""
    try:
        lines = read_ordinary(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"The image list {path} cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"The image list {path} is not a text file in UTF-8.") from error
    return [line.strip() for line in lines if line.strip()]


def check_keys(keys: Sequence[str], path: Path) -> tuple[str, ...]:
    """The keys of a list: some, each once, none that leads out of its folder."""
    if not keys:
        raise UserError(f"The image list {path} is empty.")
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise UserError(f"The image list {path} names '{key}' twice.")
        if leads_out(key):
            raise UserError(f"The image list {path} names '{key[:200]}', which leads out of the data folder.")
        seen.add(key)
    return tuple(keys)


def leads_out(key: str) -> bool:
    """Whether a name is no plain path below a folder."""
    parts = PurePosixPath(key.replace("\\", "/")).parts
    return not parts or parts[0] == "/" or ".." in parts or "\0" in key or Path(key).is_absolute()


def _refuse(error: OSError) -> None:
    raise UserError(f"The folder {error.filename} cannot be read: {reason(error)}.") from error


def _only(root: Path, names: Iterable[str], what: str) -> Path:
    there = [root / name for name in names if (root / name).is_dir()]
    if not there:
        raise UserError(f"{root} has no folder of {what}: it should be called {' or '.join(names)}.")
    if len(there) > 1:
        raise UserError(f"{root} has {there[0].name} and {there[1].name}: keep one folder of {what}.")
    return there[0]


def _key(text: str) -> str:
    # The same name may come composed (Linux) or decomposed (macOS).
    return unicodedata.normalize("NFC", text.replace(os.sep, "/"))


def _without_suffix(line: str) -> str:
    stem, suffix = os.path.splitext(line)
    return unicodedata.normalize("NFC", stem if suffix.lower() in IMAGE_SUFFIXES else line)


def _place(key: str) -> float:
    return (
        int.from_bytes(hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:4], "big")
        / HASH_STEPS
    )


def _list_places(root: Path) -> tuple[Path, Path]:
    return root, root / "ImageSets" / "Segmentation"


def _lists(folder: Path) -> list[str]:
    """Subsets that have a list."""
    return [path.stem for path in folder.glob("*.txt") if path.stem.lower() in SUBSETS]


def _folders(images: Path) -> list[str]:
    """Subsets that have a folder of their own."""
    return [path.name for path in images.iterdir() if path.is_dir() and path.name.lower() in SUBSETS]


USUAL = {"train": "train", "test": "val"}
SUBSETS = frozenset({"train", "training", "trainval", "val", "valid", "validation", "test", "testing", "dev"})
"""names that are taken for subsets"""
