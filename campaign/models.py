"""Strange and nearly right input for what reads tensors: checkpoints, model folders, weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from campaign.near import near
from campaign.small_run import Attack, finished_run, model_folder
from campaign.strategies import VALUES, damaged, documents
from campaign.tally import Tally, try_all, try_both
from segue.deploy import model_folder as folders
from segue.deploy.load import load
from segue.engine.checkpoint import CheckpointStore, load_finished, load_tree, save_tree
from segue.models.weights_file import open_weights


def checkpoints(tally: Tally, tries: int, seed: int, place: Path) -> None:
    store = CheckpointStore(finished_run(place))
    path, content = place / "step0.safetensors", store.path(0).read_bytes()
    tree = load_tree(store.path(0))
    values = st.one_of(VALUES, st.just(torch.zeros(2)), st.just({"a": torch.zeros(1)}))
    trees = st.builds(lambda key, value: {**tree, key: value}, st.sampled_from(sorted(tree)), values)
    usual = near([{"outcome": tree["outcome"]}]).map(lambda other: {**tree, **other})

    def work(value: Any) -> None:
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            save_tree(path, value)
        load_finished(path)
        if isinstance(value, bytes) and value != content:
            tally.fail("accepted", "a damaged checkpoint was loaded")

    strange = st.one_of(trees.filter(_storable), damaged(content))
    try_both(tally, usual.filter(_storable), strange, work, tries, seed)


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
    """Damaged: never loaded. Written anew by somebody who knows the digest: a sentence, or a model that
    predicts. The same in other letters: the same model."""
    whole = model_folder(place)
    digest, image = load(whole, "cpu").digest, np.zeros((32, 40, 3), np.uint8)
    folder = Path(shutil.copytree(whole, place / "damaged", dirs_exist_ok=True))
    names = (folders.CONFIG, folders.PREPARATION, folders.WEIGHTS)
    contents = {name: (whole / name).read_bytes() for name in names}
    config, preparation = (json.loads(contents[name]) for name in names[:2])

    def work(change: tuple[str, Any]) -> None:
        name, value = change
        try:
            if name == "anew":
                sealed = _sealed(value, preparation, contents[folders.WEIGHTS])
                (folder / folders.CONFIG).write_text(json.dumps(sealed))
                load(folder, "cpu").predict(image)
                return
            (folder / name).write_bytes(value)
            same = json_or_bytes(value) == json_or_bytes(contents[name])
            if load(folder, "cpu").digest != digest or not same:
                tally.fail("accepted", f"a damaged {name} was loaded")
        finally:
            for each in names:
                (folder / each).write_bytes(contents[each])

    anew = st.one_of(near([config]), documents(config)).map(lambda value: ("anew", value))
    letters = st.tuples(st.sampled_from(names[:2]), st.integers(0, 5), st.booleans()).map(
        lambda each: (
            each[0],
            json.dumps(json.loads(contents[each[0]]), indent=each[1], sort_keys=each[2]).encode(),
        )
    )
    harmed = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), _change(name, contents[name]))
    )
    try_both(tally, st.one_of(anew, letters), harmed, work, tries, seed)


def _sealed(value: Any, preparation: Any, weights: bytes) -> Any:
    """An edited config with the digest that it ought to have."""
    if not isinstance(value, dict) or not isinstance(value.get("segue"), dict):
        return value
    digest = folders._digest(value, preparation, weights, b"")
    return {**value, "segue": {**value["segue"], "digest": digest}}


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


TENSORS: dict[str, tuple[Attack, int]] = {
    "checkpoints": (checkpoints, 900),
    "model folders": (model_folders, 500),
    "weights": (weights, 900),
}
"""classes of attack, and the tries of a whole campaign"""
