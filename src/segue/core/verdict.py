"""What is known of a grown model: its old classes before and after, its new ones, and whether it is safe.

Three answers. *Not safe*: the mean of the old classes has surely fallen by more than is allowed, or a class
has. *Look here first*: it may have, a class has surely lost some, a new class is not learned, or too little
is seen of all old classes. *Safe to deploy*: none of these. Sure means that the whole 95 % interval lies
below the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    min_area: NonNegative = 1.0
    """least area over all images that an old class needs to be judged by agreement, in percent of an image"""
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
class Unknown:
    """An old class that is not judged: nothing or too little is seen of it."""

    name: str
    pixels: int = 0
    """pixels that could be judged"""
    images: int = 0
    """images that have such pixels"""
    left_out: int = 0
    """pixels in regions that a new object touches, or under void"""


@dataclass(frozen=True)
class MeanChange:
    """Change of the mean over the old classes that are judged, in points."""

    change: float
    low: float
    high: float
    """ends of the 95 % interval"""
    images: int
    """images that show one of them"""


@dataclass(frozen=True)
class Verdict:
    """The answer and what it rests on."""

    answer: Answer
    evidence: str
    old: tuple[OldClass, ...]
    new: dict[str, float | None]
    """IoU of each new class on held-out new images, in points; None: no such image shows it"""
    mean: MeanChange | None
    """None: no old class is judged"""
    labelled: bool
    """whether labelled images of old classes were there: scores are IoU, not agreement"""
    limits: Limits = Limits()
    reasons: tuple[str, ...] = ()
    """grounds of the answer, the gravest first"""
    remarks: tuple[str, ...] = ()
    """falls that do not count, and gaps in the evidence"""
    look_at: tuple[str, ...] = ()
    """names of the old classes among the reasons"""
    unknown: tuple[Unknown, ...] = ()
    """old classes that are not judged"""

    @property
    def safe(self) -> bool:
        return self.answer == "safe to deploy"


def weigh(
    old: Sequence[OldClass],
    unknown: Sequence[Unknown],
    new: dict[str, float | None],
    mean: MeanChange | None,
    labelled: bool,
    limits: Limits,
    evidence: str,
) -> Verdict:
    """The answer that scores give; `unknown` are the old classes without one."""
    factor = 1.0 if labelled else limits.unlabelled_factor
    found: list[tuple[Level, str]] = []
    if mean is not None:
        found += _of_mean(mean, factor * limits.max_drop, labelled, limits.min_images)
    judged = [(one, _of_class(one, factor, limits)) for one in old]
    found += [each for _, each in judged if each is not None]
    level: Level = "remark" if mean is not None else "look here first"
    found += [(level, text) for text in _of_unknown(unknown, mean is None, labelled)]
    found += _of_new(new, limits)
    if not labelled:
        found.append(("remark", "labelled images of old classes would say more: --check FOLDER"))
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
    scores = (tuple(old), new, mean, labelled, limits)
    return Verdict(answer, evidence, *scores, grave, remarks, look_at, tuple(unknown))


def _of_mean(mean: MeanChange, limit: float, labelled: bool, min_images: int) -> Iterable[tuple[Level, str]]:
    what = "mean IoU of old classes" if labelled else "mean agreement with the old model"
    fall = f"{what} falls by {-mean.change:.1f} points ({_interval(mean.low, mean.high)}), limit {limit:g}"
    sure = mean.images >= min_images
    if sure and mean.high < -limit:
        yield "not safe", fall
    elif mean.change < -limit:
        yield "look here first", fall
    if not sure:
        shown = "1 image shows" if mean.images == 1 else f"{mean.images} images show"
        yield "remark", f"only {shown} old classes, fewer than {min_images}: intervals say little"


def _of_unknown(unknown: Sequence[Unknown], all_of_them: bool, labelled: bool) -> Iterable[str]:
    """Why old classes are not judged: too few pixels, all of them at new objects, or none."""
    few = [one for one in unknown if one.pixels]
    beside = [one for one in unknown if not one.pixels and one.left_out]
    unseen = [one for one in unknown if not one.pixels and not one.left_out]
    if few:
        yield f"too little is seen of {_names(few, _amount)} to judge {_them(few)}"
    if beside:
        only = "only in regions that new objects touch, or under void"
        yield f"nothing is known of {_names(beside)}: the old model sees {_them(beside)} {only}"
    if all_of_them and len(unseen) == len(unknown):
        yield "no image shows an old class: nothing is known of them"
    elif unseen:
        why = f"no image shows {_them(unseen)}"
        if not labelled:
            why = f"the old model sees {_them(unseen)} on no image"
        yield f"nothing is known of {_names(unseen)}: {why}"


def _amount(one: Unknown) -> str:
    more = f", {one.left_out:,} more in regions that new objects touch, or under void" if one.left_out else ""
    return f"{one.name} ({_plural(one.pixels, 'pixel')} on {_plural(one.images, 'image')}{more})"


def _names(classes: Sequence[Unknown], show: Callable[[Unknown], str] = lambda one: one.name) -> str:
    return ", ".join(map(show, classes[:MOST_NAMES])) + (", ..." if len(classes) > MOST_NAMES else "")


def _them(classes: Sequence[Unknown]) -> str:
    return "it" if len(classes) == 1 else "them"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _of_class(one: OldClass, factor: float, limits: Limits) -> tuple[Level, str] | None:
    """A class drop counts if its whole interval lies below a limit, or if it is very large."""
    small, large = factor * limits.max_drop, factor * limits.class_drop
    sure = one.images >= limits.min_images
    where = f"; look at {one.worst}" if one.worst else ""
    shown = f"{_interval(one.low, one.high)}, {_plural(one.images, 'image')}"
    text = f"{one.name} falls by {-one.change:.1f} points ({shown}){where}"
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
