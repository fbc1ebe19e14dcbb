"""Made-up run folders: seeded integer confusion matrices, a recipe and, if wanted, small sample pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from segue.core.classes import voc_palette
from segue.core.records import RunRecord, StepRecord, read_run, write_json

GROUPS = (("disc", "square", "<b>"), ("star",), ("moon",))
POLICY = {"mode": "overlapped", "void": "background", "future": "ignore"}
PIXELS = 1000
"""of each class in the test"""

MakeRun = Callable[..., RunRecord]


def confusion_of(hits: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """PIXELS pixels per channel, about the share hits[c] of them right, the rest spread at random."""
    matrix = np.zeros((len(hits), len(hits)), dtype=np.int64)
    for channel, share in enumerate(hits):
        right = round(share * PIXELS)
        matrix[channel] = rng.multinomial(PIXELS - right, np.ones(len(hits)) / len(hits))
        matrix[channel, channel] += right
    return matrix


def write_pictures(
    folder: Path, step: int, channels: int, maps: bool, keys: Sequence[str], size: int = 16
) -> None:
    rng = np.random.default_rng(step)
    write_json(folder / "samples" / "index.json", {"samples": [{"key": key} for key in keys], "classes": []})
    for position in range(len(keys)):
        place = folder / "samples" / str(position)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(place / "input.png")
        for name in ("truth", f"step{step}"):
            picture = Image.fromarray(rng.integers(0, channels, (size, size), dtype=np.uint8))
            picture.putpalette(voc_palette())
            picture.save(place / f"{name}.png")
        for kind in ("energy", "attention") if maps else ():
            about = PngInfo()
            if kind == "attention":
                about.add_text("peak", f"0.3{step}")
            colours = Image.fromarray(rng.integers(0, 255, (size, size, 3), dtype=np.uint8))
            if kind == "energy" or step > 0:
                colours.save(place / f"step{step}-{kind}.png", pnginfo=about)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run folder and read it back. `matrices` fixes the numbers, else they are random."""

    def make(
        method: str,
        name: str | None = None,
        *,
        groups: tuple[tuple[str, ...], ...] = GROUPS,
        matrices: Sequence[Any] | None = None,
        steps: int | None = None,
        learned: int = 0,
        seed: int = 0,
        policy: dict[str, str] = POLICY,
        dataset: str = "shapes",
        params: dict[str, Any] | None = None,
        keys: Sequence[str] = (),
    ) -> RunRecord:
        folder = tmp_path / (name or f"{method}-{seed}")
        offline = method == "joint"
        recipe = {
            "scenario": {"dataset": dataset, **policy, **({"learned": learned} if learned else {})},
            "method": {"name": method, "params": params or {}},
            "train": {"seed": seed, "epochs": 3},
        }
        folder.mkdir()
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
        rng = np.random.default_rng(seed)
        total = 1 if offline else len(groups)
        for step in range(learned, total if steps is None else steps):
            seen = sum(groups if offline else groups[: step + 1], ())
            random = confusion_of(rng.uniform(0.2, 0.9, 1 + len(seen)), rng)
            matrix = random if matrices is None else np.asarray(matrices[step])
            StepRecord(
                run=folder.name,
                method=method,
                dataset=dataset,
                step=step,
                classes=("background", *seen),
                groups=groups,
                confusion=tuple(tuple(int(n) for n in row) for row in matrix),
                policy=policy,
                seed=seed,
                versions={"segue": "0.1.0"},
                recipe_hash="sha256:0",
                losses={"ce": 0.5},
                seconds={"train": 30.0, "eval": 3.0},
                peak_memory=(100 + step) * 2**20,
                images={"train": 10, "test": 5},
                parameters={"trainable": 7, "total": 9},
                offline=offline,
            ).write(folder)
            if keys:
                write_pictures(folder, step, 1 + len(seen), method == "caf", keys)
        return read_run(folder)

    return make
