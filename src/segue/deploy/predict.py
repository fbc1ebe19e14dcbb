"""`segue predict`: images in, masks and tables out, one image after the other. No torch here."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, repeat
from pathlib import Path
from typing import Any

import numpy as np

from segue.core.progress import Bar, Display
from segue.data.image_files import BadFile
from segue.data.input_size import MOST_PIXELS
from segue.deploy.inputs import Input, Picture, picture, video_pictures
from segue.deploy.outputs import Folder, Record
from segue.deploy.predictor import Answer, Predictor
from segue.deploy.tiles import Strip, blend_tiles, tile_length
from segue.deploy.video import count_frames
from segue.deploy.views import Views
from segue.deploy.writer import Writer

LARGE = 2**26
"""pixels from which on an image is tiled without being asked, where the model resizes images: 8192 x 8192"""
USUAL_TILE = 512
WAITING_PIXELS = 2**26
"""pixels of images that wait for others of their size: 192 MiB"""


@dataclass(frozen=True)
class Settings:
    """What decides a prediction beside the model, and what is written of it."""

    tile: int | None = None
    """side of a tile in pixels; None: images are tiled if they are large"""
    views: Views = field(default_factory=Views)
    batch: int = 8
    """largest number of images or tiles that the network sees together"""
    overlay: bool = False
    """whether pictures of image and classes are written"""


@dataclass(frozen=True)
class Predicted:
    """What a prediction has given."""

    records: list[Record]
    skipped: list[tuple[str, str]]
    """name of a file and why it was skipped"""
    resumed: int
    """images that were done before"""
    seconds: float
    document: dict[str, Any] = field(repr=False)
    """content of predictions.json"""


def tile_of(predictor: Predictor, size: tuple[int, int], asked: int | None, whole: bool = True) -> int | None:
    """The side of the tiles in which an image is seen; None: whole.

    Tiles show an image at its own resolution. A model that resizes images to the size of its training sees
    photos whole, unless tiles are asked for or the image is far larger than any photo.
    """
    pixels, usual = size[0] * size[1], predictor.images.size
    if asked is not None:
        tile = tile_length(asked)
        return tile if max(size) > tile or not whole else None
    if pixels > (MOST_PIXELS if usual is None else LARGE) or not whole:
        return tile_length(usual or USUAL_TILE)
    return None


def predict(
    predictor: Predictor,
    inputs: Sequence[Input],
    out: Path,
    settings: Settings,
    old: Predictor | None = None,
    resume: bool = False,
    display: Display | None = None,
    model_name: str = "",
) -> Predicted:
    """Masks and tables of all inputs in the folder `out`; bad files are skipped and named.

    Stopped by Ctrl-C, the tables hold what was done until then.
    """
    display = display or Display(quiet=True)
    about = {
        "model": model_name,
        "digest": predictor.digest,
        "old": None if old is None else old.digest,
        "classes": list(predictor.classes),
        "settings": asdict(settings),
    }
    decisive = (about["digest"], about["old"], settings.tile, settings.views, settings.overlay)
    made_by = hashlib.blake2b(repr(decisive).encode(), digest_size=16).hexdigest()
    total = sum(count_frames(one.path) if one.kind == "video" and one.path else 1 for one in inputs)
    began = time.monotonic()
    with Folder(out, made_by, resume) as folder, display.bar("predicting", total) as bar:
        session = _Session(predictor, old, settings, folder, bar)
        try:
            for source in inputs:
                session.take(source)
            session.flush()
        finally:  # Ctrl-C too
            document = folder.write_tables(about, session.ordered(), session.skipped)
    return Predicted(session.ordered(), session.skipped, session.resumed, time.monotonic() - began, document)


class _Session:
    """The images of one prediction: those that wait for others of their size, and those that are done."""

    def __init__(
        self,
        predictor: Predictor,
        old: Predictor | None,
        settings: Settings,
        folder: Folder,
        bar: Bar,
    ) -> None:
        self._predictor, self._old, self._settings, self._folder = predictor, old, settings, folder
        self._bar, self._began, self._records = bar, time.monotonic(), dict[str, Record | None]()
        self._waiting: dict[tuple[int, int], list[tuple[Picture, str]]] = {}
        self.skipped: list[tuple[str, str]] = []
        self.resumed = 0
        self._done = 0
        self._writer = Writer(folder, predictor, old, settings.overlay)

    def ordered(self) -> list[Record]:
        """Records of the finished images in the order of the inputs."""
        return [record for record in self._records.values() if record is not None]

    def take(self, source: Input) -> None:
        """Predict an input, or put it with those that wait."""
        try:
            state = source.state if source.kind != "stdin" else repr(time.time_ns())
            if source.kind == "video":
                for one in video_pictures(source):
                    if not self._is_done(one.name, one.key, state):
                        self._take_picture(one, state)
            elif not self._is_done(source.name, source.key, state):
                with picture(source, self._predictor.images.bits) as one:
                    self._take_picture(one, state)
        except BadFile as error:
            self._skip(source.name, error)

    def flush(self) -> None:
        """Predict everything that waits."""
        for size in list(self._waiting):
            self._predict_together(self._waiting.pop(size))

    def _is_done(self, name: str, key: str, state: str) -> bool:
        self._records[key] = record = self._folder.finished(name, key, state)
        self.resumed += record is not None
        self._done += record is not None
        return record is not None

    def _take_picture(self, one: Picture, state: str) -> None:
        tile = tile_of(self._predictor, one.size, self._settings.tile, one.whole)
        if tile is not None:
            try:
                self._predict_tiled(one, tile, state)
            except BadFile as error:
                self._skip(one.name, error)
            return
        group = self._waiting.setdefault(self._predictor.images.input_size(*one.size), [])
        group.append((one, state))
        if len(group) >= self._settings.batch:
            self._predict_together(self._waiting.pop(self._predictor.images.input_size(*one.size)))
        waiting = (other.size for group in self._waiting.values() for other, _ in group)
        if sum(height * width for height, width in waiting) > WAITING_PIXELS:
            self.flush()

    def _predict_together(self, group: list[tuple[Picture, str]]) -> None:
        pictures = [one for one, _ in group]
        began = time.monotonic()
        answers = _answers(self._predictor, pictures, self._settings.views)
        share = (time.monotonic() - began) / len(group)
        before = repeat(None) if self._old is None else _answers(self._old, pictures, self._settings.views)
        for (one, state), answer, earlier in zip(group, answers, before, strict=False):
            if isinstance(answer, BadFile):
                self._skip(one.name, answer)
                continue
            if isinstance(earlier, BadFile):
                self._skip(one.name, earlier)
                continue
            strips = iter([Strip(0, one.pixels, *answer)])
            self._write(one, state, strips, None if earlier is None else iter([earlier.ids]), share)

    def _predict_tiled(self, one: Picture, tile: int, state: str) -> None:
        strips = self._tiled(self._predictor, one, tile)
        earlier = None
        if self._old is not None:
            earlier = (strip.ids for strip in self._tiled(self._old, one, tile))
        self._write(one, state, strips, earlier)

    def _tiled(self, predictor: Predictor, one: Picture, tile: int) -> Iterator[Strip]:
        views = self._settings.views
        return blend_tiles(
            one.rows,
            one.size,
            lambda images: views.probabilities(predictor, images),
            tile,
            self._settings.batch,
        )

    def _write(
        self,
        one: Picture,
        state: str,
        strips: Iterator[Strip],
        earlier: Iterator[np.ndarray] | None,
        seconds: float = 0.0,
    ) -> None:
        """Write an image and note that it is done; `seconds` is the time that it has taken before."""
        height, clock = one.size[0], _Clock(seconds)

        def tell(rows: int) -> None:
            if rows < height:
                self._tell(f", {one.key}: {100 * rows // height} %")

        record, files = self._writer.write(one, clock.measure(strips), earlier, tell)
        self._records[one.key] = record = replace(record, seconds=clock.seconds)
        self._folder.finish(record, state, files)
        self._done += 1
        self._tell()

    def _skip(self, name: str, error: Exception) -> None:
        self.skipped.append((name, str(error)))
        self._tell()

    def _tell(self, within: str = "") -> None:
        rate = (self._done - self.resumed) / max(1e-9, time.monotonic() - self._began)
        self._bar.update(self._done + len(self.skipped), f"{rate:.1f} images/s{within}")


class _Clock:
    """Adds up the time that a prediction takes, without what is done with it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def measure(self, strips: Iterator[Strip]) -> Iterator[Strip]:
        while True:
            began = time.monotonic()
            strip = next(strips, None)
            self.seconds += time.monotonic() - began
            if strip is None:
                return
            yield strip


def _answers(predictor: Predictor, pictures: Sequence[Picture], views: Views) -> list[Answer | BadFile]:
    """An answer for each picture, or why there is none; those of one input size are seen together."""
    found: list[Answer | BadFile] = []
    for _, members in groupby(pictures, lambda one: predictor.images.input_size(*one.size)):
        group = list(members)
        try:
            if views.plain:
                found += predictor.answers([one.pixels for one in group])
            else:
                found += [views.answer(predictor, one.pixels) for one in group]
        except BadFile as error:
            found += [error] * len(group)
        except (RuntimeError, MemoryError) as error:
            if len(group) > 1:  # one of them may be the reason
                for one in group:
                    found += _answers(predictor, [one], views)
            else:
                found.append(BadFile("wrong size", f"{group[0].name} cannot be predicted: {error}."))
    return found
