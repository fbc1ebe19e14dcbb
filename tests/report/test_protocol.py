"""The protocol in words: what holds for most, who differs in what, and who begins with the same model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from segue.core.config import (
    EvalConfig,
    MethodConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScenarioConfig,
    TrainConfig,
)
from segue.report.comparison import Entry
from segue.report.protocol import protocol_text

BASE = RunConfig(
    ScenarioConfig("voc", "15-1"),
    MethodConfig("any"),
    model=ModelConfig("mobilenet", "lite", 8, stages=4, weights="/some/where/net.pth", frozen_stages=3),
    optim=OptimConfig(lr_first=0.005, lr_next=0.0025, head_factor=5.0),
    train=TrainConfig(epochs=6, epochs_next=4, batch_size=8, crop=128, scale=(0.5, 1.0)),
)


def recipes(**others: RunConfig) -> dict[str, RunConfig]:
    """Others last, so that the first is never the odd one."""
    return {"finetune": BASE, "mib": replace(BASE, method=MethodConfig("mib", {"kd_weight": 3})), **others}


def test_what_all_have_in_common():
    assert protocol_text(recipes(), {}) == (
        "One protocol: backbone mobilenet and head lite (output stride 8, 4 stages, the first 3 never"
        " trained, from net.pth), crops of 128 pixels (0.5 to 1 of the area), batches of 8, 6 epochs in"
        " step 0 and 4 in each later step, SGD with a learning rate of 0.005 in step 0 and 0.0025 later"
        " (5 times that for the head), gradients clipped at a norm of 5, batch norm with running statistics"
        " after step 0, fp32. Methods differ in their own parameters alone."
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": ModelConfig("r", pretrained=True)}, "from the weights of timm"),
        ({"model": ModelConfig("r")}, "from random weights"),
        ({"optim": OptimConfig(clip=None)}, "no clipping of gradients"),
        ({"optim": OptimConfig(layer_factor=2.0)}, "(2 times that for layers that a method adds)"),
        ({"optim": OptimConfig(new_factor=20.0)}, "(20 times that for new classifiers after step 0)"),
        (
            {"optim": OptimConfig(head_factor=5.0, new_factor=1.0)},
            "head, 1 times that for new",
        ),
        ({"train": TrainConfig(norm="batch")}, "batch norm with the statistics of the batch in every step"),
        ({"train": TrainConfig(epochs=9)}, "9 epochs in step 0 and 9 in each later step"),
        ({"eval": EvalConfig(thin=2)}, "Tested on one of every 2 test images."),
        (
            {"scenario": ScenarioConfig("voc", "15-1", hold_out=0.2)},
            "Tested on 20 % of the training images, which no step trains on.",
        ),
        (
            {"scenario": ScenarioConfig("voc", "15-1", hold_out=0.2), "eval": EvalConfig(thin=3)},
            "which no step trains on. Tested on one of every 3 of these images.",
        ),
    ],
)
def test_what_is_said_of_other_recipes(change, sentence):
    plain = protocol_text(recipes(), {})
    assert sentence not in plain and sentence in protocol_text({"mib": replace(BASE, **change)}, {})


def test_methods_that_differ_are_named_with_what_they_have():
    faster = replace(BASE, optim=replace(BASE.optim, lr_next=0.05))
    moved = replace(BASE, model=replace(BASE.model, weights="/else/where/other.pth"))
    text = protocol_text(recipes(dft=faster, ssul=faster, caf=moved), {})
    assert text.endswith(
        " Besides their own parameters, some differ: dft, ssul: optim.lr_next 0.05 instead of 0.0025;"
        " caf: model.weights other.pth instead of net.pth."
    )
    assert "/else" not in text and "0.0025 later" in text, "the protocol is what most have"
    first = protocol_text({"odd": faster, **recipes()}, {})
    assert "0.0025 later" in first and "odd: optim.lr_next 0.05 instead of 0.0025." in first


def test_settings_without_numbers_are_no_difference():
    other = replace(BASE.train, seed=7, workers=9, save_seconds=1.0, log_every=3, checkpointing=True)
    quiet = replace(BASE, train=other, eval=EvalConfig(samples=0, every=2))
    assert protocol_text(recipes(caf=quiet), {}) == protocol_text(recipes(), {})


def test_the_same_first_step_is_seen_in_the_records(make_run):
    def entry(method: str, runs: dict[int, int]) -> Entry:
        """Runs with these seeds, with so many hits after step 0."""
        made = [
            make_run(
                method, seed=seed, groups=(("a",), ("b",)), matrices=[[[50, 0], [50 - hits, hits]], LAST]
            )
            for seed, hits in runs.items()
        ]
        return Entry(method, method, tuple(made))

    same = {name: entry(name, {0: 40, 1: 30}) for name in ("finetune", "mib")}
    own = {"caf": entry("caf", {0: 40, 1: 31}), "joint": Entry("joint", "joint", (make_run("joint"),))}
    text = protocol_text(recipes(), {**same, **own})
    assert "Step 0 of a seed is the same model for finetune, mib." in text
    assert "A step 0 of their own: caf." in text and "joint" not in text
    assert "of their own: " not in protocol_text(recipes(), same)
    assert "Every method has a step 0 of its own." in protocol_text(
        recipes(), {"mib": same["mib"], "caf": own["caf"]}
    )
    assert "tep 0 of" not in protocol_text(recipes(), {"joint": own["joint"]})


LAST = [[50, 0, 0], [10, 40, 0], [0, 0, 30]]
