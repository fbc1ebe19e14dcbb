"""What the missing runs of an experiment will cost, from the planner's figures, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.amounts import time_text
from segue.core.config import RunConfig
from segue.core.costs import read_costs
from segue.core.scenario import Scenario
from segue.core.splits import canonical_split
from segue.engine.build import build_scenario
from segue.engine.start import first_step
from segue.plan.gpus import UTILISATION, find_gpu
from segue.studies.first_steps import shared_first_steps
from segue.studies.scale import Scale

GPU = "a100"
"""the GPU that hours are given for"""


def price(missing: Mapping[Path, RunConfig], scale: Scale) -> str:
    """Hours in words; a step 0 that several runs share is counted once."""
    if not missing:
        return "-"
    if scale.flops is None:
        return f"{time_text(60 * len(missing) * scale.minutes)} of a core"
    speed, _ = find_gpu(GPU).peak("fp32")
    flops = sum(image_passes(missing).values()) * scale.flops
    return f"{time_text(flops / (UTILISATION * speed))} of an {GPU.upper()}"


def image_passes(missing: Mapping[Path, RunConfig]) -> dict[Path, float]:
    """Images times epochs of each run, weighted by what its method costs beside fine-tuning."""
    costs, passes = read_costs().methods, dict[Path, float]()
    first_steps = {place: first_step(recipe, _published_start(recipe)) for place, recipe in missing.items()}
    starts = shared_first_steps(first_steps, {}, lambda donor: True)
    for place, recipe in missing.items():
        images = _images(recipe)
        ratio = costs[recipe.method.name].time if recipe.method.name in costs else 1.0
        passes[place] = 0.0 if starts[place] else images[0] * recipe.train.epochs_of(0)
        passes[place] += ratio * sum(
            count * recipe.train.epochs_of(step.index)
            for step, count in zip(_steps(recipe), images, strict=True)
            if not step.first and plugins.find("method", recipe.method.name).trains(step)
        )
    return passes


def _steps(recipe: RunConfig) -> Scenario:
    return build_scenario(recipe, plugins.find("dataset", recipe.scenario.dataset))[0]


def _images(recipe: RunConfig) -> tuple[int, ...]:
    """Training images of each step by the published lists; Joint has all in one."""
    kind, wanted = plugins.find("dataset", recipe.scenario.dataset), recipe.scenario
    if plugins.declared(recipe.method.name).offline:
        return (kind.published,)
    order = f" {wanted.order}" if wanted.order not in (None, "a") else ""
    return kind.published_steps[f"{canonical_split(str(wanted.split))} {wanted.mode}{order}"]


def _published_start(recipe: RunConfig) -> dict[str, Any]:
    """What of a manifest decides step 0, without the images: its classes and how many images there are."""
    scenario, images = recipe.scenario, _images(recipe)[0]
    offline = plugins.declared(recipe.method.name).offline
    classes = "all" if offline else canonical_split(str(scenario.split)).split("-")[0]
    order = scenario.order or "a"
    return {"steps": [{"new": [classes, order], "train": [scenario.mode], "images": images}]}
