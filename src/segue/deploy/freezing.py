"""What an extension freezes on a CPU, and that outputs of frozen stages are computed once.

A network that has learned its classes needs little to learn one more. With `model.frozen_stages=auto` all
stages of the backbone are frozen but the last one, and that one too if there are epochs enough for the head
to learn the class alone (docs/extend-a-model.md has figures). The encoder of an adopted network is frozen as
a whole (docs/results/adopted.md). Their outputs are then kept: each image comes in a few fixed views.

On a CPU that is so unless something else is said. A recipe that freezes stages by itself is followed: there
student and teacher share the frozen stages, which alters no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.core import plugins
from segue.core.config import RunConfig, TrainConfig
from segue.core.errors import UserError
from segue.core.overrides import parse_overrides
from segue.core.progress import Display
from segue.deploy.model import Model
from segue.engine.device import pick_device
from segue.methods.base import Method
from segue.models.adopted.network import AdoptedNetwork
from segue.models.network import Network
from segue.models.segmenter import Segmenter

AUTO = "auto"
KEY = "model.frozen_stages"
BLOCKS = "model.frozen_blocks"
ENOUGH_EPOCHS = 10
"""epochs from which on the head alone learns a class as well as with the last stage"""
VIEWS = 4
"""views of each image"""


def with_freezing(model: Model, method: str, overrides: Sequence[str], device: str) -> list[str]:
    """The words of an extension, and what they leave open about frozen stages."""
    said = parse_overrides(overrides)
    network, wanted = model.network, _section(said, "model").get("frozen_stages")
    if wanted is not None and "frozen_blocks" not in _section(said, "model"):
        overrides = [*overrides, f"{BLOCKS}=0"]  # those of the model's recipe belong to its own stages
    on_cpu = pick_device(device).type == "cpu"
    stages = _stages(network)
    if not stages:
        if wanted == AUTO:
            raise UserError(
                f"{KEY}={AUTO}: the encoder of this network is not known; adopt.encoder names it."
            )
        return list(overrides)
    if wanted is None and on_cpu and not network.config.frozen_stages and _freezes_late(method):
        wanted = AUTO
    words = [word for word in overrides if wanted != AUTO or word.partition("=")[0].strip() != KEY]
    chosen: dict[str, Any] = {}
    if wanted == AUTO:
        whole = isinstance(network, AdoptedNetwork) or _epochs(model, said) >= ENOUGH_EPOCHS
        chosen[KEY] = stages if whole else stages - 1
        chosen["train.views"] = VIEWS
    if wanted == AUTO or (on_cpu and (network.config.frozen_stages if wanted is None else wanted)):
        chosen["train.cache_frozen"] = "true"
    train = _section(said, "train")
    unsaid = [f"{key}={value}" for key, value in chosen.items() if key.partition(".")[2] not in train]
    return [*unsaid, *words]


def tell_freezing(before: Model, config: RunConfig, display: Display) -> None:
    """Say what was frozen, if it is not what the model's recipe says."""
    network, frozen = before.network, config.model.frozen_stages
    if frozen != network.config.frozen_stages:
        display.say(
            f"{frozen} of {_stages(network)} stages of the encoder were frozen, each image had"
            f" {config.train.views or 'ever new'} views. Otherwise: {KEY}=0, train.views=0."
        )


def _stages(network: Network) -> int:
    """Stages of the encoder; 0: it is not known."""
    if isinstance(network, Segmenter):
        return len(network.backbone.channels)
    assert isinstance(network, AdoptedNetwork)
    return network.parts.stages


def _freezes_late(method: str) -> bool:
    kind: type[Method] = plugins.find("method", method)
    return kind.freezes_late


def _epochs(model: Model, said: dict[str, Any]) -> int:
    """Epochs of the step, by what is said and by the model's recipe."""
    stored = _section(model.history.recipe, "train") if model.history is not None else {}
    asked = _section(said, "train")
    train = {**stored, **({"epochs_next": None} if "epochs" in asked else {}), **asked}
    epochs = train.get("epochs_next") or train.get("epochs") or TrainConfig().epochs
    return int(epochs) if str(epochs).isdecimal() else 0


def _section(values: Any, name: str) -> dict[str, Any]:
    section = values.get(name)
    return dict(section) if isinstance(section, dict) else {}
