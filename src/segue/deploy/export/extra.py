"""Other people's packages: those of the extra `onnx`, which not everybody has, and what they say."""

from __future__ import annotations

import re
from typing import Any

from segue.core.extras import needed

ONE_SIZE = "A network for one size of image alone needs --size: segue export MODEL FILE --size 512."


def onnx_package(name: str) -> Any:
    """A module of the extra, or the command that installs it."""
    return needed(name, "onnx", "An ONNX file")


def reason_of(error: Exception) -> str:
    """The first line of what a library says, which may say a page."""
    # torch explains in colours how it works; why it failed stands in the cause
    text = re.sub(r"\x1b\[\d*m", "", str(error.__cause__ or error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
