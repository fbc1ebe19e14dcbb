"""What a look at all files says about a scenario: findings, images and pixels of each step, a verdict.

A pure function of what was read (examine.py), so that every sentence can be tested without files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from segue.core.classes import ClassTable
from segue.core.scenario import Scenario, Step
from segue.data.doctor.examine import Examined

Level = Literal["error", "warning"]
FEW_IMAGES = 10
"""fewer training images of a class than this deserve a word"""
FEW_PIXELS = 0.01
"""smaller share of the pixels of its step than this deserves a word"""
SHOWN = 3
"""files named in a finding"""
CLOSED = "eval.background=closed"
"""setting for data in which every pixel has a class"""
SOURCES = ("background", "old classes", "later classes", "void")
"""kinds of pixels that are no new class"""


@dataclass(frozen=True)
class Finding:
    """Something worth knowing; with an error a run does not start."""

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
    """share of the pixels of its step's training images"""


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
    """height and width of the smallest, the median and the largest image, by split"""
    images: dict[str, int]
    """usable images of each split, and of lists that no run uses"""

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
    images: Sequence[np.ndarray],
    crop: int,
    bits: int = 16,
    problems: Sequence[str] = (),
    orphans: Collection[str] = (),
    shared: Collection[str] = (),
    left_out: bool = False,
    unused: Mapping[str, Examined] | None = None,
    settings: Collection[str] = (),
) -> Diagnosis:
    """Everything that can be said about these files in this scenario.

    `images` are the rows of `train` that train each step, and `problems` say why a run would not start with
    them. `bits` carry the picture in 16-bit images. `orphans` are masks without an image, `shared` images of
    both splits. `left_out`: files that cannot be used are on a list of those that training leaves out.
    `unused` are lists of images that neither train nor test. `settings` for small classes are those that the
    recipe has already.
    """
    steps = tuple(_survey(scenario, step, images[step.index], train, test) for step in scenario)
    splits = {"train": train, "test": test}
    spare = {f"unused {name}": split for name, split in (unused or {}).items()}
    findings = [each for name, split in splits.items() for each in _file_findings(name, split, left_out)]
    findings += [
        replace(each, level="warning")  # no run stops at files that it does not read
        for name, split in spare.items()
        for each in _file_findings(name, split, left_out)
    ]
    findings += [Finding("error", problem) for problem in problems]
    findings += _mask_findings(scenario.classes, splits)
    findings += _step_findings(steps)
    findings += [each for step in steps for each in _small_class_findings(step, crop, settings)]
    if orphans:
        text = f"{numbered(orphans, 'mask')} of no image of {'any list' if spare else 'either split'}"
        findings.append(Finding("warning", text, tuple(sorted(orphans))[:SHOWN]))
    if shared:
        text = f"{numbered(shared, 'image')} that both train and test: scores will flatter"
        findings.append(Finding("warning", text, tuple(sorted(shared))[:SHOWN]))
    findings += _background_findings(scenario.classes, train, settings)
    findings += _size_findings(train, crop)
    findings += _depth_findings(np.append(train.peaks, test.peaks), bits)
    return Diagnosis(
        scenario.classes.dataset,
        scenario.mode,
        tuple(findings),
        steps,
        {name: _size_range(split.sizes) for name, split in (splits | spare).items() if len(split.sizes)},
        {name: len(split.keys) for name, split in (splits | spare).items()},
    )


def numbered(things: Sized | int, name: str) -> str:
    """`1 mask`, `2 masks`, `2 classes`."""
    number = things if isinstance(things, int) else len(things)
    return f"{number:,} {name}" + ("" if number == 1 else "es" if name.endswith("s") else "s")


def _survey(
    scenario: Scenario, step: Step, chosen: np.ndarray, train: Examined, test: Examined
) -> StepSurvey:
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
        fate = "left out" if left_out else "that cannot be used"
        text = f"{numbered(reasons, f'{name} image')} {fate}: {kind}"
        yield Finding("warning" if left_out else "error", text, tuple(reasons[:SHOWN]))


