"""Backbones worth trying first, by their names in timm; `tiny` is Segue's own."""

SHORT_LIST = {
    "tiny": "4 plain convolutions, 0.1 M parameters: small pictures such as `scenes`",
    "mobilenetv2_100": "1.8 M parameters: CPUs and small devices",
    "tf_efficientnet_lite0": "3.0 M parameters: CPUs and small devices",
    "resnet18": "11 M parameters",
    "resnet50": "23.5 M parameters",
    "resnet101": "42.5 M parameters: the backbone of the published tables",
    "convnext_tiny": "28 M parameters",
}
"""backbones of `segue list backbones`; other timm models work if they give maps (NCHW) at a known stride"""
