"""A source of annotations to a folder that can be trained on: images, masks, class names, lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.data.annotations.base import Drawing, Source, note_first, note_left_out, tell
from segue.data.annotations.keys import assign_keys
from segue.data.annotations.labelme import read_embedded
from segue.data.annotations.target import (
    Layout,
    building,
    folders_of,
    write_class_names,
    write_image,
    write_listing,
    write_lists,
    write_mask,
)
from segue.data.annotations.turn import make_mask, read_photo
from segue.data.layout import held_out

SHOWN = 5
"""problems that a message lists"""
MOST_THREADS = 8


@dataclass(frozen=True)
class Converted:
    """What a conversion has written."""

    out: Path
    classes: tuple[str, ...]
    images: dict[str, int]
    """split -> number of images"""
    images_with: dict[str, dict[str, int]]
    """split -> class -> number of images that show it"""
    pixels: dict[str, dict[str, int]]
    """split -> class -> number of pixels"""
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    """why images were left out, a sentence for each"""


@dataclass(frozen=True)
class _Done:
    """One image of the new folder."""

    key: str
    drawing: Drawing
    pixels: np.ndarray
    """256 numbers: how many pixels have each value"""
    hidden: int
    """regions under others"""
    deep: bool
    """the image had 16 bits"""


def convert(
    source: Source,
    out: Path,
    layout: Layout,
    test_share: float = 0.2,
    skip_bad: bool = False,
    advance: Callable[[int, int], None] | None = None,
    bits: int = 16,
    listing: str | None = None,
) -> Converted:
    """Write a source as a new folder, all of it or nothing.

    Images that cannot be used are an error; `skip_bad` leaves them out instead. Where the source does not say
    which images are for testing, `test_share` of them are, chosen by a hash of their keys. `bits` of a 16-bit
    image carry the picture: 12 makes 4095 white. `listing` is the name of a file that lists all others that
    were written, for whoever is to remove them again.
    """
    if layout not in ("voc", "folder"):
        raise UserError(f"The layout '{layout}' is unknown. Valid: voc, folder.")
    if not 0 < test_share < 1:
        raise UserError(f"The share of images for testing should be above 0 and below 1, not {test_share}.")
    if not 8 <= bits <= 16:
        raise UserError(f"An image cannot have {bits} bits: 8 to 16 are possible.")
    out = Path(os.path.abspath(user_path(out)))
    out = out.resolve() if out.is_symlink() else out
    with building(out) as partial:
        done, bad = _convert_all(source, partial, layout, bits, advance)
        if bad and not (skip_bad and done):
            raise UserError(_complaint(bad, len(source.drawings), skip_bad))
        keys, notes = choose_splits(done, test_share)
        write_lists(partial / folders_of(layout)[2], keys, layout)
        write_class_names(partial / "classes.txt", source.classes)
        notes = [*_note_deep(done, bits), *notes]
        result = _summary(source, out, done, keys, notes, bad)
        if listing is not None:
            write_listing(partial / listing, partial)
    return result


def _convert_all(
    source: Source, partial: Path, layout: Layout, bits: int, advance: Callable[[int, int], None] | None
) -> tuple[list[_Done], list[str]]:
    """What was written, and a sentence for each image that was not, both in the order of the source."""
    for folder in folders_of(layout)[:2]:
        (partial / folder).mkdir(parents=True)
    drawings = _refuse_twice(source.drawings)
    keys = assign_keys([drawing.name for drawing in drawings])
    outcomes: dict[int, _Done | UserError] = {}
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        try:
            jobs = {
                pool.submit(_attempt, drawing, key, source.classes, partial, layout, bits): number
                for number, (drawing, key) in enumerate(zip(drawings, keys, strict=True))
            }
            for job in as_completed(jobs):
                outcomes[jobs[job]] = job.result()
                if advance is not None:
                    advance(len(outcomes), len(jobs))
        except BaseException:  # a full disk, Ctrl-C: the others need not begin
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    ordered = [outcomes[number] for number in range(len(drawings))]
    bad = [str(outcome) for outcome in ordered if isinstance(outcome, UserError)]
    return [outcome for outcome in ordered if isinstance(outcome, _Done)], bad


def _refuse_twice(drawings: Sequence[Drawing]) -> list[Drawing]:
    """An image with two annotations is a problem: nobody knows which counts, or in which split it is."""
    first: dict[Path, Drawing] = {}
    checked = []
    for drawing in drawings:
        if drawing.image is not None and not drawing.problem:
            earlier = first.setdefault(drawing.image.resolve(), drawing)
            if earlier is not drawing:
                problem = (
                    f"{drawing.file}: the image {drawing.image} already has an annotation in {earlier.file}."
                )
                drawing = replace(drawing, problem=f"{problem} Keep one of them.")
        checked.append(drawing)
    return checked


def _attempt(
    drawing: Drawing, key: str, classes: tuple[str, ...], partial: Path, layout: Layout, bits: int
) -> _Done | UserError:
    """A bad image is an outcome; an error of the disk that is written to ends the conversion."""
    try:
        return _convert_one(drawing, key, classes, partial, layout, bits)
    except UserError as error:
        return error


def _convert_one(
    drawing: Drawing, key: str, classes: tuple[str, ...], partial: Path, layout: Layout, bits: int
) -> _Done:
    if drawing.problem:
        raise UserError(drawing.problem)
    images, masks, _ = (partial / folder for folder in folders_of(layout))
    with _image_file(drawing, partial / f".{key}.embedded") as path:
        photo = read_photo(path, bits)
        mask, empty, hidden = make_mask(drawing, classes, photo)
        write_image(photo, path, images, key, layout)
    write_mask(mask, masks / f"{key}.png")
    counts = np.bincount(mask.ravel(), minlength=256)
    return _Done(key, replace(drawing, left_out=drawing.left_out + empty), counts, hidden, photo.deep)


@contextmanager
def _image_file(drawing: Drawing, temporary: Path) -> Iterator[Path]:
    """The image's file; a temporary one for an image inside its annotation."""
    if drawing.image is not None:
        yield drawing.image
        return
    try:
        temporary.write_bytes(read_embedded(drawing.file))
        yield temporary
    except UserError as error:
        raise UserError(str(error).replace(str(temporary), f"The image inside {drawing.file}")) from error
    finally:
        temporary.unlink(missing_ok=True)


