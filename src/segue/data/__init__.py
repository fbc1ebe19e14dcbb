"""Images and masks: data sets, class index, step data, transforms."""

from segue.data.datasets.base import Sample, SegDataset

__all__ = ["Sample", "SegDataset"]
