"""Makes the archive of this version's model folder: `python make.py`. It is made once per format and kept.

A model of the smallest network, taught twice with `caf`, so that something is kept. Its weights are rounded,
which makes the archive small. Beside the folder lie an image and the mask that the model gives for it.
"""

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import segue
from segue.core.progress import Display
from segue.deploy.model_folder import FORMAT
from segue.losses import upsample

SIDE, COLOURS = 48, {"cat": (200, 20, 20), "dog": (20, 200, 20), "bird": (20, 20, 200)}
WORDS = (
    *("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=48", "train.workers=0"),
    *("train.epochs=20", "train.batch_size=4", "train.scale=[1,1]", "eval.samples=0"),
)
FINE, COARSE = 1 / 64, 1 / 8
"""steps to which weights and kept features are rounded"""
LEAST_MARGIN = 0.001
"""by how much a channel wins in every pixel: far more than processors differ"""
CANDIDATES = 300
"""images among which the one with the largest margin is taken"""


def draw(root: Path, subset: str, key: str, ids: tuple[int, ...]) -> None:
    generator = np.random.default_rng(list(key.encode()))
    image = generator.integers(0, 50, (SIDE, SIDE, 3), dtype=np.uint8)
    mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for place, class_id in enumerate(ids):
        where = slice(24 * place, 24 * place + 24)
        image[where, 8:40], mask[where, 8:40] = list(COLOURS.values())[class_id - 1], class_id
    for name, picture in (("images", image), ("masks", mask)):
        (root / name / subset).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(root / name / subset / f"{key}.png")


def rounded(values: Tensor, step: float) -> Tensor:
    """Only what takes room; statistics of batch norm stay as they are."""
    return (values / step).round() * step if values.is_floating_point() and values.numel() > 1000 else values


def margin(model: segue.Model, image: np.ndarray) -> float:
    with torch.inference_mode():
        logits = model.network.eval()(model.images.tensor(image)).logits
    best = upsample(logits, image.shape[:2]).topk(2, dim=1).values
    return float((best[:, 0] - best[:, 1]).min())


def make(home: Path, archive: Path) -> None:
    data = home / "data"
    for subset, count in (("train", 12), ("val", 3)):
        for number in range(count):
            for key, ids in (("a", (1, 2)), ("b", (3, 1)), ("c", (2, 3))):
                draw(data, subset, f"{key}{number}", ids)
    (data / "classes.txt").write_text("\n".join(["background", *COLOURS]))
    recipe = segue.resolve("caf", "folder", "cat,dog/bird", overrides=[*WORDS, f"data.root={data}"])
    segue.run(recipe, home / "run", display=Display(quiet=True), device="cpu")
    model = segue.load(home / "run", "cpu")
    state = {name: rounded(value, FINE) for name, value in model.network.state_dict().items()}
    model.network.load_state_dict(state)
    kept = {
        name: rounded(value, COARSE if "features" in name else FINE)
        for name, value in model.history.kept.items()
    }
    model = replace(model, history=replace(model.history, kept=kept))
    folder = home / "model"
    model.save(folder)
    for number in range(CANDIDATES):
        draw(home / "more", "val", f"photo{number}", (2, 3))
    photos = sorted((home / "more" / "images" / "val").iterdir())
    images = {path: np.asarray(Image.open(path)) for path in photos}
    best = max(images, key=lambda path: margin(model, images[path]))
    assert margin(model, images[best]) > LEAST_MARGIN, margin(model, images[best])
    mask = io.BytesIO()
    Image.fromarray(model.predict(best).ids).save(mask, format="PNG")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(folder.iterdir()):
            file.write(path, f"model/{path.name}")
        file.write(best, "photo.png")
        file.writestr("mask.png", mask.getvalue())
    print(archive, archive.stat().st_size, model.predict(best).names, margin(model, images[best]))


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        make(Path(place), Path(__file__).with_name(f"{FORMAT}.zip"))
