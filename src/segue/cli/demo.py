"""`segue demo`: four methods on the embedded data set, then one more class without the old images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from segue.cli._stories import TRY
from segue.cli._tell import tell_next
from segue.cli.options import Device, Quiet, Seed, Words, out_option, settings

STORY, PLACE = TRY, 1


def command(
    words: Words = None,
    out: Annotated[Path, out_option("Folder for the runs and the page.")] = Path("demo"),
    seed: Seed = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Show the point in a few minutes, without data: fine-tuning forgets, MiB and CAF keep.

    segue demo

    Four methods learn nine classes of generated pictures in three steps.
    The page shows scores, curves and pictures of each.
    Then the images are deleted, and CAF's model learns a tenth class: before, after, verdict.
    """
    from segue.studies.demo import demo

    demo(out, settings(words, seed), device, quiet=quiet)
    tell_next("train caf --on scenes --split 5-2", "one run of your own", silent=quiet)
