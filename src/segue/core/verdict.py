"""What is known of a grown model: its old classes before and after, its new ones, and whether it is safe.

Three answers. *Not safe*: the mean of the old classes has surely fallen by more than is allowed, or a class
has. *Look here first*: it may have, a class has surely lost some, or a new class is not learned. *Safe to
deploy*: none of these. Sure means that the whole 95 % interval lies below the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from segue.core.config import Count, NonNegative, validate
from segue.core.overrides import parse_overrides

Answer = Literal["safe to deploy", "look here first", "not safe"]
Level = Literal["remark", "look here first", "not safe"]
SECTION = "verdict"
MOST_NAMES = 5
"""classes that a sentence names"""


@dataclass(frozen=True)
class Limits:
    """From where on a change counts."""

    max_drop: NonNegative = 2.0
    """largest loss of the mean over old classes, in points; a class that surely loses more is looked at"""
    class_drop: NonNegative = 5.0
    """largest loss of a single old class, in points"""
    min_new: Annotated[float, Field(ge=0, le=100)] = 10.0
    """least IoU of a new class, in points"""
    min_images: Count = 5
    """least number of images for which an interval counts as sure"""
    unlabelled_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """factor of both drops where only agreement is known: a pixel that changed need not be wrong"""


def limits_of(words: Iterable[str], max_drop: float | None = None) -> tuple[Limits, list[str]]:
    """The limits that `verdict.key=value` words set, and the other words."""
    words = list(words)
    own = [word for word in words if word.startswith(f"{SECTION}.")]
    said = parse_overrides(own).get(SECTION, {})
    if max_drop is not None:
        said["max_drop"] = max_drop
    return validate(Limits, said, SECTION), [word for word in words if word not in own]


@dataclass(frozen=True)
class OldClass:
    """An old class before and after."""

    name: str
    before: float
    """IoU in points with a check folder; else 100, the old model being its own measure"""
    after: float
    """IoU in points with a check folder; else the share of its pixels that are still called so"""
    low: float
    high: float
    """ends of the 95 % interval of after - before"""
    images: int
    """images that show the class"""
    lost: float
    """share of its pixels, in percent, that a new class has taken"""
    worst: str = ""
    """name of the image in which most of its pixels became wrong; empty: in none"""

    @property
    def change(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class MeanChange:
    """Change of the mean over the old classes that the images show, in points."""

    change: float
    low: float
    high: float
    """ends of the 95 % interval"""
    images: int
    """images in all"""


@dataclass(frozen=True)
class Verdict:
    """The answer and what it rests on."""

    answer: Answer
    evidence: str
    old: tuple[OldClass, ...]
    new: dict[str, float | None]
    """IoU of each new class on held-out new images, in points; None: no such image shows it"""
    mean: MeanChange | None
    """None: no image shows an old class"""
    labelled: bool
    """whether labelled images of old classes were there: scores are IoU, not agreement"""
    limits: Limits = Limits()
    reasons: tuple[str, ...] = ()
    """grounds of the answer, the gravest first"""
    remarks: tuple[str, ...] = ()
    """falls that do not count, and gaps in the evidence"""
    look_at: tuple[str, ...] = ()
    """names of the old classes among the reasons"""

    @property
    def safe(self) -> bool:
        return self.answer == "safe to deploy"


def weigh(
    old: Sequence[OldClass],
    absent: Sequence[str],
    new: dict[str, float | None],
    mean: MeanChange | None,
    labelled: bool,
    limits: Limits,
    evidence: str,
) -> Verdict:
    """The answer that scores give; `absent` names the old classes that no image shows."""
    factor = 1.0 if labelled else limits.unlabelled_factor
    found = [*_of_mean(mean, factor * limits.max_drop, labelled, limits.min_images)]
    judged = [(one, _of_class(one, factor, limits)) for one in old]
    found += [each for _, each in judged if each is not None]
    found += _of_new(new, limits)
    if not labelled:
        found.append(("remark", "labelled images of old classes would say more: --check FOLDER"))
    if absent and old:
        names = ", ".join(absent[:MOST_NAMES]) + (", ..." if len(absent) > MOST_NAMES else "")
        them = "it" if len(absent) == 1 else "them"
        unseen = f"no image shows {them}" if labelled else f"the old model sees {them} on no image"
        found.append(("remark", f"nothing is known of {names}: {unseen}"))
    reasons = {
        level: [text for each, text in found if each == level]
        for level in ("not safe", "look here first", "remark")
    }
    look_at = tuple(one.name for one, each in judged if each is not None and each[0] != "remark")
    answer: Answer = "safe to deploy"
    if reasons["not safe"]:
        answer = "not safe"
    elif reasons["look here first"]:
        answer = "look here first"
    grave = (*reasons["not safe"], *reasons["look here first"])
    remarks = tuple(reasons["remark"])
    return Verdict(answer, evidence, tuple(old), new, mean, labelled, limits, grave, remarks, look_at)


def _of_mean(
    mean: MeanChange | None, limit: float, labelled: bool, min_images: int
) -> Iterable[tuple[Level, str]]:
    if mean is None:
        yield "look here first", "no image shows an old class: nothing is known of them"
        return
    what = "mean IoU of old classes" if labelled else "mean agreement with the old model"
    fall = f"{what} falls by {-mean.change:.1f} points ({_interval(mean.low, mean.high)}), limit {limit:g}"
    sure = mean.images >= min_images
    if sure and mean.high < -limit:
        yield "not safe", fall
    elif mean.change < -limit:
        yield "look here first", fall
    if not sure:
        yield "remark", f"fewer than {min_images} images: intervals say little"


def _of_class(one: OldClass, factor: float, limits: Limits) -> tuple[Level, str] | None:
    """A class drop counts if its whole interval lies below a limit, or if it is very large."""
    small, large = factor * limits.max_drop, factor * limits.class_drop
    sure = one.images >= limits.min_images
    where = f"; look at {one.worst}" if one.worst else ""
    shown = f"{one.images} image{'' if one.images == 1 else 's'}"
    text = f"{one.name} falls by {-one.change:.1f} points ({_interval(one.low, one.high)}, {shown}){where}"
    if sure and one.high < -large:
        return "not safe", text
    if one.change < -large or (sure and one.high < -small):
        return "look here first", text
    if one.change < -small:
        why = f"its interval reaches above {-small:g}" if sure else "too few images to tell"
        return "remark", f"{text}: not counted, {why}"
    return None


def _of_new(new: dict[str, float | None], limits: Limits) -> Iterable[tuple[Level, str]]:
    for name, value in new.items():
        if value is None:
            yield "look here first", f"no held-out image shows {name}"
        elif value < limits.min_new:
            yield "look here first", f"{name} has IoU {value:.1f}, limit {limits.min_new:g}"


def _interval(low: float, high: float) -> str:
    return f"95 % interval {low:+.1f}..{high:+.1f}"
