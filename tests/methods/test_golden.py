"""Golden losses: five iterations of step 0 and of step 1, stored. Other numbers mean other results.

SEGUE_WRITE_GOLDEN=1 pytest tests/methods/test_golden.py writes them anew; that needs a line under "Numbers"
in the CHANGELOG. Every setting that matters is named here, so that another default changes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from segue.core import plugins
from segue.core.progress import Display
from segue.engine.recipe import resolve
from segue.engine.run import run

pytestmark = pytest.mark.precision("float32")

GOLDEN = Path(__file__).parent / "golden"
CAF = [
    *("variant=segue", "kd_weight=10.0", "kd_norm=channels", "balanced=false", "gamma=ratio"),
    *("gamma_max=1.0", "ad_weight=1.0", "layer_since=0", "old_features=raw", "modality_dropout=0.5"),
    *("layer.projection=true", "layer.fusion=true", "layer.attention=true", "layer.carrier=v"),
    *("layer.residual=true", "layer.scaled=true", "layer.output=conv", "layer.bottleneck=2"),
    *("layer.pool=before", "layer.start=new", "layer.channel=excitation", "layer.spatial=contrast"),
    *("ad.maps=z+h", "ad.channel=true", "ad.spatial=true", "ad.form=product", "ad.detach=true"),
    *("ad.norm=teacher", "ad.target=fused", "ad.excitation=frozen"),
    *("rehearsal.weight=0.0", "rehearsal.store=features", "labels=unbiased", "rehearsal.per_class=8"),
    *("rehearsal.background=16", "kd_target=unbiased"),
]
CAF_1000 = [*CAF, "ad_weight=1000.0", "modality_dropout=0.0"]
STAR = [
    *("feature_weight=5.0", "apart_weight=0.05", "positive_weight=4.0", "sure_logit=0.0", "length=feature"),
    "margin_weight=0.1",
]
MEMORY = ["memory.size=20", "memory.share=0.5"]
PARAMS: dict[str, list[str]] = {
    "finetune": [],
    "joint": [],
    "mib": ["kd_weight=10.0", "memory.size=0", "memory.share=0.5"],
    "mib-memory": ["kd_weight=10.0", *MEMORY],
    "lwf": ["kd_weight=100.0"],
    "lwf_mc": ["kd_weight=10.0"],
    "ilt": ["kd_weight=100.0", "feature_weight=100.0"],
    "ewc": ["weight=5.0", "alpha=0.9"],
    "pi": ["weight=5.0"],
    "rw": ["weight=5.0", "alpha=0.9", "every=2"],
    "sdr": ["kd_weight=100.0", "matching=0.01", "attraction=0.001", "repulsion=0.001", "sparsity=0.001"],
    "plop": ["pod_factor=0.01", "pod_logits_factor=0.0005", "median=fixed"],
    "incseg": ["confidence=0.7", "balance=0.5", *MEMORY],
    "dft": MEMORY,
    "ssul": ["confidence=0.7", "saliency=null", *MEMORY],
    "star": [*STAR, "adapt=false", "mixture=false"],
    "star-mixture": [*STAR, "adapt=true", "mixture=true"],
    "rcil": ["branches=twins", "kd_weight=10.0", "cube_factor=0.01", "cube_last_factor=0.0005"],
    "acil": ["width=64", "ridge=1.0", "confidence=0.7"],
    "mbs": ["confidence=0.7", "feature_weight=1.0", "kd_weight=25.0", "apart_weight=1.0"],
    "dkd": [
        *("kd_weight=5.0", "reasons_weight=5.0", "auxiliary_weight=1.0", "positive_first=2.0"),
        "positive_next=1.0",
    ],
    "caf": CAF,
    "caf-rehearsal": [*CAF, "rehearsal.weight=1.0"],
    "caf-growth": [*CAF, "kd_weight=1.0", "kd_norm=growth", "layer_since=1"],
    "caf-paper": [
        *(*CAF_1000, "variant=paper", "balanced=true", "gamma=literal", "gamma_max=null"),
        *("layer.output=none", "layer.pool=none", "layer.channel=linear", "layer.spatial=linear"),
        *("ad.form=printed", "ad.detach=false", "ad.norm=map", "ad.target=raw", "ad.excitation=trained"),
    ],
    "caf-official": [
        *(*CAF_1000, "variant=official", "balanced=true", "gamma=logit", "gamma_max=null", "ad.norm=map"),
        *("old_features=fused", "layer.carrier=z", "layer.residual=false", "layer.scaled=false"),
        *("layer.output=norm", "layer.pool=after", "layer.start=random", "layer.spatial=energy"),
    ],
    "caf-official_head": [
        *(*CAF_1000, "variant=official_head", "modality_dropout=0.5", "layer.projection=false"),
        *("layer.fusion=false", "layer.attention=false"),
        *("ad.channel=false", "ad.spatial=false", "ad.norm=mean"),
    ],
}
"""method, or method-variant -> all its settings; of two words for one the later wins"""
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
DOUBLE = {"star", "star-mixture"}
"""cases in double precision: after ten iterations the directions of classes are nearly one, and 1 / their
distance is mostly rounding"""


def losses(case: str, folder: Path) -> dict[str, list[dict[str, float]]]:
    """step -> the loss terms of its first five iterations"""
    params = [f"method.params.{word}" for word in PARAMS[case]]
    config = resolve(case.split("-")[0], "scenes", "2-1", overrides=[*SETTINGS, *params])
    named = {word.split("=")[0] for word in PARAMS[case]}
    assert named == set(keys(asdict(config.method.params))), "every parameter of the method is named above"
    run(config, folder, device="cpu", display=Display(quiet=True))
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    steps = sorted({line["step"] for line in lines})
    return {str(k): [line["losses"] for line in lines if line["step"] == k][:ITERATIONS] for k in steps}


def keys(params: Mapping[str, Any], where: str = "") -> Iterator[str]:
    for key, value in params.items():
        if isinstance(value, Mapping):
            yield from keys(value, f"{where}{key}.")
        else:
            yield where + key


def test_every_method_and_variant_has_golden_losses():
    expected = {*plugins.names("method"), "caf-rehearsal", "caf-growth", "mib-memory", "star-mixture"}
    for method in plugins.names("method"):
        others = [
            name for name in plugins.find("method", method).variants if PARAMS[method][0] != f"variant={name}"
        ]
        expected |= {f"{method}-{name}" for name in others}
    assert set(PARAMS) == expected
    assert {path.stem for path in GOLDEN.glob("*.json")} == expected


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.precision("float64")] * (case in DOUBLE)) for case in PARAMS],
)
def test_golden_losses(case, tmp_path):
    now = losses(case, tmp_path / "run")
    path = GOLDEN / f"{case}.json"
    if os.environ.get("SEGUE_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(now, indent=1) + "\n")
    stored = json.loads(path.read_text())
    assert list(now) == list(stored) == (["0"] if case in ("joint", "acil") else ["0", "1"])
    for step, iterations in stored.items():
        assert len(iterations) == len(now[step]) == ITERATIONS
        for number, (ours, theirs) in enumerate(zip(now[step], iterations, strict=True), start=1):
            # Processors round differently. The first loss shows that as it is; later ones also where it
            # moved an activation over a ReLU's kink. Seen at most: a twelfth (make test-portable).
            rel, least = (1e-5, 1e-8) if (step, number) == ("0", 1) else (1e-3, 1e-5)
            assert ours == pytest.approx(theirs, rel=rel, abs=least), f"step {step}, iteration {number}"
