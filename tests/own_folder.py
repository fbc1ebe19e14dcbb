"""Makes small data folders of a user's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (24, 18)
"""width, height"""


def write_pair(image: Path, mask: Path, ids: Sequence[int]) -> None:
    """A grey image and a mask whose columns show these ids, in equal parts."""
    image.parent.mkdir(parents=True, exist_ok=True)
    mask.parent.mkdir(parents=True, exist_ok=True)
    columns = np.repeat(np.array(ids, dtype=np.uint8), -(-SIZE[0] // len(ids)))[: SIZE[0]]
    values = np.tile(columns, (SIZE[1], 1))
    Image.fromarray(values).save(mask)
    Image.fromarray(np.stack([values * 40] * 3, axis=-1)).save(image)


def write_folder(root: Path, images: Mapping[str, Sequence[int]], classes: str, suffix: str = ".png") -> Path:
    """images/ and masks/ with classes.txt; `images` gives the ids of each."""
    for key, ids in images.items():
        write_pair(root / "images" / f"{key}{suffix}", root / "masks" / f"{key}.png", ids)
    (root / "classes.txt").write_text(classes, encoding="utf-8")
    return root
