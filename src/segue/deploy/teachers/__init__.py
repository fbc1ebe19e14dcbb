"""Teachers by outputs alone: models that cannot grow, from which a student of Segue's own kind learns.

`.onnx` and TorchScript (`.pt`) files, Hugging Face models that classify masks, and every model that Segue can
load, if a student is wanted of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from segue.core.checked_json import read_object
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary, user_path
from segue.deploy.adopt import NO_BACKGROUND, normalisation_of
from segue.deploy.export.metadata import About
from segue.deploy.families import is_source
from segue.deploy.load import load
from segue.deploy.model import Model
from segue.deploy.onnx_model import open_session
from segue.deploy.teachers.onnx_file import OnnxScores, about_of
from segue.deploy.teachers.outer_model import OuterModel, outer_model
from segue.deploy.teachers.queries import QueryScores, is_query_folder, open_queries
from segue.deploy.teachers.torchscript import ScriptScores, open_script
from segue.engine.checkpoint import tensor_digest
from segue.models.adopted.parts import Normalisation
from segue.models.adopted.weights import names_of
from segue.models.classifier import close_background

ONNX, SCRIPT = ".onnx", (".pt", ".torchscript")
LARGEST = 2**31
"""bytes of the largest file"""
WORDS = frozenset({"classes", "mean", "std", "white", "bgr", "background"})
"""words of adoption that can be said of a teacher"""
GROWS = (
    "{0} gives outputs alone: it cannot grow, but it can teach a network of Segue's own. Name that one:"
    " --student mobilenetv2_100."
)


def is_outer(text: str) -> bool:
    """Whether a text names a model of which the outputs alone are known."""
    suffix = Path(text).suffix.lower()
    if suffix == ONNX or (suffix in SCRIPT and not is_source(text)):
        return True
    return text.startswith("hf:") and is_query_folder(user_path(text.removeprefix("hf:")))


def refuse_growing(model: object) -> None:
    """Say of a model that cannot grow what can be done with it."""
    if isinstance(model, OuterModel) or (isinstance(model, str | Path) and is_outer(str(model))):
        raise UserError(GROWS.format(model.place if isinstance(model, OuterModel) else model))


def as_teacher(model: Model | OuterModel | str | Path) -> OuterModel:
    """Whatever can teach a student, by its outputs."""
    if isinstance(model, OuterModel):
        return model
    if isinstance(model, Model):
        return teacher_of(model, "the model")
    if is_outer(str(model)):
        return open_teacher(str(model))
    return teacher_of(load(model, "cpu"), str(model))


def open_teacher(text: str, **said: Any) -> OuterModel:
    """The model of a file or folder by its outputs; `said` are the words of `segue.adopt` for it."""
    if unknown := sorted(set(said) - WORDS):
        raise UserError(f"{text} gives outputs alone: {', '.join(unknown)} cannot be said of it.")
    if text.startswith("hf:"):
        return _of_queries(user_path(text.removeprefix("hf:")), said)
    path = user_path(text)
    try:
        content = read_ordinary(path, LARGEST)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error
    beside = repr(sorted(said.items())).encode()
    digest = hashlib.blake2b(content + beside, digest_size=32).hexdigest()
    if path.suffix.lower() == ONNX:
        session = open_session(content, "cpu", str(path))
        about, found = about_of(session, str(path))
        names, numbers = _told(str(path), about, found, said)
        scores: Any = OnnxScores(session, str(path), numbers, len(names))
    else:
        module, about, found = open_script(content, str(path))
        names, numbers = _told(str(path), about, found, said)
        scores = ScriptScores(module, str(path), numbers)
    images = about.images if about is not None else None
    return outer_model(scores, names, str(path.resolve()), digest, said.get("background"), images)


def teacher_of(model: Model, place: str) -> OuterModel:
    """A model that could grow, as a teacher of another network."""

    def scores(images: Tensor) -> Tensor:
        logits = model.network.eval()(images.to(model.network.mean.device)).logits
        return (close_background(logits) if model.closed else logits).to(images.device)

    return OuterModel(
        scores,
        model.classes,
        place,
        model.digest,
        closed=model.closed,
        images=model.images,
        colours=model.colours,
    )


def _told(
    place: str, about: About | None, names: Sequence[str] | None, said: dict[str, Any]
) -> tuple[Sequence[str], Normalisation | None]:
    """Names of the channels and normalisation, from the file or from the user; never guessed."""
    if about is not None:
        if said.keys() - {"background"}:
            raise UserError(f"{place} was written by segue export and tells its classes and normalisation:"
                            " leave adopt.classes, adopt.mean and adopt.std out.")  # fmt: skip
        return about.classes, None
    names = said.get("classes") or names
    if names is None:
        raise UserError(
            f"{place} does not tell the names of its channels: adopt.classes=background,cat,dog, or a .txt"
            " file with one per line."
        )
    if said.get("mean") is None or said.get("std") is None:
        raise UserError(
            f"{place} does not tell how its images are normalised, and a wrong guess would cost accuracy:"
            " adopt.mean=0.485,0.456,0.406 adopt.std=0.229,0.224,0.225, or mean 0,0,0 and std 1,1,1 with"
            " adopt.white=255 if it does so inside."
        )
    numbers = normalisation_of(said["mean"], said["std"], said.get("white", 1.0), said.get("bgr", False))
    return names, numbers


def _of_queries(folder: Path, said: dict[str, Any]) -> OuterModel:
    module = open_queries(folder)
    config, prepared = (
        read_object(folder / name) or {} for name in ("config.json", "preprocessor_config.json")
    )
    words = {"mean": prepared.get("image_mean"), "std": prepared.get("image_std"), **said}
    names, numbers = _told(str(folder), None, names_of(config.get("id2label")), words)
    assert numbers is not None
    reduced = prepared.get("do_reduce_labels")
    background = said.get("background", NO_BACKGROUND if reduced else None)
    digest = tensor_digest(module.state_dict(), repr((names, numbers, background)))
    return outer_model(QueryScores(module, numbers), names, str(folder.resolve()), digest, background)
