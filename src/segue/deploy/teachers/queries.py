"""Mask classification (Mask2Former, MaskFormer, EoMT of Hugging Face) as a teacher.

Such a model has no classifier of pixels: it answers with masks, and a class for each. The score of a class at
a pixel is the sum over masks of the class's probability times the mask's there. It has no h and cannot grow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.core.checked_json import read_object
from segue.core.errors import UserError
from segue.deploy.teachers.outer_model import LEAST, normalised, of_size
from segue.models.adopted.hf_files import loaded
from segue.models.adopted.parts import Normalisation

KINDS = ("mask2former", "maskformer", "eomt", "eomt_dinov3")
"""model types of transformers whose answers are masks with a class each, the last class being none"""
MULTIPLE = 32
"""number of pixels that divides both sides of an image, as their backbones like it"""


def is_query_folder(folder: Path) -> bool:
    try:
        return (read_object(folder / "config.json") or {}).get("model_type") in KINDS
    except UserError:  # it is said by whoever reads it
        return False


def open_queries(folder: Path) -> Any:
    """The network of a folder of `save_pretrained`."""
    config = read_object(folder / "config.json") or {}
    module = loaded(folder, {"kind": "hf", "config": config}, task="UniversalSegmentation")
    return module.eval().requires_grad_(False)


class QueryScores:
    """Images (0..255, B x 3 x H x W) -> logarithms of the scores of the classes."""

    def __init__(self, module: Any, numbers: Normalisation) -> None:
        self.module, self.numbers = module, numbers
        fixed = module.config.model_type.startswith("eomt")  # a plain ViT with positions of one size
        self.side = module.config.image_size if fixed else None

    def __call__(self, images_B3HW: Tensor) -> Tensor:
        images = normalised(images_B3HW, self.numbers)
        height, width = (side + -side % MULTIPLE for side in images.shape[-2:])
        images = of_size(images, (height, width) if self.side is None else (self.side, self.side))
        out = self.module.to(images.device)(pixel_values=images)
        classes_BQK = out.class_queries_logits.softmax(-1)[..., :-1]
        masks_BQhw = out.masks_queries_logits.sigmoid()
        return torch.einsum("bqk,bqhw->bkhw", classes_BQK, masks_BQhw).clamp_min(LEAST).log()
