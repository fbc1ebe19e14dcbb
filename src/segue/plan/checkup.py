"""`segue data check` and `segue data show`: look at all files before training, and at some of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.scenario import Scenario
from segue.data.datasets._files import FileDataset
from segue.data.datasets.base import SegDataset
from segue.data.doctor.diagnosis import Diagnosis, diagnose, numbered
from segue.data.doctor.examine import Examined, examine
from segue.data.skip import write_skip_list
from segue.engine.build import build_scenario, open_sets
from segue.engine.data import build_data
from segue.engine.images import step_images, step_problems
from segue.engine.recipe import resolve
from segue.engine.runtime import pick_device
from segue.plan.estimate import Estimate, estimate
from segue.report.checkup import checkup_tables, finding_text, size_text, verdict, write_checkup
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
    scenario, listed = build_scenario(config, sets["train"])
    found = {name: _examine(dataset, name, display) for name, dataset in sets.items()}
    bad = {name: {image.key: image.reason for image in each.bad} for name, each in found.items()}
    if skip_bad is not None:
        write_skip_list(skip_bad, scenario.classes.dataset, bad, getattr(config.data, "skip", None))
    diagnosis = _diagnose(config, scenario, listed, sets, found, skip_bad is not None)
    console.print(checkup_tables(diagnosis))
    for finding in diagnosis.findings:
        console.print(finding_text(finding), soft_wrap=True)  # a path that is broken cannot be copied
    costs = []
    if len(found["train"].indices):
        display.say("Timing an iteration ...")
        measured = estimate(config, scenario, sets["train"], found["train"].indices, where)
        costs = _costs(config, diagnosis, measured, where.type)
    lines = [*dict.fromkeys(note for dataset in sets.values() for note in dataset.notes)]
    lines += [*_sizes(diagnosis), *costs]
    if page is not None:
        lines.append(f"Page: {write_checkup(page, diagnosis, costs)}")
    if any(diagnosis.images.values()):
        lines += _advice(sum(map(len, bad.values())), skip_bad)
    for line in (*lines, verdict(diagnosis)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return diagnosis.errors == 0


def _diagnose(
    config: RunConfig,
    scenario: Scenario,
    listed: Sequence[Sequence[str]] | None,
    sets: Mapping[str, SegDataset],
    found: Mapping[str, Examined],
    left_out: bool,
) -> Diagnosis:
    """What was found, held against the scenario as a run would have it."""
    train, test, lost = found["train"], found["test"], set()
    if listed is not None:  # a manifest is not changed by a list of files to leave out
        bad = {image.key for image in train.bad}
        lost = bad.intersection(key for keys in listed for key in keys)
        listed = [[key for key in keys if key not in bad] for keys in listed]
    images = step_images(scenario, listed, train.keys, train.present)
    counts = [
        (len(images[step.index]), len(scenario.select(step, test.present, "test"))) for step in scenario
    ]
    problems = step_problems(config, scenario, counts)
    if lost:
        problems.append(f"The manifest needs {numbered(lost, 'image')} that cannot be used: write another.")
    files = [dataset for dataset in sets.values() if isinstance(dataset, FileDataset)]
    orphans, shared = _orphans(files), _shared(files)
    bits = files[0].bits if files else 16
    crop = config.train.crop
    return diagnose(scenario, train, test, images, crop, bits, problems, orphans, shared, left_out)


def show_data(config: RunConfig, index: int, part: Literal["train", "test"], count: int, out: Path) -> None:
    """Write a contact sheet of a step: images that show its new classes in turn."""
    data = build_data(config, Display())
    if not 0 <= index < len(data.scenario):
        raise UserError(f"There is no step {index}: the split has steps 0 to {len(data.scenario) - 1}.")
    step, scenario = data.scenario[index], data.scenario
    train = part == "train"
    dataset = data.train_set if train else data.test_set
    images = (data.train_images if train else data.test_images)[index]
    present = data.train_present if train else data.test_present
    chosen = _in_turn(step.new, present, images, count)
    if not train:  # old classes are tested too
        chosen = list(dict.fromkeys([*chosen, *_in_turn(step.old, present, images, count)]))[:count]
    samples = (dataset.read(int(image)) for image in chosen)
    cards = [make_card(scenario, step, part, each.key, each.image, each.mask) for each in samples]
    page = write_contact_sheet(out, scenario, step, part, cards, len(images))
    Console().print(f"Page: {page}", markup=False, highlight=False, soft_wrap=True)


def _examine(dataset: SegDataset, name: str, display: Display) -> Examined:
    with display.bar(f"reading {name} files", len(dataset)) as bar:
        return examine(dataset, lambda done, _: bar.update(done))


def _orphans(sets: Iterable[FileDataset]) -> set[str]:
    """Masks on disk of no image of these splits. Their names count: SBD has the masks of VOC once more."""
    used = {pair.mask.name for dataset in sets for pair in (*dataset.pairs, *dataset.skipped)}
    return {str(path) for dataset in sets for path in dataset.mask_files() if path.name not in used}


def _shared(sets: Sequence[FileDataset]) -> set[str]:
    """Images that are in every one of these splits."""
    images = [{str(pair.image) for pair in dataset.pairs} for dataset in sets]
    return set.intersection(*images) if images else set()


def _sizes(diagnosis: Diagnosis) -> Iterator[str]:
    for name, sizes in diagnosis.sizes.items():
        yield f"{diagnosis.images[name]:,} {name} images: {size_text(sizes)} pixels."


def _costs(config: RunConfig, diagnosis: Diagnosis, measured: Estimate, device: str) -> list[str]:
    """What fine-tuning would cost; other methods cost up to about twice as much."""
    train = config.train
    largest = max(step.train for step in diagnosis.steps)
    part = -(-min(train.batch_size, largest) // train.accumulate)
    cores = os.cpu_count() or 1 if device == "cpu" else None
    epochs = ", ".join(
        f"step {step.index}: {duration(measured.epoch_seconds(step.train, train.workers, cores))}"
        for step in diagnosis.steps
    )
    return [
        f"An epoch of fine-tuning on this {device}, estimated from one iteration: {epochs}."
        " Other methods: see 'segue list methods'.",
        f"Memory beside what Python and torch take: about {amount(measured.memory(part))} for"
        f" {config.model.backbone} with {numbered(part, 'image')} of {train.crop} pixels at a time.",
    ]


def amount(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _advice(bad: int, skip_bad: Path | None) -> list[str]:
    if skip_bad is not None:
        found = numbered(bad, "bad image")
        return [f"{found} found; leave out what {skip_bad} lists: data.skip={skip_bad}"]
    return ["Mend these files, or leave them out: add --skip-bad skip.json."] if bad else []


def _in_turn(classes: Sequence[int], present: np.ndarray, images: np.ndarray, count: int) -> list[int]:
    """Up to `count` images: one of each class, then another of each, ..."""
    per_class = [images[present[images, class_id]] for class_id in classes]
    rounds = (image for row in zip_longest(*per_class) for image in row if image is not None)
    return list(dict.fromkeys(int(image) for image in rounds))[:count]
