"""Models outside their runs on an accelerator that is none: predict, extend, export, foreign networks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerator import Accelerator, device
from foreign_networks import CLASSES, MEAN, STD, network, pictures
from pets import QUIET, TINY, only

import segue
from segue.deploy.export.formats import encode

DEVICE = device()
"""asked for when tests are collected: see there"""
WHERE = str(DEVICE)


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    with Accelerator() as made:
        yield made


def picture() -> np.ndarray:
    return pictures(40, 48, 1)[0].permute(1, 2, 0).numpy()


def places(model: segue.Model) -> set[torch.device]:
    return {value.device for value in model.network.state_dict().values()}


@pytest.fixture
def traced_outside(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are made of copies on the CPU; of a tensor that was left on the device none can be made."""

    def outside(*given: Any) -> Any:
        with accelerator.off():
            return encode(*given)

    monkeypatch.setattr("segue.deploy.export.write.encode", outside)


@pytest.mark.usefixtures("traced_outside")
def test_a_model_predicts_grows_and_is_exported(model: Path, tmp_path: Path) -> None:
    plain, there = segue.load(model, device="cpu"), segue.load(model, device=WHERE)
    assert places(there) == {DEVICE}
    assert np.array_equal(there.predict(picture()).ids, plain.predict(picture()).ids)
    data, words = only(tmp_path / "bird", "b", "bird"), ["train.epochs=1"]
    grown = segue.extend(model, data, tmp_path / "grown", overrides=words, display=QUIET, device=WHERE)
    assert places(grown) == {DEVICE} and grown.classes[-1] == "bird"
    again = segue.load(tmp_path / "grown", device="cpu")
    assert np.array_equal(again.predict(picture()).ids, grown.predict(picture()).ids)
    report = grown.export(tmp_path / "grown.pt")
    assert report is not None and report.difference.changed == 0 and places(grown) == {DEVICE}


@pytest.mark.usefixtures("accelerator")
@pytest.mark.parametrize("method", ["caf", "mib"])
def test_a_network_from_elsewhere_grows(method: str, tmp_path: Path) -> None:
    adopted = segue.adopt(network("own U-Net"), CLASSES, MEAN, STD)
    data = only(tmp_path / "bird", "b", "bird")
    words = [*(word for word in TINY if word.startswith("train")), "train.epochs=1", "eval.samples=0"]
    given = {"overrides": words, "display": QUIET, "device": WHERE, "method": method}
    grown = segue.extend(adopted, data, tmp_path / "grown", **given)
    assert places(grown) == {DEVICE} and grown.classes == (*adopted.classes, "bird")
    assert grown.predict(picture()).ids.shape == (40, 48)
