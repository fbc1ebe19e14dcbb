"""The model folder: what a model is outside its run, in the layout of Hugging Face.

    model.safetensors            weights of the network that predicts
    config.json                  names of the classes; section `segue`: network, steps, recipe, digest
    preprocessor_config.json     how images come to the network
    kept.safetensors             what the method keeps between steps (never images); absent if nothing
    README.md                    a model card
    pictures/                    what the card shows: images before and after the last step; may be absent
    native/                      a network from elsewhere as its own library writes it; may be absent

A folder may come from a stranger: loading one runs no code, fetches nothing and opens no other file. The
digest covers all of it but the card and `native`, which is not read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from segue.core.config import validate
from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.core.records import atomic_file, write_json, write_text
from segue.deploy.card import model_card
from segue.deploy.card_pictures import CardPicture, Listed, read_pictures, remove_pictures, write_pictures
from segue.deploy.folder_layout import (
    CARD,
    CONFIG,
    KEPT,
    MARK,
    NATIVE,
    PREPARATION,
    WEIGHTS,
    check_place,
    is_model_folder,
    remove_half_written,
)
from segue.deploy.history import History, StepImages
from segue.deploy.model_file import WRONG_HEADER, Header, described_network, wrong_header
from segue.models.network import Network

FORMAT = "segue-folder-1"
READABLE = (FORMAT,)
"""formats of all versions so far: what was written once can always be read"""


@dataclass(frozen=True)
class Section:
    """The section `segue` of config.json."""

    format: str
    digest: str
    header: Header
    steps: tuple[tuple[str, ...], ...] | None = None
    """names of the classes that each step brought; None: not known"""
    recipe: dict[str, Any] | None = None
    """recipe of the run that made the model; None: not known"""
    images: tuple[StepImages | None, ...] = ()
    """number of images of each step; None, or nothing at all: not known"""
    pictures: tuple[Listed, ...] = ()
    """pictures of the card, in the order of their numbers"""


@dataclass(frozen=True)
class Stored:
    """A model folder, read and checked."""

    network: Network
    header: Header
    history: History | None
    digest: str


def save_folder(folder: Path, network: Network, header: Header, history: History | None) -> None:
    """Write a model folder; config.json last, so that a folder with one is whole.

    Pictures and `native` are of the model that was there before: they are removed.
    """
    check_place(folder)
    remove_half_written(folder)
    state = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    kept = dict(history.kept) if history is not None else {}
    weights, rest = save_tensors(state, MARK), save_tensors(kept, MARK) if kept else b""
    preparation = _preparation(network, header)
    about = {
        "header": dataclasses.asdict(header),
        "steps": None if history is None else history.steps,
        "recipe": None if history is None else history.recipe,
        "images": [] if history is None else [each and dataclasses.asdict(each) for each in history.images],
    }
    config = _config(header, about)
    config["segue"]["digest"] = _digest(config, preparation, weights, rest)
    remove_pictures(folder)
    if (folder / NATIVE).is_dir():
        shutil.rmtree(folder / NATIVE)
    (folder / CONFIG).unlink(missing_ok=True)
    for name, content in ((WEIGHTS, weights), (KEPT, rest)):
        if content:
            with atomic_file(folder / name, folder) as file:
                file.write(content)
        else:
            (folder / name).unlink(missing_ok=True)
    write_json(folder / PREPARATION, preparation, folder)
    write_card(folder, model_card(folder.name, header, history))
    write_json(folder / CONFIG, config, folder)


def write_card(folder: Path, card: str) -> None:
    """The card alone, which the digest leaves out: people fill in what only they know."""
    write_text(folder / CARD, card, folder)


def replace_pictures(folder: Path, pictures: Sequence[CardPicture]) -> None:
    """Give a model folder the pictures of its card, which the digest covers from now on."""
    check_place(folder)
    config, preparation = (_read_json(folder / name) for name in (CONFIG, PREPARATION))
    had = config["segue"].pop("pictures", [])
    if not had and not pictures:
        return
    if listed := write_pictures(folder, pictures):
        config["segue"]["pictures"] = [dataclasses.asdict(one) for one in listed]
    config["segue"]["digest"] = _digest(config, preparation, *_tensors(folder))
    write_json(folder / CONFIG, config, folder)


def folder_pictures(path: Path) -> list[CardPicture]:
    """The pictures of a model's card; other models have none."""
    if not is_model_folder(path):
        return []
    section = validate(Section, _read_json(path / CONFIG).get("segue") or {}, "segue")
    return read_pictures(path, section.pictures)


