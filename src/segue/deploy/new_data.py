"""The images that a model is extended with: a folder as it is, or annotations of other tools, converted.

A conversion lies beside the grown model (GROWN-data). It is there whole or not at all, a resumed extension
uses it again, and only files that it lists as its own are ever removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segue.core.errors import UserError, os_sentence
from segue.core.ordinary import user_path
from segue.core.progress import Display
from segue.data.annotations import read_source
from segue.data.convert import convert
from segue.data.layout import IMAGE_FOLDERS, MASK_FOLDERS, read_lines
from segue.engine.folder import locked

LISTING = "converted-files.txt"
"""file in a conversion that lists all others: what may be removed again"""
TITLES = {
    "coco": "COCO",
    "labelme": "LabelMe",
    "labelstudio": "Label Studio",
    "polygons": "Cityscapes polygons",
    "voc": "VOC masks",
}
TITLES |= {"cityscapes ids": "Cityscapes ids", "folder": "images and masks"}


def data_folder(data: str | Path, out: str | Path) -> Path:
    """The folder of images and masks that `data` stands for when the model `out` is taught."""
    return user_path(data) if is_plain(user_path(data)) else converted_place(Path(out))


def converted_place(out: Path) -> Path:
    return out.with_name(f"{out.name}-data")


def is_plain(data: Path) -> bool:
    """Whether data can be trained on as they are: class names, and images and masks beside them."""
    if not (data / "classes.txt").is_file():
        return False
    pairs = all(any((data / name).is_dir() for name in names) for names in (IMAGE_FOLDERS, MASK_FOLDERS))
    return pairs or not any(data.glob("*.json"))  # what is missing there is said by whoever opens it


@contextmanager
def ready_folder(
    data: str | Path, out: Path, run_folder: Path, resume: bool, overwrite: bool, display: Display
) -> Iterator[Path]:
    """The folder to train on. A conversion that no run has begun with is removed again."""
    place = data_folder(data, out)
    recipe = run_folder / "recipe.yaml"
    run_was_there = recipe.exists()
    used_before = (place / LISTING).is_file() and run_was_there and not overwrite
    if is_plain(user_path(data)) or used_before:
        if used_before:
            display.say(f"{data} has been converted to {place}.")
        yield place
        return
    with locked(run_folder):  # another extension may be reading what lies there
        _convert(data, place, display)
    try:
        yield place
    except BaseException:
        began = recipe.exists() and (resume or overwrite or not run_was_there)
        if not began:
            with suppress(UserError), locked(run_folder, patience=0.0):
                remove_converted(place)
        raise


def _convert(data: str | Path, place: Path, display: Display) -> None:
    """Convert to a place where an earlier conversion may lie: it goes when the new one is whole."""
    if place.exists() and not (place / LISTING).is_file():
        raise UserError(f"{place} is in the way: {data} is to be converted to it. Move it, or rename --out.")
    fresh = place.with_name(f"{place.name}.new")
    if (fresh / LISTING).is_file():
        remove_converted(fresh)
    try:
        source = read_source(Path(data))
        title = TITLES.get(source.format, source.format)
        with display.bar(f"converting {title}", len(source.drawings)) as bar:
            done = convert(source, fresh, "folder", advance=lambda n, _: bar.update(n), listing=LISTING)
    except UserError as error:
        if "--" not in str(error):
            raise
        raise UserError(
            f"{error}\nThese are options of segue data convert IN OUT: extend with OUT."
        ) from error
    if place.exists():
        remove_converted(place)
    os.rename(fresh, place)
    images = sum(done.images.values())
    display.say(f"{data}: {title}, {images} images of {', '.join(done.classes)}. Converted to {place}.")
    for note in done.notes:
        display.say(f"  {note}")


def remove_converted(place: Path) -> None:
    """Remove a conversion, unless something else lies in its folder."""
    own = {place / name for name in read_lines(place / LISTING)} | {place / LISTING}
    there = [path for path in place.rglob("*") if path.is_symlink() or not path.is_dir()]
    if place.is_symlink() or (foreign := [path for path in there if path not in own or path.is_symlink()]):
        what = place if place.is_symlink() else foreign[0]
        raise UserError(f"{what} was written by no conversion: move it elsewhere. Nothing was deleted.")
    try:
        for path in sorted(there, key=lambda path: path.name == LISTING):  # the listing last
            path.unlink()
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir()
        place.rmdir()
    except OSError as error:
        raise UserError(f"Cannot remove {place}: {os_sentence(error)}") from error
