"""`segue plan`: how many images and iterations each step has, and what they need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from segue.core import plugins
from segue.core.config import ModelConfig, RunConfig
from segue.core.declaration import replay_memory
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.progress import Display
from segue.core.scenario import Scenario, Step
from segue.core.splits import canonical_split
from segue.data.batches import MixedOrder, ShuffledOrder
from segue.data.datasets.base import SegDataset
from segue.engine.build import build_scenario, index_classes, open_set
from segue.engine.checkpoint import KEPT
from segue.engine.images import step_images, step_problems
from segue.engine.processes import Group
from segue.plan.footprint import footprint, step_session
from segue.plan.needs import Footprint, Plan, StepPlan

NUMBER_BYTES = 12
"""bytes of one number of a confusion matrix in a record: digits, comma, line break and indent"""
LOG_BYTES, KEY_BYTES = 250, 24
"""a line of the log; an image's name in the manifest"""


@dataclass(frozen=True)
class Counts:
    """How many images train each step, and where the numbers come from."""

    scenario: Scenario
    images: tuple[int, ...]
    source: str


def make_plan(config: RunConfig, processes: int, images: int | None, display: Display) -> Plan:
    """Count images, measure the first and the last step on the CPU, and put it together."""
    counts = count_images(config, images, display)
    scenario, group = counts.scenario, Group(torch.device("cuda"), size=processes)
    if problems := step_problems(config, scenario, [(number, 1) for number in counts.images], group):
        raise UserError(problems[0])
    train, indices = config.train, sorted({0, len(scenario) - 1})
    found: list[Footprint] = []
    with display.bar("measuring steps", len(indices)) as bar:
        for index in indices:
            session = step_session(config, scenario, index, torch.device("cpu"))
            model_bytes = sum(tensor.nbytes for tensor in session.method.deployed().state_dict().values())
            found.append(footprint(session, config, scenario[index]))
            bar.update(len(found))
    steps = tuple(
        _step(config, step, number, session.method.trains(step), found[0 if step.first else -1])
        for step, number in zip(scenario, counts.images, strict=True)
    )
    finished = found[-1].weights + found[-1].kept
    return Plan(
        title=_title(config),
        network=_network(config.model),
        images_from=counts.source,
        precision=train.precision,
        crop=train.crop,
        accumulate=train.accumulate,
        checkpointing=train.checkpointing,
        processes=processes,
        steps=steps,
        finished_bytes=finished,
        inside_bytes=finished + found[-1].momentum,
        kept_checkpoints=KEPT,
        records_bytes=_records_bytes(config, steps),
        model_bytes=model_bytes,
    )


def _network(model: ModelConfig) -> str:
    if model.network is not None:
        return model.backbone
    return f"{model.backbone}, {model.head} head, stride {model.output_stride}"


def _title(config: RunConfig) -> str:
    scenario = config.scenario
    split = scenario.split if isinstance(scenario.split, str) else f"in {len(scenario.split)} steps"
    return f"{Path(config.method.name).stem} on {Path(scenario.dataset).stem} {split}, {scenario.mode}"


def _step(config: RunConfig, step: Step, images: int, trains: bool, measured: Footprint) -> StepPlan:
    train, replay = config.train, replay_memory(config.method.params)
    size, epochs = train.batch_size, train.epochs_of(step.index)
    if replay is None or step.first:
        order: MixedOrder | ShuffledOrder = ShuffledOrder(images, size, epochs, ())
        size = min(size, images)
    else:
        order = MixedOrder(images, replay.size, size, replay.share, epochs, ())
    return StepPlan(step.index, step.num_channels, images, len(order) if trains else 0, size, measured)


def _records_bytes(config: RunConfig, steps: Iterable[StepPlan]) -> int:
    """Records, manifest and log; pictures of samples are not in it."""
    return sum(
        step.channels**2 * NUMBER_BYTES
        + step.images * KEY_BYTES
        + step.iterations // config.train.log_every * LOG_BYTES
        for step in steps
    )


def count_images(config: RunConfig, images: int | None, display: Display) -> Counts:
    """By the engine's own rule where the data is at hand; else as many as were published, or `images`."""
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    options, name = config.data, config.scenario.dataset
    root = getattr(options, "root", None)
    here = not hasattr(options, "root") or (root is not None and user_path(root).exists())
    if here:
        dataset = open_set(config, "train")
        scenario, listed = build_scenario(config, dataset)
        if images is None:
            present = index_classes(dataset, "train", display)
            found = step_images(scenario, listed, dataset.keys, present, config.scenario.hold_out)
            return Counts(scenario, tuple(map(len, found)), f"counted in the data ({len(dataset):,} images)")
    else:
        if not hasattr(kind, "classes"):  # they are the user's own
            kind(options, "train")  # says which folder is missing
        scenario, listed = build_scenario(config, kind)
        if images is None and listed is not None:
            return Counts(scenario, tuple(map(len, listed)), "as the manifest lists them")
    if images is None and (known := published_images(config, kind, scenario)) is not None:
        return Counts(scenario, known, f"{name} as published, not found here; those of this split")
    number, source = (images, "as --images says") if images is not None else (kind.published, "")
    if number is None:
        raise UserError(f"How many images has {name}? Add data.root=FOLDER, or --images N.")
    source = source or f"{name} as published, not found here"
    shares = [len(step.new) / sum(len(each.new) for each in scenario) for step in scenario]
    divided = tuple(round(number * share) for share in shares)
    return Counts(scenario, divided, f"{number:,} {source}; divided among the steps by their new classes")


def published_images(config: RunConfig, kind: type[SegDataset], scenario: Scenario) -> tuple[int, ...] | None:
    """Training images of each step of a split whose lists were published; None: it is another split."""
    wanted = config.scenario
    if wanted.hold_out or not isinstance(wanted.split, str):
        return None
    if scenario.offline and wanted.order in (None, *kind.orders):
        return None if kind.published is None else (kind.published,)
    if wanted.order not in (None, *kind.orders):
        return None
    order = f" {wanted.order}" if wanted.order not in (None, "a") else ""
    return kind.published_steps.get(f"{canonical_split(wanted.split)} {wanted.mode}{order}")
