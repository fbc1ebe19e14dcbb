"""Masks that exist as files: a VOC folder (as CVAT exports it), or images/ and masks/.

`labelmap.txt` (CVAT: "name:red,green,blue:parts:actions") means that colours tell the classes, in colour and
palette PNGs alike. `classes.txt` (see data/class_names.py) means that the values of grey or palette PNGs do.
255 is always void.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.data.annotations.base import (
    BACKGROUND,
    VOID,
    Drawing,
    ReadyMask,
    Source,
    Split,
    class_name,
    classes_of,
    show,
    split_of,
    tell,
    value_of,
)
from segue.data.annotations.locate import Places
from segue.data.class_names import read_class_names
from segue.data.images import read_image, read_mask
from segue.data.layout import IMAGE_SUFFIXES, MASK_SUFFIXES, files_by_key, read_list

VOC_VOID = (224, 224, 192)
"""the colour of VOC's palette for 255"""
_COLOUR = re.compile(r"\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*")


@dataclass(frozen=True)
class ValueMask:
    """Values of a grey or palette image, through a table of 256 entries; -1: not in the list."""

    path: Path
    table: np.ndarray
    listed: Path

    def read(self) -> np.ndarray:
        values = read_mask(self.path)
        ids = self.table[values]
        if (ids < 0).any():
            y, x = np.argwhere(ids < 0)[0].tolist()
            raise UserError(
                f"{self.path} holds the value {values[y, x]} at x {x}, y {y},"
                f" which {self.listed} does not name."
            )
        return ids.astype(np.uint8)


@dataclass(frozen=True)
class ColourMask:
    """Colours of an image; `codes` are sorted, red * 65536 + green * 256 + blue."""

    path: Path
    codes: np.ndarray
    ids: np.ndarray
    listed: Path

    def read(self) -> np.ndarray:
        red, green, blue = (read_image(self.path)[..., channel].astype(np.int32) for channel in range(3))
        codes = (red << 16) | (green << 8) | blue
        place = np.searchsorted(self.codes, codes).clip(max=len(self.codes) - 1)
        unknown = self.codes[place] != codes
        if unknown.any():
            y, x = np.argwhere(unknown)[0].tolist()
            colour = f"{red[y, x]},{green[y, x]},{blue[y, x]}"
            raise UserError(
                f"{self.path} has the colour {colour} at x {x}, y {y}, which {self.listed} does not name."
            )
        return self.ids[place]