def _mask_findings(classes: ClassTable, splits: dict[str, Examined]) -> Iterable[Finding]:
    for name, split in splits.items():
        empty = np.flatnonzero(~split.present[:, list(classes.ids)].any(axis=1))
        if len(empty):
            text = f"{numbered(empty, f'{name} mask')} without any class: no part of any step"
            yield Finding("warning", text, tuple(split.keys[i] for i in empty[:SHOWN]))


def _step_findings(steps: Iterable[StepSurvey]) -> Iterable[Finding]:
    """Classes with few images; what is too little to train at all is among the problems already."""
    for step in steps:
        none = [each.name for each in step.classes if each.train == 0]
        few = [f"{each.name} ({each.train})" for each in step.classes if 0 < each.train < FEW_IMAGES]
        unseen = [each.name for each in step.classes if each.test == 0]
        for classes, text in (
            (none if step.train else [], "in no training image of it"),
            (few, f"in fewer than {FEW_IMAGES} training images"),
            (unseen if step.test else [], "in no test image: no score"),
        ):
            if classes:
                start = f"{numbered(classes, 'class')} of step {step.index}"
                yield Finding("warning", f"{start} {text}", tuple(classes[:SHOWN]))


def _small_class_findings(step: StepSurvey, crop: int, settings: Collection[str]) -> Iterable[Finding]:
    """Classes that cover few pixels, and what to set; crops of step 0, where all is new, are never placed."""
    small = [each for each in step.classes if 0 < each.share < FEW_PIXELS]
    helpful = ("train.crop_on=new", "train.balance=classes")[0 if step.index else 1 :]
    missing = " ".join(setting for setting in helpful if setting not in settings)
    if small and missing:
        shares = (f"{each.name}: {each.share:.1%} of pixels at crop {crop}: expect little" for each in small)
        text = f"{numbered(small, 'class')} of step {step.index} with few pixels: set {missing}"
        yield Finding("warning", text, tuple(shares)[:SHOWN])


def _background_findings(
    classes: ClassTable, train: Examined, settings: Collection[str]
) -> Iterable[Finding]:
    """Data in which every pixel has a class: a channel that is never right still takes pixels."""
    drawn = classes.background is not None and train.pixels[:, classes.background].any()
    if len(train.keys) and not drawn and CLOSED not in settings:
        yield Finding("warning", f"no training pixel is background: set {CLOSED}")


def _size_findings(train: Examined, crop: int) -> Iterable[Finding]:
    small = np.flatnonzero(train.sizes.max(axis=1) < crop / 2) if len(train.sizes) else []
    if len(small):
        text = f"{numbered(small, 'training image')} smaller than half of train.crop={crop}"
        sizes = (f"{train.keys[i]} ({train.sizes[i][1]} x {train.sizes[i][0]})" for i in small[:SHOWN])
        yield Finding("warning", text, tuple(sizes))


def _depth_findings(peaks: np.ndarray, bits: int) -> Iterable[Finding]:
    """16-bit images that would come out dark or white."""
    deep, top = int((peaks > 0).sum()), int(peaks.max(initial=0))
    over, fitting = int((peaks >= 2**bits).sum()), max(top.bit_length(), 9)
    if over:
        text = f"{numbered(over, '16-bit image')} with values above {2**bits - 1}, which become white"
        yield Finding("warning", text, (f"the largest is {top}: data.bits={fitting}",))
    elif deep and fitting < bits:
        text = f"{numbered(deep, '16-bit image')} without a value above {top}, which become dark"
        yield Finding("warning", text, (f"data.bits={fitting} uses the whole range",))


def _size_range(sizes: np.ndarray) -> tuple[int, ...]:
    order = sizes[np.argsort(sizes.prod(axis=1), kind="stable")]
    return tuple(int(side) for row in (order[0], order[len(order) // 2], order[-1]) for side in row)
