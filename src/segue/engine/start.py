"""Step 0 from another run: it is trained once and shared by all runs in which the same things decide it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.config import RunConfig, as_dict
from segue.core.declaration import Start
from segue.core.errors import UserError
from segue.core.manifest import read_manifest
from segue.core.neutral import MAY_CHANGE, drop
from segue.core.ordinary import user_path
from segue.core.overrides import differences
from segue.engine.checkpoint import CheckpointStore, load_finished, load_strictly
from segue.engine.device import autocast
from segue.engine.folder import identity
from segue.engine.recipe import stored_recipe
from segue.methods.base import Method, StepContext

LATER = (
    *("optim.lr_next", "optim.new_factor", "train.epochs_next", "train.norm", "train.log_every"),
    *("train.crop_on", "train.crop_on_share"),
)
"""settings that matter to later steps or to no numbers at all"""


@dataclasses.dataclass(frozen=True)
class FirstStep:
    """What decides step 0 of a run."""

    decides: Mapping[str, Any]
    """settings, classes and images that decide the model"""
    gathered: str | None
    """settings that decide the state gathered in training, as JSON; None: no such state"""
    replaced: str | None = None
    """settings that decide what replaces the trained model, as JSON; None: the model stays"""
    place: Path | None = None
    """folder of the images"""

    @property
    def hash(self) -> str:
        return "sha256:" + hashlib.sha256(json.dumps(self.decides, sort_keys=True).encode()).hexdigest()

    def can_start_from(self, other: FirstStep) -> bool:
        """Whether step 0 of the other is that of this one, or this one can make it so when it ends."""
        if self.gathered is not None:  # what is gathered comes with all the rest, which is taken as it is
            return (self.hash, self.gathered, self.replaced) == (other.hash, other.gathered, other.replaced)
        return self.hash == other.hash and other.replaced in (None, self.replaced)

    def has_pictures_of(self, other: FirstStep) -> bool:
        """Whether images of the same names are the same pictures: their folder is the same, or has moved."""
        return other.place is None or self.place == other.place or not other.place.exists()


def first_step(config: RunConfig, manifest: Mapping[str, Any]) -> FirstStep:
    """What decides step 0 of a recipe on the images that a manifest lists."""
    plain, first = as_dict(config), manifest["steps"][0]
    drop(plain, (*LATER, *MAY_CHANGE))
    plain["model"]["weights"] = weights_content(config)  # other weights may have the same name
    kind: type[Method] = plugins.find("method", config.method.name)
    start = _of_method(kind, config)
    images = hashlib.sha256(json.dumps(first["train"]).encode()).hexdigest()
    decides = {
        "scenario": {"dataset": config.scenario.dataset, "void": config.scenario.void},
        "classes": first["new"],
        "images": f"{first['images']} ({images[:16]})",
        "method": start.model,
        **{section: plain[section] for section in ("data", "model", "optim", "train")},
    }
    root = getattr(config.data, "root", None)
    place = user_path(root).resolve() if root else None
    return FirstStep(decides, _json(start.gathered), _json(start.replaced), place)


def _json(settings: Mapping[str, Any] | None) -> str | None:
    return None if settings is None else json.dumps(settings)


def weights_content(config: RunConfig) -> str | None:
    """A hash of what is in the file of weights; its name if it is gone, None if there is none."""
    if config.model.weights is None:
        return None
    file = user_path(config.model.weights)
    return _digest(file, file.stat().st_mtime_ns) if file.is_file() else str(file)


@functools.lru_cache(maxsize=8)  # a comparison asks for the same weights for every run
def _digest(file: Path, changed: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _of_method(kind: type[Method], config: RunConfig) -> Start:
    """What of a method decides step 0, with its name.

    Of a file of one's own its content does too, unless its class says that it starts as others do. What the
    class inherits does not count: it was said of other losses.
    """
    params, whose = config.method.params, {"method": kind.__name__}
    is_file = config.method.name.endswith(".py")
    if is_file:
        content = user_path(config.method.name).read_bytes()
        whose = {"file": hashlib.sha256(content).hexdigest()[:16], **whose}
    said = kind.start(params) if not is_file or "start" in vars(kind) else Method.start.__func__(kind, params)
    # networks of other libraries have a classifier of their own, under other names than that of a method
    own_classifier = config.model.network is not None and "classifier" in kind.needs
    model = {**whose, **said.model} if said.model or own_classifier else {}
    gathered = None if said.gathered is None else {**whose, **said.gathered}
    return Start(model, gathered, None if said.replaced is None else {**whose, **said.replaced})


def stored_first_step(folder: Path) -> tuple[FirstStep, RunConfig]:
    """What decided step 0 of a run folder, and its recipe."""
    config = stored_recipe(folder)
    return first_step(config, read_manifest(folder / "scenario.json")), config


def has_first_step(folder: Path) -> bool:
    """Whether step 0 of a run is trained and still there."""
    return CheckpointStore(folder).path(0).is_file()


def load_first_step(folder: Path, config: RunConfig) -> dict[str, Any]:
    """The checkpoint of a run's step 0, if it is there, whole, and made with this recipe."""
    if not has_first_step(folder):
        raise UserError(f"{folder} has no finished step 0 ({CheckpointStore(folder).path(0)}).")
    tree = load_finished(CheckpointStore(folder).path(0))
    if tree.get("identity") != identity(config):
        raise UserError(f"{folder}: its recipe or its method file was changed since step 0 was trained.")
    if tree.get("weights") not in (None, weights_content(config)):
        raise UserError(f"{folder}: {config.model.weights} is not the file that step 0 was trained with.")
    return tree


