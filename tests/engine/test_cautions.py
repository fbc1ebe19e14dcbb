"""Remarks before training: incomplete data, batch norm on micro-batches, emulated bf16."""

import pytest
import torch

from segue.engine.cautions import cautions, emulates_bf16
from segue.engine.recipe import resolve


@pytest.mark.parametrize(("images", "said"), [(1464, True), (10582, False), (10500, False)])
def test_voc_without_the_masks_of_sbd(images: int, said: bool) -> None:
    found = cautions(resolve("mib", "voc", "15-5"), images, 10582)
    assert any("SBD" in text and "1,464" in text for text in found) == said


@pytest.mark.parametrize(("norm", "accumulate", "said"), [("batch", 4, 1), ("frozen", 4, 0), ("batch", 1, 0)])
def test_accumulation_with_batch_statistics(norm: str, accumulate: int, said: int) -> None:
    words = [f"train.norm={norm}", f"train.accumulate={accumulate}"]
    assert len(cautions(resolve("mib", "scenes", "5-2", overrides=words), 800, None)) == said


@pytest.mark.parametrize(
    ("precision", "slow", "said"), [("bf16", True, 1), ("bf16", False, 0), ("fp32", True, 0)]
)
def test_emulated_bf16(precision: str, slow: bool, said: int) -> None:
    config = resolve("mib", "scenes", "5-2", overrides=[f"train.precision={precision}"])
    assert len(cautions(config, 800, None, slow)) == said


def test_bf16_is_emulated_by_processors_that_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"avx2": True, "avx512_bf16": False, "amx_tile": False}.items():
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda value=value: value)
    assert emulates_bf16(torch.device("cpu")) and not emulates_bf16(torch.device("cuda"))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert not emulates_bf16(torch.device("cpu"))
