"""What missing runs will cost: images times epochs, a shared step 0 once, and no step that is not trained."""

from pathlib import Path

from segue.engine.recipe import resolve
from segue.studies.price import image_passes

VOC = (9568, 2145)
"""published training images of the two steps of 15-5"""


def passes(*methods: str) -> dict[str, float]:
    recipes = {Path("runs") / name: resolve(name, "voc", "15-5") for name in methods}
    return {place.name: found for place, found in image_passes(recipes).items()}


def test_a_shared_step_0_counts_once() -> None:
    train = resolve("finetune", "voc", "15-5").train
    found = passes("finetune", "acil")
    assert found["finetune"] == VOC[0] * train.epochs_of(0) + VOC[1] * train.epochs_of(1)
    assert found["acil"] == 0, "its later step has no iterations"


def test_only_steps_that_are_trained_count() -> None:
    assert passes("acil")["acil"] == VOC[0] * resolve("acil", "voc", "15-5").train.epochs_of(0)
