"""`segue data check` and `segue data show`: look at all files before training, and at some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.data.checking.diagnosis import Diagnosis, diagnose
from segue.data.checking.examine import Examined, examine
from segue.data.checking.skip import write_skip_list
from segue.data.datasets.base import SegDataset
from segue.data.datasets.files import FileDataset
from segue.engine.build import build_data, build_scenario, open_sets
from segue.engine.estimate import Estimate, estimate
from segue.engine.progress import Display
from segue.engine.recipe import resolve
from segue.engine.runtime import pick_device
from segue.report.checkup import checkup_tables, size_text, verdict, write_checkup
from segue.report.contact import make_card, write_contact_sheet


def data_recipe(on: str | None, split: str | None, mode: str | None, words: Sequence[str]) -> RunConfig:
    """The recipe of a plain run on this data; without a split all classes come at once."""
    said = any(word.startswith(("scenario.split=", "scenario.manifest=")) for word in words)
    return resolve("finetune", on, split or (None if said else "offline"), mode, words)


def check_data(
    config: RunConfig, skip_bad: Path | None = None, page: Path | None = None, device: str = "auto"
) -> bool:
    """Read everything once and say what was found; returns whether training can start."""
    console, display, where = Console(), Display(), pick_device(device)
    sets = dict(zip(("train", "test"), open_sets(config), strict=True))
    scenario, _ = build_scenario(config, sets["train"])
    found = {name: _examine(dataset, name, display) for name, dataset in sets.items()}
    bad = {name: {image.key: image.reason for image in each.bad} for name, each in found.items()}
    if skip_bad is not None:
        write_skip_list(skip_bad, scenario.classes.dataset, bad, config.data.get("skip"))
    crop, orphans = config.train.crop, _orphans(sets.values())
    diagnosis = diagnose(scenario, found["train"], found["test"], crop, orphans, skip_bad is not None)
    console.print(checkup_tables(diagnosis))
    costs = []
    if len(found["train"].indices):
        display.say("Timing one iteration ...")
        measured = estimate(config, scenario, sets["train"], found["train"].indices, where)
        costs = _costs(config, diagnosis, measured, where.type)
    lines = [*_sizes(diagnosis), *costs]
    if page is not None:
        lines.append(f"Page: {write_checkup(page, diagnosis, costs)}")
    lines += _advice(sum(map(len, bad.values())), skip_bad)
    for line in (*lines, verdict(diagnosis)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return diagnosis.errors == 0


def show_data(config: RunConfig, index: int, part: Literal["train", "test"], count: int, out: Path) -> None:
    """Write a contact sheet of a step: images that show its new classes in turn."""
    data = build_data(config, Display())
    if not 0 <= index < len(data.scenario):
        raise UserError(f"There is no step {index}: the split has steps 0 to {len(data.scenario) - 1}.")
    step, scenario = data.scenario[index], data.scenario
    train = part == "train"
    dataset = data.train_set if train else data.test_set
    images = (data.train_images if train else data.test_images)[index]
    chosen = _in_turn(step, data.train_present if train else data.test_present, images, count)
    samples = (dataset.read(int(image)) for image in chosen)
    cards = [make_card(scenario, step, part, each.key, each.image, each.mask) for each in samples]
    page = write_contact_sheet(out, scenario, step, part, cards, len(images))
    Console().print(f"Page: {page}", markup=False, highlight=False, soft_wrap=True)


def _examine(dataset: SegDataset, name: str, display: Display) -> Examined:
    with display.bar(f"reading {name} files", len(dataset)) as bar:
        return examine(dataset, lambda done, _: bar.update(done))


def _orphans(sets: Iterable[SegDataset]) -> set[str]:
    """Masks on disk that belong to no image of any of these splits."""
    files = [dataset for dataset in sets if isinstance(dataset, FileDataset)]
    used = {pair.mask for dataset in files for pair in dataset.pairs}
    return {str(path) for dataset in files for path in dataset.mask_files() if path not in used}


def _sizes(diagnosis: Diagnosis) -> Iterator[str]:
    for name, sizes in diagnosis.sizes.items():
        yield f"{diagnosis.images[name]:,} {name} images: {size_text(sizes)} pixels."


def _costs(config: RunConfig, diagnosis: Diagnosis, measured: Estimate, device: str) -> list[str]:
    """What fine-tuning would cost; other methods cost up to about twice as much (segue list methods)."""
    train = config.train
    batch = min(-(-train.batch_size // train.accumulate), max(step.train for step in diagnosis.steps))
    epochs = (
        f"step {step.index} {duration(measured.epoch_seconds(step.train, train.workers))}"
        for step in diagnosis.steps
    )
    return [
        f"An epoch of fine-tuning on this {device}, estimated from one iteration: {', '.join(epochs)}."
        " Other methods: see 'segue list methods'.",
        f"Memory: about {measured.memory(batch) / 2**30:.1f} GiB for {config.model.backbone} with batches of"
        f" {batch} at {train.crop} pixels.",
    ]


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _advice(bad: int, skip_bad: Path | None) -> list[str]:
    if skip_bad is not None:
        return [f"{bad} images are on the list {skip_bad}. Train without them: data.skip={skip_bad}"]
    return ["Mend these files, or leave them out: add --skip-bad skip.json."] if bad else []


def _in_turn(step: Step, present: np.ndarray, images: np.ndarray, count: int) -> list[int]:
    """Up to `count` images: one of each new class, then another of each, ..."""
    per_class = [images[present[images, class_id]] for class_id in step.new]
    rounds = (image for row in zip_longest(*per_class) for image in row if image is not None)
    return list(dict.fromkeys(int(image) for image in rounds))[:count]
