"""The demonstration's second act: the old images are deleted, and the model learns one more class.

The new class is one that the generator can paint and the scenario left out. Its images are files, as yours
would be, in which nothing but the new class is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from segue.core.errors import UserError, os_sentence
from segue.core.progress import Display
from segue.core.records import atomic_file, write_text
from segue.core.verdict import Limits
from segue.data.datasets.base import Sample
from segue.data.datasets.scenes import MAX_CLASSES, Config, Scenes, class_name
from segue.deploy.examine import VERDICT_PAGE, examine
from segue.deploy.extend import extend, run_folder_of
from segue.deploy.load import load
from segue.report.verdict import verdict_table

TRAIN, HELD_OUT = 160, 40
"""images of the new class"""
CHECKED = 100
"""most labelled test images of old classes that the verdict rests on"""
SEARCHED = 40
"""scenes that are arranged for one in which the new class can be seen, at most"""
WORDS = ("train.balance=none",)
"""settings of the extension: shapes are large in these pictures, and balance would cost old classes"""


def second_act(
    folder: Path,
    run_folder: Path,
    data: Config,
    overwrite: bool,
    device: str,
    display: Display,
    show: Console,
) -> Path | None:
    """Delete the old images, extend the model of a run, show the verdict; returns the verdict's page."""
    if data.classes == MAX_CLASSES:
        display.say(f"No second act: all {MAX_CLASSES} classes that can be painted are learned already.")
        return None
    new, model, grown = class_name(data.classes + 1), folder / "model", folder / "grown"
    old = load(run_folder, device)
    old.save(model)
    gone = folder / "old-images"
    images = [_write_picture(gone, "images", one.key, one.image) for one in _all(Scenes(data, "train"))]
    display.say(
        f"\nSecond act: the old images go, '{new}' comes.\n"
        f"{gone}: the {len(images)} training images, painted from a seed, now as files."
    )
    _delete(images)
    display.say(
        f"{gone}: deleted. What is left is the model itself, {model}.\n"
        f"{_write_data(folder, data)}\n"
        f"segue extend {model} {folder / 'new-images'} --check {folder / 'check-images'} --out {grown}"
        f" {' '.join(WORDS)}"
    )
    extended = extend(
        *(model, folder / "new-images", grown),
        overrides=WORDS,
        resume=not overwrite,
        overwrite=overwrite,
        device=device,
        display=display,
    )
    data_folders = (folder / "new-images", folder / "check-images")
    verdict = examine(old, extended, grown, *data_folders, Limits(), display)
    show.print(verdict_table(verdict))
    display.say(f"Verdict: {verdict.answer}. It rests on {verdict.evidence}")
    for line in (*verdict.reasons, *verdict.remarks):
        display.say(f"  {line}")
    return run_folder_of(grown) / VERDICT_PAGE


def _write_data(folder: Path, data: Config) -> str:
    """Images of the new class, and labelled ones of old classes; returns what they are."""
    fresh, check, tests = folder / "new-images", folder / "check-images", Scenes(data, "test")
    wider = replace(data, classes=data.classes + 1, seed=data.seed + 1)
    train = Scenes(replace(wider, train=SEARCHED * TRAIN), "train")
    held_out = Scenes(replace(wider, test=SEARCHED * HELD_OUT), "test")
    counts = (
        _write_subset(fresh, "train", islice(_with_class(train, wider.classes), min(TRAIN, data.train))),
        _write_subset(fresh, "val", islice(_with_class(held_out, wider.classes), min(HELD_OUT, data.test))),
        _write_subset(check, "val", islice(_all(tests), CHECKED)),
    )
    _write_lines(fresh, "classes.txt", ("background", class_name(wider.classes)))
    _write_lines(check, "classes.txt", ("background", *tests.classes.names.values()))
    return (
        f"{fresh}: {counts[0]} images to learn from, {counts[1]} held out; only the new class is drawn.\n"
        f"{check}: {counts[2]} labelled test images of old classes, for scores alone."
    )


def _with_class(scenes: Scenes, class_id: int) -> Iterator[Sample]:
    """Scenes that show a class; it alone is drawn, as class 1."""
    for index in range(len(scenes)):
        if scenes.check(index).pixels[class_id]:
            sample = scenes.read(index)
            yield replace(sample, mask=(sample.mask == class_id).astype(sample.mask.dtype))


def _all(scenes: Scenes) -> Iterator[Sample]:
    return (scenes.read(index) for index in range(len(scenes)))


def _write_subset(root: Path, subset: str, samples: Iterable[Sample]) -> int:
    """Images, masks and a list, so that files of an earlier demo do not count; returns how many."""
    keys = []
    for sample in samples:
        _write_picture(root, "images", sample.key, sample.image)
        _write_picture(root, "masks", sample.key, sample.mask)
        keys.append(sample.key)
    _write_lines(root, f"{subset}.txt", keys)
    return len(keys)


def _write_picture(root: Path, kind: str, key: str, pixels: np.ndarray) -> Path:
    path = root / kind / f"{key}.png"
    with atomic_file(path, root) as file:
        Image.fromarray(pixels).save(file, format="PNG")
    return path


def _write_lines(root: Path, name: str, lines: Iterable[str]) -> None:
    write_text(root / name, "".join(f"{line}\n" for line in lines), root)


def _delete(files: Sequence[Path]) -> None:
    """Remove these files, and their folders if nothing else is in them."""
    try:
        for path in files:
            path.unlink()
        for place in files[0].parents[:2]:
            if not any(place.iterdir()):
                place.rmdir()
    except OSError as error:
        raise UserError(f"Cannot delete {os_sentence(error)}") from error
