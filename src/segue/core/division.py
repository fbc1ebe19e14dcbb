"""Each image goes to exactly one step: the rule behind the published ADE20K lists.

Most images of ADE20K show classes of several steps, so *disjoint* as on VOC would leave next to nothing for
the first ones. MiB shares the images out instead, one after the other, and lets the class that needs an image
most decide. The rule depends on nothing but the classes in each image; docs/protocol.md has the counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NEED = 120.0
"""score of a class that has no image yet; a constant of the published lists"""


def divide(present: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """The group of each image, -1 for an image without any class of the groups.

    `present[i, c]` says whether class c is in image i. Classes that are in no group do not count at all.
    Images are visited by their lowest class id, then by position. Of the classes in an image, class c scores

        120 (1 - given_c / images_c) + (sum of images_d over the classes d in the image) / images_c

    where images_c counts the images with c and given_c those that its group has got so far. The image goes to
    the group of the best class, the lowest id among equals: classes still without images and rare ones win.
    """
    ids = np.array(sorted(class_id for group in groups for class_id in group))
    group_of = {class_id: k for k, group in enumerate(groups) for class_id in group}
    groups_by_column = [group_of[class_id] for class_id in ids.tolist()]
    shown = present[:, ids]
    images, given = shown.sum(axis=0).tolist(), [0] * len(ids)
    columns = np.split(np.nonzero(shown)[1], np.cumsum(shown.sum(axis=1))[:-1])
    chosen = np.full(len(present), -1, dtype=np.int64)
    for image in _visits(shown):
        classes = columns[image].tolist()
        total = sum(images[c] for c in classes)
        scores = [NEED * (1 - given[c] / images[c]) + total / images[c] for c in classes]
        group = groups_by_column[classes[scores.index(max(scores))]]
        for c in classes:
            given[c] += groups_by_column[c] == group
        chosen[image] = group
    return chosen


def _visits(shown: np.ndarray) -> list[int]:
    """Images with a class, in the order in which a loop over classes and then images meets them."""
    images = np.flatnonzero(shown.any(axis=1))
    return images[np.argsort(shown[images].argmax(axis=1), kind="stable")].tolist()
