"""A grown model held against the one that it grew from: scores, agreement, and the verdict in two files."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from segue.core.errors import UserError
from segue.core.metrics import iou
from segue.core.progress import Display
from segue.core.records import read_run, write_json
from segue.core.verdict import Limits, Verdict
from segue.data.datasets.base import SegDataset
from segue.deploy.card import model_card
from segue.deploy.changes import MOST_IMAGES, MostChanged
from segue.deploy.extend import run_folder_of
from segue.deploy.folder_images import folder_images
from segue.deploy.model import Model
from segue.deploy.model_folder import replace_pictures, write_card
from segue.deploy.teachers.outer_model import OuterModel
from segue.deploy.verdict import channel_table, count, judge
from segue.report.verdict import Gallery, write_verdict

VERDICT, VERDICT_PAGE = "verdict.json", "verdict.html"
MOST_CHANGED, OLD_PIXELS = "Images with most change", "where the models disagree and no new class is drawn"
LOOK_HERE, OF_THE_CLASS = "Look here first", "where pixels of the class have changed"
HELD_OUT, ALL_PIXELS = "Held-out images of new classes", "where the models disagree"


def examine(
    old: Model | OuterModel,
    grown: Model,
    out: str | Path,
    data: str | Path,
    check: str | Path | None = None,
    limits: Limits | None = None,
    display: Display | None = None,
    pictures: bool = True,
) -> Verdict:
    """Whether a grown model is safe to deploy: both models on labelled images of old classes (`check`).

    Without any, they are compared on the held-out images of `data`, the folder that the model was extended
    with. The verdict goes into the run folder of the extension, and into the card of the grown model `out`,
    with a few small `pictures` of held-out images of `data`.

    Examples:
        >>> import segue
        >>> old = segue.load("model")
        >>> grown = segue.extend(old, "new-images", "examined", overrides=["train.epochs=1"])
        >>> verdict = segue.examine(old, grown, "examined", "new-images")
        >>> verdict.answer in ("safe to deploy", "look here first", "not safe"), list(verdict.new)
        (True, ['bird'])
    """
    out, limits, display = Path(out), limits or Limits(), display or Display()
    run_folder = run_folder_of(out)
    images = folder_images(data, "test") if check is None else labelled_images(check, old)
    changed = MostChanged(grown.classes, grown.colours)
    with display.bar("old and grown model", len(images)) as bar:
        counts = count(old, grown, images, check is not None, bar.update, changed)
    verdict = judge(old, counts, _new_scores(run_folder, len(old.classes)), check is not None, limits)
    write_json(run_folder / VERDICT, dataclasses.asdict(verdict), run_folder)
    galleries = [
        _look_here(old, grown, images, verdict),
        changed.gallery(MOST_CHANGED, OLD_PIXELS, len(old.classes)),
    ]
    fresh = changed
    if check is not None:
        fresh = _new_images(old, grown, folder_images(data, "test"))
        galleries.append(fresh.gallery(HELD_OUT, ALL_PIXELS, len(old.classes)))
    write_verdict(run_folder / VERDICT_PAGE, run_folder, verdict, galleries)
    shown = fresh.card_pictures() if pictures else []
    replace_pictures(out, shown)
    texts = [one.text for one in shown]
    write_card(out, model_card(out.name, grown.header, grown.history, verdict, texts))
    return verdict


def _look_here(old: Model | OuterModel, grown: Model, images: SegDataset, verdict: Verdict) -> Gallery:
    """Of each old class among the reasons the image in which it loses most."""
    seen = MostChanged(grown.classes, grown.colours)
    table, places = channel_table(images.classes, grown.classes), {k: i for i, k in enumerate(images.keys)}
    for one in verdict.old:
        if one.name not in verdict.look_at or not one.worst:
            continue
        sample, channel = images.read(places[one.worst]), old.classes.index(one.name)
        before, after = (model.predict(sample.image).ids for model in (old, grown))
        truth = table[sample.mask] if verdict.labelled else before
        of_class = (truth == channel) | (before == channel) | (after == channel)
        seen.see(f"{one.name}: {one.worst}", sample.image, before, after, of_class)
    return seen.gallery(LOOK_HERE, OF_THE_CLASS, len(old.classes))


def _new_images(old: Model | OuterModel, grown: Model, images: SegDataset) -> MostChanged:
    """Held-out images of new classes: what the model has learned, where labelled images show old classes."""
    seen = MostChanged(grown.classes, grown.colours)
    for index in range(min(MOST_IMAGES, len(images))):
        sample = images.read(index)
        before, after = (model.predict(sample.image).ids for model in (old, grown))
        seen.see(sample.key, sample.image, before, after, np.ones_like(before, dtype=bool))
    return seen


def labelled_images(check: str | Path, model: Model | OuterModel) -> SegDataset:
    """The images of a check folder, which show at least one class of the model."""
    images = folder_images(check, "test")
    names = images.classes.names.values()
    if not set(names) & set(model.classes):
        raise UserError(f"{check} has none of the model's classes: its classes.txt names {', '.join(names)}.")
    return images


def passed_over(check: str | Path, checked: SegDataset) -> int:
    """Images of a check folder that give no score, because a hash of their names says that they train."""
    return len(folder_images(check, "train")) if checked.notes else 0


def _new_scores(run_folder: Path, known: int) -> dict[str, float | None]:
    """IoU of each new class on the held-out new images, in points."""
    record = read_run(run_folder).steps[-1]
    scores = iou(record.matrix)[known:]
    return {
        name: None if math.isnan(score) else 100 * float(score)
        for name, score in zip(record.classes[known:], scores, strict=True)
    }
