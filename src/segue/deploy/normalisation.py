"""Notice that a network sees its images with the wrong mean and standard deviation.

A network that sees images as in its training is surer of its answers. So the entropy of its predictions is
compared with that under the usual numbers; where one of these is clearly surer, the user is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from segue.deploy.prepare import Preparation
from segue.losses import wide
from segue.models.adopted.network import AdoptedNetwork

USUAL = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "-1 to 1": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "0 to 1": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""means and standard deviations that networks are trained with, for images of 0 to 1"""
CLEARLY = 0.8
"""share of the given entropy below which another one is clearly less uncertain"""
IMAGES = 8
"""images that are looked at"""


def surer_normalisation(network: AdoptedNetwork, pixels: Sequence[np.ndarray], size: int) -> str | None:
    """A remark, if the usual numbers of another kind make a network clearly surer of its answers.

    It sees the images with `size` pixels along the shorter side.
    """
    images = [Preparation(size).tensor(each) for each in pixels[:IMAGES]]
    given = network.mean.clone(), network.std.clone()
    before = _uncertainty(network, images)
    found: dict[str, float] = {}
    try:
        for name, numbers in USUAL.items():
            mean, std = (torch.tensor(values).view(1, 3, 1, 1).to(network.mean) * 255 for values in numbers)
            if not (torch.allclose(mean, given[0], atol=3) and torch.allclose(std, given[1], rtol=0.1)):
                network.mean, network.std = mean, std
                found[name] = _uncertainty(network, images)
    finally:
        network.mean, network.std = given
    best = min(found, key=lambda name: found[name])
    if not found[best] < CLEARLY * before:
        return None
    words = [",".join(f"{value:g}" for value in values) for values in USUAL[best]]
    return (
        f"The network may want its images otherwise normalised: with {best} its answers are surer (entropy"
        f" {found[best]:.2f}, now {before:.2f} of 1). If so: adopt.mean={words[0]} adopt.std={words[1]}"
    )


@torch.inference_mode()
def _uncertainty(network: AdoptedNetwork, images: Sequence[Tensor]) -> float:
    """Mean entropy of the predictions, as a share of the largest there is."""
    network.eval()
    values = []
    for image in images:
        logits_BKhw = wide(network(image.to(network.mean.device)).logits)
        p_BKhw = logits_BKhw.softmax(1)
        values.append(torch.special.entr(p_BKhw).sum(1).mean().item() / math.log(logits_BKhw.shape[1]))
    return sum(values) / len(values)
