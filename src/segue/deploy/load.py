"""`segue.load`: a model from wherever one is kept."""

from __future__ import annotations

from pathlib import Path

from segue.core.config import as_dict
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.palette import BACKGROUND
from segue.deploy.model import Model
from segue.deploy.model_file import load_model
from segue.deploy.prepare import Preparation
from segue.engine.recipe import stored_recipe
from segue.engine.restore import restore_deployed
from segue.engine.runtime import pick_device
from segue.report.pictures import shipped_colours


def load(path: str | Path, device: str = "auto") -> Model:
    """The model of a run folder, after its last finished step, or of a model file.

    `device` is auto (CUDA, then MPS, then the CPU), cpu, cuda, cuda:1 or mps. A model file runs no code and
    fetches nothing, whoever wrote it. A run of a method file of one's own runs that file.

    Examples:
        >>> import segue
        >>> model = segue.load("runs/first")
        >>> mask = model.predict("photo.jpg")
        >>> segue.load("model.safetensors").classes == model.classes
        True
    """
    path = user_path(path)
    if path.is_dir():
        return load_run(path, device=device)
    if not path.is_file():
        raise UserError(f"There is no model {path}: name a run folder or a model file (NAME.safetensors).")
    where = pick_device(device)
    network, header = load_model(path)
    return Model(network.to(where), header.classes, header.images, header.colours)


def load_run(folder: str | Path, step: int | None = None, device: str = "auto") -> Model:
    """The model of a run after one of its steps, or after the last finished one; the data are not needed."""
    where, config = pick_device(device), stored_recipe(folder)
    network, classes = restore_deployed(folder, step)
    images = Preparation(config.train.crop, as_dict(config)["data"].get("bits", 16))
    shipped = shipped_colours(Path(folder)) or []
    colours = (BACKGROUND, *shipped[: len(classes) - 1]) if len(shipped) >= len(classes) - 1 else ()
    return Model(network.to(where), classes, images, colours)
