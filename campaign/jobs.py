"""What writes: a run, an extension, exported files, predictions. Each can be done again after a fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from campaign.small_run import QUIET, finished_run, model_folder, small_recipe
from segue.core.errors import UserError
from segue.core.records import read_record
from segue.deploy.extend import extend
from segue.deploy.folder_layout import is_model_folder
from segue.deploy.inputs import find_inputs
from segue.deploy.load import load
from segue.deploy.outputs import MASKS, TABLE
from segue.deploy.predict import Settings, predict
from segue.deploy.predictor import open_predictor
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.run import run

EXTENSION = ("train.epochs_next=1", "train.save_seconds=0")
EXPORTED = ("model.safetensors", "model.pt")


@dataclass(frozen=True)
class Job:
    """Work that fills a folder."""

    name: str
    work: Callable[[Path, bool], object]
    """the work; of a folder, and whether it goes on from what is there"""
    outcome: Callable[[Path], dict[str, Any]]
    """what two equal folders have in common"""
    damaged: Callable[[Path], list[str]]
    """files of a folder that are there and cannot be read"""


def jobs(place: Path) -> tuple[Job, ...]:
    """All of them, on one small model and a few small images."""
    config, model, images = small_recipe(), model_folder(place), new_images(place / "images")
    finished_run(place)

    def extended(folder: Path, again: bool) -> None:
        out = folder / "grown"
        extend(model, images, out, (), None, EXTENSION, resume=again, device="cpu", display=QUIET, sure=True)

    def exported(folder: Path, _: bool) -> None:
        whole = load(model, "cpu")
        whole.save(folder / "model")
        for name in EXPORTED:
            whole.export(folder / name)

    def predicted(folder: Path, again: bool) -> None:
        sources = find_inputs([str(images / "images" / "train")], folder)
        predict(open_predictor(str(model), "cpu"), sources, folder, Settings(overlay=True), resume=again)

    return (
        Job("run", lambda folder, again: run(config, folder, again, display=QUIET), of_run, damaged_run),
        Job("extend", extended, _of_extension, _damaged_extension),
        Job("export", exported, _of_exported, _damaged_exported),
        Job("predict", predicted, _of_predictions, _damaged_predictions),
    )


def new_images(folder: Path) -> Path:
    """Pictures of one new class, with masks."""
    chance = np.random.default_rng(0)
    for subset, count in (("train", 4), ("val", 2)):
        for number in range(count):
            image = chance.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            mask = np.zeros((32, 32), np.uint8)
            mask[4:28, 4:28] = 1
            for kind, picture in (("images", image), ("masks", mask)):
                (folder / kind / subset).mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture).save(folder / kind / subset / f"{subset}{number}.png")
    (folder / "classes.txt").write_text("background\nnovelty")
    return folder


def of_run(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"log": (folder / "log.jsonl").read_text()}
    for path in sorted((folder / "steps").glob("*.json")):
        document = json.loads(path.read_text())
        found[path.name] = {key: document[key] for key in ("confusion", "losses", "classes", "recipe_hash")}
    return found


def damaged_run(folder: Path) -> list[str]:
    entries = [entry.path for entry in CheckpointStore(folder).entries()]
    return _unreadable(read_record, (folder / "steps").glob("*.json")) + _unreadable(load_tree, entries)


def _unreadable(read: Callable[[Path], object], paths: Any) -> list[str]:
    bad = []
    for path in paths:
        try:
            read(path)
        except UserError as error:
            bad.append(f"{path}: {error}")
    return bad


def _of_extension(folder: Path) -> dict[str, Any]:
    grown = load(folder / "grown", "cpu")
    return {"digest": grown.digest, "log": (folder / "grown-run" / "log.jsonl").read_text()}


def _damaged_extension(folder: Path) -> list[str]:
    model = [folder / "grown"] if is_model_folder(folder / "grown") else []
    return damaged_run(folder / "grown-run") + _unreadable(load, model)


def _of_exported(folder: Path) -> dict[str, Any]:
    found = {name: load(folder / name, "cpu").digest for name in ("model", EXPORTED[0])}
    return {**found, EXPORTED[1]: _graph(folder / EXPORTED[1])}


def _damaged_exported(folder: Path) -> list[str]:
    models = [folder / EXPORTED[0]] if (folder / EXPORTED[0]).exists() else []
    models += [folder / "model"] if is_model_folder(folder / "model") else []
    graphs = [folder / EXPORTED[1]] if (folder / EXPORTED[1]).exists() else []
    return _unreadable(load, models) + _unreadable(_graph, graphs)


def _graph(path: Path) -> list[int]:
    """What a TorchScript file says of a black image."""
    try:
        found = torch.jit.load(path)(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    except RuntimeError as error:
        raise UserError(str(error)) from error
    return found[-1].flatten().tolist() if isinstance(found, tuple) else sorted(found)


def _of_predictions(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / TABLE).read_text())
    images = [(each["image"], each["pixels"], each["confidence"]) for each in document["images"]]
    masks = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.png")}
    return {"images": images, "skipped": document["skipped"], "masks": masks}


def _damaged_predictions(folder: Path) -> list[str]:
    def read(path: Path) -> None:
        try:
            Image.open(path).load()
        except OSError as error:
            raise UserError(str(error)) from error

    return _unreadable(read, (folder / MASKS).glob("*.png"))
