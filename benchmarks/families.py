"""Tiny networks of other libraries with random weights, built from configs: nothing is downloaded.

One of every family that is adopted: the benchmark of exported models and the tests of adoption share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

CLASSES = ("background", "cat", "dog", "cow")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


class OwnUNet(nn.Module):
    """What a user writes: strides of 4, a skip connection, transposed convolutions."""

    def __init__(self, classes: int = len(CLASSES), ending: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.first, self.second, self.third = block(3, 8), block(8, 12, 2), block(12, 16, 2)
        self.up = nn.ConvTranspose2d(16, 12, 2, 2)
        self.last = nn.ConvTranspose2d(24, 8, 2, 2)
        self.out = nn.Conv2d(8, classes, 1)
        self.ending = ending

    def forward(self, images: Tensor) -> Tensor:
        second = self.second(self.first(images))
        joined = torch.cat([second, self.up(self.third(second))], dim=1)
        logits = self.out(self.last(joined).relu())
        return logits if self.ending is None else self.ending(logits)


def block(channels: int, width: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def torchvision_network(name: str) -> nn.Module:
    from torchvision.models import get_model
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.resnet import BasicBlock, ResNet
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead, DeepLabV3
    from torchvision.models.segmentation.fcn import FCN, FCNHead

    if name == "lraspp_mobilenet_v3_large":
        return get_model(name, weights=None, weights_backbone=None, num_classes=len(CLASSES))
    body = IntermediateLayerGetter(ResNet(BasicBlock, [1, 1, 1, 1]), {"layer3": "aux", "layer4": "out"})
    auxiliary = FCNHead(256, len(CLASSES))
    if name == "fcn":
        return FCN(body, FCNHead(512, len(CLASSES)), auxiliary)
    return DeepLabV3(body, DeepLabHead(512, len(CLASSES), (1, 2, 3)), auxiliary)


def smp_network(name: str, encoder: str = "tu-test_resnet.r160_in1k", **settings: Any) -> nn.Module:
    import segmentation_models_pytorch as smp

    settings = {"classes": len(CLASSES), **settings}
    return getattr(smp, name)(encoder_name=encoder, encoder_weights=None, **settings)


def hf_network(name: str) -> nn.Module:
    import transformers as hf

    if name == "segformer":
        widths = {"hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 3, 4]}
        config = hf.SegformerConfig(depths=[1] * 4, decoder_hidden_size=16, num_labels=4, **widths)
        return hf.SegformerForSemanticSegmentation(config)
    if name == "upernet":
        stages = [f"stage{i}" for i in range(1, 5)]
        body = hf.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1] * 4, out_features=stages)
        sizes = {"hidden_size": 16, "auxiliary_in_channels": 24, "auxiliary_channels": 8}
        return hf.UperNetForSemanticSegmentation(
            hf.UperNetConfig(backbone_config=body, num_labels=4, pool_scales=[1, 2], **sizes)
        )
    if name == "dpt":
        sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
        necks = {"neck_hidden_sizes": [8, 8, 16, 32], "fusion_hidden_size": 16, "image_size": 64}
        config = hf.DPTConfig(backbone_out_indices=[0, 1, 2, 3], num_labels=4, **sizes, **necks)
        return hf.DPTForSemanticSegmentation(config)
    sizes = {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}
    heads = {"aspp_out_channels": 16, "num_attention_heads": 2, "atrous_rates": [1, 2, 3]}
    config = hf.MobileViTConfig(num_labels=4, **sizes, **heads)
    return hf.MobileViTForSemanticSegmentation(config)


DPT = {
    "encoder": "tu-test_vit.r160_in1k",
    "decoder_intermediate_channels": (8, 8, 16, 16),
    "decoder_fusion_channels": 16,
}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "torchvision DeepLabV3": lambda: torchvision_network("deeplabv3"),
    "torchvision FCN": lambda: torchvision_network("fcn"),
    "torchvision LRASPP": lambda: torchvision_network("lraspp_mobilenet_v3_large"),
    "smp Unet": lambda: smp_network("Unet", decoder_channels=(16, 16, 8, 8, 8)),
    "smp FPN": lambda: smp_network("FPN", decoder_segmentation_channels=32),
    "smp DeepLabV3Plus": lambda: smp_network("DeepLabV3Plus", decoder_channels=16),
    "smp Segformer": lambda: smp_network("Segformer", decoder_segmentation_channels=16),
    "smp DPT": lambda: smp_network("DPT", **DPT),
    "hf SegFormer": lambda: hf_network("segformer"),
    "hf UperNet": lambda: hf_network("upernet"),
    "hf DPT": lambda: hf_network("dpt"),
    "hf MobileViT": lambda: hf_network("mobilevit"),
    "own U-Net": OwnUNet,
}
ONE_SIZE = {"hf DPT"}
"""networks whose code computes sizes in a way that no exporter follows: a file is for one size alone"""


def lively(module: nn.Module) -> nn.Module:
    """Weights with which something arrives at the end: some libraries start with nearly nothing."""
    for each in module.modules():
        if isinstance(each, nn.Conv2d | nn.Linear | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(each.weight)
            if each.bias is not None:
                nn.init.normal_(each.bias, std=0.1)
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.running_mean, std=0.1)
    return module.eval()
