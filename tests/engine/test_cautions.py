"""Remarks before training: incomplete data, batch norm on micro-batches."""

import pytest

from segue.engine.cautions import cautions
from segue.engine.recipe import resolve


@pytest.mark.parametrize(("images", "said"), [(1464, True), (10582, False), (10500, False)])
def test_voc_without_the_masks_of_sbd(images: int, said: bool) -> None:
    found = cautions(resolve("mib", "voc", "15-5"), images, 10582)
    assert any("SBD" in text and "1,464" in text for text in found) == said


@pytest.mark.parametrize(("norm", "accumulate", "said"), [("batch", 4, 1), ("frozen", 4, 0), ("batch", 1, 0)])
def test_accumulation_with_batch_statistics(norm: str, accumulate: int, said: int) -> None:
    words = [f"train.norm={norm}", f"train.accumulate={accumulate}"]
    assert len(cautions(resolve("mib", "scenes", "5-2", overrides=words), 800, None)) == said
