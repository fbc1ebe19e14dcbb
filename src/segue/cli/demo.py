"""`segue demo`: four methods on the embedded data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from segue.cli.options import (
    Device,
    Seed,
    Words,
    out_option,
    settings,
)


def command(
    words: Words = None,
    out: Annotated[Path, out_option("Folder for runs and page.")] = Path("demo"),
    seed: Seed = None,
    device: Device = "auto",
) -> None:
    """Show the point in a few minutes: fine-tuning forgets, MiB and CAF keep. No data needed."""
    from segue.studies.demo import demo

    demo(out, settings(words, seed), device)
