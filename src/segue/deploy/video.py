"""Frames of a video file, by PyAV (the extra `video`).

The container follows from the file's ending and is not guessed: some formats are lists of other files, or of
addresses on the net, that a guess would open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from segue.core.errors import UserError
from segue.core.extras import needed
from segue.core.ordinary import open_ordinary
from segue.data.image_files import BadFile

CONTAINERS = {
    **dict.fromkeys((".mp4", ".m4v", ".mov"), "mov"),
    **dict.fromkeys((".mkv", ".webm"), "matroska"),
    ".avi": "avi",
}
VIDEO_SUFFIXES = frozenset(CONTAINERS)


def frames(path: Path) -> Iterator[np.ndarray]:
    """uint8 RGB, height x width x 3, upright, one frame after the other."""
    av = needed("av", "video", "A video")
    try:
        with open_ordinary(path) as file, av.open(file, format=CONTAINERS[path.suffix.lower()]) as container:
            if not container.streams.video:
                raise BadFile("unreadable", f"{path} has no pictures: it holds sound alone.")
            stream = container.streams.video[0]
            _check_size(path, stream.codec_context.width, stream.codec_context.height)
            for frame in container.decode(stream):
                _check_size(path, frame.width, frame.height)
                pixels = frame.to_ndarray(format="rgb24")
                turns = round(getattr(frame, "rotation", 0) / 90) % 4
                yield np.ascontiguousarray(np.rot90(pixels, turns))
    except (av.FFmpegError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise BadFile("unreadable", f"{path} cannot be read as a video: {reason}.") from error


def count_frames(path: Path) -> int:
    """How many frames a video says that it has; 1 if it does not say, or cannot be read."""
    av = needed("av", "video", "A video")
    try:
        with open_ordinary(path) as file, av.open(file, format=CONTAINERS[path.suffix.lower()]) as container:
            return max(1, container.streams.video[0].frames)
    except (av.FFmpegError, OSError, ValueError, IndexError):
        return 1


def _check_size(path: Path, width: int, height: int) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise BadFile("unreadable", f"{path} is too large to be decoded safely: {width} x {height} pixels.")
