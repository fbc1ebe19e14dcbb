"""What the ending of a name says: which kind of file or folder a model becomes. No torch."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from segue.core.errors import UserError

WEIGHTS, ONNX, TORCHSCRIPT, TORCH_EXPORT = ".safetensors", ".onnx", ".pt", ".pt2"
GRAPHS = (ONNX, TORCHSCRIPT, TORCH_EXPORT)
"""endings of files that hold the computation as well as the weights"""
WRITTEN = (WEIGHTS, *GRAPHS)
FOREIGN = frozenset({".pth", ".ckpt", ".bin", ".h5", ".tflite", ".engine", ".xml", ".pb", ".torchscript"})
"""endings of files that others read and that are not written: no folder should have such a name"""
NEAR = 0.6
"""likeness from which on an ending counts as misspelt"""


def ending_of(path: str | Path, allowed: Sequence[str] = WRITTEN) -> str:
    """One of `allowed`, or "" for a model folder; anything else that looks like a file is refused."""
    ending = Path(path).suffix.lower()
    if ending in allowed:
        return ending
    near = difflib.get_close_matches(ending[1:], [each[1:] for each in WRITTEN], n=1, cutoff=NEAR)
    if ending not in FOREIGN and not near:
        return ""
    choices = "a folder" if not allowed else f"a folder or a file that ends in {', '.join(allowed)}"
    meant = f" Did you mean .{near[0]}?" if near and f".{near[0]}" in allowed else ""
    raise UserError(f"{path}: a model is written as {choices}, not {ending}.{meant}")
