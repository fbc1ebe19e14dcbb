"""The doctor's sentences, from made-up readings: no files."""

from dataclasses import replace

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.scenario import Scenario, make_scenario
from segue.data.doctor.diagnosis import ClassCount, Diagnosis, diagnose
from segue.data.doctor.examine import BadImage, Examined

CLASSES = ClassTable("made", {1: "cat", 2: "dog", 3: "cow"})


def examined(masks: list[dict[int, int]], name: str = "i", bad: tuple[BadImage, ...] = ()) -> Examined:
    pixels = np.zeros((len(masks), 256), dtype=np.uint32)
    for row, mask in zip(pixels, masks, strict=True):
        for class_id, count in mask.items():
            row[class_id] = count
    keys = tuple(f"{name}{i}" for i in range(len(masks)))
    sizes, peaks = np.full((len(masks), 2), 10), np.zeros(len(masks), dtype=np.int32)
    return Examined(keys, np.arange(len(masks)), sizes, pixels, peaks, bad)


GOOD = examined([{0: 50, 1: 30, 255: 20}, {0: 20, 1: 10, 2: 70}, {2: 50, 3: 50}, {1: 25, 3: 75}] * 10)
TEST = examined([{0: 90, 1: 5, 2: 5}, {3: 100}], "t")


def diagnosis(train: Examined = GOOD, test: Examined = TEST, mode="overlapped", **more) -> Diagnosis:
    policies = {key: more.pop(key) for key in ("void", "future") if key in more}
    return held_against(make_scenario(CLASSES, "2-1", mode, **policies), train, test, **more)


def held_against(scenario: Scenario, train: Examined, test: Examined, crop: int = 16, **more) -> Diagnosis:
    return diagnose(scenario, train, test, scenario.train_images(train.present), crop, **more)


def texts(found: Diagnosis) -> list[str]:
    return [f"{finding.level}: {finding.text}" for finding in found.findings]


def test_counts_and_shares() -> None:
    first, second = diagnosis().steps
    assert (first.train, first.test, second.train, second.test) == (40, 1, 20, 2)
    assert first.classes == (ClassCount("cat", 30, 1, 0.1625), ClassCount("dog", 20, 1, 0.3))
    assert second.classes == (ClassCount("cow", 20, 1, 0.625),)
    assert first.sources == {"background": 0.175, "old classes": 0, "later classes": 0.3125, "void": 0.05}
    assert sum(count.share for count in second.classes) + sum(second.sources.values()) == pytest.approx(1)


def test_disjoint_counts() -> None:
    assert [step.train for step in diagnosis(mode="disjoint").steps] == [20, 20]


@pytest.mark.parametrize(
    ("mode", "void", "old", "nothing"),
    [
        ("overlapped", "background", "background", "background"),
        ("overlapped", "ignore", "background", "ignored"),
        ("sequential", "background", "their own label", "background"),
    ],
)
def test_what_pixels_become(mode, void, old, nothing) -> None:
    first, second = diagnosis(mode=mode, void=void).steps
    assert first.becomes == {"background": "background", "later classes": "background", "void": nothing}
    assert second.becomes == {"background": "background", "old classes": old, "void": nothing}


def test_good_data_has_no_finding() -> None:
    found = diagnosis()
    assert found.findings == ()
    assert (found.errors, found.images, found.sizes) == (
        0,
        {"train": 40, "test": 2},
        {"train": (10,) * 6, "test": (10,) * 6},
    )


BAD = (BadImage("x", "missing", "x is gone"), BadImage("y", "unreadable", "y is torn"))


def test_bad_files_are_errors_unless_left_out() -> None:
    train = replace(GOOD, bad=(*BAD, BadImage("z", "missing", "z is gone")))
    found = diagnosis(train)
    assert texts(found) == [
        "error: 2 train images that cannot be used: missing",
        "error: 1 train image that cannot be used: unreadable",
    ]
    assert found.findings[0].examples == ("x is gone", "z is gone") and found.errors == 2
    spared = diagnosis(train, left_out=True)
    assert "2 train images left out" in texts(spared)[0] and spared.errors == 0


def test_images_that_train_and_test() -> None:
    found = diagnosis(shared={"b.png", "a.png"})
    assert texts(found) == ["warning: 2 images that both train and test: scores will flatter"]
    assert found.findings[0].examples == ("a.png", "b.png")


def test_why_a_run_would_not_start() -> None:
    found = diagnosis(problems=["too few"])
    assert texts(found) == ["error: too few"] and found.errors == 1


