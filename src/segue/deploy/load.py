"""`segue.load`: a model from wherever one is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from segue.core.config import as_dict, read_back
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.palette import BACKGROUND
from segue.core.records import RunRecord
from segue.deploy.adopt import adopt_from
from segue.deploy.families import is_source
from segue.deploy.folder_layout import check_not_half, is_model_folder
from segue.deploy.history import History, StepImages, without_places
from segue.deploy.model import Model
from segue.deploy.model_file import load_model
from segue.deploy.model_folder import load_folder
from segue.deploy.prepare import Preparation
from segue.engine.device import pick_device
from segue.engine.learned import kept_state
from segue.engine.restore import restore_step
from segue.models.adopted.network import AdoptedNetwork
from segue.models.adopted.sources import absolute, own_code
from segue.report.pictures import shipped_colours


def load(path: str | Path, device: str = "auto", code: str | None = None, **said: Any) -> Model:
    """The model of a model folder, of a model file, or of a run folder after its last finished step.

    Networks of other libraries are adopted: hf:FOLDER, smp:FOLDER, torchvision:NAME@FILE, or
    file.py:function, whose code is run. What their files do not say is said here, in the words of
    `segue.adopt`: classes, mean, std and so on.

    `device` is auto (CUDA, then MPS, then the CPU), cpu, cuda, cuda:1 or mps. A model folder or file runs no
    code and fetches nothing, whoever wrote it. A run of a method file of one's own runs that file. A model
    that was adopted from code of one's own needs that code again: `code` is file.py:function.

    Examples:
        >>> import segue
        >>> model = segue.load("runs/first")
        >>> mask = model.predict("photo.jpg")
        >>> segue.load("model.safetensors").classes == model.classes
        True
    """
    where = pick_device(device)
    if is_source(str(path)):
        model = adopt_from(str(path), **said)
        model.network.to(where)
        return model
    if said:
        raise UserError(f"{path} is no network from elsewhere: {', '.join(said)} cannot be said of it.")
    path = user_path(path)
    module = own_code(code) if code is not None else None
    history = None
    if is_model_folder(path):
        stored = load_folder(path, module)
        network, header, history = stored.network, stored.header, stored.history
    elif path.is_dir():
        check_not_half(path)
        return load_run(path, device=device, module=module)
    elif path.is_file():
        network, header = load_model(path, module)
    else:
        raise UserError(f"There is no model {path}: name a model folder, a run folder or NAME.safetensors.")
    if code is not None and isinstance(network, AdoptedNetwork):
        network = network.built_by(absolute(code))
    return Model(network.to(where), header.classes, header.images, history, header.colours, header.closed)


def load_run(
    folder: str | Path, step: int | None = None, device: str = "auto", module: nn.Module | None = None
) -> Model:
    """The model of a run after one of its steps, or after the last finished one; the data are not needed.

    `module` is the user's own, for a run that began with a network of his.
    """
    where, restored = pick_device(device), restore_step(folder, step, module)
    config, classes, network = restored.config, restored.classes, restored.method.deployed()
    kept = kept_state(restored.method, network)
    images = _step_images(restored.record, len(restored.steps))
    history = History(restored.steps, without_places(read_back(config)), kept, images)
    preparation = Preparation(config.test_size, as_dict(config)["data"].get("bits", 16))
    shipped = shipped_colours(Path(folder)) or []
    colours = (BACKGROUND, *shipped[: len(classes) - 1]) if len(shipped) >= len(classes) - 1 else ()
    return Model(network.to(where), classes, preparation, history, colours, config.eval.closed)


def _step_images(run: RunRecord, steps: int) -> tuple[StepImages | None, ...]:
    """Images of each step as far as the run's records tell; of steps that it did not train none does."""
    records = {record.step: record for record in run.steps}
    found = (records.get(step) for step in range(steps))
    return tuple(
        None if each is None else StepImages(each.images["train"], each.images["test"], each.shown)
        for each in found
    )
