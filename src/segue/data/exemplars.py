"""Which images of earlier steps are kept to be shown again: references to files, balanced over the classes.

The choice after a step is a pure function of the exemplars before, the step's images, the class index and a
seed. So no checkpoint holds it: a resumed run chooses again, and the same. An image that was not kept is
gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.core.records import write_json
from segue.core.scenario import Step

FORMAT = "segue-memory-1"


@dataclass(frozen=True)
class Exemplar:
    """An image of an earlier step that is kept to be shown again."""

    image: int
    """index in the training set"""
    step: int
    """step whose labels the image has"""


def choose_exemplars(
    before: Sequence[Exemplar],
    images: Sequence[int],
    steps: Sequence[Step],
    present: np.ndarray,
    size: int,
    seed: int,
) -> tuple[Exemplar, ...]:
    """The exemplars after the last of `steps`, which began with those `before` and trained with `images`.

    Again and again the class with the fewest exemplars (of equals the one that arrived first) gets the next
    candidate, in random order, that shows it as a new class of the candidate's step. An exemplar counts for
    all such classes. An image that is a candidate of two steps is kept once, with the labels of the step for
    which it is taken first.
    """
    candidates = [*before, *(Exemplar(int(image), steps[-1].index) for image in images)]
    order = np.random.default_rng(seed).permutation(len(candidates))
    waiting: dict[int, list[Exemplar]] = {class_id: [] for class_id in steps[-1].seen}
    for position in order[::-1]:  # each is taken from the end of its lists
        for class_id in _shown(candidates[position], steps, present):
            waiting[class_id].append(candidates[position])
    counts = dict.fromkeys(waiting, 0)
    chosen: dict[int, Exemplar] = {}
    while waiting and len(chosen) < size:
        rarest = min(waiting, key=lambda class_id: counts[class_id])
        if not waiting[rarest]:
            del waiting[rarest]
            continue
        exemplar = waiting[rarest].pop()
        if exemplar.image not in chosen:
            chosen[exemplar.image] = exemplar
            for class_id in _shown(exemplar, steps, present):
                counts[class_id] += 1
    return tuple(sorted(chosen.values(), key=lambda exemplar: (exemplar.step, exemplar.image)))


def write_exemplars(folder: Path, step: int, exemplars: Sequence[Exemplar], keys: Sequence[str]) -> None:
    """Store the exemplars after a step as references: image keys and the steps whose labels they have."""
    images = [{"key": keys[exemplar.image], "step": exemplar.step} for exemplar in exemplars]
    document = {"format": FORMAT, "step": step, "images": images}
    write_json(folder / "memory" / f"{step}.json", document, folder)


def _shown(exemplar: Exemplar, steps: Sequence[Step], present: np.ndarray) -> list[int]:
    """Classes that arrived at the exemplar's step and are in its image: those it has labels of."""
    return [class_id for class_id in steps[exemplar.step].new if present[exemplar.image, class_id]]
