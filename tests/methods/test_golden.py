"""Golden losses: five iterations of step 0 and of step 1, stored. Other numbers mean other results.

SEGUE_WRITE_GOLDEN=1 pytest tests/methods/test_golden.py writes them anew; that needs a line under "Numbers"
in the CHANGELOG. Every setting that matters is named here, so that another default changes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from segue.core import plugins
from segue.engine.progress import Display
from segue.engine.recipe import resolve
from segue.engine.run import run

GOLDEN = Path(__file__).parent / "golden"
PARAMS: dict[str, list[str]] = {
    "finetune": [],
    "joint": [],
    "mib": ["kd_weight=10.0"],
    "caf": ["kd_weight=10.0", "ad_weight=1.0", "gamma=logit", "gamma_max=1.0", "modality_dropout=0.5"],
}
SETTINGS = [
    *("scenario.mode=overlapped", "scenario.void=background", "scenario.future=ignore"),
    *("data.classes=3", "data.size=32", "data.train=80", "data.test=4", "data.seed=0", "data.max_objects=3"),
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "model.frozen_stages=0"),
    *("optim.lr_first=0.05", "optim.lr_next=0.02", "optim.momentum=0.9", "optim.weight_decay=1.0e-4"),
    *("optim.nesterov=true", "optim.poly_power=0.9", "optim.head_factor=1", "optim.layer_factor=1"),
    *("optim.clip=5", "train.epochs=1", "train.epochs_next=2", "train.batch_size=8", "train.accumulate=1"),
    *("train.crop=32", "train.scale=[0.6, 1.0]", "train.norm=frozen", "train.precision=fp32"),
    *("train.channels_last=true", "train.workers=0", "train.seed=7", "train.log_every=1", "eval.samples=0"),
]
ITERATIONS = 5


def losses(method: str, folder: Path) -> dict[str, list[dict[str, float]]]:
    """step -> the loss terms of its first five iterations"""
    params = [f"method.params.{word}" for word in PARAMS[method]]
    config = resolve(method, "scenes", "2-1", overrides=[*SETTINGS, *params])
    named = {word.split("=")[0] for word in PARAMS[method]}
    assert named == set(config.method.params), "every parameter of the method is named above"
    run(config, folder, device="cpu", display=Display(quiet=True))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    steps = sorted({line["step"] for line in lines})
    return {str(k): [line["losses"] for line in lines if line["step"] == k][:ITERATIONS] for k in steps}


def test_every_method_has_golden_losses():
    assert set(PARAMS) == set(plugins.names("method"))
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(PARAMS)


@pytest.mark.parametrize("method", PARAMS)
def test_golden_losses(method, tmp_path):
    now = losses(method, tmp_path / "run")
    path = GOLDEN / f"{method}.json"
    if os.environ.get("SEGUE_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(now, indent=1) + "\n")
    stored = json.loads(path.read_text())
    assert list(now) == list(stored) == (["0"] if method == "joint" else ["0", "1"])
    for step, iterations in stored.items():
        assert len(iterations) == len(now[step]) == ITERATIONS
        for number, (ours, theirs) in enumerate(zip(now[step], iterations, strict=True), start=1):
            # another CPU rounds differently: five iterations let that grow a little
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6), f"step {step}, iteration {number}"
