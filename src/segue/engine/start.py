"""Step 0 from another run: it is trained once and shared by all runs in which the same things decide it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.config import RunConfig, as_dict, differences, validate
from segue.core.errors import UserError
from segue.core.manifest import read_manifest
from segue.core.records import read_yaml
from segue.engine.checkpoint import CheckpointStore, load_strictly, load_tree
from segue.engine.folder import MAY_CHANGE, identity
from segue.engine.recipe import complete
from segue.methods.base import Method, StepContext

LATER = ("optim.lr_next", "train.epochs_next", "train.norm", "train.log_every")
"""settings that matter to later steps or to no numbers at all"""


@dataclasses.dataclass(frozen=True)
class FirstStep:
    """What decides step 0 of a run."""

    decides: Mapping[str, Any]
    """of its model: settings, classes and images"""
    gathered: str | None
    """of the state that the method gathers while it trains, if it does"""

    @property
    def hash(self) -> str:
        return "sha256:" + hashlib.sha256(json.dumps(self.decides, sort_keys=True).encode()).hexdigest()

    def can_start_from(self, other: FirstStep) -> bool:
        return self.hash == other.hash and self.gathered in (None, other.gathered)


def first_step(config: RunConfig, manifest: Mapping[str, Any]) -> FirstStep:
    """What decides step 0 of a recipe on the images that a manifest lists."""
    plain, first = as_dict(config), manifest["steps"][0]
    for key in (*LATER, *MAY_CHANGE):
        section, name = key.split(".")
        plain[section].pop(name, None)
    kind: type[Method] = plugins.find("method", config.method.name)
    params = validate(kind.Config, config.method.params, "method.params")
    images = hashlib.sha256(json.dumps(first["train"]).encode()).hexdigest()
    decides = {
        "scenario": {"dataset": config.scenario.dataset, "void": config.scenario.void},
        "classes": first["new"],
        "images": f"{first['images']} ({images[:16]})",
        "method": kind.first_step(params),
        **{section: plain[section] for section in ("data", "model", "optim", "train")},
    }
    return FirstStep(decides, json.dumps(kind.own_start(params)) if kind.gathers else None)


def stored_first_step(folder: Path) -> tuple[FirstStep, RunConfig]:
    """What decided step 0 of a run folder, and its recipe."""
    if not (folder / "recipe.yaml").is_file():
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml.")
    config = complete(read_yaml(folder / "recipe.yaml"))
    return first_step(config, read_manifest(folder / "scenario.json")), config


def has_first_step(folder: Path) -> bool:
    """Whether step 0 of a run is trained and still there."""
    return CheckpointStore(folder).path(0).is_file()


def read_start(folder: Path, config: RunConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Step 0 of another run, for a run of this recipe on these images; refused if it would be another."""
    theirs, recipe = stored_first_step(folder)
    ours = first_step(config, manifest)
    if ours.hash != theirs.hash:
        lines = "\n  ".join(differences(theirs.decides, ours.decides))
        raise UserError(f"Step 0 of {folder} is another one than this run's (theirs -> ours):\n  {lines}")
    if not ours.can_start_from(theirs):
        raise UserError(
            f"{config.method.name} gathers state while it trains step 0: it cannot start from {folder}."
        )
    if not has_first_step(folder):
        raise UserError(f"{folder} has no finished step 0 ({CheckpointStore(folder).path(0)}).")
    tree = load_tree(CheckpointStore(folder).path(0))
    if tree.get("identity") != identity(recipe):
        raise UserError(f"{folder}: its recipe or its method file was changed since step 0 was trained.")
    return tree


def take_over(method: Method, context: StepContext, tree: Mapping[str, Any], folder: Path) -> None:
    """Bring a method, grown for step 0, to where it would be if it had trained that step itself."""
    state = tree["method"]
    if not method.gathers:
        model = {name: value for name, value in state.items() if name.startswith("model.")}
        state = {**method.state_dict(), **model}
    load_strictly(method, state, folder)
    method.train()
    method.begin_step(context)
    if not method.gathers:
        method.end_step(context)