def test_images_of_a_manifest() -> None:
    scenario = make_scenario(CLASSES, "2-1")
    found = diagnose(scenario, GOOD, TEST, (np.array([1]), np.array([2, 3])), 16)
    assert [step.train for step in found.steps] == [1, 2]
    assert found.steps[0].classes[1] == ClassCount("dog", 1, 1, 0.7)


def test_orphans() -> None:
    found = diagnosis(orphans={"b.png", "a.png"})
    assert texts(found) == ["warning: 2 masks of no image of either split"]
    assert found.findings[0].examples == ("a.png", "b.png")


def test_empty_masks() -> None:
    train = examined([{0: 50, 1: 30, 255: 20}, {2: 50, 3: 50}, {0: 100}, {255: 100}] * 10)
    assert "20 train masks without any class" in "\n".join(texts(diagnosis(train)))


def test_rare_and_absent_classes() -> None:
    train = examined([{1: 100}] * 20 + [{2: 100}] * 3)
    found = diagnosis(train, examined([{1: 100}, {2: 1}], "t"))
    assert "in fewer than 10 training images" in "\n".join(texts(found))
    assert found.findings[0].examples == ("dog (3)",)
    assert "1 class of step 1 in no test image" in "\n".join(texts(found))
    both = held_against(make_scenario(CLASSES, "3-1"), train, TEST)
    assert "1 class of step 0 in no training image" in "\n".join(texts(both))


def test_classes_with_few_pixels_and_what_to_set() -> None:
    train = examined([{0: 9930, 3: 70}] * 12 + [{0: 50, 1: 50}, {0: 9999, 1: 5000, 2: 1}] * 12)
    first, second = diagnosis(train, crop=128).findings[:2]
    assert "step 0" in first.text and "train.balance=classes" in first.text
    assert [text.split(":")[0] for text in first.examples] == ["dog"]
    assert "1 class of step 1" in second.text and "train.crop_on=new train.balance=classes" in second.text
    assert second.examples[0].startswith("cow: 0.7% of pixels at crop 128")
    found = diagnosis(train, crop=128, settings=["train.crop_on=new", "train.balance=none"])
    assert first in found.findings and "train.crop_on" not in " ".join(texts(found)), "it is set already"
    found = diagnosis(train, crop=128, settings=["train.crop_on=new", "train.balance=classes"])
    assert "few pixels" not in " ".join(texts(found))


def test_data_without_background_can_close_its_channel() -> None:
    train = examined([{1: 50, 2: 50}, {2: 50, 3: 50}] * 12)
    closing = "warning: no training pixel is background: set eval.background=closed"
    assert closing in texts(diagnosis(train)) and closing not in texts(diagnosis())
    assert closing not in texts(diagnosis(train, settings=["eval.background=closed"]))
    nowhere = make_scenario(replace(CLASSES, background=None), "2-1")
    assert closing in texts(held_against(nowhere, train, TEST))


def test_nothing_is_left() -> None:
    nothing = examined([])
    found = diagnosis(nothing, nothing)
    assert found.sizes == {} and [step.train for step in found.steps] == [0, 0]


def test_small_images() -> None:
    found = held_against(make_scenario(CLASSES, "2-1"), GOOD, TEST, 32)
    assert texts(found) == ["warning: 40 training images smaller than half of train.crop=32"]
    assert found.findings[0].examples[0] == "i0 (10 x 10)"


def test_no_background() -> None:
    classes = ClassTable("bare", {0: "road", 1: "car"}, background=None)
    train = examined([{0: 60, 1: 40}] * 12)
    found = held_against(make_scenario(classes, "1-1"), train, replace(train, keys=("t",) * 12))
    assert found.steps[1].becomes == {"old classes": "background", "void": "background"}
    assert found.steps[1].sources["old classes"] == 0.6


@pytest.mark.parametrize(
    ("peaks", "bits", "text", "hint"),
    [
        ((0, 0), 16, None, ""),
        ((0, 65535), 16, None, ""),
        ((40_000, 0), 16, None, ""),
        ((0, 2224), 16, "1 16-bit image without a value above 2224, which become dark", "data.bits=12"),
        ((2224, 900), 12, None, ""),
        ((2224, 900), 10, "1 16-bit image with values above 1023, which become white", "data.bits=12"),
        ((7, 3), 16, "2 16-bit images without a value above 7, which become dark", "data.bits=9"),
    ],
)
def test_depth_of_images(peaks, bits, text, hint) -> None:
    test = replace(TEST, peaks=np.array(peaks))
    found = diagnosis(test=test, bits=bits)
    assert texts(found) == ([] if text is None else [f"warning: {text}"])
    assert text is None or hint in found.findings[0].examples[0]
