"""The images of a user's own folder, for a model outside its run."""

from __future__ import annotations

from pathlib import Path

from segue.core import plugins
from segue.data.datasets.base import DataSplit, SegDataset


def folder_images(folder: str | Path, split: DataSplit) -> SegDataset:
    """One split of a folder of images and masks (data/datasets/folder.py)."""
    kind = plugins.find("dataset", "folder")
    return kind(kind.Config(root=str(folder)), split)
