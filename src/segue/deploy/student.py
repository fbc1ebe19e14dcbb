"""A student of a model that cannot grow: a new network of Segue's own, which learns all its classes at once.

Old classes come from the teacher's outputs on the new images, new ones from their labels: nothing else is
known of the old ones. The student begins with the weights of its backbone alone, so the step is trained as a
first step is: at its learning rate, with the statistics of its batches, and with no stage frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.core import plugins
from segue.core.config import ModelConfig, OptimConfig, TrainConfig, validate
from segue.core.errors import UserError
from segue.core.overrides import merge, parse_overrides
from segue.core.presets import choose_preset
from segue.core.scenario import Step
from segue.deploy.model import Model
from segue.deploy.teachers.outer_model import OuterModel
from segue.engine.build import check_weights
from segue.engine.preset import KEY
from segue.engine.seeds import derive_seed, seed_all
from segue.methods.base import Method, parts_text
from segue.models.segmenter import Segmenter

METHOD = "mib"
"""method of a student, unless another one is named"""
GIVEN = frozenset({"background"})
"""parts of an outer teacher that knows a background, as methods name them"""
TINY = {"head": "tiny", "output_stride": 8}


def student_model(teacher: OuterModel, backbone: str, words: Sequence[str], device: str) -> Model:
    """A new network with the teacher's channels; `words` may say more of it (model.weights=FILE)."""
    said = parse_overrides(words)
    chosen = choose_preset(said.get(KEY), device).values.get("model", {})
    usual = TINY if backbone == "tiny" else {key: chosen[key] for key in TINY if key in chosen}
    config = validate(ModelConfig, {**usual, **said.get("model", {}), "backbone": backbone}, "model")
    seed_all(derive_seed(int(said.get("train", {}).get("seed", TrainConfig().seed))))
    network = Segmenter(config)
    check_weights(config)
    network.grow(Step(0, tuple(range(1, len(teacher.classes)))), balanced=False)
    return Model(network, teacher.classes, colours=teacher.colours, closed=teacher.closed)


def student_words(words: Sequence[str], device: str) -> list[str]:
    """The words of the step, and what makes it a first one where they leave it open."""
    said = parse_overrides(words)
    optim = merge(choose_preset(said.get(KEY), device).values.get("optim", {}), said.get("optim", {}))
    usual: dict[str, Any] = {
        "model.frozen_stages": 0,
        "model.frozen_blocks": 0,
        "train.norm": "batch",
        "optim.lr_next": optim.get("lr_first", OptimConfig().lr_first),
    }
    unsaid = [f"{key}={value}" for key, value in usual.items() if not _says(said, key)]
    return [*unsaid, *words]


def check_method(name: str, teacher: OuterModel) -> None:
    """Refuse a method that never asks a teacher, or asks it for more than logits."""
    kind: type[Method] = plugins.find("method", name)
    if not kind.uses_teacher:
        raise UserError(
            f"{name} asks no teacher, from which alone a student can learn the old classes: use mib, lwf or"
            " incseg."
        )
    given = GIVEN - ({"background"} if teacher.closed else set())
    if missing := sorted(kind.needs - given):
        raise UserError(
            f"{name} needs {parts_text(missing)}; of {teacher.place} the outputs"
            " alone are known. mib, lwf and incseg need no more."
        )


def _says(said: dict[str, Any], key: str) -> bool:
    section, _, name = key.partition(".")
    return name in (said.get(section) or {})
