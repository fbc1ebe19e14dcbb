"""Strange input for everything that reads: an attack is a function of (tally, tries, seed, place)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from hypothesis import strategies as st

from campaign.strategies import BYTES, RECIPES, SPLITS, VALUES, WORDS, damaged, documents
from campaign.tally import Tally, try_all
from segue.core.manifest import manifest_hash, read_manifest
from segue.core.progress import Display
from segue.core.records import read_run
from segue.core.scenario import make_scenario
from segue.data.datasets.scenes import Config, Scenes
from segue.deploy.load import load
from segue.engine.checkpoint import CheckpointStore, load_finished, load_tree, save_tree
from segue.engine.recipe import resolve
from segue.engine.run import run
from segue.models.weights_file import open_weights
from segue.report.markdown import markdown_tables

SHORT = (
    *(
        "data.classes=3",
        "data.size=32",
        "data.train=16",
        "data.test=6",
        "train.crop=32",
        "train.batch_size=8",
    ),
    *("train.epochs=1", "train.epochs_next=1", "train.scale=[1,1]", "eval.samples=0", "train.save_seconds=0"),
)
Attack = Callable[[Tally, int, int, Path], None]


def finished_run(place: Path) -> Path:
    """A small run to be damaged; made once."""
    folder = place / "run"
    if not folder.exists():
        run(resolve("finetune", "scenes", "2-1", overrides=SHORT), folder, display=Display(quiet=True))
    return folder


def words(tally: Tally, tries: int, seed: int, place: Path) -> None:
    said = st.lists(WORDS, min_size=1, max_size=3)
    try_all(tally, said, lambda each: resolve("mib", "scenes", "2-1", overrides=each), tries, seed)


def recipes(tally: Tally, tries: int, seed: int, place: Path) -> None:
    path = place / "recipe.yaml"

    def work(value: Any) -> None:
        content = (
            value
            if isinstance(value, bytes)
            else yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "replace")
        )
        path.write_bytes(content)
        resolve(file=path)

    try_all(tally, st.one_of(RECIPES, RECIPES, VALUES, BYTES), work, tries, seed)


def splits(tally: Tally, tries: int, seed: int, place: Path) -> None:
    table = Scenes(Config(), "train").classes
    orders = st.one_of(st.none(), SPLITS)

    def work(pair: tuple[Any, Any]) -> None:
        split, order = pair
        words = [f"scenario.split={split!r}", *([] if order is None else [f"scenario.order={order!r}"])]
        config = resolve("mib", "scenes", None, overrides=words)
        make_scenario(table, config.scenario.split, order=config.scenario.order)

    try_all(tally, st.tuples(SPLITS, orders), work, tries, seed)


def records(tally: Tally, tries: int, seed: int, place: Path) -> None:
    folder = Path(shutil.copytree(finished_run(place), place / "records", dirs_exist_ok=True))
    path = folder / "steps" / "1.json"
    content = path.read_bytes()

    def work(value: Any) -> None:
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        markdown_tables([read_run(folder)])

    original = json.loads(content)
    try_all(tally, st.one_of(documents(original), documents(original), damaged(content)), work, tries, seed)


def manifests(tally: Tally, tries: int, seed: int, place: Path) -> None:
    content = (finished_run(place) / "scenario.json").read_bytes()
    path, original = place / "manifest.json", json.loads(content)

    def work(value: Any) -> None:
        if isinstance(value, dict):  # right by its own hash
            value = {**value, "hash": manifest_hash(value)}
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        read_manifest(path)
        resolve("mib", None, None, overrides=[f"scenario.manifest={path}"])

    try_all(tally, st.one_of(documents(original), documents(original), damaged(content)), work, tries, seed)


def checkpoints(tally: Tally, tries: int, seed: int, place: Path) -> None:
    store = CheckpointStore(finished_run(place))
    path, content = place / "step0.safetensors", store.path(0).read_bytes()
    tree = load_tree(store.path(0))
    values = st.one_of(VALUES, st.just(torch.zeros(2)), st.just({"a": torch.zeros(1)}))
    trees = st.builds(lambda key, value: {**tree, key: value}, st.sampled_from(sorted(tree)), values)

    def work(value: Any) -> None:
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            save_tree(path, value)
        load_finished(path)
        if isinstance(value, bytes) and value != content:
            tally.fail("accepted", "a damaged checkpoint was loaded")

    try_all(tally, st.one_of(trees.filter(_storable), damaged(content)), work, tries, seed)


def _storable(tree: dict[str, Any]) -> bool:
    try:
        json.dumps({key: value for key, value in tree.items() if not _has_tensor(value)}).encode()
    except (ValueError, TypeError):
        return False
    return True


def _has_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (
        isinstance(value, dict) and any(map(_has_tensor, value.values()))
    )


def model_folders(tally: Tally, tries: int, seed: int, place: Path) -> None:
    whole = place / "model"
    if not whole.exists():
        load(finished_run(place)).save(whole)
    folder = Path(shutil.copytree(whole, place / "damaged", dirs_exist_ok=True))
    names = ("config.json", "preprocessor_config.json", "model.safetensors")
    contents = {name: (whole / name).read_bytes() for name in names}
    changes = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), _change(name, contents[name]))
    )

    def work(change: tuple[str, bytes]) -> None:
        name, content = change
        (folder / name).write_bytes(content)
        try:
            load(folder)
            if json_or_bytes(content) != json_or_bytes(contents[name]):
                tally.fail("accepted", f"a damaged {name} was loaded")
        finally:
            (folder / name).write_bytes(contents[name])

    try_all(tally, changes, work, tries, seed)


def json_or_bytes(content: bytes) -> Any:
    """Files of JSON are the same if they say the same."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _change(name: str, content: bytes) -> st.SearchStrategy[bytes]:
    if not name.endswith(".json"):
        return damaged(content)
    edited = documents(json.loads(content)).map(lambda value: json.dumps(value).encode())
    return st.one_of(edited, damaged(content))


def weights(tally: Tally, tries: int, seed: int, place: Path) -> None:
    torch.save({"a.weight": torch.eye(3), "b": torch.zeros(4)}, place / "whole.pth")
    content, path = (place / "whole.pth").read_bytes(), place / "a.pth"

    def work(value: bytes) -> None:
        path.write_bytes(value)
        open_weights(path)

    try_all(tally, damaged(content), work, tries, seed)


ATTACKS: dict[str, tuple[Attack, int]] = {
    "words": (words, 3500),
    "recipes": (recipes, 2500),
    "splits": (splits, 1500),
    "records": (records, 2000),
    "manifests": (manifests, 1500),
    "checkpoints": (checkpoints, 800),
    "model folders": (model_folders, 500),
    "weights": (weights, 800),
}
"""classes of attack, and the tries of a whole campaign"""
