"""Tiny pictures of pets for tests that extend a model: coloured squares, their masks, and short runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

import segue
from segue.core.progress import Display
from segue.engine.checkpoint import CheckpointStore, load_tree

QUIET = Display(quiet=True)
SIDE = 32
TINY = (
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=32", "train.workers=0"),
    *("train.epochs=2", "train.batch_size=4", "train.scale=[1,1]", "eval.samples=0"),
)
NAMES = ("cat", "dog", "bird", "fish")


def draw(root: Path, key: str, ids: tuple[int, ...], names: tuple[str, ...], subset: str = "train") -> None:
    """An image with a bright square of each class, and its mask."""
    generator = np.random.default_rng(sum(key.encode()))
    image = generator.integers(0, 60, (SIDE, SIDE, 3), dtype=np.uint8)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for place, class_id in enumerate(ids):
        where = slice(4 + 14 * place, 14 + 14 * place)
        image[where, 4:28] = np.eye(3, dtype=np.uint8)[NAMES.index(names[class_id - 1].lower()) % 3] * 200
        mask[where, 4:28] = class_id
    for name, picture in (("images", image), ("masks", mask)):
        (root / name / subset).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(root / name / subset / f"{key}.png")
    (root / "classes.txt").write_text("\n".join(["background", *names]))


def only(root: Path, letter: str, name: str) -> Path:
    """The images of one class, in which nothing else is annotated, with an id of their own."""
    for subset, count in (("train", 8), ("val", 3)):
        for number in range(count):
            draw(root, f"{letter}{number}", (1,), (name,), subset)
    return root


def train(method: str, split: str, root: Path, out: Path) -> Path:
    recipe = segue.resolve(method, "folder", split, overrides=[*TINY, f"data.root={root}"])
    segue.run(recipe, out, display=QUIET)
    return out


def state(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_tree(CheckpointStore(run).path(step))["method"]


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the cache, to see that nothing was touched."""
    files = (path for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
