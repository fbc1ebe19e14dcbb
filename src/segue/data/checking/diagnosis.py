"""What a look at all files says about a scenario: findings, images and pixels of each step, a verdict.

A pure function of what was read (checking/examine.py), so that every sentence can be tested without files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from segue.core.classes import ClassTable
from segue.core.scenario import Scenario, Step
from segue.data.checking.examine import Examined

Level = Literal["error", "warning"]
FEW_IMAGES = 10
"""fewer training images of a class than this deserve a word"""
SHOWN = 3
"""files named in a finding"""
SOURCES = ("background", "old classes", "later classes", "void")
"""what a pixel that is no new class was drawn as"""


@dataclass(frozen=True)
class Finding:
    """Something worth knowing; errors stop a run."""

    level: Level
    text: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassCount:
    """A class in the step that brings it."""

    name: str
    train: int
    """training images of its step that show it"""
    test: int
    """test images that show it"""
    share: float
    """of the pixels of its step's training images"""


@dataclass(frozen=True)
class StepSurvey:
    """A step's images, and where the pixels of its training images go."""

    index: int
    train: int
    test: int
    classes: tuple[ClassCount, ...]
    sources: dict[str, float]
    """share of the pixels that are no new class, by what they were drawn as"""
    becomes: dict[str, str]
    """the label that such pixels get in training: background, ignored, or their own"""


@dataclass(frozen=True)
class Diagnosis:
    """All of it."""

    dataset: str
    mode: str
    findings: tuple[Finding, ...]
    steps: tuple[StepSurvey, ...]
    sizes: dict[str, tuple[int, ...]]
    """per split: height and width of the smallest, the median and the largest image"""
    images: dict[str, int]
    """usable images of each split"""

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def diagnose(
    scenario: Scenario,
    train: Examined,
    test: Examined,
    crop: int,
    orphans: Collection[str] = (),
    left_out: bool = False,
) -> Diagnosis:
    """Everything that can be said about these files in this scenario.

    `left_out`: files that cannot be used are on a list of those that training leaves out.
    """
    steps = tuple(_survey(scenario, step, train, test) for step in scenario)
    splits = {"train": train, "test": test}
    findings = [
        finding for name, split in splits.items() for finding in _file_findings(name, split, left_out)
    ]
    findings += _mask_findings(scenario.classes, splits)
    findings += _step_findings(scenario, steps)
    if orphans:
        text = f"{len(orphans)} masks belong to no image of either split"
        findings.append(Finding("warning", text, tuple(sorted(orphans))[:SHOWN]))
    if both := sorted(set(train.keys) & set(test.keys)):
        findings.append(Finding("error", f"{len(both)} images both train and test", tuple(both[:SHOWN])))
    findings += _size_findings(train, crop)
    return Diagnosis(
        scenario.classes.dataset,
        scenario.mode,
        tuple(findings),
        steps,
        {name: _size_range(split.sizes) for name, split in splits.items() if len(split.sizes)},
        {name: len(split.keys) for name, split in splits.items()},
    )


def _survey(scenario: Scenario, step: Step, train: Examined, test: Examined) -> StepSurvey:
    chosen = scenario.select(step, train.present)
    tested = scenario.select(step, test.present, "test")
    pixels = train.pixels[chosen].sum(axis=0, dtype=np.int64)
    total = max(int(pixels.sum()), 1)
    names = scenario.classes.names
    counts = (
        ClassCount(
            names[class_id],
            int(train.present[chosen, class_id].sum()),
            int(test.present[:, class_id].sum()),
            pixels[class_id] / total,
        )
        for class_id in step.new
    )
    groups = _sources(scenario.classes, step)
    table = scenario.label_table(step)
    return StepSurvey(
        step.index,
        len(chosen),
        len(tested),
        tuple(counts),
        {name: float(pixels[ids].sum() / total) for name, ids in groups.items()},
        {name: _fate(table[ids]) for name, ids in groups.items() if ids},
    )


def _sources(classes: ClassTable, step: Step) -> dict[str, list[int]]:
    """The ids behind each of SOURCES."""
    later = [class_id for class_id in classes.ids if class_id not in step.seen]
    background = [] if classes.background is None else [classes.background]
    return dict(zip(SOURCES, (background, list(step.old), later, list(classes.void)), strict=True))


def _fate(labels: np.ndarray) -> str:
    if (labels == 0).all():
        return "background"
    return "ignored" if (labels == 255).all() else "their own label"


def _file_findings(name: str, split: Examined, left_out: bool) -> Iterable[Finding]:
    """The files of a split that cannot be used, kind by kind."""
    for kind in dict.fromkeys(image.kind for image in split.bad):
        reasons = [image.reason for image in split.bad if image.kind == kind]
        text = f"{len(reasons)} {name} images {'are left out' if left_out else 'cannot be used'}: {kind}"
        yield Finding("warning" if left_out else "error", text, tuple(reasons[:SHOWN]))


def _mask_findings(classes: ClassTable, splits: dict[str, Examined]) -> Iterable[Finding]:
    for name, split in splits.items():
        empty = np.flatnonzero(~split.present[:, list(classes.ids)].any(axis=1))
        if len(empty):
            examples = tuple(split.keys[i] for i in empty[:SHOWN])
            text = f"{len(empty)} {name} masks show no class at all: they take part in no step"
            yield Finding("warning", text, examples)


def _step_findings(scenario: Scenario, steps: Iterable[StepSurvey]) -> Iterable[Finding]:
    for step in steps:
        if step.train < 2:
            text = f"step {step.index} has {step.train} training images in mode '{scenario.mode}'; it needs 2"
            yield Finding("error", text)
        if step.test == 0:
            yield Finding("error", f"step {step.index} has no test image")
        none = [count.name for count in step.classes if count.train == 0]
        few = [f"{count.name} ({count.train})" for count in step.classes if 0 < count.train < FEW_IMAGES]
        unseen = [count.name for count in step.classes if count.test == 0]
        if none and step.train >= 2:
            text = f"{len(none)} classes of step {step.index} are in no training image of it"
            yield Finding("warning", text, tuple(none[:SHOWN]))
        if few:
            text = f"{len(few)} classes of step {step.index} have fewer than {FEW_IMAGES} training images"
            yield Finding("warning", text, tuple(few[:SHOWN]))
        if unseen and step.test:
            text = f"{len(unseen)} classes of step {step.index} are in no test image: they cannot be scored"
            yield Finding("warning", text, tuple(unseen[:SHOWN]))


def _size_findings(train: Examined, crop: int) -> Iterable[Finding]:
    small = np.flatnonzero(train.sizes.max(axis=1) < crop / 2) if len(train.sizes) else []
    if len(small):
        text = f"{len(small)} training images are smaller than half the crop of {crop} pixels"
        examples = tuple(
            f"{train.keys[i]} ({train.sizes[i][1]} x {train.sizes[i][0]})" for i in small[:SHOWN]
        )
        yield Finding("warning", text, examples)


def _size_range(sizes: np.ndarray) -> tuple[int, ...]:
    order = sizes[np.argsort(sizes.prod(axis=1), kind="stable")]
    return tuple(int(side) for row in (order[0], order[len(order) // 2], order[-1]) for side in row)
