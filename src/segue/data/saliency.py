"""Which pixels stand out: a stand-in for the saliency maps that some methods ask for.

Frequency-tuned saliency (Achanta et al., CVPR 2009): how far the slightly blurred colour of a pixel lies from
the mean colour of its image; salient is what lies twice as far as the average pixel. It needs no network and
no file, and knows no objects: it is a weak substitute for a learned detector's maps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
FAR = 2.0


def salient_pixels(images_B3HW: Tensor) -> Tensor:
    """Whether each pixel stands out, B x H x W."""
    colour = images_B3HW.float()
    kernel = torch.tensor(BLUR, device=colour.device).repeat(3, 1, 1, 1)
    blurred = F.conv2d(F.pad(colour, (2, 2, 0, 0), mode="reflect"), kernel, groups=3)
    blurred = F.conv2d(F.pad(blurred, (0, 0, 2, 2), mode="reflect"), kernel.mT, groups=3)
    distance_BHW = (blurred - colour.mean((2, 3), keepdim=True)).norm(dim=1)
    return distance_BHW > FAR * distance_BHW.mean((1, 2), keepdim=True)
