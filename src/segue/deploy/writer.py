"""What is written of one predicted image, as its rows come in: mask, numbers, pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from segue.core.classes import Colour
from segue.deploy.inputs import Picture
from segue.deploy.legend import Reduced, overlay, side_by_side
from segue.deploy.mask_file import mask_file
from segue.deploy.outputs import COMPARED, MASKS, OVERLAYS, Folder, Record
from segue.deploy.prediction import Prediction
from segue.deploy.predictor import Predictor
from segue.deploy.tiles import Strip


class Writer:
    """Writes images of a model, and of an older one beside it, into a folder."""

    def __init__(self, folder: Folder, predictor: Predictor, old: Predictor | None, overlays: bool) -> None:
        self._folder, self._mask_colours, self._overlays = folder, predictor.colours, overlays
        self._classes, self._colours, self._from_old = _joint_classes(predictor, old)

    def write(
        self,
        one: Picture,
        strips: Iterator[Strip],
        earlier: Iterator[np.ndarray] | None,
        tell: Callable[[int], None],
    ) -> tuple[Record, list[str]]:
        """What is known of the image, and the files that were written of it.

        `earlier` are the old model's ids of the same rows. `tell` hears how many rows are done.
        """
        height, width = one.size
        shown = Reduced(one.size) if self._overlays or earlier is not None else None
        counts, sure, changed = np.zeros(len(self._classes), dtype=np.int64), 0.0, 0
        mask = f"{MASKS}/{one.key}.png"
        with mask_file(self._folder.root / mask, self._folder.root, one.size, self._mask_colours) as file:
            for strip in strips:
                file.write(strip.ids)
                counts += np.bincount(strip.ids.ravel(), minlength=len(counts))
                sure += float(strip.confidence.sum(dtype=np.float64))
                layers = [strip.pixels, strip.ids]
                if earlier is not None:
                    layers.append(self._from_old[next(earlier)])
                    changed += int((layers[2] != strip.ids).sum())
                if shown is not None:
                    shown.add(strip.top, *layers)
                tell(strip.top + len(strip.ids))
        files = [mask, *self._draw(one.key, shown)]
        area = height * width
        found = {name: int(count) for name, count in zip(self._classes, counts, strict=True) if count}
        share = None if earlier is None else 100 * changed / area
        return Record(one.name, one.key, width, height, found, sure / area, 0.0, share), files

    def _draw(self, key: str, shown: Reduced | None) -> list[str]:
        """Pictures of an image, if any are asked for; their places."""
        if shown is None:
            return []
        pixels, ids, *before = shown.arrays()
        after, files = Prediction(ids, self._classes, self._colours, pixels), []
        if self._overlays:
            files.append(f"{OVERLAYS}/{key}.png")
            self._folder.save_picture(files[-1], overlay(after))
        if before:
            files.append(f"{COMPARED}/{key}.png")
            self._folder.save_picture(files[-1], side_by_side(replace(after, ids=before[0]), after))
        return files


def _joint_classes(
    predictor: Predictor, old: Predictor | None
) -> tuple[tuple[str, ...], tuple[Colour, ...], np.ndarray]:
    """The classes of both models, the new one's first, their colours, and the place of each old channel."""
    classes, colours = list(predictor.classes), list(predictor.colours)
    places = []
    for name, colour in zip(old.classes, old.colours, strict=True) if old is not None else ():
        if name not in classes:
            classes.append(name)
            colours.append(colour)
        places.append(classes.index(name))
    table = np.array(places, dtype=np.min_scalar_type(len(classes)))
    return tuple(classes), tuple(colours), table
