"""Names of what an exported file takes and gives. No torch."""

from __future__ import annotations

from typing import Literal

IMAGE, LOGITS, MASK, MAP, PROBABILITIES = "image", "logits", "mask", "map", "probabilities"
Outputs = Literal["all", "logits", "mask", "probabilities"]


def output_names(outputs: Outputs) -> tuple[str, ...]:
    """The outputs of a file: logits and mask at the image's size, and logits at the network's own stride."""
    return (LOGITS, MASK, MAP) if outputs == "all" else (outputs,)
