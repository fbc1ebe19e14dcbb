"""From counts of pixels to a verdict: scores, intervals, and the image to look at."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from segue.core.verdict import Limits
from segue.deploy.verdict import Counts, judge

OLD = SimpleNamespace(classes=("background", "cat", "dog", "cow"))
IMAGES = 12
KEYS = tuple(f"i{number}" for number in range(IMAGES))
SIZES = np.full(IMAGES, 900)


def counts(cat_after: list[int]) -> Counts:
    """Cats of 100 pixels in every image, of which the old model has 80 right; dogs stay, cows are nowhere."""
    dogs, none = np.full(IMAGES, 50), np.zeros(IMAGES, dtype=int)
    columns = {
        "truth": (np.full(IMAGES, 100), dogs, none),
        "before": (np.full(IMAGES, 80), dogs, none),
        "before_hit": (np.full(IMAGES, 80), dogs, none),
        "after": (np.array(cat_after), dogs, none),
        "after_hit": (np.array(cat_after), dogs, none),
        "lost": (80 - np.array(cat_after), none, none),
        "left_out": (none, none, none),
    }
    stacked = {name: np.stack(values, axis=1) for name, values in columns.items()}
    return Counts(KEYS, SIZES, **stacked)


def unchanged(seen: np.ndarray) -> Counts:
    """Both models say the same of these pixels."""
    return Counts(KEYS, SIZES, *([seen] * 5), seen * 0, seen * 0)


def test_scores_intervals_and_the_worst_image():
    after = [80] * 6 + [60] * 5 + [20]
    found = judge(OLD, counts(after), {"bird": 50.0}, True, Limits())
    cat, dog = found.old
    assert (cat.before, cat.after, cat.worst) == (80.0, pytest.approx(sum(after) / IMAGES), "i11")
    assert cat.low < cat.change < cat.high < 0 and (dog.low, dog.high, dog.worst) == (0, 0, "")
    assert found.mean.change == pytest.approx(cat.change / 2) and found.mean.low < found.mean.high
    assert "2 of 3 old classes" in found.evidence and "cow" in " ".join(found.remarks)
    assert found.answer == "not safe" and "i11" in " ".join(found.reasons)


def test_one_bad_image_of_many_is_no_proof():
    found = judge(OLD, counts([80] * 11 + [20]), {"bird": 50.0}, True, Limits())
    assert found.old[0].change == pytest.approx(-5) and found.old[0].high == 0
    assert found.answer == "look here first" and "i11" not in " ".join(found.reasons)


def test_without_labels_the_old_model_is_the_measure():
    found = judge(OLD, unchanged(counts([80] * IMAGES).before), {"bird": 50.0}, False, Limits())
    assert found.safe and {one.before for one in found.old} == {one.after for one in found.old} == {100}


def test_no_old_class_in_sight_is_no_proof_of_safety():
    empty = unchanged(np.zeros((IMAGES, 3), dtype=int))
    found = judge(OLD, empty, {"bird": 50.0}, False, Limits())
    assert found.answer == "look here first" and found.mean is None and not found.old


@pytest.mark.parametrize(("absent", "them"), [(1, " it"), (2, " them")])
def test_what_is_said_of_classes_that_nobody_sees(absent: int, them: str):
    seen = np.ones((IMAGES, 3), dtype=int)
    seen[:, 3 - absent :] = 0
    (unlabelled,), (labelled,) = (
        [line for line in judge(OLD, unchanged(seen), {}, known, Limits()).remarks if "nothing is" in line]
        for known in (False, True)
    )
    assert them in unlabelled and "old model" in unlabelled
    assert labelled.endswith(them) and "old model" not in labelled


def vanished(per_image: int, images: int) -> Counts:
    """Cats that the old model sees on some images and the grown one nowhere; the images show nothing else."""
    seen, none = np.zeros((IMAGES, 3), dtype=int), np.zeros((IMAGES, 3), dtype=int)
    seen[:images, 0] = per_image
    return Counts(KEYS, SIZES, seen, seen, seen, none, none, none, none)


def test_a_handful_of_pixels_proves_no_fall():
    found = judge(OLD, vanished(1, 8), {"bird": 50.0}, False, Limits())
    assert found.answer == "look here first" and not found.old and found.mean is None
    assert "8 pixels on 8 images" in found.reasons[0] and "falls by" not in " ".join(found.reasons)
    assert judge(OLD, vanished(9, 8), {"bird": 50.0}, False, Limits()).answer == "not safe"
    assert judge(OLD, vanished(1, 8), {"bird": 50.0}, False, Limits(min_area=0)).answer == "not safe"
    assert judge(OLD, vanished(1, 8), {"bird": 50.0}, True, Limits()).answer == "not safe", "labels are truth"


def test_a_mean_is_as_sure_as_the_images_that_show_old_classes():
    """Twelve images, of which three show an old class: too few for a sure answer."""
    found = judge(OLD, vanished(300, 3), {"bird": 50.0}, False, Limits())
    assert found.mean.images == 3 and found.answer == "look here first"
    assert "only 3 images" in " ".join(found.remarks)