def can_be_taken(folder: Path) -> bool:
    """Whether step 0 of a run is there, undamaged, and what its recipe says."""
    try:
        load_first_step(folder, stored_first_step(folder)[1])
    except UserError:
        return False
    return True


def read_start(folder: Path, config: RunConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Step 0 of another run, for a run of this recipe on these images; refused if it would be another."""
    theirs, recipe = stored_first_step(folder)
    ours = first_step(config, manifest)
    if ours.hash != theirs.hash:
        lines = "\n  ".join(differences(theirs.decides, ours.decides))
        raise UserError(f"Step 0 of {folder} is another one than this run's (theirs -> ours):\n  {lines}")
    if theirs.replaced not in (None, ours.replaced):
        raise UserError(
            f"When step 0 of {folder} ended, {recipe.method.name} replaced the model that was trained:"
            f" only {recipe.method.name} with the same settings can start from it."
        )
    if not ours.can_start_from(theirs):
        raise UserError(
            f"{config.method.name} gathers state while it trains step 0: it cannot start from {folder}."
        )
    # the very same method leaves the very same state: it need not be made anew from images that may be gone
    return load_first_step(folder, recipe) | {
        "whole": ours.gathered is not None or recipe.method == config.method
    }


def take_over(
    method: Method, context: StepContext, tree: Mapping[str, Any], folder: Path, precision: str
) -> None:
    """Bring a method, grown for step 0, to where it would be if it had trained that step itself.

    What it gathers comes with the model, as when a run goes on; a method without such state makes its own.
    """
    state = tree["method"]
    if tree["whole"]:
        load_strictly(method, state, folder)
        return
    model = {name: value for name, value in state.items() if name.startswith("model.")}
    # a method may add to the classifier what step 0 does not train
    added = {name for name in method.state_dict() if name.startswith("model.classifier.")} - set(model)
    own = {
        name: value
        for name, value in method.state_dict().items()
        if not name.startswith("model.") or name in added
    }
    load_strictly(method, {**own, **model}, folder)
    method.train()
    with autocast(context.device, precision):  # as in training
        method.begin_step(context)
    method.end_step(context)
