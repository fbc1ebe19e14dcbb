"""Which classes arrive when, which images train each step, and what a mask's ids become.

Everything here is a pure function of class sets and policies: no files, no torch. The rules are those of the
benchmark protocol (docs/protocol.md): *overlapped* takes every image with a new class; *disjoint* also
demands that no class is present but new and old ones; *sequential* takes the disjoint images and keeps the
labels of old classes; *divided* gives each image to one step (core/division.py). Labels are canonical: 0 is
background ("none of the seen classes"), then the classes in order of arrival, 255 is ignored.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from segue.core.classes import IGNORE, ClassTable
from segue.core.division import divide
from segue.core.errors import UserError, suggest
from segue.core.splits import Split, parse_split

Mode = Literal["overlapped", "disjoint", "sequential", "divided"]
VoidPolicy = Literal["background", "ignore"]
FuturePolicy = Literal["ignore", "background"]


@dataclass(frozen=True)
class Step:
    """One increment: the class ids that arrive and those that are already known (no background).

    Examples:
        >>> import segue
        >>> step = segue.Step(index=1, new=(3,), old=(1, 2))
        >>> step.seen, step.num_channels, step.first
        ((1, 2, 3), 4, False)
    """

    index: int
    new: tuple[int, ...]
    old: tuple[int, ...] = ()

    @property
    def first(self) -> bool:
        return self.index == 0

    @property
    def seen(self) -> tuple[int, ...]:
        return self.old + self.new

    @property
    def num_old(self) -> int:
        """Channels of the model before this step, background included (1 at step 0: background alone)."""
        return 1 + len(self.old)

    @property
    def num_channels(self) -> int:
        return 1 + len(self.seen)


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps over the classes of one data set, with the policies that decide every label.

    `make_scenario` builds one from a split such as "15-5".

    Examples:
        >>> import segue
        >>> classes = segue.ClassTable("pets", {1: "cat", 2: "dog", 3: "bird"})
        >>> scenario = segue.Scenario(classes, groups=((1, 2), (3,)))
        >>> [scenario.channel_names(step) for step in scenario]
        [('background', 'cat', 'dog'), ('background', 'cat', 'dog', 'bird')]
        >>> scenario.label_table(scenario[1])[[0, 1, 2, 3]].tolist()  # only bird is labelled in step 1
        [0, 0, 0, 3]
    """

    classes: ClassTable
    groups: tuple[tuple[int, ...], ...]
    """class ids that arrive at each step of the split"""
    mode: Mode = "overlapped"
    void: VoidPolicy = "background"
    """label of void pixels in training; a test never scores them"""
    future: FuturePolicy = "ignore"
    """label of pixels of future classes in a test"""
    offline: bool = False
    """a single step with all groups (the upper bound Joint)"""
    division: tuple[tuple[int, ...], ...] | None = None
    """finer groups that mode `divided` shares the images among before it merges them to `groups`"""

    def __post_init__(self) -> None:
        for word, kind in (("mode", Mode), ("void", VoidPolicy), ("future", FuturePolicy)):
            value = getattr(self, word)
            if value not in get_args(kind):
                raise UserError(f"'{value}' is no policy for '{word}'.{suggest(value, get_args(kind))}")
        if not self.groups:
            raise UserError("A scenario needs at least one step.")
        seen: set[int] = set()
        for index, group in enumerate(self.groups):
            if not group:
                raise UserError(f"Step {index} of the split has no class.")
            for class_id in group:
                if class_id in seen:
                    raise UserError(
                        f"Class '{self.classes.names[class_id]}' (id {class_id}) stands twice in the split."
                    )
                seen.add(class_id)
        if self.division is not None:
            pieces = [
                {k for k, group in enumerate(self.groups) if set(group) & set(p)} for p in self.division
            ]
            assert all(len(steps) == 1 for steps in pieces), "a finer group lies within one step"
            assert sorted(sum(self.division, ())) == sorted(seen), "finer groups have the same classes"

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        groups = (sum(self.groups, ()),) if self.offline else self.groups
        return tuple(Step(k, group, sum(groups[:k], ())) for k, group in enumerate(groups))

    def __len__(self) -> int:
        return 1 if self.offline else len(self.groups)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, item):
        return self.steps[item]

    def channel_names(self, step: Step) -> tuple[str, ...]:
        return ("background", *(self.classes.names[class_id] for class_id in step.seen))

    def select(
        self, step: Step, present: np.ndarray, split: Literal["train", "test"] = "train"
    ) -> np.ndarray:
        """Indices of the images that belong to a step; `present[i, c]` says whether id c is in image i."""
        if split == "test":
            return np.flatnonzero(present[:, step.seen].any(axis=1))
        return self.train_images(present)[step.index]

    def train_images(self, present: np.ndarray) -> tuple[np.ndarray, ...]:
        """Indices of the images that train each step."""
        if self.mode == "divided" and not self.offline:
            finer = self.division or self.groups
            step_of = {class_id: k for k, group in enumerate(self.groups) for class_id in group}
            merged = np.array([*(step_of[group[0]] for group in finer), -1])
            steps = merged[divide(present, finer)]
            return tuple(np.flatnonzero(steps == k) for k in range(len(self)))
        return tuple(np.flatnonzero(self._by_rule(step, present)) for step in self)

    def _by_rule(self, step: Step, present: np.ndarray) -> np.ndarray:
        """Whether each image trains a step, in modes in which one image has nothing to do with another."""
        chosen = np.asarray(present[:, step.new].any(axis=1))
        if self.mode in ("disjoint", "sequential"):
            others = [class_id for class_id in self.classes.ids if class_id not in step.seen]
            chosen &= ~present[:, others].any(axis=1)
        return chosen

    def label_table(self, step: Step, split: Literal["train", "test"] = "train") -> np.ndarray:
        """256 labels, one per mask id: `labels = table[mask]` relabels a mask."""
        channel = {class_id: index for index, class_id in enumerate(step.seen, start=1)}
        table = np.full(256, IGNORE, dtype=np.uint8)
        if self.classes.background is not None:
            table[self.classes.background] = 0
        for class_id in self.classes.ids:
            if class_id not in channel:
                test_label = 0 if self.future == "background" else IGNORE
                table[class_id] = 0 if split == "train" else test_label
            elif split == "test" or class_id in step.new or self.mode == "sequential":
                table[class_id] = channel[class_id]
            else:
                table[class_id] = 0
        for void_id in self.classes.void:
            table[void_id] = 0 if split == "train" and self.void == "background" else IGNORE
        return table


