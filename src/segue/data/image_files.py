"""Opening image files: what may be opened, how its pixels lie, and a sentence for each way in which it fails.

Files are read whole and decoded from memory. Content decides, not the suffix. Damaged files make PIL raise
nearly any exception and warn about details; here a file can be used, or there is a `BadFile`.
"""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from segue.core.errors import UserError
from segue.core.ordinary import read_ordinary

FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF")
ORIENTATION = 0x0112
"""EXIF tag"""
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr,
    3: lambda pixels: pixels[::-1, ::-1],
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}
"""functions that turn stored pixels upright, by EXIF orientation; 1 is upright already"""
SIDEWAYS = (5, 6, 7, 8)

READ_ERRORS = (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning)
"""errors that PIL raises for most damaged files; `opened` catches the rest too"""

Problem = Literal["missing", "unreadable", "wrong size", "unknown id"]

logging.getLogger("PIL").addHandler(logging.NullHandler())  # else its words on damaged files go to stderr


class BadFile(UserError):
    """A file that cannot be used for training; `kind` is for those who count."""

    def __init__(self, kind: Problem, message: str) -> None:
        super().__init__(message)
        self.kind: Problem = kind

    def __reduce__(self) -> tuple[type[BadFile], tuple[Problem, str]]:
        return BadFile, (self.kind, str(self))  # loaders hand it from process to process


def read_file(path: Path) -> bytes:
    """The content of an ordinary file. Pipes and devices, which may have no end, are refused."""
    try:
        return read_ordinary(path)
    except FileNotFoundError as error:
        raise BadFile("missing", f"{path} is missing.") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = getattr(error, "strerror", None) or error
        raise BadFile("unreadable", f"{path} cannot be read: {reason}.") from error


@contextmanager
def opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """A file with one picture; whatever goes wrong until it is left is a `BadFile`.

    A JPEG with more pictures, as phones write them (preview, gain map), counts as its first one.
    """
    content = read_file(path) if content is None else content
    try:
        with QUIET, Image.open(io.BytesIO(content), formats=FORMATS) as image:
            limit, (width, height) = Image.MAX_IMAGE_PIXELS, image.size
            if limit is not None and width * height > limit:  # up to twice the limit PIL only warns
                raise Image.DecompressionBombError(f"{width} x {height} pixels")
            if image.format not in ("JPEG", "MPO") and getattr(image, "is_animated", False):
                raise BadFile("unreadable", f"{path} holds {image.n_frames} pictures; one is needed.")
            yield image
    except BadFile:
        raise
    except Exception as error:  # PIL has no list of what it raises
        raise BadFile("unreadable", _sentence(path, error)) from error


def _sentence(path: Path, error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"{path} is too large to be decoded safely: {error}."
    if isinstance(error, UnidentifiedImageError):
        return f"{path} is not an image that can be read (JPEG, PNG, TIFF, BMP, WebP or GIF)."
    reason = str(error) or type(error).__name__
    return f"{path} cannot be read: {reason.rstrip('.')}. The file may be truncated or damaged."


def orientation(image: Image.Image) -> int:
    """How a loaded image is to be turned; PIL has turned a TIFF by itself when it is loaded."""
    try:
        found = image.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF data does not make an image unusable: viewers show it as it is
        return 1
    return found if found in TURNS else 1


def upright(image: Image.Image, pixels: np.ndarray) -> np.ndarray:
    """The pixels of a loaded image as they are to be seen."""
    turn = TURNS.get(orientation(image))
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def raw_mode(image: Image.Image) -> str:
    """How the file stores its pixels, such as "RGB;16B" or "L;4"; known until the image is loaded."""
    for tile in getattr(image, "tile", ()):  # an image that was made in memory has none
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        for word in arguments[:1]:
            return str(word)
    return image.mode


class _Quiet:
    """PIL's warnings are silenced while files are read.

    Filters belong to the whole process: the first thread to come sets them and the last one restores them, so
    that threads neither undo each other's nor wait for each other.
    """

    def __init__(self) -> None:
        self.lock, self.readers = threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if self.readers == 0:
                self.saved = warnings.catch_warnings()
                self.saved.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self.readers += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.readers -= 1
            if self.readers == 0:
                self.saved.__exit__(None, None, None)


QUIET = _Quiet()
"""context that silences PIL; entered once around many files, which saves some microseconds a file"""