def load_folder(folder: Path, module: nn.Module | None = None) -> Stored:
    """The model of a folder, unless something in it is damaged, or newer than this version.

    `module` is code of the user's own, for a network that was adopted from it.
    """
    config, preparation = (_read_json(folder / name) for name in (CONFIG, PREPARATION))
    found = config.get("segue")
    if not isinstance(found, dict) or not isinstance(found.get("format"), str):
        raise UserError(f"{folder / CONFIG} has no section 'segue': it is no model folder of Segue.")
    if found["format"] not in READABLE:
        raise UserError(
            f"{folder} was written by a newer version ({found['format']}; this one reads up to {FORMAT})."
            " Update: pip install --upgrade segue."
        )
    weights, rest = _tensors(folder)
    if found.get("digest") != _digest(config, preparation, weights, rest):
        raise UserError(f"{folder} is damaged or was edited: its content does not match its digest.")
    try:
        section = validate(Section, found, "segue")
        read_pictures(folder, section.pictures)
        _check_labels(config, section.header.classes)
        network = described_network(section.header, load_tensors(weights), module)
        kept: dict[str, Tensor] = load_tensors(rest) if rest else {}
        history = None
        if section.steps is not None and section.recipe is not None:
            _check_history(section.header.classes, section.steps, section.recipe)
            history = History(section.steps, section.recipe, kept, section.images)
    except WRONG_HEADER as error:
        raise wrong_header(folder, error) from error
    return Stored(network, section.header, history, section.digest)


def _config(header: Header, about: Mapping[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(about))
    return {
        "architectures": ["Segmenter"],
        "model_type": "segue",
        "num_labels": len(header.classes),
        "id2label": {str(channel): name for channel, name in enumerate(header.classes)},
        "label2id": {name: channel for channel, name in enumerate(header.classes)},
        "segue": {"format": FORMAT, "digest": "", **plain},
    }


def _preparation(network: Network, header: Header) -> dict[str, Any]:
    size = header.images.size
    return {
        "do_resize": size is not None,
        "size": {"shortest_edge": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [round(value / 255, 6) for value in network.mean.flatten().tolist()],
        "image_std": [round(value / 255, 6) for value in network.std.flatten().tolist()],
        "do_reduce_labels": False,
    }


def _digest(config: Mapping[str, Any], preparation: Mapping[str, Any], *contents: bytes) -> str:
    section = {key: value for key, value in config["segue"].items() if key != "digest"}
    digest = hashlib.blake2b(digest_size=32)
    for part in ({**config, "segue": section}, preparation):
        digest.update(json.dumps(part, sort_keys=True).encode())
    for content in contents:
        digest.update(hashlib.blake2b(content).digest())
    return f"blake2b:{digest.hexdigest()}"


def _check_labels(config: Mapping[str, Any], classes: Sequence[str]) -> None:
    """The names for other programs are those for Segue."""
    if config.get("id2label") != {str(channel): name for channel, name in enumerate(classes)}:
        raise ValueError("its 'id2label' names other classes than its section 'segue'")


def _check_history(classes: Sequence[str], steps: Sequence[Sequence[str]], recipe: Mapping[str, Any]) -> None:
    """Steps and recipe that an extension can go on with; their values are checked when it does."""
    if [name for step in steps for name in step] != [*classes[1:]]:
        raise ValueError("its steps do not bring its classes, in this order")
    if wrong := [name for name, values in recipe.items() if not isinstance(values, dict)]:
        raise ValueError(f"the section '{wrong[0]}' of its recipe is no table of settings")
    if not isinstance(recipe.get("method", {}).get("name"), str):
        raise ValueError("its recipe names no method")


def _tensors(folder: Path) -> tuple[bytes, bytes]:
    """Weights, and what the method keeps, if anything."""
    return _read(folder / WEIGHTS), _read(folder / KEPT) if (folder / KEPT).exists() else b""


def _read(path: Path) -> bytes:
    try:
        return read_ordinary(path)
    except OSError as error:
        raise UserError(f"Cannot read {path}: {reason(error)}.") from error


def _read_json(path: Path) -> dict[str, Any]:
    content = _read(path)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} should hold a JSON object.")
    return document
