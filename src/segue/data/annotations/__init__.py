"""The user's own annotations: COCO, LabelMe, Cityscapes polygons, VOC folders, images and masks."""

from segue.data.annotations.base import Drawing, Region, Source
from segue.data.annotations.detect import read_source

__all__ = ["Drawing", "Region", "Source", "read_source"]
