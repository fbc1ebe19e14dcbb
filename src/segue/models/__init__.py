"""The segmentation network: encode -> fuse -> refine -> classify."""

from segue.models.segmenter import Output, Segmenter, Teacher

__all__ = ["Output", "Segmenter", "Teacher"]
