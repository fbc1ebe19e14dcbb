"""Finding the image that an annotation file speaks of, and nothing outside the folders the user named."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from segue.core.errors import UserError
from segue.data.annotations.base import Split, show, split_of


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder in a fixed order; hidden ones and linked folders are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        yield from (Path(place, name) for name in sorted(files) if not name.startswith("."))


class Places:
    """The folders in which images may lie: the source's own and the one the user named for images."""

    def __init__(self, root: Path, images: Path | None = None) -> None:
        if images is not None and not images.is_dir():
            raise UserError(f"The image folder {images} does not exist or is no folder.")
        self.root, self.images = root, images
        self._allowed = [folder.resolve() for folder in (images, root) if folder is not None]

    def allows(self, path: Path) -> bool:
        """Whether a path leads, links followed, to a file inside these folders."""
        try:
            real = path.resolve(strict=True)
            return real.is_file() and any(real.is_relative_to(folder) for folder in self._allowed)
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a NUL
            return False

    def name(self, path: Path) -> str:
        """An image's path below its folder, with /."""
        for folder in (self.images, self.root):
            if folder is not None and path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.name

    def find(self, reference: str, beside: Path, where: str, split: Split | None = None) -> Path:
        """The file that a reference means; a sentence if there is none."""
        found = self.look_up(reference, beside, where, split)
        if found is None:
            places = " or ".join(str(folder) for folder in (self.images, self.root) if folder is not None)
            raise UserError(
                f"{where}: the image {show(reference)} is not in {places}. Put it there, or name the folder"
                " that holds the images with --images FOLDER (links to elsewhere do not count)."
            )
        return found

    def look_up(self, reference: str, beside: Path, where: str, split: Split | None = None) -> Path | None:
        """The file that a reference means: as it stands, else by its last part alone.

        Of several files of that name those count whose folders agree longest, and speak of the same split.
        """
        words = [word for word in reference.replace("\\", "/").split("/") if word not in ("", ".")]
        if not words or words[-1] == "..":
            raise UserError(f"{where}: {show(reference)} names no image file.")
        as_written = Path("/".join(words))
        for folder in (self.images, beside, self.root):
            if folder is not None and ".." not in words and self.allows(folder / as_written):
                return folder / as_written
        if (found := self._up_and_down(words, beside)) is not None:
            return found
        return self._by_last_part(words, where, reference, split)

    def split(self, path: Path) -> Split | None:
        """The split that the nearest folder of an annotation file speaks of."""
        folders = path.parent.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        return next((split for folder in reversed(folders) if (split := split_of(folder))), None)

    def _up_and_down(self, words: list[str], beside: Path) -> Path | None:
        """../images/x.jpg, if it stays inside; LabelMe writes such paths."""
        path = Path(os.path.normpath(beside / "/".join(words)))
        return path if ".." in words and self.allows(path) else None

    def _by_last_part(self, words: list[str], where: str, reference: str, split: Split | None) -> Path | None:
        found = [path for path in self._by_name.get(_same(words[-1]), []) if self.allows(path)]
        if len(found) > 1:
            agree = [(_common_end(path.parts, words), self._speaks_of(path, split)) for path in found]
            found = [path for path, rank in zip(found, agree, strict=True) if rank == max(agree)]
        if len(found) > 1:
            raise UserError(
                f"{where}: {show(reference)} may be {found[0]} or {found[1]}."
                " Name the right folder with --images FOLDER."
            )
        return found[0] if found else None

    def _speaks_of(self, path: Path, split: Split | None) -> bool:
        return split is not None and split in map(split_of, self.name(path).split("/")[:-1])

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        """Every file by its name: in the image folder if there is one, else in the source's."""
        table: dict[str, list[Path]] = {}
        for path in walk(self.images or self.root):
            table.setdefault(_same(path.name), []).append(path)
        return table


def _same(name: str) -> str:
    """Systems store accents in two ways; both are one name."""
    return unicodedata.normalize("NFC", name)


def _common_end(path: tuple[str, ...], words: list[str]) -> int:
    length = 0
    for left, right in zip(reversed(path), reversed(words), strict=False):
        if _same(left) != _same(right):
            break
        length += 1
    return length
