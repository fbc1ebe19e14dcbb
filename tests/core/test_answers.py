"""Three answers, and from which numbers each of them follows."""

from __future__ import annotations

import pytest

from segue.core.errors import UserError
from segue.core.verdict import Limits, MeanChange, OldClass, Unknown, Verdict, limits_of, weigh

FINE = MeanChange(-0.5, -1.0, 0.2, 20)


def cat(change: float, low: float, high: float, images: int = 20) -> OldClass:
    return OldClass("cat", 80.0, 80.0 + change, low, high, images, 0.0, "val/a3")


def verdict(
    *old: OldClass, new: float | None = 40.0, mean: MeanChange | None = FINE, labelled: bool = True, **limits
) -> Verdict:
    return weigh(old, [], {"bird": new}, mean, labelled, Limits(**limits), "20 images.")


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        (cat(-1.0, -3.0, 1.0), "safe to deploy"),
        (cat(-4.8, -9.0, 1.0), "safe to deploy"),
        (cat(-4.8, -7.0, -2.1), "look here first"),
        (cat(-6.0, -9.0, 1.0), "look here first"),
        (cat(-9.0, -12.0, -5.1), "not safe"),
        (cat(-9.0, -9.0, -9.0, images=1), "look here first"),
        (cat(+3.0, +1.0, +5.0), "safe to deploy"),
    ],
)
def test_a_class_counts_when_its_whole_interval_lies_below_a_limit(one: OldClass, answer: str):
    assert verdict(one).answer == answer


def test_a_fall_that_does_not_count_is_said_all_the_same():
    found = verdict(cat(-4.8, -9.0, 1.0))
    assert found.safe and not found.reasons and not found.look_at
    assert len(found.remarks) == 1 and "cat falls by 4.8" in found.remarks[0]


def test_the_class_and_the_picture_are_named():
    found = verdict(cat(-9.0, -12.0, -5.1), new=3.0)
    assert found.look_at == ("cat",) and "val/a3" in found.reasons[0], "the gravest first"
    assert "bird has IoU 3.0" in found.reasons[1]


@pytest.mark.parametrize(
    ("mean", "answer"),
    [
        (MeanChange(-1.9, -3.0, -1.0, 20), "safe to deploy"),
        (MeanChange(-3.0, -4.5, -1.0, 20), "look here first"),
        (MeanChange(-3.0, -4.0, -2.1, 20), "not safe"),
        (MeanChange(-3.0, -3.0, -3.0, 2), "look here first"),
        (None, "look here first"),
    ],
)
def test_the_mean_of_the_old_classes(mean: MeanChange | None, answer: str):
    assert verdict(mean=mean).answer == answer


@pytest.mark.parametrize("new", [None, 9.9])
def test_a_new_class_that_is_not_learned_or_not_shown(new: float | None):
    assert verdict(new=new).answer == "look here first"
    assert verdict(new=10.0).safe


def test_agreement_is_not_truth_so_that_more_may_change():
    one = cat(-9.0, -12.0, -5.1)
    assert verdict(one, labelled=False).answer == "look here first"
    assert verdict(one, labelled=False, unlabelled_factor=1.0).answer == "not safe"


def test_old_classes_that_no_image_shows_are_named():
    found = weigh([cat(0, -1, 1)], [Unknown("dog")], {"bird": 40.0}, FINE, True, Limits(), "")
    assert found.safe and "dog" in found.remarks[0]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (Unknown("dog", 8, 3), ("8 pixels", "3 images")),
        (Unknown("dog", 8, 1, 892), ("8 pixels", "1 image", "892")),
        (Unknown("dog", left_out=892), ("touch",)),
        (Unknown("dog"), ("no image",)),
    ],
)
def test_what_is_not_judged_says_why_and_is_a_reason_only_where_nothing_else_is_known(
    one: Unknown, said: tuple[str, ...]
):
    beside = weigh([cat(0, -1, 1)], [one], {"bird": 40.0}, FINE, False, Limits(), "")
    assert beside.safe and all(word in beside.remarks[0] for word in ("dog", *said)), beside.remarks
    alone = weigh([], [one], {"bird": 40.0}, None, False, Limits(), "")
    assert alone.answer == "look here first" and alone.unknown == (one,)
    assert all(word in alone.reasons[0] for word in said), alone.reasons


def test_limits_are_words_and_an_option():
    limits, rest = limits_of(["train.epochs=2", "verdict.class_drop=7", "verdict.max_drop=4"], 3.0)
    assert (limits.max_drop, limits.class_drop, rest) == (3.0, 7.0, ["train.epochs=2"])
    for words in (["verdict.clas_drop=7"], ["verdict.min_new=-1"], ["verdict.min_images=0"]):
        with pytest.raises(UserError, match="verdict"):
            limits_of(words)
