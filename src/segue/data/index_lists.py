"""Lists of image indices (train-0.npy, train-1.npy, ...) as MiB and its descendants ship them.

An index is a position among the training images in order of name. Nothing in such a file says which images
it counts, so every list is held against the classes: an image that trains a step shows one of its new ones.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from segue.core.errors import UserError, reason
from segue.core.ordinary import user_path
from segue.core.scenario import Scenario

MOST_BYTES = 64 * 2**20
MOST_IMAGES = 2**31


@dataclass(frozen=True)
class ListComparison:
    """How the list of a step compares with the rule of the scenario's mode."""

    step: int
    images: int
    missing: int
    """images that the rule takes and the list lacks"""
    extra: int
    """images of the list that the rule does not take"""

    @property
    def same(self) -> bool:
        return self.missing == self.extra == 0


def read_index_lists(folder: Path, steps: int) -> list[np.ndarray]:
    """The indices of every step, each once, not yet held against a data set."""
    folder = user_path(folder)
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} with lists such as train-0.npy.")
    wanted = [f"train-{step}.npy" for step in range(steps)]
    if missing := [name for name in wanted if not (folder / name).is_file()]:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}: {steps} steps need train-0.npy to {wanted[-1]}."
            " Some published tasks leave a list out that another task has: copy it here."
        )
    found = sorted(path.name for path in folder.glob("train-*.npy") if re.fullmatch(r"train-\d+", path.stem))
    if further := [name for name in found if name not in wanted]:
        raise UserError(f"{folder} holds {further[0]}, but the split has {steps} steps: is it another split?")
    return [_read_list(folder / name) for name in wanted]


def lists_to_keys(
    keys: Sequence[str], lists: Sequence[np.ndarray], present: np.ndarray, scenario: Scenario
) -> tuple[tuple[tuple[str, ...], ...], tuple[ListComparison, ...]]:
    """The images that the lists name, step by step, and how they compare with the rule of the mode.

    `keys` and the rows of `present` are those of the training images. Images come back in the order of
    `keys`, so that lists with the images of the rule give the manifest of the rule.
    """
    assert len(lists) == len(scenario) and len(keys) == len(present)
    by_name = np.array(sorted(range(len(keys)), key=lambda image: keys[image]))
    chosen, comparisons = [], []
    for step, indices, rule in zip(scenario, lists, scenario.train_images(present), strict=True):
        name = f"train-{step.index}.npy"
        if indices.max() >= len(keys):
            raise UserError(
                f"{name} holds the index {indices.max()}, but there are {len(keys)} training images:"
                " the lists refer to another list of images."
            )
        images = by_name[indices]
        without = np.flatnonzero(~present[images][:, step.new].any(axis=1))
        if len(without):
            raise UserError(
                f"{name} holds the index {indices[without[0]]}, but that image ('{keys[images[without[0]]]}')"
                f" shows no new class of step {step.index} ({len(without)} such images): the lists probably"
                " refer to another order or another list of images, or to another split."
            )
        chosen.append(tuple(keys[image] for image in np.sort(images)))
        both = len(np.intersect1d(images, rule))
        comparisons.append(ListComparison(step.index, len(images), len(rule) - both, len(images) - both))
    return tuple(chosen), tuple(comparisons)


def _read_list(path: Path) -> np.ndarray:
    """Sorted int64 indices of one file."""
    values = _read_array(path)
    if len(values) == 0:
        raise UserError(f"{path} is empty: it lists no image.")
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= MOST_IMAGES:
        wrong = low if low < 0 else high
        raise UserError(f"{path} holds {wrong}, which is no index of an image.")
    indices, counts = np.unique(values.astype(np.int64), return_counts=True)
    if counts.max() > 1:
        raise UserError(f"{path} holds the index {indices[counts.argmax()]} twice.")
    return indices


def _read_array(path: Path) -> np.ndarray:
    """The numbers in an .npy file. The header is read first: it may promise anything."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MB: that is no list of indices.")
        file = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    try:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(file)
    except Exception as error:  # numpy has many kinds of error for a header that is none
        raise UserError(f"{path} is not a NumPy file, or it is damaged.") from error
    if dtype.kind not in "iu":
        raise UserError(f"{path} holds values of type {dtype}; indices are whole numbers.")
    if len(shape) != 1:
        raise UserError(f"{path} holds an array of {len(shape)} dimensions; a list of indices has one.")
    body = file.read()
    if len(body) != shape[0] * dtype.itemsize:
        raise UserError(f"{path} is damaged: it should hold {shape[0]} numbers, but its size does not fit.")
    return np.frombuffer(body, dtype)