def choose_splits(done: Sequence[_Done], test_share: float) -> tuple[dict[str, list[str]], list[str]]:
    """Keys of train and val (and test, if the source has all three), and what there is to say about it."""
    told = {
        split: [item.key for item in done if item.drawing.split == split]
        for split in ("train", "val", "test")
    }
    rest = [item.key for item in done if item.drawing.split is None]
    if told["train"] and (told["val"] or told["test"]):
        more = tell(len(rest), "image of no split was", "images of no split were")
        notes = [f"{more} put into train."] if rest else []
        told["train"] += rest
        if not told["val"]:
            notes.append("The source has test images and no val images: they are written as val.")
            told["val"] = told.pop("test")
        return {split: sorted(keys) for split, keys in told.items() if keys}, notes
    keys = sorted(item.key for item in done)
    if len(keys) < 2:
        raise UserError("At least two images that can be used are needed, one to train and one to test.")
    val = list(held_out(keys, test_share, "test"))
    chosen = tell(len(val), "was chosen by its name", "were chosen by their names")
    notes = [f"The source does not say which images are for testing: {chosen}."]
    return {"train": sorted(set(keys) - set(val)), "val": val}, notes


def _note_deep(done: Sequence[_Done], bits: int) -> list[str]:
    became = tell(sum(item.deep for item in done), "16-bit image became", "16-bit images became")
    meaning = "full range" if bits == 16 else f"{2**bits - 1} is white"
    return [f"{became} 8 bit (--bits {bits}: {meaning})."] if any(item.deep for item in done) else []


def _summary(
    source: Source,
    out: Path,
    done: Sequence[_Done],
    keys: dict[str, list[str]],
    notes: list[str],
    bad: list[str],
) -> Converted:
    by_key = {item.key: item.pixels for item in done}
    tables = {split: np.stack([by_key[key] for key in members]) for split, members in keys.items()}
    columns = range(1, len(source.classes) + 1)
    names = dict(zip(source.classes, columns, strict=True))
    pixels = {
        split: {name: int(table[:, column].sum()) for name, column in names.items()}
        for split, table in tables.items()
    }
    images_with = {
        split: {name: int((table[:, column] > 0).sum()) for name, column in names.items()}
        for split, table in tables.items()
    }
    if not any(count for counts in pixels.values() for count in counts.values()):
        plain = f"{source.name}: no image shows any class; every mask would be background or void."
        raise UserError(" ".join([plain, *note_left_out([item.drawing for item in done])]))
    return Converted(
        out,
        source.classes,
        {split: len(members) for split, members in keys.items()},
        images_with,
        pixels,
        (*_notes(source, done, images_with), *notes),
        tuple(bad),
    )


def _notes(source: Source, done: Sequence[_Done], images_with: dict[str, dict[str, int]]) -> list[str]:
    hidden = [(item.hidden, item.drawing.name) for item in done]
    notes = [
        *source.notes,
        *note_left_out([item.drawing for item in done]),
        *note_first(hidden, "region is hidden under others", "regions are hidden under others"),
    ]
    blank = [item for item in done if not item.pixels[1:255].any()]
    if blank:
        told = tell(len(blank), "image shows no class", "images show no class")
        notes.append(f"{told}, first {blank[0].drawing.name}.")
    for split, counts in images_with.items():
        if absent := [name for name, count in counts.items() if not count]:
            told = tell(len(absent), "class has no image", "classes have no image")
            notes.append(f"{told} in {split}: {', '.join(absent[:8])}.")
    folded: dict[str, str] = {}
    for name in source.classes:
        if (other := folded.setdefault(name.casefold(), name)) != name:
            notes.append(f"'{other}' and '{name}' are two classes; they differ in capitals only.")
    return notes


def _complaint(bad: Sequence[str], total: int, skip_bad: bool) -> str:
    lines = [f"{len(bad)} of {total} images cannot be used:", *(f"  {problem}" for problem in bad[:SHOWN])]
    if len(bad) > SHOWN:
        lines.append(f"  and {len(bad) - SHOWN} more.")
    lines.append(
        "Nothing is left to convert." if skip_bad else "Mend them, or leave them out with --skip-bad."
    )
    return "\n".join(lines)
