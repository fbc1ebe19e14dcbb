"""The folder that predictions are written to: masks, pictures, a line for each finished image, two tables.

    masks/KEY.png        class ids with a palette, at the image's own size
    overlays/KEY.png     the image under its classes, with a legend
    compare/KEY.png      old model | new model | difference
    done.jsonl           a line for each finished image, by which --resume knows it
    predictions.json     all images: area of each class, confidence, seconds; and what was skipped
    predictions.csv      the same as a table

Nothing is written outside of the folder: names come from keys, and links in the folder are not followed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.core.records import append_file, atomic_file, write_json, write_text

FORMAT = "segue-predictions-1"
MASKS, OVERLAYS, COMPARED = "masks", "overlays", "compare"
JOURNAL, TABLE, SHEET = "done.jsonl", "predictions.json", "predictions.csv"


@dataclass(frozen=True)
class Record:
    """What is known of one predicted image."""

    image: str
    """name of the image, as it was given"""
    key: str
    """word that names its files"""
    width: int
    height: int
    pixels: dict[str, int]
    """class -> number of pixels, for the classes that the image shows"""
    confidence: float
    """mean probability of the predicted classes"""
    seconds: float
    """time that the prediction took, without writing; an equal share of its batch's time"""
    changed: float | None = None
    """percent of the pixels on which the old model says otherwise; None: no old model"""

    @property
    def percent(self) -> dict[str, float]:
        """Class -> percent of the image."""
        return {
            name: round(100 * count / (self.width * self.height), 4) for name, count in self.pixels.items()
        }


class Folder:
    """An open output folder."""

    def __init__(self, root: Path, made_by: str, resume: bool) -> None:
        """`made_by` stands for model and settings: what another one made is made again."""
        self.root, self._made_by = root, made_by
        if root.exists() and not root.is_dir():
            raise UserError(f"{root} is a file: name a folder for the predictions.")
        there = sorted(path.name for path in root.iterdir()) if root.exists() else []
        if there and JOURNAL not in there:
            raise UserError(f"{root} holds other files ({there[0]}): name a folder of its own.")
        if there and not resume:
            raise UserError(f"{root} holds predictions: go on with --resume, or name another folder.")
        with self._writing():
            root.mkdir(parents=True, exist_ok=True)
            self._done = self._read_journal() if there else {}
            self._journal = append_file(root / JOURNAL, root)
            self._journal.write(b"\n" if there else b"")  # the last line may be an unfinished one

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # every line was flushed: what is left failed before, and was said
            self._journal.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"Cannot write {self.root / JOURNAL}: {reason(error)}.") from error

    def finished(self, image: str, key: str, state: str) -> Record | None:
        """The record of an image that is done: same model and settings, same file, nothing removed since."""
        line = self._done.get(key)
        if line is None or (line["made_by"], line["state"]) != (self._made_by, state):
            return None
        places = [self.root / file for file in line["files"]]
        if line["record"]["image"] != image or not all(map(_is_written, places)):
            return None
        return Record(**line["record"])

    def finish(self, record: Record, state: str, files: Sequence[str]) -> None:
        """Note that all files of an image are there."""
        line = {"made_by": self._made_by, "state": state, "files": list(files), "record": asdict(record)}
        with self._writing():
            self._journal.write(json.dumps(line).encode() + b"\n")
            self._journal.flush()

    def save_picture(self, file: str, picture: Image.Image) -> None:
        with atomic_file(self.root / file, self.root) as stream:
            picture.save(stream, format="PNG", compress_level=3)

    def write_tables(
        self, about: Mapping[str, Any], records: Sequence[Record], skipped: Sequence[tuple[str, str]]
    ) -> dict[str, Any]:
        """predictions.json and predictions.csv; `about` describes the model and the settings."""
        document = {
            "format": FORMAT,
            **about,
            "images": [_entry(record) for record in records],
            "skipped": [{"image": name, "reason": reason} for name, reason in skipped],
        }
        write_json(self.root / TABLE, document, self.root)
        write_text(self.root / SHEET, _sheet(about["classes"], records), self.root)
        return document

    def _read_journal(self) -> dict[str, dict[str, Any]]:
        """The last line of each key; one that a stopped process left unfinished does not count."""
        done: dict[str, dict[str, Any]] = {}
        try:
            lines = read_ordinary(self.root / JOURNAL).splitlines()
        except OSError as error:
            raise UserError(f"Cannot read {self.root / JOURNAL}: {reason(error)}.") from error
        for text in lines:
            try:
                line = json.loads(text)
                Record(**line["record"])
                done[str(line["record"]["key"])] = line | {"files": list(map(str, line["files"]))}
                _ = line["made_by"], line["state"]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        return done


def _is_written(path: Path) -> bool:
    """Whether a file is there; a link in its place shows what somebody else has written."""
    return path.is_file() and not path.is_symlink()


def _entry(record: Record) -> dict[str, Any]:
    return {
        "image": record.image,
        "mask": f"{MASKS}/{record.key}.png",
        "width": record.width,
        "height": record.height,
        "percent": record.percent,
        "pixels": record.pixels,
        "confidence": round(record.confidence, 4),
        "seconds": round(record.seconds, 4),
        **({} if record.changed is None else {"changed": round(record.changed, 4)}),
    }


def _sheet(classes: Sequence[str], records: Sequence[Record]) -> str:
    """A row per image; for each class the percent of the image."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    old = any(record.changed is not None for record in records)
    table.writerow(
        ["image", "mask", "width", "height", "confidence", "seconds", *(["changed"] if old else []), *classes]
    )
    for record in records:
        entry, percent = _entry(record), record.percent
        table.writerow(
            [entry[name] for name in ("image", "mask", "width", "height", "confidence", "seconds")]
            + ([entry.get("changed", "")] if old else [])
            + [percent.get(name, 0) for name in classes]
        )
    return text.getvalue()
