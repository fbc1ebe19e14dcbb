"""Which pixels stand out: maps from files, or a stand-in where there are none.

A map is a grey image of the size of its image, FOLDER/KEY.png, as saliency detectors write it. The stand-in
is frequency-tuned saliency (Achanta et al., CVPR 2009): how far the slightly blurred colour of a pixel lies
from the mean colour of its image; salient is what lies twice as far as the average pixel. It needs no network
and knows no objects: a weak substitute for a learned detector.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.core.errors import UserError
from segue.data.images import check_grey, read_grey
from segue.data.transfer import sent

SALIENT = 128
"""the least grey value of a map that counts"""
BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
FAR = 2.0


def salient_pixels(images_B3HW: Tensor) -> Tensor:
    """Whether each pixel stands out, B x H x W."""
    colour = images_B3HW.float()
    kernel = sent(torch.tensor(BLUR, dtype=colour.dtype), colour.device).repeat(3, 1, 1, 1)
    with torch.autocast(colour.device.type, enabled=False):
        blurred = F.conv2d(F.pad(colour, (2, 2, 0, 0), mode="reflect"), kernel, groups=3)
        blurred = F.conv2d(F.pad(blurred, (0, 0, 2, 2), mode="reflect"), kernel.mT, groups=3)
    distance_BHW = (blurred - colour.mean((2, 3), keepdim=True)).norm(dim=1)
    return distance_BHW > FAR * distance_BHW.mean((1, 2), keepdim=True)


def read_map(folder: Path, key: str, size: tuple[int, int]) -> np.ndarray:
    """1 where an image (height, width) is salient by its map, 0 elsewhere."""
    path = _path(folder, key)
    values = read_grey(path)
    if values.shape != size:
        raise UserError(
            f"The saliency map {path} is {values.shape[1]} x {values.shape[0]} pixels,"
            f" but its image is {size[1]} x {size[0]}."
        )
    if values.max() == 1:
        raise UserError(f"The saliency map {path} holds 0 and 1: maps are grey, from 0 to 255.")
    return (values >= SALIENT).astype(np.uint8)


def check_maps(folder: Path, keys: Iterable[str]) -> None:
    """Every image has its map, a grey image; said before anything is trained."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} of saliency maps.")
    paths = [_path(folder, key) for key in keys]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UserError(
            f"The saliency map {missing[0]} is missing ({len(missing)} of them)."
            " Without maps at all leave method.params.saliency out."
        )
    for path in paths:
        check_grey(path)


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.png"