def read_labelmap(path: Path) -> dict[tuple[int, int, int], str]:
    """CVAT's labelmap.txt: colour -> name."""
    table: dict[tuple[int, int, int], str] = {}
    for number, line in enumerate(_read_lines(path), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        name, _, rest = line.partition(":")
        match = _COLOUR.fullmatch(rest.partition(":")[0])
        if match is None or any(int(part) > 255 for part in match.groups()):
            raise UserError(f"{where}: {show(line)} should be name:red,green,blue:: with colours up to 255.")
        colour, name = tuple(map(int, match.groups())), class_name(name, where)
        if colour in table or name in table.values():
            raise UserError(f"{where}: the name {name} or its colour stands there twice.")
        table[colour] = name  # type: ignore[index]
    return table


def _read_lines(path: Path) -> list[str]:
    try:
        return read_ordinary(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text. Save it as UTF-8.") from error


@dataclass(frozen=True)
class _Names:
    """What labelmap.txt or classes.txt says: values or codes of colours, each with its id in our masks."""

    path: Path
    classes: tuple[str, ...]
    ids: dict[int, int]
    colours: bool

    def mask(self, path: Path) -> ReadyMask:
        if self.colours:
            codes = sorted(self.ids)
            values = [self.ids[code] for code in codes]
            return ColourMask(path, np.array(codes), np.array(values, dtype=np.uint8), self.path)
        table = np.full(256, -1, dtype=np.int16)
        table[list(self.ids)] = list(self.ids.values())
        return ValueMask(path, table, self.path)


def _read_names(root: Path) -> _Names:
    labelmap, classes = root / "labelmap.txt", root / "classes.txt"
    if labelmap.is_file() == classes.is_file():
        both = "both labelmap.txt and classes.txt: keep" if classes.is_file() else "no class names: add"
        raise UserError(
            f"{root} has {both} labelmap.txt (name:red,green,blue::) if colours tell the classes,"
            " or classes.txt (one name per line, its number from 0 is the value in the masks)."
        )
    return _read_colours(labelmap) if labelmap.is_file() else _read_values(classes)


def _read_colours(path: Path) -> _Names:
    table = read_labelmap(path)
    classes = classes_of(table.values(), path)
    ids = {VOC_VOID: VOID, **{colour: value_of(name, classes) for colour, name in table.items()}}
    codes = {red << 16 | green << 8 | blue: value for (red, green, blue), value in ids.items()}
    return _Names(path, classes, codes, colours=True)


def _read_values(path: Path) -> _Names:
    table = read_class_names(path, path.parent.name)
    ordered = {value: class_name(table.names[value], str(path)) for value in sorted(table.names)}
    classes = classes_of(ordered.values(), path)
    ids = {value: value_of(name, classes) for value, name in ordered.items()}
    ids |= dict.fromkeys(table.void, VOID)
    if table.background is not None:
        ids[table.background] = BACKGROUND
    return _Names(path, classes, ids, colours=False)


def is_voc(root: Path) -> bool:
    return (root / "SegmentationClass").is_dir()


def is_pairs(root: Path) -> bool:
    return (root / "masks").is_dir()


def read_masks(name: str, places: Places) -> Source:
    """A VOC folder or images/ and masks/, whichever it is."""
    root = places.root
    voc = is_voc(root)
    names = _read_names(root)
    mask_folder = root / ("SegmentationClass" if voc else "masks")
    image_folder = root / ("JPEGImages" if voc else "images")
    if places.images is not None:
        image_folder = places.images
    if not image_folder.is_dir():
        raise UserError(
            f"{root} has no folder {image_folder.name}. Name the folder that holds the images"
            " with --images FOLDER."
        )
    masks, images = files_by_key(mask_folder, MASK_SUFFIXES), files_by_key(image_folder, IMAGE_SUFFIXES)
    if not masks:
        raise UserError(f"{mask_folder} has no mask.")
    lists = read_lists(root / "ImageSets" / "Segmentation" if voc else root)
    drawings = []
    for key in lists or masks:
        split = lists.get(key) or next(filter(None, map(split_of, key.split("/")[:-1])), None)
        drawings.append(_read_pair(key, split, (images, masks), (image_folder, mask_folder), names, places))
    notes = [
        *_unused(masks.keys() - lists.keys() if lists else (), "mask is in no list", "masks are in no list"),
        *_unused(
            images.keys() - masks.keys() if not lists else (), "image has no mask", "images have no mask"
        ),
    ]
    return Source(name, "voc" if voc else "folder", names.classes, tuple(drawings), tuple(notes))


def _unused(keys: Collection[str], one: str, many: str) -> list[str]:
    if not keys:
        return []
    return [f"{tell(len(keys), f'{one} and was', f'{many} and were')} left out, first {min(keys)}."]


def _read_pair(
    key: str,
    split: Split | None,
    found: tuple[dict[str, Path], dict[str, Path]],
    folders: tuple[Path, Path],
    names: _Names,
    places: Places,
) -> Drawing:
    image, mask = (table.get(key) for table in found)
    for noun, path, folder in (("image", image, folders[0]), ("mask", mask, folders[1])):
        if path is None:
            return Drawing(
                folder, key, split=split, problem=f"{folder} has no {noun} of the name {show(key)}."
            )
        if not places.allows(path):
            problem = f"{path} is a link to a place outside of {places.root}. Name that folder, or copy it."
            return Drawing(folder, key, split=split, problem=problem)
    assert image is not None and mask is not None
    return Drawing(mask, f"{key}{image.suffix}", image, mask=names.mask(mask), split=split)


def read_lists(folder: Path) -> dict[str, Split | None]:
    """Key -> split, of the lists in a folder; lists of other names count if none speaks of a split.

    CVAT's default.txt, of images in no subset, counts always.
    """
    files = sorted(path for path in folder.glob("*.txt") if path.stem not in ("classes", "labelmap"))
    told = {path: split_of(path.stem) for path in files}
    voc = folder.name == "Segmentation"
    if any(told.values()):
        files = [path for path in files if told[path] or (voc and path.stem == "default")]
    elif not voc:
        files = []  # readme.txt and the like
    keys: dict[str, Split | None] = {}
    for path in files:
        for line in read_list(path):
            key = line.strip('"')  # CVAT's way with spaces
            if key in keys:
                raise UserError(f"{path} names {show(key)}, which is also in another list.")
            keys[key] = told[path]
    return keys
