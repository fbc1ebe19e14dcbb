"""What a user names to be predicted: files, folders, patterns, videos, stdin. Each image gets its own key.

A key names what is written for an image. It is one word that fits any file system, so that no name of a file,
however strange, leads out of the folder that is written.
"""

from __future__ import annotations

import glob
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from segue.core.errors import UserError
from segue.core.ordinary import LARGEST, user_path
from segue.data.annotations.keys import assign_keys
from segue.data.annotations.locate import walk
from segue.data.image_files import BadFile, opened
from segue.data.images import read_image, rgb_pixels
from segue.data.layout import IMAGE_SUFFIXES
from segue.data.tiff_rows import large_tiff, tiff_rows
from segue.deploy.tiles import Rows
from segue.deploy.video import VIDEO_SUFFIXES, frames

STDIN = "-"
SUFFIXES = IMAGE_SUFFIXES | {".gif"}
"""endings of images in a folder; a file that is named may have any"""


@dataclass(frozen=True)
class Input:
    """An image file, a video or stdin."""

    name: str
    """path of the file as the user has named it, or stdin"""
    key: str
    """word that names what is written"""
    path: Path | None
    """file; None: stdin"""
    kind: Literal["image", "video", "stdin"] = "image"

    @property
    def state(self) -> str:
        """Another text once the file has changed."""
        if self.path is None:
            return ""
        try:
            status = os.stat(self.path)
        except OSError:  # whoever reads it says why
            return ""
        return f"{status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True)
class Picture:
    """One image that is open to be read."""

    name: str
    key: str
    path: Path | None
    """file that holds this image alone"""
    size: tuple[int, int]
    """height, width"""
    rows: Rows
    whole: bool = True
    """the image is in memory; else only parts of it ever are"""

    @property
    def pixels(self) -> np.ndarray:
        return self.rows(0, self.size[0])


def find_inputs(words: Sequence[str], out: Path) -> list[Input]:
    """Everything that the words name, in their order, each file once; what lies in `out` does not count."""
    found: dict[str, tuple[str, Path | None]] = {}
    for word in words:
        for path in [None] if word == STDIN else _files(word, out):
            identity = STDIN if path is None else os.path.realpath(path)
            found.setdefault(identity, ("stdin" if path is None else str(path), path))
    keys = assign_keys(_names_for_keys([name for name, _ in found.values()]))
    return [
        Input(name, key, path, _kind(path)) for key, (name, path) in zip(keys, found.values(), strict=True)
    ]


def _names_for_keys(names: Sequence[str]) -> list[str]:
    """Paths without the ending of the file, unless a.jpg and a.png lie beside each other."""
    bare = [os.path.splitext(name)[0] for name in names]
    count = Counter(one.casefold() for one in bare)
    return [
        "/".join(Path(one if count[one.casefold()] == 1 else f"{one}_{Path(name).suffix[1:]}").parts)
        for one, name in zip(bare, names, strict=True)
    ]


def _kind(path: Path | None) -> Literal["image", "video", "stdin"]:
    if path is None:
        return "stdin"
    return "video" if path.suffix.lower() in VIDEO_SUFFIXES else "image"


def _files(word: str, out: Path) -> list[Path]:
    path = user_path(word)
    if not word or "\0" in word:
        raise UserError(
            "The name of an input is empty. Name files, folders or patterns such as 'photos/*.jpg'."
        )
    if path.is_dir():
        own = os.path.realpath(out)
        images = [file for file in walk(path) if file.suffix.lower() in SUFFIXES]
        images = [file for file in images if not Path(os.path.realpath(file)).is_relative_to(own)]
        if not images:
            raise UserError(f"{path} has no image ({', '.join(sorted(SUFFIXES))}).")
        return images
    if os.path.lexists(path):
        return [path]
    if not glob.has_magic(word):
        raise UserError(f"There is no file or folder {word}.")
    matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
    files = [match for match in matches if match.is_file()]
    if not files:
        raise UserError(f"No file matches {word}.")
    return files


@contextmanager
def picture(source: Input, bits: int) -> Iterator[Picture]:
    """An image, or a `BadFile`."""
    if source.path is not None and large_tiff(source.path):
        with tiff_rows(source.path, bits) as file:
            yield Picture(source.name, source.key, source.path, file.size, file.rows, whole=False)
        return
    pixels = read_image(source.path, bits) if source.path is not None else _from_stdin(bits)
    yield in_memory(source.name, source.key, source.path, pixels)


def in_memory(name: str, key: str, path: Path | None, pixels: np.ndarray) -> Picture:
    return Picture(
        name, key, path, (pixels.shape[0], pixels.shape[1]), lambda top, bottom: pixels[top:bottom]
    )


def video_pictures(source: Input) -> Iterator[Picture]:
    """The frames of a video in their order, numbered from 0."""
    assert source.path is not None
    for number, pixels in enumerate(frames(source.path)):
        yield in_memory(f"{source.name}#{number}", f"{source.key}/{number:06d}", None, pixels)


def _from_stdin(bits: int) -> np.ndarray:
    stream = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
    content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadFile("unreadable", "stdin brings more than 1 GiB: save the image to a file.")
    with opened(Path("stdin"), content) as image:
        return rgb_pixels(image, "stdin", bits)
