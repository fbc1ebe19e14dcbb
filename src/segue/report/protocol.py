"""The protocol of a comparison in words: what the methods have in common, and what some have of their own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.core.config import RunConfig, as_dict
from segue.report.comparison import NEUTRAL, Entry

SECTIONS = ("model", "optim", "train", "eval")
"""those that methods could differ in; data and scenario are the same for all in a table"""
NO_NUMBERS = frozenset(
    {*(f"train.{key}" for key in NEUTRAL), "train.checkpointing", "eval.samples", "eval.every"}
)
"""settings that do not alter the numbers"""
FACTORS = {
    "head_factor": "the head",
    "new_factor": "new classifiers after step 0",
    "layer_factor": "layers that a method adds",
}
"""of learning rates"""


def protocol_text(recipes: Mapping[str, RunConfig], entries: Mapping[str, Entry]) -> str:
    """Sentences for the head of a page: one recipe by method, and the runs of the methods that are done."""
    values = {method: _flat(recipe) for method, recipe in recipes.items()}
    keys = dict.fromkeys(key for flat in values.values() for key in flat)
    common = {key: _most_common([flat.get(key) for flat in values.values()]) for key in keys}
    scenario = next(iter(recipes.values())).scenario
    sentences = [_training(common), *_testing(common, scenario.hold_out)]
    if shared := _first_steps(entries):
        sentences.append(shared)
    return " ".join([*sentences, _own(values, common)])


def _flat(recipe: RunConfig) -> dict[str, Any]:
    """Settings by their dotted key, without those that do not alter the numbers."""
    sections = {name: section for name, section in as_dict(recipe).items() if name in SECTIONS}
    flat = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    flat["train.epochs_next"] = recipe.train.epochs_of(1)
    return {key: value for key, value in flat.items() if key not in NO_NUMBERS}


def _most_common(values: Sequence[Any]) -> Any:
    """The first of the values that most methods have."""
    texts = [json.dumps(value) for value in values]
    return values[texts.index(Counter(texts).most_common(1)[0][0])]


def _training(common: Mapping[str, Any]) -> str:
    clip, (small, large) = common["optim.clip"], common["train.scale"]
    parts = [
        _network(common),
        f"crops of {common['train.crop']} pixels ({small:g} to {large:g} of the area)",
        f"batches of {common['train.batch_size']}",
        f"{common['train.epochs']} epochs in step 0 and {common['train.epochs_next']} in each later step",
        _rates(common),
        f"gradients clipped at a norm of {clip:g}" if clip is not None else "no clipping of gradients",
        "batch norm with running statistics after step 0"
        if common["train.norm"] == "frozen"
        else "batch norm with the statistics of the batch in every step",
        common["train.precision"],
    ]
    return f"One protocol: {', '.join(parts)}."


def _network(common: Mapping[str, Any]) -> str:
    details = [f"output stride {common['model.output_stride']}"]
    if common["model.stages"] is not None:
        details.append(f"{common['model.stages']} stages")
    if common["model.frozen_stages"]:
        details.append(f"the first {common['model.frozen_stages']} never trained")
    if common["model.weights"] is not None:
        details.append(f"from {Path(common['model.weights']).name}")
    else:
        details.append("from the weights of timm" if common["model.pretrained"] else "from random weights")
    return f"backbone {common['model.backbone']} and head {common['model.head']} ({', '.join(details)})"


def _rates(common: Mapping[str, Any]) -> str:
    first, later = common["optim.lr_first"], common["optim.lr_next"]
    unsaid = {"new_factor": (None, common["optim.head_factor"])}  # new classifiers are a part of the head
    factors = [
        f"{factor:g} times that for {what}"
        for key, what in FACTORS.items()
        if (factor := common[f"optim.{key}"]) not in unsaid.get(key, (1,))
    ]
    text = f"SGD with a learning rate of {first:g} in step 0 and {later:g} later"
    return f"{text} ({', '.join(factors)})" if factors else text


def _testing(common: Mapping[str, Any], hold_out: float) -> list[str]:
    sentences = []
    if hold_out:
        sentences.append(f"Tested on {100 * hold_out:g} % of the training images, which no step trains on.")
    if common["eval.thin"] > 1:
        which = "of these images" if hold_out else "test images"
        sentences.append(f"Tested on one of every {common['eval.thin']} {which}.")
    return sentences


def _first_steps(entries: Mapping[str, Entry]) -> str | None:
    """Which methods begin with the same model, by the records: the same answers on every test pixel."""
    starts: dict[tuple[Any, ...], list[str]] = {}
    for name, entry in entries.items():
        if not entry.offline:
            start = tuple((run.steps[0].seed, run.steps[0].confusion) for run in entry.runs)
            starts.setdefault(start, []).append(name)
    if not starts:
        return None
    largest = max(starts.values(), key=len)
    own = [name for names in starts.values() if names is not largest for name in names]
    if len(largest) == 1:
        return "Every method has a step 0 of its own." if own else None
    text = f"Step 0 of a seed is the same model for {', '.join(largest)}."
    return text + (f" A step 0 of their own: {', '.join(own)}." if own else "")


def _own(values: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> str:
    """What some methods have instead, besides their own parameters."""
    methods: dict[str, list[str]] = {}
    for method, flat in values.items():
        if others := [key for key in common if json.dumps(flat.get(key)) != json.dumps(common[key])]:
            told = (f"{key} {_shown(flat.get(key))} instead of {_shown(common[key])}" for key in others)
            methods.setdefault(", ".join(told), []).append(method)
    if not methods:
        return "Methods differ in their own parameters alone."
    lines = (f"{', '.join(names)}: {told}" for told, names in methods.items())
    return f"Besides their own parameters, some differ: {'; '.join(lines)}."


def _shown(value: Any) -> str:
    """A value as it stands in a recipe; of a path the name alone."""
    return Path(value).name if isinstance(value, str) else json.dumps(value)