def make_scenario(
    classes: ClassTable,
    split: Split,
    mode: Mode = "overlapped",
    void: VoidPolicy = "background",
    future: FuturePolicy = "ignore",
    order: Sequence[str | int] | str | None = None,
    offline: bool = False,
    *,
    orders: Mapping[str, Sequence[int]] | None = None,
    divided_as: Mapping[str, str] | None = None,
) -> Scenario:
    """Build a scenario from a split such as "15-5", "cat,dog/person" or [["cat", "dog"], [15]].

    A data set may have class orders with a name (`orders`), and splits whose images are those of a finer
    split, merged, in mode `divided` (`divided_as`).

    Examples:
        >>> import segue
        >>> classes = segue.ClassTable("pets", {1: "cat", 2: "dog", 3: "bird"})
        >>> segue.make_scenario(classes, "2-1").groups
        ((1, 2), (3,))
        >>> segue.make_scenario(classes, "dog/cat,bird").groups
        ((2,), (1, 3))
    """
    ordered = class_order(classes, order, orders)
    groups = parse_split(classes, split, ordered)
    if order is not None and sum(groups, ()) != ordered:
        raise UserError("A split that lists its classes has its order already: drop scenario.order.")
    division = _finer(classes, groups, divided_as or {}) if mode == "divided" else None
    return Scenario(classes, groups, mode, void, future, offline, division)


def _finer(
    classes: ClassTable, groups: tuple[tuple[int, ...], ...], divided_as: Mapping[str, str]
) -> tuple[tuple[int, ...], ...] | None:
    """The finer groups of a split that a data set names, however the split was written."""
    ordered = sum(groups, ())
    if sorted(ordered) != sorted(classes.ids):
        return None
    for coarse, fine in divided_as.items():
        if groups == parse_split(classes, coarse, ordered):
            return parse_split(classes, fine, ordered)
    return None


def class_order(
    classes: ClassTable,
    order: Sequence[str | int] | str | None,
    named: Mapping[str, Sequence[int]] | None = None,
) -> tuple[int, ...]:
    """Class ids in order of arrival: as the data set has them, by a name, as listed, or "random-SEED"."""
    if order is None:
        return classes.ids
    if isinstance(order, str):
        word, named = order.strip(), named or {}
        if word in named:
            return tuple(named[word])
        if match := re.fullmatch(r"random-(\d+)", word):
            shuffled = list(classes.ids)
            random.Random(int(match[1])).shuffle(shuffled)
            return tuple(shuffled)
        order = [part for part in word.split(",") if part.strip()]
        if len(order) < 2 and len(classes.ids) > 1:
            known = " or ".join(["random-SEED", *named])
            raise UserError(
                f"'{word}' is no class order of {classes.dataset}: list all classes, or say {known}."
            )
    ids = tuple(classes.resolve(entry) for entry in order)
    if doubled := [classes.names[i] for i in dict.fromkeys(ids) if ids.count(i) > 1]:
        raise UserError(f"Class '{doubled[0]}' stands twice in the class order.")
    if missing := [classes.names[i] for i in classes.ids if i not in ids]:
        raise UserError(
            f"The class order lacks {len(missing)} classes of {classes.dataset}, e.g. '{missing[0]}'."
        )
    return ids
