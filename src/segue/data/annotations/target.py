"""The folder that a conversion writes: built beside its place, moved there whole, or not there at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import numpy as np
from PIL import Image

from segue.core.errors import UserError, reason
from segue.data.annotations.turn import Photo
from segue.data.images import mask_picture

Layout = Literal["voc", "folder"]
MARKER = ".segue-convert"
"""file that marks a folder as an unfinished conversion, which may be replaced"""


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """A new folder OUT.partial that becomes OUT at the end, and vanishes if anything goes wrong."""
    try:
        _check_free(out)
        partial = out.with_name(f"{out.name}.partial")
        _remove_stale(partial)
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        try:
            with open(partial / MARKER, "wb") as marker:
                _lock(marker)
                yield partial
            (partial / MARKER).unlink()
            if out.is_dir():
                out.rmdir()
            os.rename(partial, out)
        except BaseException:  # Ctrl-C too
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise UserError(f"Cannot write {out}: {reason(error)}.") from error


def _check_free(out: Path) -> None:
    if out.is_dir():
        if first := next(iter(sorted(os.listdir(out))), None):
            raise UserError(f"{out} is not empty ({first} is there). Name a new folder.")
    elif os.path.lexists(out):
        raise UserError(f"{out} is a file. Name a new folder.")


def _remove_stale(partial: Path) -> None:
    if not os.path.lexists(partial):
        return
    ours = partial.is_dir() and not partial.is_symlink() and (partial / MARKER).is_file()
    empty = partial.is_dir() and not partial.is_symlink() and not os.listdir(partial)
    if not ours and not empty:
        raise UserError(f"{partial} is in the way and was not written by a conversion. Move it elsewhere.")
    if ours:
        with open(partial / MARKER, "rb") as marker:
            if not _lock(marker):
                raise UserError(f"Another conversion is writing {partial}: wait for it, or stop it.")
    shutil.rmtree(partial)


def _lock(file: IO[bytes]) -> bool:
    """Whether no other process has this file locked (where the system has file locks)."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def folders_of(layout: Layout) -> tuple[str, str, str]:
    """Where images, masks and lists go."""
    if layout == "voc":
        return "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"
    return "images", "masks", "."


def write_image(photo: Photo, path: Path, folder: Path, key: str, layout: Layout) -> None:
    """A JPEG as it is; anything else as a fine JPEG (VOC has no other), or as PNG."""
    if photo.plain_jpeg:
        shutil.copyfile(path, folder / f"{key}.jpg")
    elif layout == "folder":
        Image.fromarray(photo.pixels).save(folder / f"{key}.png")
    elif max(photo.size) > 65_500:
        raise UserError(f"{path} is too large for a JPEG. Convert to the layout 'folder'.")
    else:
        Image.fromarray(photo.pixels).save(folder / f"{key}.jpg", quality=95, subsampling=0)


def write_mask(mask: np.ndarray, path: Path) -> None:
    mask_picture(mask).save(path)


def write_class_names(path: Path, classes: Sequence[str]) -> None:
    """Line number = id. With numbers only where a name alone would be taken for one, or for a comment."""
    lines = ["background", *classes]
    if any(re.match(r"\d+\s*[\s:,;]|#", line) for line in lines):
        lines = [f"{number} {line}" for number, line in enumerate(lines)]
    _write_lines(path, lines)


def write_lists(folder: Path, keys: Mapping[str, Sequence[str]], layout: Layout) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, members in keys.items():
        _write_lines(folder / f"{split}.txt", members)
    if layout == "voc":
        _write_lines(folder / "trainval.txt", sorted([*keys["train"], *keys["val"]]))


def write_listing(path: Path, folder: Path) -> None:
    """The names of all files of a folder but this one and the mark of an unfinished conversion."""
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    _write_lines(path, [name for name in files if name != MARKER])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
