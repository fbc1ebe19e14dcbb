"""Exports that are not read, known by cheap signs, and which one to choose instead."""

from __future__ import annotations

import re
from pathlib import Path

from segue.data.annotations.locate import walk

HEAD = 65536
"""bytes of a file that are looked at"""
YOLO_FILES = ("data.yaml", "data.yml", "obj.names")
_TASKS = re.compile(rb"\s*\[\s*\{.*\"(completions|annotator|\w+labels)\"\s*:", re.DOTALL)
"""Label Studio's JSON-MIN and its JSON of old: a list of tasks"""


def advise(path: Path) -> str:
    """What to do with a file or folder of another program, or nothing."""
    for file in walk(path) if path.is_dir() else [path]:
        if file.suffix.lower() == ".xml" and b"<annotations>" in _head(file):
            return f"{file} is in CVAT's own format: in CVAT, export as COCO 1.0 or Segmentation mask 1.1."
        if file.suffix.lower() == ".json" and _TASKS.match(_head(file)):
            return f"{file} is a short form of Label Studio's: in Label Studio, export as JSON or COCO."
        if file.name.lower() in YOLO_FILES or _is_yolo_label(file):
            return f"{file} belongs to a YOLO data set, which is not read: convert to COCO first."
    return ""


def _is_yolo_label(file: Path) -> bool:
    """labels/x.txt or labels/train/x.txt, where images/ or images/train/ is a folder too."""
    if file.suffix.lower() != ".txt" or "labels" not in file.parent.parts:
        return False
    parts = list(file.parent.parts)
    parts[len(parts) - 1 - parts[::-1].index("labels")] = "images"
    return Path(*parts).is_dir()


def _head(file: Path) -> bytes:
    try:
        if not file.is_file():  # a pipe would never end
            return b""
        with open(file, "rb") as stream:
            return stream.read(HEAD).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return b""
