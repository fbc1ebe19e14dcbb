"""Crops on new classes: in incremental steps alone, and from the seed like all others."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_runs import assert_equal_runs, quiet_run, recipe, run_until

from segue.core.progress import Display
from segue.data.batches import Batch
from segue.engine.data import build_data

CPU = torch.device("cpu")
SMALL_CROPS = ("train.scale=[0.05,0.1]", "train.workers=0")


def batches(step: int, *words: str) -> list[Batch]:
    data = build_data(recipe("finetune", *SMALL_CROPS, *words), Display())
    return list(data.train_batches(step, CPU))


def shown(found: list[Batch], channel: int) -> float:
    """Share of the crops that show a channel."""
    return torch.cat([(batch.labels == channel).flatten(1).any(1) for batch in found]).float().mean().item()


def test_new_classes_are_in_more_crops_of_incremental_steps() -> None:
    plain, half, all_of_them = (
        shown(batches(1, *words), 3)
        for words in ((), ("train.crop_on=new",), ("train.crop_on=new", "train.crop_on_share=1"))
    )
    assert plain < half < all_of_them == 1


def test_first_step_is_cropped_as_ever() -> None:
    pairs = zip(batches(0), batches(0, "train.crop_on=new"), strict=True)
    assert all(torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) for a, b in pairs)


def test_stopped_run_goes_on_with_the_same_crops(tmp_path: Path) -> None:
    config = recipe("finetune", *SMALL_CROPS, "train.crop_on=new", "train.epochs=1", "train.epochs_next=2")
    quiet_run(config, tmp_path / "whole")
    run_until(config, tmp_path / "stopped", 5)
    quiet_run(config, tmp_path / "stopped", resume=True)
    assert_equal_runs(tmp_path / "whole", tmp_path / "stopped")
